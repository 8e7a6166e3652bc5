//! Why a kubelet cannot be asked, in words that name the fix.

use std::fmt;

use kubeocean_cluster::error::CallError;
use kubeocean_cluster::kubelet::KubeletError;

/// Why there is nothing of a kubelet.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// Its node does not say where it is.
    NoAddress,
    /// More is said of our pods than we pass on.
    TooMuch { limit: usize },
    /// It did not answer as it should.
    Asked(KubeletError),
}

impl From<KubeletError> for Trouble {
    fn from(error: KubeletError) -> Self {
        Self::Asked(error)
    }
}

impl Trouble {
    /// Whether it says something of the kubelet: we may not have known the way to its cluster yet, and will in a moment.
    pub(super) fn was_asked(&self) -> bool {
        !matches!(self, Self::Asked(KubeletError::Nowhere | KubeletError::Call(CallError::Unproven)))
    }

    fn fix(&self) -> Option<&'static str> {
        let Self::Asked(error) = self else { return None };
        Some(match error {
            KubeletError::Unverified { .. } => {
                "give the authority of the worker's kubelets with --physical-kubelet-ca"
            }
            KubeletError::TokenWithheld => {
                "give the authority of the worker's kubelets with --physical-kubelet-ca, or a kubeconfig with a client certificate"
            }
            KubeletError::Call(CallError::Refused(status)) if [401, 403].contains(&status.code) => {
                "it wants `get` of `nodes/metrics`: apply what `kubeocean worker-manifest` prints to the worker cluster"
            }
            KubeletError::Call(CallError::Unreachable { .. } | CallError::TimedOut { .. }) => {
                "let the proxier reach that port of the worker's nodes"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str(
                "its node has no InternalIP of a machine, or no port of a kubelet, in its status",
            )?,
            Self::TooMuch { limit } => {
                write!(f, "there are more than {limit} bytes to say of our pods on it")?;
            }
            Self::Asked(error) => write!(f, "{error}")?,
        }
        self.fix().map_or(Ok(()), |fix| write!(f, "; {fix}"))
    }
}
