//! `kubeocean unbind`: a worker cluster leaves the computing cluster.
//!
//! The manager and the syncer do the work; here it is said what will happen, asked for, and told until it has happened.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kubeocean_api::keys::annotations::FORCE_UNBIND;
use kubeocean_api::keys::finalizers::CLUSTER_BINDING_MANAGER;
use kubeocean_api::keys::labels::{BINDING_UID, CLUSTER_BINDING, MANAGED_BY, MANAGED_BY_VALUE};
use kubeocean_api::keys::names::{EVENT_NAMESPACE, INSTALL_NAMESPACE};
use kubeocean_api::keys::reasons::Event as EventReason;
use kubeocean_cluster::apply::{Applier, Outcome};
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::error::CallError;
use kubeocean_model::action::{Action, Dependents, PatchForm, Verb, kinds};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::object::Object;
use serde_json::{Value, json};

use crate::bind::follow::{Ended, Follower, Patience};
use crate::bind::is_made_by_bind;
use crate::computing::{CLI, Computing, ComputingArgs};
use crate::exit::Missing;
use crate::terminal::{note, seconds};
use crate::worker_manifest;

/// The last Event is sent with the last write, and arrives a moment later.
const EVENT_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a dry run ends with.
const NOTHING_CHANGED: &str = "Nothing was changed (--dry-run).";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubeocean unbind berlin
  kubeocean unbind berlin --dry-run                            (what would go, and what would stay)
  kubeocean unbind berlin --force 'the cluster burned down'")]
pub(crate) struct Args {
    /// The name of the `ClusterBinding`
    #[arg(value_parser = worker_manifest::binding)]
    name: String,
    /// Do not ask the worker cluster for anything: what runs there stays. The reason is kept and told
    #[arg(long, value_name = "REASON", value_parser = reason)]
    force: Option<String>,
    /// Do not ask whether it is meant
    #[arg(short, long)]
    yes: bool,
    /// Say what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    computing: ComputingArgs,
}

/// The Secret that a binding refers to.
enum Secret {
    /// `kubeocean bind` made it: it goes too.
    Ours(Object),
    /// Someone else did, or uses it too: it stays.
    Stays(String),
    /// There is none.
    None,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let name = &args.name;
    let Computing { virt, server } = args.computing.connect().await?;
    let found = virt.get(&kinds::BINDING, &Key::cluster_scoped(name.as_str())).await;
    let Some(found) = found.with_context(|| format!("looking for ClusterBinding {name} at {server}"))? else {
        return gone_already(&virt, args, &server).await;
    };
    let binding = BindingObject::read(&found);
    let secret = secret_of(&virt, &found).await;
    foretell(&virt, args, &binding, &secret).await;
    if args.dry_run {
        return say(NOTHING_CHANGED);
    }
    if !args.yes && std::io::stdin().is_terminal() && !confirmed()? {
        anyhow::bail!("nothing was changed");
    }
    ask_to_go(&virt, args, &binding).await?;
    if args.patience.no_wait {
        if let Secret::Ours(secret) = &secret {
            let (namespace, secret) = (&secret.meta.namespace, &secret.meta.name);
            note(&format!("Secret {namespace}/{secret} stays until you run this again, when it is gone"));
        }
        return say(&format!("ClusterBinding {name} is being deleted."));
    }
    let uid = &*binding.meta.uid;
    let mut follower = Follower::new(&virt, name, uid).knowing(&binding);
    match follower.until_gone(args.patience.timeout).await {
        Ended::Gone => {}
        Ended::Late { message } => anyhow::bail!(
            "ClusterBinding {name} is not gone after {}: {}\nIt goes on being deleted; run the same command again to wait longer",
            seconds(args.patience.timeout),
            message.as_deref().unwrap_or("no manager has looked at it; is one running?")
        ),
        other => anyhow::bail!("ClusterBinding {name} ended in an unexpected way: {other:?}"),
    }
    // Where no manager has been, nobody tells anything.
    if binding.has_finalizer(CLUSTER_BINDING_MANAGER)
        && let Some(words) = last_word(&virt, uid).await
    {
        note(&words);
    }
    remove(&virt, &secret).await;
    say(&format!("ClusterBinding {name} is gone after {}.", seconds(follower.elapsed())))
}

