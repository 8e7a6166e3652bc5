//! Ports that cannot be bound: whoever hands ports out is told, and hands out others.

use std::sync::Arc;

use kubeocean_api::keys::annotations::PORT_CONFLICT;
use kubeocean_cluster::apply::Applier;
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
    /// Tells it. What could not be told is told again later, for as long as it is true.
    pub(crate) async fn tell(&self, port: Port) {
        match self {
            Self::Told(tell) => tell(port),
            Self::Published { virt, applier, service } => {
                let found = match virt.get(&kinds::SERVICE, service).await {
                    Ok(Some(found)) => found,
                    Ok(None) => {
                        return tracing::warn!(%port, %service, "a port is taken, and there is no Service to say so on");
                    }
                    Err(error) => {
                        return tracing::warn!(%port, %service, %error, "a port is taken, and nobody could be told");
                    }
                };
                let Some(said) = with_conflict(found.meta.annotations.get(PORT_CONFLICT), port) else {
                    return;
                };
                let body = json!({"metadata": {"annotations": {PORT_CONFLICT: said}}});
                let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
                let action =
                    Action::new(kinds::SERVICE, service, verb, "a port of a virtual node is taken here")
                        .if_uid(&*found.meta.uid)
                        .if_version(&*found.meta.resource_version);
                applier.apply(&action).await;
            }
        }
    }
}
