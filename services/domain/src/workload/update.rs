//! Replaces what is wanted by a new revision.

use super::Existing;
use crate::{Code, Rejection};
use signalbox_events::workload::{Event, Spec, Updated};

/// Update. The spec was checked against the configured runtimes before.
#[derive(Debug, Clone)]
pub struct Update {
    /// What is wanted from now on; its kind stays.
    pub spec: Spec,
    /// Refuse where the workload has another revision than this.
    pub expected_revision: Option<u32>,
}

pub(super) fn decide(workload: &Existing, command: &Update) -> Result<Option<Event>, Rejection> {
    let kind = workload.kind().ok_or_else(Rejection::not_found)?;
    if command.spec.kind() != kind {
        return Err(Rejection::field("spec.kind", format!("is fixed: this workload is of kind {kind}")));
    }
    if kind.category() == signalbox_events::workload::Category::Job {
        return Err(Rejection::unsupported(kind, "be updated"));
    }
    if workload.spec() == Some(&command.spec) {
        return Ok(None);
    }
    if command.expected_revision.is_some_and(|expected| expected != workload.revision) {
        let detail = format!("the workload has revision {}", workload.revision);
        return Err(Rejection::new(Code::RevisionConflict, detail));
    }
    Ok(Some(Updated { revision: latest(workload) + 1, spec: command.spec.clone() }.into()))
}

/// The highest revision so far: numbers are never reused, a rollback makes a new one.
pub(super) fn latest(workload: &Existing) -> u32 {
    workload.revisions.keys().next_back().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{endpoint, inference, job, made, needs_a_living_workload};

    fn update(spec: Spec) -> Update {
        Update { spec, expected_revision: None }
    }

    #[test]
    fn an_update_is_a_new_revision() {
        made(inference(1)).when(update(inference(2))).then(Updated { revision: 2, spec: inference(2) });
        made(inference(1)).when(update(inference(1))).nothing();
        let twice = made(inference(1)).event(Updated { revision: 2, spec: inference(2) });
        twice.when(update(inference(3))).then(Updated { revision: 3, spec: inference(3) });
    }

    #[test]
    fn an_expected_revision_guards_against_a_lost_update() {
        let twice = made(inference(1)).event(Updated { revision: 2, spec: inference(2) });
        twice.when(Update { spec: inference(3), expected_revision: Some(1) }).refused(Code::RevisionConflict);
        twice.when(Update { spec: inference(3), expected_revision: Some(2) }).fact();
    }

    #[test]
    fn the_kind_is_fixed_and_jobs_are_not_updated() {
        made(inference(1)).when(update(endpoint())).refused(Code::InvalidField);
        made(job()).when(update(job())).refused(Code::UnsupportedForKind);
        needs_a_living_workload(update(inference(1)));
    }
}
