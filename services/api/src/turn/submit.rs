//! `POST /v1/conversations/{id}/turns`: claims a turn and executes it, or attaches to the equal one that was first.

use super::follow::{Place, follow};
use super::render::{Leaving, Profile, Renderer, ending};
use super::{TurnView, ended_row};
use crate::body::Body;
use crate::conversation::{gate, visible};
use crate::executor::{self, Claimed, stream_subject};
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::sse::{self, KeepAlive};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use signalbox_domain::conversation::{Conversation, Submit, message};
use signalbox_domain::{Code, Rejection};
use signalbox_events::conversation::{OnDisconnect, TurnState};
use signalbox_events::{Aggregate, TurnId};
use signalbox_journal::Request;
use std::time::Duration;
use utoipa::ToSchema;

/// Fields by which a caller could choose where a request, and so a credential, goes.
const REDIRECTING: [&str; 7] = ["api_base", "api_key", "base_url", "endpoint", "extra_headers", "proxy", "headers"];

/// A turn. Fields that are not listed go to the model unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[expect(dead_code, reason = "describes the body for the OpenAPI document; the fields are read from the object")]
pub(crate) struct TurnBody {
    /// The caller's own key for the turn, 1 to 128 characters of `[A-Za-z0-9._:-]`: the same key with the same body is
    /// the same turn.
    client_turn_id: String,
    /// What the user says; or give `messages`.
    content: Option<String>,
    /// New messages: user messages, and tool messages that answer the assistant's calls.
    messages: Option<Vec<Value>>,
    /// Whether the answer streams.
    stream: Option<bool>,
    /// `continue` (the default) or `cancel`: what becomes of the turn when its first client leaves.
    on_disconnect: Option<String>,
    /// `resumable` (the default) or `compatible`.
    profile: Option<String>,
    /// 0 to 2.
    temperature: Option<f64>,
    /// Above 0.
    max_tokens: Option<u64>,
}

struct Wanted {
    client_turn_id: String,
    messages: Vec<Value>,
    parameters: Map<String, Value>,
    canonical: String,
    stream: bool,
    on_disconnect: OnDisconnect,
    profile: Profile,
}

/// Refuses fields that would choose where the model's request goes.
pub(crate) fn check_redirecting(body: &Map<String, Value>) -> Result<(), Rejection> {
    match REDIRECTING.iter().find(|name| body.contains_key(**name)) {
        Some(name) => Err(Rejection { code: Code::UnknownField, detail: format!("`{name}` is not known here"), field: Some((*name).to_owned()) }),
        None => Ok(()),
    }
}

fn read(Body(mut body): Body) -> Result<Wanted, Rejection> {
    // How the answer is delivered is no part of what is asked: a retry may ask for another form.
    let stream = body.shift_remove("stream");
    let profile = match body.shift_remove("profile") {
        None | Some(Value::Null) => Profile::Resumable,
        Some(Value::String(text)) if text == "resumable" => Profile::Resumable,
        Some(Value::String(text)) if text == "compatible" => Profile::Compatible,
        Some(_) => return Err(Rejection::field("profile", "must be `resumable` or `compatible`")),
    };
    let stream = match stream {
        None | Some(Value::Null) => false,
        Some(Value::Bool(stream)) => stream,
        Some(_) => return Err(Rejection::field("stream", "must be true or false")),
    };
    let canonical = message::canonical(&Value::Object(body.clone())).to_string();
    let client_turn_id = match body.shift_remove("client_turn_id") {
        None | Some(Value::Null) => return Err(Rejection::missing("client_turn_id")),
        Some(Value::String(text)) => text,
        Some(_) => return Err(Rejection::field("client_turn_id", "must be a text")),
    };
    let on_disconnect = match body.shift_remove("on_disconnect") {
        None | Some(Value::Null) => OnDisconnect::Continue,
        Some(value) => {
            value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| Rejection::field("on_disconnect", "must be `cancel` or `continue`"))?
        }
    };
    let messages = match (body.shift_remove("content"), body.shift_remove("messages")) {
        (Some(content), None) => {
            let message = json!({"role": "user", "content": content});
            message::check_message("", &message).map_err(|rejection| Rejection { field: Some("content".to_owned()), ..rejection })?;
            vec![message]
        }
        (None, messages) => message::check_messages(messages.as_ref())?.to_vec(),
        (Some(_), Some(_)) => return Err(Rejection::field("content", "give either `content` or `messages`")),
    };
    check_redirecting(&body)?;
    message::check_parameters(&body)?;
    for name in ["model", "n", "stream_options"] {
        if body.contains_key(name) {
            return Err(Rejection { code: Code::UnknownField, detail: format!("a turn has no `{name}`"), field: Some(name.to_owned()) });
        }
    }
    Ok(Wanted { client_turn_id, messages, parameters: body, canonical, stream, on_disconnect, profile })
}

