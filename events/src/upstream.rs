//! Facts about upstreams: model platforms that tasks are sent to.

use crate::facts::facts;
use crate::id::PrincipalId;
use crate::text::Text;
use serde::{Deserialize, Serialize};

facts! {
    Registered = "upstream.registered" v 1,
    Updated = "upstream.updated" v 1,
    CredentialSet = "upstream.credential_set" v 1 [secret],
    Switched = "upstream.switched" v 1,
    Deleted = "upstream.deleted" v 1,
}

/// A model of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Its name there.
    pub name: String,
    /// Kinds of tasks that it serves.
    pub kinds: Vec<String>,
}

/// What an upstream is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Whose platform it is, for people and policies: `openai`, `vllm`, ..
    pub provider: String,
    /// What it speaks: `openai`.
    pub protocol: String,
    /// Its base URL, without a slash at its end.
    pub base_url: String,
    /// Its models.
    pub models: Vec<Model>,
}

/// An upstream exists, enabled and without a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Who registered it.
    pub owner: PrincipalId,
    /// The owner's name at that time.
    pub owner_name: String,
    /// Its name, the first part of its models' names in requests. Its id is made of it.
    pub name: String,
    /// What it is.
    pub profile: Profile,
}

/// An upstream is described anew. A credential does not follow it to another origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updated {
    /// What it is from now on.
    pub profile: Profile,
    /// Whether its origin is the one that the credential is for; else the credential is gone.
    pub keeps_credential: bool,
}

/// An upstream has a credential, or another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialSet {
    /// The value of the header.
    pub secret: Text,
    /// The header that it goes into, lower case.
    pub header: String,
    /// The only origin that it is ever sent to.
    pub origin: String,
    /// Keyed digest of header and value.
    #[serde(with = "serde_bytes")]
    pub digest: [u8; 32],
}

/// An upstream is used, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// Whether tasks are sent to it.
    pub enabled: bool,
    /// Why, in the operator's words.
    pub reason: String,
}

/// An upstream is gone, and its credential with it. One of the same name may be registered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {}
