//! What a component exports to Prometheus.
//!
//! One [`Metrics`] exists per process. It owns the registry, refuses a name that is taken (Prometheus would
//! refuse the whole scrape), and holds what this crate itself exports as [`ClusterMetrics`], so that two
//! clients in one process count into the same families and differ by their labels.
//!
//! Names in code are the names that a dashboard uses: `register("kubeocean_requests_total", ..)` is found by
//! searching for what Prometheus shows.
//!
//! Labels come from sets that we choose (clusters, verbs, resources, queues, outcomes). Names of pods and
//! nodes are never labels here: at 10,000 pods they would cost more memory than the pods. What belongs to a
//! cluster that is gone is taken back by [`ClusterMetrics::forget_cluster`].
//!
//! Deliberately absent: an HTTP server (see `admin`), and push.

mod families;
mod series;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

pub use families::{
    ClusterLabels, ClusterMetrics, ClusterResource, EventLabels, HoldLabels, QueueClass, QueueLabels,
    QueueOutcome, RequestDuration, RequestLabels, WatchRestart, WriteLabels,
};
pub use series::{Observation, Observed, Series};

/// The content type of [`Metrics::encode`] for a scraper that asks for `OpenMetrics`.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The content type for all others. The same bytes are valid in Prometheus' own text format, in which the
/// lines `# UNIT` and `# EOF` are comments.
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why a metric cannot be exported.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MetricsError {
    /// Two families of one name make a scrape invalid.
    #[error("the metric {0} is registered already: share the first one, or choose another name")]
    Taken(String),
    /// Found by [`Metrics::shared`].
    #[error("the metric {0} is registered already with another type: choose another name")]
    OtherType(String),
    /// Anything but `[a-zA-Z_:][a-zA-Z0-9_:]*`.
    #[error("{0:?} cannot be the name of a metric: use letters, digits and underscores, no digit first")]
    Name(String),
}

/// The registry of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    cluster: ClusterMetrics,
}

#[derive(Debug, Default)]
struct State {
    registry: Registry,
    /// By name without `_total`, since a counter `a` and a gauge `a_total` collide too.
    taken: BTreeMap<String, Box<dyn Any + Send>>,
}

impl Metrics {
    /// The registry of `component` (manager, syncer, ...), with what this crate exports and
    /// `kubeocean_build_info{component,version}`.
    pub fn new(component: &str) -> Self {
        let metrics =
            Self(Arc::new(Inner { state: Mutex::new(State::default()), cluster: ClusterMetrics::default() }));
        let mut state = metrics.0.state.lock();
        metrics.0.cluster.register(&mut state);
        let build = Series::<Vec<(&'static str, String)>, Gauge>::default();
        build
            .of(&vec![("component", component.to_owned()), ("version", env!("CARGO_PKG_VERSION").to_owned())])
            .set(1);
        state.add("kubeocean_build_info", "Always 1; which component of which version this is", build);
        drop(state);
        metrics
    }

    /// What this crate exports.
    pub fn cluster(&self) -> &ClusterMetrics {
        &self.0.cluster
    }

    /// Exports `metric` under `name`, in full and with `_total` if it counts, and gives it back.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> Result<M, MetricsError> {
        let mut state = self.0.state.lock();
        check(name)?;
        if state.taken.contains_key(base(name)) {
            return Err(MetricsError::Taken(name.to_owned()));
        }
        state.add(name, help, metric.clone());
        Ok(metric)
    }

    /// The metric of that name; the first who asks makes it. For what several parts of one process export
    /// together, such as the syncers of a manager that runs them inline.
    pub fn shared<M: Metric + Clone>(
        &self,
        name: &str,
        help: &str,
        make: impl FnOnce() -> M,
    ) -> Result<M, MetricsError> {
        let mut state = self.0.state.lock();
        check(name)?;
        if let Some(existing) = state.taken.get(base(name)) {
            return existing
                .downcast_ref::<M>()
                .cloned()
                .ok_or_else(|| MetricsError::OtherType(name.to_owned()));
        }
        let metric = make();
        state.add(name, help, metric.clone());
        Ok(metric)
    }

    /// A part of the registry whose names all start with `kubeocean_<part>_`.
    pub fn part(&self, part: &str) -> Part {
        Part { metrics: self.clone(), prefix: format!("kubeocean_{part}_") }
    }

    /// Exports what `collector` makes up at each scrape. `names` are what it emits, in full.
    pub fn collect(&self, names: &[&str], collector: impl Collector) -> Result<(), MetricsError> {
        let mut state = self.0.state.lock();
        for name in names {
            check(name)?;
            if state.taken.contains_key(base(name)) {
                return Err(MetricsError::Taken((*name).to_owned()));
            }
        }
        for name in names {
            state.taken.insert(base(name).to_owned(), Box::new(()));
        }
        state.registry.register_collector(Box::new(collector));
        Ok(())
    }

    /// Everything, now, as text that is both `OpenMetrics` and Prometheus' own format. What is computed at
    /// scrape time is computed here: its closures must not call back into this registry.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String fails only if a metric's own encoding does: what came before it is kept.
        if text::encode(&mut out, &self.0.state.lock().registry).is_err() {
            tracing::error!("a metric could not be encoded; the scrape ends early");
        }
        out
    }
}

/// See [`Metrics::part`].
#[derive(Clone, Debug)]
pub struct Part {
    metrics: Metrics,
    prefix: String,
}

impl Part {
    /// As [`Metrics::register`], with `name` after the prefix.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> Result<M, MetricsError> {
        self.metrics.register(&format!("{}{name}", self.prefix), help, metric)
    }

    /// As [`Metrics::shared`], with `name` after the prefix.
    pub fn shared<M: Metric + Clone>(
        &self,
        name: &str,
        help: &str,
        make: impl FnOnce() -> M,
    ) -> Result<M, MetricsError> {
        self.metrics.shared(&format!("{}{name}", self.prefix), help, make)
    }
}

impl State {
    /// Without a look whether the name is free.
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) {
        self.taken.insert(base(name).to_owned(), Box::new(metric.clone()));
        // The encoder appends `_total` to counters.
        let name = if matches!(metric.metric_type(), MetricType::Counter) { base(name) } else { name };
        self.registry.register(name, help, metric);
    }
}

fn base(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

fn check(name: &str) -> Result<(), MetricsError> {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    if name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit()) {
        Ok(())
    } else {
        Err(MetricsError::Name(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
