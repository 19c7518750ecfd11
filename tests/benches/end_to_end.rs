//! Commands beside raw publishes, the projector beside raw UNNEST, a streamed turn beside the model itself: each pair in
//! one run on one machine, so that the ratio means something.
//!
//! `cargo bench -p signalbox-tests --bench end_to_end`

use futures_util::future::join_all;
use serde_json::{Value, json};
use signalbox_domain::setting::{Setting, Switch};
use signalbox_events::setting::InferenceSwitched;
use signalbox_events::workload::{Deployed, Event, Spec};
use signalbox_events::{AccountId, Aggregate, Envelope, Fact, Micros, Position, PrincipalId, Recorded, WorkloadId};
use signalbox_journal::{Append, Request, Requester};
use signalbox_projections::sqlx::{self, PgPool};
use signalbox_projections::workload_list::View;
use signalbox_projections::{Projection, checkpoint};
use signalbox_tests::answer::Events;
use signalbox_tests::{Behaviour, World};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long each rate is measured.
const WINDOW: Duration = Duration::from_secs(5);
/// Events of one batch of the projector.
const BATCH: usize = 1000;

fn main() {
    signalbox_tests::ready();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        println!("machine: {cores} cores; NATS: one server, file, sync_interval always, encrypted; PostgreSQL: fsync off");
        for tasks in [1, 16, 64] {
            commands(tasks).await;
        }
        projector().await;
        for connections in [1, 16] {
            turns(connections).await;
        }
    });
}

/// `journal::execute` beside publishes with the same expectation header, both on distinct aggregates.
async fn commands(tasks: u128) {
    let world = World::start(1).await;
    let ledger = world.services[0].ledger.clone();
    let journal = ledger.journal().clone();
    let account = |round: u128, task: u128| AccountId(Uuid::from_u128((round << 64) + task + 1));
    let raw = rate(tasks, |task| {
        let journal = journal.clone();
        let mut expected = 0;
        let subject = Aggregate::setting(account(1, task)).subject(1);
        // The bytes of a real event, so that both carry the same.
        let payload = envelope(&InferenceSwitched { enabled: true }.into()).encode().unwrap();
        async move |_: u64| {
            let append =
                Append { subject: subject.clone(), expected, payload: payload.clone().into(), kind: "setting.inference_switched", traceparent: None };
            expected = journal.append(append).await.unwrap();
        }
    })
    .await;
    let ours = rate(tasks, |task| {
        let ledger = ledger.clone();
        let aggregate = Aggregate::setting(account(2, task));
        async move |n: u64| {
            let request =
                Request { aggregate: aggregate.clone(), command: Switch { enabled: n.is_multiple_of(2) }, requester: Requester::role("bench") };
            assert!(ledger.execute::<Setting>(request).await.unwrap().stated.is_some());
        }
    })
    .await;
    println!("commands, {tasks} tasks on distinct aggregates: execute {ours:.0}/s, raw publish {raw:.0}/s, {:.0} % of raw", 100.0 * ours / raw);
    world.stop().await;
}

/// How often a second `tasks` workers together do their work.
async fn rate<W: AsyncFnMut(u64)>(tasks: u128, worker: impl Fn(u128) -> W) -> f64 {
    let started = Instant::now();
    let counts = join_all((0..tasks).map(|task| {
        let mut work = worker(task);
        async move {
            let mut count = 0;
            while started.elapsed() < WINDOW {
                work(count).await;
                count += 1;
            }
            count
        }
    }))
    .await;
    counts.iter().sum::<u64>() as f64 / started.elapsed().as_secs_f64()
}

fn envelope(event: &signalbox_events::setting::Event) -> Envelope {
    Envelope {
        format: 1,
        event_id: Uuid::from_u128(1),
        command_id: Uuid::from_u128(2),
        version: 1,
        at: Micros(1),
        actor: "role:bench".to_owned(),
        on_behalf_of: None,
        correlation_id: Uuid::from_u128(3),
        causation_id: None,
        traceparent: None,
        prev: [0; 32],
        key_id: None,
        kind: event.type_name().to_owned(),
        schema_version: 1,
        data: event.encode().unwrap(),
    }
}

/// Taking events into the widest view, with its checkpoint, beside the same rows by UNNEST of plain columns.
async fn projector() {
    let world = World::start(1).await;
    let db = world.services[0].db.clone();
    sqlx::query("INSERT INTO checkpoint VALUES ('bench_v1', 0, 0, now(), 0)").execute(&db).await.unwrap();
    let events: Vec<Recorded> = (1..=60 * BATCH as u64).map(deployed).collect();
    let started = Instant::now();
    for (index, batch) in events.chunks(BATCH).enumerate() {
        let mut tx = db.begin().await.unwrap();
        sqlx::query("SET LOCAL plan_cache_mode = force_custom_plan").execute(&mut *tx).await.unwrap();
        View.apply(&mut tx, &batch.iter().collect::<Vec<_>>()).await.unwrap();
        assert!(checkpoint::advance(&mut tx, "bench_v1", 0, (index * BATCH) as i64, ((index + 1) * BATCH) as i64).await.unwrap());
        tx.commit().await.unwrap();
    }
    let ours = events.len() as f64 / started.elapsed().as_secs_f64();
    let raw = unnest(&db, events.len()).await;
    println!(
        "projector, workload_list (39 columns), batches of {BATCH}: {ours:.0} events/s, raw UNNEST of the same table {raw:.0} rows/s, {:.0} % of raw",
        100.0 * ours / raw
    );
    world.stop().await;
}

