use crate::mirror::*;
use crate::scenario::*;
use kubeocean_testkit::chaos::Profile;
use kubeocean_testkit::simulation::run;
use kubeocean_cluster::informer::Informer;
#[test]
fn probe() {
    run(0, |world| async move {
        let scene = Scene::new(&world, |_| Profile::calm());
        let body = serde_json::json!({"metadata": {"name": "a", "labels": {"mirror": "yes"}}, "data": {"a": "0"}});
        scene.virt.server.call("user", "POST", "/api/v1/namespaces/web/configmaps", None, Some(body));
        let client = scene.virt.server.client("x");
        let r = http::Request::get("/api/v1/configmaps?labelSelector=mirror%3Dyes&watch=true&allowWatchBookmarks=true&timeoutSeconds=85&sendInitialEvents=true&resourceVersionMatch=NotOlderThan").body(kube::client::Body::empty()).unwrap();
        let mut b = client.send(r).await.unwrap().into_body();
        use http_body_util::BodyExt;
        for _ in 0..2 { println!("{:?}", tokio::time::timeout(std::time::Duration::from_secs(1), b.frame()).await); }
        scene.start(|w| Box::pin(async move {
            let (inf, _s) = Informer::<kubeocean_model::key::Virtual, kubeocean_model::object::Object>::of(&w.virt, kubeocean_model::action::kinds::CONFIG_MAP).labels(WANTED).build();
            let store = inf.store();
            tokio::select!{ biased; () = inf.run() => {}, () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {} }
            println!("{:?} {:?}", store.progress(), store.progress().trouble());
        }), None).await;
    });
}
