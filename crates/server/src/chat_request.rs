//! The body of `POST /v1/chat/completions`.

use glm_chat::ChatRequest;
use serde_json::Value;

use crate::engine::SamplerParams;
use crate::error::{ApiError, log_text};
use crate::field::Field;
use crate::messages;
use crate::settings::Settings;

/// A checked chat request.
#[derive(Debug)]
pub(crate) struct ChatCall {
    pub settings: Settings,
    pub request: ChatRequest,
    /// The answer ends after its first tool call.
    pub single_call: bool,
}

impl ChatCall {
    /// Checks every field that is known and ignores the others.
    pub fn read(body: &Value, vocab: usize, defaults: &SamplerParams, seed: u64) -> Result<Self, ApiError> {
        let body = Field::root(body)?;
        body.get("model").string()?;
        let settings = Settings::read(&body, vocab, defaults, seed)?;
        refuse_unsupported(&body)?;
        messages::check(&body.get("messages"))?;
        check_thinking(&body)?;
        let tools = tools(&body.get("tools"))?;
        let may_call = may_call(&body.get("tool_choice"))?;
        let effort = effort(&body)?;
        let object = body.object()?.ok_or_else(|| body.expected("an object"))?;
        let mut request = ChatRequest::from_body(object).map_err(|e| ApiError::field(&e.field, e.problem))?;
        // Without tools in the prompt the model does not think of calling one.
        request.tools = (may_call && !tools.is_empty()).then_some(tools);
        request.reasoning_effort = effort.map(str::to_owned);
        let single_call = body.get("parallel_tool_calls").bool()? == Some(false);
        Ok(Self { settings, request, single_call })
    }
}

/// What `POST /v1/chat/completions` would put into the prompt for this body.
///
/// # Errors
/// The sentence with which the server refuses it.
pub fn chat_request(body: &Value) -> Result<ChatRequest, RefusedRequest> {
    // Ids of a logit bias do not reach the prompt.
    let call = ChatCall::read(body, usize::MAX, &SamplerParams::default(), 0);
    call.map(|call| call.request).map_err(|error| RefusedRequest(error.message))
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedRequest(String);

/// Parameters that would change what the answer means, and that are not there yet.
fn refuse_unsupported(body: &Field<'_>) -> Result<(), ApiError> {
    let logprobs = body.get("logprobs");
    if logprobs.bool()? == Some(true) {
        return Err(ApiError::unsupported(&logprobs.path, "log probabilities are not supported"));
    }
    let top = body.get("top_logprobs");
    if top.integer(0..=20)?.is_some_and(|n| n > 0) {
        return Err(ApiError::unsupported(&top.path, "log probabilities are not supported"));
    }
    refuse_constraints(body)?;
    for key in ["audio", "functions"] {
        if body.get(key).is_given() {
            return Err(ApiError::unsupported(key, "is not supported"));
        }
    }
    Ok(())
}

/// What asks for an answer of a certain form, at every endpoint: an answer of another form would be taken for it.
pub(crate) fn refuse_constraints(body: &Field<'_>) -> Result<(), ApiError> {
    let format = body.get("response_format");
    if format.object()?.is_some() {
        let kind = format.get("type");
        let name = kind.string()?.ok_or_else(|| kind.expected("a string"))?;
        if name != "text" {
            let text = format!("{name:?} is not supported, only \"text\"");
            return Err(ApiError::unsupported("response_format", text));
        }
    }
    for key in
        ["grammar", "guided_json", "guided_regex", "guided_grammar", "guided_choice", "structured_outputs"]
    {
        if body.get(key).is_given() {
            return Err(ApiError::unsupported(key, "constrained decoding is not supported"));
        }
    }
    Ok(())
}

/// The function tools. Other kinds are the client's own affair: they are left out with one warning.
fn tools(tools: &Field<'_>) -> Result<Vec<Value>, ApiError> {
    let mut kept = Vec::new();
    let (mut skipped, mut other) = (0_usize, "");
    for tool in tools.array()?.into_iter().flatten() {
        let object = tool.object()?.ok_or_else(|| tool.expected("an object"))?;
        let kind = tool.get("type");
        let kind = kind.string()?.ok_or_else(|| kind.expected("a string"))?;
        if kind != "function" {
            if skipped == 0 {
                other = kind;
            }
            skipped += 1;
            continue;
        }
        let function = tool.get("function");
        function.object()?.ok_or_else(|| function.expected("an object"))?;
        messages::name_of(&function)?;
        function.get("description").string()?;
        function.get("parameters").object()?;
        kept.push(Value::Object(object.clone()));
    }
    if skipped > 0 {
        tracing::warn!(
            "{skipped} tools of kinds other than \"function\" are left out, the first is of kind {}",
            log_text(other)
        );
    }
    Ok(kept)
}

/// Whether the model may call tools. Forcing a call needs constrained decoding.
fn may_call(choice: &Field<'_>) -> Result<bool, ApiError> {
    match choice.value() {
        None => Ok(true),
        Some(Value::String(word)) if choice.is_text() => match word.as_str() {
            "auto" => Ok(true),
            "none" => Ok(false),
            "required" => Err(ApiError::unsupported(
                &choice.path,
                "\"required\" is not supported, only \"auto\" and \"none\"",
            )),
            other => Err(ApiError::field(
                &choice.path,
                format_args!("{other:?} is not one of auto, none, required"),
            )),
        },
        Some(Value::Object(_)) => Err(ApiError::unsupported(
            &choice.path,
            "a named tool is not supported, only \"auto\" and \"none\"",
        )),
        Some(_) => Err(choice.expected("a string or an object")),
    }
}

/// `reasoning_effort`, or `reasoning.effort`.
fn effort<'a>(body: &Field<'a>) -> Result<Option<&'a str>, ApiError> {
    let reasoning = body.get("reasoning");
    reasoning.object()?;
    let nested = reasoning.get("effort").string()?;
    Ok(body.get("reasoning_effort").string()?.or(nested))
}

/// The switches that turn thinking off, and the template's own variables.
fn check_thinking(body: &Field<'_>) -> Result<(), ApiError> {
    for key in ["enable_thinking", "add_generation_prompt"] {
        body.get(key).bool()?;
    }
    body.get("chat_template_kwargs").object()?;
    let thinking = body.get("thinking");
    match thinking.value() {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(Value::Object(_)) => {
            let kind = thinking.get("type");
            match kind.string()?.ok_or_else(|| kind.expected("a string"))? {
                "enabled" | "adaptive" | "disabled" => Ok(()),
                other => Err(ApiError::field(
                    &kind.path,
                    format_args!("{other:?} is not one of enabled, disabled"),
                )),
            }
        }
        Some(_) => Err(thinking.expected("true, false or an object")),
    }
}
