//! On a real PostgreSQL.

use super::{View, credential, find, keys, members};
use crate::testing::{any_batching_gives_the_same_rows, apply, at, database, event};
use signalbox_events::account::{Created, Event, KeyIssued, KeyRevoked, MemberAdded, Role};
use signalbox_events::{AccountId, Aggregate, KeyId, PrincipalId};
use uuid::Uuid;

#[tokio::test]
async fn members_and_keys_follow_their_events() {
    let account = AccountId(Uuid::from_u128(1));
    let aggregate = Aggregate::account(account);
    let (principal, key) = (PrincipalId(Uuid::from_u128(2)), KeyId(Uuid::from_u128(3)));
    let issued = KeyIssued { key, principal, label: "laptop".to_owned(), hash: [7; 32], roles: vec![Role::Member], expires_at: Some(at(99)) };
    let facts: [Event; 5] = [
        Created { name: "Acme".to_owned() }.into(),
        MemberAdded { principal, name: "Ada".to_owned(), roles: vec![Role::Member] }.into(),
        issued.into(),
        MemberAdded { principal, name: "Ada L.".to_owned(), roles: vec![Role::Member, Role::AccountAdmin] }.into(),
        KeyRevoked { key }.into(),
    ];
    let events: Vec<_> = facts.into_iter().zip(1..).map(|(fact, sequence)| event(sequence, &aggregate, fact)).collect();
    let db = database().await;
    apply(&db, &View, &events[..4], 10).await;
    assert_eq!(find(&db, account.0).await.unwrap().unwrap().name, "Acme");
    let found = members(&db, account.0).await.unwrap();
    assert_eq!((found.len(), found[0].name.as_str(), found[0].roles.len()), (1, "Ada L.", 2));
    let known = credential(&db, &hex::encode([7; 32])).await.unwrap().unwrap();
    assert_eq!((known.account, known.name.as_str(), known.revoked_at), (account.0, "Ada L.", None));
    assert_eq!(known.expires_at, Some(at(99).into()), "to the microsecond");
    assert_eq!(credential(&db, "' OR '1'='1").await.unwrap(), None);
    // A key that an earlier batch issued.
    apply(&db, &View, &events[4..], 10).await;
    assert_eq!(keys(&db, account.0).await.unwrap()[0].revoked_at, Some(at(5).into()));
    any_batching_gives_the_same_rows(&View, &events).await;
}
