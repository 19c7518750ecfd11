//! A whole installation for one test: a nats-server, a database, any number of replicas of the service.

use crate::answer::{Answer, Events};
use crate::{Behaviour, Model};
use chrono::TimeDelta;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use signalbox::bootstrap;
use signalbox::config::{Config, Keys, Nats};
use signalbox::serve::{Role, Service};
use signalbox_domain::{Context, Source};
use signalbox_embedded::nats::{self as server, WorkerUser};
use signalbox_embedded::testing::{Scratch, TestNats, nats, postgres_url, secrets};
use signalbox_local::runtime::Runtimes;
use signalbox_projections::sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An installation.
pub struct World {
    pub config: Config,
    pub services: Vec<Service>,
    pub nats: Option<TestNats>,
    pub scratch: Scratch,
    pub admin: Caller,
}

/// Someone who calls a replica with a key.
#[derive(Clone)]
pub struct Caller {
    pub url: String,
    pub key: String,
    pub http: Client,
}

/// The workers that may connect to every installation of a test.
fn workers() -> Vec<WorkerUser> {
    let user = |pool: &str, worker: String| WorkerUser { pool: pool.to_owned(), worker };
    (1..=9).map(|number| user("eu", format!("gpu-{number:02}"))).chain([user("us", "gpu-11".to_owned())]).collect()
}

/// A database of its own on the shared server.
pub async fn database() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let url = tokio::task::spawn_blocking(postgres_url).await.unwrap();
    let name = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut db = PgConnection::connect(&url).await.unwrap();
    db.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    url.replace("/postgres", &format!("/{name}"))
}

impl World {
    /// An installation with `replicas` of the service: the first plays every role, the others serve the API and workers.
    pub async fn start(replicas: usize) -> Self {
        Self::with(replicas, Runtimes::new()).await
    }

    /// The same with runtimes.
    pub async fn with(replicas: usize, runtimes: Runtimes) -> Self {
        Self::build(replicas, runtimes, signalbox::clock::source()).await
    }

    /// One replica with the pools `eu` and `us`, whose clock a test can set forward.
    pub async fn clocked() -> (Self, Arc<AtomicI64>) {
        let ahead = Arc::new(AtomicI64::new(0));
        let (real, shift) = (signalbox::clock::source(), ahead.clone());
        let source: Source = Arc::new(move || {
            let context = real();
            Context { now: context.now + TimeDelta::seconds(shift.load(Ordering::SeqCst)), ..context }
        });
        let world = Self::build(1, Runtimes::new(), source).await;
        world.make_pools().await;
        (world, ahead)
    }

    async fn build(replicas: usize, runtimes: Runtimes, source: Source) -> Self {
        crate::ready();
        let (server, database_url) = tokio::join!(nats(|options| options.workers = workers()), database());
        let server = server.unwrap();
        let scratch = Scratch::new("world");
        let config = config(server.server.url(), database_url, &scratch, runtimes);
        let mut world = Self {
            config,
            services: vec![],
            nats: Some(server),
            scratch,
            admin: Caller { url: String::new(), key: String::new(), http: Client::builder().no_proxy().build().unwrap() },
        };
        for replica in 0..replicas {
            let roles = if replica == 0 { vec![Role::All] } else { vec![Role::Api, Role::Leases] };
            world.services.push(Service::start_at(&world.config, &roles, source.clone()).await.unwrap());
        }
        let key = bootstrap::bootstrap(&world.services[0].ledger).await.unwrap().unwrap();
        world.admin = Caller { key: key.secret, ..world.caller(0, "") };
        world.admin.usable().await;
        world
    }

    /// The same with the pools `eu` and `us`.
    pub async fn pools(replicas: usize) -> Self {
        let world = Self::start(replicas).await;
        world.make_pools().await;
        world
    }

    async fn make_pools(&self) {
        for pool in ["eu", "us"] {
            let tier = u32::from(pool == "us");
            let done = self.admin.post("/v1/pools", json!({"id": pool, "tier": tier})).await.ok();
            let after = done["position"].as_str().unwrap();
            self.admin.get(&format!("/v1/pools?after={after}")).await.ok();
        }
    }

    /// The same with inference switched on.
    pub async fn ready(replicas: usize) -> Self {
        let world = Self::start(replicas).await;
        world.admin.send(Method::PUT, "/v1/settings/platform/inference", json!({"enabled": true})).await.ok();
        world
    }

    /// A caller of a replica.
    pub fn caller(&self, replica: usize, key: &str) -> Caller {
        let url = format!("http://{}", self.services[replica].address.unwrap());
        Caller { url, key: key.to_owned(), http: self.admin.http.clone() }
    }

