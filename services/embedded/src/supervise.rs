//! Keeps a server running: started again after an end that nobody asked for.

use crate::Error;
use crate::process::{Process, Spec};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// A server that is kept running until it is stopped.
pub(crate) struct Supervised {
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<()>>,
    id: watch::Receiver<u32>,
}

impl Supervised {
    /// Starts `spec`; ends it with `signal`, and by force after `grace`.
    pub async fn start(name: &'static str, spec: Spec, signal: Signal, grace: Duration) -> Result<Self, Error> {
        let first = Process::start(&spec).await?;
        let (ids, id) = watch::channel(first.id());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move { keep(name, spec, first, ids, stopped, signal, grace).await });
        Ok(Self { stop: Some(stop), ended: Some(ended), id })
    }

    /// The id of the process that runs now.
    pub fn id(&self) -> u32 {
        *self.id.borrow()
    }

    /// Ends it and waits for the end.
    pub async fn stop(mut self) {
        // The task holds the process: once the sender is gone it stops it.
        drop(self.stop.take());
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }
}

async fn keep(name: &str, spec: Spec, first: Process, ids: watch::Sender<u32>, mut stopped: oneshot::Receiver<()>, signal: Signal, grace: Duration) {
    let mut process = first;
    let mut since = Instant::now();
    let mut pause = Duration::from_millis(100);
    loop {
        tokio::select! {
            _ = &mut stopped => return process.stop(signal, grace).await,
            status = process.wait() => tracing::error!(server = name, status = ?status.ok(), log = %spec.log.display(), "ended unexpectedly, starting it again"),
        }
        // One that ran for a while starts over at the shortest pause.
        pause = if since.elapsed() > Duration::from_secs(60) { Duration::from_millis(100) } else { (pause * 2).min(Duration::from_secs(10)) };
        process = loop {
            tokio::select! {
                _ = &mut stopped => return,
                () = tokio::time::sleep(pause) => {}
            }
            match Process::start(&spec).await {
                Ok(process) => break process,
                Err(error) => tracing::error!(server = name, %error, "cannot be started again"),
            }
        };
        since = Instant::now();
        ids.send_replace(process.id());
    }
}