/// Who did not wait for the end the last time may have left a kubeconfig behind.
async fn gone_already(virt: &Cluster<Virtual>, args: &Args, server: &str) -> anyhow::Result<()> {
    let name = &args.name;
    let labels = format!("{MANAGED_BY}={MANAGED_BY_VALUE},{CLUSTER_BINDING}={name}");
    let mut left = virt.list(&kinds::SECRET, None, Some(&labels)).await;
    if left.is_err() {
        left = virt.list(&kinds::SECRET, Some(INSTALL_NAMESPACE), Some(&labels)).await;
    }
    let all = virt.list(&kinds::BINDING, None, None).await;
    let mut going = Vec::new();
    for secret in left.unwrap_or_default() {
        match unless_used(secret, all.as_deref(), None) {
            Secret::Ours(secret) => going.push(secret),
            Secret::Stays(why) => note(&why),
            Secret::None => {}
        }
    }
    if going.is_empty() {
        return Err(Missing(missing(virt, name, server).await).into());
    }
    note(&format!("There is no ClusterBinding {name}, and this is left of it:"));
    for secret in &going {
        note(&format!("- Secret {}, which `kubeocean bind` made", secret.key::<Virtual>()));
    }
    if args.dry_run {
        return say(NOTHING_CHANGED);
    }
    if !args.yes && std::io::stdin().is_terminal() && !confirmed()? {
        anyhow::bail!("nothing was changed");
    }
    for secret in going {
        remove(virt, &Secret::Ours(secret)).await;
    }
    Ok(())
}

async fn missing(virt: &Cluster<Virtual>, name: &str, server: &str) -> String {
    if matches!(virt.serves(&kinds::BINDING).await, Ok(false)) {
        return format!(
            "{server} knows no ClusterBindings: is it the computing cluster? (--kubeconfig, --context)"
        );
    }
    let all = virt.list(&kinds::BINDING, None, None).await.unwrap_or_default();
    let names: Vec<&str> = all.iter().map(|one| &*one.meta.name).collect();
    let others = if names.is_empty() {
        "there is none at all".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    };
    format!("there is no ClusterBinding {name} at {server}: {others}")
}

async fn secret_of(virt: &Cluster<Virtual>, binding: &Object) -> Secret {
    let text = |field: &str| binding.text("spec", &["secretRef", field]).unwrap_or_default();
    let key = Key::new(text("namespace"), text("name"));
    let secret = match virt.get(&kinds::SECRET, &key).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return Secret::None,
        Err(error) => return Secret::Stays(format!("Secret {key} stays, since it cannot be read: {error}")),
    };
    if !is_made_by_bind(&secret.meta, &binding.meta.name) {
        return Secret::Stays(format!("Secret {key} stays, since `kubeocean bind` did not make it"));
    }
    let all = virt.list(&kinds::BINDING, None, None).await;
    unless_used(secret, all.as_deref(), Some(&binding.meta.uid))
}

/// A Secret goes only if it is known that no other binding uses it.
fn unless_used(secret: Object, bindings: Result<&[Object], &CallError>, except: Option<&str>) -> Secret {
    let key: Key<Virtual> = secret.key();
    match bindings.map(|bindings| user_of(&key, bindings, except)) {
        Ok(None) => Secret::Ours(secret),
        Ok(Some(other)) => Secret::Stays(format!("Secret {key} stays, since ClusterBinding {other} uses it")),
        Err(error) => Secret::Stays(format!(
            "Secret {key} stays, and holds a kubeconfig: whether another ClusterBinding uses it cannot be known: {error}"
        )),
    }
}

/// The name of a binding that uses a Secret, other than the one with this uid.
fn user_of(secret: &Key<Virtual>, bindings: &[Object], except: Option<&str>) -> Option<String> {
    let refers = |binding: &&Object| {
        Some(&*binding.meta.uid) != except
            && binding.text("spec", &["secretRef", "name"]).as_deref() == Some(&*secret.name)
            && binding.text("spec", &["secretRef", "namespace"]).as_deref() == Some(&*secret.namespace)
    };
    bindings.iter().find(refers).map(|binding| binding.meta.name.to_string())
}

