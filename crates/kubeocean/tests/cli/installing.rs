//! The shipped configuration before a real API server: it is accepted, and gives each component what it
//! needs and no more.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use kubeocean_api::keys::labels;
use kubeocean_model::rights::{Component, Question, in_computing, own_role};
use kubeocean_sandbox::{COMPUTING, Cluster, Sandbox, Spec};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::access::{attempt, client, kubectl, questions, refused, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
pub(crate) const INSTALLED: &str = "kubeocean-system";
pub(crate) const MANAGER: &str = "system:serviceaccount:kubeocean-system:kubeocean-manager";
pub(crate) const SYNCER: &str = "system:serviceaccount:kubeocean-system:kubeocean-syncer-berlin";
pub(crate) const PROXIER: &str = "system:serviceaccount:kubeocean-system:kubeocean-proxier-berlin";

/// A computing cluster with everything of `config/default`, and one binding's identities as the manager makes them.
pub(crate) async fn installed() -> (Arc<Sandbox>, Cluster) {
    static ONCE: OnceCell<()> = OnceCell::const_new();
    let sandbox = Sandbox::shared("installing", Spec::new).await.unwrap();
    let computing = sandbox.cluster(COMPUTING).unwrap().clone();
    ONCE.get_or_init(|| install(&computing)).await;
    (sandbox, computing)
}

async fn install(computing: &Cluster) {
    make(computing);
    let manager = client(&computing.kubeconfig(), Some(MANAGER)).await;
    for component in [Component::Syncer, Component::Proxier] {
        for (path, object) in made_by_the_manager(component) {
            let answer = create(&manager, path, &object).await;
            assert!(answer.is_ok(), "the manager cannot make {object}: {answer:?}");
        }
    }
    fences_stand(computing).await;
}

/// As an operator does it. What `make install` would build first is what is tested here.
fn make(computing: &Cluster) {
    let kubectl = computing.kubectl();
    let programs = Path::new(kubectl.as_std().get_program()).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let made = Command::new("make")
        .args(["-C", ROOT, "-o", "build", "install", "deploy"])
        .arg(concat!("KUBEOCEAN=", env!("CARGO_BIN_EXE_kubeocean")))
        .env("PATH", path)
        .env("KUBECONFIG", computing.kubeconfig_path())
        // Of the make that runs the tests.
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success() && !err.contains("Warning"), "{err}");
}

/// An API server looks at new policies about once a second, in the order in which they came. One that comes after all
/// others tells when they hold.
async fn fences_stand(computing: &Cluster) {
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": "last" }, "spec": spec,
        })
    };
    let maps = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
    });
    let policy = json!({
        "matchConstraints": { "resourceRules": [maps] },
        "validations": [{ "expression": "object.metadata.name != 'last'", "message": "the last fence stands" }],
    });
    let binding = json!({ "policyName": "last", "validationActions": ["Deny"] });
    for (kind, spec) in [("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)]
    {
        kubectl(computing, "create -f -", &object(kind, spec).to_string());
    }
    let admin = computing.client().await.unwrap();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "last" } });
    until("the fences stand", async || {
        match attempt(&admin, "POST", "/api/v1/namespaces/default/configmaps", &map).await {
            Err((_, words)) if words.contains("the last fence stands") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// The identity of one syncer or proxier: its account, its shipped role, and its own role.
fn made_by_the_manager(component: Component) -> Vec<(&'static str, Value)> {
    let (role, name) = match component {
        Component::Proxier => ("kubeocean-proxier", "kubeocean-proxier-berlin"),
        _ => ("kubeocean-syncer", "kubeocean-syncer-berlin"),
    };
    let rbac = "rbac.authorization.k8s.io";
    let object = |kind: &str, more: Value| {
        let version = if kind == "ServiceAccount" { "v1".to_owned() } else { format!("{rbac}/v1") };
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    };
    let subjects = json!([{ "kind": "ServiceAccount", "namespace": INSTALLED, "name": name }]);
    let bound = |kind: &str, to: &str| json!({ "roleRef": { "apiGroup": rbac, "kind": kind, "name": to }, "subjects": subjects });
    let rules = json!({ "rules": own_role(component, "berlin", &["berlin-kubeconfig"]) });
    vec![
        ("/api/v1/namespaces/kubeocean-system/serviceaccounts", object("ServiceAccount", json!({}))),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            object("ClusterRoleBinding", bound("ClusterRole", role)),
        ),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/kubeocean-system/roles", object("Role", rules)),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/kubeocean-system/rolebindings",
            object("RoleBinding", bound("Role", name)),
        ),
    ]
}

pub(crate) async fn create(client: &Client, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    client.request(request).await
}

pub(crate) fn node(name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubeocean.io/physical-cluster-id": cluster } },
    })
}

