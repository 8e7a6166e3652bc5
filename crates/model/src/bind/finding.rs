//! What is known of a worker cluster, and what it means for its binding.
//!
//! Each case is one reason and one sentence that names the fix, here and nowhere else.

use kubeocean_api::keys::annotations::ACCEPT_WORKER;
use kubeocean_api::keys::names::KUBECONFIG_KEY;
use kubeocean_api::keys::reasons::Binding as Reason;

use crate::binding::Binding;
use crate::manifest::how_to_grant;

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
    /// The lender is deleting the namespace: nothing can be made in it.
    MountNamespaceEnds,
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
            Self::Unreachable { server, cause } => {
                let message = certificate_trouble(server, cause, &format!("Secret {secret}")).unwrap_or_else(|| {
                    format!(
                        "{server} cannot be asked: {cause}; check the address in the kubeconfig, and that the network \
                         lets the manager reach it"
                    )
                });
                (Reason::ConnectivityFailed, message, true)
            }
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
                     `kubeocean worker-manifest --namespace {mount_namespace} | kubectl apply --server-side -f -`, and the flags of the \
                     first time if it was there before"
                ),
                false,
            ),
            Self::MountNamespaceEnds => (
                Reason::MountNamespaceMissing,
                format!(
                    "namespace {mount_namespace} is being deleted in the worker cluster, and nothing can be made in it: let it end \
                     (kubectl get namespace {mount_namespace} -o yaml says what it waits for), then the lender makes it again, with \
                     `kubeocean worker-manifest --namespace {mount_namespace} | kubectl apply --server-side -f -` and the flags of the \
                     first time"
                ),
                false,
            ),
            Self::Denied { user, missing } => (
                Reason::PermissionDenied,
                // Where there is no room for all of it, the fix is not what is cut off.
                format!(
                    "the lender has to grant rights{}: {user} may not {}",
                    granted(user, mount_namespace),
                    missing.join(", ")
                ),
                false,
            ),
        };
        Some(Trouble { reason, message, transient })
    }
}

/// How rights are granted, as part of a longer message.
fn granted(user: &str, mount_namespace: &str) -> String {
    how_to_grant(user, mount_namespace).map_or_else(
        || {
            " to an identity that `kubeocean worker-manifest` did not make (docs/rights.md lists them all)"
                .to_owned()
        },
        |how| format!(", with {how}"),
    )
}

/// What is wrong with a certificate: each has another fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certificate {
    /// The server does not take ours.
    Ours,
    /// The server's has expired.
    Expired,
    /// The server's is of tomorrow.
    TooEarly,
    /// The server's is of another address.
    OfAnotherName,
    /// Nobody vouches for the server.
    Untrusted,
}

/// What is wrong with a certificate, if that is why a server cannot be asked, and the fix. `place` is where the kubeconfig is.
pub fn certificate_trouble(server: &str, cause: &str, place: &str) -> Option<String> {
    // What follows tells the time of the look, and would be news at each.
    let cause = cause.split(": verification time").next().unwrap_or(cause);
    certificate(cause).map(|wrong| wrong.message(server, cause, place))
}

/// Which certificate a connection failed for, if it did; by the words of the TLS library, since nothing else tells.
fn certificate(cause: &str) -> Option<Certificate> {
    let words = cause.to_lowercase().replace(' ', "");
    let says = |word: &str| words.contains(word);
    if !says("certificate") {
        return None;
    }
    Some(if says("fatalalert") {
        Certificate::Ours
    } else if says("expired") {
        Certificate::Expired
    } else if says("notvalidyet") {
        Certificate::TooEarly
    } else if says("notvalidforname") {
        Certificate::OfAnotherName
    } else {
        Certificate::Untrusted
    })
}

impl Certificate {
    /// In a sentence, with the fix.
    fn message(self, server: &str, cause: &str, place: &str) -> String {
        match self {
            Self::Ours => format!(
                "{server} does not take the client certificate in {place}: {cause}; make a new kubeconfig with \
                 `kubeocean worker-kubeconfig`"
            ),
            Self::Expired => format!(
                "the certificate of {server} has expired: {cause}; the lender renews the serving certificate of that server \
                 (where it is in order, see to the clock of the manager's machine)"
            ),
            Self::TooEarly => format!(
                "the certificate of {server} is not valid yet: {cause}; see to the clocks of that server and of the \
                 manager's machine"
            ),
            Self::OfAnotherName => format!(
                "the certificate of {server} is for other addresses: {cause}; use one of those in {place}, or name one \
                 as its tls-server-name"
            ),
            Self::Untrusted => format!(
                "{server} is not whom the kubeconfig trusts: {cause}; put the authority of that server into \
                 certificate-authority-data of {place}"
            ),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_certificate_has_its_own_fix() {
        let cases = [
            ("no answer within 30 s", None),
            ("invalid peer certificate: UnknownIssuer", Some(Certificate::Untrusted)),
            ("invalid peer certificate: BadSignature", Some(Certificate::Untrusted)),
            ("invalid peer certificate: Expired", Some(Certificate::Expired)),
            (
                "invalid peer certificate: certificate expired: verification time 2 (UNIX), but certificate is not valid after 1",
                Some(Certificate::Expired),
            ),
            (
                "invalid peer certificate: certificate not valid yet: verification time 1 (UNIX), but 2",
                Some(Certificate::TooEarly),
            ),
            ("invalid peer certificate: NotValidForName", Some(Certificate::OfAnotherName)),
            ("received fatal alert: CertificateExpired", Some(Certificate::Ours)),
        ];
        for (cause, wrong) in cases {
            assert_eq!(certificate(cause), wrong, "{cause}");
        }
        let message = Certificate::Expired.message("https://p1", "it is old", "n/s");
        assert!(message.contains("renews") && !message.contains("certificate-authority-data"), "{message}");
    }
}
