//! What has to be true of the worker cluster.

use std::path::Path;

use kubeocean_api::keys::names::KUBE_SYSTEM;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::credentials::Credentials;
use kubeocean_cluster::error::CallError;
use kubeocean_manager::probe;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{BindingObject, certificate_trouble};
use kubeocean_model::key::{Key, Physical};
use kubeocean_model::manifest::{FLAGS_AS_BEFORE, how_to_grant};
use kubeocean_model::object::Object;
use serde_json::json;

use super::checks::Checks;
use super::computing::{Seen, naming};
use super::versions;
use super::wish::Wish;
use crate::computing::{ANSWER_WITHIN, settings};
use crate::worker_kubeconfig::is_this_machine;

const SUBJECT: &str = "worker cluster";

/// What a namespace says about the pods in it.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

/// A worker cluster that answers.
pub(super) struct Reached {
    pub(super) phys: Cluster<Physical>,
    pub(super) server: String,
}

/// Looks at everything. `None`: it does not answer, or is no worker cluster.
pub(super) async fn look(
    wish: &Wish,
    file: &Path,
    kubeconfig: &Result<Vec<u8>, String>,
    seen: Option<&Seen>,
    checks: &mut Checks,
) -> Option<Reached> {
    let (phys, server) = connect(file, kubeconfig, checks).await?;
    if !answers(&phys, &server, file, seen, checks).await {
        return None;
    }
    if is_itself(&phys, wish, seen).await {
        checks.bad(
            SUBJECT,
            "it is the computing cluster itself: give the kubeconfig of another cluster, or another --context",
        );
        return None;
    }
    if is_this_machine(&server) && seen.is_some_and(|seen| !is_this_machine(&seen.server)) {
        checks.warn(
            SUBJECT,
            format!("{server} is an address of this machine: only a manager that runs here reaches it"),
        );
    }
    let user = who(&phys).await;
    let mount = mount_namespace(&phys, wish, user.as_ref().ok(), checks).await;
    identity(user.as_ref(), wish, checks);
    let policies = match phys.serves(&kinds::POLICY).await {
        Ok(policies) => policies,
        Err(error) => {
            checks.bad(SUBJECT, format!("it does not say what it serves: {error}"));
            return Some(Reached { phys, server });
        }
    };
    rights(&phys, wish, policies, user.as_ref().ok(), checks).await;
    if let (Some(mount), Some(seen)) = (&mount, seen) {
        known(&mount.meta.uid, wish, seen, checks);
    }
    lent(&phys, wish, policies, seen, checks).await;
    Some(Reached { phys, server })
}

/// The file, if it is one that may be used.
async fn connect(
    file: &Path,
    kubeconfig: &Result<Vec<u8>, String>,
    checks: &mut Checks,
) -> Option<(Cluster<Physical>, String)> {
    const SUBJECT: &str = "kubeconfig";
    let bytes = match kubeconfig {
        Ok(bytes) => bytes,
        Err(error) => {
            checks.bad(SUBJECT, format!("{error}: make one with `kubeocean worker-kubeconfig`"));
            return None;
        }
    };
    let connected = match Credentials::from_kubeconfig(bytes).await {
        Ok(credentials) => {
            let server = credentials.server();
            Cluster::connect(credentials, settings("worker", ANSWER_WITHIN)).map(|phys| (phys, server))
        }
        Err(error) => Err(error),
    };
    match connected {
        Ok(connected) => {
            checks.good(SUBJECT, format!("{} may be used", file.display()));
            Some(connected)
        }
        Err(error) => {
            checks.bad(SUBJECT, format!("{}: {error}", file.display()));
            None
        }
    }
}

async fn answers(
    phys: &Cluster<Physical>,
    server: &str,
    file: &Path,
    seen: Option<&Seen>,
    checks: &mut Checks,
) -> bool {
    let version = match phys.version().await {
        Ok(version) => version,
        Err(CallError::Refused(status)) if status.code == 401 => {
            checks.bad(
                SUBJECT,
                format!(
                    "{server} does not know who is asking ({}): the token or certificate in {} has expired or is of another cluster; \
                     make a new one with `kubeocean worker-kubeconfig`",
                    status.message,
                    file.display()
                ),
            );
            return false;
        }
        // It answers; what it is called is not for everybody there.
        Err(CallError::Refused(status)) if status.code == 403 => {
            checks.good(SUBJECT, format!("{server} answers"));
            return true;
        }
        Err(error) => {
            let (error, file) = (error.to_string(), file.display().to_string());
            let wrong = certificate_trouble(server, &error, &file).unwrap_or_else(|| {
                format!(
                    "{server} does not answer: {error}; check the address in {file}, and that the network lets us reach it"
                )
            });
            checks.bad(SUBJECT, wrong);
            return false;
        }
    };
    let says = format!("{server} answers, Kubernetes {version}");
    let computing = seen.map(|seen| seen.version.as_str());
    checks.judged(SUBJECT, &versions::worker(&version, computing, &says));
    true
}