#[tokio::test]
async fn everything_that_is_shipped_is_accepted() {
    let (_sandbox, computing) = installed().await;
    let policies: Value =
        serde_json::from_str(&kubectl(&computing, "get validatingadmissionpolicies -o json", "")).unwrap();
    for policy in policies["items"].as_array().unwrap() {
        let warnings = &policy["status"]["typeChecking"]["expressionWarnings"];
        assert!(warnings.is_null(), "{}: {warnings}", policy["metadata"]["name"]);
    }
    // A level of PodSecurity that refuses our own pods would be noticed only by their absence.
    until("two managers are made", async || {
        let pods = kubectl(&computing, "get pods -n kubeocean-system -o name", "");
        if pods.lines().count() == 2 { Ok(()) } else { Err(pods) }
    })
    .await;
    let manager: Value = serde_json::from_str(&kubectl(
        &computing,
        "get deployment kubeocean-manager -n kubeocean-system -o json",
        "",
    ))
    .unwrap();
    stays_off_virtual_nodes(&manager);
    let inline = kubectl(
        &computing,
        &format!("apply --server-side --dry-run=server -o json -k {ROOT}/config/inline"),
        "",
    );
    let inline: Value = serde_json::from_str(&inline).unwrap();
    stays_off_virtual_nodes(
        inline["items"].as_array().unwrap().iter().find(|one| one["kind"] == "Deployment").unwrap(),
    );
    callers_reach_the_manager_that_serves_virtual_nodes(&inline);
    let built = kubectl(&computing, &format!("kustomize {ROOT}/config/default"), "");
    assert!(built.contains("image: kubeocean:0.1.0"), "the image comes from the kustomization");
}

/// A manager on a virtual node would depend on what it makes: each way to a node says that it is a real one.
fn stays_off_virtual_nodes(deployment: &Value) {
    let affinity = &deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let real = json!({ "key": labels::TYPE, "operator": "NotIn", "values": [labels::TYPE_VIRTUAL_KUBELET] });
    let is_real = |term: &Value| {
        let expressions = term["matchExpressions"].as_array();
        expressions.is_some_and(|all| all.contains(&real))
    };
    let terms = terms.as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(!terms.is_empty() && terms.iter().all(is_real), "{affinity:#}");
}

/// Inline, its pod is the kubelet of virtual nodes: whoever may speak to those has to be let through to it.
fn callers_reach_the_manager_that_serves_virtual_nodes(inline: &Value) {
    let objects = inline["items"].as_array().unwrap();
    let manager = objects.iter().find(|one| one["kind"] == "Deployment").unwrap();
    let labels = manager["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    let is_open = |policy: &Value, port: i64| {
        let selector = policy["spec"]["podSelector"]["matchLabels"].as_object();
        let is_meant =
            selector.is_some_and(|all| all.iter().all(|(key, value)| labels.get(key) == Some(value)));
        let rules = policy["spec"]["ingress"].as_array().into_iter().flatten();
        let mut ports =
            rules.filter(|rule| rule["from"].is_null()).filter_map(|rule| rule["ports"].as_array()).flatten();
        is_meant
            && ports.any(|range| {
                let first = range["port"].as_i64().unwrap();
                (first..=range["endPort"].as_i64().unwrap_or(first)).contains(&port)
            })
    };
    for port in [10250, 15000, 65535] {
        let mut policies = objects.iter().filter(|one| one["kind"] == "NetworkPolicy");
        assert!(policies.any(|policy| is_open(policy, port)), "{port} is closed");
    }
}

