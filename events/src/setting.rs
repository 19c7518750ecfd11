//! Facts about the switches of the platform and of single accounts.

use crate::facts::facts;
use serde::{Deserialize, Serialize};

facts! {
    InferenceSwitched = "setting.inference_switched" v 1,
    GapAccepted = "setting.gap_accepted" v 1,
}

/// Inference was switched on or off; in an account's own aggregate the switch can only take away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceSwitched {
    /// Whether deployments, invocations and conversations are served.
    pub enabled: bool,
}

/// An operator knows that messages of the log are lost; readers pass over that place from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapAccepted {
    /// The partition.
    pub partition: u16,
    /// The first missing sequence.
    pub sequence: u64,
    /// Why the loss is acceptable, in the operator's words.
    pub reason: String,
}
