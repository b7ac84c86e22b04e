//! A chat request and what is done to it before the template sees it.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// A conversation to render, in the shape of an OpenAI chat request.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The messages: objects with `role` (`system`, `developer`, `user`, `assistant`, `tool`), `content` (string, list of
    /// parts or null), and for an assistant `reasoning_content` (or `reasoning`) and `tool_calls`.
    pub messages: Vec<Value>,
    /// Tool declarations, `{"type":"function","function":{…}}` or the inner object alone. An empty list counts as none.
    pub tools: Option<Vec<Value>>,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`, in any case. `None` passes nothing to the template.
    pub reasoning_effort: Option<String>,
    /// `Some(false)` turns thinking off.
    pub enable_thinking: Option<bool>,
    /// Variables for the template. They reach it unchanged and win over everything above.
    pub chat_template_kwargs: Map<String, Value>,
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
}

impl Default for ChatRequest {
    /// No messages; `add_generation_prompt` is true.
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: None,
            reasoning_effort: None,
            enable_thinking: None,
            chat_template_kwargs: Map::new(),
            add_generation_prompt: true,
        }
    }
}

/// A field of the request that cannot be used: where it is and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RequestError {
    /// Path of the field, `messages[2].content`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl RequestError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl ChatRequest {
    /// Reads the fields of an OpenAI-shaped body: `messages`, `tools`, `reasoning_effort`, `enable_thinking`, `thinking`
    /// (a boolean, or an object whose `type` is `enabled` or `disabled`), `chat_template_kwargs`,
    /// `add_generation_prompt`. Null is "not given"; other fields are not looked at.
    ///
    /// # Errors
    /// Names the field that has the wrong type.
    pub fn from_body(body: &Map<String, Value>) -> Result<Self, RequestError> {
        let given = |key: &str| body.get(key).filter(|v| !v.is_null());
        let wrong = |key: &str, expected: &str| RequestError::new(key, format!("expected {expected}"));
        let boolean = |key: &str| {
            given(key).map(|v| v.as_bool().ok_or_else(|| wrong(key, "true or false"))).transpose()
        };
        let list = |key: &str| match given(key) {
            Some(Value::Array(list)) => Ok(Some(list.clone())),
            Some(_) => Err(wrong(key, "a list")),
            None => Ok(None),
        };
        let mut enable_thinking = boolean("enable_thinking")?;
        if let Some(thinking) = given("thinking") {
            match thinking_off(thinking) {
                Some(true) => enable_thinking = Some(false),
                Some(false) => {}
                None => return Err(wrong("thinking", "true, false or an object with a type")),
            }
        }
        Ok(Self {
            messages: list("messages")?.ok_or_else(|| RequestError::new("messages", "is missing"))?,
            tools: list("tools")?,
            reasoning_effort: match given("reasoning_effort") {
                Some(Value::String(effort)) => Some(effort.clone()),
                Some(_) => return Err(wrong("reasoning_effort", "a string")),
                None => None,
            },
            enable_thinking,
            chat_template_kwargs: match given("chat_template_kwargs") {
                Some(Value::Object(kwargs)) => kwargs.clone(),
                Some(_) => return Err(wrong("chat_template_kwargs", "an object")),
                None => Map::new(),
            },
            add_generation_prompt: boolean("add_generation_prompt")?.unwrap_or(true),
        })
    }

    /// Whether this request turns thinking off: `enable_thinking` false, effort `none` or `minimal`, or the same (or
    /// `thinking` false) among the template's variables. `enable_thinking` true among those wins over the rest.
    pub fn thinking_off(&self) -> bool {
        let kwargs = &self.chat_template_kwargs;
        if let Some(Value::Bool(on)) = kwargs.get("enable_thinking") {
            return !on;
        }
        if let Some(off) = kwargs.get("thinking").and_then(thinking_off) {
            return off;
        }
        let effort = match kwargs.get("reasoning_effort") {
            Some(effort) => effort.as_str(),
            None => self.reasoning_effort.as_deref(),
        };
        let none = effort.is_some_and(|e| matches!(e.to_ascii_lowercase().as_str(), "none" | "minimal"));
        none || self.enable_thinking == Some(false)
    }

    /// The variables of the template.
    pub(crate) fn variables(&self) -> Result<Map<String, Value>, RequestError> {
        let mut variables = Map::new();
        variables.insert("messages".to_owned(), Value::Array(normal_messages(&self.messages)?));
        if let Some(tools) = &self.tools
            && !tools.is_empty()
        {
            if let Some(at) = tools.iter().position(|tool| !tool.is_object()) {
                return Err(RequestError::new(format!("tools[{at}]"), "expected an object"));
            }
            variables.insert("tools".to_owned(), Value::Array(tools.clone()));
        }
        variables.insert("add_generation_prompt".to_owned(), self.add_generation_prompt.into());
        if let Some(effort) = &self.reasoning_effort {
            variables.insert("reasoning_effort".to_owned(), template_effort(effort)?.into());
        }
        if self.thinking_off() {
            variables.insert("enable_thinking".to_owned(), false.into());
        } else if let Some(on) = self.enable_thinking {
            variables.insert("enable_thinking".to_owned(), on.into());
        }
        for (key, value) in &self.chat_template_kwargs {
            if key == "messages" {
                return Err(RequestError::new(
                    "chat_template_kwargs.messages",
                    "the messages are a field of the request",
                ));
            }
            variables.insert(key.clone(), value.clone());
        }
        Ok(variables)
    }
}

/// `thinking` as a boolean or as `{"type":"disabled"}`: whether it turns thinking off, `None` if it is neither.
fn thinking_off(thinking: &Value) -> Option<bool> {
    match thinking {
        Value::Bool(on) => Some(!on),
        Value::Object(object) => match object.get("type")?.as_str()? {
            "disabled" => Some(true),
            "enabled" | "adaptive" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// The effort variable for an effort given by an API field: lower case, and `medium` means `high`, since the template
/// would take it for `max`.
fn template_effort(effort: &str) -> Result<String, RequestError> {
    let lower = effort.to_ascii_lowercase();
    match lower.as_str() {
        "medium" => Ok("high".to_owned()),
        "xhigh" => Ok("max".to_owned()),
        "none" | "minimal" | "low" | "high" | "max" => Ok(lower),
        _ => Err(RequestError::new(
            "reasoning_effort",
            format!("expected none, minimal, low, medium, high, xhigh or max, got {effort:?}"),
        )),
    }
}

/// A string, and no integer that the reader of JSON keeps as one.
fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| crate::marked_integer(text).is_none())
}

fn normal_messages(messages: &[Value]) -> Result<Vec<Value>, RequestError> {
    let mut normal = messages
        .iter()
        .enumerate()
        .map(|(at, message)| normal_message(at, message))
        .collect::<Result<Vec<_>, _>>()?;
    order_results(&mut normal);
    Ok(normal)
}

fn normal_message(at: usize, message: &Value) -> Result<Value, RequestError> {
    let field = |name: &str| format!("messages[{at}].{name}");
    let Value::Object(message) = message else {
        return Err(RequestError::new(format!("messages[{at}]"), "expected an object"));
    };
    let mut message = message.clone();
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "user" | "assistant" | "tool") => {}
        Some("developer") => {
            message.insert("role".to_owned(), "system".into());
        }
        _ => {
            return Err(RequestError::new(
                field("role"),
                "expected system, developer, user, assistant or tool",
            ));
        }
    }
    match message.get("content") {
        Some(content) if is_text(content) => {}
        Some(Value::Array(parts)) => {
            if let Some(bad) = parts.iter().position(|p| !is_text(p) && !p.is_object()) {
                return Err(RequestError::new(
                    format!("messages[{at}].content[{bad}]"),
                    "expected a string or an object",
                ));
            }
        }
        None | Some(Value::Null) => {
            message.insert("content".to_owned(), "".into());
        }
        Some(_) => {
            return Err(RequestError::new(field("content"), "expected a string, a list of parts or null"));
        }
    }
    if message.get("reasoning_content").is_none_or(Value::is_null) {
        message.shift_remove("reasoning_content");
        if let Some(Value::String(reasoning)) = message.get("reasoning").cloned() {
            message.insert("reasoning_content".to_owned(), reasoning.into());
        }
    }
    match message.get_mut("tool_calls") {
        None => {}
        Some(Value::Null) => {
            message.shift_remove("tool_calls");
        }
        Some(Value::Array(calls)) => {
            for (i, call) in calls.iter_mut().enumerate() {
                normal_call(&format!("messages[{at}].tool_calls[{i}]"), call)?;
            }
        }
        Some(_) => return Err(RequestError::new(field("tool_calls"), "expected a list")),
    }
    Ok(Value::Object(message))
}

/// Makes `arguments` an object, as the template wants to walk its items.
///
/// A JSON string of an object becomes that object; an empty string, null or nothing becomes `{}`. A string that is no JSON
/// object (an earlier answer may have been cut inside a call) becomes `{"arguments": <the string>}`, so that the
/// conversation can go on and the model sees what it wrote.
fn normal_call(field: &str, call: &mut Value) -> Result<(), RequestError> {
    let Value::Object(outer) = call else {
        return Err(RequestError::new(field, "expected an object"));
    };
    let (field, inner) = if outer.contains_key("function") {
        match outer.get_mut("function") {
            Some(Value::Object(function)) => (format!("{field}.function"), function),
            _ => return Err(RequestError::new(format!("{field}.function"), "expected an object")),
        }
    } else {
        (field.to_owned(), outer)
    };
    if !inner.get("name").is_some_and(is_text) {
        return Err(RequestError::new(format!("{field}.name"), "expected a string"));
    }
    let arguments = match inner.get("arguments") {
        Some(Value::Object(_)) => return Ok(()),
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) if crate::marked_integer(text).is_none() => match crate::parse_json(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::Object(Map::from_iter([("arguments".to_owned(), text.as_str().into())])),
        },
        Some(_) => {
            return Err(RequestError::new(
                format!("{field}.arguments"),
                "expected an object or a string of JSON",
            ));
        }
    };
    inner.insert("arguments".to_owned(), arguments);
    Ok(())
}

/// Puts each run of tool results into the order of the calls before it, if all ids are present, unique and matching;
/// otherwise leaves the run as it is.
fn order_results(messages: &mut [Value]) {
    let is_tool = |m: &Value| m["role"] == "tool";
    let mut at = 0;
    while at < messages.len() {
        let Some(calls) = messages[at]["tool_calls"].as_array() else {
            at += 1;
            continue;
        };
        let order: Option<HashMap<String, usize>> = calls
            .iter()
            .enumerate()
            .map(|(i, call)| call["id"].as_str().map(|id| (id.to_owned(), i)))
            .collect();
        let count = calls.len();
        let start = at + 1;
        let end = start + messages[start..].iter().take_while(|m| is_tool(m)).count();
        at = end.max(start);
        let Some(order) = order.filter(|o| o.len() == count && end - start == count) else { continue };
        let run = &mut messages[start..end];
        let places: Option<Vec<usize>> =
            run.iter().map(|m| m["tool_call_id"].as_str().and_then(|id| order.get(id)).copied()).collect();
        let Some(places) = places else { continue };
        let mut sorted = vec![None; count];
        for (message, &place) in run.iter().zip(&places) {
            sorted[place] = Some(message.clone());
        }
        if sorted.iter().all(Option::is_some) {
            for (slot, message) in run.iter_mut().zip(sorted.into_iter().flatten()) {
                *slot = message;
            }
        }
    }
}
