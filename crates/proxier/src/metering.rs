//! What the pods of a virtual node use, asked of the machine that they run on.
//!
//! ```text
//!  metrics-server, Prometheus ──▶ Metering ──▶ the kubelet of the worker node       /metrics/resource, /metrics/cadvisor
//!                                     └──────▶ metrics.k8s.io of the worker cluster  where that kubelet cannot be asked
//! ```
//!
//! One question to a worker node serves all who ask at the same time, and for a moment after. What it said is filtered and renamed by
//! `model::usage_series`; what cannot be had is refused with the cause and the fix, and never made up from what was known before.
//!
//! Deliberately absent: who may ask (the caller knows), which pods there are ([`Ground`] says), and `nodes/proxy`.

mod ground;
mod instead;
mod larder;
mod standing;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use jiff::SignedDuration;
use kubeocean_cluster::client::Cluster;
use kubeocean_cluster::clock::Clock;
use kubeocean_cluster::kubelet::{Bounds, Kubelets, Page, Trust};
use kubeocean_model::key::Physical;
use kubeocean_model::usage_series::{Cadvisor, Freshness, Meters, Resource, Usage};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use ground::{Ground, Machine, kubelet_address};
use instead::Instead;
use larder::Larder;
use standing::Standing;
use trouble::Trouble;

/// How metrics are written: the text format of Prometheus.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is said of a virtual node.
#[derive(Clone, Debug)]
pub struct Answer {
    /// All of it.
    pub body: Bytes,
    /// What it is written in.
    pub content_type: &'static str,
}

/// Why nothing is said of a virtual node.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What a kubelet would answer.
    pub code: StatusCode,
    /// The cause, and the fix.
    pub message: String,
}

/// How long and how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an answer serves. metrics-server looks every 15 s, every 10 s at the most, and takes rates between two looks: what is kept must be gone by
    /// then. Kubelets look at containers every 10 s, so that half of what is 5 s old is what a new question would get.
    pub kept: Duration,
    /// How much is kept of all answers. A busy node has some ten megabytes of cadvisor: enough for a few of them, or for a thousand pages of the smaller kind.
    pub larder: usize,
    /// For `/metrics/resource` of a kubelet. Who asks us gives up after 10 s: this and [`Limits::instead`] leave two of them.
    pub resource: Bounds,
    /// For `/metrics/cadvisor`, for which there is nothing else. 110 pods of three containers with 60 series of 600 bytes are 12 MB.
    pub cadvisor: Bounds,
    /// The most that leaves of it: it is rewritten as it comes, but answered as a whole.
    pub longest_answer: usize,
    /// How many nodes are asked for cadvisor at a time: each may cost [`Limits::longest_answer`] of memory.
    pub at_a_time: usize,
    /// For `metrics.k8s.io` of the worker cluster: 10,000 pods are 5 MB.
    pub instead: Bounds,
    /// How old a number may be. The metrics-server of a worker cluster may look once a minute only, and then says what was a minute ago.
    pub fresh: SignedDuration,
    /// A kubelet that could not be asked is asked again so soon, and at last so seldom: a thousand nodes behind a firewall then
    /// have seventeen questions waiting for 5 s each.
    pub ask_again: (Duration, Duration),
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            kept: seconds(5),
            larder: 64 << 20,
            resource: Bounds { within: seconds(5), longest: 16 << 20 },
            cadvisor: Bounds { within: seconds(9), longest: 256 << 20 },
            longest_answer: 64 << 20,
            at_a_time: 8,
            instead: Bounds { within: seconds(3), longest: 64 << 20 },
            fresh: SignedDuration::from_mins(2),
            ask_again: (seconds(15), seconds(300)),
        }
    }
}

/// Answers for the virtual nodes of one binding. Clones are the same.
#[derive(Clone)]
pub struct Metering(Arc<Inner>);

struct Inner {
    ground: Box<dyn Ground>,
    phys: Cluster<Physical>,
    kubelets: Kubelets<Physical>,
    instead: Instead,
    clock: Clock,
    limits: Limits,
    nodes: Mutex<BTreeMap<Box<str>, Arc<Node>>>,
    larder: Mutex<Larder>,
    turns: Semaphore,
}

/// What stays known of a virtual node from one question to the next. Whoever asks holds the lock of a page, and others wait for what comes of it.
#[derive(Default)]
struct Node {
    resource: tokio::sync::Mutex<Metered>,
    cadvisor: tokio::sync::Mutex<Standing>,
}

#[derive(Default)]
struct Metered {
    meters: Meters,
    standing: Standing,
}

impl Metering {
    /// Of what stands on this ground, in this namespace of the worker cluster.
    pub fn new(
        ground: impl Ground,
        phys: &Cluster<Physical>,
        trust: Trust,
        mount_namespace: &str,
        clock: Clock,
        limits: Limits,
    ) -> Self {
        Self(Arc::new(Inner {
            ground: Box::new(ground),
            phys: phys.clone(),
            kubelets: Kubelets::of(phys, trust),
            instead: Instead::new(phys, mount_namespace, limits),
            clock,
            limits,
            nodes: Mutex::default(),
            larder: Mutex::new(Larder::new(limits.kept, limits.larder)),
            turns: Semaphore::new(limits.at_a_time),
        }))
    }

    /// `/metrics/resource` of a virtual node.
    pub async fn resource(&self, vnode: &str) -> Result<Answer, Refused> {
        let node = self.0.node(vnode)?;
        let mut metered = node.resource.lock().await;
        if let Some(kept) = self.0.kept(vnode, Page::Resource) {
            return kept;
        }
        let outcome = self.0.read_resource(vnode, &mut metered).await;
        self.0.keep(vnode, Page::Resource, outcome)
    }

