//! A computing cluster and its workers, and what people do there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kube::Client;
use kubeocean_api::keys::labels::{BINDING_UID, COMPONENT, MANAGED_BY, MANAGED_BY_VALUE};
use kubeocean_api::keys::names::{INSTALL_NAMESPACE, MANAGER_LEADER, WORKER_NAMESPACE};
use kubeocean_api::{GROUP, VERSION};
use kubeocean_sandbox::{COMPUTING, Cluster, NodeSize, Sandbox, Spec};
use serde_json::{Value, json};

use crate::access::until;
use crate::manager::Manager;

/// Whom the tests are in a managed field.
const TESTER: &str = "tester";

/// Everything of ours that a manager or a syncer makes in a computing cluster.
const KINDS: &[&str] = &[
    "/apis/apps/v1/deployments",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
];

pub(super) struct Place {
    pub(super) sandbox: Sandbox,
    pub(super) virt: Client,
    pub(super) kubeconfig: PathBuf,
}

/// An object that carries our mark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ours {
    /// Where all of its kind are.
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// Where it is itself.
    pub(super) path: String,
    pub(super) binding: String,
    pub(super) component: String,
    pub(super) version: String,
}

impl Place {
    /// Worker clusters with a mount namespace each, and a computing cluster with our definitions and a node that has room for
    /// every syncer and proxier.
    pub(super) async fn new(workers: usize) -> Self {
        Self::of(Spec::new().workers(workers, 1, 0)).await
    }

    /// The same, of clusters that are special.
    pub(super) async fn of(spec: Spec) -> Self {
        let size = NodeSize { pods: "2000".into(), cpu: "1000".into(), memory: "4000Gi".into() };
        let sandbox = Sandbox::start(spec.computing_nodes(1, 0).sim_node_size(size)).await.unwrap();
        let computing = sandbox.cluster(COMPUTING).unwrap();
        let (virt, kubeconfig) = (computing.client().await.unwrap(), computing.kubeconfig_path().to_owned());
        let place = Self { sandbox, virt, kubeconfig };
        place.define(&place.virt).await;
        apply(&place.virt, "/api/v1/namespaces", &namespace(INSTALL_NAMESPACE)).await;
        // As one leaves it that ended well: the first manager need not wait for one that never was.
        let free = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": MANAGER_LEADER}});
        apply(&place.virt, &holds(), &free).await;
        for worker in place.sandbox.clusters().iter().filter(|cluster| cluster.name() != COMPUTING) {
            let client = worker.client().await.unwrap();
            apply(&client, "/api/v1/namespaces", &namespace(WORKER_NAMESPACE)).await;
        }
        place
    }

