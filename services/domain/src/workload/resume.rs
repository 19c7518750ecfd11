//! Lets a suspended deployment run again.

use super::Existing;
use crate::Rejection;
use signalbox_events::workload::{Category, Event, Resumed};

/// Resume.
#[derive(Debug, Clone)]
pub struct Resume {}

pub(super) fn decide(workload: &Existing) -> Result<Option<Event>, Rejection> {
    let kind = workload.kind().ok_or_else(Rejection::not_found)?;
    match kind.category() {
        Category::Job => Err(Rejection::unsupported(kind, "be resumed")),
        Category::Deployment => Ok(workload.suspended.then(|| Resumed {}.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::workload::fixtures::{inference, job, made, needs_a_living_workload};
    use signalbox_events::workload::Suspended;

    #[test]
    fn only_a_suspended_deployment_is_resumed() {
        made(inference(1)).when(Resume {}).nothing();
        made(inference(1)).event(Suspended {}).when(Resume {}).then(Resumed {});
        made(inference(1)).event(Suspended {}).event(Resumed {}).when(Resume {}).nothing();
        made(job()).when(Resume {}).refused(Code::UnsupportedForKind);
        needs_a_living_workload(Resume {});
    }
}
