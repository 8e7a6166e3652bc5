//! The simulated server as kube's client sees it, under paused time.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubeocean_api::ClusterBinding;
use kubeocean_model::action::kinds;
use kubeocean_testkit::{ApiServer, Options, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};

fn server() -> ApiServer {
    ApiServer::new(Options::default())
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_lives_from_creation_to_deletion() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client("test"));
    let created = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert_eq!(created.metadata.resource_version, Some(server.revision().to_string()));
    let patched =
        api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"b": "2"}}))).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
    let verbs: Vec<_> =
        server.history(0).into_iter().filter(|one| one.name == "a").map(|one| one.verb).collect();
    assert_eq!(verbs, [Verb::Create, Verb::Update, Verb::Delete]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_what_happens_after_its_version() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client("test"));
    let before = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let events = api.watch(&WatchParams::default().timeout(5), &before).await.unwrap();
    let mut events = std::pin::pin!(events);
    let first = events.next().await.unwrap().unwrap();
    assert!(
        matches!(&first, WatchEvent::Added(one) if one.metadata.name.as_deref() == Some("a")),
        "{first:?}"
    );
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let rest: Vec<_> = events.try_collect().await.unwrap();
    assert!(matches!(rest.as_slice(), [WatchEvent::Deleted(_), WatchEvent::Bookmark(_)]), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_gets_bookmarks_and_ends_when_cut() {
    let server = server();
    let api = Api::<Node>::all(server.client("test"));
    let events = api.watch(&WatchParams::default(), "0").await.unwrap();
    let mut events = std::pin::pin!(events);
    let started = tokio::time::Instant::now();
    assert!(matches!(events.next().await.unwrap().unwrap(), WatchEvent::Bookmark(_)));
    assert_eq!(started.elapsed().as_secs(), 60);
    server.drop_watches();
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_old_version_is_expired_once_compacted() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client("test"));
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let page = api.list(&ListParams::default().limit(1)).await.unwrap();
    let token = page.metadata.continue_.clone().unwrap();
    let rest = api.list(&ListParams::default().continue_token(&token)).await.unwrap();
    assert_eq!(rest.items.len(), 2);
    api.create(&PostParams::default(), &config_map("d")).await.unwrap();
    server.compact(server.revision());
    let expired = api.list(&ListParams::default().continue_token(&token)).await.unwrap_err();
    assert!(
        matches!(&expired, kube::Error::Api(status) if status.code == 410 && status.reason == "Expired"),
        "{expired:?}"
    );
    let events = api.watch(&WatchParams::default(), "1").await.unwrap();
    let events: Vec<_> = events.collect().await;
    assert!(matches!(events.as_slice(), [Ok(WatchEvent::Error(status))] if status.code == 410), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn hooks_see_every_commit_in_order_and_may_look_around() {
    let server = server();
    let seen: Arc<Mutex<Vec<(u64, usize)>>> = Arc::default();
    let (log, inside) = (seen.clone(), server.clone());
    server.on_commit(move |commit| {
        let there = inside.list_at(commit.revision, "configmaps", None).len();
        log.lock().push((commit.revision, there));
    });
    let start = server.revision();
    for name in ["a", "b"] {
        let (code, _) = server.call(
            "hand",
            "POST",
            "/api/v1/namespaces/default/configmaps",
            None,
            Some(json!({"metadata": {"name": name}})),
        );
        assert_eq!(code, 201);
    }
    server.call("hand", "DELETE", "/api/v1/namespaces/default/configmaps/a", None, None);
    assert_eq!(*seen.lock(), [(start + 1, 1), (start + 2, 2), (start + 3, 1)]);
}

#[test]
fn a_hook_sees_what_a_hook_did() {
    let server = server();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, inside) = (seen.clone(), server.clone());
    server.on_commit(move |commit| {
        log.lock().push(commit.name.clone());
        if commit.name == "a" {
            let body = json!({"metadata": {"name": "b"}});
            inside.call("hook", "POST", "/api/v1/namespaces/default/configmaps", None, Some(body));
        }
    });
    let body = json!({"metadata": {"name": "a"}});
    server.call("hand", "POST", "/api/v1/namespaces/default/configmaps", None, Some(body));
    assert_eq!(*seen.lock(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_backup_forgets_and_breaks_watches() {
    let server = server();
    let api = Api::<ConfigMap>::default_namespaced(server.client("test"));
    api.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let backup = server.revision();
    api.create(&PostParams::default(), &config_map("lost")).await.unwrap();
    let events = api.watch(&WatchParams::default(), &server.revision().to_string()).await.unwrap();
    server.restore(backup);
    assert_eq!(events.collect::<Vec<_>>().await.len(), 0);
    assert_eq!(server.revision(), backup);
    let names: Vec<_> = server
        .list("configmaps", Some("default"))
        .iter()
        .map(|one| one["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["kept"]);
}

/// A binding, as far as its definition asks for it.
fn bind(server: &ApiServer, name: &str) -> u16 {
    let path = kinds::BINDING.collection_path(None);
    let body = json!({
        "apiVersion": kinds::BINDING.api_version(), "kind": "ClusterBinding", "metadata": {"name": name},
        "spec": {"clusterID": name, "mountNamespace": "m", "secretRef": {"name": "s", "namespace": "n"}},
    });
    server.call("hand", "POST", &path, None, Some(body)).0
}

#[tokio::test(start_paused = true)]
async fn a_restored_backup_keeps_what_there_was_of_defined_kinds_and_a_deleted_definition_does_not() {
    let server = server();
    assert_eq!(bind(&server, "kept"), 201);
    let backup = server.revision();
    assert_eq!(bind(&server, "lost"), 201);
    server.restore(backup);
    let names = || -> Vec<_> {
        let all = server.list("clusterbindings", None);
        all.iter().map(|one| one["metadata"]["name"].clone()).collect()
    };
    assert_eq!(names(), ["kept"]);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = format!("{}.{}", kinds::BINDING.plural, kinds::BINDING.group);
    let place = format!("{definitions}/{name}");
    let (_, mut definition) = server.call("hand", "GET", &place, None, None);
    assert_eq!(server.call("hand", "DELETE", &place, None, None).0, 200);
    for field in ["resourceVersion", "uid", "creationTimestamp"] {
        definition["metadata"].as_object_mut().unwrap().remove(field);
    }
    assert_eq!(server.call("hand", "POST", definitions, None, Some(definition)).0, 201);
    assert_eq!(names(), Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn an_actor_is_refused_what_is_forbidden() {
    let server = server();
    server.forbid("mallory", "list", "", "secrets");
    let (code, status) = server.call("mallory", "GET", "/api/v1/namespaces/default/secrets", None, None);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "secrets is forbidden: User \"mallory\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(server.call("alice", "GET", "/api/v1/namespaces/default/secrets", None, None).0, 200);
}

#[tokio::test(start_paused = true)]
async fn owned_objects_and_namespaces_go_with_the_controllers() {
    let server = server();
    let post = |path: &str, body: Value| {
        let (code, object) = server.call("hand", "POST", path, None, Some(body));
        assert_eq!(code, 201, "{object}");
        object
    };
    post("/api/v1/namespaces", json!({"metadata": {"name": "team"}}));
    let owner = post("/api/v1/namespaces/team/configmaps", json!({"metadata": {"name": "owner"}}));
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    post(
        "/api/v1/namespaces/team/configmaps",
        json!({"metadata": {"name": "owned", "ownerReferences": reference}}),
    );
    post("/api/v1/namespaces/team/configmaps", json!({"metadata": {"name": "free"}}));
    let names = || {
        server
            .list("configmaps", Some("team"))
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    server.call("hand", "DELETE", "/api/v1/namespaces/team/configmaps/owner", None, None);
    let settle = || tokio::time::timeout(Duration::from_secs(5), server.controllers());
    settle().await.unwrap_err();
    assert_eq!(names(), ["free"]);
    server.call("hand", "DELETE", "/api/v1/namespaces/team", None, None);
    settle().await.unwrap_err();
    assert!(server.get("namespaces", "", "team").is_none());
    assert_eq!(names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_validated_and_have_a_status_of_their_own() {
    let server = server();
    let api = Api::<ClusterBinding>::all(server.client("test"));
    let binding: ClusterBinding = serde_json::from_value(json!({
        "apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "metadata": {"name": "w1"},
        "spec": {"clusterID": "w1", "secretRef": {"name": "s", "namespace": "n"}, "mountNamespace": "m"},
    }))
    .unwrap();
    api.create(&PostParams::default(), &binding).await.unwrap();
    let apply = PatchParams::apply("manager").force();
    let status = json!({"apiVersion": "cloud.tencent.com/v1beta1", "kind": "ClusterBinding", "status": {"phase": "Ready"}});
    let applied = api.patch_status("w1", &apply, &Patch::Apply(&status)).await.unwrap();
    assert_eq!(applied.metadata.generation, Some(1));
    let wrong = api
        .patch("w1", &PatchParams::default(), &Patch::Merge(json!({"spec": {"clusterID": "w2"}})))
        .await
        .unwrap_err();
    assert!(wrong.to_string().contains("clusterID cannot be changed"), "{wrong}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let world =
        |seed| {
            let server = ApiServer::new(Options { seed, ..Options::default() });
            for _ in 0..3 {
                server.call("hand", "POST", "/api/v1/namespaces/default/pods", None, Some(json!({
                "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "x"}]},
            })));
            }
            server.list("pods", None).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
    assert_eq!(world(1), world(1));
    assert_ne!(world(1), world(2));
    assert_eq!(world(1).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_waits_for_its_kubelet() {
    let server = server();
    let api = Api::<Pod>::default_namespaced(server.client("test"));
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]},
    }))
    .unwrap();
    api.create(&PostParams::default(), &pod).await.unwrap();
    let going = api.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    assert!(api.get_opt("p").await.unwrap().is_some());
    api.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(api.get_opt("p").await.unwrap().is_none());
}
