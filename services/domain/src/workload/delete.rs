//! Asks for a workload's end.

use super::Existing;
use crate::Rejection;
use signalbox_events::workload::{DeletionRequested, Event};

/// Delete.
#[derive(Debug, Clone)]
pub struct Delete {}

pub(super) fn decide(workload: &Existing) -> Result<Option<Event>, Rejection> {
    Ok((!workload.deleting).then(|| DeletionRequested {}.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::given::given;
    use crate::workload::Workload;
    use crate::workload::fixtures::{deleted, deleting, endpoint, inference, job, made};

    #[test]
    fn deletion_is_requested_once() {
        for spec in [inference(1), job(), endpoint()] {
            made(spec).when(Delete {}).then(DeletionRequested {});
        }
        deleting().when(Delete {}).nothing();
        deleted().when(Delete {}).refused(Code::NotFound);
        given::<Workload>().when(Delete {}).refused(Code::NotFound);
    }
}
