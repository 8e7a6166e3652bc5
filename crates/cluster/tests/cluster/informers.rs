//! Stores that follow a real API server.

use std::sync::Arc;
use std::time::Duration;

use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::informer::{Informer, Switch};
use kubeocean_cluster::store::{Index, Store};
use kubeocean_model::action::kinds;
use kubeocean_model::key::Virtual;
use kubeocean_model::object::Object;
use kubeocean_sandbox::{COMPUTING, Sandbox, Spec};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::{
    computing, config_map, connect, delete, done, eventually, key, namespace, settings, shared,
};

static BY_APP: Index<Object> =
    Index::new("app", |object| object.meta.labels.get("app").map(str::to_owned).into_iter().collect());

struct Followed {
    store: Store<Virtual, Object>,
    switch: Switch,
    changes: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    fn start(cluster: &Cluster<Virtual>, namespace: &str, in_pages: bool) -> Self {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&changes);
        let builder = Informer::of(cluster, kinds::CONFIG_MAP)
            .namespace(namespace)
            .labels("app")
            .indexed_by(&BY_APP)
            .on_change(move |change| {
                let sign = match (change.old, change.new) {
                    (None, Some(_)) => '+',
                    (Some(_), Some(_)) => '~',
                    _ => '-',
                };
                noted.lock().push(format!("{sign}{}", change.key.name));
            });
        let (informer, switch) = if in_pages { builder } else { builder.streamed() }.build();
        let store = informer.store();
        Self { store, switch, changes, task: tokio::spawn(informer.run()) }
    }

    async fn until(&self, what: &str, names: &[&str]) {
        eventually(what, async || {
            let known: Vec<_> = self.store.all().into_iter().map(|(key, _)| key.name.to_string()).collect();
            (self.store.progress().is_synced() && known == names).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_store_follows_its_part_of_the_world_by_stream_and_by_pages() {
    let sandbox = shared().await;
    let (cluster, applier) = computing(&sandbox).await;
    for (in_pages, home) in [(false, "by-stream"), (true, "by-pages")] {
        namespace(&applier, home).await;
        namespace(&applier, &format!("{home}-2")).await;
        for name in ["a", "b"] {
            done(&applier, &config_map(home, name, &json!({"app": name}))).await;
        }
        done(&applier, &config_map(home, "unlabelled", &json!({}))).await;
        done(&applier, &config_map(&format!("{home}-2"), "elsewhere", &json!({"app": "a"}))).await;
        let followed = Followed::start(&cluster, home, in_pages);
        followed.until("the list", &["a", "b"]).await;
        assert_eq!(followed.store.by(&BY_APP, "b").len(), 1);
        done(&applier, &config_map(home, "c", &json!({"app": "c"}))).await;
        done(&applier, &delete(kinds::CONFIG_MAP, &key(home, "a"))).await;
        followed.until("the changes", &["b", "c"]).await;
        assert_eq!(*followed.changes.lock(), ["+a", "+b", "+c", "-a"]);
    }
}

#[tokio::test]
async fn what_vanished_while_nobody_watched_gives_a_deletion() {
    let sandbox = shared().await;
    let (cluster, applier) = computing(&sandbox).await;
    namespace(&applier, "vanished").await;
    for name in ["a", "b", "c"] {
        done(&applier, &config_map("vanished", name, &json!({"app": "x"}))).await;
    }
    let followed = Followed::start(&cluster, "vanished", false);
    followed.until("the list", &["a", "b", "c"]).await;
    followed.switch.pause();
    done(&applier, &delete(kinds::CONFIG_MAP, &key("vanished", "b"))).await;
    done(&applier, &config_map("vanished", "d", &json!({"app": "x"}))).await;
    assert_eq!(followed.store.len(), 3, "a paused store stays as it is");
    followed.switch.relist();
    followed.switch.resume();
    followed.until("the gap is closed", &["a", "c", "d"]).await;
    assert_eq!(
        followed.changes.lock()[3..],
        ["~a", "~c", "+d", "-b"],
        "what is left is listed, then what is gone is swept"
    );
}

#[tokio::test]
async fn metadata_only_watches_carry_no_content() {
    let sandbox = shared().await;
    let (cluster, applier) = computing(&sandbox).await;
    namespace(&applier, "metadata").await;
    done(&applier, &config_map("metadata", "a", &json!({}))).await;
    for in_pages in [false, true] {
        let builder = Informer::<Virtual, Object>::of(&cluster, kinds::CONFIG_MAP)
            .namespace("metadata")
            .fields("metadata.name=a")
            .metadata_only();
        let (informer, _switch) = if in_pages { builder } else { builder.streamed() }.build();
        let store = informer.store();
        let task = tokio::spawn(informer.run());
        store.progress().synced().await;
        let entry = store.get(&key("metadata", "a")).unwrap();
        assert!(entry.raw("data").is_none() && !entry.uid.is_empty());
        task.abort();
    }
}

#[tokio::test]
async fn new_credentials_move_the_watch_and_keep_the_store() {
    let sandbox = shared().await;
    let (_, applier) = computing(&sandbox).await;
    namespace(&applier, "moved").await;
    done(&applier, &config_map("moved", "a", &json!({"app": "x"}))).await;
    let link = sandbox.cluster(COMPUTING).unwrap().link().await.unwrap();
    let cluster = connect(link.kubeconfig(), settings()).await;
    let followed = Followed::start(&cluster, "moved", false);
    followed.until("the list", &["a"]).await;
    link.cut_silently();
    done(&applier, &config_map("moved", "b", &json!({"app": "x"}))).await;
    let direct = sandbox.cluster(COMPUTING).unwrap().kubeconfig();
    cluster.replace(Credentials::from_kubeconfig(direct.as_bytes()).await.unwrap()).unwrap();
    followed.until("the watch on the new connection", &["a", "b"]).await;
    assert_eq!(
        *followed.changes.lock(),
        ["+a", "~a", "+b"],
        "nothing was forgotten, and a list tells all of it again"
    );
}

#[tokio::test]
async fn a_silent_drop_is_noticed_and_the_gap_closed() {
    let sandbox = shared().await;
    let (_, applier) = computing(&sandbox).await;
    namespace(&applier, "silent").await;
    done(&applier, &config_map("silent", "a", &json!({"app": "x"}))).await;
    let link = sandbox.cluster(COMPUTING).unwrap().link().await.unwrap();
    let mut settings = settings();
    settings.watch_for = Duration::from_secs(1);
    settings.deadline = Duration::from_secs(2);
    let cluster = connect(link.kubeconfig(), settings).await;
    let followed = Followed::start(&cluster, "silent", false);
    followed.until("the list", &["a"]).await;
    link.cut_silently();
    done(&applier, &delete(kinds::CONFIG_MAP, &key("silent", "a"))).await;
    done(&applier, &config_map("silent", "b", &json!({"app": "x"}))).await;
    let noticed = eventually("the drop is noticed", async || followed.store.progress().trouble()).await;
    assert!(
        noticed.to_string().contains("watch is silent") || noticed.to_string().contains("no answer"),
        "{noticed}"
    );
    link.heal();
    followed.until("the gap is closed", &["b"]).await;
    assert!(followed.store.progress().trouble().is_none());
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_is_followed_again() {
    let sandbox = Sandbox::start(Spec::new()).await.unwrap();
    let (cluster, applier) = computing(&sandbox).await;
    namespace(&applier, "killed").await;
    done(&applier, &config_map("killed", "a", &json!({"app": "x"}))).await;
    let followed = Followed::start(&cluster, "killed", false);
    followed.until("the list", &["a"]).await;
    let server = sandbox.cluster(COMPUTING).unwrap().program("kube-apiserver");
    server.kill().await.unwrap();
    eventually("the loss is noticed", async || followed.store.progress().trouble()).await;
    server.start().await.unwrap();
    eventually("the server is back", async || cluster.version().await.ok()).await;
    eventually("a write succeeds", async || {
        applier.apply(&config_map("killed", "b", &json!({"app": "x"}))).await.is_done().then_some(())
    })
    .await;
    followed.until("the store catches up", &["a", "b"]).await;
    // A server that has just started may know no earlier version: then all is listed anew, and what is known is heard of again.
    let mut changes = followed.changes.lock().clone();
    changes.retain(|change| !change.starts_with('~'));
    assert_eq!(changes, ["+a", "+b"]);
    sandbox.stop().await.unwrap();
}

#[tokio::test]
async fn a_kind_that_is_not_served_is_trouble_and_not_silence() {
    let sandbox = shared().await;
    let (cluster, _) = computing(&sandbox).await;
    assert!(!cluster.serves(&kinds::POLICY).await.unwrap());
    assert!(cluster.serves(&kinds::POD).await.unwrap());
    let (informer, _switch) = Informer::<Virtual, Object>::of(&cluster, kinds::POLICY).build();
    let store = informer.store();
    let task = tokio::spawn(informer.run());
    let trouble = eventually("trouble", async || store.progress().trouble()).await;
    assert!(trouble.status().is_some_and(kubeocean_cluster::error::Status::is_not_found), "{trouble}");
    assert!(!store.progress().is_synced());
    task.abort();
}
