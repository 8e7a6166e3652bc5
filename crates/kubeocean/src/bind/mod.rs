//! `kubeocean bind`: a worker cluster joins the computing cluster.
//!
//! First everything is looked at, in both clusters, and told line by line. Only if nothing is wrong is anything
//! written: a Secret with the kubeconfig, and the `ClusterBinding`. What happens then is the manager's work; it is told
//! until the binding is Ready.

mod checks;
mod computing;
pub(crate) mod follow;
mod network;
mod versions;
mod wish;
mod worker;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeocean_api::keys::names::{INSTALL_NAMESPACE, WORKER_NAMESPACE};
use kubeocean_api::yaml;
use kubeocean_cluster::apply::{Applier, Outcome, Written};
use kubeocean_cluster::client::Cluster;
use kubeocean_model::action::{Action, Dependents, Verb, kinds};
use kubeocean_model::bind::BindingObject;
use kubeocean_model::key::Virtual;
use kubeocean_model::naming::{ClusterId, is_dns_label, is_label_key, label_value};
use kubeocean_model::object::Object;

pub(crate) use wish::is_made_by_bind;

use crate::computing::{CLI, ComputingArgs};
use crate::terminal::{note, seconds};
use crate::worker_manifest;
use checks::Checks;
use computing::Seen;
use follow::{Credentials, Ended, Follower, Patience};
use wish::Wish;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kubeocean bind berlin --worker-kubeconfig berlin.kubeconfig
  kubeocean bind berlin --worker-kubeconfig berlin.kubeconfig --dry-run
  kubeocean bind berlin --worker-kubeconfig renewed.kubeconfig       (again, with new credentials)")]
pub(crate) struct Args {
    /// The name of the `ClusterBinding`
    #[arg(value_parser = worker_manifest::binding)]
    name: String,
    /// The kubeconfig of the worker cluster, as `kubeocean worker-kubeconfig` prints it
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: PathBuf,
    /// What the worker cluster is called in names of virtual nodes [default: NAME]
    #[arg(long, value_name = "ID", value_parser = cluster_id)]
    cluster_id: Option<String>,
    /// The namespace of the worker cluster that pods run in
    #[arg(long, value_name = "NAMESPACE", value_parser = worker_manifest::lent_namespace,
        help = format!("The namespace of the worker cluster that pods run in [default: {WORKER_NAMESPACE}]"))]
    mount_namespace: Option<String>,
    /// The namespace of the computing cluster that the Secret is put into
    #[arg(long, value_parser = worker_manifest::namespace,
        help = format!("The manager's namespace, which the Secret is put into [default: {INSTALL_NAMESPACE}]"))]
    namespace: Option<String>,
    /// Lease only nodes with these labels
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    node_selector: Vec<(String, String)>,
    /// Mirror the Services of these namespaces; `*` for all
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = service_namespace)]
    service_namespaces: Vec<String>,
    #[command(flatten)]
    patience: Patience,
    /// Look at everything, print the objects, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the kubeconfig too
    #[arg(long, requires = "dry_run")]
    show_secrets: bool,
    #[command(flatten)]
    computing: ComputingArgs,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let mut checks = Checks::default();
    let mut wish = Wish::of(args)?;
    let kubeconfig = read(&args.worker_kubeconfig);
    let seen = computing::look(args, &mut wish, kubeconfig.as_deref().ok(), &mut checks).await;
    let worker = worker::look(&wish, &args.worker_kubeconfig, &kubeconfig, seen.as_ref(), &mut checks).await;
    network::look(seen.as_ref(), worker.as_ref(), &mut checks).await;
    checks.verdict()?;
    let (Some(seen), Ok(kubeconfig)) = (seen, kubeconfig) else { return Ok(()) };

    if args.dry_run {
        let shown = args.show_secrets.then_some(kubeconfig.as_slice());
        let text = yaml::documents("", &wish.objects(shown))?;
        return Ok(std::io::stdout().lock().write_all(text.as_bytes())?);
    }
    let Seen { virt, existing, secret, .. } = &seen;
    let (uid, credentials) = write(virt, &wish, &kubeconfig, existing.as_ref(), secret.as_ref()).await?;
    let name = &wish.name;
    if args.patience.no_wait {
        return say(&format!(
            "ClusterBinding {name} is written. What becomes of it: kubectl get clusterbinding {name} -o wide"
        ));
    }
    let before = existing.as_ref().map(BindingObject::read);
    let follower = Follower::new(virt, name, &uid).after(before.as_ref());
    wait(follower, name, credentials, args.patience.timeout).await
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Writes the Secret, then the binding; returns the binding's uid, and whether it has other credentials now.
async fn write(
    virt: &Cluster<Virtual>,
    wish: &Wish,
    kubeconfig: &[u8],
    existing: Option<&Object>,
    secret: Option<&Object>,
) -> anyhow::Result<(String, Credentials)> {
    let applier = Applier::new(CLI).virtually(virt);
    let mut made = None;
    let mut credentials = Credentials::AsBefore;
    // One that someone else made has the same content: that was looked at.
    if secret.is_none_or(|secret| is_made_by_bind(&secret.meta, &wish.name)) {
        let what = format!("Secret {}", wish.secret);
        let written = put(&applier, &wish.write_secret(kubeconfig), &what, secret).await?;
        if existing.is_some() && written.changed {
            credentials = Credentials::Others;
        }
        made = secret.is_none().then_some(written.uid);
    }
    let what = format!("ClusterBinding {}", wish.name);
    let bound = put(&applier, &wish.write_binding(existing), &what, existing).await;
    if let (Err(NotPut { refused: true, .. }), Some(uid)) = (&bound, made) {
        // Nobody would ever ask for this Secret again. Where nobody knows whether there is a binding, it may need it.
        let verb = Verb::Delete { grace: None, dependents: Dependents::Background };
        let why = "the binding it was made for was refused";
        applier.apply(&Action::new(kinds::SECRET, &wish.secret, verb, why).if_uid(uid)).await;
    }
    Ok((bound?.uid, credentials))
}

