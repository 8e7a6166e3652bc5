//! Families of metrics that can forget, and values that are computed when they are asked for.
//!
//! `prometheus_client`'s own `Family` removes a series only by its complete label set. A process that serves
//! clusters that come and go needs "all of this cluster".

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// One metric per label set. Clones share the series.
pub struct Series<L, M> {
    metrics: Arc<RwLock<BTreeMap<L, M>>>,
    make: fn() -> M,
}

impl<L: Ord + Clone, M: Clone> Series<L, M> {
    /// Each series starts as `make` makes it: for histograms, which need buckets.
    pub fn new(make: fn() -> M) -> Self {
        Self { metrics: Arc::default(), make }
    }

    /// The metric with these labels. It may be kept, which spares the next look-up.
    pub fn of(&self, labels: &L) -> M {
        if let Some(metric) = self.metrics.read().get(labels) {
            return metric.clone();
        }
        self.metrics.write().entry(labels.clone()).or_insert_with(self.make).clone()
    }

    /// Ends every series whose labels match. Who kept its metric counts into the void.
    pub fn forget(&self, matches: impl Fn(&L) -> bool) {
        self.metrics.write().retain(|labels, _| !matches(labels));
    }
}

impl<L: Ord + Clone, M: Clone + Default> Default for Series<L, M> {
    fn default() -> Self {
        Self::new(M::default)
    }
}

impl<L, M> Clone for Series<L, M> {
    fn clone(&self) -> Self {
        Self { metrics: self.metrics.clone(), make: self.make }
    }
}

impl<L: fmt::Debug, M: fmt::Debug> fmt::Debug for Series<L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Series").field(&*self.metrics.read()).finish()
    }
}

impl<L: EncodeLabelSet, M: EncodeMetric + TypedMetric> EncodeMetric for Series<L, M> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        for (labels, metric) in &*self.metrics.read() {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.metrics.read().is_empty()
    }
}

/// Nothing to say at the moment is `None`: the series is left out of that scrape.
type Read = Arc<dyn Fn() -> Option<f64> + Send + Sync>;

/// Series that come and go between scrapes.
type ReadAll<L> = Arc<dyn Fn() -> Vec<(L, f64)> + Send + Sync>;

struct Readers<L> {
    next: u64,
    by_labels: BTreeMap<L, (u64, Read)>,
    all: BTreeMap<u64, ReadAll<L>>,
}

impl<L> Default for Readers<L> {
    fn default() -> Self {
        Self { next: 0, by_labels: BTreeMap::new(), all: BTreeMap::new() }
    }
}

/// Gauges whose values are computed at each scrape. Clones share the series.
pub struct Observed<L>(Arc<Mutex<Readers<L>>>);

impl<L: Ord + Clone + Send + Sync + 'static> Observed<L> {
    /// From now on each scrape asks `read`, until the observation is dropped. The last who observes the
    /// same labels wins. `read` must be quick, and must not block.
    #[must_use = "the series ends when its observation is dropped"]
    pub fn observe(&self, labels: L, read: impl Fn() -> Option<f64> + Send + Sync + 'static) -> Observation {
        let mut readers = self.0.lock();
        let id = readers.next;
        readers.next += 1;
        readers.by_labels.insert(labels.clone(), (id, Arc::new(read)));
        let readers: Weak<_> = Arc::downgrade(&self.0);
        Observation(Some(Box::new(move || {
            let Some(readers) = readers.upgrade() else { return };
            let mut readers = readers.lock();
            if readers.by_labels.get(&labels).is_some_and(|(found, _)| *found == id) {
                readers.by_labels.remove(&labels);
            }
        })))
    }

    /// As [`Observed::observe`], for who knows only at a scrape which series there are: of nodes, for example. They cost nothing
    /// between two scrapes. No two may have the same labels.
    #[must_use = "the series end when their observation is dropped"]
    pub fn observe_all(&self, read: impl Fn() -> Vec<(L, f64)> + Send + Sync + 'static) -> Observation {
        let mut readers = self.0.lock();
        let id = readers.next;
        readers.next += 1;
        readers.all.insert(id, Arc::new(read));
        let readers: Weak<_> = Arc::downgrade(&self.0);
        Observation(Some(Box::new(move || {
            if let Some(readers) = readers.upgrade() {
                readers.lock().all.remove(&id);
            }
        })))
    }
}

impl<L> Clone for Observed<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L> Default for Observed<L> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<L: fmt::Debug> fmt::Debug for Observed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().by_labels.keys()).finish()
    }
}

impl<L: EncodeLabelSet + Ord + Clone> EncodeMetric for Observed<L> {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), fmt::Error> {
        // Readers take locks of their own: none of ours is held while they run.
        let (readers, all): (Vec<(L, Read)>, Vec<ReadAll<L>>) = {
            let readers = self.0.lock();
            let one = readers.by_labels.iter().map(|(labels, (_, read))| (labels.clone(), read.clone()));
            (one.collect(), readers.all.values().cloned().collect())
        };
        for (labels, value) in all.iter().flat_map(|read| read()) {
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        for (labels, read) in readers {
            if let Some(value) = read() {
                encoder.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        let readers = self.0.lock();
        readers.by_labels.is_empty() && readers.all.is_empty()
    }
}

/// Keeps one series of an [`Observed`] alive.
pub struct Observation(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Observation {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observation")
    }
}
