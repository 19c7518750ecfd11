//! `signalbox pool ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Create a pool.
    Create {
        /// Its id, once and for ever: workers' permissions spell it.
        id: String,
        #[command(flatten)]
        profile: Profile,
        #[command(flatten)]
        connection: Connection,
    },
    /// Describe a pool anew; what is not given stays.
    Update {
        /// The pool's id.
        id: String,
        #[command(flatten)]
        profile: Profile,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the pools.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Take new tasks and claims again.
    Enable(Switch),
    /// Take no new tasks; what waits is still claimed.
    Cordon(Switch),
    /// Take neither new tasks nor claims; what runs goes on.
    Drain(Switch),
    /// Take nothing: not even leased tasks are sent any more.
    Disable(Switch),
    /// Delete a pool without workers and tasks.
    Delete {
        /// The pool's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What a pool is.
#[derive(Debug, clap::Args)]
pub(super) struct Profile {
    /// For people.
    #[arg(long)]
    description: Option<String>,
    /// Pools of a lower tier are used first.
    #[arg(long)]
    tier: Option<u32>,
    /// Among equals of a tier the higher one is used.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// A label, `name=value`; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
}

/// Which pool, and why.
#[derive(Debug, clap::Args)]
pub(super) struct Switch {
    /// The pool's id.
    id: String,
    /// Why; kept in the log.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    connection: Connection,
}

impl Profile {
    fn body(self) -> Result<Value, Error> {
        let mut body = json!({});
        if let Some(description) = self.description {
            body["description"] = description.into();
        }
        if let Some(tier) = self.tier {
            body["tier"] = tier.into();
        }
        if let Some(priority) = self.priority {
            body["priority"] = priority.into();
        }
        if !self.labels.is_empty() {
            let pair = |label: &String| label.split_once('=').map(|(name, value)| (name.to_owned(), value.into()));
            let labels: Option<Map<String, Value>> = self.labels.iter().map(pair).collect();
            body["labels"] = labels.ok_or("a label is given as NAME=VALUE")?.into();
        }
        Ok(body)
    }
}

const STATED: [(&str, &str); 3] = [("id", "id"), ("position", "position"), ("stated", "stated")];

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Create { id, profile, connection } => {
            let mut body = profile.body()?;
            body["id"] = id.into();
            let done = connection.client()?.send(Method::POST, "/v1/pools", Some(body)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::Update { id, profile, connection } => {
            let done = connection.client()?.send(Method::PATCH, &format!("/v1/pools/{}", segment(&id)), Some(profile.body()?)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::List { connection } => {
            let page = connection.client()?.get("/v1/pools").await?;
            let columns = [("id", "id"), ("state", "state"), ("tier", "tier"), ("priority", "priority"), ("description", "description")];
            output::rows(connection.output, &page, output::items(&page), &columns);
        }
        Verb::Enable(switch) => turn("enabled", switch).await?,
        Verb::Cordon(switch) => turn("cordoned", switch).await?,
        Verb::Drain(switch) => turn("draining", switch).await?,
        Verb::Disable(switch) => turn("disabled", switch).await?,
        Verb::Delete { id, connection } => {
            let done = connection.client()?.send(Method::DELETE, &format!("/v1/pools/{}", segment(&id)), None).await?;
            output::one(connection.output, &done, &STATED);
        }
    }
    Ok(())
}

async fn turn(state: &str, Switch { id, reason, connection }: Switch) -> Result<(), Error> {
    let body = json!({"state": state, "reason": reason});
    let done = connection.client()?.send(Method::PUT, &format!("/v1/pools/{}/state", segment(&id)), Some(body)).await?;
    output::one(connection.output, &done, &STATED);
    Ok(())
}
