//! The conversation of a chat request, checked before it reaches the template.

use serde_json::Value;

use crate::error::ApiError;
use crate::field::Field;

/// 400 for the first thing in `messages` that is not as the API says.
pub(crate) fn check(messages: &Field<'_>) -> Result<(), ApiError> {
    messages.required("an array of messages")?;
    let mut items = messages.array()?.into_iter().flatten().peekable();
    if items.peek().is_none() {
        return Err(ApiError::field(&messages.path, "must hold at least one message"));
    }
    items.try_for_each(|item| message(&item))
}

fn message(item: &Field<'_>) -> Result<(), ApiError> {
    let message = item.object()?.ok_or_else(|| item.expected("an object"))?;
    let role = item.get("role");
    match role.string()?.ok_or_else(|| role.expected("a string"))? {
        "system" | "developer" | "user" | "tool" => {
            // A null content is an empty one; a missing one is a mistake.
            if !message.contains_key("content") {
                return Err(item.get("content").expected("a string or an array of parts"));
            }
        }
        "assistant" => assistant(item)?,
        other => {
            let text = format!("{other:?} is not one of system, developer, user, assistant, tool");
            return Err(ApiError::field(&role.path, text));
        }
    }
    item.get("tool_call_id").string()?;
    content(&item.get("content"))
}

fn assistant(item: &Field<'_>) -> Result<(), ApiError> {
    item.get("reasoning_content").string()?;
    item.get("reasoning").string()?;
    for call in item.get("tool_calls").array()?.into_iter().flatten() {
        call.object()?.ok_or_else(|| call.expected("an object"))?;
        let function = call.get("function");
        function.object()?.ok_or_else(|| function.expected("an object"))?;
        call.get("id").string()?;
        name_of(&function)?;
        let arguments = function.get("arguments");
        if !matches!(arguments.value(), None | Some(Value::Object(_))) && !arguments.is_text() {
            return Err(arguments.expected("a string or an object"));
        }
    }
    Ok(())
}

/// A function's name: there, and not empty.
pub(crate) fn name_of<'a>(function: &Field<'a>) -> Result<&'a str, ApiError> {
    let name = function.get("name");
    match name.string()? {
        Some("") => Err(ApiError::field(&name.path, "must not be empty")),
        Some(text) => Ok(text),
        None => Err(name.expected("a string")),
    }
}

/// Text, or parts that are text.
fn content(content: &Field<'_>) -> Result<(), ApiError> {
    match content.value() {
        None => return Ok(()),
        Some(_) if content.is_text() => return Ok(()),
        Some(Value::Array(_)) => {}
        Some(_) => return Err(content.expected("a string or an array of parts")),
    }
    for part in content.array()?.into_iter().flatten() {
        if part.is_text() {
            continue;
        }
        part.object()?.ok_or_else(|| part.expected("an object"))?;
        let kind = part.get("type");
        match kind.string()?.ok_or_else(|| kind.expected("a string"))? {
            "text" => {
                let text = part.get("text");
                text.string()?.ok_or_else(|| text.expected("a string"))?;
            }
            "image_url" | "image" | "input_image" => {
                return Err(ApiError::unsupported(&part.path, "images are not supported, only text"));
            }
            other => {
                let text = format!("parts of type {other:?} are not supported, only text");
                return Err(ApiError::unsupported(&part.path, text));
            }
        }
    }
    Ok(())
}
