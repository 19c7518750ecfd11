//! `signalbox audit ..`: reads the log itself with its own read-only credential, never through the API.

use super::{Connection, Installation, output};
use crate::config::key;
use crate::{Error, serve};
use chrono::{DateTime, Utc};
use clap::Subcommand;
use ed25519_dalek::SigningKey;
use reqwest::Method;
use serde_json::json;
use signalbox_auditor::{Filter, Folder, Line};
use signalbox_events::Noun;
use signalbox_journal::nats::Nats;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Show events.
    Log {
        /// Of one aggregate: its id, or `<account>.<noun>.<id>`.
        aggregate: Option<String>,
        /// Of one noun: `account`, `conversation`, `setting`, `workload`.
        #[arg(long)]
        noun: Option<Noun>,
        /// Of one account.
        #[arg(long)]
        account: Option<String>,
        /// Not before this time, RFC 3339.
        #[arg(long)]
        since: Option<DateTime<Utc>>,
        /// With the stored bytes, hex.
        #[arg(long)]
        raw: bool,
        /// One JSON object a line.
        #[arg(short, long, value_enum, default_value_t = output::Format::Table)]
        output: output::Format,
        #[command(flatten)]
        installation: Installation,
    },
    /// Verify every chain and every signed checkpoint; names the first bad position.
    Verify {
        #[command(flatten)]
        installation: Installation,
    },
    /// State that a loss of the log is known, so that the views go on behind it.
    AcceptGap {
        /// The first missing place, as `log_gap` names it.
        position: String,
        /// Why the loss is acceptable.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub(super) async fn run(verb: Verb) -> Result<ExitCode, Error> {
    match verb {
        Verb::Log { aggregate, noun, account, since, raw, output, installation } => {
            let journal = Nats::open(serve::audit_options(&installation.config()?)?).await?;
            let filter = Filter { aggregate, noun, account, since, raw };
            signalbox_auditor::log(journal.as_ref(), &filter, &mut |line| println!("{}", shown(&line, output))).await?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Verify { installation } => {
            let config = installation.config()?;
            let journal = Nats::open(serve::audit_options(&config)?).await?;
            let signer = SigningKey::from_bytes(&key("checkpoint", &config.keys.checkpoint)?);
            let verdict = signalbox_auditor::verify(journal.as_ref(), &Folder(config.checkpoints), &signer.verifying_key()).await?;
            println!("{}", serde_json::to_string_pretty(&verdict)?);
            Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Verb::AcceptGap { position, reason, connection } => {
            let body = json!({"position": position, "reason": reason});
            let done = connection.client()?.send(Method::POST, "/v1/audit/accepted-gaps", Some(body)).await?;
            output::one(connection.output, &done, &[("position", "position"), ("stated", "stated")]);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn shown(line: &Line, format: output::Format) -> String {
    match format {
        output::Format::Json => serde_json::to_string(line).unwrap_or_default(),
        output::Format::Table => {
            let at = line.at.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)).unwrap_or_default();
            let raw = line.raw.as_ref().map(|raw| format!("\n        {raw}")).unwrap_or_default();
            format!("{:>8}  {at}  {:<32} v{:<4} {}  {}{raw}", line.position, line.kind, line.version, line.actor, line.data)
        }
    }
}
