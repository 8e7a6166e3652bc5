//! Syncers and proxiers as tasks of the manager's own process.
//!
//! Each is on its own: one that fails or panics is started again after a while, and nobody else notices. What it last died
//! of, and when it is tried again, is part of its [`TaskState`], which the binding's conditions show.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::SignedDuration;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::leader::Leadership;
use kubeocean_cluster::queue::Queue;
use kubeocean_cluster::shutdown::{BoxError, Restarts, panic_message};
use kubeocean_model::bind::{Role, TaskState};
use kubeocean_model::binding::Binding;
use kubeocean_model::key::{Key, Physical, Virtual};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A workload that is told to stop has so long to end. A supervisor gives all of them five seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(4);

/// What a syncer or a proxier is to the manager.
pub trait Workload: Send + Sync + 'static {
    /// Works for one binding until told to stop. To return before that, with or without an error, is to fail.
    fn run(&self, job: Job, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// What a workload is given.
#[derive(Clone)]
pub struct Job {
    /// For which binding. What that asks for may change at any time: it is to be watched, as a worker does that runs alone.
    pub binding: Key<Virtual>,
    /// The uid of it: another one of that name is another's job.
    pub uid: String,
    /// The computing cluster.
    pub virt: Cluster<Virtual>,
    /// The worker cluster. The connection beneath it is replaced when its credentials change.
    pub phys: Cluster<Physical>,
    /// Whether this process writes.
    pub leadership: Leadership,
    /// Where it says how it is.
    pub readiness: Readiness,
}

/// Where a workload says how it is.
#[derive(Clone)]
pub struct Readiness {
    slot: (String, Role),
    host: Arc<Shared>,
}

impl Readiness {
    /// It does its work.
    pub fn ready(&self) {
        self.host.set(&self.slot, TaskState::Ready);
    }

    /// It does not yet, or not any more; in a few words.
    pub fn not_ready(&self, why: impl Into<String>) {
        self.host.set(&self.slot, TaskState::Starting(why.into()));
    }
}

/// Runs the workloads of all bindings. Clones are the same.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    workloads: Arc<BTreeMap<Role, Arc<dyn Workload>>>,
    clock: Clock,
    leadership: Leadership,
}

struct Shared {
    slots: Mutex<BTreeMap<(String, Role), Slot>>,
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
    news: Queue<Key<Virtual>>,
}

struct Slot {
    binding: Key<Virtual>,
    state: TaskState,
    stop: CancellationToken,
}

/// Starts one workload.
struct Order {
    slot: (String, Role),
    job: Job,
    stop: CancellationToken,
}

impl Host {
    /// Runs nothing yet. Bindings whose workloads change are added to `news`.
    pub fn new(
        workloads: BTreeMap<Role, Arc<dyn Workload>>,
        news: &Queue<Key<Virtual>>,
        clock: &Clock,
        leadership: &Leadership,
    ) -> Self {
        let shared = Shared { slots: Mutex::default(), orders: Mutex::default(), news: news.clone() };
        Self {
            shared: Arc::new(shared),
            workloads: Arc::new(workloads),
            clock: clock.clone(),
            leadership: leadership.clone(),
        }
    }

    /// How a binding's workload is.
    pub fn state(&self, uid: &str, role: Role) -> TaskState {
        let known = self.shared.slots.lock().get(&(uid.to_owned(), role)).map(|slot| slot.state.clone());
        known.unwrap_or_default()
    }

    /// Whether this program has a workload for a role.
    pub fn has(&self, role: Role) -> bool {
        self.workloads.contains_key(&role)
    }

    /// Makes the workloads of a binding run.
    pub fn start(&self, binding: &Binding, virt: &Cluster<Virtual>, phys: &Cluster<Physical>) {
        for role in self.workloads.keys() {
            let slot = (binding.uid.clone(), *role);
            let mut slots = self.shared.slots.lock();
            if slots.contains_key(&slot) {
                continue;
            }
            let stop = CancellationToken::new();
            let readiness = Readiness { slot: slot.clone(), host: Arc::clone(&self.shared) };
            let job = Job {
                binding: Key::cluster_scoped(binding.name.as_str()),
                uid: binding.uid.clone(),
                virt: virt.clone(),
                phys: phys.clone(),
                leadership: self.leadership.clone(),
                readiness,
            };
            let order = Order { slot: slot.clone(), job, stop: stop.clone() };
            // Without a runner, nobody leads, and nothing is to run.
            if self.shared.orders.lock().as_ref().is_some_and(|orders| orders.send(order).is_ok()) {
                let state = TaskState::Starting(format!("the {role} has just been started"));
                slots.insert(slot, Slot { binding: Key::cluster_scoped(binding.name.as_str()), state, stop });
            }
        }
    }

