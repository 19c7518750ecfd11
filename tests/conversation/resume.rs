//! Any reader of a turn gets the whole of it, from any replica, from any place.

use reqwest::Method;
use serde_json::json;
use signalbox_tests::answer::Events;
use signalbox_tests::{Answer, Behaviour, Event, World};
use std::time::Duration;

fn text(events: &[Event]) -> String {
    events.iter().map(|event| event.data["text"].as_str().or(event.data["delta"]["content"].as_str()).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_reader_goes_on_where_it_was() {
    let world = World::ready(2).await;
    let words: Vec<String> = (0..56).map(|n| format!("w{n} ")).collect();
    let (_model, workload, _) = world.model(Behaviour::Deltas(words.clone(), Duration::from_millis(15))).await;
    let conversation = world.admin.conversation(&workload).await;
    let path = format!("/v1/conversations/{conversation}/turns");
    let mut stream = world.admin.stream(&path, json!({"client_turn_id": "a", "content": "hi", "stream": true})).await;
    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.push(stream.next().await.unwrap());
    }
    drop(stream);
    let last = seen.last().unwrap().id.clone();
    let turn = last.split(':').next().unwrap().to_owned();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let at = |replica: usize, cursor: Option<String>| {
        let mut request = world.admin_at(replica).request(Method::GET, &format!("{path}/{turn}/stream"));
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        request.send()
    };
    // (c), (d): ids that are none of this turn's.
    for bad in ["999999", "abc", "", &format!("{turn}:999999"), &format!("{}:3", uuid::Uuid::nil())] {
        let answer = Answer::read(at(1, Some(bad.to_owned())).await.unwrap()).await;
        answer.refused(400, "invalid_cursor");
    }
    // (a) with the last id: exactly the rest. (b) without: a snapshot, then the rest. On either replica.
    for replica in [0, 1] {
        let (resumed, fresh) = tokio::join!(at(replica, Some(last.clone())), at(replica, None));
        let (resumed, fresh) = tokio::join!(Events::new(resumed.unwrap()).rest(), Events::new(fresh.unwrap()).rest());
        assert_eq!(text(&seen) + &text(&resumed[..resumed.len() - 1]), words.concat());
        assert_eq!(fresh[0].name, "snapshot");
        assert_eq!(text(&fresh[..fresh.len() - 1]), words.concat());
        for events in [resumed, fresh] {
            assert_eq!(events.iter().filter(|event| event.name == "completed").count(), 1);
            assert_eq!(events.last().unwrap().data["answer"]["content"], words.concat());
        }
    }
    world.stop().await;
}
