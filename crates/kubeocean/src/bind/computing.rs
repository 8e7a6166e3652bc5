//! What has to be true of the computing cluster, and what is there already.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use kubeocean_api::GROUP;
use kubeocean_api::keys::names::{KUBE_SYSTEM, KUBECONFIG_KEY, MANAGER, MANAGER_LEADER};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::kinds;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use kubeocean_model::rights::Question;
use serde_json::Value;

use super::Args;
use super::checks::Checks;
use super::versions;
use super::wish::{Change, Wish, is_made_by_bind};
use crate::computing::Computing;

/// A hold that is older than this is nobody's any more: the usual one lasts 15 s, and clocks differ.
const HELD_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// For so long an API server says that it is busy with a definition that has only just come.
const SET_UP_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What was found.
pub(super) struct Seen {
    pub(super) virt: Cluster<Virtual>,
    pub(super) server: String,
    pub(super) version: String,
    /// Uids of `kube-system`, and of a namespace that is called like the mount namespace.
    pub(super) namespaces: Vec<String>,
    /// All bindings.
    pub(super) bindings: Vec<Object>,
    /// The one of the same name.
    pub(super) existing: Option<Object>,
    /// The Secret that it is to refer to.
    pub(super) secret: Option<Object>,
    /// Names of policies that name the binding.
    pub(super) policies: Vec<String>,
}

/// Looks. `None`: nothing can be said about it.
pub(super) async fn look(
    args: &Args,
    wish: &mut Wish,
    kubeconfig: Option<&[u8]>,
    checks: &mut Checks,
) -> Option<Seen> {
    const SUBJECT: &str = "computing cluster";
    let Computing { virt, server } = match args.computing.connect().await {
        Ok(computing) => computing,
        Err(error) => {
            checks.bad(SUBJECT, format!("{error} (--kubeconfig and --context say which cluster it is)"));
            return None;
        }
    };
    let version = match virt.version().await {
        Ok(version) => version,
        Err(error) => {
            checks
                .bad(SUBJECT, format!("{server} does not answer: {error}; check --kubeconfig and --context"));
            return None;
        }
    };
    let says = format!("{server} answers, Kubernetes {version}");
    checks.judged(SUBJECT, &versions::computing(&version, &says));

    let mut defined = definitions(&virt, checks).await;
    let mut seen = Seen {
        server,
        version,
        namespaces: Vec::new(),
        bindings: Vec::new(),
        existing: None,
        secret: None,
        policies: Vec::new(),
        virt,
    };
    if defined {
        defined = seen.read(wish, checks).await;
        if let Some(existing) = &seen.existing {
            wish.keep(existing, args);
        }
    }
    let has_namespace = seen.namespace(wish, checks).await;
    manager(&seen.virt, &wish.secret.namespace, checks).await;
    rights(&seen.virt, &wish.secret.namespace, checks).await;
    if defined {
        seen.judge_binding(wish, checks);
        seen.judge_cluster_id(wish, checks);
    }
    if has_namespace {
        seen.judge_secret(wish, kubeconfig, checks).await;
    }
    Some(seen)
}

/// Whether both kinds are served.
async fn definitions(virt: &Cluster<Virtual>, checks: &mut Checks) -> bool {
    const SUBJECT: &str = "definitions";
    let mut absent = Vec::new();
    for kind in [kinds::BINDING, kinds::POLICY] {
        match virt.serves(&kind).await {
            Ok(true) => {}
            Ok(false) => absent.push(kind.kind.to_string()),
            Err(error) => {
                checks.bad(SUBJECT, format!("the API server does not say what it serves: {error}"));
                return false;
            }
        }
    }
    if absent.is_empty() {
        checks.good(SUBJECT, format!("ClusterBinding and ResourceLeasingPolicy of {GROUP} are served"));
        return true;
    }
    let fix = "kubeocean crds | kubectl apply --server-side -f -";
    checks.bad(SUBJECT, format!("{} of {GROUP} not served: {fix}", absent.join(" and ")));
    false
}

