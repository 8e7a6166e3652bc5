//! The lender's side: what is applied in a worker cluster, and what the borrower may do there then.

use std::sync::Arc;

use kubeocean_model::rights::{Question, WorkerWishes, in_worker};
use kubeocean_sandbox::{Cluster, Sandbox, Spec};
use serde_json::{Value, json};

use crate::access::{attempt, client, kubectl, questions, refused, until};
use crate::support::{answer, kubeocean, run, succeed};

const MOUNT: &str = "kubeocean-worker";
const APPLY: &str = "apply --server-side -f -";

async fn sandbox() -> Arc<Sandbox> {
    Sandbox::shared("lending", || Spec::new().workers(1, 1, 0)).await.unwrap()
}

fn worker(sandbox: &Sandbox) -> Cluster {
    sandbox.cluster("worker-1").unwrap().clone()
}

/// `kubeocean worker-kubeconfig` with the lender's rights: what it printed, and what it said.
fn kubeconfig(worker: &Cluster, flags: &str) -> (String, String) {
    let path = worker.kubeconfig_path().to_str().unwrap();
    let args = ["worker-kubeconfig", "--kubeconfig", path].into_iter().chain(flags.split_whitespace());
    let answer = answer(kubeocean(args));
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    (answer.out, answer.err)
}