    /// Our definitions, in one of the clusters.
    pub(super) async fn define(&self, client: &Client) {
        for crd in kubeocean_api::crd::crds() {
            let mut crd = serde_json::to_value(crd).unwrap();
            crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
            crd["kind"] = "CustomResourceDefinition".into();
            apply(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
        }
        until("the definitions are served", async || get(client, &binding_path("")).await).await;
    }

    pub(super) fn worker(&self, name: &str) -> &Cluster {
        self.sandbox.cluster(name).unwrap()
    }

    /// A manager of this computing cluster.
    pub(super) fn manager(&self, name: &str, flags: &[&str]) -> Manager {
        self.manager_as(&self.kubeconfig, name, flags)
    }

    /// The same, as someone else.
    pub(super) fn manager_as(&self, kubeconfig: &Path, name: &str, flags: &[&str]) -> Manager {
        // Renewals of the hold are lines of the audit log too.
        let flags = [&["--log-level=info,audit=debug"], flags].concat();
        Manager::start(self.sandbox.directory(), kubeconfig, name, &flags)
    }

    /// A kubeconfig of a service account of the computing cluster, as soon as there is one.
    pub(super) async fn kubeconfig_of(&self, namespace: &str, account: &str) -> PathBuf {
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked = async || request(&self.virt, "POST", &path, "application/json", &token).await;
        let token = until(&format!("{account} has a token"), asked).await;
        let of_admin = self.worker(COMPUTING).kubeconfig();
        let line = |begins: &str| of_admin.lines().find(|line| line.contains(begins)).unwrap();
        let (certificate, key) = (line("client-certificate-data:"), line("client-key-data:"));
        let value = certificate.split_once(':').unwrap().1;
        let with_token = certificate
            .replace("client-certificate-data", "token")
            .replace(value, &format!(" {}", text(&token["status"]["token"])));
        let kubeconfig = of_admin.replace(certificate, &with_token).replace(&format!("{key}\n"), "");
        let file = self.sandbox.directory().join(format!("{account}.kubeconfig"));
        std::fs::write(&file, kubeconfig).unwrap();
        file
    }

    pub(super) async fn secret(&self, name: &str, kubeconfig: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"kubeconfig": kubeconfig},
        });
        apply(&self.virt, &format!("/api/v1/namespaces/{INSTALL_NAMESPACE}/secrets"), &object).await;
    }

    /// A binding of this name and `clusterID`.
    pub(super) async fn bind(&self, name: &str, secret: &str, mount: &str) {
        self.bind_with(name, secret, mount, &json!({}), &json!({})).await;
    }

    /// The same, with more in its spec and its annotations.
    pub(super) async fn bind_with(
        &self,
        name: &str,
        secret: &str,
        mount: &str,
        more: &Value,
        annotations: &Value,
    ) {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "ClusterBinding",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "clusterID": name, "mountNamespace": mount,
                "secretRef": {"name": secret, "namespace": INSTALL_NAMESPACE},
            },
        });
        for (field, value) in more.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        apply(&self.virt, &binding_path(""), &object).await;
    }

    pub(super) async fn unbind(&self, name: &str, propagation: &str) {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
        request(&self.virt, "DELETE", &binding_path(name), "application/json", &body).await.unwrap();
    }

    pub(super) async fn bindings(&self) -> Result<BTreeMap<String, Value>, String> {
        let list = get(&self.virt, &binding_path("")).await?;
        let named = |binding: &Value| (text(&binding["metadata"]["name"]), binding.clone());
        Ok(list["items"].as_array().into_iter().flatten().map(named).collect())
    }

    /// Waits until a binding is so.
    pub(super) async fn binding(&self, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{name} is {what}"), async || {
            let binding = get(&self.virt, &binding_path(name)).await?;
            if is_so(&binding) { Ok(binding) } else { Err(format!("{:#}", binding["status"])) }
        })
        .await
    }

    /// Waits until exactly these bindings are there, and each is Ready and says nothing else.
    pub(super) async fn all_ready<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<String, Value> {
        let names: BTreeSet<&str> = names.into_iter().collect();
        until("all bindings are Ready", async || {
            let bindings = self.bindings().await?;
            let there: BTreeSet<&str> = bindings.keys().map(String::as_str).collect();
            if there != names {
                return Err(format!("{there:?} are there"));
            }
            match bindings.iter().find(|(_, binding)| !is_ready(binding)) {
                Some((name, binding)) => Err(format!("{name}: {:#}", binding["status"])),
                None => Ok(bindings),
            }
        })
        .await
    }

    /// Everything that carries our mark.
    pub(super) async fn ours(&self) -> Result<Vec<Ours>, String> {
        let mut all = Vec::new();
        for kind in KINDS {
            let list =
                get(&self.virt, &format!("{kind}?labelSelector={MANAGED_BY}%3D{MANAGED_BY_VALUE}")).await?;
            all.extend(list["items"].as_array().into_iter().flatten().map(|object| ours(kind, object)));
        }
        all.sort();
        Ok(all)
    }

    /// The leader's hold, as it is now.
    pub(super) async fn hold(&self) -> Result<Value, String> {
        Ok(get(&self.virt, &format!("{}/{MANAGER_LEADER}", holds())).await?["spec"].clone())
    }

    pub(super) async fn stop(self) {
        self.sandbox.stop().await.unwrap();
    }
}

/// Where holds are.
fn holds() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{INSTALL_NAMESPACE}/leases")
}

fn ours(kind: &'static str, object: &Value) -> Ours {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let (group, plural) = kind.rsplit_once('/').unwrap();
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    Ours {
        kind,
        path: format!("{group}{within}/{plural}/{name}"),
        name,
        binding: text(&metadata["labels"][BINDING_UID]),
        component: text(&metadata["labels"][COMPONENT]),
        version: text(&metadata["resourceVersion"]),
    }
}

/// Phase, conditions and uid, all of them.
fn is_ready(binding: &Value) -> bool {
    let holds = |about: &str| condition(binding, about)["status"] == "True";
    binding["status"]["phase"] == "Ready"
        && ["Ready", "Connected", "SyncerReady", "ProxierReady"].into_iter().all(holds)
        && binding["status"]["observedGeneration"] == binding["metadata"]["generation"]
}

pub(super) fn condition<'a>(binding: &'a Value, about: &str) -> &'a Value {
    let all = binding["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|one| one["type"] == about)).unwrap_or(&Value::Null)
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(super) fn binding_path(name: &str) -> String {
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/apis/{GROUP}/{VERSION}/clusterbindings{slash}{name}")
}

/// A call as its sender wants it, and what the server says.
pub(super) async fn request(
    client: &Client,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<Value, String> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    client.request(request.body(body).unwrap()).await.map_err(|error| format!("{method} {path}: {error}"))
}

pub(super) async fn get(client: &Client, path: &str) -> Result<Value, String> {
    request(client, "GET", path, "application/json", &Value::Null).await
}

/// Server-side apply of an object into its collection. What cannot be written in this moment is written in the next one.
pub(super) async fn apply(client: &Client, collection: &str, object: &Value) {
    let name = text(&object["metadata"]["name"]);
    let path = format!("{collection}/{name}?fieldManager={TESTER}&force=true");
    let send = async || request(client, "PATCH", &path, "application/apply-patch+yaml", object).await;
    until(&format!("{name} is applied"), send).await;
}
