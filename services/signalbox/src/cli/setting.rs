//! `signalbox setting ..`

use super::{Connection, output};
use crate::Error;
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show the settings.
    Show {
        #[command(flatten)]
        connection: Connection,
    },
    /// Switch inference on or off (platform admins).
    Inference {
        /// `on` or `off`.
        #[arg(value_parser = ["on", "off"])]
        switch: String,
        /// `platform`, or `account` for the caller's own: it can only take away.
        #[arg(long, default_value = "platform", value_parser = ["platform", "account"])]
        scope: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Set how calls that someone waits for reach models (platform admins).
    Transport {
        /// `direct`: the gateway calls; `lease`: a worker of a pool calls; `unset`: as if never set.
        #[arg(value_parser = ["direct", "lease", "unset"])]
        transport: String,
        /// The kind, `chat.completions`; else every kind that has none of its own.
        #[arg(long)]
        kind: Option<String>,
        /// `platform`, or `account` for the caller's own: it goes before the platform's.
        #[arg(long, default_value = "platform", value_parser = ["platform", "account"])]
        scope: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub(super) async fn run(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Show { connection } => {
            let shown = connection.client()?.get("/v1/settings").await?;
            let columns = [("inference", "inference_enabled"), ("platform", "platform_inference_enabled"), ("account", "account_inference_enabled")];
            let transports = [("transports", "platform_transports"), ("of the account", "account_transports")];
            output::one(connection.output, &shown, &[columns.as_slice(), &transports].concat());
        }
        Verb::Transport { transport, kind, scope, connection } => {
            let path = format!("/v1/settings/{scope}/transport");
            let done = connection.client()?.send(Method::PUT, &path, Some(json!({"transport": transport, "kind": kind}))).await?;
            output::one(connection.output, &done, &[("position", "position"), ("stated", "stated")]);
        }
        Verb::Inference { switch, scope, connection } => {
            let path = format!("/v1/settings/{scope}/inference");
            let done = connection.client()?.send(Method::PUT, &path, Some(json!({"enabled": switch == "on"}))).await?;
            output::one(connection.output, &done, &[("position", "position"), ("stated", "stated")]);
        }
    }
    Ok(())
}
