//! Facts about conversations and their turns.

use crate::facts::{facts, words};
use crate::id::{PrincipalId, TurnId, WorkloadId};
use crate::text::Text;
use serde::{Deserialize, Serialize};

facts! {
    Started = "conversation.started" v 1 [title],
    TurnSubmitted = "conversation.turn_submitted" v 1 [messages, parameters, title],
    TurnBegun = "conversation.turn_begun" v 1,
    TurnCompleted = "conversation.turn_completed" v 1 [message],
    TurnFailed = "conversation.turn_failed" v 1 [partial],
    TurnInterrupted = "conversation.turn_interrupted" v 1 [partial],
    TurnCancelled = "conversation.turn_cancelled" v 1 [partial],
    TurnSubmissionUnknown = "conversation.turn_submission_unknown" v 1,
    Renamed = "conversation.renamed" v 1 [title],
    Deleted = "conversation.deleted" v 1,
}

words! {
    /// Where a turn stands.
    TurnState {
        /// Claimed; the model has not been called.
        Submitted = "submitted",
        /// The model is being called.
        Running = "running",
        /// Ended with a whole answer.
        Completed = "completed",
        /// Ended with an error.
        Failed = "failed",
        /// Ended on demand.
        Cancelled = "cancelled",
        /// Its executor was lost after output had begun.
        Interrupted = "interrupted",
        /// Its executor was lost before output began: the model may have been paid.
        SubmissionUnknown = "submission_unknown",
    }
}

words! {
    /// What becomes of a turn whose client leaves.
    OnDisconnect {
        /// The call ends, the partial text is kept.
        Cancel = "cancel",
        /// The call goes on.
        Continue = "continue",
    }
}

impl TurnState {
    /// Whether the turn has ended; one terminal event states it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Submitted | Self::Running => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted | Self::SubmissionUnknown => true,
        }
    }
}

/// A conversation exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Whose it is.
    pub owner: PrincipalId,
    /// The owner's name at that time.
    pub owner_name: String,
    /// The deployment that it talks to.
    pub workload: WorkloadId,
    /// The name by which the deployment's router knows the model.
    pub model: String,
    /// The title, where the caller gave one.
    pub title: Option<Text>,
}

/// A turn was claimed: of any number of equal requests one states this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSubmitted {
    /// The turn.
    pub turn: TurnId,
    /// Its place in the conversation, from 1.
    pub number: u32,
    /// The caller's own key for it.
    pub client_turn_id: String,
    /// Keyed digest of the canonical request body.
    #[serde(with = "serde_bytes")]
    pub digest: [u8; 32],
    /// The new messages: a JSON array.
    pub messages: Text,
    /// The request's other fields: a JSON object.
    pub parameters: Text,
    /// The conversation's title from now on, where it had none.
    pub title: Option<Text>,
    /// What becomes of it when its client leaves.
    pub on_disconnect: OnDisconnect,
    /// Who claimed it and is about to call the model.
    pub executor: String,
    /// The subject on which its deltas will appear.
    pub stream: String,
}

/// The model is called. Stated before the first byte goes out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBegun {
    /// The turn.
    pub turn: TurnId,
    /// Who calls: the gateway's instance.
    pub executor: String,
    /// The subject on which its deltas appear.
    pub stream: String,
}

/// Tokens of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub prompt_tokens: u64,
    /// Tokens written.
    pub completion_tokens: u64,
    /// Whether they were estimated since the upstream gave none.
    pub estimated: bool,
}

/// The model answered in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCompleted {
    /// The turn.
    pub turn: TurnId,
    /// The assistant's message: a JSON object.
    pub message: Text,
    /// Why the model stopped: `stop`, `length`, `tool_calls`, ..
    pub finish_reason: String,
    /// What it cost.
    pub usage: Usage,
}

/// The turn ended with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFailed {
    /// The turn.
    pub turn: TurnId,
    /// A stable word: `upstream_disconnected`, `upstream_rejected`, ..
    pub code: String,
    /// The HTTP status that the upstream answered, where it did.
    pub upstream_status: Option<u16>,
    /// What had arrived.
    pub partial: Option<Text>,
    /// What it cost so far.
    pub usage: Usage,
}

/// The executor was lost after output had begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnInterrupted {
    /// The turn.
    pub turn: TurnId,
    /// What had arrived.
    pub partial: Option<Text>,
    /// What it cost so far.
    pub usage: Usage,
}

/// The turn was ended on demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCancelled {
    /// The turn.
    pub turn: TurnId,
    /// What had arrived.
    pub partial: Option<Text>,
    /// What it cost so far.
    pub usage: Usage,
}

/// The executor was lost and nothing had come: whether the model was called is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSubmissionUnknown {
    /// The turn.
    pub turn: TurnId,
}

/// The conversation has another title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// The new title.
    pub title: Text,
}

/// The conversation is hidden and takes no more turns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {}
