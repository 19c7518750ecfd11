//! Stops a deployment that stays.

use super::Existing;
use crate::Rejection;
use signalbox_events::workload::{Category, Event, Suspended};

/// Suspend.
#[derive(Debug, Clone)]
pub struct Suspend {}

pub(super) fn decide(workload: &Existing) -> Result<Option<Event>, Rejection> {
    let kind = workload.kind().ok_or_else(Rejection::not_found)?;
    match kind.category() {
        Category::Job => Err(Rejection::unsupported(kind, "be suspended")),
        Category::Deployment => Ok((!workload.suspended).then(|| Suspended {}.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::workload::fixtures::{endpoint, inference, job, made, needs_a_living_workload};

    #[test]
    fn a_deployment_is_suspended_once_and_a_job_never() {
        for spec in [inference(1), endpoint()] {
            made(spec.clone()).when(Suspend {}).then(Suspended {});
            made(spec).event(Suspended {}).when(Suspend {}).nothing();
        }
        made(job()).when(Suspend {}).refused(Code::UnsupportedForKind);
        needs_a_living_workload(Suspend {});
    }
}