/// Submits a turn
#[utoipa::path(post, path = "/v1/conversations/{id}/turns", tag = "turn", params(("id" = String, Path)), request_body = TurnBody, security(("key" = [])),
    responses(
        (status = 200, body = TurnView, description = "The turn once it has completed; with `stream`, events as `text/event-stream`"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn submit(State(app): State<App>, asked: Asked, Path(text): Path<String>, body: Body) -> Result<Response, Problem> {
    asked.caller.must_be_member()?;
    let wanted = read(body.of(&asked.caller)?)?;
    gate(&app, &asked.caller).await?;
    let (aggregate, conversation) = visible(&app, &asked.caller, &text).await?;
    let turn = TurnId(app.context().id);
    let command = Submit {
        turn,
        client_turn_id: wanted.client_turn_id.clone(),
        canonical: wanted.canonical,
        title: message::title(&wanted.messages),
        messages: Value::Array(wanted.messages).to_string(),
        parameters: Value::Object(wanted.parameters).to_string(),
        on_disconnect: wanted.on_disconnect,
        executor: app.instance.clone(),
        stream: stream_subject(&app.instance, turn),
    };
    // The client's key makes it idempotent, for as long as the conversation lives.
    let mut requester = asked.requester();
    requester.command_id = None;
    let request = Request { aggregate: aggregate.clone(), command, requester: requester.clone() };
    let done = app.ledger.execute::<Conversation>(request).await?;
    let state = done.state.as_ref().ok_or_else(Problem::not_found)?;
    let turn = *state.keys.get(&wanted.client_turn_id).ok_or_else(Problem::not_found)?;
    let claimed = done.stated.is_some();
    let (stream, _) = state.turns.get(&turn).map(|turn| (turn.stream.clone(), turn.state)).ok_or_else(Problem::not_found)?;
    if claimed {
        let workload = Aggregate::workload(aggregate.account, conversation.workload);
        let (owner, owner_name) = (asked.caller.principal, asked.caller.name.clone());
        executor::start(&app, Claimed { conversation: aggregate.clone(), workload, turn, stream: stream.clone(), requester, owner, owner_name });
    }
    let leaving = (claimed && wanted.on_disconnect == OnDisconnect::Cancel).then(|| {
        let app = app.clone();
        let left = move || {
            app.running.cancel(turn);
        };
        Leaving(Some(Box::new(left) as Box<dyn FnOnce() + Send>))
    });
    let place = Place { conversation: aggregate, turn, subject: stream, after: 0 };
    if !wanted.stream {
        return whole(&app, place, leaving).await;
    }
    let renderer = Renderer {
        profile: wanted.profile,
        turn,
        model: conversation.model,
        created: app.context().now.timestamp(),
        include_usage: true,
        snapshot: false,
        last: 0,
        leaving,
    };
    Ok(streamed(&app, place, renderer))
}

/// The answer that streams a turn.
pub(super) fn streamed(app: &App, place: Place, renderer: Renderer) -> Response {
    let keep_alive = if renderer.profile == Profile::Compatible { KeepAlive::Frame } else { KeepAlive::Glued };
    let headers = vec![("x-signalbox-turn", place.turn.to_string())];
    let frames = renderer.frames(follow(app, place));
    sse::response(app, frames, keep_alive, headers)
}

/// Waits for the end and answers with the whole turn.
async fn whole(app: &App, place: Place, mut leaving: Option<Leaving>) -> Result<Response, Problem> {
    let turn = place.turn;
    let mut pieces = follow(app, place);
    loop {
        match pieces.recv().await {
            Some(super::follow::Piece::End(row)) => {
                if let Some(leaving) = leaving.as_mut() {
                    leaving.0 = None;
                }
                return if row.state == TurnState::Completed { Ok(Json(TurnView::new(*row)).into_response()) } else { Err(ending(&row)) };
            }
            Some(super::follow::Piece::Broken(problem)) => return Err(problem),
            Some(super::follow::Piece::Kept(_) | super::follow::Piece::Delta(..)) => {}
            None => {
                let row = tokio::time::timeout(Duration::from_secs(5), ended_row(app, turn)).await;
                return match row {
                    Ok(Ok(Some(row))) => Ok(Json(TurnView::new(row)).into_response()),
                    _ => Err(Problem::new(Code::Unavailable, "the turn goes on, but cannot be followed from here")),
                };
            }
        }
    }
}
