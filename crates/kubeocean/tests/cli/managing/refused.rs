//! A worker cluster that does not let pods in: by its pod security, a quota, a policy, or a webhook for which nobody answers. Its words are
//! told, other pods do not suffer, and whoever was kept out runs as soon as he may.

use std::time::Instant;

use kubeocean_api::keys::names::WORKER_NAMESPACE;
use kubeocean_api::keys::reasons::Event;
use serde_json::{Value, json};

use super::place::{apply, condition, get, request, text};
use super::vnodes::syncer_as;
use super::workloads::{Pool, pod};
use crate::access::until;

const W1: (&str, usize) = ("w1", 2);
const MERGE: &str = "application/merge-patch+json";

const QUOTAS: &str = "/api/v1/namespaces/kubeocean-worker/resourcequotas";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const POLICY_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test]
async fn who_is_refused_by_the_worker_cluster_hears_why_and_runs_when_it_is_let_in() {
    let pool = Pool::new(&[W1]).await;
    let mut syncer = syncer_as(&pool.place, &pool.accounts[W1.0], W1.0, "syncer");
    pool.usable(W1).await;
    let began = Instant::now();
    tokio::join!(by_pod_security(&pool), by_a_policy(&pool), by_a_broken_webhook(&pool));
    // The quota counts all pods that there are.
    by_a_quota(&pool).await;
    pool.nothing_left("").await;
    assert!(syncer.is_running(), "{}", syncer.said());
    println!("all stories took {:.1?}", began.elapsed());
    drop(syncer);
    println!("{} pods had one twin each", pool.stop().await);
}

/// What is said of a pod that is refused: its condition and an Event have these words, and nothing of it runs.
async fn is_refused(pool: &Pool, ns: &str, pod: &Value, words: &[&str]) {
    let said = until("it says that it is refused", async || {
        let now = pool.read(ns, pod).await?;
        let said = condition(&now, "kubeocean.io/Mapped").clone();
        let is_pending = now["status"]["phase"] == "Pending";
        if is_pending && said["status"] == "False" { Ok(said) } else { Err(now["status"].to_string()) }
    })
    .await;
    assert_eq!(said["reason"], Event::FailedCreate.as_str(), "{said}");
    let name = text(&pod["metadata"]["name"]);
    let told = pool.told(ns, &name, Event::FailedCreate.as_str()).await;
    for words in words {
        assert!(text(&said["message"]).contains(words), "{said}");
        assert!(told.contains(words), "{told}");
    }
    let its = |twin: &Value| text(&twin["metadata"]["annotations"]["kubeocean.io/virtual-pod-name"]) == name;
    assert!(!pool.twins_of(ns).await.unwrap().iter().any(its));
}

/// It is Running on both sides, and nobody says any more that it was refused.
async fn runs(pool: &Pool, ns: &str, pod: &Value) {
    until("it runs", async || {
        let now = pool.read(ns, pod).await?;
        let is_over = condition(&now, "kubeocean.io/Mapped")["status"] != "False";
        let runs = now["status"]["phase"] == "Running" && condition(&now, "Ready")["status"] == "True";
        if runs && is_over { Ok(()) } else { Err(now["status"].to_string()) }
    })
    .await;
}

fn once(name: &str, more: &Value) -> Value {
    let mut pod = pod(name, &json!({"restartPolicy": "Never"}));
    for (field, value) in more.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn labelled(mut pod: Value, label: &str) -> Value {
    pod["metadata"]["labels"] = json!({label: "yes"});
    pod
}

/// Someone else's pod of the same namespace, which comes at the same time.
async fn a_bystander(pool: &Pool, ns: &str) -> Value {
    let bystander = pod("bystander", &json!({}));
    pool.apply(ns, &bystander).await;
    runs(pool, ns, &bystander).await;
    bystander
}

/// The lender wants no pods that could leave their container.
async fn by_pod_security(pool: &Pool) {
    let ns = "bold";
    pool.namespace(ns).await;
    let container =
        |security: Value| json!({"containers": [{"name": "c", "image": "i", "securityContext": security}]});
    let directory = json!({"volumes": [{"name": "v", "hostPath": {"path": "/etc"}}]});
    let cases = [
        (once("privileged", &container(json!({"privileged": true}))), "privileged"),
        (
            pod("capable", &container(json!({"capabilities": {"add": ["SYS_ADMIN"]}}))),
            "non-default capabilities",
        ),
        (once("nosy", &directory), "hostPath volumes"),
        (pod("networked", &json!({"hostNetwork": true})), "host namespaces"),
    ];
    for (pod, _) in &cases {
        pool.apply(ns, pod).await;
    }
    for (pod, words) in &cases {
        is_refused(pool, ns, pod, &["violates PodSecurity \"baseline", words]).await;
    }
    let bystander = a_bystander(pool, ns).await;
    let level = async |level: &str| {
        let body = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        let path = format!("/api/v1/namespaces/{WORKER_NAMESPACE}");
        request(&pool.phys, "PATCH", &path, MERGE, &body).await.unwrap();
    };
    level("privileged").await;
    for (pod, _) in &cases {
        runs(pool, ns, pod).await;
    }
    level("baseline").await;
    for pod in cases.iter().map(|(pod, _)| pod).chain([&bystander]) {
        pool.delete(ns, pod).await;
    }
    pool.nothing_left(ns).await;
}

/// A rule of the lender's own, in his words.
async fn by_a_policy(pool: &Pool) {
    let ns = "ruled";
    pool.namespace(ns).await;
    let rule = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-ruled"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [{"expression": "!has(object.metadata.labels) || !('ruled' in object.metadata.labels)", "message": "not in my house"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-ruled"},
        "spec": {"policyName": "no-ruled", "validationActions": ["Deny"]},
    });
    apply(&pool.phys, POLICIES, &rule).await;
    apply(&pool.phys, POLICY_BINDINGS, &binding).await;
    until("the rule counts", async || is_dry_refused(pool, "ruled", "not in my house").await).await;
    let cases = [labelled(once("job", &json!({})), "ruled"), labelled(pod("app", &json!({})), "ruled")];
    for pod in &cases {
        pool.apply(ns, pod).await;
    }
    for pod in &cases {
        is_refused(pool, ns, pod, &["not in my house"]).await;
    }
    let bystander = a_bystander(pool, ns).await;
    for path in [POLICY_BINDINGS, POLICIES] {
        request(&pool.phys, "DELETE", &format!("{path}/no-ruled"), "application/json", &Value::Null)
            .await
            .unwrap();
    }
    for pod in &cases {
        runs(pool, ns, pod).await;
    }
    for pod in cases.iter().chain([&bystander]) {
        pool.delete(ns, pod).await;
    }
    pool.nothing_left(ns).await;
}

