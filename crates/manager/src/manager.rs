//! The loops of a manager.
//!
//! What watches runs always; what writes, and what looks at worker clusters, runs while this process leads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kubeocean_cluster::apply::Applier;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::events::{Recorder, Reporter};
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::metrics::{Metrics, MetricsError, Observation};
use kubeocean_cluster::queue::{Queue, Retry};
use kubeocean_cluster::reconcile::{Plan, Reconciler};
use kubeocean_cluster::together;
use kubeocean_model::action::kinds;
use kubeocean_model::bind::{MANAGER, Role};
use kubeocean_model::key::{Key, Virtual};
use kubeocean_model::nameless;
use tokio_util::sync::CancellationToken;

use crate::bindings::{Bindings, CurrentTemplates, Mode};
use crate::certificates::Approver;
use crate::contest::Contests;
use crate::inline::{Host, Workload};
use crate::observe;
use crate::probe::{self, Connect, Prober};
use crate::secrets::Secrets;
use crate::sweep::Sweeper;
use crate::template::Installation;
use crate::world::{Queues, Suspect, Watching, World};

/// Bindings at a time: each waits for its own writes, mostly.
const BINDINGS: usize = 16;

/// Worker clusters at a time. Those that do not answer wait for half a minute each, and keep nobody else waiting as long as
/// there are fewer of them than this.
const PROBES: usize = 512;

/// What a set of loops is made of.
pub struct Parts {
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// Makes connections to worker clusters.
    pub connect: Connect,
    /// What all bindings have in common.
    pub installation: Installation,
    /// How workers are run.
    pub workers: Workers,
    /// Whether this process writes.
    pub leadership: Leadership,
    /// What time it is.
    pub clock: Clock,
    /// Where things are counted.
    pub metrics: Metrics,
    /// For simulations: what delays are jittered by.
    pub seed: Option<u64>,
}

/// How workers are run.
pub enum Workers {
    /// As Deployments.
    Deployed(CurrentTemplates),
    /// In this process.
    Inline(BTreeMap<Role, Arc<dyn Workload>>),
}

/// The loops of a manager.
pub struct Manager {
    /// What it knows of V.
    pub world: World,
    /// What it knows of worker clusters.
    pub prober: Prober,
    secrets: Secrets,
    bindings: Bindings,
    /// What is to be looked at.
    pub queues: Queues,
    policies: Reconciler<Key<Virtual>>,
    sweeper: Sweeper,
    approver: Approver,
    host: Option<Host>,
    leadership: Leadership,
    _observations: Vec<Observation>,
}

/// What runs whether this process leads or not.
pub struct Background {
    /// Keeps the stores current.
    pub watching: Vec<Watching>,
    /// Sends Events.
    pub reporter: Reporter<Virtual>,
}

impl Manager {
    /// Everything, not running yet.
    pub fn new(parts: Parts) -> Result<(Self, Background), MetricsError> {
        let Parts { virt, connect, installation, workers, leadership, clock, metrics, seed } = parts;
        let retry = |(first, most): (Duration, Duration)| {
            let usual = Retry::default();
            Retry { first, most, seed: seed.unwrap_or(usual.seed) }
        };
        let usual = (Retry::default().first, Retry::default().most);
        let queues = Queues {
            bindings: Queue::new("bindings", retry(usual), &metrics),
            probes: Queue::new("probes", retry(probe::RETRY), &metrics),
            secrets: Queue::new("secrets", retry(usual), &metrics),
            policies: Queue::new("policies", retry(usual), &metrics),
            suspects: Queue::new("suspects", retry(usual), &metrics),
            requests: Queue::new("requests", retry(usual), &metrics),
        };
        let (world, watching) = World::watch(&virt, &installation.namespace, &queues);
        let prober = Prober::new(&virt, &world, &queues, connect, &metrics, &installation.namespace, seed);
        let secrets = Secrets::new(&virt, &world, &queues, &installation.namespace);
        let applier = Applier::new(MANAGER).virtually(&virt).while_leading(&leadership);
        let (recorder, reporter) = Recorder::new(MANAGER, applier.clone(), &clock, &metrics);
        let (mode, host) = match workers {
            Workers::Deployed(templates) => (Mode::Deployed(templates), None),
            Workers::Inline(workloads) => {
                let host = Host::new(workloads, &queues.bindings, &clock, &leadership);
                (Mode::Inline(host.clone()), Some(host))
            }
        };
        let mut reconciler = Reconciler::new(queues.bindings.clone(), applier.clone(), &clock)
            .following(kinds::BINDING, &world.bindings);
        let mut suspects = Reconciler::new(queues.suspects.clone(), applier.clone(), &clock);
        for (kind, store) in world.children.iter() {
            reconciler = reconciler.following(kind.clone(), store);
            suspects = suspects.following(kind.clone(), store);
        }
        for (kind, store) in world.leftovers.iter() {
            reconciler = reconciler.following(kind.clone(), store);
            suspects = suspects.following(kind.clone(), store);
        }
        let approver = Approver {
            virt: virt.clone(),
            world: world.clone(),
            asked: world.asked.clone(),
            namespace: installation.namespace.clone(),
            reconciler: Reconciler::new(queues.requests.clone(), applier.clone(), &clock)
                .following(kinds::SIGNING_REQUEST, &world.asked.requests),
            recorder: recorder.clone(),
            advertised: parking_lot::RwLock::default(),
            told: parking_lot::Mutex::default(),
        };
        let policies = Reconciler::new(queues.policies.clone(), applier, &clock)
            .following(kinds::POLICY, &world.policies);
        let observations = observe::bindings(&metrics, &world)?;
        let sweeper = Sweeper {
            virt: virt.clone(),
            world: world.clone(),
            reconciler: suspects,
            cluster: installation.virtual_cluster_uid.clone(),
            namespace: installation.namespace.clone(),
            living: tokio::sync::Mutex::default(),
        };
        let bindings = Bindings {
            world: world.clone(),
            prober: prober.clone(),
            mode,
            installation: Arc::new(installation),
            virt,
            reconciler,
            recorder,
            refusals: Arc::default(),
            troubles: Arc::default(),
            contests: Contests::default(),
            rendered: Arc::default(),
            rounds: observe::Rounds::new(&metrics)?,
        };
        let manager = Self {
            world,
            prober,
            secrets,
            bindings,
            queues,
            policies,
            sweeper,
            approver,
            host,
            leadership,
            _observations: observations,
        };
        Ok((manager, Background { watching, reporter }))
    }