/// Whether both kubeconfigs lead to the same cluster. A borrower may read the mount namespace only, an administrator more.
async fn is_itself(phys: &Cluster<Physical>, wish: &Wish, seen: Option<&Seen>) -> bool {
    let Some(seen) = seen else { return false };
    for name in [KUBE_SYSTEM, &wish.mount_namespace] {
        let found = phys.get(&kinds::NAMESPACE, &Key::cluster_scoped(name)).await.ok().flatten();
        if found.is_some_and(|found| seen.namespaces.iter().any(|uid| **uid == *found.meta.uid)) {
            return true;
        }
    }
    false
}

async fn mount_namespace(
    phys: &Cluster<Physical>,
    wish: &Wish,
    user: Option<&User>,
    checks: &mut Checks,
) -> Option<Object> {
    const SUBJECT: &str = "mount namespace";
    let name = &wish.mount_namespace;
    let fix = user.and_then(|user| how_to_grant(&user.name, name)).unwrap_or_else(|| {
        format!("`kubeocean worker-manifest --namespace {name} | kubectl apply --server-side -f -` {FLAGS_AS_BEFORE}")
    });
    let mount = match phys.get(&kinds::NAMESPACE, &Key::cluster_scoped(name.as_str())).await {
        Ok(Some(mount)) => mount,
        Ok(None) => {
            checks.bad(
                SUBJECT,
                format!("{name} does not exist in the worker cluster: the lender makes it, with {fix}"),
            );
            return None;
        }
        Err(CallError::Refused(status)) if status.code == 403 => {
            checks.bad(
                SUBJECT,
                format!(
                    "{name} may not be read: it does not exist, or the lender has to allow it with {fix}"
                ),
            );
            return None;
        }
        Err(error) => {
            checks.bad(SUBJECT, format!("{name} cannot be read: {error}"));
            return None;
        }
    };
    if mount.meta.is_deleting() {
        checks.bad(
            SUBJECT,
            format!("{name} is being deleted in the worker cluster: let it end, then the lender makes it again with {fix}"),
        );
        return None;
    }
    checks.good(SUBJECT, format!("{name} exists in the worker cluster"));
    pod_security(&mount, name, checks);
    Some(mount)
}

fn pod_security(mount: &Object, name: &str, checks: &mut Checks) {
    const SUBJECT: &str = "pod security";
    match mount.meta.labels.get(POD_SECURITY) {
        Some("baseline") => checks.good(SUBJECT, format!("{name} enforces baseline")),
        Some("restricted") => checks.warn(
            SUBJECT,
            format!("{name} enforces restricted: pods that do not say that they run without root are refused there"),
        ),
        level => checks.warn(
            SUBJECT,
            format!(
                "{name} enforces {}: borrowed pods may take over the lender's nodes; the lender should say kubectl label namespace \
                 {name} {POD_SECURITY}=baseline",
                level.unwrap_or("nothing")
            ),
        ),
    }
}

/// Who we are there.
struct User {
    name: String,
    is_all_powerful: bool,
}

async fn who(phys: &Cluster<Physical>) -> Result<User, CallError> {
    let kind = &kinds::SELF_REVIEW;
    let review = json!({ "apiVersion": kind.api_version(), "kind": &*kind.kind });
    let answer = phys.review(kind, &review).await?;
    let user = &answer["status"]["userInfo"];
    let name = user["username"].as_str().unwrap_or("unknown").to_owned();
    let is_all_powerful =
        user["groups"].as_array().is_some_and(|groups| groups.iter().any(|one| one == "system:masters"));
    Ok(User { name, is_all_powerful })
}

