//! One connection: requests with the worker's own subjects, answers as values or refusals.

use async_nats::{Client, HeaderMap, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signalbox_events::work::{ERROR_HEADER, Form, Refusal, Verb, request_subject};
use signalbox_events::{IncarnationId, PoolId, WorkerId};
use std::time::Duration;

/// A request without the answer that was hoped for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The service says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Nobody answered in time, or what was answered cannot be read. Whether it was carried out is not known.
    #[error("no answer: {0}")]
    Unanswered(String),
}

impl CallError {
    /// Whether asking again can help: there was no answer, or the service was busy with itself.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.code == "unavailable",
            Self::Unanswered(_) => true,
        }
    }
}

/// The worker's connection.
#[derive(Clone)]
pub(crate) struct Link {
    pub client: Client,
    pub pool: PoolId,
    pub worker: WorkerId,
    pub incarnation: IncarnationId,
}

/// The wait for an answer that is due at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Link {
    pub async fn call<T: DeserializeOwned>(&self, verb: Verb, body: &impl Serialize, patience: Duration) -> Result<T, CallError> {
        let unanswered = |error: &dyn std::fmt::Display| CallError::Unanswered(error.to_string());
        let payload = Form::MessagePack.write(body).map_err(|error| unanswered(&error))?;
        let request = Request::new().payload(payload.into()).timeout(Some(patience));
        let subject = request_subject(&self.pool, &self.worker, verb);
        let answer = self.client.send_request(subject, request).await.map_err(|error| unanswered(&error))?;
        if answer.headers.as_ref().is_some_and(|headers| headers.get(ERROR_HEADER).is_some()) {
            let refusal: Refusal = Form::MessagePack.read(&answer.payload).map_err(|error| unanswered(&error))?;
            return Err(refusal.into());
        }
        Form::MessagePack.read(&answer.payload).map_err(|error| unanswered(&error))
    }

    /// The same, asked again until it is answered or `until` has passed.
    pub async fn insist<T: DeserializeOwned>(&self, verb: Verb, body: &impl Serialize, until: tokio::time::Instant) -> Result<T, CallError> {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.call(verb, body, PATIENCE).await {
                Err(error) if error.is_transient() && tokio::time::Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                outcome => return outcome,
            }
        }
    }

    /// Publishes a delta of an attempt without waiting.
    pub async fn delta(&self, subject: String, number: u64, payload: bytes::Bytes) {
        let mut headers = HeaderMap::new();
        headers.insert("Signalbox-Seq", number.to_string());
        if let Err(error) = self.client.publish_with_headers(subject, headers, payload).await {
            tracing::warn!(%error, "a delta was not sent");
        }
    }
}
