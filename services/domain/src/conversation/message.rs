//! The messages that a caller sends: checked with the path of the first bad value, kept as they came.

use crate::{Code, Rejection};
use serde_json::{Map, Value};

/// Most Unicode code points of one text part.
pub const MOST_CHARACTERS: usize = 32_768;
/// Most messages of one request.
pub const MOST_MESSAGES: usize = 500;
/// Code points of the first user message that become a title.
const TITLE: usize = 48;

/// Checks `messages` of a request body: a list of messages that a model can be given.
pub fn check_messages(messages: Option<&Value>) -> Result<&[Value], Rejection> {
    let path = "messages";
    let messages = match messages {
        None | Some(Value::Null) => return Err(Rejection::missing(path)),
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(Rejection::field(path, "must be a list of messages")),
    };
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        return Err(Rejection::field(path, format!("must hold 1 to {MOST_MESSAGES} messages")));
    }
    for (index, message) in messages.iter().enumerate() {
        check_message(&format!("{path}[{index}]"), message)?;
    }
    Ok(messages)
}

/// Checks one message at `path`.
pub fn check_message(path: &str, message: &Value) -> Result<(), Rejection> {
    let Value::Object(message) = message else {
        return Err(Rejection::field(path, "must be an object with `role` and `content`"));
    };
    let role_path = format!("{path}.role");
    let role = match message.get("role") {
        None | Some(Value::Null) => return Err(Rejection::missing(role_path)),
        Some(Value::String(role)) => role.as_str(),
        Some(_) => return Err(Rejection::field(role_path, "must be a text")),
    };
    if !matches!(role, "system" | "developer" | "user" | "assistant" | "tool") {
        return Err(Rejection::field(role_path, "must be one of system, developer, user, assistant, tool"));
    }
    let calls_tools = role == "assistant" && message.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty()));
    let content_path = format!("{path}.content");
    match message.get("content") {
        None | Some(Value::Null) if calls_tools => Ok(()),
        None | Some(Value::Null) => Err(Rejection::missing(content_path)),
        Some(Value::String(text)) => check_text(&content_path, text, role == "user"),
        Some(Value::Array(parts)) => check_parts(&content_path, parts),
        Some(_) => Err(Rejection::field(content_path, "must be a text or a list of parts")),
    }
}

fn check_parts(path: &str, parts: &[Value]) -> Result<(), Rejection> {
    if parts.is_empty() {
        return Err(Rejection::field(path, "must hold at least one part"));
    }
    for (index, part) in parts.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let Value::Object(part) = part else {
            return Err(Rejection::field(at, "must be an object with `type`"));
        };
        match part.get("type") {
            Some(Value::String(kind)) if kind == "text" => match part.get("text") {
                Some(Value::String(text)) => check_text(&format!("{at}.text"), text, false)?,
                Some(_) => return Err(Rejection::field(format!("{at}.text"), "must be a text")),
                None => return Err(Rejection::missing(format!("{at}.text"))),
            },
            // Other parts (images, audio, files) pass unchanged; what they may hold is the model's business.
            Some(Value::String(_)) => {}
            Some(_) => return Err(Rejection::field(format!("{at}.type"), "must be a text")),
            None => return Err(Rejection::missing(format!("{at}.type"))),
        }
    }
    Ok(())
}

fn check_text(path: &str, text: &str, needed: bool) -> Result<(), Rejection> {
    if needed && text.is_empty() {
        return Err(Rejection::field(path, "must not be empty"));
    }
    let characters = text.chars().count();
    if characters > MOST_CHARACTERS {
        return Err(Rejection::field(path, format!("must have at most {MOST_CHARACTERS} characters, has {characters}")));
    }
    Ok(())
}

/// Checks the request's fields that every model shares; unknown fields pass to the model unchanged.
pub fn check_parameters(body: &Map<String, Value>) -> Result<(), Rejection> {
    number(body, "temperature", 0.0, 2.0)?;
    number(body, "top_p", 0.0, 1.0)?;
    for name in ["max_tokens", "max_completion_tokens", "n"] {
        match body.get(name) {
            None | Some(Value::Null) => {}
            Some(value) if value.as_u64().is_some_and(|value| value > 0) => {}
            Some(_) => return Err(Rejection::field(name, "must be a whole number above 0")),
        }
    }
    match body.get("seed") {
        None | Some(Value::Null) => {}
        Some(value) if value.as_i64().is_some() => {}
        Some(_) => return Err(Rejection::field("seed", format!("must be a whole number within {} and {}", i64::MIN, i64::MAX))),
    }
    match body.get("stream") {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(_) => Err(Rejection::field("stream", "must be true or false")),
    }
}

fn number(body: &Map<String, Value>, name: &str, least: f64, most: f64) -> Result<(), Rejection> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|value| (least..=most).contains(&value)) => Ok(()),
        Some(_) => Err(Rejection::field(name, format!("must be a number within {least} and {most}"))),
    }
}

