//! The OpenAI-compatible surface over deployments.

pub(crate) mod chat;
pub(crate) mod models;
