//! What is known of a worker cluster, and what it means for its binding.
//!
//! Each case is one reason and one sentence that names the fix, here and nowhere else.

use kubeocean_api::keys::annotations::ACCEPT_WORKER;
use kubeocean_api::keys::names::KUBECONFIG_KEY;
use kubeocean_api::keys::reasons::Binding as Reason;

use crate::binding::Binding;

/// What the last look at a worker cluster found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nobody has looked yet.
    NotYet,
    /// The Secret is not there.
    NoSecret,
    /// The manager may not read the Secret; the server's words.
    SecretForbidden(String),
    /// The Secret has no such key.
    NoKubeconfigKey,
    /// The kubeconfig is not one that may be used; the words of whoever refused it.
    BadKubeconfig(String),
    /// No answer in time.
    Unreachable {
        /// The address.
        server: String,
        /// What happened.
        cause: String,
    },
    /// The server does not know who is asking.
    Unauthorized {
        /// The address.
        server: String,
        /// Its words.
        message: String,
    },
    /// The lender has not made the namespace.
    MountNamespaceMissing,
    /// Rights are missing, verb by verb.
    Denied {
        /// Who we are there.
        user: String,
        /// What is missing.
        missing: Vec<String>,
    },
    /// All is well.
    Good(Worker),
}

/// A worker cluster that answers and lets us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Uid of the mount namespace there.
    pub uid: String,
    /// Who we are there.
    pub user: String,
    /// How many nodes it has.
    pub nodes: usize,
}

/// A kubeconfig that leads to another cluster than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// The uid that was bound.
    pub bound: String,
    /// The uid that is there.
    pub found: String,
}

/// Why a worker cluster cannot be used, in a form that a condition takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: Reason,
    /// In a sentence, with the fix.
    pub message: String,
    /// It may pass by itself: what was set up stays as it is.
    pub transient: bool,
}

impl Finding {
    /// Whether it says that something is wrong.
    pub const fn is_trouble(&self) -> bool {
        !matches!(self, Self::NotYet | Self::Good(_))
    }

    /// What is wrong, if anything is.
    pub fn trouble(&self, binding: &Binding) -> Option<Trouble> {
        let Binding { secret_namespace, secret_name, mount_namespace, .. } = binding;
        let secret = format!("{secret_namespace}/{secret_name}");
        let (reason, message, transient) = match self {
            Self::NotYet | Self::Good(_) => return None,
            Self::NoSecret => (
                Reason::ValidationFailed,
                format!(
                    "Secret {secret} does not exist: create it with the worker's kubeconfig, \
                     kubectl -n {secret_namespace} create secret generic {secret_name} --from-file={KUBECONFIG_KEY}=FILE"
                ),
                false,
            ),
            Self::SecretForbidden(words) => (
                Reason::PermissionDenied,
                format!(
                    "Secret {secret} may not be read: put it into the manager's namespace, or let the manager get it, and \
                     the syncer and the proxier get, list and watch it, with a RoleBinding in {secret_namespace} ({words})"
                ),
                false,
            ),
            Self::NoKubeconfigKey => (
                Reason::ValidationFailed,
                format!("Secret {secret} has no key `{KUBECONFIG_KEY}`: store the file under that key"),
                false,
            ),
            Self::BadKubeconfig(words) => {
                (Reason::ValidationFailed, format!("Secret {secret}: {words}"), false)
            }
            Self::Unreachable { server, cause } if cause.contains("certificate") => (
                Reason::ConnectivityFailed,
                format!(
                    "{server} is not whom the kubeconfig trusts: {cause}; put the authority of that server into \
                     certificate-authority-data of Secret {secret}"
                ),
                true,
            ),
            Self::Unreachable { server, cause } => (
                Reason::ConnectivityFailed,
                format!(
                    "{server} cannot be asked: {cause}; check the address in the kubeconfig, and that the network \
                     lets the manager reach it"
                ),
                true,
            ),
            Self::Unauthorized { server, message } => (
                Reason::ConnectivityFailed,
                format!(
                    "{server} does not know who is asking ({message}): the token or certificate in Secret {secret} has \
                     expired or is of another cluster; make a new one with `kubeocean worker-kubeconfig`"
                ),
                false,
            ),
            Self::MountNamespaceMissing => (
                Reason::MountNamespaceMissing,
                format!(
                    "namespace {mount_namespace} does not exist in the worker cluster: the lender makes it, with \
                     `kubeocean worker-manifest --namespace {mount_namespace} | kubectl apply --server-side -f -`"
                ),
                false,
            ),
            Self::Denied { user, missing } => (
                Reason::PermissionDenied,
                // Where there is no room for all of it, the fix is not what is cut off.
                format!(
                    "the lender has to grant rights, with `kubeocean worker-manifest --namespace {mount_namespace} | kubectl apply \
                     --server-side -f -`: {user} may not {}",
                    missing.join(", ")
                ),
                false,
            ),
        };
        Some(Trouble { reason, message, transient })
    }
}

impl Swapped {
    /// As a condition says it.
    pub fn trouble(&self, binding: &Binding) -> Trouble {
        let Self { bound, found } = self;
        let Binding { name, mount_namespace, .. } = binding;
        let message = format!(
            "the kubeconfig leads to another cluster, or namespace {mount_namespace} was made anew: its uid is {found}, \
             and {bound} was bound. If that is meant: kubectl annotate clusterbinding \
             {name} {ACCEPT_WORKER}={found}"
        );
        Trouble { reason: Reason::WorkerChanged, message, transient: false }
    }
}
