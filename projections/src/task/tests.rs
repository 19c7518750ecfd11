//! On a real PostgreSQL.

use super::{Filter, View, count_open_in_pool, find, list, open};
use crate::testing::{any_batching_gives_the_same_rows, apply, at, database, event};
use crate::workload_list::Cursor;
use signalbox_events::conversation::Usage;
use signalbox_events::task::*;
use signalbox_events::{AccountId, Aggregate, IncarnationId, PoolId, PrincipalId, Recorded, TaskId};
use uuid::Uuid;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

fn task(number: u128) -> Aggregate {
    Aggregate::task(ACCOUNT, TaskId(Uuid::from_u128(number)))
}

fn eu() -> PoolId {
    "eu".parse().unwrap()
}

fn accepted() -> Event {
    Accepted {
        owner: PrincipalId(Uuid::from_u128(2)),
        owner_name: "Ada".to_owned(),
        kind: "chat.completions".to_owned(),
        payload: "{}".into(),
        digest: [0; 32],
        mode: Mode::Async,
        run_mode: RunMode::Live,
        priority: 5,
        streaming: false,
        target: None,
        wanted_pool: None,
        pool: Some(eu()),
        start_deadline: None,
        idempotent: false,
        to: State::Queued,
    }
    .into()
}

fn leased(epoch: u64) -> Event {
    Leased {
        attempt: 1,
        epoch,
        pool: eu(),
        worker: "gpu-01".parse().unwrap(),
        incarnation: IncarnationId(Uuid::from_u128(7)),
        token_hash: [1; 32],
        expires_at: at(100),
    }
    .into()
}

fn redeemed(epoch: u64) -> Event {
    TokenRedeemed { epoch, nonce: Uuid::from_u128(8) }.into()
}

/// Tasks on several ways: 1 succeeds, 2 waits, 3 becomes unknown and is resolved, 4 is refused and waits, 5 is a dead letter.
fn lives() -> Vec<Recorded> {
    let usage = Some(Usage { prompt_tokens: 3, completion_tokens: 4, estimated: false });
    let resolution = Resolution::AcceptDuplicate;
    let facts: Vec<(u128, Event)> = vec![
        (1, accepted()),
        (2, accepted()),
        (3, accepted()),
        (1, leased(2)),
        (3, leased(2)),
        (1, redeemed(2)),
        (3, redeemed(2)),
        (1, Succeeded { epoch: 2, result: "{\"a\":1}".into(), usage }.into()),
        (3, SubmissionBecameUnknown { epoch: 2, code: "reset".to_owned(), partial: None }.into()),
        (3, Resolved { epoch: 2, resolution, reason: "asked".to_owned(), result: None, to: State::Queued }.into()),
        (3, leased(6)),
        (3, redeemed(6)),
        (3, LeaseLost { epoch: 6 }.into()),
        (4, accepted()),
        (4, leased(2)),
        (4, redeemed(2)),
        (4, NotSent { epoch: 2, code: "connect_failed".to_owned(), to: State::RetryWait, retry_at: Some(at(200)) }.into()),
        (5, accepted()),
        (5, leased(2)),
        (5, LeaseExpired { epoch: 2, reason: "expired".to_owned(), to: State::DeadLettered }.into()),
    ];
    facts.into_iter().enumerate().map(|(index, (number, fact))| event(index as u64 + 1, &task(number), fact)).collect()
}

#[tokio::test]
async fn a_row_tells_where_a_task_stands() {
    let db = database().await;
    apply(&db, &View, &lives(), 7).await;
    let row = async |number: u128| find(&db, Uuid::from_u128(number)).await.unwrap().unwrap();
    let done = row(1).await;
    assert_eq!((done.state, done.result_characters, done.prompt_tokens, done.redemptions), (State::Succeeded, Some(7), Some(3), 1));
    assert_eq!((done.worker.as_deref(), done.ended_at), (Some("gpu-01"), Some(at(8).into())));
    let waits = row(2).await;
    assert_eq!((waits.state, waits.queued_at, waits.worker), (State::Queued, Some(at(2).into()), None));
    let unknown = row(3).await;
    assert_eq!((unknown.state, unknown.evidence.as_deref(), unknown.code.as_deref()), (State::SubmissionUnknown, Some("lease_lost"), Some("reset")));
    assert_eq!((unknown.unknown_since, unknown.redemptions, unknown.epoch), (Some(at(13).into()), 2, Some(6)));
    assert_eq!((unknown.queued_at, unknown.reason.as_deref()), (Some(at(10).into()), Some("asked")));
    let refused = row(4).await;
    assert_eq!((refused.state, refused.retry_at, refused.retries), (State::RetryWait, Some(at(200).into()), 1));
    let dead = row(5).await;
    assert_eq!((dead.state, dead.code.as_deref(), dead.ended_at.is_some()), (State::DeadLettered, Some("expired"), true));
}

#[tokio::test]
async fn lists_filter_and_page() {
    let db = database().await;
    apply(&db, &View, &lives(), 100).await;
    let ids = |rows: Vec<super::Row>| rows.iter().map(|row| row.id.as_u128()).collect::<Vec<_>>();
    let all = Filter { account: Some(ACCOUNT.0), ..Filter::default() };
    let mut after: Option<Cursor> = None;
    let mut seen = Vec::new();
    loop {
        let (rows, next) = list(&db, &all, after, 2).await.unwrap();
        seen.extend(ids(rows));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    let only = async |filter: Filter| ids(list(&db, &filter, None, 10).await.unwrap().0);
    assert_eq!(only(Filter { states: vec![State::Queued, State::RetryWait], ..all.clone() }).await, [4, 2]);
    assert_eq!(only(Filter { worker: Some("gpu-01".to_owned()), ..all.clone() }).await, [5, 4, 3, 1]);
    assert_eq!(only(Filter { pool: Some("us".to_owned()), ..all.clone() }).await, []);
    assert_eq!(only(Filter { kind: Some("embeddings".to_owned()), ..all.clone() }).await, []);
    assert_eq!(only(Filter { account: Some(Uuid::from_u128(99)), ..all }).await, []);
    assert_eq!(count_open_in_pool(&db, "eu").await.unwrap(), 3);
    let (rows, positions) = open(&db, 1).await.unwrap();
    assert_eq!((ids(rows), positions[&0]), (vec![2, 3, 4], 0));
}

#[tokio::test]
async fn batches_make_no_difference() {
    any_batching_gives_the_same_rows(&View, &lives()).await;
}
