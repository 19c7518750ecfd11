//! Deploys a workload.

use super::Existing;
use crate::account::plain_name;
use crate::{Code, Rejection, kind};
use signalbox_events::workload::{Deployed, Event, Spec};
use signalbox_events::{PrincipalId, WorkloadId};
use std::collections::BTreeMap;

/// Deploy. The spec was checked against the configured runtimes before ([`crate::kind::validate`]).
#[derive(Debug, Clone)]
pub struct Deploy {
    /// The workload's id, which makes its name outside unique.
    pub id: WorkloadId,
    /// The name that people see, 1 to 253 characters.
    pub name: String,
    /// What is wanted.
    pub spec: Spec,
    /// Whose it shall be.
    pub owner: PrincipalId,
    /// The owner's name.
    pub owner_name: String,
    /// At most 64 labels; keys 1 to 63, values at most 256 characters.
    pub labels: BTreeMap<String, String>,
}

pub(super) fn decide(state: Option<&Existing>, command: &Deploy) -> Result<Option<Event>, Rejection> {
    plain_name("name", &command.name, 253)?;
    labels(&command.labels)?;
    if let Some(existing) = state {
        let first = existing.revisions.get(&1);
        let same = existing.name == command.name && first == Some(&command.spec) && existing.labels == command.labels;
        return if same { Ok(None) } else { Err(Rejection::new(Code::IdempotencyKeyConflict, "the same key deployed another workload")) };
    }
    let fact = Deployed {
        name: command.name.clone(),
        object_name: kind::object_name(&command.name, command.id),
        spec: command.spec.clone(),
        owner: command.owner,
        owner_name: command.owner_name.clone(),
        labels: command.labels.clone(),
    };
    Ok(Some(fact.into()))
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
    if labels.len() > 64 {
        return Err(Rejection::field("labels", "must have at most 64 entries"));
    }
    for (key, value) in labels {
        plain_name(&format!("labels.{key}"), key, 63)?;
        if value.chars().count() > 256 || value.chars().any(char::is_control) {
            return Err(Rejection::field(format!("labels.{key}"), "must be printable and at most 256 characters"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::given::given;
    use crate::workload::Workload;
    use crate::workload::fixtures::{ID, deployed, endpoint, inference, job, made};

    fn deploy(spec: Spec) -> Deploy {
        let fact = deployed(spec);
        Deploy { id: ID, name: fact.name, spec: fact.spec, owner: fact.owner, owner_name: fact.owner_name, labels: fact.labels }
    }

    #[test]
    fn a_workload_is_deployed_once() {
        for spec in [inference(2), job(), endpoint()] {
            given::<Workload>().when(deploy(spec.clone())).then(deployed(spec.clone()));
            made(spec.clone()).when(deploy(spec)).nothing();
        }
        made(job()).when(deploy(endpoint())).refused(Code::IdempotencyKeyConflict);
        made(job()).when(Deploy { name: "b".to_owned(), ..deploy(job()) }).refused(Code::IdempotencyKeyConflict);
    }

    #[test]
    fn names_and_labels_are_bounded() {
        for bad in ["", " ", "a\0", &"x".repeat(254)] {
            let rejection = given::<Workload>().when(Deploy { name: bad.to_owned(), ..deploy(job()) }).refused(Code::InvalidField);
            assert_eq!(rejection.field.as_deref(), Some("name"));
        }
        let with = |pairs: Vec<(String, String)>| Deploy { labels: pairs.into_iter().collect(), ..deploy(job()) };
        given::<Workload>().when(with((0..65).map(|n| (n.to_string(), String::new())).collect())).refused(Code::InvalidField);
        given::<Workload>().when(with(vec![("k".to_owned(), "v\0".to_owned())])).refused(Code::InvalidField);
        given::<Workload>().when(with(vec![(String::new(), "v".to_owned())])).refused(Code::InvalidField);
        given::<Workload>().when(with(vec![("k".to_owned(), "v".to_owned())])).fact();
    }
}
