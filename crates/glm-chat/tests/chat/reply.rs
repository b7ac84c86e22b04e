//! Answers put together from their events.

use glm_chat::ChatEvent;

/// A whole answer, collected from events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// All reasoning.
    pub reasoning: String,
    /// All text.
    pub text: String,
    /// The calls in order.
    pub calls: Vec<ToolCall>,
}

/// One call of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Name of the tool.
    pub name: String,
    /// JSON text of the arguments; not whole if `complete` is false.
    pub arguments: String,
    /// Whether the call ended.
    pub complete: bool,
}

impl Reply {
    /// Adds one event.
    pub fn push(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Reasoning(text) => self.reasoning.push_str(&text),
            ChatEvent::Text(text) => self.text.push_str(&text),
            ChatEvent::ToolStart { name, .. } => self.calls.push(ToolCall { name, ..ToolCall::default() }),
            ChatEvent::ToolArguments { index, json } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&json);
                }
            }
            ChatEvent::ToolEnd { index } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.complete = true;
                }
            }
        }
    }
}

impl Extend<ChatEvent> for Reply {
    fn extend<T: IntoIterator<Item = ChatEvent>>(&mut self, events: T) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

/// Joins neighbouring events of one kind, so that two lists can be compared or a message assembled.
pub fn merge(events: impl IntoIterator<Item = ChatEvent>) -> Vec<ChatEvent> {
    let mut merged: Vec<ChatEvent> = Vec::new();
    for event in events {
        push_merged(&mut merged, event);
    }
    merged
}

/// Appends `event`, growing the last one where they join.
fn push_merged(events: &mut Vec<ChatEvent>, event: ChatEvent) {
    use ChatEvent::{Reasoning, Text, ToolArguments};
    match (events.last_mut(), event) {
        (Some(Reasoning(have)), Reasoning(more)) | (Some(Text(have)), Text(more)) => have.push_str(&more),
        (Some(ToolArguments { index, json }), ToolArguments { index: same, json: more })
            if *index == same =>
        {
            json.push_str(&more);
        }
        (_, event) => events.push(event),
    }
}
