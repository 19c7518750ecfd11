//! One process of a deployment: started, watched, started again with back-off, given up on when it loops.

use crate::probe;
use crate::runtime::Runtime;
use nix::sys::signal::Signal;
use reqwest::Client;
use signalbox_embedded::process::{Process, Spec, free_port, tail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Ends in a row without ever having been ready after which a replica is given up.
const MOST_ENDS: u32 = 5;
/// Distance of health checks, and how many may fail before the process is started again.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const MOST_FAILURES: u32 = 3;
/// How long a process may take to end when asked.
const GRACE: Duration = Duration::from_secs(5);

/// What a replica's process is made of.
#[derive(Clone)]
pub(crate) struct Plan {
    pub runtime: Runtime,
    /// The model's name in requests.
    pub name: String,
    pub parameters: BTreeMap<String, String>,
    pub folder: PathBuf,
    pub log: PathBuf,
    pub http: Client,
}

/// Where a replica stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    /// Serves at this base URL.
    Ready(String),
    /// Its process ended or went silent; another is started soon.
    Restarting,
    /// Given up, with the process's last words.
    Failed {
        reason: String,
        exit_code: Option<i32>,
        log_tail: Vec<String>,
    },
}

/// A replica that is kept running.
pub(crate) struct Replica {
    pub phase: watch::Receiver<Phase>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    pub fn start(plan: Plan) -> Self {
        let (raise, phase) = watch::channel(Phase::Starting);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move { keep(plan, raise, stopped).await });
        Self { phase, stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn keep(plan: Plan, raise: watch::Sender<Phase>, stop: CancellationToken) {
    let mut ends = 0;
    let mut pause = Duration::from_millis(500);
    loop {
        let started = Instant::now();
        let mut ready = false;
        let exit_code = match start(&plan).await {
            Ok((process, base)) => match watch_process(&plan, process, base, &raise, &stop, &mut ready).await {
                Watched::Stopped => return,
                Watched::Ended(code) => code,
            },
            Err(error) => {
                tracing::warn!(model = plan.name, %error, "a process cannot be started");
                None
            }
        };
        ends = if ready && started.elapsed() > Duration::from_secs(60) { 1 } else { ends + 1 };
        if ends >= MOST_ENDS {
            let reason = if ready { "keeps_ending" } else { "crash_loop" }.to_owned();
            raise.send_replace(Phase::Failed { reason, exit_code, log_tail: tail(&plan.log, 80) });
            stop.cancelled().await;
            return;
        }
        raise.send_replace(Phase::Restarting);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = if ends == 1 { Duration::from_millis(500) } else { (pause * 2).min(Duration::from_secs(30)) };
    }
}

async fn start(plan: &Plan) -> Result<(Process, String), signalbox_embedded::Error> {
    let port = free_port()?;
    let (program, arguments) = plan
        .runtime
        .command(&plan.name, port, &plan.parameters)
        .ok_or_else(|| signalbox_embedded::Error::Advice("the runtime has no command".to_owned()))?;
    let spec = Spec {
        program,
        arguments: arguments.into_iter().map(Into::into).collect(),
        environment: plan.runtime.environment(&plan.name, port, &plan.parameters),
        folder: plan.runtime.folder.clone().unwrap_or_else(|| plan.folder.clone()),
        log: plan.log.clone(),
        user: None,
        death: Signal::SIGKILL,
        memory: plan.runtime.memory_bytes,
    };
    Ok((Process::start(&spec).await?, format!("http://127.0.0.1:{port}")))
}

enum Watched {
    Stopped,
    Ended(Option<i32>),
}

async fn watch_process(
    plan: &Plan,
    mut process: Process,
    base: String,
    raise: &watch::Sender<Phase>,
    stop: &CancellationToken,
    ready: &mut bool,
) -> Watched {
    let health = format!("{base}{}", plan.runtime.health);
    let api = format!("{base}/v1");
    let deadline = Instant::now() + Duration::from_secs(plan.runtime.start_seconds);
    let mut failures = 0;
    loop {
        let pause = if *ready { CHECK_EVERY } else { Duration::from_millis(50) };
        tokio::select! {
            () = stop.cancelled() => {
                process.stop(Signal::SIGTERM, GRACE).await;
                return Watched::Stopped;
            }
            status = process.wait() => return Watched::Ended(status.ok().and_then(|status| status.code())),
            () = tokio::time::sleep(pause) => {}
        }
        let alive = tokio::select! {
            () = stop.cancelled() => continue,
            alive = async { probe::answers(&plan.http, &health).await && (*ready || probe::completes(&plan.http, &api, &plan.name).await) } => alive,
        };
        if alive {
            failures = 0;
            if !*ready {
                *ready = true;
                raise.send_replace(Phase::Ready(api.clone()));
            }
        } else if *ready {
            failures += 1;
        }
        // It hangs: neither answers nor ends.
        if failures >= MOST_FAILURES || (!*ready && Instant::now() > deadline) {
            process.stop(Signal::SIGTERM, GRACE).await;
            return Watched::Ended(None);
        }
    }
}