    /// `/metrics/cadvisor` of a virtual node.
    pub async fn cadvisor(&self, vnode: &str) -> Result<Answer, Refused> {
        let node = self.0.node(vnode)?;
        let mut standing = node.cadvisor.lock().await;
        if let Some(kept) = self.0.kept(vnode, Page::Cadvisor) {
            return kept;
        }
        let outcome = self.0.read_cadvisor(vnode, &mut standing).await;
        self.0.keep(vnode, Page::Cadvisor, outcome)
    }
}

impl Inner {
    /// What is known of a node. Those that are served no more are forgotten when another one comes.
    fn node(&self, vnode: &str) -> Result<Arc<Node>, Refused> {
        let mut nodes = self.nodes.lock();
        if !self.ground.serves(vnode) {
            nodes.remove(vnode);
            return Err(unknown(vnode));
        }
        if let Some(node) = nodes.get(vnode) {
            return Ok(Arc::clone(node));
        }
        nodes.retain(|known, _| self.ground.serves(known));
        Ok(Arc::clone(nodes.entry(vnode.into()).or_default()))
    }

    fn kept(&self, vnode: &str, page: Page) -> Option<Result<Answer, Refused>> {
        self.larder.lock().take(vnode, page, Instant::now())
    }

    fn keep(&self, vnode: &str, page: Page, outcome: Result<Answer, Refused>) -> Result<Answer, Refused> {
        self.larder.lock().put(vnode, page, &outcome, Instant::now());
        outcome
    }

    async fn read_resource(&self, vnode: &str, metered: &mut Metered) -> Result<Answer, Refused> {
        let Metered { meters, standing } = metered;
        let machine = self.ground.machine(vnode).ok_or_else(|| unknown(vnode))?;
        let usage = match self.guarded(vnode, standing, self.ask_resource(&machine)).await {
            Ok(usage) => usage,
            Err(trouble) => {
                let asked = self.instead.pod_metrics().await;
                let metrics = asked.map_err(|why| unavailable(&machine, &trouble, Some(&why)))?;
                metrics.usage(&machine.tenants, self.freshness()).0
            }
        };
        Ok(answer(meters.answer(&usage, &machine.tenants)))
    }

    async fn ask_resource(&self, machine: &Machine) -> Result<Usage, Trouble> {
        let at = machine.kubelet.ok_or(Trouble::NoAddress)?;
        let mut answer = self.kubelets.ask(at, Page::Resource, self.limits.resource).await?;
        let mut reader = Resource::new(&machine.tenants, self.freshness());
        while let Some(piece) = answer.next().await? {
            reader.feed(&piece);
        }
        Ok(reader.finish().0)
    }

    async fn read_cadvisor(&self, vnode: &str, standing: &mut Standing) -> Result<Answer, Refused> {
        // Nobody closes it.
        let _turn = self.turns.acquire().await;
        let machine = self.ground.machine(vnode).ok_or_else(|| unknown(vnode))?;
        let asked = self.guarded(vnode, standing, self.ask_cadvisor(&machine)).await;
        asked.map(answer).map_err(|trouble| unavailable(&machine, &trouble, None))
    }

    async fn ask_cadvisor(&self, machine: &Machine) -> Result<String, Trouble> {
        let at = machine.kubelet.ok_or(Trouble::NoAddress)?;
        let mut answer = self.kubelets.ask(at, Page::Cadvisor, self.limits.cadvisor).await?;
        let mut text = String::new();
        let mut rewriter = Cadvisor::new(&machine.tenants, self.freshness());
        while let Some(piece) = answer.next().await? {
            rewriter.feed(&piece, &mut text);
            if text.len() > self.limits.longest_answer {
                return Err(Trouble::TooMuch { limit: self.limits.longest_answer });
            }
        }
        rewriter.finish(&mut text);
        Ok(text)
    }

    /// Asks a kubelet, unless it could not be asked a moment ago.
    async fn guarded<T>(
        &self,
        vnode: &str,
        standing: &mut Standing,
        ask: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let connection = self.phys.connection_number();
        if let Some(trouble) = standing.keeps_off(connection, Instant::now()) {
            return Err(trouble);
        }
        let outcome = ask.await;
        let trouble = outcome.as_ref().err();
        if trouble.is_none_or(Trouble::was_asked) {
            standing.learn(vnode, connection, trouble, self.limits.ask_again, Instant::now());
        }
        outcome
    }

    fn freshness(&self) -> Freshness {
        Freshness::new(self.clock.now(), self.limits.fresh)
    }
}

fn answer(text: String) -> Answer {
    Answer { body: text.into(), content_type: TEXT }
}

fn unknown(vnode: &str) -> Refused {
    Refused { code: StatusCode::NOT_FOUND, message: format!("there is no virtual node {vnode} here") }
}

fn unavailable(machine: &Machine, trouble: &Trouble, instead: Option<&str>) -> Refused {
    let node = &machine.node;
    let at = machine.kubelet.map_or(String::new(), |at| format!(" at {at}"));
    let instead = instead.map_or(String::new(), |why| {
        format!("; and metrics.k8s.io of the worker cluster says nothing instead: {why}")
    });
    let message = format!("the kubelet of worker node {node}{at} cannot be asked: {trouble}{instead}");
    Refused { code: StatusCode::SERVICE_UNAVAILABLE, message }
}