    /// The admin, calling another replica.
    pub fn admin_at(&self, replica: usize) -> Caller {
        self.caller(replica, &self.admin.key)
    }

    /// A member of an account of its own.
    pub async fn stranger(&self, name: &str) -> Caller {
        let account = self.admin.send(Method::POST, "/v1/accounts", json!({"name": name})).await.ok()["id"].as_str().unwrap().to_owned();
        let member = json!({"name": name, "roles": ["member", "account_admin"]});
        let member = self.admin.send(Method::POST, &format!("/v1/accounts/{account}/members"), member).await.ok();
        let key = json!({"label": "test", "roles": ["member", "account_admin"], "principal": member["id"]});
        let key = self.admin.send(Method::POST, &format!("/v1/accounts/{account}/keys"), key).await.ok();
        let caller = Caller { key: key["secret"].as_str().unwrap().to_owned(), ..self.admin.clone() };
        caller.usable().await;
        caller
    }

    /// A model that is deployed as an endpoint, with the name that requests use.
    pub async fn model(&self, behaviour: Behaviour) -> (Model, String, String) {
        let model = Model::start(behaviour).await;
        let (workload, route) = self.admin.endpoint(&model).await;
        (model, workload, route)
    }

    /// Waits until a worker is ready.
    pub async fn claims(&self, worker: &str) {
        for _ in 0..1000 {
            let shown = self.admin.get("/v1/workers").await.ok();
            let ready = |row: &Value| row["id"] == worker && row["state"] == "ready";
            if shown["items"].as_array().unwrap().iter().any(ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{worker} does not become ready");
    }

    /// Every message of the log, as subject and bytes.
    pub async fn log(&self) -> Vec<signalbox_journal::Stored> {
        self.services[0].ledger.journal().read(0, ">", 0, 100_000).await.unwrap().0
    }

    /// Stops everything in order.
    pub async fn stop(mut self) {
        for service in self.services.drain(..) {
            service.stop().await;
        }
        if let Some(nats) = self.nats.take() {
            nats.server.stop().await;
        }
    }
}

/// The configuration of an installation on these servers.
pub fn config(nats_url: String, database_url: String, scratch: &Scratch, runtimes: Runtimes) -> Config {
    let secrets = secrets();
    Config {
        listen: "127.0.0.1:0".to_owned(),
        database_url,
        nats: Nats {
            url: nats_url,
            user: Some(server::USER.to_owned()),
            password: Some(secrets.nats),
            auditor_user: Some(server::AUDITOR.to_owned()),
            auditor_password: Some(secrets.nats_auditor),
            auditor_api: Some(server::AUDIT_API.to_owned()),
            system_user: Some(server::GATE.to_owned()),
            system_password: Some(secrets.nats_gate),
            partitions: 1,
            replicas: 1,
        },
        durability: "strict".to_owned(),
        keys: Keys { master: secrets.master_key, cursor: secrets.cursor_key, checkpoint: secrets.checkpoint_key },
        checkpoints: scratch.path().join("checkpoints"),
        workloads: scratch.path().join("workloads"),
        runtimes,
    }
}

impl Caller {
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        Answer::read(self.request(method, path).json(&body).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    /// A stream of answers.
    pub async fn stream(&self, path: &str, body: Value) -> Events {
        let response = self.request(Method::POST, path).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events::new(response)
    }

    /// Deploys a model as an endpoint and waits until it runs. Answers with its id and its name in requests.
    pub async fn endpoint(&self, model: &Model) -> (String, String) {
        let spec = json!({"kind": "endpoint", "url": model.url, "model": "fake"});
        let done = self.post("/v1/workloads", json!({"name": "fake", "spec": spec})).await.ok();
        let row = self.reaches(done["id"].as_str().unwrap(), "running").await;
        (row["id"].as_str().unwrap().to_owned(), row["route_name"].as_str().unwrap().to_owned())
    }

    /// Starts a conversation.
    pub async fn conversation(&self, workload: &str) -> String {
        self.post("/v1/conversations", json!({"workload": workload})).await.ok()["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a workload is in a state.
    pub async fn reaches(&self, workload: &str, state: &str) -> Value {
        let until = Instant::now() + Duration::from_secs(60);
        let mut last = Value::Null;
        while Instant::now() < until {
            let answer = self.get(&format!("/v1/workloads/{workload}")).await;
            last = answer.json();
            if last["state"] == state || (state == "deleted" && answer.status == 404) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{workload} does not become {state}: {last}");
    }

    /// Waits until the key is known to the view.
    async fn usable(&self) {
        for _ in 0..500 {
            if self.get("/v1/settings").await.status == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the key does not come to work");
    }
}
