//! Executes turns that this replica has claimed: states the beginning, calls the model, publishes what arrives, states
//! the one ending.

use crate::call::leased::Wanted;
use crate::call::{self, Answer, CallError, Reply, Served};
use crate::setting::Switches;
use crate::state::App;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use signalbox_domain::Code;
use signalbox_domain::conversation::{Begin, Cancel, Command, Complete, Conversation, Fail};
use signalbox_domain::workload::Workload;
use signalbox_events::conversation::{Event, TurnState, Usage};
use signalbox_events::{Aggregate, Fact, PrincipalId, TaskId, Text, TurnId};
use signalbox_journal::nats::Delta;
use signalbox_journal::{Executed, Failure, Request, Requester};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What a turn asks for.
const KIND: &str = "chat.completions";

/// Turns that this replica executes, each with what ends it.
#[derive(Default)]
pub(crate) struct Running {
    turns: Mutex<HashMap<TurnId, CancellationToken>>,
    empty: Notify,
}

impl Running {
    fn turns(&self) -> MutexGuard<'_, HashMap<TurnId, CancellationToken>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a turn, if this replica executes it.
    pub fn cancel(&self, turn: TurnId) -> bool {
        self.turns().get(&turn).is_some_and(|token| {
            token.cancel();
            true
        })
    }

    pub async fn drained(&self) {
        loop {
            let emptied = self.empty.notified();
            if self.turns().is_empty() {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), emptied).await;
        }
    }
}

/// The subject on which an attempt's deltas appear.
pub(crate) fn stream_subject(instance: &str, turn: TurnId) -> String {
    format!("stream.gateway.{instance}.{turn}.1")
}

/// A claimed turn.
#[derive(Debug, Clone)]
pub(crate) struct Claimed {
    pub conversation: Aggregate,
    pub workload: Aggregate,
    pub turn: TurnId,
    pub stream: String,
    pub requester: Requester,
    /// Whose the conversation is.
    pub owner: PrincipalId,
    /// The owner's name.
    pub owner_name: String,
}

/// The task by which a worker executes a turn, where the turn does not go directly.
pub(crate) fn task_of(turn: TurnId) -> TaskId {
    TaskId(Uuid::new_v5(&turn.0, b"task"))
}

/// Executes a claimed turn, whatever becomes of the request that claimed it.
pub(crate) fn start(app: &App, claimed: Claimed) {
    let token = CancellationToken::new();
    app.running.turns().insert(claimed.turn, token.clone());
    let app = app.clone();
    tokio::spawn(async move {
        let turn = claimed.turn;
        Execution { app: &app, claimed: &claimed, token, number: 0, answer: Answer::default(), prompt_bytes: 0 }.run().await;
        app.running.turns().remove(&turn);
        app.running.empty.notify_waiters();
    });
}

struct Execution<'a> {
    app: &'a App,
    claimed: &'a Claimed,
    token: CancellationToken,
    number: u64,
    answer: Answer,
    prompt_bytes: usize,
}

