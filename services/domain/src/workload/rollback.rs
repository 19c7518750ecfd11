//! Returns to a recorded revision.

use super::{Existing, update};
use crate::{Code, Rejection};
use signalbox_events::workload::{Event, RolledBack};

/// Roll back.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// The revision whose spec is wanted again.
    pub to: u32,
}

pub(super) fn decide(workload: &Existing, command: &Rollback) -> Result<Option<Event>, Rejection> {
    let spec = workload.revisions.get(&command.to).ok_or_else(|| {
        let known: Vec<_> = workload.revisions.keys().map(u32::to_string).collect();
        Rejection::new(Code::RevisionNotFound, format!("recorded revisions: {}", known.join(", ")))
    })?;
    if workload.spec() == Some(spec) {
        return Ok(None);
    }
    Ok(Some(RolledBack { revision: update::latest(workload) + 1, to: command.to, spec: spec.clone() }.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{inference, made, needs_a_living_workload};
    use signalbox_events::workload::Updated;

    #[test]
    fn a_rollback_is_a_new_revision_of_an_old_spec() {
        let updated = made(inference(1)).event(Updated { revision: 2, spec: inference(2) });
        updated.when(Rollback { to: 1 }).then(RolledBack { revision: 3, to: 1, spec: inference(1) });
        updated.when(Rollback { to: 2 }).nothing();
        updated.when(Rollback { to: 3 }).refused(Code::RevisionNotFound);
        updated.event(RolledBack { revision: 3, to: 1, spec: inference(1) }).when(Rollback { to: 1 }).nothing();
        needs_a_living_workload(Rollback { to: 1 });
    }
}
