//! Puts the pieces of a streamed answer together again.

use serde_json::{Map, Value, json};
use signalbox_events::conversation::Usage;

/// An answer as far as it has arrived.
#[derive(Debug, Default, Clone)]
pub struct Answer {
    /// The text so far.
    pub text: String,
    /// Tool calls so far, by index.
    tool_calls: Vec<Map<String, Value>>,
    refusal: String,
    /// Why the model stopped, once it did.
    pub finish_reason: Option<String>,
    usage: Option<Usage>,
}

impl Answer {
    /// Takes in one chunk.
    pub fn take(&mut self, chunk: &Value) {
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let count = |name: &str| usage[name].as_u64().unwrap_or(0);
            self.usage = Some(Usage { prompt_tokens: count("prompt_tokens"), completion_tokens: count("completion_tokens"), estimated: false });
        }
        let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Turns ask for one choice.
        for choice in choices.iter().filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            let delta = &choice["delta"];
            self.text.push_str(delta["content"].as_str().unwrap_or_default());
            self.refusal.push_str(delta["refusal"].as_str().unwrap_or_default());
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                self.take_tool_call(call);
            }
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.finish_reason = Some(reason.to_owned());
            }
        }
    }

    /// The first piece of a tool call has its id and name; the arguments come in fragments.
    fn take_tool_call(&mut self, piece: &Value) {
        let index = piece["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0).min(127);
        while self.tool_calls.len() <= index {
            self.tool_calls.push(Map::new());
        }
        let call = &mut self.tool_calls[index];
        for (name, value) in piece.as_object().into_iter().flatten() {
            match (name.as_str(), value) {
                ("index", _) => {}
                ("function", Value::Object(function)) => {
                    let known = call.entry("function").or_insert_with(|| json!({}));
                    for (name, value) in function {
                        match (known.get_mut(name), value) {
                            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                            _ => known[name] = value.clone(),
                        }
                    }
                }
                (_, Value::Null) => {}
                _ => {
                    call.insert(name.clone(), value.clone());
                }
            }
        }
    }

    /// Whether anything has arrived.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tool_calls.is_empty() && self.refusal.is_empty()
    }

    /// The assistant's message.
    pub fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.tool_calls.is_empty() {
            message["tool_calls"] = self.tool_calls.iter().cloned().map(Value::Object).collect();
            if self.text.is_empty() {
                message["content"] = Value::Null;
            }
        }
        if !self.refusal.is_empty() {
            message["refusal"] = self.refusal.as_str().into();
        }
        message
    }

    /// What it cost: as the model said, else estimated at four bytes a token.
    pub fn usage(&self, prompt_bytes: usize) -> Usage {
        self.usage.unwrap_or(Usage {
            prompt_tokens: prompt_bytes.div_ceil(4) as u64,
            completion_tokens: self.text.len().div_ceil(4) as u64,
            estimated: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_of_text_and_tool_calls_are_joined() {
        let mut answer = Answer::default();
        for delta in [
            json!({"role": "assistant", "content": null}),
            json!({"content": "The "}),
            json!({"content": "cat"}),
            json!({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        ] {
            answer.take(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}));
        }
        answer.take(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
        assert_eq!(answer.finish_reason.as_deref(), Some("tool_calls"));
        assert_eq!(answer.usage(8), Usage { prompt_tokens: 2, completion_tokens: 2, estimated: true });
        answer.take(&json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}));
        assert_eq!(answer.usage(8), Usage { prompt_tokens: 5, completion_tokens: 7, estimated: false });
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        assert_eq!(answer.message(), json!({"role": "assistant", "content": "The cat", "tool_calls": [call]}));
    }
}
