//! Tends one `local-job` workload: its command runs once, to its end.

use crate::report::{NODE, Reporter, observed};
use crate::role::{Shared, Wanted};
use nix::sys::signal::Signal;
use signalbox_embedded::process::{Process, Spec as ProcessSpec, tail};
use signalbox_events::workload::{Observed, Spec, State};
use std::time::Duration;
use tokio::sync::watch;

/// How long a job may take to end when asked.
const GRACE: Duration = Duration::from_secs(5);

/// Tends the workload until it is gone or the role stops.
pub(crate) async fn tend(shared: Shared, reporter: Reporter, mut wanted: watch::Receiver<Wanted>) {
    let first = wanted.borrow_and_update().clone();
    match first.last {
        // It ran under an earlier process of ours and died with it. What it had done by then is not known, so it does
        // not run again by itself.
        Some(State::Starting | State::Running) if !first.deleting => {
            let lost = Observed { log_tail: tail(&log(&shared, &first), 80), ..observed(State::Failed, "process_lost", first.revision) };
            reporter.report(lost).await;
        }
        Some(_) => {}
        None if !first.deleting => run(&shared, &reporter, &first, &mut wanted).await,
        None => {}
    }
    loop {
        let want = wanted.borrow_and_update().clone();
        if want.deleting {
            reporter.report(observed(State::Deleted, "process_ended", want.revision)).await;
        }
        if want.deleting || want.stop || wanted.changed().await.is_err() {
            return;
        }
    }
}

fn log(shared: &Shared, want: &Wanted) -> std::path::PathBuf {
    shared.folder(want).join("job.log")
}

async fn run(shared: &Shared, reporter: &Reporter, want: &Wanted, wanted: &mut watch::Receiver<Wanted>) {
    let Spec::LocalJob { runtime, parameters } = &want.spec else { return };
    let Some(runtime) = shared.runtimes.get(runtime) else {
        return reporter.report(observed(State::Failed, "runtime_not_configured", want.revision)).await;
    };
    let Some((program, arguments)) = runtime.command(&want.object_name, 0, parameters) else {
        return reporter.report(observed(State::Failed, "runtime_without_command", want.revision)).await;
    };
    let folder = shared.folder(want);
    let log = log(shared, want);
    let spec = ProcessSpec {
        program,
        arguments: arguments.into_iter().map(Into::into).collect(),
        environment: runtime.environment(&want.object_name, 0, parameters),
        folder: runtime.folder.clone().unwrap_or(folder),
        log: log.clone(),
        user: None,
        death: Signal::SIGKILL,
        memory: runtime.memory_bytes,
    };
    // Stated before it starts: after a crash of ours it counts as run.
    reporter.report(observed(State::Starting, "process_starting", want.revision)).await;
    let mut process = match Process::start(&spec).await {
        Ok(process) => process,
        Err(error) => {
            let failed = Observed { log_tail: vec![error.to_string()], ..observed(State::Failed, "cannot_start", want.revision) };
            return reporter.report(failed).await;
        }
    };
    let on_node = |seen: Observed| Observed { nodes: vec![NODE.to_owned()], ..seen };
    reporter.report(on_node(Observed { ready: 1, ..observed(State::Running, "process_started", want.revision) })).await;
    loop {
        tokio::select! {
            status = process.wait() => {
                let code = status.ok().and_then(|status| status.code());
                let (state, reason) = if code == Some(0) { (State::Succeeded, "exited") } else { (State::Failed, "exited_badly") };
                let log_tail = if code == Some(0) { vec![] } else { tail(&log, 80) };
                return reporter.report(on_node(Observed { exit_code: code, log_tail, ..observed(state, reason, want.revision) })).await;
            }
            changed = wanted.changed() => {
                let want = wanted.borrow_and_update().clone();
                if changed.is_err() || want.deleting || want.stop {
                    return process.stop(Signal::SIGTERM, GRACE).await;
                }
            }
        }
    }
}
