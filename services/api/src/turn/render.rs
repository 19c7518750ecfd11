//! A turn's pieces as Server-Sent Events, in two profiles.
//!
//! *compatible*: chunks as OpenAI's clients read them, the cursor in an extra field. *resumable*: named events with ids.

use super::TurnView;
use super::follow::Piece;
use crate::problem::Problem;
use crate::sse;
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Value, json};
use signalbox_domain::Code;
use signalbox_events::TurnId;
use signalbox_events::conversation::TurnState;
use signalbox_projections::conversation::TurnRow;
use tokio::sync::mpsc;

/// How a stream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    Compatible,
    Resumable,
}

/// What the frames are made with.
pub(super) struct Renderer {
    pub profile: Profile,
    pub turn: TurnId,
    /// The model's name in chunks.
    pub model: String,
    /// Unix time of the chunks.
    pub created: i64,
    /// Whether the caller asked for the usage chunk.
    pub include_usage: bool,
    /// Whether what had arrived is shown as one snapshot.
    pub snapshot: bool,
    /// The last delta that was shown.
    pub last: u64,
    /// Held while the stream is read; dropped early it says that the reader has left.
    pub leaving: Option<Leaving>,
}

/// Runs when a reader leaves before the end.
pub(super) struct Leaving(pub Option<Box<dyn FnOnce() + Send>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(left) = self.0.take() {
            left();
        }
    }
}

impl Renderer {
    /// The frames of a turn's pieces.
    pub fn frames(self, pieces: mpsc::Receiver<Piece>) -> impl Stream<Item = Bytes> + Send {
        stream::unfold((self, pieces, false), |(mut renderer, mut pieces, over)| async move {
            if over {
                return None;
            }
            let piece = pieces.recv().await?;
            let over = matches!(piece, Piece::End(_) | Piece::Broken(_));
            if over && let Some(leaving) = renderer.leaving.as_mut() {
                leaving.0 = None;
            }
            let frame = renderer.frame(piece);
            Some((frame, (renderer, pieces, over)))
        })
    }

    fn frame(&mut self, piece: Piece) -> Bytes {
        match piece {
            Piece::Kept(kept) if self.snapshot => self.snapshot_of(&kept),
            Piece::Kept(kept) => kept.into_iter().map(|(number, chunk)| self.delta(number, &chunk)).collect::<Vec<_>>().concat().into(),
            Piece::Delta(number, chunk) => self.delta(number, &chunk),
            Piece::End(row) => self.end(*row),
            Piece::Broken(problem) => self.broken(&problem),
        }
    }

    fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.turn)
    }

    fn snapshot_of(&mut self, kept: &[(u64, Value)]) -> Bytes {
        let Some((number, _)) = kept.last() else { return Bytes::new() };
        self.last = *number;
        let text: String = kept.iter().map(|(_, chunk)| text_of(chunk)).collect();
        sse::event(&self.id(*number), "snapshot", &json!({"turn_id": self.turn.0, "seq": number, "text": text}))
    }

    fn delta(&mut self, number: u64, chunk: &Value) -> Bytes {
        self.last = number;
        match self.profile {
            Profile::Compatible => {
                let only_usage = chunk["choices"].as_array().is_none_or(Vec::is_empty);
                if only_usage && !self.include_usage {
                    return Bytes::new();
                }
                sse::data(&self.chunk(chunk, number))
            }
            Profile::Resumable => {
                let choice = &chunk["choices"][0];
                let mut event = json!({"turn_id": self.turn.0, "seq": number, "delta": choice["delta"]});
                for name in ["finish_reason", "logprobs"] {
                    if !choice[name].is_null() {
                        event[name] = choice[name].clone();
                    }
                }
                if !chunk["usage"].is_null() {
                    event["usage"] = chunk["usage"].clone();
                }
                sse::event(&self.id(number), "delta", &event)
            }
        }
    }

    /// A chunk as OpenAI's clients read it.
    fn chunk(&self, chunk: &Value, number: u64) -> Value {
        let mut out = json!({
            "id": format!("chatcmpl-{}", self.turn),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": chunk.get("choices").cloned().unwrap_or_else(|| json!([])),
        });
        if self.include_usage && !chunk["usage"].is_null() {
            out["usage"] = chunk["usage"].clone();
        }
        out["signalbox"] = json!({"turn_id": self.turn.0, "seq": number});
        out
    }

    fn end(&mut self, row: TurnRow) -> Bytes {
        let state = row.state;
        let mut out = Vec::new();
        // The deltas are gone, the answer is not: it is shown whole.
        if self.last == 0
            && let Some(answer) = &row.answer
        {
            let chunk = json!({"choices": [{"index": 0, "delta": answer, "finish_reason": row.finish_reason}]});
            out.push(self.delta(1, &chunk));
        }
        match self.profile {
            Profile::Resumable => {
                let (id, name) = (self.id(self.last + 1), state.as_str());
                out.push(sse::event(&id, name, &json!(TurnView::new(row))));
            }
            Profile::Compatible => {
                if state != TurnState::Completed {
                    let problem = ending(&row);
                    out.push(sse::data(&json!({"error": problem.openai(), "signalbox": {"turn_id": self.turn.0, "state": state.as_str()}})));
                }
                out.push(sse::done());
            }
        }
        out.concat().into()
    }

    fn broken(&self, problem: &Problem) -> Bytes {
        match self.profile {
            Profile::Resumable => sse::event(&self.id(self.last), "error", &json!({"turn_id": self.turn.0, "error": problem.openai()})),
            Profile::Compatible => [sse::data(&json!({"error": problem.openai()})), sse::done()].concat().into(),
        }
    }
}

/// What a turn that did not complete means for a caller that waits for an answer.
pub(super) fn ending(row: &TurnRow) -> Problem {
    let code = row.code.as_deref().and_then(|code| Code::ALL.iter().find(|known| known.as_str() == code)).copied();
    let code = code.unwrap_or(Code::TurnFailed);
    let detail = match row.state {
        TurnState::Failed => code.title().to_owned(),
        state => format!("the turn is {state}"),
    };
    Problem { more: vec![("turn", json!(TurnView::new(row.clone())))], ..Problem::new(code, detail) }
}

fn text_of(chunk: &Value) -> &str {
    chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default()
}
