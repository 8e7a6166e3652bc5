//! Ports that cannot be bound: whoever hands ports out is told, and hands out others.

use std::sync::Arc;

use kubeocean_api::keys::annotations::PORT_CONFLICT;
use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::client::Cluster;
use kubeocean_model::action::{Action, PatchForm, Verb, kinds};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::naming::{Port, with_conflict};
use serde_json::json;

/// Who is told.
#[derive(Clone)]
pub(crate) enum Conflicts {
    /// The syncer, by an annotation of the proxier's Service.
    Published { virt: Cluster<Virtual>, applier: Applier, service: Key<Virtual> },
    /// Whoever shares the process.
    Told(Arc<dyn Fn(Port) + Send + Sync>),
}

impl Conflicts {
    /// Tells it, and says whether that was heard. What was not is to be told again, for as long as it is true.
    pub(crate) async fn tell(&self, port: Port) -> bool {
        match self {
            Self::Told(tell) => {
                tell(port);
                true
            }
            Self::Published { virt, applier, service } => {
                let found = match virt.get(&kinds::SERVICE, service).await {
                    Ok(Some(found)) => found,
                    Ok(None) => {
                        tracing::warn!(%port, %service, "a port is taken, and there is no Service to say so on");
                        return false;
                    }
                    Err(error) => {
                        tracing::warn!(%port, %service, %error, "a port is taken, and nobody could be told");
                        return false;
                    }
                };
                let Some(said) = with_conflict(found.meta.annotations.get(PORT_CONFLICT), port) else {
                    return true;
                };
                let body = json!({"metadata": {"annotations": {PORT_CONFLICT: said}}});
                let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
                let action =
                    Action::new(kinds::SERVICE, service, verb, "a port of a virtual node is taken here")
                        .if_uid(&*found.meta.uid)
                        .if_version(&*found.meta.resource_version);
                matches!(applier.apply(&action).await, Outcome::Done(_) | Outcome::Unchanged { .. })
            }
        }
    }
}
