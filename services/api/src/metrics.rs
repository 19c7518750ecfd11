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
    requests: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    /// Calls that went out to models.
    pub(crate) model_calls: Counter,
    /// Turns by how they ended.
    turns: Family<Labels, Counter>,
    /// Streams that are open.
    pub(crate) streams: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 14))),
            model_calls: Counter::default(),
            turns: Family::default(),
            streams: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Registers every metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests answered, by route and status", self.requests.clone());
        registry.register_with_unit("http_request", "Time until the answer's head, by route", Unit::Seconds, self.seconds.clone());
        registry.register("model_calls", "Calls that went out to models", self.model_calls.clone());
        registry.register("turns_ended", "Turns of conversations, by how they ended", self.turns.clone());
        registry.register("streams_open", "Streams of answers that are open", self.streams.clone());
    }

    pub(crate) fn answered(&self, route: &str, status: u16, seconds: f64) {
        let route = ("route".to_owned(), route.to_owned());
        self.requests.get_or_create_owned(&vec![route.clone(), ("status".to_owned(), status.to_string())]).inc();
        self.seconds.get_or_create_owned(&vec![route]).observe(seconds);
    }

    pub(crate) fn turn_ended(&self, state: &str) {
        self.turns.get_or_create_owned(&vec![("state".to_owned(), state.to_owned())]).inc();
    }
}
