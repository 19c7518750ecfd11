//! The reference worker: sends tasks to OpenAI-compatible services, streams what arrives, and says how certain it is of what
//! became of them.

use crate::job::{Credential, Done, Evidence, Handler, Job, Unreadable};
use crate::upstream::{self, Answer, CallError, Fault, Marks, Reply};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::{Client, Url};
use serde_json::{Map, Value, json};
use signalbox_events::conversation::Usage;
use signalbox_events::task::RunMode;

/// Sends tasks of the kinds in [`OpenAi::KINDS`].
pub struct OpenAi {
    /// The client; proxies and time-outs are its own.
    pub http: Client,
}

impl OpenAi {
    /// The kinds that it takes, each with its path below the base URL.
    pub const KINDS: [(&'static str, &'static str); 3] =
        [("chat.completions", "/chat/completions"), ("completions", "/completions"), ("embeddings", "/embeddings")];
}

impl Handler for OpenAi {
    fn execute<'a>(&'a self, job: &'a mut Job) -> BoxFuture<'a, Done> {
        async move { self.send(job).await }.boxed()
    }
}

/// It is known before anything is sent that it cannot be.
fn unsent(code: &str, retryable: bool) -> Done {
    let (code, evidence) = (code.to_owned(), Evidence::NotSent);
    Done::Broken { evidence, code, retryable, upstream_status: None, retry_after_seconds: None, partial: None, detail: None }
}

/// Whether a credential may be sent to a base URL.
fn belongs(credential: &Credential, base_url: &str) -> bool {
    Url::parse(base_url).is_ok_and(|url| url.origin().ascii_serialization() == credential.origin)
}

impl OpenAi {
    async fn send(&self, job: &mut Job) -> Done {
        let assignment = job.assignment().clone();
        let path = Self::KINDS.iter().find(|(kind, _)| *kind == assignment.kind).map(|(_, path)| *path);
        let payload = match job.payload().await {
            Ok(payload) => payload,
            Err(error) => {
                tracing::info!(task = %assignment.task, %error, "the payload cannot be read, so nothing is sent");
                return Done::Released("payload_missing".to_owned());
            }
        };
        let body = serde_json::from_str::<Map<String, Value>>(&payload).ok();
        // What is wrong with a task is reported, and only who has redeemed may report: nothing is sent either way.
        if let Err(error) = job.redeem().await {
            tracing::info!(task = %assignment.task, %error, "not redeemed, so not sent");
            return Done::Released("not_redeemed".to_owned());
        }
        if assignment.run_mode == RunMode::Simulation {
            return Done::Succeeded { result: json!({"simulated": true}).to_string(), usage: None };
        }
        let Some(path) = path else { return unsent("kind_unsupported", false) };
        let Some(mut body) = body else { return unsent("payload_invalid", false) };
        let Some(destination) = assignment.destination else {
            // The deployment does not serve now, and may in a moment.
            return unsent("destination_missing", true);
        };
        let credential = match job.credential() {
            Ok(None) => None,
            // The upstream has moved since the task was claimed: the next claim says where to.
            Ok(Some(credential)) if !belongs(&credential, &destination.base_url) => return unsent("credential_origin", true),
            Ok(Some(credential)) => Some((credential.header, credential.value)),
            Err(Unreadable) => return unsent("credential_sealed", false),
        };
        body.insert("model".to_owned(), destination.model.into());
        // What a caller asked for is passed on as it is.
        if assignment.streaming && !body.contains_key("stream") {
            body.insert("stream".to_owned(), true.into());
            body.insert("stream_options".to_owned(), json!({"include_usage": true}));
        }
        let url = format!("{}{path}", destination.base_url);
        let cancelled = job.cancelled();
        let marks = Marks { once: Some(assignment.attempt_id.to_string()), credential };
        let mut answer = Answer::default();
        let reply = tokio::select! {
            // The request may be on its way: breaking it off does not call it back.
            () = cancelled.cancelled() => return Done::Cancelled { partial: None, usage: None },
            reply = upstream::call(&self.http, &url, Value::Object(body).to_string(), &marks) => reply,
        };
        match reply {
            Err(error) => broken(&error, &answer),
            Ok(Reply::Whole(whole)) => Done::Succeeded { usage: usage_of(&whole), result: clean(whole.to_string()) },
            Ok(Reply::Stream(mut chunks)) => loop {
                let chunk = tokio::select! {
                    () = cancelled.cancelled() => return Done::Cancelled { partial: partial(&answer), usage: Some(answer.usage(0)) },
                    chunk = chunks.next() => chunk,
                };
                match chunk {
                    Ok(Some(chunk)) => {
                        answer.take(&chunk);
                        job.delta(clean(chunk.to_string()).into()).await;
                    }
                    Ok(None) => return whole(&answer),
                    // The model had said that it was done; only its end mark is missing.
                    Err(error) if error.fault == Fault::Disconnected && answer.finish_reason.is_some() => return whole(&answer),
                    Err(error) => return broken(&error, &answer),
                }
            },
        }
    }
}

/// A streamed answer, put together.
fn whole(answer: &Answer) -> Done {
    let Usage { prompt_tokens, completion_tokens, .. } = answer.usage(0);
    let usage = json!({"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": prompt_tokens + completion_tokens});
    let choice = json!({"index": 0, "message": answer.message(), "finish_reason": answer.finish_reason});
    let result = json!({"object": "chat.completion", "choices": [choice], "usage": usage});
    Done::Succeeded { result: clean(result.to_string()), usage: Some(answer.usage(0)) }
}

fn usage_of(whole: &Value) -> Option<Usage> {
    let usage = whole.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    Some(Usage { prompt_tokens: count("prompt_tokens"), completion_tokens: count("completion_tokens"), estimated: false })
}

fn partial(answer: &Answer) -> Option<String> {
    (!answer.is_empty()).then(|| clean(answer.text.clone()))
}

/// What a failed call amounts to. Once an answer has begun the upstream has taken the task: that is a failure, not a doubt.
fn broken(error: &CallError, answer: &Answer) -> Done {
    let code = error.fault.as_str().to_owned();
    if !answer.is_empty() {
        return Done::Failed {
            code,
            upstream_status: error.status,
            partial: partial(answer),
            usage: Some(answer.usage(0)),
            detail: Some(error.detail.clone()),
        };
    }
    Done::Broken {
        evidence: error.evidence,
        code,
        retryable: matches!(error.fault, Fault::Unreachable | Fault::TooManyRequests),
        upstream_status: error.status,
        retry_after_seconds: error.retry_after_seconds,
        partial: None,
        detail: Some(error.detail.clone()),
    }
}

/// PostgreSQL cannot hold U+0000, spelled out or escaped in JSON.
fn clean(text: String) -> String {
    if text.contains('\0') || text.contains("\\u0000") { text.replace('\0', "\u{fffd}").replace("\\u0000", "\\ufffd") } else { text }
}
