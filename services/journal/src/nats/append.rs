//! One publish with its expectation, and what each answer means.

use super::PATIENCE;
use crate::journal::{Append, AppendError};
use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::header::{HeaderMap, HeaderValue, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE};
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{Client, Request};

/// The header that names the event's type.
const TYPE: &str = "Signalbox-Type";

pub(super) async fn append(client: &Client, message: Append) -> Result<u64, AppendError> {
    // The client would keep the message while it is disconnected and send it after the caller has given up.
    if client.connection_state() != State::Connected {
        return Err(AppendError::Unavailable);
    }
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(message.expected));
    headers.insert(TYPE, message.kind);
    if let Some(traceparent) = message.traceparent.as_deref().and_then(|text| text.parse::<HeaderValue>().ok()) {
        headers.insert("traceparent", traceparent);
    }
    let request = Request::new().headers(headers).payload(message.payload).timeout(Some(PATIENCE));
    let answer = client.send_request(message.subject, request).await.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => AppendError::Unavailable,
        RequestErrorKind::TimedOut | RequestErrorKind::Other => AppendError::Unknown,
        RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => AppendError::Refused { code: 0, description: error.to_string() },
    })?;
    match serde_json::from_slice::<Response<PublishAck>>(&answer.payload) {
        Ok(Response::Ok(ack)) => Ok(ack.sequence),
        Ok(Response::Err { error }) => Err(meaning(error.error_code().0, error.to_string())),
        // An answer that is no answer of JetStream's says nothing about what was stored.
        Err(_) => Err(AppendError::Unknown),
    }
}

/// What JetStream's error codes mean for an append.
fn meaning(code: u64, description: String) -> AppendError {
    match code {
        10071 => AppendError::Stale,
        10164 => AppendError::Busy,
        // account limit, insufficient resources, storage resources exceeded, stream store failed
        10002 | 10023 | 10047 | 10077 => AppendError::Full,
        // JetStream not available: clustered without a leader, not enabled, not ready, stream offline
        10008 | 10009 | 10035 | 10039 | 10076 | 10118 => AppendError::Unavailable,
        _ => AppendError::Refused { code, description },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_meaning() {
        assert!(matches!(meaning(10071, String::new()), AppendError::Stale));
        assert!(matches!(meaning(10164, String::new()), AppendError::Busy));
        assert!(matches!(meaning(10077, String::new()), AppendError::Full));
        assert!(matches!(meaning(10008, String::new()), AppendError::Unavailable));
        assert!(matches!(meaning(10052, String::new()), AppendError::Refused { code: 10052, .. }));
    }
}
