//! `POST /v1/chat/completions`: one completion of a deployment, as OpenAI's clients ask for it.

use crate::body::Body;
use crate::call::leased::Wanted;
use crate::call::{self, Answer, Chunks, Reply};
use crate::problem::{Problem, ProblemBody};
use crate::request::Asked;
use crate::setting::Switches;
use crate::sse::{self, KeepAlive};
use crate::state::App;
use crate::turn::submit::check_redirecting;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Map, Value, json};
use signalbox_domain::Rejection;
use signalbox_domain::conversation::message;

/// What is asked for here.
const KIND: &str = "chat.completions";

/// Completes a chat
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai", request_body = Object, security(("key" = [])),
    responses((status = 200, body = Object, description = "OpenAI's chat completion, or its chunks as `text/event-stream`"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn completions(State(app): State<App>, asked: Asked, body: Body) -> Result<Response, Problem> {
    asked.caller.must_be_member()?;
    let Body(body) = body.of(&asked.caller)?;
    message::check_messages(body.get("messages"))?;
    message::check_parameters(&body)?;
    check_redirecting(&body)?;
    let name = match body.get("model") {
        None | Some(Value::Null) => return Err(Rejection::missing("model").into()),
        Some(Value::String(name)) => name.clone(),
        Some(_) => return Err(Rejection::field("model", "must be a text").into()),
    };
    let switches = Switches::load(&app, asked.caller.account).await?;
    switches.must_serve()?;
    let served = call::serve(&app, asked.caller.account, &switches, KIND, &name).await?;
    let streams = body.get("stream") == Some(&Value::Bool(true));
    app.metrics.model_calls.inc();
    let wanted = Wanted {
        id: None,
        owner: asked.caller.principal,
        owner_name: asked.caller.name.clone(),
        requester: asked.requester(),
        account: asked.caller.account,
        kind: KIND,
        body,
        streaming: streams,
    };
    let reply = call::send(&app, &served, wanted).await.map_err(|error| error.problem())?;
    match (reply, streams) {
        (Reply::Whole(whole), false) => Ok(Json(named(whole, &name)).into_response()),
        (Reply::Stream(chunks), false) => collect(chunks, &name, app.context().now.timestamp()).await,
        (Reply::Stream(chunks), true) => Ok(sse::response(&app, frames(chunks, name), KeepAlive::Frame, vec![])),
        (Reply::Whole(whole), true) => {
            let mut chunk = named(call::as_chunk(&whole), &name);
            chunk["id"] = whole["id"].clone();
            chunk["object"] = "chat.completion.chunk".into();
            chunk["created"] = whole["created"].clone();
            let frames = stream::iter([sse::data(&chunk), sse::done()]);
            Ok(sse::response(&app, frames, KeepAlive::Frame, vec![]))
        }
    }
}

/// An answer under the name that the caller asked for.
fn named(mut answer: Value, name: &str) -> Value {
    if answer.is_object() {
        answer["model"] = name.into();
    }
    answer
}

/// The model's chunks, each as it arrives. Whatever happens, the stream says how it ended.
fn frames(chunks: Chunks, name: String) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some((chunks, name)), |state| async {
        let (mut chunks, name) = state?;
        match chunks.next().await {
            Ok(Some(chunk)) => Some((sse::data(&named(chunk, &name)), Some((chunks, name)))),
            Ok(None) => Some((sse::done(), None)),
            Err(error) => Some(([sse::data(&json!({"error": error.problem().openai()})), sse::done()].concat().into(), None)),
        }
    })
}

/// A model that streams although it was not asked to: its pieces are put together.
async fn collect(mut chunks: Chunks, name: &str, now: i64) -> Result<Response, Problem> {
    let mut answer = Answer::default();
    let mut head = Map::new();
    loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                answer.take(&chunk);
                if let Some(id) = chunk.get("id").filter(|_| head.is_empty()) {
                    head.insert("id".to_owned(), id.clone());
                }
            }
            Ok(None) => break,
            Err(error) => return Err(error.problem()),
        }
    }
    let usage = answer.usage(0);
    let choice = json!({"index": 0, "message": answer.message(), "finish_reason": answer.finish_reason, "logprobs": null});
    let whole = json!({
        "id": head.get("id").cloned().unwrap_or(Value::Null),
        "object": "chat.completion",
        "created": now,
        "model": name,
        "choices": [choice],
        "usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, "total_tokens": usage.prompt_tokens + usage.completion_tokens},
    });
    Ok(Json(whole).into_response())
}
