//! What the role counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

type Labels = Vec<(String, String)>;

/// Counters of one process.
#[derive(Clone)]
pub struct Metrics {
    /// Tasks that have not ended, by state.
    pub(crate) tasks: Family<Labels, Gauge>,
    /// Tasks that wait, by pool.
    pub(crate) depth: Family<Labels, Gauge>,
    /// Age of the oldest that waits, by pool.
    pub(crate) wait: Family<Labels, Gauge>,
    /// Age of the oldest unknown submission.
    pub(crate) unknown_age: Gauge,
    /// Leases granted.
    pub(crate) grants: Counter,
    /// Tokens redeemed.
    pub(crate) redemptions: Counter,
    /// Leases that ended without their holder.
    pub(crate) expiries: Counter,
    /// Requests refused, by verb and code.
    pub(crate) refusals: Family<Labels, Counter>,
    /// Time of each request, by verb; a claim's wait for a task is not in it.
    pub(crate) seconds: Family<Labels, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            tasks: Family::default(),
            depth: Family::default(),
            wait: Family::default(),
            unknown_age: Gauge::default(),
            grants: Counter::default(),
            redemptions: Counter::default(),
            expiries: Counter::default(),
            refusals: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 14))),
        }
    }
}

impl Metrics {
    /// Registers every metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tasks_open", "Tasks that have not ended, by state", self.tasks.clone());
        registry.register("queue_depth", "Tasks that wait in a pool's queue", self.depth.clone());
        registry.register_with_unit("queue_wait", "Age of the oldest task in a pool's queue", Unit::Seconds, self.wait.clone());
        registry.register_with_unit("unknown_age", "Age of the oldest submission whose fate is unknown", Unit::Seconds, self.unknown_age.clone());
        registry.register("leases_granted", "Leases granted", self.grants.clone());
        registry.register("tokens_redeemed", "Execution tokens redeemed", self.redemptions.clone());
        registry.register("leases_expired", "Leases that ended without their holder", self.expiries.clone());
        registry.register("worker_refusals", "Requests of workers that were refused, by verb and code", self.refusals.clone());
        registry.register_with_unit("worker_request", "Time of workers' requests, by verb", Unit::Seconds, self.seconds.clone());
    }
}

/// One label.
pub(crate) fn label(name: &str, value: impl ToString) -> Labels {
    vec![(name.to_owned(), value.to_string())]
}