    /// Makes the workloads of a binding end.
    pub fn stop(&self, uid: &str) {
        for ((owner, _), slot) in &*self.shared.slots.lock() {
            if owner == uid {
                slot.stop.cancel();
            }
        }
    }

    /// Makes the workloads of bindings that no longer live end.
    pub fn keep_only(&self, lives: impl Fn(&str) -> bool) {
        for ((owner, _), slot) in &*self.shared.slots.lock() {
            if !lives(owner) {
                slot.stop.cancel();
            }
        }
    }

    /// Runs what is ordered until told to stop; then ends everything.
    pub async fn run(&self, stop: CancellationToken) {
        let (sender, mut orders) = mpsc::unbounded_channel();
        // Those of a term that was cut short ended with it.
        self.shared.slots.lock().clear();
        *self.shared.orders.lock() = Some(sender);
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(order) = orders.recv() => {
                    tasks.spawn(self.clone().keep_running(order));
                }
                Some(_) = tasks.join_next() => {}
            }
        }
        *self.shared.orders.lock() = None;
        for slot in self.shared.slots.lock().values() {
            slot.stop.cancel();
        }
        while tasks.join_next().await.is_some() {}
        self.shared.slots.lock().clear();
    }

    /// One workload, started again and again until it is told to stop.
    async fn keep_running(self, order: Order) {
        let Order { slot, job, stop } = order;
        let mut count = Restarts::default();
        while !stop.is_cancelled() {
            let started = Instant::now();
            let Some(workload) = self.workloads.get(&slot.1).cloned() else { break };
            // In a task of its own, so that its panic is its own.
            let mut task = JoinSet::new();
            let (this, until) = (job.clone(), stop.clone());
            task.spawn(async move { workload.run(this, until).await });
            let ended = tokio::select! {
                biased;
                ended = task.join_next() => ended,
                // Who does not listen is aborted with its set.
                () = after_stop(&stop) => break,
            };
            let why = match ended {
                _ if stop.is_cancelled() => break,
                Some(Ok(Err(error))) => error.to_string(),
                Some(Err(error)) => panic_words(error),
                Some(Ok(Ok(()))) | None => "it ended by itself".to_owned(),
            };
            let (restarts, delay) = count.after(started.elapsed());
            tracing::warn!(binding = %job.binding, role = %slot.1, why, ?delay, "failed, and is started again");
            let wait = SignedDuration::try_from(delay).unwrap_or_default();
            let until = self.clock.now().checked_add(wait).unwrap_or(self.clock.now());
            let until = jiff::Timestamp::from_second(until.as_second()).unwrap_or(until);
            self.shared.set(&slot, TaskState::Waiting { why, restarts, until });
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(delay) => {}
            }
            count.again();
        }
        self.shared.remove(&slot);
    }
}

/// Some time after it was told to stop.
async fn after_stop(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(ENDS_WITHIN).await;
}

impl Shared {
    fn set(&self, slot: &(String, Role), state: TaskState) {
        let changed = self.slots.lock().get_mut(slot).and_then(|slot| {
            (slot.state != state && !slot.stop.is_cancelled()).then(|| {
                slot.state = state;
                slot.binding.clone()
            })
        });
        if let Some(binding) = changed {
            self.news.add(binding);
        }
    }

    fn remove(&self, slot: &(String, Role)) {
        let removed = self.slots.lock().remove(slot);
        if let Some(slot) = removed {
            self.news.add(slot.binding);
        }
    }
}

fn panic_words(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => format!("it panicked: {}", panic_message(&*payload)),
        Err(_) => "it was aborted".to_owned(),
    }
}