fn pod(name: &str, namespace: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "containers": [{ "name": "main", "image": "example.com/nothing" }],
            "serviceAccountName": "kubeocean-workload",
            "priorityClassName": "kubeocean-default",
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn with_the_printed_kubeconfig_a_borrower_may_do_what_it_needs_and_nothing_else() {
    let sandbox = sandbox().await;
    let worker = worker(&sandbox);
    kubectl(&worker, APPLY, &succeed(["worker-manifest", "--crd", "--storage"]));
    kubectl(
        &worker,
        "wait --for=condition=Established --timeout=60s crd/resourceleasingpolicies.cloud.tencent.com",
        "",
    );
    // A definition is established a moment before kubectl finds it.
    let policy = succeed(["worker-manifest", "--crd", "--storage", "--with-policy", "berlin"]);
    kubectl(&worker, APPLY, &policy);
    assert_eq!(kubectl(&worker, "get rlp berlin -o jsonpath={.spec.cluster}", ""), "berlin");

    let (config, said) = kubeconfig(&worker, "--duration 24h");
    assert!(said.contains("The token ends "), "{said}");
    assert!(said.contains("give the one that the borrower reaches with --server"), "{said}");
    let borrower = client(&config, None).await;

    let needed = questions(&in_worker(&WorkerWishes { storage: true, policies: true }), MOUNT);
    assert!(needed.len() > 60, "{}", needed.len());
    assert_eq!(refused(&borrower, needed).await, Vec::<String>::new(), "needed, and refused");

    let forbidden = [
        ("get", "", "secrets", None, Some("kube-system")),
        ("list", "", "secrets", None, None),
        ("get", "", "secrets", None, Some("kubeocean-identity")),
        ("get", "", "configmaps", None, Some("kube-system")),
        ("patch", "", "nodes", None, None),
        ("patch", "", "nodes", Some("status"), None),
        ("delete", "", "nodes", None, None),
        ("get", "", "nodes", Some("proxy"), None),
        ("create", "", "nodes", Some("proxy"), None),
        ("create", "", "pods", None, Some("default")),
        ("create", "", "pods", Some("exec"), Some("kube-system")),
        ("get", "", "pods", Some("log"), Some("default")),
        ("patch", "", "namespaces", None, Some(MOUNT)),
        ("create", "", "namespaces", None, None),
        ("create", "", "serviceaccounts", Some("token"), Some(MOUNT)),
        ("create", "", "serviceaccounts", Some("token"), Some("kubeocean-identity")),
        ("patch", "", "resourcequotas", None, Some(MOUNT)),
        ("delete", "networking.k8s.io", "networkpolicies", None, Some(MOUNT)),
        ("create", "rbac.authorization.k8s.io", "rolebindings", None, Some(MOUNT)),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings", None, None),
        ("patch", "cloud.tencent.com", "resourceleasingpolicies", None, None),
        ("delete", "scheduling.k8s.io", "priorityclasses", None, None),
        ("impersonate", "", "users", None, None),
    ];
    let forbidden = forbidden.map(|(verb, group, resource, subresource, namespace)| Question {
        verb,
        group,
        resource,
        subresource,
        namespace: namespace.map(str::to_owned),
        name: None,
    });
    let told: Vec<_> = forbidden.iter().map(ToString::to_string).collect();
    assert_eq!(refused(&borrower, forbidden).await, told, "not to be allowed");

    // Not only what the server says that it would say.
    let (code, words) =
        attempt(&borrower, "POST", "/api/v1/namespaces/default/pods", &pod("a", "default", &json!({})))
            .await
            .unwrap_err();
    assert_eq!(code, 403, "{words}");
    let (code, _) =
        attempt(&borrower, "GET", "/api/v1/namespaces/kube-system/secrets", &Value::Null).await.unwrap_err();
    assert_eq!(code, 403);
    let node = format!("/api/v1/nodes/{}", worker.sim_nodes()[0]);
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(attempt(&borrower, "PATCH", &node, &label).await.unwrap_err().0, 403);
}

#[tokio::test]
async fn borrowed_pods_stay_within_what_the_lender_allows() {
    let sandbox = sandbox().await;
    let worker = worker(&sandbox);
    let manifest =
        succeed(["worker-manifest", "--namespace", "strict", "--identity-namespace", "strict-identity"]);
    kubectl(&worker, APPLY, &manifest);
    let (config, _) = kubeconfig(&worker, "--namespace strict --identity-namespace strict-identity");
    let borrower = client(&config, None).await;
    let pods = "/api/v1/namespaces/strict/pods";
    // A quota refuses everything until a controller has counted once.
    until("a plain pod may run", async || {
        let plain = pod("plain", "strict", &json!({}));
        attempt(&borrower, "POST", pods, &plain).await.map_err(|(_, words)| words)
    })
    .await;

    let boss = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "boss" }, "value": 1_000_000,
    });
    kubectl(&worker, "create -f -", &boss.to_string());
    let service = |kind: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
            "spec": { "type": kind, "ports": [{ "port": 80 }] },
        })
    };
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let host_path = json!({ "volumes": [{ "name": "root", "hostPath": { "path": "/" } }] });
    let privileged = json!({
        "containers": [{ "name": "main", "image": "example.com/nothing", "securityContext": { "privileged": true } }],
    });
    let of = |spec: Value| pod("a", "strict", &spec);
    let collection = |resource: &str| format!("/api/v1/namespaces/strict/{resource}");
    for (what, path, body, words) in [
        ("a host path", pods.to_owned(), of(host_path), "violates PodSecurity \"baseline"),
        (
            "the host network",
            pods.to_owned(),
            of(json!({ "hostNetwork": true })),
            "violates PodSecurity \"baseline",
        ),
        ("a privileged container", pods.to_owned(), of(privileged), "violates PodSecurity \"baseline"),
        (
            "a higher priority",
            pods.to_owned(),
            of(json!({ "priorityClassName": "boss" })),
            "exceeded quota: kubeocean-priority",
        ),
        (
            "no priority class",
            pods.to_owned(),
            of(json!({ "priorityClassName": "" })),
            "exceeded quota: kubeocean-priority",
        ),
        (
            "a port of every node",
            collection("services"),
            service("NodePort"),
            "exceeded quota: kubeocean-objects",
        ),
        (
            "a load balancer",
            collection("services"),
            service("LoadBalancer"),
            "exceeded quota: kubeocean-objects",
        ),
        (
            "a claim without storage",
            collection("persistentvolumeclaims"),
            claim,
            "exceeded quota: kubeocean-objects",
        ),
    ] {
        let answer = attempt(&borrower, "POST", &path, &body).await;
        let (code, said) = answer.expect_err(what);
        assert!(code == 403 && said.contains(words), "{what}: {code} {said}");
    }
    attempt(&borrower, "POST", &collection("services"), &service("ClusterIP")).await.unwrap();

    // Without storage, volumes are not asked for, and not given.
    let plain = questions(&in_worker(&WorkerWishes { storage: false, policies: true }), "strict");
    assert_eq!(refused(&borrower, plain).await, Vec::<String>::new());
    assert!(attempt(&borrower, "GET", "/api/v1/persistentvolumes", &Value::Null).await.is_err());
    // Two borrowers do not see each other's Secrets.
    assert!(
        attempt(&borrower, "GET", "/api/v1/namespaces/kubeocean-worker/secrets", &Value::Null).await.is_err()
    );
}

