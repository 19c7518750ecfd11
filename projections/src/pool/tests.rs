//! On a real PostgreSQL.

use super::{View, find, list};
use crate::testing::{any_batching_gives_the_same_rows, apply, database, event};
use signalbox_events::pool::{Created, Deleted, Event, Profile, State, Switched, Updated};
use signalbox_events::{Aggregate, Recorded};
use std::collections::BTreeMap;

fn profile(tier: u32) -> Profile {
    Profile { description: "Frankfurt".to_owned(), tier, priority: 0, labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]) }
}

fn life() -> Vec<Recorded> {
    let (eu, us) = (Aggregate::pool(&"eu".parse().unwrap()), Aggregate::pool(&"us".parse().unwrap()));
    let facts: Vec<(&Aggregate, Event)> = vec![
        (&eu, Created { profile: profile(1) }.into()),
        (&us, Created { profile: profile(0) }.into()),
        (&eu, Updated { profile: profile(2) }.into()),
        (&eu, Switched { state: State::Cordoned, reason: "upgrade".to_owned() }.into()),
        (&us, Deleted {}.into()),
        (&us, Created { profile: profile(3) }.into()),
    ];
    facts.into_iter().enumerate().map(|(index, (aggregate, fact))| event(index as u64 + 1, aggregate, fact)).collect()
}

#[tokio::test]
async fn pools_are_listed_by_tier() {
    let db = database().await;
    apply(&db, &View, &life(), 10).await;
    let rows = list(&db).await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.tier, row.state, row.reason.as_deref())).collect();
    assert_eq!(shown, [("eu", 2, State::Cordoned, Some("upgrade")), ("us", 3, State::Enabled, None)]);
    apply(&db, &View, &[event(9, &Aggregate::pool(&"eu".parse().unwrap()), Event::from(Deleted {}))], 1).await;
    assert_eq!(find(&db, "eu").await.unwrap(), None);
    assert_eq!(find(&db, "us").await.unwrap().unwrap().labels["region"], "eu");
}

#[tokio::test]
async fn batches_make_no_difference() {
    any_batching_gives_the_same_rows(&View, &life()).await;
}
