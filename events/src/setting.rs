//! Facts about the switches of the platform and of single accounts.

use crate::facts::{facts, words};
use serde::{Deserialize, Serialize};

facts! {
    InferenceSwitched = "setting.inference_switched" v 1,
    GapAccepted = "setting.gap_accepted" v 1,
    TransportSet = "setting.transport_set" v 1,
}

words! {
    /// How a call that someone waits for reaches a model.
    Transport {
        /// The gateway itself calls.
        Direct = "direct",
        /// A worker of a pool calls, under a lease.
        Lease = "lease",
    }
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

/// How calls of a kind reach models from now on; in an account's own aggregate it goes before the platform's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportSet {
    /// The kind, `chat.completions`; `None`: every kind that has none of its own.
    pub kind: Option<String>,
    /// How; `None`: as if it had never been set.
    pub transport: Option<Transport>,
}
