//! Changes the count of replicas.

use super::Existing;
use crate::{Rejection, kind};
use signalbox_events::workload::{Event, Scaled, Spec};

/// Scale.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Replicas wanted.
    pub replicas: u32,
}

pub(super) fn decide(workload: &Existing, command: &Scale) -> Result<Option<Event>, Rejection> {
    let spec = workload.spec().ok_or_else(Rejection::not_found)?;
    match spec {
        Spec::LocalInference { replicas, .. } => {
            kind::local_inference::replicas("replicas", command.replicas)?;
            Ok((*replicas != command.replicas).then(|| Scaled { replicas: command.replicas }.into()))
        }
        Spec::LocalJob { .. } | Spec::Endpoint { .. } => Err(Rejection::unsupported(spec.kind(), "be scaled")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::workload::fixtures::{endpoint, inference, job, made, needs_a_living_workload};

    #[test]
    fn a_deployment_is_scaled_within_bounds() {
        made(inference(1)).when(Scale { replicas: 2 }).then(Scaled { replicas: 2 });
        made(inference(1)).when(Scale { replicas: 1 }).nothing();
        made(inference(1)).event(Scaled { replicas: 2 }).when(Scale { replicas: 2 }).nothing();
        made(inference(1)).when(Scale { replicas: 0 }).refused(Code::InvalidField);
        made(inference(1)).when(Scale { replicas: 17 }).refused(Code::InvalidField);
    }

    #[test]
    fn other_kinds_are_not_scaled() {
        made(job()).when(Scale { replicas: 2 }).refused(Code::UnsupportedForKind);
        made(endpoint()).when(Scale { replicas: 2 }).refused(Code::UnsupportedForKind);
        needs_a_living_workload(Scale { replicas: 2 });
    }
}
