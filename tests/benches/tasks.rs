//! The full cycle of a task, accept, claim, redeem, report, visible in the view, beside other queues in one run: the same
//! machine, the same PostgreSQL, every commit synced. How each peer is set up: `tests/benches/peers/README.md`.
//!
//! `cargo bench -p signalbox-tests --bench tasks` (peers are installed into a folder of their own; without network they are
//! left out with a line that says so); `-- signalbox` for ours alone.

use futures_util::FutureExt;
use serde_json::{Value, json};
use signalbox_embedded::testing::{Scratch, nats, secrets};
use signalbox_embedded::{nats::WorkerUser, postgres, provision};
use signalbox_events::IncarnationId;
use signalbox_projections::sqlx::{self, AssertSqlSafe, Connection, Executor, PgConnection, PgPool};
use signalbox_tests::world::config;
use signalbox_worker::{Capabilities, Done, Handler, Job, Options};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Slots of one worker process of ours.
const SLOTS: usize = 8;

fn main() {
    signalbox_tests::ready();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        println!("machine: {cores} cores; PostgreSQL: fsync and synchronous_commit on; NATS: one server, file, sync_interval always, encrypted");
        println!("load: one task at a time is added until 2 x workers are outstanding; handlers do nothing; 10 % of the jobs go ahead to warm up");
        let scratch = Scratch::new("bench");
        let programs = postgres::programs(&provision::default_cache(), &|_: &str| {}).await.unwrap();
        let settings = [("max_connections", "300"), ("synchronous_commit", "on"), ("fsync", "on")];
        let database =
            postgres::Server::start_with(&programs, &scratch.path().join("data"), &scratch.path().join("log"), &secrets(), &settings).await.unwrap();
        let alone = std::env::args().any(|argument| argument == "signalbox");
        let peers = if alone { Peers(vec![]) } else { Peers::install() };
        for workers in [1, 16, 64] {
            // Enough for some seconds of each.
            let jobs = [300, 1500, 3000][[1, 16, 64].iter().position(|known| *known == workers).unwrap()];
            for peer in &peers.0 {
                let url = fresh(&database.url(), &format!("{}_{workers}", peer.name)).await;
                show(&peer.run(&url, workers, jobs));
            }
            for (partitions, accounts) in [(1, 1), (4, 8)] {
                let url = fresh(&database.url(), &format!("signalbox_{workers}_{partitions}")).await;
                show(&ours(&scratch, &url, workers, jobs, partitions, accounts).await);
            }
        }
        database.stop().await;
    });
}

fn show(found: &Value) {
    let text = |name: &str| found[name].as_str().map_or_else(|| found[name].to_string(), str::to_owned);
    let number = |name: &str| found[name].as_f64().unwrap_or_default();
    println!(
        "{:>3} workers  {:<16} {:>8.0} tasks/s   p50 {:>7.1} ms   p99 {:>7.1} ms   {}",
        number("workers"),
        format!("{} {}", text("peer"), text("version")),
        number("jobs_per_second"),
        number("p50_ms"),
        number("p99_ms"),
        text("options"),
    );
}

