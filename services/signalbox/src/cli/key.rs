//! `signalbox key ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Issue an API key; its secret is shown this once.
    Issue {
        /// What it is for.
        label: String,
        /// Roles, comma-separated: a subset of the member's.
        #[arg(long, value_delimiter = ',', default_value = "member")]
        roles: Vec<String>,
        /// The member; else the caller.
        #[arg(long)]
        principal: Option<String>,
        /// After this it is refused, RFC 3339.
        #[arg(long)]
        expires_at: Option<String>,
        /// The account's id, or `current`.
        #[arg(long, default_value = "current")]
        account: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List API keys.
    List {
        /// The account's id, or `current`.
        #[arg(long, default_value = "current")]
        account: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Revoke an API key.
    Revoke {
        /// The key's id.
        key: String,
        /// The account's id, or `current`.
        #[arg(long, default_value = "current")]
        account: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Issue { label, roles, principal, expires_at, account, connection } => {
            let mut body = json!({"label": label, "roles": roles});
            for (name, value) in [("principal", principal), ("expires_at", expires_at)] {
                if let Some(value) = value {
                    body[name] = value.into();
                }
            }
            let path = format!("/v1/accounts/{}/keys", segment(&account));
            let done = connection.client()?.send(Method::POST, &path, Some(body)).await?;
            output::one(connection.output, &done, &[("id", "id"), ("secret", "secret")]);
        }
        Verb::List { account, connection } => {
            let page = connection.client()?.get(&format!("/v1/accounts/{}/keys", segment(&account))).await?;
            let columns = [
                ("id", "id"),
                ("label", "label"),
                ("principal", "principal"),
                ("roles", "roles"),
                ("issued", "issued_at"),
                ("expires", "expires_at"),
                ("revoked", "revoked_at"),
            ];
            output::rows(connection.output, &page, output::items(&page), &columns);
        }
        Verb::Revoke { key, account, connection } => {
            let path = format!("/v1/accounts/{}/keys/{}", segment(&account), segment(&key));
            let done = connection.client()?.send(Method::DELETE, &path, None).await?;
            output::one(connection.output, &done, &[("id", "id"), ("stated", "stated")]);
        }
    }
    Ok(())
}