    /// Says where this process is reached, where it runs proxiers itself: it approves the certificate for that address, and for no other,
    /// when it asks for it.
    #[must_use]
    pub fn advertising(self, address: Option<IpAddr>) -> Self {
        *self.approver.advertised.write() = address;
        self
    }

    /// Everything in one future, for who supervises nothing: never ends by itself. Each part is looked after only when something has
    /// happened to it: a dozen watches, each asked at every event of the others, would be most of the work.
    pub async fn run(self, background: Background) {
        let Background { watching, reporter } = background;
        let mut parts: Vec<BoxFuture<'_, ()>> = watching.into_iter().map(|(_, watching)| watching).collect();
        parts.push(Box::pin(reporter.run()));
        parts.push(Box::pin(self.terms()));
        together::all(parts).await;
    }

    /// One term after the other, for ever.
    async fn terms(&self) {
        let mut changes = self.leadership.changes();
        while changes.wait_for(|leads| *leads).await.is_ok() {
            let stop = CancellationToken::new();
            let end = async {
                drop(changes.wait_for(|leads| !*leads).await);
                stop.cancel();
            };
            let duties: [BoxFuture<'_, ()>; 8] = [
                Box::pin(self.lead_bindings(stop.clone())),
                Box::pin(self.lead_probes(stop.clone())),
                Box::pin(self.lead_secrets(stop.clone())),
                Box::pin(self.lead_policies(stop.clone())),
                Box::pin(self.lead_sweep(stop.clone())),
                Box::pin(self.lead_certificates(stop.clone())),
                Box::pin(self.lead_host(stop.clone())),
                Box::pin(end),
            ];
            together::all(duties).await;
        }
    }

    /// Plans for bindings while this process leads.
    pub async fn lead_bindings(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        for (key, _) in self.world.bindings.all() {
            self.queues.bindings.reset(key);
        }
        let look = |key| async move { self.bindings.look(&key).await };
        self.queues.bindings.run_until(stop, BINDINGS, look).await;
    }

    /// Looks at worker clusters while this process leads.
    pub async fn lead_probes(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        // What was known in an earlier term may be otherwise by now.
        self.prober.look_anew();
        self.bindings.refusals.lock().clear();
        for (key, _) in self.world.bindings.all() {
            self.queues.probes.reset(key);
        }
        let look = |key| async move { self.prober.look(&key).await };
        // Nothing is lost with a look that is cut short, and a worker cluster that does not answer holds up no one's end.
        stop.run_until_cancelled_owned(self.queues.probes.run(PROBES, look)).await;
    }

    /// Reads the Secrets that cannot be watched while this process leads.
    pub async fn lead_secrets(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        for (key, _) in self.world.bindings.all() {
            self.queues.secrets.reset(key);
        }
        let look = |key| async move { self.secrets.look(&key).await };
        stop.run_until_cancelled_owned(self.queues.secrets.run(BINDINGS, look)).await;
    }

    /// Judges policies while this process leads.
    pub async fn lead_policies(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        let plan = |key: &Key<Virtual>, now: Timestamp| {
            let Some(policy) = self.world.policies.get(key) else { return Plan::rest() };
            let is_bound = |name: &str| self.world.bindings.get(&Key::cluster_scoped(name)).is_some();
            Plan::of(nameless::plan(&policy.0, is_bound, now).into_iter().collect())
        };
        self.policies.run_until(stop, BINDINGS, plan).await;
    }

    /// Sweeps while this process leads.
    pub async fn lead_sweep(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        for (kind, store) in self.world.leftovers.iter() {
            for (key, _) in store.all() {
                self.queues.suspects.add(Suspect { kind: kind.clone(), key });
            }
        }
        for (kind, store) in self.world.children.iter() {
            for (key, _) in store.all() {
                self.queues.suspects.add(Suspect { kind: kind.clone(), key });
            }
        }
        let look = |suspect| async move { self.sweeper.look(&suspect).await };
        let duties: [BoxFuture<'_, ()>; 2] = [
            Box::pin(async {
                stop.run_until_cancelled(self.sweeper.suspect_holds()).await.unwrap_or_default();
            }),
            Box::pin(self.queues.suspects.run_until(stop.clone(), BINDINGS, look)),
        ];
        together::all(duties).await;
    }

    /// Approves certificates while this process leads.
    pub async fn lead_certificates(&self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.world.synced()).await.is_none() {
            return;
        }
        if stop.run_until_cancelled(self.approver.introduce()).await.is_none() {
            return;
        }
        self.world.asked.wake(&self.queues.requests);
        let look = |key| async move { self.approver.look(&key).await };
        self.queues.requests.run_until(stop, BINDINGS, look).await;
    }

    /// Runs inline workers while this process leads.
    pub async fn lead_host(&self, stop: CancellationToken) {
        match &self.host {
            Some(host) => host.run(stop).await,
            None => stop.cancelled().await,
        }
    }
}
