//! The thread that owns a sandbox: it starts it, serves its handles, and ends it.
//!
//! One thread, because the kernel kills our children when the thread that forked them ends. It lives
//! exactly as long as the sandbox does, whatever runtime its users run on.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::janitor::{self, Janitor};
use crate::kubeconfig::{self, Access};
use crate::link::{Link, Relay};
use crate::net::{self, Side};
use crate::progress::Report;
use crate::registry::{self, Claim};
use crate::spec::Spec;
use crate::world::World;

/// `down` takes about a second; a minute means that the machine is in trouble.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

/// How often the directory is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Killing takes milliseconds.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// What the handles of a running sandbox need.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) directory: std::path::PathBuf,
    pub(crate) clusters: Vec<ClusterFacts>,
}

#[derive(Debug)]
pub(crate) struct ClusterFacts {
    pub(crate) access: Access,
    pub(crate) kubeconfig: std::path::PathBuf,
    pub(crate) kubectl: std::path::PathBuf,
    pub(crate) real_nodes: Vec<String>,
    pub(crate) sim_nodes: Vec<String>,
}

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What a handle may ask for.
pub(crate) enum Order {
    Signal { cluster: String, program: String, signal: Signal, reply: Reply<()> },
    Halt { cluster: String, program: String, asked: bool, reply: Reply<()> },
    Start { cluster: String, program: String, reply: Reply<()> },
    Link { cluster: String, reply: Reply<Link> },
    Separate { clusters: [String; 2], heal: bool, reply: Reply<()> },
    Died { reply: Reply<Vec<String>> },
    Stop { reply: Reply<()> },
}

/// Runs a sandbox from its start to its end.
pub(crate) fn run(
    name: &str,
    spec: Spec,
    report: Report,
    cancelled: oneshot::Receiver<()>,
    ready: oneshot::Sender<Result<Facts, Error>>,
    orders: mpsc::UnboundedReceiver<Order>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => {
            let failure = Error::Io { doing: "starting a runtime for", path: name.to_owned(), source };
            // Whoever started us is gone if this cannot be delivered.
            let _ = ready.send(Err(failure));
            return;
        }
    };
    runtime.block_on(live(name, spec, report, cancelled, ready, orders));
}

async fn live(
    name: &str,
    spec: Spec,
    report: Report,
    cancelled: oneshot::Receiver<()>,
    mut ready: oneshot::Sender<Result<Facts, Error>>,
    orders: mpsc::UnboundedReceiver<Order>,
) {
    let (claim, janitor, mut world) = match found(name, spec, report).await {
        Ok(parts) => parts,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let outcome = tokio::select! {
        outcome = world.bring_up() => outcome.and_then(|()| facts(&world, &claim)),
        // Asked to give up, or everyone who could use it is gone.
        _ = cancelled => Err(Error::GivenUp),
        () = ready.closed() => Err(Error::GivenUp),
    };
    match outcome {
        Ok(facts) => {
            let stop = match ready.send(Ok(facts)) {
                Ok(()) => serve(&world, &claim, orders).await,
                Err(_) => None,
            };
            let ended = end(world, claim, janitor).await;
            if let Some(reply) = stop {
                let _ = reply.send(ended);
            }
        }
        Err(error) => {
            // What failed first matters more than what failed while cleaning up after it.
            let _ = end(world, claim, janitor).await;
            let _ = ready.send(Err(error));
        }
    }
}

async fn found(name: &str, spec: Spec, report: Report) -> Result<(Claim, Janitor, World), Error> {
    let claim = registry::claim(name).await?;
    let world = World::new(name.to_owned(), claim.identity.clone(), claim.directory.clone(), spec, report);
    let started = world.and_then(|world| Ok((Janitor::start(&claim.directory, &claim.identity)?, world)));
    match started {
        Ok((janitor, world)) => Ok((claim, janitor, world)),
        Err(error) => {
            // What failed first matters more than what fails while cleaning up after it.
            let _ = janitor::remove(&claim.directory);
            Err(error)
        }
    }
}

async fn end(world: World, claim: Claim, janitor: Janitor) -> Result<(), Error> {
    // A process that does not even die when it is killed hangs in the kernel: the janitor goes on without it.
    let _ = tokio::time::timeout(KILL_LIMIT, world.end()).await;
    drop((world, claim));
    janitor.finish(REMOVAL_LIMIT).await
}

fn facts(world: &World, claim: &Claim) -> Result<Facts, Error> {
    let clusters = world.clusters.iter().map(|cluster| {
        let plane = cluster.plane.borrow();
        Ok(ClusterFacts {
            access: plane.admin_access(),
            kubeconfig: plane.kubeconfig_path(),
            kubectl: world.kubectl()?,
            real_nodes: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
            sim_nodes: crate::sim::names(plane.spec.sim_nodes),
        })
    });
    Ok(Facts { directory: claim.directory.clone(), clusters: clusters.collect::<Result<_, Error>>()? })
}

/// Serves orders until one says stop, until nobody is left to give any, or until someone has deleted the
/// directory: a sandbox that nobody can see must not stay.
async fn serve(
    world: &World,
    claim: &Claim,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> Option<Reply<()>> {
    loop {
        let order = match tokio::time::timeout(LOOK_EVERY, orders.recv()).await {
            Ok(Some(order)) => order,
            Err(_) if claim.is_intact() => continue,
            Ok(None) | Err(_) => return None,
        };
        // A reply that nobody waits for any more is no failure of ours.
        match order {
            Order::Signal { cluster, program, signal, reply } => {
                let _ = reply.send(world.signal(&cluster, &program, signal));
            }
            Order::Halt { cluster, program, asked, reply } => {
                let _ = reply.send(world.halt(&cluster, &program, asked).await);
            }
            Order::Start { cluster, program, reply } => {
                let _ = reply.send(world.restart(&cluster, &program).await);
            }
            Order::Link { cluster, reply } => {
                let _ = reply.send(open_link(world, &cluster).await);
            }
            Order::Separate { clusters: [one, other], heal, reply } => {
                let _ = reply.send(separate(world, &one, &other, heal));
            }
            Order::Died { reply } => {
                let _ = reply.send(Ok(world.died().iter().map(Error::to_string).collect()));
            }
            Order::Stop { reply } => return Some(reply),
        }
    }
}

async fn open_link(world: &World, cluster: &str) -> Result<Link, Error> {
    let cluster = world.cluster(cluster)?;
    let target = {
        let plane = cluster.plane.borrow();
        SocketAddr::from((plane.address, plane.port))
    };
    let relay = Relay::open(target).await?;
    let access = cluster.plane.borrow().admin_access_via(&format!("https://{}", relay.address));
    Ok(relay.into_link(kubeconfig::render(&[access])))
}

fn separate(world: &World, one: &str, other: &str, heal: bool) -> Result<(), Error> {
    let plan = world.network.ok_or_else(|| Error::InvalidSpec {
        what: "this sandbox has no real nodes, so its clusters share no network: use a link instead".into(),
    })?;
    let side = |name: &str| -> Result<Side, Error> {
        let cluster = world.cluster(name)?;
        let nodes = cluster
            .nodes
            .iter()
            .map(|node| Ok((node.index, world.program_pid(name, &node.program("machine"))?)))
            .collect::<Result<_, Error>>()?;
        Ok(Side { cluster: cluster.plane.borrow().index, nodes })
    };
    let (one, other) = (side(one)?, side(other)?);
    let act = if heal { net::heal } else { net::cut };
    act(plan, &one, &other)?;
    act(plan, &other, &one)
}