/// A manager that holds its Lease, or whose Deployment is available.
async fn manager(virt: &Cluster<Virtual>, namespace: &str, checks: &mut Checks) {
    const SUBJECT: &str = "manager";
    let now = Clock::system().now();
    let lease = virt.get(&kinds::LEASE, &Key::new(namespace, MANAGER_LEADER)).await;
    if let Ok(Some(lease)) = &lease {
        let spec: Value = lease.field("spec").ok().flatten().unwrap_or_default();
        let renewed = spec["renewTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && renewed.is_some_and(|at| now.duration_since(at) < HELD_WITHIN) {
            checks.good(SUBJECT, format!("{holder} leads"));
            return;
        }
    }
    let deployment = virt.get(&kinds::DEPLOYMENT, &Key::new(namespace, MANAGER)).await;
    if let Ok(Some(deployment)) = &deployment {
        let status: Value = deployment.field("status").ok().flatten().unwrap_or_default();
        let place = format!("Deployment {namespace}/{MANAGER}");
        if status["availableReplicas"].as_u64().unwrap_or_default() > 0 {
            checks.good(SUBJECT, format!("{place} is available"));
        } else {
            checks.warn(
                SUBJECT,
                format!("{place} has no available pod: see kubectl -n {namespace} describe pods"),
            );
        }
        return;
    }
    if let (Err(error), _) | (_, Err(error)) = (&lease, &deployment) {
        checks.warn(SUBJECT, format!("whether one runs cannot be seen: {error}"));
        return;
    }
    checks.warn(
        SUBJECT,
        format!(
            "none is seen in namespace {namespace}, and nothing happens without one: kubectl apply --server-side -k \
             config/default, or run `kubeocean manager --namespace {namespace} --kubeconfig FILE`"
        ),
    );
}

/// Whether whoever runs this may write both objects: not one without the other.
async fn rights(virt: &Cluster<Virtual>, namespace: &str, checks: &mut Checks) {
    const SUBJECT: &str = "your rights";
    let question = |verb, group, resource, namespace: Option<&str>| Question {
        verb,
        group,
        resource,
        subresource: None,
        namespace: namespace.map(str::to_owned),
        name: None,
    };
    let mut missing = Vec::new();
    for verb in ["create", "patch"] {
        let questions =
            [question(verb, "", "secrets", Some(namespace)), question(verb, GROUP, "clusterbindings", None)];
        for question in questions {
            match virt.review(&kinds::ACCESS_REVIEW, &question.review()).await {
                Ok(answer) if answer["status"]["allowed"] == true => {}
                Ok(_) => missing.push(question.to_string()),
                Err(error) => {
                    checks.warn(SUBJECT, format!("the API server does not say what you may: {error}"));
                    return;
                }
            }
        }
    }
    if missing.is_empty() {
        checks.good(SUBJECT, "you may write the Secret and the ClusterBinding");
    } else {
        let missing = missing.join(", ");
        checks.bad(SUBJECT, format!("you may not {missing}: use another --kubeconfig or --context"));
    }
}

