//! Facts about a tenant: its members and its API keys.

use crate::facts::{facts, words};
use crate::id::{KeyId, PrincipalId};
use crate::time::Micros;
use serde::{Deserialize, Serialize};

facts! {
    Created = "account.created" v 1,
    MemberAdded = "account.member_added" v 1,
    KeyIssued = "account.key_issued" v 1,
    KeyRevoked = "account.key_revoked" v 1,
}

words! {
    /// What a member or a key may do.
    Role {
        /// Everything, in every account.
        PlatformAdmin = "platform_admin",
        /// Members, keys and all workloads of one account.
        AccountAdmin = "account_admin",
        /// Own workloads and conversations.
        Member = "member",
        /// Reads the log.
        Auditor = "auditor",
        /// Executes tasks.
        Worker = "worker",
    }
}

/// The account exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The name that people see.
    pub name: String,
}

/// A principal belongs to the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAdded {
    /// Who.
    pub principal: PrincipalId,
    /// The name that people see.
    pub name: String,
    /// What they may do.
    pub roles: Vec<Role>,
}

/// An API key works from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyIssued {
    /// The key's public id.
    pub key: KeyId,
    /// The member whose key it is.
    pub principal: PrincipalId,
    /// What the key is for, in its owner's words.
    pub label: String,
    /// SHA-256 of the secret; the secret itself is shown once and never stored.
    #[serde(with = "serde_bytes")]
    pub hash: [u8; 32],
    /// What the key may do: a subset of the member's roles.
    pub roles: Vec<Role>,
    /// After this it is refused; `None`: no end.
    pub expires_at: Option<Micros>,
}

/// An API key works no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRevoked {
    /// The key's public id.
    pub key: KeyId,
}
