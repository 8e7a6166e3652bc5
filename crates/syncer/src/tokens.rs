//! The service account tokens of one pod: asked for in V, kept in one Secret in P, renewed in time.

use jiff::Timestamp;
use kubeocean_api::keys::annotations;
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::Outcome;
use kubeocean_cluster::events::Subject as Told;
use kubeocean_cluster::queue::Verdict;
use kubeocean_model::action::{Action, Verb, kinds};
use kubeocean_model::bind::Telling;
use kubeocean_model::copy::{Tokens, plan_tokens};
use kubeocean_model::key::{Key, Physical, Virtual};
use kubeocean_model::naming::{Origin, PhysicalName};
use kubeocean_model::object::Object;
use kubeocean_model::project::{Needs, TokenSource};
use kubeocean_model::reclaim::VirtualPod;
use kubeocean_model::stamp::Stamp;
use kubeocean_model::twin;
use serde_json::json;

use crate::belongings::SeenMeta;
use crate::syncer::Syncer;
use crate::twins::Case;
use kubeocean_cluster::store::Entry;
use std::sync::Arc;

impl Syncer {
    /// Sees to it that the tokens of a pod are there. Gives the name of their Secret; `None`: it needs none.
    pub(crate) async fn bring_tokens(
        &self,
        case: &Case<'_>,
        needs: &Needs,
    ) -> Result<Option<String>, Verdict> {
        if needs.tokens.is_empty() {
            return Ok(None);
        }
        match self.token_secret(case.pod) {
            Some(known) if renew_at(&known.0).is_some_and(|at| at > case.now) => {
                Ok(Some(known.0.name.to_string()))
            }
            known => self.put_tokens(case, needs, known.as_deref()).await.map(Some),
        }
    }

    /// Renews tokens whose time has come. Says when to look again.
    pub(crate) async fn renew_tokens(
        &self,
        case: &Case<'_>,
        needs: &Needs,
    ) -> Result<Option<Timestamp>, Verdict> {
        if needs.tokens.is_empty() {
            return Ok(None);
        }
        let known = self.token_secret(case.pod);
        let due = known.as_ref().and_then(|known| renew_at(&known.0));
        if let Some(due) = due.filter(|due| *due > case.now) {
            return Ok(Some(due));
        }
        self.put_tokens(case, needs, known.as_deref()).await?;
        // The watch tells of the new ones, and with that it is looked at again.
        Ok(None)
    }

    /// What the Secret with a pod's tokens is called, if it needs one.
    pub(crate) fn token_secret_name(&self, pod: &VirtualPod, needs: &Needs) -> Option<String> {
        if needs.tokens.is_empty() {
            return None;
        }
        let known = self.token_secret(pod).map(|known| known.0.name.to_string());
        Some(known.unwrap_or_else(|| origin(pod).physical_name().to_string()))
    }

    fn token_secret(&self, pod: &VirtualPod) -> Option<Arc<Entry<SeenMeta>>> {
        let all = self.world.belongings.tokens_of(&pod.key(), &self.subject);
        all.into_iter().find(|secret| twin::uid_of_pod(&secret.0) == Some(&*pod.meta.uid) && !secret.leaving)
    }

    async fn put_tokens(
        &self,
        case: &Case<'_>,
        needs: &Needs,
        known: Option<&Entry<SeenMeta>>,
    ) -> Result<String, Verdict> {
        let mut tokens = Tokens::default();
        for source in &needs.tokens {
            self.ask_for(case, &needs.service_account, source, &mut tokens).await?;
        }
        // Whose it is says its metadata, and what is in it is written anew: it need not be read.
        let existing = known.map(|known| Object::of_meta(known.0.clone()));
        let stamp = Stamp { binding: case.binding, virtual_cluster: &self.subject.virtual_cluster };
        let origin = origin(case.pod);
        for name in [origin.physical_name(), origin.fallback_name(&self.subject.uid)] {
            let written = self.write_tokens(case, &stamp, existing.as_ref(), &tokens, &name).await?;
            if let Some(name) = written {
                return Ok(name);
            }
            let message = format!(
                "Secret {name} of the worker cluster is not of this binding: the tokens of the pod get another name there"
            );
            let telling = Telling::event(false, EventReason::NameTaken, message);
            self.tell_once(&Told::of(kinds::POD, &case.pod.meta), &telling);
        }
        Err(Verdict::Failed("name-taken"))
    }