impl Seen {
    /// What is there of our own kinds; whether that could be read.
    async fn read(&mut self, wish: &Wish, checks: &mut Checks) -> bool {
        let started = Instant::now();
        let bindings = loop {
            match self.virt.list(&kinds::BINDING, None, None).await {
                Err(CallError::Refused(status))
                    if status.is_throttled() && started.elapsed() < SET_UP_WITHIN =>
                {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                answer => break answer,
            }
        };
        match bindings {
            Ok(bindings) => {
                self.existing = bindings.iter().find(|one| *one.meta.name == *wish.name).cloned();
                self.bindings = bindings;
            }
            Err(error) => {
                checks.bad("binding", format!("ClusterBindings cannot be listed: {error}"));
                return false;
            }
        }
        // Where they cannot be read, none is known; that is a warning of its own.
        let policies = self.virt.list(&kinds::POLICY, None, None).await.unwrap_or_default();
        self.policies = naming(&policies, &wish.name);
        true
    }

    /// Whether the namespace of the Secret is there, as far as one can see.
    async fn namespace(&mut self, wish: &Wish, checks: &mut Checks) -> bool {
        const SUBJECT: &str = "install namespace";
        // Who may not read them cannot compare; the worker's side is looked at all the same.
        for name in [KUBE_SYSTEM, &wish.mount_namespace] {
            self.namespaces.extend(self.uid(name).await.ok().flatten());
        }
        let namespace = &wish.secret.namespace;
        match self.uid(namespace).await {
            Ok(Some(_)) => checks.good(SUBJECT, format!("{namespace} exists")),
            Ok(None) => {
                checks.bad(
                    SUBJECT,
                    format!(
                        "{namespace} does not exist: kubectl create namespace {namespace}, or say where the manager is with --namespace"
                    ),
                );
                return false;
            }
            Err(error) => checks.warn(SUBJECT, format!("{namespace} cannot be seen: {error}")),
        }
        true
    }

    async fn uid(&self, namespace: &str) -> Result<Option<String>, CallError> {
        let found = self.virt.get(&kinds::NAMESPACE, &Key::cluster_scoped(namespace)).await?;
        Ok(found.map(|namespace| namespace.meta.uid.to_string()))
    }

    fn judge_binding(&self, wish: &Wish, checks: &mut Checks) {
        const SUBJECT: &str = "binding";
        let name = &wish.name;
        if self.existing.as_ref().is_some_and(|existing| existing.meta.is_deleting()) {
            checks.bad(
                SUBJECT,
                format!(
                    "ClusterBinding {name} is being deleted: wait with `kubectl wait --for=delete clusterbinding/{name}`, or choose \
                     another name"
                ),
            );
            return;
        }
        match wish.change(self.existing.as_ref()) {
            Change::New => checks.good(SUBJECT, format!("ClusterBinding {name} is new")),
            Change::None => checks.good(SUBJECT, format!("ClusterBinding {name} exists, and says the same")),
            Change::Of(fields) => checks.warn(
                SUBJECT,
                format!("ClusterBinding {name} exists, and will be changed: {}", fields.join(", ")),
            ),
            Change::Impossible { field, is, flag } => checks.bad(
                SUBJECT,
                format!(
                    "ClusterBinding {name} exists with {field} {is}, which cannot be changed: use {flag} {is}, choose another name, \
                     or unbind it first"
                ),
            ),
        }
    }

    fn judge_cluster_id(&self, wish: &Wish, checks: &mut Checks) {
        const SUBJECT: &str = "clusterID";
        let id = &wish.cluster_id;
        let same = |binding: &&Object| {
            *binding.meta.name != *wish.name && binding.text("spec", &["clusterID"]).as_deref() == Some(id)
        };
        match self.bindings.iter().find(same) {
            Some(rival) => checks.bad(
                SUBJECT,
                format!(
                    "{id} is used by ClusterBinding {}: choose another one with --cluster-id",
                    rival.meta.name
                ),
            ),
            None => checks.good(SUBJECT, format!("{id} is used by no other ClusterBinding")),
        }
    }

    async fn judge_secret(&mut self, wish: &Wish, kubeconfig: Option<&[u8]>, checks: &mut Checks) {
        const SUBJECT: &str = "secret";
        let place = &wish.secret;
        self.secret = match self.virt.get(&kinds::SECRET, place).await {
            Ok(found) => found,
            Err(error) => {
                checks.bad(SUBJECT, format!("Secret {place} cannot be read: {error}"));
                return;
            }
        };
        let Some(secret) = &self.secret else {
            checks.good(SUBJECT, format!("Secret {place} is new"));
            return;
        };
        let kept = secret.text("data", &[KUBECONFIG_KEY]).and_then(|text| STANDARD.decode(text).ok());
        let same = kubeconfig.is_some() && kept.as_deref() == kubeconfig;
        if same {
            checks.good(SUBJECT, format!("Secret {place} exists, with the same kubeconfig"));
        } else if is_made_by_bind(&secret.meta, &wish.name) {
            checks.warn(SUBJECT, format!("Secret {place} exists, and gets another kubeconfig"));
        } else {
            checks.bad(
                SUBJECT,
                format!(
                    "Secret {place} exists, and `kubeocean bind` did not make it for {}: change its key {KUBECONFIG_KEY} yourself, \
                     or delete it",
                    wish.name
                ),
            );
        }
    }
}

/// Names of the policies that are about a binding.
pub(super) fn naming(policies: &[Object], binding: &str) -> Vec<String> {
    let about = |policy: &&Object| policy.text("spec", &["cluster"]).as_deref() == Some(binding);
    policies.iter().filter(about).map(|policy| policy.meta.name.to_string()).collect()
}
