//! Every family that this crate exports, with its labels, in one table.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Observed, Series, State};

/// From what a local API server needs for a small write (~1 ms) in steps of about 2 to the deadline of a
/// call (30 s), with a bound at each budget of ours (50 ms, 100 ms, 5 s). 15 bounds × 2 clusters × ~10 verbs and
/// resources stays at a few hundred series.
const REQUEST_SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0];

/// A sync that only plans takes tens of microseconds, one with its writes as long as they do.
const SYNC_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0];

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type),+
        }
    };
}

labels! {
    /// A cluster as a whole.
    ClusterLabels {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
    }
}
labels! {
    /// One answered (or failed) request.
    RequestLabels {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
        /// As in RBAC: get, list, watch, create, patch, ...
        verb: &'static str,
        /// Plural, with subresource: `pods`, `pods/status`.
        resource: Arc<str>,
        /// The HTTP status, or `error`, `timeout`: what a server cannot choose freely.
        code: Arc<str>,
    }
}
labels! {
    /// How long requests take.
    RequestDuration {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
        /// As in RBAC.
        verb: &'static str,
        /// Plural, with subresource.
        resource: Arc<str>,
    }
}
labels! {
    /// What is watched or stored.
    ClusterResource {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
        /// Plural.
        resource: Arc<str>,
    }
}
labels! {
    /// Why a watch started again.
    WatchRestart {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
        /// Plural.
        resource: Arc<str>,
        /// One of few words: `expired`, `closed`, `silent`, ...
        cause: &'static str,
    }
}
labels! {
    /// A queue.
    QueueLabels {
        /// Its name; that of a binding is part of it where there are several.
        queue: Arc<str>,
    }
}
labels! {
    /// Items of one urgency in a queue.
    QueueClass {
        /// Its name.
        queue: Arc<str>,
        /// Its urgency, or `waiting` and the like.
        class: &'static str,
    }
}
labels! {
    /// How syncs of a queue ended badly.
    QueueOutcome {
        /// Its name.
        queue: Arc<str>,
        /// One of few words: `conflict`, `refused`, `unreachable`, ...
        outcome: &'static str,
    }
}
labels! {
    /// How a write ended.
    WriteLabels {
        /// `virtual`, or the name of the binding.
        cluster: Arc<str>,
        /// As in RBAC.
        verb: &'static str,
        /// Plural, with subresource.
        resource: Arc<str>,
        /// One of few words: `done`, `conflict`, `gone`, `refused`, ...
        outcome: &'static str,
    }
}
labels! {
    /// A leader election.
    HoldLabels {
        /// The name of its Lease object.
        name: Arc<str>,
    }
}
labels! {
    /// What became of Events.
    EventLabels {
        /// One of few words: `sent`, `merged`, `dropped`, `refused`, `failed`.
        result: &'static str,
    }
}

/// What this crate exports. Clones count into the same series.
#[derive(Clone, Debug)]
pub struct ClusterMetrics {
    /// `kubeocean_requests_total{cluster,verb,resource,code}`
    pub requests: Series<RequestLabels, Counter>,
    /// `kubeocean_request_duration_seconds{cluster,verb,resource}`; watches are not timed.
    pub request_duration: Series<RequestDuration, Histogram>,
    /// `kubeocean_request_limit{cluster}`
    pub request_limit: Series<ClusterLabels, Gauge>,
    /// `kubeocean_requests_in_flight{cluster}`
    pub requests_in_flight: Series<ClusterLabels, Gauge>,
    /// `kubeocean_watch_age_seconds{cluster,resource}`
    pub watch_age: Observed<ClusterResource>,
    /// `kubeocean_store_objects{cluster,resource}`
    pub store_objects: Series<ClusterResource, Gauge>,
    /// `kubeocean_watch_restarts_total{cluster,resource,cause}`
    pub watch_restarts: Series<WatchRestart, Counter>,
    /// `kubeocean_queue_depth{queue,class}`
    pub queue_depth: Series<QueueClass, Gauge>,
    /// `kubeocean_queue_oldest_seconds{queue}`
    pub queue_oldest: Observed<QueueLabels>,
    /// `kubeocean_queue_retries_total{queue}`
    pub queue_retries: Series<QueueLabels, Counter>,
    /// `kubeocean_sync_duration_seconds{queue}`
    pub sync_duration: Series<QueueLabels, Histogram>,
    /// `kubeocean_sync_errors_total{queue,outcome}`
    pub sync_errors: Series<QueueOutcome, Counter>,
    /// `kubeocean_writes_total{cluster,verb,resource,outcome}`
    pub writes: Series<WriteLabels, Counter>,
    /// `kubeocean_leader_election_status{name}`: 1 while this process leads.
    pub leader: Series<HoldLabels, Gauge>,
    /// `kubeocean_events_total{result}`
    pub events: Series<EventLabels, Counter>,
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        Self {
            requests: Series::default(),
            request_duration: Series::new(|| Histogram::new(REQUEST_SECONDS)),
            request_limit: Series::default(),
            requests_in_flight: Series::default(),
            watch_age: Observed::default(),
            store_objects: Series::default(),
            watch_restarts: Series::default(),
            queue_depth: Series::default(),
            queue_oldest: Observed::default(),
            queue_retries: Series::default(),
            sync_duration: Series::new(|| Histogram::new(SYNC_SECONDS)),
            sync_errors: Series::default(),
            writes: Series::default(),
            leader: Series::default(),
            events: Series::default(),
        }
    }
}