/// A database of its own.
async fn fresh(url: &str, name: &str) -> String {
    let name = name.replace('-', "_");
    let mut db = PgConnection::connect(url).await.unwrap();
    db.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

struct Peer {
    name: &'static str,
    command: Vec<String>,
    folder: PathBuf,
}

struct Peers(Vec<Peer>);

impl Peers {
    /// Installs what the scripts need beside the build.
    fn install() -> Self {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        std::fs::create_dir_all(&home).unwrap();
        for entry in std::fs::read_dir(&scripts).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            std::fs::copy(entry.path(), home.join(entry.file_name())).unwrap();
        }
        let run = |program: &str, arguments: &[&str]| {
            let status = Command::new(program).args(arguments).current_dir(&home).stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let mut peers = Vec::new();
        if run("npm", &["install", "--no-audit", "--no-fund"]) {
            // The packages ask for a newer Node than many systems have, and bring it.
            let own = home.join("node_modules/.bin/node");
            let node = if own.exists() { own.display().to_string() } else { "node".to_owned() };
            for (name, script) in [("graphile-worker", "graphile.mjs"), ("pg-boss", "pgboss.mjs")] {
                peers.push(Peer { name, command: vec![node.clone(), script.to_owned()], folder: home.clone() });
            }
        } else {
            println!("graphile-worker and pg-boss are left out: npm could not install them");
        }
        let python = home.join("venv/bin/python").display().to_string();
        if run("python3", &["-m", "venv", "venv"]) && run(&python, &["-m", "pip", "install", "-q", "-r", "requirements.txt"]) {
            peers.push(Peer { name: "procrastinate", command: vec![python, "procrastinate_bench.py".to_owned()], folder: home });
        } else {
            println!("procrastinate is left out: pip could not install it");
        }
        Self(peers)
    }
}

impl Peer {
    fn run(&self, url: &str, workers: usize, jobs: usize) -> Value {
        let output = Command::new(&self.command[0])
            .args(&self.command[1..])
            .args([url, &workers.to_string(), &jobs.to_string()])
            .current_dir(&self.folder)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(text.trim()).unwrap_or_else(|_| json!({"peer": self.name, "workers": workers, "options": "FAILED"}))
    }
}

/// A handler that redeems and does nothing.
struct Nothing;

impl Handler for Nothing {
    fn execute<'a>(&'a self, job: &'a mut Job) -> futures_util::future::BoxFuture<'a, Done> {
        async move {
            match job.redeem().await {
                Ok(()) => Done::Succeeded { result: "{}".to_owned(), usage: None },
                Err(error) => Done::Released(error.to_string().split_whitespace().next().unwrap_or("refused").to_lowercase()),
            }
        }
        .boxed()
    }
}

/// Tasks whose end somebody waits for.
type Waiting = Arc<Mutex<HashMap<Uuid, oneshot::Sender<()>>>>;

/// Tells who waits once the view shows the end: one query for all of them.
async fn watch(db: PgPool, waiting: Waiting, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let ids: Vec<Uuid> = waiting.lock().unwrap().keys().copied().collect();
        let sql = "SELECT id FROM task_v1 WHERE id = ANY($1) AND state = 'succeeded'";
        let ended: Vec<Uuid> = sqlx::query_scalar(sql).bind(&ids).fetch_all(&db).await.unwrap();
        for id in ended {
            if let Some(told) = waiting.lock().unwrap().remove(&id) {
                let _ = told.send(());
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Where the time goes: the medians of each step's decision after the acceptance.
async fn stages(db: &PgPool) -> String {
    let sql = "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM leased_at - accepted_at) * 1000)::float8,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM redeemed_at - accepted_at) * 1000)::float8,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - accepted_at) * 1000)::float8 FROM task_v1";
    let (leased, redeemed, ended): (f64, f64, f64) = sqlx::query_as(sql).fetch_one(db).await.unwrap();
    format!("leased {leased:.1}, redeemed {redeemed:.1}, ended {ended:.1}")
}

/// Ours, over HTTP from the submission on. A partition is a stream of its own, synced on its own; an account stays in one.
async fn ours(scratch: &Scratch, url: &str, workers: usize, jobs: usize, partitions: u16, accounts: usize) -> Value {
    let processes = workers.div_ceil(SLOTS);
    let users: Vec<WorkerUser> = (1..=processes).map(|number| WorkerUser { pool: "eu".to_owned(), worker: format!("gpu-{number:02}") }).collect();
    let server = nats(|options| options.workers = users.clone()).await.unwrap();
    let mut config = config(server.server.url(), url.to_owned(), scratch, Default::default());
    config.nats.partitions = partitions;
    let service = signalbox::serve::Service::start(&config, &[signalbox::serve::Role::All]).await.unwrap();
    let key = signalbox::bootstrap::bootstrap(&service.ledger).await.unwrap().unwrap().secret;
    let (address, http) = (service.address.unwrap(), reqwest::Client::builder().no_proxy().pool_max_idle_per_host(256).build().unwrap());
    let post = async |key: &str, path: &str, body: Value| {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = http.post(format!("http://{address}{path}")).bearer_auth(key).json(&body).send().await.unwrap();
            if answer.status().is_success() {
                return answer.json::<Value>().await.unwrap();
            }
            assert!(Instant::now() < until, "{}", answer.text().await.unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    post(&key, "/v1/pools", json!({"id": "eu"})).await;
    let mut keys = vec![key.clone()];
    for number in 1..accounts {
        let account = post(&key, "/v1/accounts", json!({"name": format!("account {number}")})).await["id"].as_str().unwrap().to_owned();
        let member = post(&key, &format!("/v1/accounts/{account}/members"), json!({"name": "member", "roles": ["member"]})).await;
        let issued = json!({"label": "bench", "roles": ["member"], "principal": member["id"]});
        let issued = post(&key, &format!("/v1/accounts/{account}/keys"), issued).await;
        keys.push(issued["secret"].as_str().unwrap().to_owned());
    }
    let stop = CancellationToken::new();
    let mut running = Vec::new();
    for (number, user) in users.iter().enumerate() {
        let options = Options {
            url: config.nats.url.clone(),
            seed: signalbox_embedded::nats::worker_key(&secrets(), &user.worker).unwrap().seed().unwrap(),
            pool: "eu".parse().unwrap(),
            worker: user.worker.parse().unwrap(),
            incarnation: IncarnationId(Uuid::from_u128(number as u128 + 1)),
            version: "bench".to_owned(),
            capabilities: Capabilities { kinds: vec!["*".to_owned()], streaming: true },
            slots: u32::try_from(workers.min(SLOTS)).unwrap(),
            secret: [7; 32],
        };
        running.push(tokio::spawn(signalbox_worker::run(options, Nothing, stop.clone())));
    }
    let waiting = Waiting::default();
    let watcher = tokio::spawn(watch(service.db.clone(), waiting.clone(), stop.clone()));
    let cycle = async |lane: usize| {
        let begun = Instant::now();
        let done = post(&keys[lane % keys.len()], "/v1/tasks", json!({"kind": "bench.nothing", "payload": {"n": 1}, "pool": "eu"})).await;
        let (told, hear) = oneshot::channel();
        waiting.lock().unwrap().insert(done["id"].as_str().unwrap().parse().unwrap(), told);
        hear.await.unwrap();
        begun.elapsed()
    };
    let rounds = async |jobs: usize| {
        let left = std::cell::Cell::new(jobs);
        let lanes = (0..2 * workers).map(async |lane| {
            let mut seen = Vec::new();
            while left.get() > 0 {
                left.set(left.get() - 1);
                seen.push(cycle(lane).await);
            }
            seen
        });
        futures_util::future::join_all(lanes).await.concat()
    };
    rounds(jobs / 10).await;
    let begun = Instant::now();
    let mut seen = rounds(jobs).await;
    let seconds = begun.elapsed().as_secs_f64();
    seen.sort();
    let at = |part: f64| seen[((seen.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    let found = json!({
        "peer": "signalbox", "version": env!("CARGO_PKG_VERSION"), "workers": workers, "jobs": jobs, "seconds": seconds,
        "jobs_per_second": jobs as f64 / seconds, "p50_ms": at(0.5), "p99_ms": at(0.99),
        "options": format!(
            "{accounts} accounts, {partitions} partitions, {processes} workers x {} slots, over HTTP; ms from accepted to {}",
            workers.min(SLOTS),
            stages(&service.db).await
        ),
    });
    stop.cancel();
    for worker in running {
        let _ = worker.await;
    }
    let _ = watcher.await;
    service.stop().await;
    server.server.stop().await;
    found
}
