//! `GET /v1/conversations/{id}/turns/{turn}/stream`: follows a turn, from its beginning or behind a cursor.

use super::follow::Place;
use super::get::visible_turn;
use super::render::{Profile, Renderer};
use super::submit::streamed;
use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::state::App;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use signalbox_domain::{Code, Rejection};
use signalbox_events::TurnId;
use utoipa::IntoParams;

/// Where to begin.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamQuery {
    /// The id of the last event that the reader has, where the header `Last-Event-ID` cannot be sent.
    after: Option<String>,
    /// `resumable` (the default) or `compatible`.
    profile: Option<String>,
}

/// Follows a turn
#[utoipa::path(get, path = "/v1/conversations/{id}/turns/{turn}/stream", tag = "turn", security(("key" = [])),
    params(("id" = String, Path), ("turn" = String, Path), StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Resumes behind this event")),
    responses((status = 200, content_type = "text/event-stream", body = String, description = "Without a cursor: a snapshot of the text so far, then what arrives"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn stream(
    State(app): State<App>,
    caller: Caller,
    Path((conversation, turn)): Path<(String, String)>,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (aggregate, existing, turn, found) = visible_turn(&app, &caller, &conversation, &turn).await?;
    let profile = match query.profile.as_deref() {
        None | Some("resumable") => Profile::Resumable,
        Some("compatible") => Profile::Compatible,
        Some(_) => {
            return Err(Problem { field: Some("profile".to_owned()), ..Problem::new(Code::InvalidQuery, "must be `resumable` or `compatible`") });
        }
    };
    let header = match headers.get("last-event-id") {
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| bad_cursor())?.to_owned()),
    };
    let after = match header.or(query.after) {
        None => 0,
        Some(text) => {
            let after = number(&text, turn)?;
            let kept = app.deltas.kept(&found.stream, 0).await?;
            // Nothing has such a number yet: the reader speaks of another stream.
            if kept.last().is_none_or(|last| after > last.number) && !(kept.is_empty() && found.state.is_terminal()) {
                return Err(bad_cursor().into());
            }
            after
        }
    };
    let place = Place { conversation: aggregate, turn, subject: found.stream, after };
    let renderer = Renderer {
        profile,
        turn,
        model: existing.model,
        created: app.context().now.timestamp(),
        include_usage: true,
        snapshot: after == 0 && profile == Profile::Resumable,
        last: after,
        leaving: None,
    };
    Ok(streamed(&app, place, renderer))
}

/// The number in an event's id, which is `<turn>:<number>`.
fn number(text: &str, turn: TurnId) -> Result<u64, Rejection> {
    let (of, number) = text.rsplit_once(':').ok_or_else(bad_cursor)?;
    let number: u64 = number.parse().map_err(|_| bad_cursor())?;
    if of == turn.to_string() { Ok(number) } else { Err(bad_cursor()) }
}

fn bad_cursor() -> Rejection {
    Rejection { code: Code::InvalidCursor, detail: "the event id is none of this turn's".to_owned(), field: Some("Last-Event-ID".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_cursor_is_of_this_turn() {
        let turn = TurnId(Uuid::from_u128(1));
        assert_eq!(number(&format!("{turn}:40"), turn), Ok(40));
        let other = TurnId(Uuid::from_u128(2));
        for bad in [format!("{other}:40"), "40".to_owned(), "abc".to_owned(), format!("{turn}:"), format!("{turn}:-1"), String::new()] {
            assert_eq!(number(&bad, turn).unwrap_err().code, Code::InvalidCursor, "{bad}");
        }
    }
}
