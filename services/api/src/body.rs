//! Bodies: JSON, bounded, without NUL, every bad value answered with its path.

use crate::auth::Caller;
use crate::problem::Problem;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use signalbox_domain::conversation::message::check_no_nul;
use signalbox_domain::{Code, Rejection};

/// Largest body in bytes, decompressed.
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of a body that is too large that are read, and thrown away, before the connection is cut.
const MOST_READ: usize = 4 * MOST_BYTES;
/// Deepest nesting.
const MOST_DEPTH: usize = 64;
/// Names by which callers try to say whose something is.
const ACCOUNT_NAMES: [&str; 5] = ["account", "account_id", "tenant", "tenant_id", "organization_id"];

/// A body that is a JSON object.
pub(crate) struct Body(pub Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let json = kind.split(';').next().is_some_and(|kind| {
            let kind = kind.trim().to_ascii_lowercase();
            kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
        });
        if !json {
            return Err(Problem::new(Code::UnsupportedMediaType, "send the body as `Content-Type: application/json`"));
        }
        parse(&collect(request).await?).map(Self).map_err(Into::into)
    }
}

/// The body's bytes. One that is too large is read on for a while without being kept: a client that is cut off while it
/// sends never sees the answer.
async fn collect(request: Request) -> Result<Vec<u8>, Problem> {
    let mut stream = request.into_body().into_data_stream();
    let mut bytes = Vec::new();
    let mut read = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Code::InvalidBody, "the body cannot be read"))?;
        read += chunk.len();
        if read <= MOST_BYTES {
            bytes.extend_from_slice(&chunk);
        } else if read > MOST_READ {
            break;
        }
    }
    if read > MOST_BYTES { Err(Problem::new(Code::BodyTooLarge, format!("a body has at most {MOST_BYTES} bytes"))) } else { Ok(bytes) }
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, Rejection> {
    let invalid = |detail: String| Rejection::new(Code::InvalidBody, detail);
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| invalid(format!("the body is not JSON: {} at line {}, column {}", kind_of(&error), error.line(), error.column())))?;
    let Value::Object(fields) = &value else {
        return Err(invalid("the body must be a JSON object".to_owned()));
    };
    if fields.values().any(|field| deeper_than(field, MOST_DEPTH - 1)) {
        return Err(invalid(format!("the body is nested deeper than {MOST_DEPTH}")));
    }
    check_no_nul("", &value)?;
    let Value::Object(fields) = value else { return Err(invalid(String::new())) };
    Ok(fields)
}

/// What is wrong, without a piece of the body: bodies hold people's text.
fn kind_of(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Io => "it cannot be read",
        serde_json::error::Category::Syntax | serde_json::error::Category::Data => "it has a syntax error",
    }
}

fn deeper_than(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(|item| deeper_than(item, depth - 1)),
        Value::Object(fields) => depth == 0 || fields.values().any(|item| deeper_than(item, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl Body {
    /// The body without a caller's word on whose it is: the credential says that. Another's name is refused.
    pub fn of(mut self, caller: &Caller) -> Result<Self, Problem> {
        for name in ACCOUNT_NAMES {
            if let Some(value) = self.0.get(name) {
                if value.as_str() != Some(caller.account.to_string().as_str()) {
                    return Err(Problem {
                        field: Some(name.to_owned()),
                        ..Problem::new(Code::AccountMismatch, "the account comes from the API key")
                    });
                }
                self.0.shift_remove(name);
            }
        }
        Ok(self)
    }

    /// The body as a command. Unknown fields are refused.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Rejection> {
        serde_path_to_error::deserialize(Value::Object(self.0)).map_err(|error| {
            let path = error.path().to_string();
            let text = error.inner().to_string();
            let within = |name: &str| if path == "." || path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let quoted = text.split('`').nth(1).unwrap_or_default();
            if text.starts_with("missing field") {
                Rejection::missing(within(quoted))
            } else if text.starts_with("unknown field") {
                let field = if path.ends_with(quoted) { path.clone() } else { within(quoted) };
                Rejection { code: Code::UnknownField, detail: format!("`{quoted}` is not known here"), field: Some(field) }
            } else {
                let expected = text.split_once("expected ").map_or("another type", |(_, expected)| expected);
                Rejection::field(path, format!("must be {expected}"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Command {
        name: String,
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Inner {
        count: u32,
    }

    fn refused(text: &str) -> (Code, Option<String>) {
        let outcome = parse(text.as_bytes()).and_then(|fields| Body(fields).read::<Command>());
        let rejection = outcome.unwrap_err();
        (rejection.code, rejection.field)
    }

    #[test]
    fn every_bad_value_is_named_by_its_path() {
        let table = [
            ("", Code::InvalidBody, None),
            ("null", Code::InvalidBody, None),
            ("[]", Code::InvalidBody, None),
            ("\"\"", Code::InvalidBody, None),
            ("{", Code::InvalidBody, None),
            (r#"{"name": "\ud83d"}"#, Code::InvalidBody, None),
            (r#"{"name": "\ude00\ud83d"}"#, Code::InvalidBody, None),
            ("{}", Code::MissingField, Some("name")),
            (r#"{"name": null, "inner": {"count": 1}}"#, Code::InvalidField, Some("name")),
            (r#"{"name": "x", "inner": {}}"#, Code::MissingField, Some("inner.count")),
            (r#"{"name": "x", "inner": {"count": -1}}"#, Code::InvalidField, Some("inner.count")),
            (r#"{"name": "x", "inner": {"count": 1, "more": 2}}"#, Code::UnknownField, Some("inner.more")),
            (r#"{"name": "x\u0000", "inner": {"count": 1}}"#, Code::InvalidField, Some("name")),
        ];
        for (text, code, field) in table {
            assert_eq!(refused(text), (code, field.map(str::to_owned)), "{text}");
        }
        assert_eq!(parse(&[b'"', 0xed, 0xa0, 0x80, b'"']).unwrap_err().code, Code::InvalidBody);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{{\"a\": {}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(63).as_bytes()).is_ok());
        assert_eq!(parse(nested(64).as_bytes()).unwrap_err().code, Code::InvalidBody);
        assert_eq!(parse(nested(100_000).as_bytes()).unwrap_err().code, Code::InvalidBody);
    }
}
