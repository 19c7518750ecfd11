//! On a real PostgreSQL.

use super::{View, find};
use crate::testing::{any_batching_gives_the_same_rows, apply, database, event};
use signalbox_events::setting::{Event, GapAccepted, InferenceSwitched};
use signalbox_events::{AccountId, Aggregate};
use uuid::Uuid;

fn switched(enabled: bool) -> Event {
    InferenceSwitched { enabled }.into()
}

#[tokio::test]
async fn the_last_switch_is_shown() {
    let account = AccountId(Uuid::from_u128(1));
    let (platform, own) = (Aggregate::setting(AccountId::PLATFORM), Aggregate::setting(account));
    let gap: Event = GapAccepted { partition: 0, sequence: 1, reason: "x".to_owned() }.into();
    let events = [event(1, &platform, switched(true)), event(2, &own, switched(false)), event(3, &platform, gap), event(4, &own, switched(true))];
    let db = database().await;
    apply(&db, &View, &events, 10).await;
    assert_eq!(find(&db, Uuid::nil()).await.unwrap().unwrap().inference_enabled, Some(true));
    let row = find(&db, account.0).await.unwrap().unwrap();
    assert_eq!((row.inference_enabled, row.changed_at), (Some(true), crate::testing::at(4).into()));
    assert_eq!(find(&db, Uuid::from_u128(9)).await.unwrap(), None);
    any_batching_gives_the_same_rows(&View, &events).await;
}
