//! What the projector is doing, for health answers and metrics.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Shared by readers, health answers and metrics.
#[derive(Clone, Default)]
pub struct Status {
    partitions: Arc<Mutex<BTreeMap<u16, PartitionStatus>>>,
    metrics: Metrics,
}

/// One partition's reader.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionStatus {
    /// The log's last sequence when it was last asked for.
    pub tail: u64,
    /// Each view, by `<view>_v<N>`.
    pub views: BTreeMap<String, ViewStatus>,
    /// Why the reader does not move, where it does not: `log_gap`, `log_regressed`, or a failure.
    pub halted: Option<String>,
    /// Whether this process is the one that reads the partition.
    pub active: bool,
    /// When a view last moved, or had nothing to do.
    pub moved: Instant,
}

/// One view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewStatus {
    /// The last sequence in it.
    pub position: u64,
    /// Events that it left out.
    pub parked: u64,
}

#[derive(Clone)]
struct Metrics {
    applied: Family<Vec<(String, String)>, Counter>,
    position: Family<Vec<(String, String)>, Gauge>,
    parked: Family<Vec<(String, String)>, Gauge>,
    lag: Family<Vec<(String, String)>, Gauge>,
    seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            applied: Family::default(),
            position: Family::default(),
            parked: Family::default(),
            lag: Family::default(),
            seconds: Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(0.000_5, 2.0, 14)),
        }
    }
}

impl Status {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("projector_events_applied", "Events taken into a view", self.metrics.applied.clone());
        registry.register("projector_position", "Last sequence of the log in a view", self.metrics.position.clone());
        registry.register("projector_parked_events", "Events that a view left out", self.metrics.parked.clone());
        registry.register("projector_lag_events", "Events of the log that a view has not taken in yet", self.metrics.lag.clone());
        registry.register("projector_batch_seconds", "Seconds to take one batch into one view", self.metrics.seconds.clone());
    }

    /// Every partition's state.
    pub fn partitions(&self) -> BTreeMap<u16, PartitionStatus> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn update(&self, partition: u16, change: impl FnOnce(&mut PartitionStatus)) {
        let mut partitions = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || PartitionStatus { tail: 0, views: BTreeMap::new(), halted: None, active: false, moved: Instant::now() };
        change(partitions.entry(partition).or_insert_with(fresh));
    }

    pub(crate) fn view(&self, partition: u16, view: &str, position: u64, parked: u64, applied: u64) {
        let mut lag = 0;
        self.update(partition, |status| {
            status.views.insert(view.to_owned(), ViewStatus { position, parked });
            status.moved = Instant::now();
            lag = status.tail.saturating_sub(position);
        });
        let labels = vec![("view".to_owned(), view.to_owned()), ("partition".to_owned(), partition.to_string())];
        self.metrics.applied.get_or_create(&labels).inc_by(applied);
        self.metrics.position.get_or_create(&labels).set(position.cast_signed());
        self.metrics.parked.get_or_create(&labels).set(parked.cast_signed());
        self.metrics.lag.get_or_create(&labels).set(lag.cast_signed());
    }

    pub(crate) fn took(&self, seconds: f64) {
        self.metrics.seconds.observe(seconds);
    }
}
