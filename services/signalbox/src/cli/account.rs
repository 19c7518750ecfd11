//! `signalbox account ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Create an account (platform admins).
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List all accounts (platform admins).
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show an account with its members.
    Show {
        /// Its id, or `current`.
        #[arg(default_value = "current")]
        account: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add a member.
    AddMember {
        /// The member's name.
        name: String,
        /// Roles, comma-separated: platform_admin, account_admin, member, auditor, worker.
        #[arg(long, value_delimiter = ',', required = true)]
        roles: Vec<String>,
        /// The account's id, or `current`.
        #[arg(long, default_value = "current")]
        account: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Create { name, connection } => {
            let done = connection.client()?.send(Method::POST, "/v1/accounts", Some(json!({"name": name}))).await?;
            output::one(connection.output, &done, &[("id", "id"), ("position", "position")]);
        }
        Verb::List { connection } => {
            let page = connection.client()?.get("/v1/accounts").await?;
            output::rows(connection.output, &page, output::items(&page), &[("id", "id"), ("name", "name"), ("created", "created_at")]);
        }
        Verb::Show { account, connection } => {
            let shown = connection.client()?.get(&format!("/v1/accounts/{}", segment(&account))).await?;
            let members = shown["members"].as_array().into_iter().flatten();
            output::rows(
                connection.output,
                &shown,
                members,
                &[("principal", "principal"), ("name", "name"), ("roles", "roles"), ("added", "added_at")],
            );
        }
        Verb::AddMember { name, roles, account, connection } => {
            let path = format!("/v1/accounts/{}/members", segment(&account));
            let done = connection.client()?.send(Method::POST, &path, Some(json!({"name": name, "roles": roles}))).await?;
            output::one(connection.output, &done, &[("principal", "id"), ("position", "position")]);
        }
    }
    Ok(())
}
