//! Events that cannot be taken in are left out, with their reason, and hold up nothing else.

use serde_json::json;
use signalbox_events::envelope::{FORMAT, chain_start};
use signalbox_events::{AccountId, Aggregate, Envelope, Micros, WorkloadId};
use signalbox_journal::Append;
use signalbox_projections::checkpoint::parked;
use signalbox_projections::sqlx;
use signalbox_tests::World;
use std::time::Duration;
use uuid::Uuid;

fn envelope(subject: &str, kind: &str, schema_version: u16, data: Vec<u8>) -> Vec<u8> {
    let envelope = Envelope {
        format: FORMAT,
        event_id: Uuid::from_u128(1),
        command_id: Uuid::from_u128(2),
        version: 1,
        at: Micros(1),
        actor: "test".to_owned(),
        on_behalf_of: None,
        correlation_id: Uuid::from_u128(3),
        causation_id: None,
        traceparent: None,
        prev: chain_start(subject),
        key_id: None,
        kind: kind.to_owned(),
        schema_version,
        data,
    };
    envelope.encode().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_is_parked_and_others_go_on() {
    let world = World::ready(1).await;
    let journal = world.services[0].ledger.journal().clone();
    let workload = |n: u128| Aggregate::workload(AccountId(Uuid::from_u128(77)), WorkloadId(Uuid::from_u128(n))).subject(1);
    let append = async |subject: String, payload: Vec<u8>, expected: u64| {
        journal.append(Append { subject, expected, payload: payload.into(), kind: "x", traceparent: None }).await.unwrap()
    };
    // Random bytes; a type of tomorrow; an event that the database refuses (a row that is not there yet).
    let random = append(workload(1), b"\x93\x01random123".to_vec(), 0).await;
    let newer = append(workload(2), envelope(&workload(2), "workload.model_paused", 9, vec![0x80]), 0).await;
    let refused = append(workload(3), envelope(&workload(3), "workload.suspended", 1, vec![0x80]), 0).await;
    let behind = append(workload(3), envelope(&workload(3), "workload.resumed", 1, vec![0x80]), refused).await;
    // Another aggregate's event, right behind.
    let spec = json!({"kind": "endpoint", "url": "http://127.0.0.1:9/v1", "model": "m"});
    let done = world.admin.post("/v1/workloads", json!({"name": "after", "spec": spec})).await.ok();
    let row = world.admin.get(&format!("/v1/workloads/{}?after={}", done["id"].as_str().unwrap(), done["position"].as_str().unwrap())).await;
    let mut tries = 0;
    let mut row = row;
    while row.status == 425 && tries < 10 {
        tries += 1;
        row = world.admin.get(&format!("/v1/workloads/{}?after={}", done["id"].as_str().unwrap(), done["position"].as_str().unwrap())).await;
    }
    assert_eq!(row.ok()["display_name"], "after");
    let found = parked(&world.services[0].db, 100).await.unwrap();
    let of = |sequence: u64| {
        found
            .iter()
            .filter(|parked| parked.sequence == sequence as i64)
            .map(|parked| (parked.view.as_str(), parked.reason.as_str()))
            .collect::<Vec<_>>()
    };
    assert!(of(random)[0].1.starts_with("unreadable"), "{found:?}");
    assert!(of(newer)[0].1.contains("workload.model_paused version 9"), "{found:?}");
    assert!(of(refused)[0].1.starts_with("5 tries failed"), "{found:?}");
    assert!(of(behind)[0].1.contains("an earlier event"), "{found:?}");
    assert!(found.iter().all(|parked| parked.view == "workload_list_v1"), "views that do not read the noun take no part");
    let ready = world.admin.get("/readyz").await.ok();
    assert!(ready.to_string().contains("4 events are parked"), "{ready}");
    world.stop().await;
}

/// A start after an end that was not orderly is careful: an event that ends the process is tried a counted number of
/// times, over all the starts together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_are_counted_across_crashes() {
    use signalbox_projections::checkpoint::{clean, count_try, open};
    let world = World::ready(1).await;
    let db = world.services[0].db.clone();
    let created = chrono::DateTime::UNIX_EPOCH;
    assert_eq!(open(&db, "a_v1", 0, created).await.unwrap().unclean_starts, 0);
    assert_eq!(open(&db, "a_v1", 0, created).await.unwrap().unclean_starts, 1, "the first start has not ended");
    for tries in 1..=5 {
        assert_eq!(count_try(&db, "a_v1", 0, 700).await.unwrap(), tries);
    }
    clean(&db, "a_v1", 0).await.unwrap();
    assert_eq!(open(&db, "a_v1", 0, created).await.unwrap().unclean_starts, 0);
    // What four crashes have counted, the fifth try parks without another.
    sqlx::query("INSERT INTO attempt VALUES ('workload_list_v1', 0, $1, 4)").bind(world.log().await.len() as i64 + 1).execute(&db).await.unwrap();
    let World { config, mut services, nats, scratch, admin } = world;
    services.pop().unwrap().stop().await;
    let mut config_db = sqlx::PgPool::connect(&config.database_url).await.unwrap();
    sqlx::query("UPDATE checkpoint SET unclean_starts = 1").execute(&config_db).await.unwrap();
    config_db.close().await;
    config_db = sqlx::PgPool::connect(&config.database_url).await.unwrap();
    let service = signalbox::serve::Service::start(&config, &[signalbox::serve::Role::All]).await.unwrap();
    let subject = Aggregate::workload(AccountId(Uuid::from_u128(77)), WorkloadId(Uuid::from_u128(3))).subject(1);
    let payload = envelope(&subject, "workload.suspended", 1, vec![0x80]);
    let at = service.ledger.journal().append(Append { subject, expected: 0, payload: payload.into(), kind: "x", traceparent: None }).await.unwrap();
    for _ in 0..500 {
        if parked(&config_db, 10).await.unwrap().iter().any(|parked| parked.sequence == at as i64) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(parked(&config_db, 10).await.unwrap().iter().any(|parked| parked.sequence == at as i64));
    service.stop().await;
    drop((nats, scratch, admin));
}