#[tokio::test]
async fn the_examples_are_accepted() {
    let (_sandbox, computing) = installed().await;
    let said =
        kubectl(&computing, &format!("apply --dry-run=server --validate=strict -k {ROOT}/examples"), "");
    assert_eq!(said.lines().filter(|line| line.contains("created (server dry run)")).count(), 7, "{said}");
}

#[tokio::test]
async fn each_component_may_do_what_it_needs() {
    let (_sandbox, computing) = installed().await;
    for (user, component) in
        [(MANAGER, Component::Manager), (SYNCER, Component::Syncer), (PROXIER, Component::Proxier)]
    {
        let client = client(&computing.kubeconfig(), Some(user)).await;
        let needed = questions(&in_computing(component), INSTALLED);
        assert_eq!(refused(&client, needed).await, Vec::<String>::new(), "{user}");
    }
}

#[tokio::test]
async fn no_component_may_do_more() {
    let (_sandbox, computing) = installed().await;
    let ask = |verb, group, resource, namespace: Option<&str>, name| Question {
        verb,
        group,
        resource,
        subresource: None,
        namespace: namespace.map(str::to_owned),
        name,
    };
    let rbac = "rbac.authorization.k8s.io";
    for (user, forbidden) in [
        (
            MANAGER,
            vec![
                ask("get", "", "secrets", Some("kube-system"), None),
                ask("list", "", "secrets", None, None),
                ask("create", "", "nodes", None, None),
                ask("create", "", "pods", Some("default"), None),
                ask("bind", rbac, "clusterroles", None, Some("cluster-admin")),
                ask("escalate", rbac, "clusterroles", None, None),
                ask(
                    "approve",
                    "certificates.k8s.io",
                    "signers",
                    None,
                    Some("kubernetes.io/kube-apiserver-client"),
                ),
            ],
        ),
        (
            SYNCER,
            vec![
                ask("create", "", "pods", Some("default"), None),
                ask("patch", "", "secrets", Some("default"), None),
                ask(
                    "patch",
                    "coordination.k8s.io",
                    "leases",
                    Some(INSTALLED),
                    Some("kubeocean-manager-leader"),
                ),
                ask("patch", "coordination.k8s.io", "leases", Some("kube-system"), None),
                ask("create", rbac, "rolebindings", Some(INSTALLED), None),
                ask("create", "certificates.k8s.io", "certificatesigningrequests", None, None),
            ],
        ),
        (
            PROXIER,
            vec![
                ask("get", "", "secrets", Some(INSTALLED), Some("paris-kubeconfig")),
                ask("get", "", "secrets", Some("default"), None),
                ask("patch", "", "nodes", None, None),
                ask("delete", "", "pods", Some("default"), None),
                ask("create", "", "pods", Some("default"), None),
            ],
        ),
    ] {
        let client = client(&computing.kubeconfig(), Some(user)).await;
        let told: Vec<_> = forbidden.iter().map(ToString::to_string).collect();
        assert_eq!(refused(&client, forbidden).await, told, "{user}");
    }
    let proxier = client(&computing.kubeconfig(), Some(PROXIER)).await;
    let own = ask("get", "", "secrets", Some(INSTALLED), Some("berlin-kubeconfig"));
    assert_eq!(refused(&proxier, [own]).await, Vec::<String>::new(), "its own kubeconfig");
    let authority: Api<ConfigMap> = Api::namespaced(proxier.clone(), "kube-system");
    authority.get("extension-apiserver-authentication").await.unwrap();
}

#[tokio::test]
async fn the_manager_cannot_make_anyone_more_than_a_syncer_or_a_proxier() {
    let (_sandbox, computing) = installed().await;
    let manager = client(&computing.kubeconfig(), Some(MANAGER)).await;
    let subjects = json!([{ "kind": "ServiceAccount", "namespace": INSTALLED, "name": "kubeocean-manager" }]);
    let admin = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "more" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": subjects,
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let (code, words) = attempt(&manager, "POST", path, &admin).await.unwrap_err();
    assert!(
        code == 403 && words.contains("attempting to grant RBAC permissions not currently held"),
        "{words}"
    );
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "more" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"] }],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/kubeocean-system/roles";
    assert_eq!(attempt(&manager, "POST", path, &role).await.unwrap_err().0, 403);
}