/// Whether the worker cluster refuses pods with this label by now, with these words.
async fn is_dry_refused(pool: &Pool, label: &str, words: &str) -> Result<(), String> {
    let path = format!("/api/v1/namespaces/{WORKER_NAMESPACE}/pods?dryRun=All");
    let mut probe = labelled(pod("probe", &json!({"serviceAccountName": "kubeocean-workload"})), label);
    probe["spec"]["tolerations"] = Value::Null;
    match request(&pool.phys, "POST", &path, "application/json", &probe).await {
        Ok(_) => Err("it is let in".to_owned()),
        Err(why) if why.contains(words) => Ok(()),
        Err(why) => Err(why),
    }
}

/// A webhook of the lender's that has to be asked, and does not answer.
async fn by_a_broken_webhook(pool: &Pool) {
    let ns = "hooked";
    pool.namespace(ns).await;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "guard"},
        "webhooks": [{
            "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 2, "clientConfig": {"service": {"namespace": "default", "name": "guard"}},
            "objectSelector": {"matchLabels": {"hooked": "yes"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}],
        }],
    });
    apply(&pool.phys, WEBHOOKS, &hook).await;
    until("the webhook is asked", async || is_dry_refused(pool, "hooked", "failed calling webhook").await)
        .await;
    let cases = [labelled(once("job", &json!({})), "hooked"), labelled(pod("app", &json!({})), "hooked")];
    for pod in &cases {
        pool.apply(ns, pod).await;
    }
    for pod in &cases {
        is_refused(pool, ns, pod, &["failed calling webhook \"guard.example.com\""]).await;
    }
    let bystander = a_bystander(pool, ns).await;
    request(&pool.phys, "DELETE", &format!("{WEBHOOKS}/guard"), "application/json", &Value::Null)
        .await
        .unwrap();
    for pod in &cases {
        runs(pool, ns, pod).await;
    }
    for pod in cases.iter().chain([&bystander]) {
        pool.delete(ns, pod).await;
    }
    pool.nothing_left(ns).await;
}

/// All that is lent is used; when someone goes, there is room again.
async fn by_a_quota(pool: &Pool) {
    let ns = "crowded";
    pool.namespace(ns).await;
    let bystander = a_bystander(pool, ns).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "lent"}, "spec": {"hard": {"count/pods": "2"}},
    });
    apply(&pool.phys, QUOTAS, &quota).await;
    until("the quota counts", async || {
        let quota = get(&pool.phys, &format!("{QUOTAS}/lent")).await?;
        if quota["status"]["used"]["count/pods"] == "1" { Ok(()) } else { Err(quota["status"].to_string()) }
    })
    .await;
    let first = pod("first", &json!({}));
    pool.apply(ns, &first).await;
    runs(pool, ns, &first).await;
    let cases = [once("job", &json!({})), pod("app", &json!({}))];
    for pod in &cases {
        pool.apply(ns, pod).await;
    }
    for pod in &cases {
        is_refused(pool, ns, pod, &["exceeded quota: lent", "limited: count/pods=2"]).await;
    }
    runs(pool, ns, &bystander).await;
    pool.delete(ns, &first).await;
    pool.delete(ns, &bystander).await;
    for pod in &cases {
        runs(pool, ns, pod).await;
    }
    for pod in &cases {
        pool.delete(ns, pod).await;
    }
    pool.nothing_left(ns).await;
    request(&pool.phys, "DELETE", &format!("{QUOTAS}/lent"), "application/json", &Value::Null).await.unwrap();
}