    /// Writes the Secret; `None`: someone else has that name.
    async fn write_tokens(
        &self,
        case: &Case<'_>,
        stamp: &Stamp<'_>,
        existing: Option<&Object>,
        tokens: &Tokens,
        name: &PhysicalName,
    ) -> Result<Option<String>, Verdict> {
        let mut written =
            existing.map_or_else(|| name.to_string(), |existing| existing.meta.name.to_string());
        for action in plan_tokens(stamp, &case.pod.meta, existing, Some(tokens), name) {
            let outcome = self.reconciler.write(case.duty, &action).await;
            if matches!(outcome, Outcome::ExistsForeign) {
                return Ok(None);
            }
            // It cannot be changed any more, perhaps. Who reads it knows.
            if let (Some(known), Outcome::Invalid(_), Verb::Patch { .. }) = (existing, &outcome, &action.verb)
                && known.raw("data").is_none()
                && let Some(read) = self.read_tokens(known).await?
            {
                return Box::pin(self.write_tokens(case, stamp, Some(&read), tokens, name)).await;
            }
            if !outcome.fulfils(&action) {
                self.complain(&action, &outcome);
                if let Outcome::Invalid(status) | Outcome::Forbidden(status) = &outcome {
                    let binding = &self.subject.binding;
                    let message =
                        format!("the worker cluster {binding} refuses the tokens of the pod: {status}");
                    let telling = Telling::event(true, EventReason::FailedCreate, message);
                    self.tell_once(&Told::of(kinds::POD, &case.pod.meta), &telling);
                }
                return Err(outcome.verdict());
            }
            written.clone_from(&action.name);
        }
        Ok(Some(written))
    }

    async fn read_tokens(&self, known: &Object) -> Result<Option<Object>, Verdict> {
        let key = known.key::<Physical>();
        self.phys.get(&kinds::SECRET, &key).await.map_err(|_| Verdict::Failed("tokens-not-read"))
    }

    async fn ask_for(
        &self,
        case: &Case<'_>,
        account: &str,
        source: &TokenSource,
        tokens: &mut Tokens,
    ) -> Result<(), Verdict> {
        let meta = &case.pod.meta;
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": source.audience.iter().collect::<Vec<_>>(),
                "expirationSeconds": source.seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
            },
        });
        let key = Key::<Virtual>::new(&*meta.namespace, account);
        let verb = Verb::Post { subresource: "token", body };
        let action = Action::new(kinds::SERVICE_ACCOUNT, &key, verb, "a pod mounts it");
        let outcome = self.reconciler.write(case.duty, &action).await;
        let Outcome::Done(written) = &outcome else {
            if !matches!(outcome, Outcome::Unreachable(_) | Outcome::NotLeading | Outcome::Throttled { .. }) {
                let message = format!("no token of service account {account}: {outcome}");
                let told = Told::of(kinds::POD, meta);
                self.tell(&told, &[Telling::event(true, EventReason::DependencyMissing, message)]);
            }
            return Err(outcome.verdict());
        };
        let status = &written.answer["status"];
        let ends = status["expirationTimestamp"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        match (status["token"].as_str(), ends) {
            (Some(token), Some(ends)) => {
                tokens.add(source.key.as_str(), token, case.now, ends);
                Ok(())
            }
            _ => Err(Verdict::Failed("no-token")),
        }
    }
}

fn origin(pod: &VirtualPod) -> Origin<'_> {
    Origin::Tokens { pod: &pod.meta.name, uid: &pod.meta.uid }
}

fn renew_at(meta: &kubeocean_model::object::Meta) -> Option<Timestamp> {
    meta.annotations.get(annotations::TOKENS_RENEW_AT)?.parse().ok()
}
