//! `signalbox rebuild VIEW`

use super::Installation;
use crate::{Error, serve};
use clap::Args;
use signalbox_projections::VIEWS;
use std::process::ExitCode;

/// Which view.
#[derive(Debug, Args)]
pub(super) struct Rebuild {
    /// `account`, `setting`, `workload_list` or `conversation`.
    view: String,
    #[command(flatten)]
    installation: Installation,
}

#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub(super) async fn run(options: Rebuild) -> Result<ExitCode, Error> {
    let view = signalbox_projections::view(&options.view).ok_or_else(|| {
        let known: Vec<_> = VIEWS.iter().map(|view| view.name()).collect();
        format!("there is no view {}; views: {}", options.view, known.join(", "))
    })?;
    let config = options.installation.config()?;
    let (_, ledger) = serve::ledger(&config).await?;
    let db = serve::database(&config).await?;
    let rebuilt = signalbox_projector::rebuild(&ledger, &db, view).await?;
    for table in &rebuilt.tables {
        println!("{}: {} rows, {} different from the live ones", table.table, table.rows, table.different);
    }
    println!(
        "{} events read; the live view was {}",
        rebuilt.events,
        if rebuilt.equal() { "what the log says" } else { "NOT what the log says, and has been replaced" }
    );
    Ok(if rebuilt.equal() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
