//! The streaming splitter: token ids in, reasoning, text and tool calls out.
//!
//! One pipeline for every caller, streaming or not: bytes to characters, stop markers and stop strings, reasoning, calls.
//! Tags are recognised by id. Two kinds of marker are also recognised when the model spells them in ordinary pieces,
//! outside of code: the end of a turn, and `</think>` in reasoning. A call never is: a model that repeats a text of the
//! user does so in ordinary pieces, and such a text must not become a call.

mod call;
mod code;
mod event;
mod marker;
mod schema;
mod stop;

pub use event::{ChatEvent, Ending, FinishReason};
pub use stop::StopStrings;

use crate::detokenizer::Detokenizer;
use crate::tokenizer::Tokenizer;
use call::{Call, Progress, Tag};
use code::CodeSpans;
use event::push_merged;
use marker::Markers;
use schema::Tools;
use serde_json::Value;
use std::collections::HashMap;

/// What a splitter has to know about the request.
#[derive(Clone, Debug, Default)]
pub struct SplitterOptions {
    /// The tools of the request, as in [`crate::ChatRequest::tools`]. Without any, a call in the text stays text.
    pub tools: Vec<Value>,
    /// Whether the prompt ended in an open `<think>` ([`crate::Prompt::thinking_open`]).
    pub thinking_open: bool,
    /// Stop strings of the request; empty ones are ignored. They are looked for in answer text only, not in reasoning and
    /// not in the arguments of calls.
    pub stop: Vec<String>,
}

/// What a special token means here.
#[derive(Clone, Copy, Debug)]
enum Kind {
    ThinkOpen,
    ThinkClose,
    Tag(Tag),
    /// A stop token.
    Turn,
    /// It opens another turn without being a stop token: an answer that goes on there is none any more.
    Role,
}

/// What a marker in the text means.
#[derive(Clone, Copy, Debug)]
enum Mark {
    ThinkClose,
    Turn,
    /// Index of the stop string.
    Stop(usize),
}

#[derive(Debug)]
enum Mode {
    Reasoning,
    Answer,
    Call(Call),
    Ended,
}

/// Splits the tokens of one answer into reasoning, text and tool calls.
///
/// The events depend on the tokens alone: pushing them one by one or many at a time gives the same once neighbouring pieces
/// of one kind are joined, and a reply that is not streamed is that list.
///
/// Rules, beside those of the format (model-spec 10.3):
/// - Reasoning ends at `</think>`. If the turn ends without one and there is neither text nor call, the reasoning is
///   given once more as text: a model that skipped thinking has answered there, and a reply must not be empty.
/// - `<think>` as the first thing of an answer opens reasoning, whatever the prompt said; `</think>` there is dropped.
/// - Inside reasoning, in a code fence, in inline code, and without tools, a call is text.
/// - A call counts if its name is declared. A name with its first key glued to it, a missing key or value tag, and a
///   call left open when the turn ends are repaired where the declaration leaves one reading; any other call is given back
///   as the text it was. Arguments have the types of the declaration.
/// - White space before a call, with no text before it, is dropped.
#[derive(Debug)]
pub struct Splitter {
    detokenizer: Detokenizer,
    kinds: HashMap<u32, Kind>,
    call_open: String,
    tools: Tools,
    stop: Vec<String>,
    mode: Mode,
    reasoning_markers: Markers<Mark>,
    answer_markers: Markers<Mark>,
    code: CodeSpans,
    /// White space at the start of a block of text, held until it is known what follows.
    lead: String,
    /// Text of the present block has been emitted.
    in_block: bool,
    /// Text has been emitted at all.
    said: bool,
    /// Reasoning since it was opened.
    thought: String,
    /// Calls announced, and calls completed.
    calls: usize,
    completed: usize,
    stopped: Option<FinishReason>,
}

impl Splitter {
    /// A splitter for one answer.
    pub fn new(tokenizer: &Tokenizer, options: SplitterOptions) -> Self {
        let named = [
            ("<think>", Kind::ThinkOpen),
            ("</think>", Kind::ThinkClose),
            ("<tool_call>", Kind::Tag(Tag::CallOpen)),
            ("</tool_call>", Kind::Tag(Tag::CallClose)),
            ("<arg_key>", Kind::Tag(Tag::KeyOpen)),
            ("</arg_key>", Kind::Tag(Tag::KeyClose)),
            ("<arg_value>", Kind::Tag(Tag::ValueOpen)),
            ("</arg_value>", Kind::Tag(Tag::ValueClose)),
            ("[gMASK]", Kind::Role),
            ("<sop>", Kind::Role),
            ("<|system|>", Kind::Role),
            ("<|assistant|>", Kind::Role),
        ];
        let mut kinds: HashMap<u32, Kind> =
            named.iter().filter_map(|(text, kind)| Some((tokenizer.special(text)?, *kind))).collect();
        kinds.extend(tokenizer.stop_tokens().iter().map(|&id| (id, Kind::Turn)));
        let turn_texts: Vec<String> = tokenizer
            .stop_tokens()
            .iter()
            .map(|&id| tokenizer.decode(&[id]))
            .filter(|t| t.len() > 1)
            .collect();
        let turn = || turn_texts.iter().map(|text| (text.as_str(), Mark::Turn));
        let stop = options.stop.iter().enumerate().map(|(i, text)| (text.as_str(), Mark::Stop(i)));
        Self {
            reasoning_markers: Markers::new(turn().chain([("</think>", Mark::ThinkClose)])),
            answer_markers: Markers::new(turn().chain(stop)),
            detokenizer: tokenizer.detokenizer(),
            kinds,
            call_open: "<tool_call>".to_owned(),
            tools: Tools::new(&options.tools),
            stop: options.stop,
            mode: if options.thinking_open { Mode::Reasoning } else { Mode::Answer },
            code: CodeSpans::new(),
            lead: String::new(),
            in_block: false,
            said: false,
            thought: String::new(),
            calls: 0,
            completed: 0,
            stopped: None,
        }
    }

