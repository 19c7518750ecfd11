//! Tends one `endpoint` workload: something that runs already is probed, and stops being called when suspended.

use crate::probe;
use crate::report::{Reporter, observed};
use crate::role::{Shared, Wanted};
use signalbox_events::workload::{Observed, Spec, State};
use std::time::Duration;
use tokio::sync::watch;

/// Distance of probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Distance of probes of one that does not answer.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Tends the workload until it is gone or the role stops.
pub(crate) async fn tend(shared: Shared, reporter: Reporter, mut wanted: watch::Receiver<Wanted>) {
    loop {
        let want = wanted.borrow_and_update().clone();
        let Spec::Endpoint { url, .. } = &want.spec else { return };
        if want.stop {
            return;
        }
        if want.deleting {
            return reporter.report(observed(State::Deleted, "forgotten", want.revision)).await;
        }
        let mut pause = PROBE_EVERY;
        let base = url.trim_end_matches('/');
        let seen = if want.suspended {
            observed(State::Suspended, "suspended", want.revision)
        } else if probe::answers(&shared.http, &format!("{base}/models")).await {
            Observed { ready: 1, endpoints: vec![base.to_owned()], ..observed(State::Running, "answers", want.revision) }
        } else {
            pause = RETRY_EVERY;
            observed(State::Failed, "does_not_answer", want.revision)
        };
        reporter.report(seen).await;
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
    }
}