fn identity(user: Result<&User, &CallError>, wish: &Wish, checks: &mut Checks) {
    const SUBJECT: &str = "identity";
    let User { name, is_all_powerful } = match user {
        Ok(user) => user,
        Err(error) => {
            checks.warn(SUBJECT, format!("the worker cluster does not say who we are: {error}"));
            return;
        }
    };
    if name.starts_with(&format!("system:serviceaccount:{}:", wish.mount_namespace)) {
        checks.warn(
            SUBJECT,
            format!(
                "{name} lives in the mount namespace, where whoever can make a pod can use it: give it a namespace of its own, as \
                 `kubeocean worker-manifest` does"
            ),
        );
    } else if *is_all_powerful {
        checks.warn(
            SUBJECT,
            format!(
                "{name} may do everything in the worker cluster: `kubeocean worker-manifest` makes an identity with the rights that \
                 are needed, and `kubeocean worker-kubeconfig` its kubeconfig"
            ),
        );
    } else {
        checks.good(SUBJECT, name);
    }
}

async fn rights(
    phys: &Cluster<Physical>,
    wish: &Wish,
    policies: bool,
    user: Option<&User>,
    checks: &mut Checks,
) {
    const SUBJECT: &str = "rights";
    let namespace = &wish.mount_namespace;
    match probe::missing(phys, namespace, policies).await {
        Ok(missing) if missing.is_empty() => checks.good(SUBJECT, "all that are needed"),
        Ok(missing) => {
            let how = user.and_then(|user| how_to_grant(&user.name, namespace)).map_or_else(
                || "to an identity that `kubeocean worker-manifest` did not make (docs/rights.md)".to_owned(),
                |how| format!("with {how}"),
            );
            checks.bad(SUBJECT, format!("missing: {}; the lender grants them {how}", missing.join(", ")));
        }
        Err(error) => checks.bad(SUBJECT, format!("the worker cluster does not say what we may: {error}")),
    }
}

/// Whether this worker cluster is bound already, by this binding or by others.
fn known(uid: &str, wish: &Wish, seen: &Seen, checks: &mut Checks) {
    if let Some(existing) = seen.existing.as_ref().map(BindingObject::read) {
        let identity = existing.recognises(uid);
        if let (Err(swapped), Ok(binding)) = (identity, &existing.parsed) {
            checks.bad(SUBJECT, swapped.trouble(binding).message);
        }
    }
    let shares = |binding: &BindingObject| {
        *binding.meta.name != *wish.name && binding.bound_to() == Some(uid) && !binding.meta.is_deleting()
    };
    let neighbours: Vec<String> = seen
        .bindings
        .iter()
        .map(BindingObject::read)
        .filter(shares)
        .map(|binding| binding.meta.name.to_string())
        .collect();
    if !neighbours.is_empty() {
        checks.warn(
            "mount namespace",
            format!(
                "{} is also used by {}: each can read all of it; use another --mount-namespace unless they trust each other",
                wish.mount_namespace,
                neighbours.join(", ")
            ),
        );
    }
}

/// Whether anything will be lent.
async fn lent(
    phys: &Cluster<Physical>,
    wish: &Wish,
    policies: bool,
    seen: Option<&Seen>,
    checks: &mut Checks,
) {
    const SUBJECT: &str = "policy";
    let name = &wish.name;
    if !policies {
        let ours = seen.map(|seen| seen.policies.as_slice()).unwrap_or_default();
        if ours.is_empty() {
            checks.warn(
                SUBJECT,
                format!(
                    "the worker cluster has no ResourceLeasingPolicies, so those of the computing cluster count, and none names {name}: \
                     nothing is leased until you apply one, such as examples/policies/percent.yaml with spec.cluster: {name}"
                ),
            );
        } else {
            checks.good(SUBJECT, format!("{} of the computing cluster", ours.join(", ")));
        }
        return;
    }
    match phys.list(&kinds::POLICY, None, None).await.map(|policies| naming(&policies, name)) {
        Ok(theirs) if !theirs.is_empty() => {
            checks.good(SUBJECT, format!("{} of the worker cluster lends to {name}", theirs.join(", ")));
        }
        Ok(_) => checks.warn(
            SUBJECT,
            format!(
                "no ResourceLeasingPolicy of the worker cluster names {name}: nothing is lent until the lender applies one, with \
                 kubeocean worker-manifest --namespace {} --crd --with-policy {name} | kubectl apply --server-side -f -",
                wish.mount_namespace
            ),
        ),
        // That right is missing, and was told as such.
        Err(CallError::Refused(_)) => {}
        Err(error) => checks.warn(SUBJECT, format!("ResourceLeasingPolicies cannot be read: {error}")),
    }
}
