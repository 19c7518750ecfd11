//! Reports what was observed, as a command; again until the log has taken it.

use chrono::{DateTime, Utc};
use signalbox_domain::workload::{Observe, Workload};
use signalbox_domain::{Code, Rejection};
use signalbox_events::workload::{Observed, State};
use signalbox_events::{Aggregate, Micros};
use signalbox_journal::{Failure, Ledger, Request, Requester};
use std::sync::Arc;
use std::time::Duration;

/// The node that local processes run on.
pub(crate) const NODE: &str = "local";

/// Reports on one workload.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub ledger: Arc<Ledger>,
    pub workload: Aggregate,
}

/// An observation with nothing particular in it.
pub(crate) fn observed(state: State, reason: &str, revision: u32) -> Observed {
    Observed {
        state,
        reason: reason.to_owned(),
        revision,
        ready: 0,
        nodes: vec![],
        endpoints: vec![],
        exit_code: None,
        log_tail: vec![],
        seen_at: Micros::default(),
    }
}

impl Reporter {
    pub fn now(&self) -> DateTime<Utc> {
        (self.ledger.source())().now
    }

    /// States the observation where it is news. A refusal says that it is none any more.
    pub async fn report(&self, mut seen: Observed) {
        let mut pause = Duration::from_millis(100);
        loop {
            seen.seen_at = Micros::from(self.now());
            let request = Request { aggregate: self.workload.clone(), command: Observe(seen.clone()), requester: Requester::role("local") };
            match self.ledger.execute::<Workload>(request).await {
                Ok(_) => return,
                Err(Failure::Rejected(Rejection { code: Code::NotFound, .. })) => return,
                Err(Failure::Rejected(rejection)) => {
                    tracing::warn!(workload = %self.workload, %rejection, "an observation was refused");
                    return;
                }
                Err(error) => tracing::warn!(workload = %self.workload, %error, "an observation waits for the log"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}