    /// Takes the next token and returns what it completes. After a stop ([`Splitter::stopped`]) tokens are ignored.
    pub fn push(&mut self, id: u32) -> Vec<ChatEvent> {
        let mut events = Vec::new();
        if self.stopped() {
            return events;
        }
        match self.kinds.get(&id).copied() {
            None => {
                let text = self.detokenizer.push(id);
                self.text(&text, &mut events);
            }
            Some(kind) => {
                // A character that is not whole will never be: no token of ordinary text follows.
                let rest = self.detokenizer.finish();
                self.text(&rest, &mut events);
                let text = self.detokenizer.push(id);
                if !self.stopped() {
                    self.special(kind, &text, &mut events);
                }
            }
        }
        events
    }

    /// Whether generation should end now: a stop string was found, or a stop token was pushed or spelled in ordinary
    /// pieces.
    pub fn stopped(&self) -> bool {
        self.stopped.is_some()
    }

    fn reasoning(&self) -> bool {
        matches!(self.mode, Mode::Reasoning)
    }

    /// Ends the stream: what was held back, and the reason to report. A stop that the splitter found itself counts as the
    /// end of the turn, whatever `ending` says. Called again it gives no events.
    pub fn finish(&mut self, ending: Ending) -> (Vec<ChatEvent>, FinishReason) {
        let mut events = Vec::new();
        if !self.stopped() {
            let rest = self.detokenizer.finish();
            self.text(&rest, &mut events);
        }
        let turn = self.stopped() || ending == Ending::Turn;
        match std::mem::replace(&mut self.mode, Mode::Ended) {
            Mode::Call(mut call) if turn => {
                let progress = call.end_of_turn(&self.tools, &mut events);
                self.progress(call, progress, &mut events);
            }
            Mode::Call(call) => {
                if let Some(text) = call.cut() {
                    self.mode = Mode::Answer;
                    self.text(&text, &mut events);
                }
            }
            Mode::Reasoning => {
                let mut text = String::new();
                self.reasoning_markers.flush(&mut text);
                self.emit_reasoning(&text, &mut events);
                if turn && !self.said && self.calls == 0 && !self.thought.trim().is_empty() {
                    let thought = std::mem::take(&mut self.thought);
                    self.mode = Mode::Answer;
                    self.code = CodeSpans::new();
                    self.text(&thought, &mut events);
                }
            }
            mode => self.mode = mode,
        }
        if matches!(self.mode, Mode::Answer) {
            self.flush_answer(&mut events);
            if !self.in_block && self.calls == 0 && !self.lead.is_empty() {
                push_merged(&mut events, ChatEvent::Text(std::mem::take(&mut self.lead)));
            }
        }
        self.mode = Mode::Ended;
        let reason = match &self.stopped {
            _ if turn && self.completed > 0 => FinishReason::ToolCalls,
            Some(reason) => reason.clone(),
            None if turn => FinishReason::Stop,
            None => FinishReason::Length,
        };
        (events, reason)
    }

    /// Takes text that is no tag.
    fn text(&mut self, text: &str, events: &mut Vec<ChatEvent>) {
        let mut free = String::new();
        for (at, c) in text.char_indices() {
            let code = &mut self.code;
            let (markers, reasoning) = match &mut self.mode {
                Mode::Reasoning => (&mut self.reasoning_markers, true),
                Mode::Answer => (&mut self.answer_markers, false),
                Mode::Call(_) => return self.text_in_call(&text[at..], events),
                Mode::Ended => return,
            };
            code.push(c);
            let counts = |mark: &Mark| matches!(mark, Mark::Stop(_)) || !code.clone().inside();
            let found = markers.push(c, counts, &mut free);
            if found.is_none() {
                continue;
            }
            let before = std::mem::take(&mut free);
            if reasoning {
                self.emit_reasoning(&before, events);
            } else {
                self.emit_answer(&before, events);
            }
            match found {
                Some(Mark::ThinkClose) => self.open_answer(),
                Some(Mark::Turn) => return self.stopped = Some(FinishReason::Stop),
                Some(Mark::Stop(i)) => {
                    return self.stopped = Some(FinishReason::StopString(self.stop[i].clone()));
                }
                None => {}
            }
        }
        match self.mode {
            Mode::Reasoning => self.emit_reasoning(&free, events),
            _ => self.emit_answer(&free, events),
        }
    }