impl ClusterMetrics {
    pub(super) fn register(&self, to: &mut State) {
        // A family that is added to the struct and not here does not compile.
        let Self {
            requests,
            request_duration,
            request_limit,
            requests_in_flight,
            watch_age,
            store_objects,
            watch_restarts,
            queue_depth,
            queue_oldest,
            queue_retries,
            sync_duration,
            sync_errors,
            writes,
            leader,
            events,
        } = self.clone();
        to.add("kubeocean_requests_total", "Requests to API servers, by how they ended", requests);
        to.add(
            "kubeocean_request_duration_seconds",
            "Time from sending a request to its answer; watches excluded",
            request_duration,
        );
        to.add(
            "kubeocean_request_limit",
            "Requests that may be under way at once; falls when the server is overloaded",
            request_limit,
        );
        to.add("kubeocean_requests_in_flight", "Requests under way", requests_in_flight);
        to.add(
            "kubeocean_watch_age_seconds",
            "Time since a watch last brought an event or a bookmark",
            watch_age,
        );
        to.add("kubeocean_store_objects", "Objects in a local store", store_objects);
        to.add("kubeocean_watch_restarts_total", "Watches that had to start again, by cause", watch_restarts);
        to.add("kubeocean_queue_depth", "Keys in a queue, by urgency", queue_depth);
        to.add("kubeocean_queue_oldest_seconds", "How long the oldest due key has waited", queue_oldest);
        to.add("kubeocean_queue_retries_total", "Keys that were queued again after a failure", queue_retries);
        to.add(
            "kubeocean_sync_duration_seconds",
            "Time to bring one key in order, its writes included",
            sync_duration,
        );
        to.add("kubeocean_sync_errors_total", "Syncs that failed, by why", sync_errors);
        to.add("kubeocean_writes_total", "Writes to API servers, by how they ended", writes);
        to.add("kubeocean_leader_election_status", "1 while this process holds the lead, else 0", leader);
        to.add("kubeocean_events_total", "Kubernetes Events, by what became of them", events);
    }

    /// Ends every series of a cluster that is no longer served. Observations end with their owners.
    pub fn forget_cluster(&self, cluster: &str) {
        self.requests.forget(|l| &*l.cluster == cluster);
        self.request_duration.forget(|l| &*l.cluster == cluster);
        self.request_limit.forget(|l| &*l.cluster == cluster);
        self.requests_in_flight.forget(|l| &*l.cluster == cluster);
        self.store_objects.forget(|l| &*l.cluster == cluster);
        self.watch_restarts.forget(|l| &*l.cluster == cluster);
        self.writes.forget(|l| &*l.cluster == cluster);
    }

    /// Ends every series of a queue that is no longer worked on.
    pub fn forget_queue(&self, queue: &str) {
        self.queue_depth.forget(|l| &*l.queue == queue);
        self.queue_retries.forget(|l| &*l.queue == queue);
        self.sync_duration.forget(|l| &*l.queue == queue);
        self.sync_errors.forget(|l| &*l.queue == queue);
    }
}
