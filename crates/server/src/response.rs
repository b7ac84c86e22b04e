//! The JSON that goes back: whole replies, and the chunks of a stream.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::outcome::Outcome;
use crate::turn::Delta;

/// Names the build in every reply, as the field's readers expect: a change means that the same seed may give other text.
const FINGERPRINT: &str = concat!("maya-", env!("CARGO_PKG_VERSION"));

/// The two shapes a reply can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// What all parts of one reply have in common.
#[derive(Debug)]
pub(crate) struct Reply {
    pub kind: Kind,
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    /// Streams only: whether a chunk with the token counts comes before the end.
    pub include_usage: bool,
    /// Given or drawn: with it the answer can be had again.
    pub seed: u64,
}

impl Reply {
    /// The first event: it tells the client that the request was accepted, before any work.
    pub fn opening(&self, out: &mut String) {
        if self.kind == Kind::Chat {
            self.chunk(out, json!({"role": "assistant", "content": ""}), Value::Null, []);
        }
    }

    /// The event of one delta.
    pub fn delta(&self, out: &mut String, delta: &Delta) {
        let delta = match delta {
            Delta::Text(text) if self.kind == Kind::Text => json!(text),
            Delta::Text(text) => json!({ "content": text }),
            Delta::Reasoning(text) => json!({ "reasoning_content": text }),
            Delta::Call { index, id, name } => json!({"tool_calls": [{
                "index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""},
            }]}),
            Delta::Arguments { index, json } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": json}}]})
            }
        };
        self.chunk(out, delta, Value::Null, []);
    }

    /// How far the prompt is.
    pub fn progress(&self, out: &mut String, done: usize, total: usize, ms: u64) {
        let progress = json!({"total": total, "cache": 0, "processed": done, "time_ms": ms});
        self.chunk(out, self.nothing(), Value::Null, [("prompt_progress", progress)]);
    }

    /// The events that end a stream well.
    pub fn done(&self, out: &mut String, outcome: &Outcome) {
        let timings = ("timings", outcome.timings.to_json());
        let seed = ("seed", json!(self.seed));
        let finish = json!(outcome.finish);
        if self.include_usage {
            self.chunk(out, self.nothing(), finish, []);
            let mut last = self.frame(true);
            last.insert("choices".to_owned(), json!([]));
            last.insert("usage".to_owned(), outcome.usage.to_json());
            last.extend([timings, seed].map(|(key, value)| (key.to_owned(), value)));
            event(out, &Value::Object(last));
        } else {
            self.chunk(out, self.nothing(), finish, [timings, seed]);
        }
        out.push_str("data: [DONE]\n\n");
    }

    /// The events that end a stream which cannot go on.
    pub fn failed(&self, out: &mut String, error: &ApiError) {
        event(out, &error.event());
        out.push_str("data: [DONE]\n\n");
    }

    /// A reply in one piece.
    pub fn whole(&self, answer: Answer, outcome: &Outcome) -> Value {
        let finish = outcome.finish;
        let choice = match self.kind {
            Kind::Text => json!({"text": answer.text, "index": 0, "logprobs": null, "finish_reason": finish}),
            Kind::Chat => {
                json!({"index": 0, "message": answer.into_message(), "logprobs": null, "finish_reason": finish})
            }
        };
        let mut reply = self.frame(false);
        reply.insert("choices".to_owned(), json!([choice]));
        reply.insert("usage".to_owned(), outcome.usage.to_json());
        reply.insert("timings".to_owned(), outcome.timings.to_json());
        reply.insert("seed".to_owned(), json!(self.seed));
        Value::Object(reply)
    }

    fn nothing(&self) -> Value {
        match self.kind {
            Kind::Chat => json!({}),
            Kind::Text => json!(""),
        }
    }

    fn chunk<const N: usize>(&self, out: &mut String, delta: Value, finish: Value, more: [(&str, Value); N]) {
        let choice = match self.kind {
            Kind::Chat => json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}),
            Kind::Text => json!({"text": delta, "index": 0, "logprobs": null, "finish_reason": finish}),
        };
        let mut chunk = self.frame(true);
        chunk.insert("choices".to_owned(), json!([choice]));
        chunk.extend(more.map(|(key, value)| (key.to_owned(), value)));
        event(out, &Value::Object(chunk));
    }

    fn frame(&self, chunk: bool) -> Map<String, Value> {
        let object = match (self.kind, chunk) {
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Chat, false) => "chat.completion",
            (Kind::Text, _) => "text_completion",
        };
        let pairs = [
            ("id", json!(self.id)),
            ("object", json!(object)),
            ("created", json!(self.created)),
            ("model", json!(self.model)),
            ("system_fingerprint", json!(FINGERPRINT)),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// One `data:` line. serde_json escapes every line break inside strings, so an event is always one line.
fn event(out: &mut String, value: &Value) {
    out.push_str("data: ");
    out.push_str(&value.to_string());
    out.push_str("\n\n");
}

/// An answer put together from its deltas: the same pieces that a stream would carry.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    index: usize,
    id: String,
    name: String,
    arguments: String,
}

impl Answer {
    pub fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::Call { index, id, name } => {
                self.calls.push(Call { index, id, name, arguments: String::new() });
            }
            Delta::Arguments { index, json } => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.index == index) {
                    call.arguments.push_str(&json);
                }
            }
        }
    }

    /// `content` is null only beside tool calls, because typed clients want a string otherwise.
    fn into_message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        let silent = self.text.is_empty() && !self.calls.is_empty();
        message.insert("content".to_owned(), if silent { Value::Null } else { json!(self.text) });
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), json!(self.reasoning));
        }
        if !self.calls.is_empty() {
            let calls: Vec<Value> = self.calls.into_iter().map(Call::into_json).collect();
            message.insert("tool_calls".to_owned(), json!(calls));
        }
        Value::Object(message)
    }
}

impl Call {
    fn into_json(self) -> Value {
        json!({
            "index": self.index, "id": self.id, "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        })
    }
}
