//! Templates from files that change while a manager runs.

use std::path::{Path, PathBuf};

use kubeocean_api::keys::names::{INSTALL_NAMESPACE, WORKER_NAMESPACE};
use serde_json::{Value, json};

use super::place::{Place, condition, get, request, text};
use crate::access::until;

/// An object of the binding.
async fn object(place: &Place, group: &str, plural: &str, name: &str) -> Value {
    let path = format!("/apis/{group}/namespaces/{INSTALL_NAMESPACE}/{plural}/{name}");
    get(&place.virt, &path).await.unwrap()
}

async fn deployment(place: &Place, component: &str) -> Value {
    object(place, "apps/v1", "deployments", &format!("kubeocean-{component}-one")).await
}

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// What tells whether anyone has written it or made it anew.
fn identity(deployment: &Value) -> (String, i64) {
    let metadata = &deployment["metadata"];
    (text(&metadata["uid"]), metadata["generation"].as_i64().unwrap_or_default())
}

async fn rolled(place: &Place, component: &str, wanted: &str) -> Value {
    until(&format!("the {component} runs {wanted}"), async || {
        let deployment = deployment(place, component).await;
        if image(&deployment) == wanted { Ok(deployment) } else { Err(image(&deployment).to_owned()) }
    })
    .await
}

fn directory(place: &Place, name: &str) -> PathBuf {
    let directory = place.sandbox.directory().join(name);
    std::fs::create_dir(&directory).unwrap();
    directory
}

fn write(directory: &Path, text: &str) {
    std::fs::write(directory.join("values.yaml"), text).unwrap();
}

/// Whoever edits or deletes an autoscaler finds it as the template says, a moment later.
async fn the_autoscaler_is_put_right(place: &Place) {
    let path = format!(
        "/apis/autoscaling/v2/namespaces/{INSTALL_NAMESPACE}/horizontalpodautoscalers/kubeocean-proxier-one"
    );
    let before = text(&get(&place.virt, &path).await.unwrap()["metadata"]["uid"]);
    let edited = json!({"spec": {"maxReplicas": 3}});
    request(&place.virt, "PATCH", &path, "application/merge-patch+json", &edited).await.unwrap();
    until("what was edited is put right", async || {
        let now = get(&place.virt, &path).await?;
        if now["spec"]["maxReplicas"] == 9 { Ok(()) } else { Err(now["spec"].to_string()) }
    })
    .await;
    request(&place.virt, "DELETE", &path, "application/json", &Value::Null).await.unwrap();
    until("what was deleted is made anew", async || {
        let now = get(&place.virt, &path).await?;
        let is_new = text(&now["metadata"]["uid"]) != before && now["spec"]["maxReplicas"] == 9;
        if is_new { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn templates_are_followed_and_a_broken_one_costs_nothing_that_runs() {
    let place = Place::new(1).await;
    let (syncer, proxier) = (directory(&place, "syncer"), directory(&place, "proxier"));
    write(&syncer, "image: kubeocean:a\n");
    write(&proxier, "image: kubeocean:a\nautoscaling: {minReplicas: 2, maxReplicas: 9}\n");
    let flags = [
        format!("--syncer-template-dir={}", syncer.display()),
        format!("--proxier-template-dir={}", proxier.display()),
    ];
    let manager = place.manager("manager-a", &[&flags[0], &flags[1]]);
    place.secret("one", &place.worker("worker-1").kubeconfig()).await;
    place.bind("one", "one", WORKER_NAMESPACE).await;
    place.all_ready(["one"]).await;
    let autoscaler =
        object(&place, "autoscaling/v2", "horizontalpodautoscalers", "kubeocean-proxier-one").await;
    assert_eq!(
        (&autoscaler["spec"]["minReplicas"], &autoscaler["spec"]["maxReplicas"]),
        (&json!(2), &json!(9))
    );

    the_autoscaler_is_put_right(&place).await;

    // As an autoscaler would. The next roll leaves the number alone.
    let scaled = json!({"spec": {"replicas": 4}});
    let path = format!("/apis/apps/v1/namespaces/{INSTALL_NAMESPACE}/deployments/kubeocean-proxier-one");
    request(&place.virt, "PATCH", &path, "application/merge-patch+json", &scaled).await.unwrap();
    write(&proxier, "image: kubeocean:b\nautoscaling: {minReplicas: 2, maxReplicas: 9}\n");
    write(&syncer, "image: kubeocean:b\n");
    assert_eq!(rolled(&place, "proxier", "kubeocean:b").await["spec"]["replicas"], 4);
    rolled(&place, "syncer", "kubeocean:b").await;
    place.all_ready(["one"]).await;

    let before = identity(&deployment(&place, "syncer").await);
    write(&syncer, "image: kubeocean:c\nautoscaling: {minReplicas: 2, maxReplicas: 9}\n");
    let failed = place.binding("one", "Failed", |binding| binding["status"]["phase"] == "Failed").await;
    let message = text(&condition(&failed, "Ready")["message"]);
    let expected =
        format!("{}: line 2: autoscaling is for the proxier", syncer.join("values.yaml").display());
    assert!(message.contains(&expected), "{message}");
    assert_eq!(condition(&failed, "SyncerReady")["status"], "True", "it runs: {failed:#}");
    assert_eq!(identity(&deployment(&place, "syncer").await), before, "what runs stays as it is");

    write(&syncer, "image: kubeocean:d\n");
    place.all_ready(["one"]).await;
    let after = identity(&rolled(&place, "syncer", "kubeocean:d").await);
    assert_eq!(after.0, before.0, "it is rolled, not made anew");
    assert!(after.1 > before.1, "{after:?} {before:?}");
    assert_eq!(deployment(&place, "proxier").await["spec"]["replicas"], 4, "nobody fights over it");
    drop(manager);
    place.stop().await;
}
