//! Facts about pools: groups of workers that reach the same networks.

use crate::facts::{facts, words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

facts! {
    Created = "pool.created" v 1,
    Updated = "pool.updated" v 1,
    Switched = "pool.switched" v 1,
    Deleted = "pool.deleted" v 1,
}

words! {
    /// What a pool takes on.
    State {
        /// New tasks and claims.
        Enabled = "enabled",
        /// No new tasks; what waits in its queue is still claimed.
        Cordoned = "cordoned",
        /// No new tasks and no claims; what runs goes on to its end.
        Draining = "draining",
        /// Nothing: leases that were not redeemed are not redeemed any more.
        Disabled = "disabled",
    }
}

/// What operators say of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// For people.
    pub description: String,
    /// Pools of a lower tier are used first.
    pub tier: u32,
    /// Among equals of a tier the higher one is used.
    pub priority: i32,
    /// Free words for people and policies.
    pub labels: BTreeMap<String, String>,
}

/// A pool exists, enabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// What it is.
    pub profile: Profile,
}

/// A pool is described anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updated {
    /// What it is from now on.
    pub profile: Profile,
}

/// A pool takes on more or less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// From now on.
    pub state: State,
    /// Why, in the operator's words.
    pub reason: String,
}

/// A pool is gone. A pool of the same id may be created again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {}
