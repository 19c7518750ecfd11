//! Errors as answers: one body for both worlds, RFC 9457 and OpenAI's.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use signalbox_domain::{Code, Rejection};
use signalbox_journal::{AppendError, Failure};
use utoipa::ToSchema;

/// A refusal or failure on its way to the caller.
#[derive(Debug)]
pub(crate) struct Problem {
    pub code: Code,
    pub detail: String,
    pub field: Option<String>,
    pub retry_after: Option<u64>,
    /// Another status than the code's: a model's own refusal keeps its status.
    pub status: Option<u16>,
    /// Further members of the body.
    pub more: Vec<(&'static str, Value)>,
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemBody {
    /// A URI reference that names the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened here.
    pub detail: String,
    /// The stable code.
    pub code: &'static str,
    /// The path of the offending field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The same in OpenAI's shape.
    pub error: OpenAiError,
}

/// An error as OpenAI's clients read it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    /// What happened.
    pub message: String,
    /// The class of error.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The stable code.
    pub code: &'static str,
    /// The path of the offending field.
    pub param: Option<String>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None, status: None, more: vec![] }
    }

    pub fn not_found() -> Self {
        Rejection::not_found().into()
    }

    fn status(&self) -> u16 {
        self.status.unwrap_or(self.code.status())
    }

    /// The error in OpenAI's shape, as an event of a stream.
    pub fn openai(&self) -> OpenAiError {
        let kind = match self.status() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..500 => "invalid_request_error",
            _ => "server_error",
        };
        OpenAiError { message: self.detail.clone(), kind, code: self.code.as_str(), param: self.field.clone() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (error, status) = (self.openai(), self.status());
        let body = ProblemBody {
            kind: format!("/problems/{}", self.code),
            title: self.code.title(),
            status,
            detail: self.detail,
            code: self.code.as_str(),
            field: self.field,
            error,
        };
        let mut body = json!(body);
        for (name, value) in self.more {
            body[name] = value;
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.min(120).into());
        }
        // The official clients repeat 408, 409, 429 and 5xx by themselves; most of ours would only fail again.
        let again = match self.code {
            Code::TurnInProgress | Code::Contended | Code::Unavailable | Code::LogFull | Code::TooManyRequests | Code::ViewBehind => "true",
            _ => "false",
        };
        headers.insert("x-should-retry", HeaderValue::from_static(again));
        response
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let retry_after = (rejection.code == Code::TurnInProgress).then_some(1);
        Self { code: rejection.code, detail: rejection.detail, field: rejection.field, retry_after, status: None, more: vec![] }
    }
}

/// Failures are ours: the caller learns the code, the log gets the chain.
fn failure(code: Code, detail: &str, error: &dyn std::error::Error) -> Problem {
    let mut chain = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        chain = format!("{chain}: {error}");
        cause = error.source();
    }
    tracing::error!(code = %code, error = chain, "a request failed");
    Problem { retry_after: Some(1), ..Problem::new(code, detail) }
}

impl From<Failure> for Problem {
    fn from(error: Failure) -> Self {
        match error {
            Failure::Rejected(rejection) => rejection.into(),
            Failure::Contended(_) => Self { retry_after: Some(1), ..Self::new(Code::Contended, "too many writers at once; try again") },
            Failure::Append(AppendError::Full) => failure(Code::LogFull, "the log's storage is full; nothing was stored", &error),
            Failure::Append(AppendError::Unavailable) => failure(Code::Unavailable, "the log is not available; nothing was stored", &error),
            Failure::Append(AppendError::Unknown) => {
                failure(Code::Unavailable, "the log did not answer; repeat the request with the same Idempotency-Key", &error)
            }
            Failure::Store(_) => failure(Code::Unavailable, "the log cannot be read now", &error),
            Failure::Append(_)
            | Failure::Vault(_)
            | Failure::Decode { .. }
            | Failure::Encode(_)
            | Failure::Broken { .. }
            | Failure::UnknownFact { .. } => failure(Code::Internal, "something failed here; it is in the service's log", &error),
        }
    }
}

macro_rules! unavailable {
    ($($error:ty),+) => { $(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                failure(Code::Unavailable, "a part of the service does not answer", &error)
            }
        }
    )+ };
}
unavailable!(
    signalbox_projections::sqlx::Error,
    signalbox_projections::ApplyError,
    signalbox_projections::workload_list::Error,
    signalbox_projections::conversation::Error,
    signalbox_projections::task::Error,
    signalbox_journal::StoreError
);
