//! Facts about the switches of the platform and of single accounts.

use crate::facts::facts;
use serde::{Deserialize, Serialize};

facts! {
    InferenceSwitched = "setting.inference_switched" v 1,
}

/// Inference was switched on or off; in an account's own aggregate the switch can only take away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceSwitched {
    /// Whether deployments, invocations and conversations are served.
    pub enabled: bool,
}