impl Execution<'_> {
    async fn run(mut self) {
        let outcome = self.call().await;
        let turn = self.claimed.turn;
        let usage = self.answer.usage(self.prompt_bytes);
        let partial = (!self.answer.is_empty()).then(|| self.answer.text.clone());
        let ending: Command = match outcome {
            Ok(Called::Whole(finish_reason)) => Complete { turn, message: clean(self.answer.message().to_string()), finish_reason, usage }.into(),
            Ok(Called::Cancelled) => Cancel { turn, partial: partial.map(clean), usage }.into(),
            Ok(Called::NotOurs) => return,
            Err(error) => {
                // What was never sent, or was refused, costs nothing.
                let usage = if partial.is_none() { Usage::default() } else { usage };
                Fail { turn, code: error.code.as_str().to_owned(), upstream_status: error.status, partial: partial.map(clean), usage }.into()
            }
        };
        self.end(ending).await;
        // An empty delta: the log says how it ended.
        self.number += 1;
        self.publish(Bytes::new()).await;
    }

    /// States the ending until the log has taken it. Only a refusal means that another has ended the turn.
    async fn end(&self, ending: Command) {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.execute(ending.clone()).await {
                Ok(executed) => {
                    let state = executed.state.as_ref().and_then(|state| state.turns.get(&self.claimed.turn)).map(|turn| turn.state);
                    self.app.metrics.turn_ended(state.map_or("unknown", TurnState::as_str));
                    return;
                }
                Err(Failure::Rejected(rejection)) => {
                    tracing::warn!(turn = %self.claimed.turn, %rejection, "the turn had ended before");
                    return;
                }
                Err(error) => tracing::error!(turn = %self.claimed.turn, %error, "a turn's ending waits for the log"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn call(&mut self) -> Result<Called, CallError> {
        let (served, body) = self.prepare().await?;
        self.prompt_bytes = Value::Object(body.clone()).to_string().len();
        let wanted = Wanted {
            id: Some(task_of(self.claimed.turn)),
            owner: self.claimed.owner,
            owner_name: self.claimed.owner_name.clone(),
            requester: self.claimed.requester.clone(),
            account: self.claimed.conversation.account,
            kind: KIND,
            body,
            streaming: true,
        };
        // The last step before bytes go out: whoever's `Begin` is stated calls, nobody else, and nobody twice.
        let begin = Begin { turn: self.claimed.turn, executor: self.app.instance.clone(), stream: self.claimed.stream.clone() };
        match self.execute(begin.into()).await {
            Ok(Executed { stated: Some(_), .. }) => {}
            Ok(Executed { stated: None, .. }) | Err(Failure::Rejected(_)) => return Ok(Called::NotOurs),
            Err(error) => return Err(self.ours(&error)),
        }
        self.app.metrics.model_calls.inc();
        let token = self.token.clone();
        let app = self.app.clone();
        let reply = tokio::select! {
            () = token.cancelled() => return Ok(Called::Cancelled),
            reply = call::send(&app, &served, wanted) => reply?,
        };
        match reply {
            Reply::Whole(whole) => self.take(&call::as_chunk(&whole)).await,
            Reply::Stream(mut chunks) => loop {
                let chunk = tokio::select! {
                    () = token.cancelled() => return Ok(Called::Cancelled),
                    chunk = chunks.next() => chunk,
                };
                match chunk {
                    Ok(Some(chunk)) => self.take(&chunk).await,
                    Ok(None) => break,
                    // The model had said that it was done; only its end mark is missing.
                    Err(error) if error.code == Code::UpstreamDisconnected && self.answer.finish_reason.is_some() => break,
                    Err(error) => return Err(error),
                }
            },
        }
        match &self.answer.finish_reason {
            Some(reason) => Ok(Called::Whole(reason.clone())),
            None => Err(CallError::new(Code::UpstreamDisconnected, "the model did not say why it stopped")),
        }
    }

    async fn take(&mut self, chunk: &Value) {
        self.answer.take(chunk);
        let mut out = Map::new();
        for name in ["choices", "usage"] {
            if let Some(value) = chunk.get(name).filter(|value| !value.is_null()) {
                out.insert(name.to_owned(), value.clone());
            }
        }
        self.number += 1;
        self.publish(clean(Value::Object(out).to_string()).into()).await;
    }

    async fn publish(&self, payload: Bytes) {
        // A reader that misses a number asks the stream for it; one that finds nothing shows what the log has in the end.
        if let Err(error) = self.app.deltas.publish(&self.claimed.stream, Delta { number: self.number, payload }).await {
            tracing::warn!(turn = %self.claimed.turn, %error, "a delta was not published");
        }
    }

    /// Where to call, and with what: the finished turns, then this one's messages.
    async fn prepare(&self) -> Result<(Served, Map<String, Value>), CallError> {
        let events = self.app.ledger.history(&self.claimed.conversation, 0).await.map_err(|error| self.ours(&error))?;
        let workload = self.app.ledger.load::<Workload>(&self.claimed.workload).await.map_err(|error| self.ours(&error))?;
        let workload = workload.filter(|workload| !workload.deleting);
        let switches = Switches::load(self.app, self.claimed.conversation.account).await.map_err(|error| self.ours(&error))?;
        let served = workload.and_then(|workload| Served::deployment(self.app, &self.claimed.workload, &workload, switches.transport(KIND)));
        let served = served.ok_or_else(|| CallError::new(Code::WorkloadNotReady, "the workload does not serve now"))?;
        let mut pending: HashMap<TurnId, Vec<Value>> = HashMap::new();
        let mut messages = Vec::new();
        let mut parameters = Map::new();
        for event in &events {
            let Fact::Conversation(event) = &event.fact else { continue };
            match event {
                Event::TurnSubmitted(fact) => {
                    pending.insert(fact.turn, read::<Vec<Value>>(&fact.messages).unwrap_or_default());
                    if fact.turn == self.claimed.turn {
                        parameters = read(&fact.parameters).unwrap_or_default();
                    }
                }
                Event::TurnCompleted(fact) => {
                    messages.extend(pending.remove(&fact.turn).unwrap_or_default());
                    messages.extend(read::<Value>(&fact.message));
                }
                _ => {}
            }
        }
        messages.extend(pending.remove(&self.claimed.turn).unwrap_or_default());
        let mut body = parameters;
        body.insert("model".to_owned(), served.target.model.as_str().into());
        body.insert("messages".to_owned(), Value::Array(messages));
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        Ok((served, body))
    }

    async fn execute(&self, command: Command) -> Result<Executed<signalbox_domain::conversation::State>, Failure> {
        let requester = Requester { command_id: None, ..self.claimed.requester.clone() };
        self.app.ledger.execute::<Conversation>(Request { aggregate: self.claimed.conversation.clone(), command, requester }).await
    }

    /// A failure of ours, before anything was sent.
    fn ours(&self, error: &Failure) -> CallError {
        tracing::error!(turn = %self.claimed.turn, %error, "a turn cannot be executed");
        CallError::new(Code::Unavailable, "a part of the service does not answer")
    }
}

enum Called {
    Whole(String),
    Cancelled,
    /// Another executes the turn, or it has ended.
    NotOurs,
}

fn read<T: serde::de::DeserializeOwned>(text: &Text) -> Option<T> {
    serde_json::from_str(text.plain()?).ok()
}

/// PostgreSQL cannot hold U+0000, spelled out or escaped in JSON; a model that writes it gets the replacement character.
fn clean(text: String) -> String {
    if text.contains('\0') || text.contains("\\u0000") { text.replace('\0', "\u{fffd}").replace("\\u0000", "\\ufffd") } else { text }
}

/// Ends a turn, wherever it is executed.
pub(crate) async fn cancel(app: &App, executor: &str, turn: TurnId) {
    if !app.running.cancel(turn) {
        let subject = format!("ctl.gateway.{executor}.cancel");
        if let Err(error) = app.nats.publish(&subject, turn.to_string().into()).await {
            tracing::warn!(%turn, %error, "a cancel was not sent");
        }
    }
}