fn deployed(n: u64) -> Recorded {
    let account = AccountId(Uuid::from_u128(7));
    let spec = Spec::Endpoint { url: "http://127.0.0.1:1/v1".to_owned(), model: "m".to_owned() };
    let fact: Event = Deployed {
        name: format!("workload {n}"),
        object_name: format!("workload-{n}"),
        spec,
        owner: PrincipalId(Uuid::from_u128(8)),
        owner_name: "Ada".to_owned(),
        labels: BTreeMap::new(),
    }
    .into();
    let mut envelope = envelope(&InferenceSwitched { enabled: true }.into());
    envelope.at = Micros(n as i64);
    let aggregate = Aggregate::workload(account, WorkloadId(Uuid::from_u128(u128::from(n))));
    Recorded { position: Position::new(0, n), aggregate, envelope, fact: Fact::from(fact) }
}

/// The same rows, as they stand in the table, written again into an empty copy of it: nothing but the statement is paid.
async fn unnest(db: &PgPool, rows: usize) -> f64 {
    sqlx::raw_sql("CREATE TABLE raw (LIKE workload_list_v1 INCLUDING ALL)").execute(db).await.unwrap();
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'raw'::regclass AND attnum > 0 ORDER BY attnum",
    )
    .fetch_all(db)
    .await
    .unwrap();
    let list = |part: &dyn Fn(usize, &(String, String)) -> String| {
        columns.iter().enumerate().map(|(index, column)| part(index, column)).collect::<Vec<_>>().join(", ")
    };
    let aggregated = list(&|_, (name, _)| format!("array_agg({name}::text ORDER BY id)"));
    let sql = format!(
        "INSERT INTO raw SELECT {} FROM UNNEST({}) AS u ({})",
        list(&|_, (name, kind)| format!("u.{name}::{kind}")),
        list(&|index, _| format!("${}::text[]", index + 1)),
        list(&|_, (name, _)| name.clone()),
    );
    let mut batches = Vec::new();
    for batch in 0..rows / BATCH {
        let select = format!("SELECT {aggregated} FROM (SELECT * FROM workload_list_v1 ORDER BY id OFFSET {} LIMIT {BATCH}) t", batch * BATCH);
        let row = sqlx::query(sqlx::AssertSqlSafe(select)).fetch_one(db).await.unwrap();
        let values: Vec<Vec<Option<String>>> = (0..columns.len()).map(|index| sqlx::Row::get(&row, index)).collect();
        batches.push(values);
    }
    let started = Instant::now();
    for batch in &batches {
        let query = batch.iter().fold(sqlx::query(sqlx::AssertSqlSafe(sql.clone())), |query, values| query.bind(values));
        query.execute(db).await.unwrap();
    }
    rows as f64 / started.elapsed().as_secs_f64()
}

/// Time to the first delta and per delta of a turn, beside the same call to the model itself.
async fn turns(connections: usize) {
    let world = World::ready(1).await;
    let words: Vec<String> = (0..20).map(|n| format!("w{n} ")).collect();
    let (model, workload, _) = world.model(Behaviour::Deltas(words, Duration::from_millis(5))).await;
    let conversations = join_all((0..connections).map(|_| world.admin.conversation(&workload))).await;
    let (mut direct, mut ours) = (Vec::new(), Vec::new());
    for round in 0..(200 / connections) {
        let body = json!({"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": true});
        let calls = (0..connections).map(|_| first_delta(world.admin.http.post(format!("{}/chat/completions", model.url)).json(&body)));
        direct.extend(join_all(calls).await);
        let calls = conversations.iter().map(|conversation| {
            let body = json!({"client_turn_id": format!("t{round}"), "content": "hi", "stream": true});
            first_delta(world.admin.request(reqwest::Method::POST, &format!("/v1/conversations/{conversation}/turns")).json(&body))
        });
        ours.extend(join_all(calls).await);
    }
    direct.sort();
    ours.sort();
    let at = |times: &[Duration], part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "streamed turn, {connections} at once, {} turns: first delta p50 {:.1} ms, p99 {:.1} ms; the model alone p50 {:.1} ms, p99 {:.1} ms; added p50 {:.1} ms, p99 {:.1} ms",
        ours.len(),
        at(&ours, 0.5),
        at(&ours, 0.99),
        at(&direct, 0.5),
        at(&direct, 0.99),
        at(&ours, 0.5) - at(&direct, 0.5),
        at(&ours, 0.99) - at(&direct, 0.99),
    );
    world.stop().await;
}

/// The time from the request to its first word; the stream is read to its end.
async fn first_delta(request: reqwest::RequestBuilder) -> Duration {
    let started = Instant::now();
    let mut events = Events::new(request.send().await.unwrap());
    let mut first = None;
    while let Some(event) = events.next().await {
        let text = |value: &Value| value["delta"]["content"].as_str().is_some_and(|text| !text.is_empty());
        if first.is_none() && (text(&event.data) || text(&event.data["choices"][0])) {
            first = Some(started.elapsed());
        }
    }
    first.unwrap()
}
