//! `signalbox upstream ..`

use super::{Connection, output, segment};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Read;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Register an upstream: tasks and chats name its models `<name>/<model>`.
    Register {
        /// Its name.
        name: String,
        /// Its base URL, `https://api.example.com/v1`.
        base_url: String,
        /// A model, `name` or `name=kind,kind`; may be repeated.
        #[arg(long = "model", value_name = "NAME[=KINDS]", required = true)]
        models: Vec<String>,
        /// Whose platform it is; else its name.
        #[arg(long)]
        provider: Option<String>,
        /// Let every account use it.
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the upstreams that your account may use.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Show an upstream.
    Get {
        /// The upstream's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Describe an upstream anew; what is not given stays. Another origin takes the credential away.
    Update {
        /// The upstream's id.
        id: String,
        /// Its base URL.
        #[arg(long)]
        base_url: Option<String>,
        /// A model, `name` or `name=kind,kind`; all that are given replace all that there are.
        #[arg(long = "model", value_name = "NAME[=KINDS]")]
        models: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Give an upstream its credential, read from standard input: it is shown never again.
    Credential {
        /// The upstream's id.
        id: String,
        /// The header that it goes into; else `authorization`, behind `Bearer `.
        #[arg(long)]
        header: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Send tasks to it again.
    Enable(Switch),
    /// Send no tasks to it.
    Disable(Switch),
    /// Delete an upstream and its credential.
    Delete {
        /// The upstream's id.
        id: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Which upstream, and why.
#[derive(Debug, clap::Args)]
pub(super) struct Switch {
    /// The upstream's id.
    id: String,
    /// Why; kept in the log.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    connection: Connection,
}

fn models(given: &[String]) -> Value {
    let model = |text: &String| match text.split_once('=') {
        Some((name, kinds)) => json!({"name": name, "kinds": kinds.split(',').collect::<Vec<_>>()}),
        None => json!({"name": text}),
    };
    given.iter().map(model).collect()
}

const STATED: [(&str, &str); 3] = [("id", "id"), ("position", "position"), ("stated", "stated")];

fn path(id: &str) -> String {
    format!("/v1/upstreams/{}", segment(id))
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Register { name, base_url, models: given, provider, shared, connection } => {
            let mut body = json!({"name": name, "base_url": base_url, "models": models(&given), "shared": shared});
            if let Some(provider) = provider {
                body["provider"] = provider.into();
            }
            let done = connection.client()?.send(Method::POST, "/v1/upstreams", Some(body)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::List { connection } => {
            let page = connection.client()?.get("/v1/upstreams").await?;
            let columns = [("id", "id"), ("name", "name"), ("provider", "provider"), ("base url", "base_url"), ("enabled", "enabled")];
            output::rows(connection.output, &page, output::items(&page), &columns);
        }
        Verb::Get { id, connection } => {
            let found = connection.client()?.get(&path(&id)).await?;
            let fields = [
                ("id", "id"),
                ("name", "name"),
                ("base url", "base_url"),
                ("models", "models"),
                ("enabled", "enabled"),
                ("credential", "credential"),
            ];
            output::one(connection.output, &found, &fields);
        }
        Verb::Update { id, base_url, models: given, connection } => {
            let mut body = json!({});
            if let Some(base_url) = base_url {
                body["base_url"] = base_url.into();
            }
            if !given.is_empty() {
                body["models"] = models(&given);
            }
            let done = connection.client()?.send(Method::PATCH, &path(&id), Some(body)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::Credential { id, header, connection } => {
            // Not an argument: those are seen by everyone on the machine, and kept by shells.
            let mut secret = String::new();
            std::io::stdin().read_to_string(&mut secret)?;
            let mut body = json!({"secret": secret.trim()});
            if let Some(header) = header {
                body["header"] = header.into();
            }
            let done = connection.client()?.send(Method::PUT, &format!("{}/credential", path(&id)), Some(body)).await?;
            output::one(connection.output, &done, &STATED);
        }
        Verb::Enable(switch) => turn(true, switch).await?,
        Verb::Disable(switch) => turn(false, switch).await?,
        Verb::Delete { id, connection } => {
            let done = connection.client()?.send(Method::DELETE, &path(&id), None).await?;
            output::one(connection.output, &done, &STATED);
        }
    }
    Ok(())
}

async fn turn(enabled: bool, Switch { id, reason, connection }: Switch) -> Result<(), Error> {
    let body = json!({"enabled": enabled, "reason": reason});
    let done = connection.client()?.send(Method::PUT, &format!("{}/state", path(&id)), Some(body)).await?;
    output::one(connection.output, &done, &STATED);
    Ok(())
}
