//! The role's loop: compares what is wanted with what is tended, from the list and the log.

use crate::report::Reporter;
use crate::runtime::Runtimes;
use crate::{endpoint, inference, job};
use reqwest::Client;
use signalbox_domain::workload::{Existing, Workload};
use signalbox_events::workload::{Category, Kind, Spec, State};
use signalbox_events::{AccountId, Aggregate, WorkloadId};
use signalbox_journal::Ledger;
use signalbox_projections::sqlx::PgPool;
use signalbox_projections::workload_list::{self, Cursor, Filter};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long the role waits for a hint before it looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a hint it looks at these distances: a busy list follows the log a little later.
const AFTER_HINT: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(60), Duration::from_millis(200)];

/// The least distance of two looks that hints ask for.
const REST: Duration = Duration::from_millis(150);

/// The role.
pub struct Local {
    /// The log.
    pub ledger: Arc<Ledger>,
    /// The views: they say which workloads there are.
    pub db: PgPool,
    /// What may be started.
    pub runtimes: Runtimes,
    /// The folder for logs and working folders of workloads.
    pub folder: PathBuf,
    /// Calls to processes and endpoints.
    pub http: Client,
}

/// What every tended workload shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub runtimes: Arc<Runtimes>,
    pub http: Client,
    folder: Arc<PathBuf>,
}

impl Shared {
    /// The workload's own folder, made where it is missing.
    pub fn folder(&self, want: &Wanted) -> PathBuf {
        let folder = self.folder.join(&want.object_name);
        if let Err(error) = std::fs::create_dir_all(&folder) {
            tracing::error!(folder = %folder.display(), %error, "cannot make a workload's folder");
        }
        folder
    }
}

/// What is wanted of a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub object_name: String,
    pub spec: Spec,
    pub revision: u32,
    pub suspended: bool,
    pub deleting: bool,
    /// What was last observed of it when the role first saw it.
    pub last: Option<State>,
    /// The role ends.
    pub stop: bool,
}

struct Tended {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl Local {
    /// Tends every workload of this provider until `stop`, then ends their processes in order.
    pub async fn run(self, stop: CancellationToken) {
        let shared = Shared { runtimes: Arc::new(self.runtimes.clone()), http: self.http.clone(), folder: Arc::new(self.folder.clone()) };
        let mut tended: HashMap<Uuid, Tended> = HashMap::new();
        let mut looks: &[Duration] = &[];
        let mut signals: Vec<_> = (0..self.ledger.journal().partitions()).map(|partition| self.ledger.journal().signal(partition)).collect();
        loop {
            for signal in &mut signals {
                signal.borrow_and_update();
            }
            let looked = Instant::now();
            if let Err(error) = self.reconcile(&shared, &mut tended).await {
                tracing::warn!(%error, "the workloads cannot be read and are left as they are");
            }
            let changed = async {
                let changes = signals.iter_mut().map(|signal| Box::pin(signal.changed()));
                let _ = futures_util::future::select_all(changes).await;
                // The list follows the log by a few milliseconds; and most events are about something else.
                tokio::time::sleep(AFTER_HINT[0].max(REST.saturating_sub(looked.elapsed()))).await;
            };
            let pause = looks.first().copied().unwrap_or(LOOK_EVERY);
            tokio::select! {
                () = stop.cancelled() => break,
                () = changed => looks = &AFTER_HINT[1..],
                () = tokio::time::sleep(pause) => looks = looks.get(1..).unwrap_or_default(),
            }
        }
        for workload in tended.values() {
            workload.wanted.send_modify(|wanted| wanted.stop = true);
        }
        for workload in tended.into_values() {
            let _ = workload.task.await;
        }
    }

    async fn reconcile(&self, shared: &Shared, tended: &mut HashMap<Uuid, Tended>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        tended.retain(|_, workload| !workload.task.is_finished() || workload.wanted.borrow().last.is_some_and(State::is_final));
        let filter = Filter { kinds: vec![Kind::LocalInference, Kind::LocalJob, Kind::Endpoint], ..Filter::default() };
        let mut after: Option<Cursor> = None;
        loop {
            let page = workload_list::list(&self.db, &filter, after, 200).await?;
            for row in &page.rows {
                // A job that has ended needs nothing but its deletion.
                if row.category == Category::Job && row.state.is_final() {
                    continue;
                }
                let aggregate = Aggregate::workload(AccountId(row.account), WorkloadId(row.id));
                let state = self.ledger.load::<Workload>(&aggregate).await?;
                let Some(workload) = state.filter(|workload| !workload.deleted) else { continue };
                self.tend(shared, tended, row.id, aggregate, &workload);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn tend(&self, shared: &Shared, tended: &mut HashMap<Uuid, Tended>, id: Uuid, aggregate: Aggregate, workload: &Existing) {
        let Some(spec) = workload.spec().cloned() else { return };
        let kind = spec.kind();
        let wanted = Wanted {
            object_name: workload.object_name.clone(),
            spec,
            revision: workload.revision,
            suspended: workload.suspended,
            deleting: workload.deleting,
            last: workload.observed.as_ref().map(|observed| observed.state),
            stop: false,
        };
        if let Some(known) = tended.get(&id) {
            known.wanted.send_if_modified(|last| {
                let changed = Wanted { last: last.last, ..wanted.clone() } != *last;
                if changed {
                    *last = Wanted { last: last.last, ..wanted };
                }
                changed
            });
            return;
        }
        let reporter = Reporter { ledger: self.ledger.clone(), workload: aggregate };
        let (sender, receiver) = watch::channel(wanted);
        let shared = shared.clone();
        let task = match kind {
            Kind::LocalInference => tokio::spawn(inference::tend(shared, reporter, receiver)),
            Kind::LocalJob => tokio::spawn(job::tend(shared, reporter, receiver)),
            Kind::Endpoint => tokio::spawn(endpoint::tend(shared, reporter, receiver)),
        };
        tended.insert(id, Tended { wanted: sender, task });
    }
}