/// What could not be put where it should be.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
struct NotPut {
    words: String,
    /// Whether it is certain that nothing was written.
    refused: bool,
}

impl NotPut {
    fn of(what: &str, outcome: &Outcome) -> Self {
        let words = match outcome {
            Outcome::Invalid(status) => format!("{what} is refused: {status}"),
            Outcome::Forbidden(status) => {
                format!("{what} may not be written by you: {status}; use another --kubeconfig or --context")
            }
            Outcome::Conflict(words) => {
                format!("{what} was changed by someone else meanwhile ({words}): try again")
            }
            other => format!(
                "{what} could not be written: {other}\nIt may have been written all the same: run the same command again"
            ),
        };
        Self { words, refused: outcome.is_refused() }
    }
}

/// What was put where it should be.
struct Put {
    uid: String,
    changed: bool,
}

/// One write, told.
async fn put(applier: &Applier, action: &Action, what: &str, before: Option<&Object>) -> Result<Put, NotPut> {
    let written = match applier.apply(action).await {
        Outcome::Done(written) => written,
        other => return Err(NotPut::of(what, &other)),
    };
    let (word, changed) = match before {
        None => ("created", true),
        Some(before) if is_unchanged(before, &written) => ("is as it should be", false),
        Some(_) => ("changed", true),
    };
    note(&format!("✓ {what} {word}"));
    match written.uid {
        Some(uid) => Ok(Put { uid, changed }),
        None => Err(NotPut { words: format!("{what} was answered without a uid"), refused: false }),
    }
}

/// Whether a write left an object as it was. Where there are generations, a status that someone else wrote meanwhile makes no
/// difference.
fn is_unchanged(before: &Object, written: &Written) -> bool {
    match written.answer["metadata"]["generation"].as_i64() {
        Some(generation) => generation == before.meta.generation,
        None => written.resource_version.as_deref() == Some(&*before.meta.resource_version),
    }
}

/// Tells what happens until the binding is Ready, or is known not to become so.
async fn wait(
    mut follower: Follower<'_>,
    name: &str,
    credentials: Credentials,
    timeout: Duration,
) -> anyhow::Result<()> {
    match follower.until_ready(credentials, timeout).await {
        Ended::Ready => {
            say(&format!("ClusterBinding {name} is Ready after {}.", seconds(follower.elapsed())))
        }
        Ended::Failed { reason, message } => anyhow::bail!(
            "ClusterBinding {name} is Failed, {reason}: {message}\nIt stays, and the manager tries again. Repair that, or give up \
             with `kubeocean unbind {name}`"
        ),
        Ended::Late { message: Some(message) } => anyhow::bail!(
            "ClusterBinding {name} is not Ready after {}: {message}\nIt stays, and the manager goes on. Look at it with `kubectl \
             describe clusterbinding {name}`, or wait longer with --timeout",
            seconds(timeout)
        ),
        Ended::Late { message: None } => anyhow::bail!(
            "no manager has looked at ClusterBinding {name} within {}: is one running? See `kubectl get deployments -A -l \
             app.kubernetes.io/name=kubeocean-manager`",
            seconds(timeout)
        ),
        Ended::Gone => anyhow::bail!("ClusterBinding {name} was deleted by someone else meanwhile"),
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn cluster_id(text: &str) -> Result<String, String> {
    ClusterId::parse(text).map(|id| id.as_str().to_owned()).map_err(|error| error.to_string())
}

/// `key=value`, both as labels have them.
fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if is_label_key(key) && label_value(value).is_some() => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("use labels of nodes, such as lend=yes or example.com/pool=a,zone=b".to_owned()),
    }
}

fn service_namespace(text: &str) -> Result<String, String> {
    if text == "*" || is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("use names of namespaces, such as web,db, or '*' for all".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use kubeocean_cluster::error::CallError;

    use super::*;

    #[test]
    fn what_may_have_been_written_is_not_taken_for_refused() {
        for (outcome, refused) in [
            (Outcome::Invalid(Box::default()), true),
            (Outcome::Forbidden(Box::default()), true),
            (Outcome::Conflict("a".to_owned()), false),
            (Outcome::Unreachable(CallError::TimedOut { limit: Duration::from_secs(10) }), false),
            (Outcome::Throttled { retry_after: None, message: "a".to_owned() }, false),
        ] {
            assert_eq!(NotPut::of("it", &outcome).refused, refused, "{outcome}");
        }
        let late =
            NotPut::of("it", &Outcome::Unreachable(CallError::TimedOut { limit: Duration::from_secs(10) }));
        assert!(
            late.words.ends_with("may have been written all the same: run the same command again"),
            "{late}"
        );
    }
}
