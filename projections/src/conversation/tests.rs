//! On a real PostgreSQL.

use super::{View, find, list, open_turns, turn, turns};
use crate::testing::{any_batching_gives_the_same_rows, apply, at, database, event};
use crate::{ApplyError, Projection};
use signalbox_events::conversation::*;
use signalbox_events::{AccountId, Aggregate, ConversationId, PrincipalId, Recorded, Sealed, Text, TurnId, WorkloadId};
use uuid::Uuid;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(1));
const OWNER: PrincipalId = PrincipalId(Uuid::from_u128(2));
const USAGE: Usage = Usage { prompt_tokens: 3, completion_tokens: 4, estimated: false };

fn conversation() -> Aggregate {
    Aggregate::conversation(ACCOUNT, ConversationId(Uuid::from_u128(5)))
}

fn turn_id(n: u128) -> TurnId {
    TurnId(Uuid::from_u128(100 + n))
}

fn submitted(n: u32, title: Option<&str>) -> Event {
    TurnSubmitted {
        turn: turn_id(u128::from(n)),
        number: n,
        client_turn_id: format!("ct-{n}"),
        digest: [0; 32],
        messages: r#"[{"role":"user","content":"1000000000000000 1.0"}]"#.into(),
        parameters: r#"{"seed":1000000000000000,"x":1.0}"#.into(),
        title: title.map(Into::into),
        on_disconnect: OnDisconnect::Continue,
        executor: "g1".to_owned(),
        stream: "stream.gateway.g1.t.1".to_owned(),
    }
    .into()
}

fn begun(n: u128) -> Event {
    TurnBegun { turn: turn_id(n), executor: "g1".to_owned(), stream: "s".to_owned() }.into()
}

/// One turn of each ending.
fn life() -> Vec<Recorded> {
    let partial = || Some(Text::from("The "));
    let facts: Vec<Event> = vec![
        Started { owner: OWNER, owner_name: "Ada".to_owned(), workload: WorkloadId(Uuid::from_u128(3)), model: "m".to_owned(), title: None }.into(),
        submitted(1, Some("Hello")),
        begun(1),
        TurnCompleted { turn: turn_id(1), message: r#"{"role":"assistant","content":"hi"}"#.into(), finish_reason: "stop".to_owned(), usage: USAGE }
            .into(),
        submitted(2, None),
        begun(2),
        TurnFailed { turn: turn_id(2), code: "upstream_disconnected".to_owned(), upstream_status: None, partial: partial(), usage: USAGE }.into(),
        submitted(3, None),
        TurnInterrupted { turn: turn_id(3), partial: partial(), usage: USAGE }.into(),
        submitted(4, None),
        TurnCancelled { turn: turn_id(4), partial: None, usage: USAGE }.into(),
        submitted(5, None),
        begun(5),
        TurnSubmissionUnknown { turn: turn_id(5) }.into(),
        submitted(6, None),
        Renamed { title: "Mine".into() }.into(),
    ];
    facts.into_iter().zip(1..).map(|(fact, sequence)| event(sequence, &conversation(), fact)).collect()
}

#[tokio::test]
async fn turns_follow_their_events() {
    let db = database().await;
    apply(&db, &View, &life(), 100).await;
    let id = Uuid::from_u128(5);
    let row = find(&db, id).await.unwrap().unwrap();
    assert_eq!((row.title.as_deref(), row.turns, row.updated_at), (Some("Mine"), 6, at(16).into()));
    let found = turns(&db, id, 0, 100).await.unwrap();
    let states: Vec<_> = found.iter().map(|turn| turn.state.as_str()).collect();
    assert_eq!(states, ["completed", "failed", "interrupted", "cancelled", "submission_unknown", "submitted"]);
    assert_eq!(found[0].answer.as_ref().unwrap()["content"], "hi");
    assert_eq!((found[1].code.as_deref(), found[1].partial.as_deref()), (Some("upstream_disconnected"), Some("The ")));
    assert_eq!((found[0].begun_at, found[0].ended_at), (Some(at(3).into()), Some(at(4).into())));
    assert_eq!(found[0].parameters.to_string(), r#"{"seed":1000000000000000,"x":1.0}"#, "numbers keep their digits");
    let open = open_turns(&db, 10).await.unwrap();
    assert_eq!(open.iter().map(|(account, turn)| (*account, turn.number)).collect::<Vec<_>>(), [(ACCOUNT.0, 6)]);
    assert_eq!(turn(&db, turn_id(2).0).await.unwrap().unwrap().number, 2);
    assert_eq!(list(&db, ACCOUNT.0, OWNER.0, None, 10).await.unwrap().0.len(), 1);
    assert_eq!(list(&db, ACCOUNT.0, Uuid::from_u128(9), None, 10).await.unwrap().0, []);
    apply(&db, &View, &[event(17, &conversation(), Event::from(Deleted {}))], 1).await;
    assert_eq!(find(&db, id).await.unwrap(), None);
}

#[tokio::test]
async fn any_batching_gives_the_same_conversation() {
    any_batching_gives_the_same_rows(&View, &life()).await;
}

#[tokio::test]
async fn a_text_that_is_still_sealed_is_poison() {
    let db = database().await;
    let mut tx = db.begin().await.unwrap();
    let start = &life()[0];
    let sealed = Text::Sealed(Sealed { inline: Some(vec![1]), object: None, characters: 1 });
    let renamed = event(2, &conversation(), Event::from(Renamed { title: sealed }));
    let error = View.apply(&mut tx, &[start, &renamed]).await.unwrap_err();
    assert!(matches!(error, ApplyError::Poison(_)), "{error}");
}