#[tokio::test]
async fn a_kubeconfig_that_does_not_end_says_how_to_end_it() {
    let sandbox = sandbox().await;
    let worker = worker(&sandbox);
    let names = "--namespace lasting --identity-namespace lasting-identity";
    let manifest =
        succeed(["worker-manifest", "--namespace", "lasting", "--identity-namespace", "lasting-identity"]);
    kubectl(&worker, APPLY, &manifest);
    let (config, said) = kubeconfig(
        &worker,
        &format!("{names} --context worker-1 --long-lived --server https://api.example.com:6443"),
    );
    assert!(said.contains("delete Secret kubeocean-borrower-token in namespace lasting-identity"), "{said}");
    assert!(config.contains("server: https://api.example.com:6443"), "{config}");
    assert!(!said.contains("this machine only"), "{said}");
    let again = kubeconfig(&worker, &format!("{names} --long-lived"));
    let borrower = client(&again.0, None).await;
    attempt(&borrower, "GET", "/api/v1/nodes", &Value::Null).await.unwrap();
}

#[tokio::test]
async fn what_is_missing_or_not_allowed_is_named_with_the_fix() {
    let sandbox = sandbox().await;
    let worker = worker(&sandbox);
    let lender = worker.kubeconfig_path().to_str().unwrap().to_owned();
    let nobody = tempfile::NamedTempFile::new().unwrap();
    let anonymous =
        worker.kubeconfig().replace("client-certificate-data", "x-1").replace("client-key-data", "x-2");
    std::fs::write(nobody.path(), anonymous).unwrap();
    let nobody = nobody.path().to_str().unwrap();
    for (flags, code, words) in [
        (
            format!("--kubeconfig {lender} --identity-namespace nobody"),
            3,
            "there is no ServiceAccount kubeocean-borrower in namespace nobody: `kubeocean worker-manifest",
        ),
        (format!("--kubeconfig {nobody}"), 1, "looking for the borrower's identity"),
        ("--kubeconfig /no/such/file".to_owned(), 1, "the kubeconfig cannot be read: /no/such/file"),
        (format!("--kubeconfig {lender} --context nowhere"), 1, "nowhere"),
        (format!("--kubeconfig {lender} --duration 1m"), 2, "use 10m or more"),
        (format!("--kubeconfig {lender} --server http://api"), 2, "use an https:// address"),
        (format!("--kubeconfig {lender} --namespace No_Good"), 2, "use at most 63 of a-z"),
    ] {
        let answer = answer(kubeocean(["worker-kubeconfig"].into_iter().chain(flags.split_whitespace())));
        assert_eq!(answer.code, Some(code), "{flags}: {}", answer.err);
        assert!(answer.err.contains(words) && answer.out.is_empty(), "{flags}: {}", answer.err);
    }
}

#[test]
fn a_manifest_that_makes_no_sense_is_not_printed() {
    for (flags, words) in [
        ("--namespace one --identity-namespace one", "give another --identity-namespace"),
        ("--namespace Upper", "use at most 63 of a-z"),
        ("--with-policy No_Good", "use the name of a ClusterBinding"),
        ("--unreachable 0.0.0.0/0", "use an address and the length of its network"),
    ] {
        let answer = answer(kubeocean(["worker-manifest"].into_iter().chain(flags.split_whitespace())));
        assert_eq!(answer.code, Some(2), "{flags}: {}", answer.err);
        assert!(answer.err.contains(words) && answer.out.is_empty(), "{flags}: {}", answer.err);
    }
}

#[test]
fn without_options_the_manifest_is_the_committed_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/worker/worker.yaml");
    let without_comments =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let committed = std::fs::read_to_string(path).unwrap();
    assert_eq!(without_comments(&succeed(["worker-manifest"])), without_comments(&committed));
}

#[test]
fn a_lender_hears_that_borrowed_pods_may_reach_the_api_server() {
    let said = run(["worker-manifest"]).err;
    assert!(said.contains("name its addresses with --unreachable") && said.lines().count() == 1, "{said}");
    assert_eq!(run(["worker-manifest", "--unreachable", "10.0.0.10/32"]).err, "");
}

#[test]
fn a_manifest_is_printed_for_machines_too() {
    let list: Value = serde_json::from_str(&succeed(["worker-manifest", "-o", "json"])).unwrap();
    assert_eq!(list["kind"], "List");
    let names = succeed(["worker-manifest", "-o", "name", "--crd", "--with-policy", "berlin"]);
    assert_eq!(names.lines().count(), list["items"].as_array().unwrap().len() + 2);
    assert!(names.ends_with("resourceleasingpolicy.cloud.tencent.com/berlin\n"), "{names}");
}
