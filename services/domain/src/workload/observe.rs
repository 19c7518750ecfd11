//! Takes in what a provider saw.

use super::Existing;
use crate::Rejection;
use signalbox_events::workload::{Deleted, Event, Observed, State as Phase};

/// Observe. `Phase::Deleted` says that nothing of the workload is left.
#[derive(Debug, Clone)]
pub struct Observe(pub Observed);

pub(super) fn decide(workload: &Existing, Observe(seen): &Observe) -> Result<Option<Event>, Rejection> {
    if seen.log_tail.len() > 80 {
        return Err(Rejection::field("log_tail", "must have at most 80 lines"));
    }
    if seen.state == Phase::Deleted {
        // Gone without having been asked to is a failure that the provider must name as such.
        return if workload.deleting { Ok(Some(Deleted {}.into())) } else { Err(Rejection::field("state", "nobody asked for the deletion")) };
    }
    // What was seen of an older revision says nothing of the one that is wanted.
    let stale = seen.revision < workload.revision;
    let same = workload.observed.as_ref().is_some_and(|last| Observed { seen_at: last.seen_at, ..seen.clone() } == *last);
    Ok((!stale && !same).then(|| seen.clone().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::given::given;
    use crate::workload::Workload;
    use crate::workload::fixtures::{deleted, deleting, inference, made, seen};
    use signalbox_events::Micros;
    use signalbox_events::workload::Updated;

    #[test]
    fn only_a_change_is_stated() {
        let running = seen(Phase::Running);
        made(inference(1)).when(Observe(running.clone())).then(running.clone());
        let again = Observed { seen_at: Micros(6), ..running.clone() };
        made(inference(1)).event(running.clone()).when(Observe(again)).nothing();
        made(inference(1)).event(running).when(Observe(seen(Phase::Failed))).then(seen(Phase::Failed));
    }

    #[test]
    fn an_older_revision_is_no_news() {
        let updated = made(inference(1)).event(Updated { revision: 2, spec: inference(2) });
        updated.when(Observe(seen(Phase::Running))).nothing();
        let current = Observed { revision: 2, ..seen(Phase::Running) };
        updated.when(Observe(current.clone())).then(current);
    }

    #[test]
    fn only_what_shall_go_can_be_gone() {
        deleting().when(Observe(seen(Phase::Deleted))).then(Deleted {});
        made(inference(1)).when(Observe(seen(Phase::Deleted))).refused(Code::InvalidField);
        deleted().when(Observe(seen(Phase::Deleted))).refused(Code::NotFound);
        given::<Workload>().when(Observe(seen(Phase::Running))).refused(Code::NotFound);
    }

    #[test]
    fn a_log_tail_is_short() {
        let long = Observed { log_tail: vec![String::new(); 81], ..seen(Phase::Failed) };
        made(inference(1)).when(Observe(long)).refused(Code::InvalidField);
    }
}
