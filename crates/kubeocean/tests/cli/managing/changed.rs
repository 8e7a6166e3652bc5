//! What people change of a pod that runs is changed of its twin, and that is the same twin.

use kubeocean_api::keys::annotations;
use kubeocean_api::keys::names::WORKER_NAMESPACE;
use serde_json::{Value, json};

use super::place::{request, text};
use super::workloads::{Pool, pod};
use crate::access::until;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Lists of containers replace each other.
fn with_the_rest(mut status: Value, twin: &Value) -> Value {
    let said = &mut status["status"]["containerStatuses"][0];
    for (field, value) in twin["status"]["containerStatuses"][0].as_object().unwrap() {
        if said[field].is_null() {
            said[field] = value.clone();
        }
    }
    status
}

/// Everything that an API server lets people change of a pod, one after the other.
pub(super) async fn what_changes_of_a_pod_changes_of_its_twin(pool: &Pool) {
    let ns = "changes";
    pool.namespace(ns).await;
    let resources =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}});
    let mut app = pod("app", &json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}));
    app["metadata"]["annotations"] = json!({"example.com/note": "one", "example.com/gone": "soon"});
    pool.apply(ns, &app).await;
    let before = pool.agree(ns, 1, "Running").await.remove(0).1;
    let patch = async |subresource: &str, content: &str, body: Value| {
        let path = format!("/api/v1/namespaces/{ns}/pods/app{subresource}");
        request(&pool.virt, "PATCH", &path, content, &body).await.unwrap()
    };
    let becomes = async |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        until(&format!("its twin has {what}"), async || {
            let twin = pool.twins_of(ns).await?.pop().ok_or("no twin")?;
            assert_eq!(twin["metadata"]["uid"], before["metadata"]["uid"]);
            if is_so(&twin) { Ok(()) } else { Err(twin.to_string()) }
        })
        .await;
    };

    patch(
        "",
        MERGE,
        json!({"metadata": {"annotations": {"example.com/note": "two", "example.com/gone": null}}}),
    )
    .await;
    becomes("other annotations", &|twin| {
        let notes = &twin["metadata"]["annotations"];
        notes["example.com/note"] == "two" && notes["example.com/gone"].is_null()
    })
    .await;

    patch("", MERGE, json!({"spec": {"activeDeadlineSeconds": 7200}})).await;
    becomes("a deadline", &|twin| twin["spec"]["activeDeadlineSeconds"] == 7200).await;
    patch("", MERGE, json!({"spec": {"activeDeadlineSeconds": 3600}})).await;
    becomes("an earlier deadline", &|twin| twin["spec"]["activeDeadlineSeconds"] == 3600).await;

    let mut tolerations =
        pool.read(ns, &app).await.unwrap()["spec"]["tolerations"].as_array().cloned().unwrap();
    let more = json!({"key": "example.com/late", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
    tolerations.push(more.clone());
    patch("", MERGE, json!({"spec": {"tolerations": tolerations}})).await;
    becomes("one more toleration", &|twin| twin["spec"]["tolerations"].as_array().unwrap().contains(&more))
        .await;

    // Who may be resized is known by what its kubelet says that it has now. Not every API server keeps that: it comes with other news.
    let twin = pool.twins_of(ns).await.unwrap().remove(0);
    let place =
        format!("/api/v1/namespaces/{WORKER_NAMESPACE}/pods/{}/status", text(&twin["metadata"]["name"]));
    let has =
        json!({"status": {"containerStatuses": [{"name": "c", "resources": resources, "restartCount": 1}]}});
    let has = with_the_rest(has, &twin);
    request(&pool.phys, "PATCH", &place, STRATEGIC, &has).await.unwrap();
    until("the pod says what it has", async || {
        let now = pool.read(ns, &app).await?;
        let said = &now["status"]["containerStatuses"][0]["resources"];
        if *said == resources { Ok(()) } else { Err(now["status"].to_string()) }
    })
    .await;

    let larger =
        json!({"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "192Mi"}});
    let resized = json!({"spec": {"containers": [{"name": "c", "resources": larger}]}});
    patch("/resize", STRATEGIC, resized).await;
    becomes("more to run with", &|twin| twin["spec"]["containers"][0]["resources"] == larger).await;

    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "d", "targetContainerName": "c"}]}});
    patch("/ephemeralcontainers", STRATEGIC, debug).await;
    becomes("a container to look inside", &|twin| twin["spec"]["ephemeralContainers"][0]["name"] == "debug")
        .await;

    until("the pod says by which generation it runs", async || {
        let now = pool.read(ns, &app).await?;
        let twin = pool.twins_of(ns).await?.pop().ok_or("no twin")?;
        let generation = now["metadata"]["generation"].to_string();
        let is_written = twin["metadata"]["annotations"][annotations::VIRTUAL_GENERATION] == *generation;
        if is_written { Ok(()) } else { Err(format!("{generation} is not in {}", twin["metadata"])) }
    })
    .await;
    pool.delete(ns, &app).await;
    pool.nothing_left(ns).await;
}
