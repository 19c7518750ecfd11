//! Signs of life of this replica, cancels for its turns, and the ends of turns whose executor was lost.

use crate::state::App;
use crate::upstream::Answer;
use bytes::Bytes;
use signalbox_domain::conversation::{Conversation, Interrupt};
use signalbox_events::{AccountId, Aggregate, CommandId, ConversationId, TurnId};
use signalbox_journal::{Request, Requester, Store};
use signalbox_projections::conversation;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

/// Distance of signs of life; the store forgets one after 20 s.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// Distance of searches for turns whose executor was lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Turns of one search.
const MOST_TURNS: i64 = 1000;

pub(crate) fn start(app: App) {
    tokio::spawn(beat(app.clone()));
    tokio::spawn(listen(app.clone()));
    tokio::spawn(look(app));
}

fn heartbeat_key(instance: &str) -> String {
    format!("gateway.{instance}")
}

async fn beat(app: App) {
    let key = heartbeat_key(&app.instance);
    while !app.stop.is_cancelled() {
        if let Err(error) = app.ledger.journal().put(Store::Heartbeats, &key, Bytes::from_static(b"alive")).await {
            tracing::warn!(%error, "a sign of life was not taken");
        }
        tokio::time::sleep(BEAT_EVERY).await;
    }
    // Turns drain after this; only then is the replica gone.
    app.drained().await;
    let _ = app.ledger.journal().delete(Store::Heartbeats, &key).await;
}

async fn listen(app: App) {
    let subject = format!("ctl.gateway.{}.cancel", app.instance);
    loop {
        match app.nats.subscribe(&subject).await {
            Ok(mut cancels) => {
                while let Some(message) = cancels.next().await {
                    if let Some(turn) = std::str::from_utf8(&message).ok().and_then(|text| text.parse::<TurnId>().ok()) {
                        app.running.cancel(turn);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cancels cannot be heard"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn look(app: App) {
    // An executor counts as lost once it was silent in two searches: a heartbeat may just have been late.
    let mut suspected: HashMap<Uuid, u32> = HashMap::new();
    while !app.stop.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = search(&app, &mut suspected).await {
            tracing::warn!(%error, "turns of lost executors cannot be looked for");
        }
    }
}

async fn search(app: &App, suspected: &mut HashMap<Uuid, u32>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut alive: HashMap<String, bool> = HashMap::new();
    let open = conversation::open_turns(&app.db, MOST_TURNS).await?;
    suspected.retain(|turn, _| open.iter().any(|(_, row)| row.id == *turn));
    for (account, row) in open {
        let Some(executor) = row.executor.filter(|executor| *executor != app.instance) else { continue };
        let lives = match alive.get(&executor) {
            Some(lives) => *lives,
            None => {
                let lives = app.ledger.journal().get(Store::Heartbeats, &heartbeat_key(&executor)).await?.is_some();
                alive.insert(executor.clone(), lives);
                lives
            }
        };
        if lives {
            suspected.remove(&row.id);
            continue;
        }
        let seen = suspected.entry(row.id).or_default();
        *seen += 1;
        if *seen >= 2 {
            interrupt(app, AccountId(account), ConversationId(row.conversation), TurnId(row.id), row.stream.as_deref()).await?;
        }
    }
    Ok(())
}

/// States what the loss amounts to, with the text that had arrived.
async fn interrupt(
    app: &App,
    account: AccountId,
    conversation: ConversationId,
    turn: TurnId,
    stream: Option<&str>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let kept = match stream {
        Some(stream) => app.deltas.kept(stream, 0).await?,
        None => vec![],
    };
    let mut answer = Answer::default();
    for delta in &kept {
        if let Ok(chunk) = serde_json::from_slice(&delta.payload) {
            answer.take(&chunk);
        }
    }
    let partial = (!answer.is_empty()).then(|| answer.text.clone());
    // Every replica may come to this; the same command id makes it one.
    let command_id = CommandId(Uuid::new_v5(&turn.0, b"interrupt"));
    let requester = Requester { command_id: Some(command_id), ..Requester::role("api") };
    let aggregate = Aggregate::conversation(account, conversation);
    let command = Interrupt { turn, partial, usage: answer.usage(0) };
    let executed = app.ledger.execute::<Conversation>(Request { aggregate, command, requester }).await?;
    if executed.stated.is_some() {
        let state = executed.state.as_ref().and_then(|state| state.turns.get(&turn)).map(|turn| turn.state.as_str());
        app.metrics.turn_ended(state.unwrap_or("unknown"));
        tracing::warn!(%turn, state, "a turn whose executor was lost has been ended");
    }
    // Readers that wait hear of the end at once.
    if let Some(stream) = stream {
        let number = kept.last().map_or(0, |delta| delta.number) + 1;
        app.deltas.publish(stream, signalbox_journal::nats::Delta { number, payload: Bytes::new() }).await?;
    }
    Ok(())
}