    fn text_in_call(&mut self, text: &str, events: &mut Vec<ChatEvent>) {
        if let Mode::Call(mut call) = std::mem::replace(&mut self.mode, Mode::Ended) {
            let progress = call.text(&self.tools, text, events);
            self.progress(call, progress, events);
        }
    }

    /// Takes a special token that means something; `text` is how it is written.
    fn special(&mut self, kind: Kind, text: &str, events: &mut Vec<ChatEvent>) {
        if let Kind::Turn = kind {
            self.stopped = Some(FinishReason::Stop);
            return;
        }
        if let Mode::Call(_) = self.mode {
            let Kind::Tag(tag) = kind else { return self.text_in_call(text, events) };
            if let Mode::Call(mut call) = std::mem::replace(&mut self.mode, Mode::Ended) {
                let progress = call.tag(&self.tools, tag, text, events);
                self.progress(call, progress, events);
            }
            return;
        }
        let reasoning = self.reasoning();
        match kind {
            Kind::Role if !self.code.inside() => self.stopped = Some(FinishReason::Stop),
            Kind::ThinkClose if reasoning => {
                let mut held = String::new();
                self.reasoning_markers.flush(&mut held);
                self.emit_reasoning(&held, events);
                self.open_answer();
            }
            Kind::ThinkOpen
                if reasoning && self.thought.trim().is_empty() && self.reasoning_markers.is_empty() => {}
            Kind::ThinkOpen if !reasoning && self.at_start() => {
                self.lead.clear();
                self.thought.clear();
                self.mode = Mode::Reasoning;
                self.code = CodeSpans::new();
            }
            Kind::ThinkClose if self.at_start() => self.lead.clear(),
            Kind::Tag(Tag::CallOpen) if !reasoning && self.may_call() => {
                self.flush_answer(events);
                self.mode = Mode::Call(Call::new(self.calls, text));
            }
            _ => self.text(text, events),
        }
    }

    /// Whether nothing but white space has come since the answer began.
    fn at_start(&self) -> bool {
        !self.said && self.calls == 0 && self.answer_markers.is_empty()
    }

    fn may_call(&mut self) -> bool {
        !self.tools.is_empty() && !self.code.inside()
    }

    fn open_answer(&mut self) {
        self.mode = Mode::Answer;
        self.code = CodeSpans::new();
        self.thought.clear();
    }

    /// Goes on after a call took a piece.
    fn progress(&mut self, call: Call, progress: Progress, events: &mut Vec<ChatEvent>) {
        if call.announced() {
            self.calls = call.index() + 1;
            self.lead.clear();
            self.in_block = false;
        }
        match progress {
            Progress::Open => self.mode = Mode::Call(call),
            Progress::Done => {
                self.completed += 1;
                self.mode = Mode::Answer;
                self.code = CodeSpans::new();
            }
            Progress::DoneAndOpen => {
                self.completed += 1;
                self.mode = Mode::Call(Call::new(self.calls, &self.call_open));
            }
            Progress::NoCall(text) => {
                self.mode = Mode::Answer;
                self.text(&text, events);
            }
            Progress::NoCallAndOpen(text) => {
                self.mode = Mode::Answer;
                self.text(&text, events);
                if self.stopped() {
                    return;
                }
                if self.may_call() {
                    self.flush_answer(events);
                    self.mode = Mode::Call(Call::new(self.calls, &self.call_open));
                } else {
                    let open = self.call_open.clone();
                    self.text(&open, events);
                }
            }
        }
    }

    fn flush_answer(&mut self, events: &mut Vec<ChatEvent>) {
        let mut held = String::new();
        self.answer_markers.flush(&mut held);
        self.emit_answer(&held, events);
    }

    fn emit_reasoning(&mut self, text: &str, events: &mut Vec<ChatEvent>) {
        if !text.is_empty() {
            self.thought.push_str(text);
            push_merged(events, ChatEvent::Reasoning(text.to_owned()));
        }
    }

    fn emit_answer(&mut self, text: &str, events: &mut Vec<ChatEvent>) {
        if text.is_empty() {
            return;
        }
        if !self.in_block && text.trim().is_empty() {
            self.lead.push_str(text);
            return;
        }
        self.in_block = true;
        self.said = true;
        let mut whole = std::mem::take(&mut self.lead);
        whole.push_str(text);
        push_merged(events, ChatEvent::Text(whole));
    }
}
