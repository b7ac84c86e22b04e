//! What a splitter says.

/// A piece of an answer. Concatenating the pieces of one kind (and one `index`) gives the whole, however they were cut.
///
/// Order: `Reasoning` comes first, if at all; then `Text` and calls alternate in the order the model wrote them. The
/// events of a call are `ToolStart`, one or more `ToolArguments`, `ToolEnd`; calls never overlap, and no `Text` comes
/// between the start and the end of a call. A call without `ToolEnd` was cut by the token limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEvent {
    /// Reasoning: what stands before `</think>`. Never empty.
    Reasoning(String),
    /// Answer text. Never empty; a character is never split.
    Text(String),
    /// A call of a declared tool begins.
    ToolStart {
        /// 0, 1, 2, … in the order of the answer.
        index: usize,
        /// Name of the tool, one of the declared ones. (An id is the caller's to invent: it must be unique over the
        /// conversation, which a splitter cannot know.)
        name: String,
    },
    /// More of the JSON text of a call's arguments. The pieces of one call join to one JSON object, `{}` for none.
    ToolArguments {
        /// Index of the call.
        index: usize,
        /// Any piece of the text; its borders mean nothing.
        json: String,
    },
    /// A call is complete.
    ToolEnd {
        /// Index of the call.
        index: usize,
    },
}

/// How the stream of tokens came to its end, as the caller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model ended its turn (a stop token), or the splitter itself reported a stop.
    Turn,
    /// The token limit, or a cancelled request: the answer is not whole.
    Cut,
}

/// Why an answer ended, in the words of the chat API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// `stop`: the turn ended without a call.
    Stop,
    /// `stop` because of this stop string of the request.
    StopString(String),
    /// `length`: cut by the limit, even inside or after a call.
    Length,
    /// `tool_calls`: the turn ended and at least one call is complete.
    ToolCalls,
}

/// Appends `event`, growing the last one where they join.
pub(crate) fn push_merged(events: &mut Vec<ChatEvent>, event: ChatEvent) {
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
