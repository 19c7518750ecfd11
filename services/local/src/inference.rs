//! Tends one `local-inference` workload: as many ready replicas of the wanted revision as are wanted.

use crate::replica::{Phase, Plan, Replica};
use crate::report::{NODE, Reporter, observed};
use crate::role::{Shared, Wanted};
use futures_util::future::{join_all, select_all};
use signalbox_events::workload::{Observed, Spec, State};
use std::time::Duration;
use tokio::sync::watch;

/// The replicas of one revision.
struct Set {
    revision: u32,
    runtime: String,
    parameters: std::collections::BTreeMap<String, String>,
    replicas: Vec<Replica>,
}

impl Set {
    async fn stop(self) {
        join_all(self.replicas.into_iter().map(Replica::stop)).await;
    }

    fn ready(&self) -> Vec<String> {
        self.phases().filter_map(|phase| if let Phase::Ready(base) = phase { Some(base) } else { None }).collect()
    }

    fn phases(&self) -> impl Iterator<Item = Phase> {
        self.replicas.iter().map(|replica| replica.phase.borrow().clone())
    }

    /// Waits until one of the replicas changes.
    async fn changed(&mut self) {
        if self.replicas.is_empty() {
            std::future::pending::<()>().await;
        }
        let changes = self.replicas.iter_mut().map(|replica| {
            Box::pin(async {
                if replica.phase.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        select_all(changes).await;
    }
}

/// Tends the workload until it is gone or the role stops.
pub(crate) async fn tend(shared: Shared, reporter: Reporter, mut wanted: watch::Receiver<Wanted>) {
    let mut current: Option<Set> = None;
    let mut next: Option<Set> = None;
    loop {
        let want = wanted.borrow_and_update().clone();
        if want.stop || want.deleting {
            for set in [current.take(), next.take()].into_iter().flatten() {
                set.stop().await;
            }
            if want.deleting {
                reporter.report(observed(State::Deleted, "processes_ended", want.revision)).await;
            }
            return;
        }
        let Spec::LocalInference { runtime, parameters, replicas } = &want.spec else { return };
        if want.suspended {
            for set in [current.take(), next.take()].into_iter().flatten() {
                set.stop().await;
            }
            reporter.report(observed(State::Suspended, "suspended", want.revision)).await;
        } else if !shared.runtimes.contains_key(runtime) {
            let reason = "runtime_not_configured";
            reporter.report(observed(State::Failed, reason, want.revision)).await;
        } else {
            let fits = |set: &Set| set.runtime == *runtime && set.parameters == *parameters;
            // A revision that differs only in its number or its count goes on with the same processes.
            if let Some(set) = current.as_mut().filter(|set| fits(set)) {
                set.revision = want.revision;
                if let Some(set) = next.take() {
                    set.stop().await;
                }
            } else if !next.as_ref().is_some_and(fits) {
                if let Some(set) = next.take() {
                    set.stop().await;
                }
                next = Some(Set { revision: want.revision, runtime: runtime.clone(), parameters: parameters.clone(), replicas: vec![] });
            }
            let set = next.as_mut().or(current.as_mut());
            if let Some(set) = set {
                set.revision = want.revision;
                resize(set, *replicas, &shared, &want).await;
            }
            // The old revision serves until the new one does.
            if next.as_ref().is_some_and(|set| set.ready().len() == set.replicas.len())
                && let Some(old) = std::mem::replace(&mut current, next.take())
            {
                report(&reporter, current.as_ref(), None, *replicas).await;
                old.stop().await;
            }
            report(&reporter, current.as_ref(), next.as_ref(), *replicas).await;
        }
        let change = async {
            match (&mut current, &mut next) {
                (Some(current), Some(next)) => {
                    tokio::select! {
                        () = current.changed() => {}
                        () = next.changed() => {}
                    }
                }
                (Some(set), None) | (None, Some(set)) => set.changed().await,
                (None, None) => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() {
                for set in [current.take(), next.take()].into_iter().flatten() {
                    set.stop().await;
                }
                return;
            },
            () = change => {}
        }
    }
}

async fn resize(set: &mut Set, replicas: u32, shared: &Shared, want: &Wanted) {
    while set.replicas.len() > replicas as usize {
        if let Some(replica) = set.replicas.pop() {
            replica.stop().await;
        }
    }
    let Some(runtime) = shared.runtimes.get(&set.runtime) else { return };
    let folder = shared.folder(want);
    while set.replicas.len() < replicas as usize {
        let plan = Plan {
            runtime: runtime.clone(),
            name: want.object_name.clone(),
            parameters: set.parameters.clone(),
            log: folder.join(format!("replica-{}.log", set.replicas.len())),
            folder: folder.clone(),
            http: shared.http.clone(),
        };
        set.replicas.push(Replica::start(plan));
    }
    // A replica that fails at once should show as starting for a moment all the same.
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What the two sets amount to.
async fn report(reporter: &Reporter, current: Option<&Set>, next: Option<&Set>, desired: u32) {
    let serving = current.map(Set::ready).unwrap_or_default();
    let Some(front) = next.or(current) else { return };
    let failed = front.phases().find_map(|phase| match phase {
        Phase::Failed { reason, exit_code, log_tail } => Some((reason, exit_code, log_tail)),
        Phase::Starting | Phase::Ready(_) | Phase::Restarting => None,
    });
    let restarting = front.phases().any(|phase| phase == Phase::Restarting);
    let ready = u32::try_from(serving.len()).unwrap_or(u32::MAX);
    let mut seen = match (failed, ready) {
        (Some((reason, exit_code, log_tail)), ready) => {
            let state = if ready > 0 { State::Degraded } else { State::Failed };
            Observed { exit_code, log_tail, ..observed(state, &reason, front.revision) }
        }
        (None, ready) if next.is_some() && ready > 0 => observed(State::Updating, "new_revision_starting", front.revision),
        (None, ready) if ready >= desired => observed(State::Running, "serving", front.revision),
        (None, 0) => observed(State::Starting, if restarting { "process_ended" } else { "process_started" }, front.revision),
        (None, _) => observed(State::Degraded, "fewer_replicas_than_wanted", front.revision),
    };
    seen.ready = ready;
    seen.endpoints = serving;
    seen.nodes = vec![NODE.to_owned()];
    reporter.report(seen).await;
}
