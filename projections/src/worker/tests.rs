//! On a real PostgreSQL.

use super::{View, find, list};
use crate::testing::{any_batching_gives_the_same_rows, apply, database, event};
use signalbox_events::worker::{Capabilities, DrainRequested, Event, Observed, Registered, Retired, State};
use signalbox_events::{Aggregate, IncarnationId, Recorded};
use uuid::Uuid;

fn started(number: u128) -> Registered {
    Registered {
        pool: "eu".parse().unwrap(),
        incarnation: IncarnationId(Uuid::from_u128(number)),
        protocol: 1,
        version: "1.0".to_owned(),
        capabilities: Capabilities { kinds: vec!["chat.*".to_owned()], streaming: true },
        slots: 4,
        public_key: None,
    }
}

fn life() -> Vec<Recorded> {
    let worker = Aggregate::worker(&"gpu-01".parse().unwrap());
    let (first, second) = (started(1).incarnation, started(2).incarnation);
    let facts: Vec<Event> = vec![
        started(1).into(),
        Observed { incarnation: first, state: State::NotConsuming }.into(),
        Retired { incarnation: first, reason: "lost".to_owned() }.into(),
        started(2).into(),
        DrainRequested { incarnation: second }.into(),
        Retired { incarnation: second, reason: "bye".to_owned() }.into(),
    ];
    facts.into_iter().enumerate().map(|(index, fact)| event(index as u64 + 1, &worker, fact)).collect()
}

#[tokio::test]
async fn a_worker_is_shown_as_it_was_seen_last() {
    let db = database().await;
    let events = life();
    let expected = [State::Ready, State::NotConsuming, State::Lost, State::Ready, State::Draining, State::Gone];
    for (event, state) in events.iter().zip(expected) {
        apply(&db, &View, std::slice::from_ref(event), 1).await;
        assert_eq!(find(&db, "gpu-01").await.unwrap().unwrap().state, state);
    }
    let row = list(&db, Some("eu")).await.unwrap().pop().unwrap();
    assert_eq!((row.incarnation, row.capabilities.streaming, row.slots), (Uuid::from_u128(2), true, 4));
    assert_eq!(list(&db, Some("us")).await.unwrap(), []);
}

#[tokio::test]
async fn batches_make_no_difference() {
    any_batching_gives_the_same_rows(&View, &life()).await;
}
