//! Everything is killed at random under load: processes of the service, workers, NATS, PostgreSQL. A ledger that none of them
//! sees counts what reached the upstream.
//!
//! `SIGNALBOX_CHAOS_SECONDS=600 cargo test -p signalbox-tests --test chaos` for a long run; `SIGNALBOX_CHAOS_SEED` repeats the choices.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use signalbox::config::Config;
use signalbox::{bootstrap, serve};
use signalbox_domain::task::invariant;
use signalbox_embedded::nats::{WorkerUser, write_worker_seed};
use signalbox_embedded::testing::{Scratch, nats, secrets};
use signalbox_embedded::{postgres, provision};
use signalbox_events::{AccountId, Aggregate, Fact, TaskId};
use signalbox_projections::sqlx::PgPool;
use signalbox_tests::invariants;
use signalbox_tests::world::config;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const WORKERS: usize = 3;
/// Tasks that wait or run at once.
const LOAD: usize = 40;

/// The same choices for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// The upstream, and what it has been asked: on disk before it answers.
struct Upstream {
    ledger: Mutex<File>,
    dice: Mutex<Dice>,
    /// By task: requests that it took, and those that it refused.
    asked: Mutex<HashMap<String, (u32, u32)>>,
}

async fn completions(State(upstream): State<Arc<Upstream>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let task = body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    let fate = upstream.dice.lock().unwrap().roll(100);
    let refused = fate < 10;
    {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or("none").to_owned();
        let mut ledger = upstream.ledger.lock().unwrap();
        writeln!(ledger, "{task} {key} {}", if refused { "refused" } else { "taken" }).unwrap();
        ledger.sync_data().unwrap();
        let mut asked = upstream.asked.lock().unwrap();
        let counts = asked.entry(task.clone()).or_default();
        if refused { counts.1 += 1 } else { counts.0 += 1 }
    }
    if refused {
        return (StatusCode::TOO_MANY_REQUESTS, Json(json!({"error": {"message": "slow down"}}))).into_response();
    }
    tokio::time::sleep(Duration::from_millis(5 * fate)).await;
    if fate < 15 {
        // The connection breaks without an answer: nobody can know.
        let broken = futures_util::stream::once(async { Err::<bytes::Bytes, _>(std::io::Error::other("the connection breaks")) });
        return Response::new(axum::body::Body::from_stream(broken));
    }
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": task}, "finish_reason": "stop"});
    Json(json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})).into_response()
}

async fn listing() -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": "fake", "object": "model"}]}))
}

/// The product's own binary, built beside the tests.
fn binary() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("signalbox");
    assert!(path.exists(), "{} is not built: run the tests with --workspace", path.display());
    path
}

/// A process that is started again whenever it was killed.
struct Victim {
    name: String,
    arguments: Vec<String>,
    log: PathBuf,
    child: Child,
}

impl Victim {
    fn start(name: &str, arguments: Vec<String>, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let child = Self::spawn(&arguments, &log);
        Self { name: name.to_owned(), arguments, log, child }
    }

    fn spawn(arguments: &[String], log: &Path) -> Child {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(binary());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        command.spawn().unwrap()
    }

    async fn kill(&mut self) {
        let _ = self.child.kill().await;
        self.child = Self::spawn(&self.arguments, &self.log);
    }

    /// Started again where it has ended by itself: a worker does so when another start of it was seen.
    fn tend(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            self.child = Self::spawn(&self.arguments, &self.log);
        }
    }
}

