//! On a real PostgreSQL.

use super::{View, by_name, find, list};
use crate::testing::{any_batching_gives_the_same_rows, apply, database, event};
use signalbox_events::upstream::{CredentialSet, Deleted, Event, Model, Profile, Registered, Switched, Updated};
use signalbox_events::{AccountId, Aggregate, PrincipalId, Recorded, UpstreamId};
use uuid::Uuid;

const ACME: AccountId = AccountId(Uuid::from_u128(5));

fn profile(base_url: &str) -> Profile {
    let models = vec![Model { name: "m".to_owned(), kinds: vec!["chat.*".to_owned()] }];
    Profile { provider: "test".to_owned(), protocol: "openai".to_owned(), base_url: base_url.to_owned(), models }
}

fn registered(name: &str) -> Registered {
    Registered { owner: PrincipalId(Uuid::from_u128(1)), owner_name: "Ada".to_owned(), name: name.to_owned(), profile: profile("https://a/v1") }
}

fn set() -> CredentialSet {
    CredentialSet { secret: "Bearer k".into(), header: "authorization".to_owned(), origin: "https://a".to_owned(), digest: [1; 32] }
}

fn upstream(account: AccountId, number: u128) -> Aggregate {
    Aggregate::upstream(account, UpstreamId(Uuid::from_u128(number)))
}

fn life() -> Vec<Recorded> {
    let (own, shared, gone) = (upstream(ACME, 1), upstream(AccountId::PLATFORM, 2), upstream(ACME, 3));
    let facts: Vec<(&Aggregate, Event)> = vec![
        (&own, registered("openai").into()),
        (&shared, registered("openai").into()),
        (&own, set().into()),
        (&shared, set().into()),
        (&shared, Updated { profile: profile("https://b/v1"), keeps_credential: false }.into()),
        (&own, Switched { enabled: false, reason: "slow".to_owned() }.into()),
        (&gone, registered("gone").into()),
        (&gone, set().into()),
        (&gone, Deleted {}.into()),
    ];
    facts.into_iter().enumerate().map(|(index, (aggregate, fact))| event(index as u64 + 1, aggregate, fact)).collect()
}

#[tokio::test]
async fn an_account_sees_its_own_before_what_is_everyones() {
    let db = database().await;
    apply(&db, &View, &life(), 10).await;
    let rows = list(&db, ACME.0).await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.id.as_u128(), row.enabled, row.credential_origin.as_deref())).collect();
    assert_eq!(shown, [(1, false, Some("https://a")), (2, true, None)]);
    assert_eq!(by_name(&db, ACME.0, "openai").await.unwrap().unwrap().id.as_u128(), 1);
    assert_eq!(by_name(&db, Uuid::from_u128(6), "openai").await.unwrap().unwrap().id.as_u128(), 2);
    assert_eq!(by_name(&db, ACME.0, "gone").await.unwrap(), None);
    assert_eq!(find(&db, Uuid::from_u128(3)).await.unwrap(), None);
}

#[tokio::test]
async fn batches_make_no_difference() {
    any_batching_gives_the_same_rows(&View, &life()).await;
}
