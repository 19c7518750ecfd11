//! Starts a conversation.

use super::{Existing, check_title};
use crate::{Code, Rejection};
use signalbox_events::conversation::{Event, Started};
use signalbox_events::{PrincipalId, Text, WorkloadId};

/// Start. That the deployment exists and is the caller's was checked before.
#[derive(Debug, Clone)]
pub struct Start {
    /// Whose it shall be.
    pub owner: PrincipalId,
    /// The owner's name.
    pub owner_name: String,
    /// The deployment that it talks to.
    pub workload: WorkloadId,
    /// The name by which the deployment's router knows the model.
    pub model: String,
    /// A title, at most 256 characters; else the first message makes one.
    pub title: Option<Text>,
}

pub(super) fn decide(state: Option<&Existing>, command: &Start) -> Result<Option<Event>, Rejection> {
    if let Some(title) = &command.title {
        check_title("title", title)?;
    }
    if let Some(existing) = state {
        let same = existing.owner == command.owner && existing.workload == command.workload && existing.model == command.model;
        return if same { Ok(None) } else { Err(Rejection::new(Code::IdempotencyKeyConflict, "the same key started another conversation")) };
    }
    let fact = Started {
        owner: command.owner,
        owner_name: command.owner_name.clone(),
        workload: command.workload,
        model: command.model.clone(),
        title: command.title.clone(),
    };
    Ok(Some(fact.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;
    use crate::conversation::fixtures::{made, started};
    use crate::given::given;

    fn start() -> Start {
        let fact = started();
        Start { owner: fact.owner, owner_name: fact.owner_name, workload: fact.workload, model: fact.model, title: fact.title }
    }

    #[test]
    fn a_conversation_is_started_once() {
        given::<Conversation>().when(start()).then(started());
        made().when(start()).nothing();
        made().when(Start { model: "other".to_owned(), ..start() }).refused(Code::IdempotencyKeyConflict);
    }

    #[test]
    fn a_title_is_bounded() {
        for bad in [String::new(), "x".repeat(257), "a\0".to_owned()] {
            given::<Conversation>().when(Start { title: Some(bad.into()), ..start() }).refused(Code::InvalidField);
        }
        given::<Conversation>().when(Start { title: Some("x".repeat(256).into()), ..start() }).fact();
    }
}