/// What will happen, before it does.
async fn foretell(virt: &Cluster<Virtual>, args: &Args, binding: &BindingObject, secret: &Secret) {
    let name = &args.name;
    let id = binding.parsed.as_ref().map_or("unknown", |binding| binding.cluster_id.as_str());
    note(&format!("ClusterBinding {name} (clusterID {id}) goes:"));
    let labels = format!("{BINDING_UID}={}", binding.meta.uid);
    let nodes = match virt.list(&kinds::NODE, None, Some(&labels)).await {
        Ok(nodes) => counted(nodes.len(), "virtual node"),
        Err(_) => "its virtual nodes".to_owned(),
    };
    let pods = binding.status.pods.and_then(|pods| usize::try_from(pods).ok()).filter(|pods| *pods > 0);
    let pods = pods.map_or(String::new(), |pods| format!(", with {} on them", counted(pods, "pod")));
    note(&format!("- {nodes}{pods}"));
    note("- its syncer and proxier");
    match secret {
        Secret::Ours(secret) => {
            note(&format!(
                "- Secret {}/{}, which `kubeocean bind` made",
                secret.meta.namespace, secret.meta.name
            ));
        }
        Secret::Stays(why) => note(&format!("  {why}")),
        Secret::None => {}
    }
    if let Some(reason) = args.force.as_deref().or_else(|| binding.forced()) {
        note(&format!("! What runs in the worker cluster stays there, since it is not asked: {reason}"));
    }
    if args.force.is_none() && binding.forced().is_some() {
        note(&format!(
            "  That was said before, in its annotation {FORCE_UNBIND}; unless it still holds: kubectl annotate clusterbinding {name} \
             {FORCE_UNBIND}-"
        ));
    }
}

