//! On a real PostgreSQL.

use super::{Filter, View, find, list};
use crate::testing::{any_batching_gives_the_same_rows, apply, at, database, event};
use crate::{ApplyError, Projection};
use signalbox_events::workload::*;
use signalbox_events::{AccountId, Aggregate, Micros, PrincipalId, Recorded, WorkloadId};
use std::collections::BTreeMap;
use uuid::Uuid;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));

fn workload(n: u128) -> Aggregate {
    Aggregate::workload(ACCOUNT, WorkloadId(Uuid::from_u128(n)))
}

fn inference(replicas: u32) -> Spec {
    Spec::LocalInference { runtime: "llama".to_owned(), parameters: BTreeMap::from([("model".to_owned(), "m".to_owned())]), replicas }
}

fn deployed(name: &str, spec: Spec) -> Event {
    let owner = PrincipalId(Uuid::from_u128(2));
    Deployed { name: name.to_owned(), object_name: format!("{name}-1"), spec, owner, owner_name: "Ada".to_owned(), labels: BTreeMap::new() }.into()
}

fn seen(state: State, revision: u32, ready: u32) -> Event {
    let endpoints = if ready > 0 { vec!["http://127.0.0.1:1/v1".to_owned()] } else { vec![] };
    Observed {
        state,
        reason: format!("{state}_seen"),
        revision,
        ready,
        nodes: vec!["local".to_owned()],
        endpoints,
        exit_code: None,
        log_tail: vec![],
        seen_at: Micros(1),
    }
    .into()
}

/// A deployment's whole life and a job's.
fn life() -> Vec<Recorded> {
    let (a, b) = (workload(10), workload(11));
    let facts: Vec<(&Aggregate, Event)> = vec![
        (&a, deployed("a", inference(1))),
        (&b, deployed("b", Spec::LocalJob { runtime: "batch".to_owned(), parameters: BTreeMap::new() })),
        (&a, seen(State::Starting, 1, 0)),
        (&a, seen(State::Running, 1, 1)),
        (&b, seen(State::Running, 1, 1)),
        (&a, Updated { revision: 2, spec: inference(2) }.into()),
        (&a, Scaled { replicas: 3 }.into()),
        (&b, seen(State::Succeeded, 1, 0)),
        (&a, RolledBack { revision: 3, to: 1, spec: inference(1) }.into()),
        (&a, Suspended {}.into()),
        (&a, seen(State::Suspended, 3, 0)),
        (&a, Resumed {}.into()),
        (&a, DeletionRequested {}.into()),
        (&a, seen(State::Running, 3, 1)),
    ];
    facts.into_iter().zip(1..).map(|((aggregate, fact), sequence)| event(sequence, aggregate, fact)).collect()
}

#[tokio::test]
async fn a_row_follows_its_events() {
    let db = database().await;
    let events = life();
    apply(&db, &View, &events[..7], 100).await;
    let row = find(&db, Uuid::from_u128(10)).await.unwrap().unwrap();
    assert_eq!((row.state, row.reason.as_str(), row.trigger), (State::Running, "running_seen", Trigger::Provider));
    assert_eq!((row.revision, row.replicas_desired, row.replicas_ready), (2, 3, 1));
    assert_eq!((row.model.as_deref(), row.route_name.as_deref(), row.endpoint.as_deref()), (Some("m"), Some("a-1"), Some("http://127.0.0.1:1/v1")));
    assert_eq!((row.created_at, row.started_at, row.since), (at(1).into(), Some(at(4).into()), at(4).into()));
    assert_eq!(row.revisions.iter().map(|revision| revision.revision).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((row.spec["replicas"].clone(), row.revisions[1].spec["replicas"].clone()), (3.into(), 3.into()));
    apply(&db, &View, &events[7..], 100).await;
    let row = find(&db, Uuid::from_u128(10)).await.unwrap().unwrap();
    // On its way out, whatever its provider still sees.
    assert_eq!((row.state, row.trigger, row.suspended, row.revision), (State::Deleting, Trigger::Command, false, 3));
    assert_eq!(row.revisions[2].rolled_back_to, Some(1));
    let job = find(&db, Uuid::from_u128(11)).await.unwrap().unwrap();
    assert_eq!((job.state, job.category, job.ended_at, job.route_name), (State::Succeeded, Category::Job, Some(at(8).into()), None));
    apply(&db, &View, &[event(15, &workload(10), Event::from(Deleted {}))], 1).await;
    assert_eq!(find(&db, Uuid::from_u128(10)).await.unwrap(), None);
    let filter = Filter { account: Some(ACCOUNT.0), ..Filter::default() };
    assert_eq!(list(&db, &filter, None, 10).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn any_batching_gives_the_same_list() {
    any_batching_gives_the_same_rows(&View, &life()).await;
}

#[tokio::test]
async fn an_event_without_its_row_is_poison() {
    let db = database().await;
    let mut tx = db.begin().await.unwrap();
    let event = event(1, &workload(10), Event::from(Suspended {}));
    let error = View.apply(&mut tx, &[&event]).await.unwrap_err();
    assert!(matches!(error, ApplyError::Poison(_)), "{error}");
}

#[tokio::test]
async fn pages_follow_the_default_sort_and_filters() {
    let db = database().await;
    let mut events = Vec::new();
    for n in 0..7_u64 {
        let spec = if n % 2 == 0 { inference(1) } else { Spec::Endpoint { url: "http://h/v1".to_owned(), model: "m".to_owned() } };
        events.push(event(n + 1, &workload(u128::from(n)), deployed(&format!("w{n}"), spec)));
    }
    apply(&db, &View, &events, 3).await;
    let filter = Filter { account: Some(ACCOUNT.0), ..Filter::default() };
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let page = list(&db, &filter, after, 3).await.unwrap();
        names.extend(page.rows.into_iter().map(|row| row.display_name));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, ["w6", "w5", "w4", "w3", "w2", "w1", "w0"]);
    let endpoints = Filter { kinds: vec![Kind::Endpoint], ..filter.clone() };
    assert_eq!(list(&db, &endpoints, None, 10).await.unwrap().rows.len(), 3);
    for empty in [
        Filter { account: Some(Uuid::from_u128(9)), ..Filter::default() },
        Filter { owner: Some(Uuid::from_u128(9)), ..filter.clone() },
        Filter { states: vec![State::Running], ..filter.clone() },
        Filter { category: Some(Category::Job), ..filter },
    ] {
        assert_eq!(list(&db, &empty, None, 10).await.unwrap().rows, []);
    }
}