struct Client {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Client {
    /// Asks until there is an answer that is not our own trouble.
    async fn insist(&self, method: reqwest::Method, path: &str, once: &str, body: Option<Value>) -> Value {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let mut request = self.http.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(&self.key);
            request = request.header("idempotency-key", once).timeout(Duration::from_secs(10));
            if let Some(body) = &body {
                request = request.json(body);
            }
            if let Ok(response) = request.send().await {
                let status = response.status().as_u16();
                let text = response.text().await.unwrap_or_default();
                // A view that lags does not know the key or the model yet.
                if status < 300 {
                    return serde_json::from_str(&text).unwrap();
                }
                assert!(status >= 401, "{path}: {status} {text}");
            }
            assert!(Instant::now() < until, "{path} is not answered");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_no_task_is_lost_and_none_is_sent_twice() {
    signalbox_tests::ready();
    let clock = u64::try_from(signalbox::clock::now().timestamp()).unwrap();
    let (seed, seconds) = (setting("SIGNALBOX_CHAOS_SEED", clock), setting("SIGNALBOX_CHAOS_SECONDS", 25));
    println!("chaos: seed {seed}, {seconds} s of kills");
    let mut dice = Dice(seed);
    let scratch = Scratch::new("chaos");
    let users: Vec<WorkerUser> = (1..=WORKERS).map(|number| WorkerUser { pool: "eu".to_owned(), worker: format!("gpu-{number:02}") }).collect();
    let nats = nats(|options| options.workers = users.clone()).await.unwrap();
    let programs = postgres::programs(&provision::default_cache(), &|_: &str| {}).await.unwrap();
    let database = postgres::Server::start(&programs, &scratch.path().join("data"), &scratch.path().join("postgres.log"), &secrets()).await.unwrap();
    // Below the ports that the system gives to connections: one of those could take it while the service is down.
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (0..100).map(|_| u16::try_from(20_000 + dice.roll(12_000)).unwrap()).find(free).unwrap();
    let mut config: Config = config(nats.server.url(), database.url(), &scratch, Default::default());
    config.listen = format!("127.0.0.1:{port}");
    let file = scratch.path().join("signalbox.toml");
    std::fs::write(&file, toml::to_string(&config).unwrap()).unwrap();

    // The upstream, outside of everything that is killed.
    let ledger = Mutex::new(File::create(scratch.path().join("upstream.ledger")).unwrap());
    let upstream = Arc::new(Upstream { ledger, dice: Mutex::new(Dice(seed ^ 1)), asked: Mutex::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/v1/chat/completions", post(completions)).route("/v1/models", axum::routing::get(listing));
    let router = router.with_state(upstream.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let (_, log) = serve::ledger(&config).await.unwrap();
    let key = bootstrap::bootstrap(&log).await.unwrap().unwrap().secret;
    let mut victims = Vec::new();
    let service = |role: &str| ["serve", "--role", role, "--config", &file.display().to_string()].map(str::to_owned).to_vec();
    victims.push(Victim::start("api", service("api,projector"), scratch.path()));
    for number in 1..=2 {
        victims.push(Victim::start(&format!("leases-{number}"), service("leases"), scratch.path()));
    }
    for user in &users {
        let seed = write_worker_seed(&secrets(), scratch.path(), &user.worker).unwrap().display().to_string();
        let url = nats.server.url();
        let arguments = ["worker", "run", "--pool", "eu", "--id", &user.worker, "--nats", &url, "--seed-file", &seed];
        victims.push(Victim::start(&user.worker, arguments.map(str::to_owned).to_vec(), scratch.path()));
    }
    let client = Arc::new(Client { http: reqwest::Client::builder().no_proxy().build().unwrap(), url: format!("http://127.0.0.1:{port}"), key });
    client.insist(reqwest::Method::POST, "/v1/pools", "pool", Some(json!({"id": "eu"}))).await;
    client.insist(reqwest::Method::PUT, "/v1/settings/platform/inference", "on", Some(json!({"enabled": true}))).await;
    let model = json!({"name": "example", "base_url": format!("http://{address}/v1"), "models": [{"name": "m"}]});
    client.insist(reqwest::Method::POST, "/v1/upstreams", "upstream", Some(model)).await;

    // Load: each submission is repeated under its key until it is taken.
    let begun = Instant::now();
    let until = begun + Duration::from_secs(seconds);
    let submitters: Vec<_> = (0..LOAD / 10)
        .map(|lane| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while Instant::now() < until {
                    let name = format!("task-{lane}-{}", taken.len());
                    let payload = json!({"model": "example/m", "messages": [{"role": "user", "content": name}]});
                    let body = json!({"kind": "chat.completions", "payload": payload, "pool": "eu"});
                    let done = client.insist(reqwest::Method::POST, "/v1/tasks", &name, Some(body)).await;
                    taken.push((name, done["id"].as_str().unwrap().parse::<TaskId>().unwrap()));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                taken
            })
        })
        .collect();
    let mut kills: BTreeMap<String, u32> = BTreeMap::new();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(700 + dice.roll(1500))).await;
        let choice = usize::try_from(dice.roll(victims.len() as u64 + 2)).unwrap();
        let name = match victims.get_mut(choice) {
            Some(victim) => {
                victim.kill().await;
                victim.name.clone()
            }
            None => {
                let (name, id) = if choice == victims.len() { ("nats", nats.server.id()) } else { ("postgres", database.id()) };
                let _ = kill(Pid::from_raw(i32::try_from(id).unwrap()), Signal::SIGKILL);
                name.to_owned()
            }
        };
        *kills.entry(name).or_default() += 1;
        victims.iter_mut().for_each(Victim::tend);
    }
    let mut tasks = Vec::new();
    for submitter in submitters {
        tasks.extend(submitter.await.unwrap());
    }

    // Calm: every task comes to an end, or to an operator.
    let settled = Instant::now() + Duration::from_secs(240);
    let account: AccountId = {
        let shown = client.insist(reqwest::Method::GET, "/v1/tasks?limit=1", "look", None).await;
        shown["items"][0]["account"].as_str().unwrap().parse().unwrap()
    };
    let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
    for (name, task) in &tasks {
        loop {
            victims.iter_mut().for_each(Victim::tend);
            let state = log.load::<signalbox_domain::task::Task>(&Aggregate::task(account, *task)).await;
            let state = state.ok().flatten().map(|task| task.state);
            match state {
                Some(state) if state.is_terminal() || state == signalbox_events::task::State::SubmissionUnknown => {
                    *states.entry(state.as_str()).or_default() += 1;
                    break;
                }
                state => assert!(Instant::now() < settled, "{name} ({task}) is stuck: {state:?}; seed {seed}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    // Facts: every history is sound, and what was sent is what the ledger saw.
    let asked = upstream.asked.lock().unwrap().clone();
    let (mut sent, mut refused) = (0, 0);
    for (name, task) in &tasks {
        let history = log.raw_history(&Aggregate::task(account, *task), 0).await.unwrap();
        let events: Vec<_> = history.iter().filter_map(|recorded| if let Fact::Task(event) = &recorded.fact { Some(event) } else { None }).collect();
        invariant::check(events.iter().copied()).unwrap_or_else(|violation| panic!("{name} ({task}): {violation}; seed {seed}"));
        let (taken, no) = asked.get(name).copied().unwrap_or_default();
        assert!(taken <= 1, "{name} ({task}) was sent {taken} times; seed {seed}");
        let redeemed = events.iter().filter(|event| matches!(event, signalbox_events::task::Event::TokenRedeemed(_))).count();
        assert!(taken + no <= u32::try_from(redeemed).unwrap(), "{name}: sent without a redeemed token; seed {seed}");
        let succeeded = events.iter().any(|event| matches!(event, signalbox_events::task::Event::Succeeded(_)));
        assert!(!succeeded || taken == 1, "{name} succeeded without having been sent; seed {seed}");
        (sent, refused) = (sent + taken, refused + no);
    }
    let strangers = asked.keys().filter(|name| !tasks.iter().any(|(known, _)| known == *name)).count();
    // A submission whose answer was lost is repeated under its key, so the ledger knows no task that nobody was told of.
    assert_eq!(strangers, 0, "seed {seed}");
    // The views agree once they have followed.
    let db = PgPool::connect(&database.url()).await.unwrap();
    let caught_up = Instant::now() + Duration::from_secs(60);
    loop {
        let shown: i64 = signalbox_projections::sqlx::query_scalar(
            "SELECT count(*) FROM task_v1 WHERE state IN ('succeeded', 'failed', 'cancelled', 'dead_lettered', 'submission_unknown')",
        )
        .fetch_one(&db)
        .await
        .unwrap_or(0);
        if shown == i64::try_from(tasks.len()).unwrap() {
            break;
        }
        assert!(Instant::now() < caught_up, "the view shows {shown} of {} tasks; seed {seed}", tasks.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(invariants::broken(&db).await, Vec::<String>::new(), "seed {seed}");
    println!("chaos: seed {seed}; {} tasks: {states:?}; upstream took {sent} and refused {refused}; 0 lost, 0 sent twice", tasks.len());
    println!("chaos: killed {kills:?} in {:.0} s", begun.elapsed().as_secs_f64());
    assert!(tasks.len() > 20 && kills.values().sum::<u32>() >= 5, "too little happened");
    for victim in &mut victims {
        let _ = victim.child.kill().await;
    }
    db.close().await;
    database.stop().await;
    nats.server.stop().await;
}
