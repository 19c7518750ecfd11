//! Workers of tests: a bare one that says exactly what a test wants, and the library with a handler of the test's.

use crate::World;
use async_nats::{Client, ConnectOptions, HeaderMap};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use signalbox_embedded::nats::worker_key;
use signalbox_embedded::testing::secrets;
use signalbox_events::work::*;
use signalbox_events::{IncarnationId, PoolId, WorkerId};
use signalbox_worker::openai::OpenAi;
use signalbox_worker::{Capabilities, Done, Handler, Job, Options};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A worker that says only what it is told to say.
pub struct Bare {
    pub client: Client,
    pub pool: PoolId,
    pub worker: WorkerId,
    pub incarnation: IncarnationId,
    pub form: Form,
}

fn seed(worker: &str) -> String {
    worker_key(&secrets(), worker).unwrap().seed().unwrap()
}

/// A connection with a worker's own credential.
pub async fn connection(world: &World, worker: &str) -> Client {
    let url = world.config.nats.url.clone();
    let options = ConnectOptions::with_nkey(seed(worker)).custom_inbox_prefix(format!("_INBOX_{worker}"));
    // Longer than any claim waits.
    options.request_timeout(Some(std::time::Duration::from_secs(45))).connect(url).await.unwrap()
}

impl Bare {
    /// A worker that has said hello.
    pub async fn hello(world: &World, pool: &str, worker: &str, number: u128) -> Self {
        let bare = Self::silent(world, pool, worker, number).await;
        let capabilities = Capabilities { kinds: vec!["*".to_owned()], streaming: true };
        let hello = Hello { protocol: PROTOCOL, incarnation: bare.incarnation, version: "test".to_owned(), capabilities, slots: 8, public_key: None };
        bare.ask::<Welcome>(Verb::Hello, &hello).await.unwrap();
        bare
    }

    /// A worker that has not.
    pub async fn silent(world: &World, pool: &str, worker: &str, number: u128) -> Self {
        Self {
            client: connection(world, worker).await,
            pool: pool.parse().unwrap(),
            worker: worker.parse().unwrap(),
            incarnation: IncarnationId(Uuid::from_u128(number)),
            form: Form::MessagePack,
        }
    }

    /// Asks, and gets an answer or a refusal's code.
    pub async fn ask<T: DeserializeOwned>(&self, verb: Verb, body: &impl Serialize) -> Result<T, String> {
        let mut headers = HeaderMap::new();
        if self.form == Form::Json {
            headers.insert(TYPE_HEADER, JSON);
        }
        let subject = request_subject(&self.pool, &self.worker, verb);
        let payload = self.form.write(body).unwrap().into();
        let answer = self.client.request_with_headers(subject, headers, payload).await.unwrap();
        match answer.headers.as_ref().and_then(|headers| headers.get(ERROR_HEADER)) {
            Some(code) => Err(code.as_str().to_owned()),
            None => Ok(self.form.read(&answer.payload).unwrap()),
        }
    }

    /// Claims, waiting a while.
    pub async fn claim(&self, wait_ms: u64) -> Option<Assignment> {
        self.ask::<Claimed>(Verb::Claim, &Claim { incarnation: self.incarnation, wait_ms }).await.unwrap().task
    }

    /// Redeems with the nonce of that number.
    pub async fn redeem(&self, task: &Assignment, nonce: u128) -> Result<Redeemed, String> {
        let redeem = Redeem { incarnation: self.incarnation, lease: lease(task), token: task.token.clone(), nonce: Uuid::from_u128(nonce) };
        self.ask(Verb::Redeem, &redeem).await
    }

    /// Reports an outcome, with a result where it succeeded.
    pub async fn report(&self, task: &Assignment, outcome: Outcome) -> Result<Taken, String> {
        let report = Report {
            incarnation: self.incarnation,
            lease: lease(task),
            outcome,
            code: Some("test".to_owned()),
            upstream_status: None,
            upstream_id: Some("up-1".to_owned()),
            retryable: true,
            retry_after_seconds: None,
            result: (outcome == Outcome::Succeeded).then(|| "{\"by\":\"bare\"}".to_owned()),
            parts: None,
            detail: None,
            usage: None,
        };
        self.ask(Verb::Report, &report).await
    }

    /// Renews, and gets the state of the one lease.
    pub async fn renew(&self, task: &Assignment) -> LeaseState {
        let renew = Renew { incarnation: self.incarnation, free_slots: 1, leases: vec![lease(task)] };
        self.ask::<Renewed>(Verb::Renew, &renew).await.unwrap().leases.remove(0)
    }
}

/// The name of an assignment's lease.
pub fn lease(task: &Assignment) -> LeaseRef {
    LeaseRef { account: task.account, task: task.task, epoch: task.epoch }
}

struct With<F>(F);

impl<F> Handler for With<F>
where
    F: for<'a> Fn(&'a mut Job) -> BoxFuture<'a, Done> + Send + Sync + 'static,
{
    fn execute<'a>(&'a self, job: &'a mut Job) -> BoxFuture<'a, Done> {
        (self.0)(job)
    }
}

/// How a worker of tests runs.
fn options(world: &World, pool: &str, worker: &str, number: u128) -> Options {
    Options {
        url: world.config.nats.url.clone(),
        seed: seed(worker),
        pool: pool.parse().unwrap(),
        worker: worker.parse().unwrap(),
        incarnation: IncarnationId(Uuid::from_u128(number)),
        version: "test".to_owned(),
        capabilities: Capabilities { kinds: vec!["*".to_owned()], streaming: true },
        slots: 8,
        secret: [7; 32],
    }
}

/// A worker that runs, and what ends it.
pub type Running = (CancellationToken, JoinHandle<Result<(), signalbox_worker::Error>>);

/// The library's worker with a handler; it runs until the token is cancelled.
pub fn start<F>(world: &World, pool: &str, worker: &str, number: u128, handler: F) -> Running
where
    F: for<'a> Fn(&'a mut Job) -> BoxFuture<'a, Done> + Send + Sync + 'static,
{
    let stop = CancellationToken::new();
    (stop.clone(), tokio::spawn(signalbox_worker::run(options(world, pool, worker, number), With(handler), stop)))
}

/// The reference worker, once it claims.
pub async fn reference(world: &World, pool: &str, worker: &str, number: u128) -> Running {
    let stop = CancellationToken::new();
    let handler = OpenAi { http: signalbox_worker::upstream::client().unwrap() };
    let running = tokio::spawn(signalbox_worker::run(options(world, pool, worker, number), handler, stop.clone()));
    world.claims(worker).await;
    (stop, running)
}
