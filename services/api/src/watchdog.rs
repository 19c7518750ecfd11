//! Signs of life of this replica, cancels for its turns, and the ends of turns whose executor was lost.

use crate::call::Answer;
use crate::executor::task_of;
use crate::state::App;
use bytes::Bytes;
use serde_json::Value;
use signalbox_domain::conversation::{Command, Complete, Conversation, Interrupt};
use signalbox_domain::task::Task;
use signalbox_events::conversation::Usage;
use signalbox_events::task::{Event, State};
use signalbox_events::{AccountId, Aggregate, CommandId, ConversationId, Fact, TurnId};
use signalbox_journal::{Failure, Request, Requester, Store};
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

/// What a worker has made of a turn whose executor was lost.
enum Fate {
    /// No worker has it, or it did not end well.
    Lost,
    /// A worker still works on it.
    Running,
    /// A worker has answered: the message, and why the model stopped.
    Answered(String, String, Usage),
}

/// A worker goes on with a turn whatever becomes of the gateway.
async fn fate(app: &App, account: AccountId, turn: TurnId) -> Result<Fate, Failure> {
    let aggregate = Aggregate::task(account, task_of(turn));
    let Some(task) = app.ledger.load::<Task>(&aggregate).await? else { return Ok(Fate::Lost) };
    match task.state {
        State::Accepted | State::Queued | State::Leased | State::Executing | State::RetryWait => return Ok(Fate::Running),
        State::Succeeded => {}
        State::SubmissionUnknown | State::Failed | State::Cancelled | State::DeadLettered => return Ok(Fate::Lost),
    }
    let events = app.ledger.history(&aggregate, 0).await?;
    let found = events.iter().rev().find_map(|recorded| match &recorded.fact {
        Fact::Task(Event::Succeeded(fact)) => Some((fact.result.plain()?, fact.usage)),
        Fact::Task(Event::LateResult(fact)) => Some((fact.result.as_ref()?.plain()?, fact.usage)),
        _ => None,
    });
    let Some((result, usage)) = found else { return Ok(Fate::Lost) };
    let Ok(result) = serde_json::from_str::<Value>(result) else { return Ok(Fate::Lost) };
    let choice = &result["choices"][0];
    let (true, Some(reason)) = (choice["message"].is_object(), choice["finish_reason"].as_str()) else { return Ok(Fate::Lost) };
    Ok(Fate::Answered(choice["message"].to_string(), reason.to_owned(), usage.unwrap_or_default()))
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
    let command: Command = match fate(app, account, turn).await? {
        Fate::Running => return Ok(()),
        Fate::Answered(message, finish_reason, usage) => Complete { turn, message, finish_reason, usage }.into(),
        Fate::Lost => Interrupt { turn, partial: (!answer.is_empty()).then(|| answer.text.clone()), usage: answer.usage(0) }.into(),
    };
    // Every replica may come to this; the same command id makes it one.
    let command_id = CommandId(Uuid::new_v5(&turn.0, b"interrupt"));
    let requester = Requester { command_id: Some(command_id), ..Requester::role("api") };
    let aggregate = Aggregate::conversation(account, conversation);
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