/// Refuses NUL anywhere in a body, with its path: PostgreSQL cannot hold it. All other text is kept to the code point.
pub fn check_no_nul(path: &str, value: &Value) -> Result<(), Rejection> {
    let refuse = || Rejection { code: Code::InvalidField, detail: "must not hold the character U+0000".to_owned(), field: Some(path.to_owned()) };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        Value::String(text) if text.contains('\0') => Err(refuse()),
        Value::String(_) => Ok(()),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| check_no_nul(&format!("{path}[{index}]"), item)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, item)| {
            if name.contains('\0') {
                return Err(refuse());
            }
            let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            check_no_nul(&at, item)
        }),
    }
}

/// A title from the first user message: its first 48 characters on one line.
pub fn title(messages: &[Value]) -> String {
    let text = messages.iter().find(|message| message["role"] == "user").map(text_of).unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|character| !character.is_control()).collect();
    if line.is_empty() {
        return "New conversation".to_owned();
    }
    if line.chars().count() <= TITLE {
        return line;
    }
    line.chars().take(TITLE).chain("...".chars()).collect()
}

/// The text of a message: its content, or its text parts joined.
pub fn text_of(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// One spelling for equal JSON: keys in order, no spaces. Numbers keep their digits.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            Value::Object(sorted.into_iter().map(|(name, item)| (name.clone(), canonical(item))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(body: &Value) -> (Code, String) {
        let rejection = check_messages(body.get("messages")).unwrap_err();
        (rejection.code, rejection.field.unwrap())
    }

    #[test]
    fn bad_messages_are_refused_with_their_path() {
        let table = [
            (json!({"messages": []}), Code::InvalidField, "messages"),
            (json!({}), Code::MissingField, "messages"),
            (json!({"messages": null}), Code::MissingField, "messages"),
            (json!({"messages": 5}), Code::InvalidField, "messages"),
            (json!({"messages": {}}), Code::InvalidField, "messages"),
            (json!({"messages": [null]}), Code::InvalidField, "messages[0]"),
            (json!({"messages": [{}]}), Code::MissingField, "messages[0].role"),
            (json!({"messages": [{"role": "user"}]}), Code::MissingField, "messages[0].content"),
            (json!({"messages": [{"role": "user", "content": ""}]}), Code::InvalidField, "messages[0].content"),
            (json!({"messages": [{"role": "king", "content": "x"}]}), Code::InvalidField, "messages[0].role"),
            (json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}), Code::MissingField, "messages[0].content[0].text"),
            (json!({"messages": [{"role": "user", "content": [5]}]}), Code::InvalidField, "messages[0].content[0]"),
            (json!({"messages": [{"role": "user", "content": "x".repeat(32_769)}]}), Code::InvalidField, "messages[0].content"),
        ];
        for (body, code, field) in table {
            assert_eq!(refused(&body), (code, field.to_owned()));
        }
    }

    #[test]
    fn parts_and_tool_calls_are_kept() {
        let messages = json!([
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": [{"type": "text", "text": "4"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        ]);
        assert_eq!(check_messages(Some(&messages)).unwrap(), messages.as_array().unwrap().as_slice());
    }

    #[test]
    fn parameters_are_bounded() {
        let check = |body: Value| check_parameters(body.as_object().unwrap()).map_err(|rejection| rejection.field.unwrap());
        for good in [json!({}), json!({"temperature": 0}), json!({"temperature": 2}), json!({"max_tokens": 1}), json!({"anything": [1]})] {
            assert_eq!(check(good), Ok(()));
        }
        for (bad, field) in [
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"temperature": "1"}), "temperature"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"max_tokens": -1}), "max_tokens"),
            (json!({"max_tokens": 1.5}), "max_tokens"),
            (json!({"stream": "yes"}), "stream"),
            (json!({"seed": "7"}), "seed"),
        ] {
            assert_eq!(check(bad), Err(field.to_owned()));
        }
    }

    #[test]
    fn nul_is_refused_with_its_path_and_its_spelling_is_not() {
        let check = |text: &str| check_no_nul("", &serde_json::from_str(text).unwrap()).map_err(|rejection| rejection.field.unwrap());
        assert_eq!(check(r#"{"a": [{"b": "x\u0000y"}]}"#), Err("a[0].b".to_owned()));
        assert_eq!(check(r#"{"a": "x\\u0000y"}"#), Ok(()));
    }

    #[test]
    fn equal_bodies_have_one_spelling() {
        let first: Value = serde_json::from_str(r#"{"b": 1000000000000000, "a": {"y": 1.0, "x": [2, 1]}}"#).unwrap();
        let second: Value = serde_json::from_str(r#"{"a":{"x":[2,1],"y":1.0},"b":1000000000000000}"#).unwrap();
        assert_eq!(canonical(&first).to_string(), canonical(&second).to_string());
        assert_eq!(canonical(&first).to_string(), r#"{"a":{"x":[2,1],"y":1.0},"b":1000000000000000}"#);
    }

    #[test]
    fn a_title_is_the_first_line_of_the_user() {
        assert_eq!(title(&[json!({"role": "system", "content": "s"}), json!({"role": "user", "content": " Hello\n there "})]), "Hello there");
        assert_eq!(title(&[json!({"role": "user", "content": "x".repeat(60)})]), format!("{}...", "x".repeat(48)));
        assert_eq!(title(&[json!({"role": "user", "content": "\n"})]), "New conversation");
    }
}