fn counted(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

fn confirmed() -> anyhow::Result<bool> {
    write!(std::io::stderr(), "Is that meant? [y/N] ")?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Asks for the deletion of exactly this binding. Why it is forced is said before, or what works there would begin to give back in order; who
/// then may not delete it takes that word back, since it would make a later deletion a forced one.
async fn ask_to_go(virt: &Cluster<Virtual>, args: &Args, binding: &BindingObject) -> anyhow::Result<()> {
    let (key, uid) = (binding.key(), &*binding.meta.uid);
    let applier = Applier::new(CLI).virtually(virt);
    let says = |reason: Option<&str>, why| {
        let body = json!({ "metadata": { "annotations": { FORCE_UNBIND: reason } } });
        let verb = Verb::Patch { form: PatchForm::Merge, subresource: None, body };
        Action::new(kinds::BINDING, &key, verb, why).if_uid(uid)
    };
    if let Some(reason) = &args.force {
        let action = says(Some(reason), "its operator gives the worker cluster up");
        written(&applier.apply(&action).await, &args.name)?;
    }
    if binding.meta.is_deleting() {
        return Ok(());
    }
    let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
    let action = Action::new(kinds::BINDING, &key, verb, "its operator unbinds it").if_uid(uid);
    let deleted = written(&applier.apply(&action).await, &args.name);
    if deleted.is_err() && args.force.is_some() {
        let before = binding.meta.annotations.get(FORCE_UNBIND);
        let undone = applier.apply(&says(before, "it is not deleted after all")).await;
        if !undone.is_done() {
            note(&format!(
                "! Its annotation {FORCE_UNBIND} stays, and would make a later deletion a forced one: kubectl annotate \
                 clusterbinding {} {FORCE_UNBIND}-",
                args.name
            ));
        }
    }
    deleted
}

/// Whether something was written, or why it was not.
fn written(outcome: &Outcome, name: &str) -> anyhow::Result<()> {
    match outcome {
        Outcome::Done(_) | Outcome::Unchanged { .. } | Outcome::Gone => Ok(()),
        Outcome::Conflict(words) => {
            anyhow::bail!(
                "ClusterBinding {name} is not the one that was looked at any more ({words}): try again"
            )
        }
        Outcome::Forbidden(status) => {
            anyhow::bail!("you may not do this: {status}; use another --kubeconfig or --context")
        }
        other => anyhow::bail!("ClusterBinding {name} could not be deleted: {other}"),
    }
}

/// The Event that says what is left.
async fn last_word(virt: &Cluster<Virtual>, uid: &str) -> Option<String> {
    let started = Instant::now();
    let last = [EventReason::Unbound.as_str(), EventReason::ForceUnbound.as_str()];
    while started.elapsed() < EVENT_WITHIN {
        let events = virt.list(&kinds::EVENT, Some(EVENT_NAMESPACE), None).await.unwrap_or_default();
        for event in events {
            let about = event.text("involvedObject", &["uid"]);
            let reason: Option<String> = event.field("reason").ok().flatten();
            if about.as_deref() == Some(uid) && reason.as_deref().is_some_and(|reason| last.contains(&reason))
            {
                let message: Value = event.field("message").ok().flatten()?;
                return Some(format!("{}: {}", reason?, message.as_str()?));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

/// Removes the Secret, if it is ours. The binding is gone either way.
async fn remove(virt: &Cluster<Virtual>, secret: &Secret) {
    let Secret::Ours(secret) = secret else { return };
    let action = removal(secret);
    let outcome = Applier::new(CLI).virtually(virt).apply(&action).await;
    note(&removed(&secret.key(), &action, &outcome));
}

/// Only as it was looked at: whoever binds again meanwhile writes into the same Secret.
fn removal(secret: &Object) -> Action {
    let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
    Action::new(kinds::SECRET, &secret.key::<Virtual>(), verb, "its binding is gone")
        .if_uid(&*secret.meta.uid)
        .if_version(&*secret.meta.resource_version)
}

fn removed(key: &Key<Virtual>, action: &Action, outcome: &Outcome) -> String {
    match outcome {
        outcome if outcome.fulfils(action) => format!("Secret {key} is removed."),
        Outcome::Conflict(_) => {
            format!("Secret {key} was changed by someone else meanwhile, and stays with its kubeconfig.")
        }
        outcome => format!("Secret {key} could not be removed, and holds a kubeconfig: {outcome}"),
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("say why, in a few words".to_owned())
    } else {
        Ok(text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: Value) -> Object {
        Object::from_value(object).unwrap()
    }

    fn fate(bindings: Result<&[Object], &CallError>) -> String {
        let secret = read(json!({"metadata": {"namespace": "n", "name": "s", "uid": "s-1"}}));
        match unless_used(secret, bindings, Some("b-1")) {
            Secret::Ours(_) => "goes".to_owned(),
            Secret::Stays(why) => why,
            Secret::None => "is not there".to_owned(),
        }
    }

    #[test]
    fn a_secret_that_someone_wrote_meanwhile_stays() {
        let secret =
            read(json!({"metadata": {"namespace": "n", "name": "s", "uid": "s-1", "resourceVersion": "7"}}));
        let action = removal(&secret);
        let only_if = &action.precondition;
        assert_eq!((only_if.uid.as_deref(), only_if.resource_version.as_deref()), (Some("s-1"), Some("7")));
        let said = removed(&secret.key(), &action, &Outcome::Conflict("a".to_owned()));
        assert!(said.contains("changed by someone else meanwhile, and stays"), "{said}");
        assert_eq!(removed(&secret.key(), &action, &Outcome::Gone), "Secret n/s is removed.");
    }

    #[test]
    fn a_secret_goes_only_if_it_is_known_that_nobody_else_uses_it() {
        let binding = |name: &str, uid: &str| {
            let spec = json!({"secretRef": {"namespace": "n", "name": "s"}});
            read(json!({"metadata": {"name": name, "uid": uid}, "spec": spec}))
        };
        assert_eq!(fate(Ok(&[binding("w1", "b-1")])), "goes");
        let used = fate(Ok(&[binding("w1", "b-1"), binding("w2", "b-2")]));
        assert_eq!(used, "Secret n/s stays, since ClusterBinding w2 uses it");
        let unknown = fate(Err(&CallError::TimedOut { limit: Duration::from_secs(1) }));
        assert!(unknown.starts_with("Secret n/s stays, and holds a kubeconfig: "), "{unknown}");
    }
}
