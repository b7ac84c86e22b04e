//! One tool call, from `<tool_call>` to `</tool_call>`.
//!
//! `<tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>…</tool_call>`: strings bare, everything else as JSON. The
//! tags are tokens; the same text spelled in ordinary pieces is data. A value ends at `</arg_value>` only where
//! `<arg_key>`, `</tool_call>`, `<tool_call>` or the end of the turn follows, since a value may quote any tag.

use super::event::{ChatEvent, push_merged};
use super::schema::{Tools, Types};
use serde_json::Value;

/// The tokens that build a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    CallOpen,
    CallClose,
    KeyOpen,
    KeyClose,
    ValueOpen,
    ValueClose,
}

/// What became of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More is needed.
    Open,
    /// It is complete and its events were emitted.
    Done,
    /// It is complete, and another one was opened.
    DoneAndOpen,
    /// It is none: this is its text.
    NoCall(String),
    /// It is none, and another one was opened.
    NoCallAndOpen(String),
}

/// A name (with a key glued to it) or a first key longer than this is none: text must not be held back without end.
const LONGEST_NAME: usize = 512;

#[derive(Debug)]
enum State {
    Name,
    Key(String),
    /// Between `</arg_key>` and `<arg_value>`.
    AfterKey(String),
    Value(Writer),
    /// In a value, after a tag that may have ended it.
    MayEnd(Writer, Held),
}

/// Text after a tag that may have ended a value.
#[derive(Debug)]
struct Held {
    by: By,
    /// That tag and everything since, tags as text: it goes into the value if the value goes on.
    text: String,
    /// After `</arg_value>` or `<arg_key>`: the text since, which may be a key.
    key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    ValueClose,
    CallClose,
    /// `<arg_key>` with no `</arg_value>` before it.
    KeyOpen,
    /// The same, with its `</arg_key>`.
    KeyClose,
}

/// Where a value goes.
#[derive(Debug)]
enum Writer {
    /// A declared string: passed on as it comes.
    Stream,
    /// Anything else: typed once it is whole.
    Whole(Types, String),
    /// A key that came before: the first value stays.
    Drop,
}

/// A call being read.
#[derive(Debug)]
pub(crate) struct Call {
    index: usize,
    state: State,
    /// Text since `<tool_call>`, kept until the call is announced.
    raw: String,
    name: String,
    /// Whether `ToolStart` has been emitted.
    announced: bool,
    /// Keys that have a value.
    keys: Vec<String>,
}

impl Call {
    /// A call that was just opened by the tag whose text is `open`. `index` is its place among the answer's calls.
    pub(crate) fn new(index: usize, open: &str) -> Self {
        Self {
            index,
            state: State::Name,
            raw: open.to_owned(),
            name: String::new(),
            announced: false,
            keys: Vec::new(),
        }
    }

    /// Its place among the answer's calls.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Whether `ToolStart` has been emitted.
    pub(crate) fn announced(&self) -> bool {
        self.announced
    }

    /// Takes text that is no tag.
    pub(crate) fn text(&mut self, tools: &Tools, text: &str, events: &mut Vec<ChatEvent>) -> Progress {
        if !self.announced {
            self.raw.push_str(text);
        }
        match &mut self.state {
            State::Name => {
                self.name.push_str(text);
                let name = self.name.trim_start();
                if name.len() > LONGEST_NAME || !tools.may_start(name.trim_end()) {
                    return self.give_up();
                }
            }
            State::Key(key) => {
                key.push_str(text);
                if key.len() > LONGEST_NAME && !self.announced {
                    return self.give_up();
                }
            }
            State::AfterKey(key) => {
                let value = text.trim_start();
                if !value.is_empty() {
                    let key = std::mem::take(key);
                    self.open_value(tools, &key, events);
                    return self.text_in_value(value, events);
                }
            }
            State::Value(_) => return self.text_in_value(text, events),
            State::MayEnd(_, held) => {
                held.text.push_str(text);
                let may_end = match held.by {
                    By::ValueClose | By::KeyOpen => {
                        held.key.push_str(text);
                        let key = held.key.trim();
                        key.is_empty() || tools.find(&self.name).is_some_and(|tool| tool.may_declare(key))
                    }
                    By::CallClose | By::KeyClose => text.trim().is_empty(),
                };
                if !may_end {
                    self.value_goes_on(events);
                }
            }
        }
        Progress::Open
    }

    /// Takes a tag; `text` is how it is written.
    pub(crate) fn tag(
        &mut self,
        tools: &Tools,
        tag: Tag,
        text: &str,
        events: &mut Vec<ChatEvent>,
    ) -> Progress {
        if !self.announced && tag != Tag::CallOpen {
            self.raw.push_str(text);
        }
        match (&mut self.state, tag) {
            (State::Name, Tag::CallClose) => return self.close_empty(tools, events),
            (State::Name, Tag::CallOpen) => return self.reopen(),
            (State::Name, Tag::KeyOpen) => {
                if tools.find(self.name.trim()).is_none() {
                    return self.give_up();
                }
                self.name = self.name.trim().to_owned();
                self.state = State::Key(String::new());
            }
            (State::Name, Tag::KeyClose | Tag::ValueOpen) => return self.glued(tools, tag, events),
            (State::Name, Tag::ValueClose) => return self.give_up(),

            (State::Key(key), Tag::KeyClose) => self.state = State::AfterKey(key.trim().to_owned()),
            (State::Key(key) | State::AfterKey(key), Tag::ValueOpen) => {
                let key = key.trim().to_owned();
                self.open_value(tools, &key, events);
            }
            (State::AfterKey(_), Tag::KeyClose) => {}
            (State::Key(_) | State::AfterKey(_), _) if !self.announced => {
                return if tag == Tag::CallOpen { self.reopen() } else { self.give_up() };
            }
            // A key without a value, after other arguments: left out.
            (State::Key(_) | State::AfterKey(_), Tag::KeyOpen | Tag::ValueClose) => {
                self.state = State::Key(String::new());
            }
            (State::Key(_) | State::AfterKey(_), Tag::CallClose) => return self.done(events),
            (State::Key(_) | State::AfterKey(_), Tag::CallOpen) => {
                self.done(events);
                return Progress::DoneAndOpen;
            }

            (State::Value(_), Tag::ValueClose) => self.may_end(By::ValueClose, text),
            (State::Value(_), Tag::CallClose) => self.may_end(By::CallClose, text),
            (State::Value(_), Tag::KeyOpen) => self.may_end(By::KeyOpen, text),
            (State::Value(_), _) => return self.text_in_value(text, events),

            (State::MayEnd(_, held), _) => {
                let blank = held.key.trim().is_empty();
                match (held.by, tag) {
                    (By::ValueClose, Tag::KeyOpen) if blank => {
                        self.end_value(events);
                        self.state = State::Key(String::new());
                    }
                    (By::ValueClose, Tag::CallClose) if blank => return self.done(events),
                    (By::ValueClose | By::CallClose, Tag::CallOpen) if blank => {
                        self.done(events);
                        return Progress::DoneAndOpen;
                    }
                    // The opening tag of a key is missing, or the closing tag of the value before it.
                    (By::ValueClose, Tag::KeyClose) if self.is_new_key(tools) => {
                        let key = self.held_key();
                        self.end_value(events);
                        self.state = State::AfterKey(key);
                    }
                    (By::KeyOpen, Tag::KeyClose) if self.is_new_key(tools) => {
                        let State::MayEnd(_, held) = &mut self.state else { return Progress::Open };
                        held.by = By::KeyClose;
                        held.text.push_str(text);
                    }
                    (By::KeyClose, Tag::ValueOpen) => {
                        let key = self.held_key();
                        self.end_value(events);
                        self.open_value(tools, &key, events);
                    }
                    _ => {
                        self.value_goes_on(events);
                        return self.tag(tools, tag, text, events);
                    }
                }
            }
        }
        Progress::Open
    }

    /// The turn has ended. What is whole enough becomes a call.
    pub(crate) fn end_of_turn(&mut self, tools: &Tools, events: &mut Vec<ChatEvent>) -> Progress {
        match &self.state {
            State::Name => self.close_empty(tools, events),
            State::Key(_) | State::AfterKey(_) if !self.announced => self.give_up(),
            State::MayEnd(_, held)
                if matches!(held.by, By::KeyOpen | By::KeyClose) || !held.key.trim().is_empty() =>
            {
                self.value_goes_on(events);
                self.done(events)
            }
            _ => self.done(events),
        }
    }

    /// The stream was cut: nothing is made up. Returns the text of a call that was not announced.
    pub(crate) fn cut(self) -> Option<String> {
        (!self.announced).then_some(self.raw)
    }

    /// `<tool_call>NAME</tool_call>`
    fn close_empty(&mut self, tools: &Tools, events: &mut Vec<ChatEvent>) -> Progress {
        let name = self.name.trim();
        if tools.find(name).is_none() {
            return self.give_up();
        }
        self.name = name.to_owned();
        self.announce(events);
        self.done(events)
    }

    /// A key's end or a value's start directly after the name: the name has the key glued to it, or the only key of the
    /// tool is meant.
    fn glued(&mut self, tools: &Tools, tag: Tag, events: &mut Vec<ChatEvent>) -> Progress {
        let name = self.name.trim().to_owned();
        let (tool, key) = match tools.find(&name) {
            Some(tool) if tag == Tag::ValueOpen => (tool.name.clone(), tool.only_key().map(str::to_owned)),
            Some(_) | None => match tools.split_name(&name) {
                Some((tool, key)) if tag == Tag::KeyClose || tool.declares(key) => {
                    (tool.name.clone(), Some(key.to_owned()))
                }
                _ => return self.give_up(),
            },
        };
        let Some(key) = key else { return self.give_up() };
        self.name = tool;
        if tag == Tag::KeyClose {
            self.state = State::AfterKey(key);
        } else {
            self.open_value(tools, &key, events);
        }
        Progress::Open
    }

    fn give_up(&mut self) -> Progress {
        Progress::NoCall(std::mem::take(&mut self.raw))
    }

    fn reopen(&mut self) -> Progress {
        Progress::NoCallAndOpen(std::mem::take(&mut self.raw))
    }

    fn announce(&mut self, events: &mut Vec<ChatEvent>) {
        if !self.announced {
            self.announced = true;
            self.raw = String::new();
            events.push(ChatEvent::ToolStart { index: self.index, name: self.name.clone() });
            self.json("{", events);
        }
    }

    fn json(&self, piece: &str, events: &mut Vec<ChatEvent>) {
        if !piece.is_empty() {
            push_merged(events, ChatEvent::ToolArguments { index: self.index, json: piece.to_owned() });
        }
    }

    fn open_value(&mut self, tools: &Tools, key: &str, events: &mut Vec<ChatEvent>) {
        self.announce(events);
        if self.keys.iter().any(|have| have == key) {
            self.state = State::Value(Writer::Drop);
            return;
        }
        let types = tools.find(&self.name).map_or(Types::ANY, |tool| tool.types(key));
        if !self.keys.is_empty() {
            self.json(",", events);
        }
        self.json(&Value::from(key).to_string(), events);
        self.json(":", events);
        self.keys.push(key.to_owned());
        self.state = State::Value(if types.only_string() {
            self.json("\"", events);
            Writer::Stream
        } else {
            Writer::Whole(types, String::new())
        });
    }

    fn text_in_value(&mut self, text: &str, events: &mut Vec<ChatEvent>) -> Progress {
        match &mut self.state {
            State::Value(Writer::Whole(_, whole)) => whole.push_str(text),
            State::Value(Writer::Stream) => {
                let quoted = Value::from(text).to_string();
                self.json(&quoted[1..quoted.len() - 1], events);
            }
            _ => {}
        }
        Progress::Open
    }

    fn may_end(&mut self, by: By, text: &str) {
        if let State::Value(writer) = &mut self.state {
            let writer = std::mem::replace(writer, Writer::Drop);
            self.state = State::MayEnd(writer, Held { by, text: text.to_owned(), key: String::new() });
        }
    }

    /// What was held is part of the value.
    fn value_goes_on(&mut self, events: &mut Vec<ChatEvent>) {
        if let State::MayEnd(writer, held) = &mut self.state {
            let writer = std::mem::replace(writer, Writer::Drop);
            let text = std::mem::take(&mut held.text);
            self.state = State::Value(writer);
            self.text_in_value(&text, events);
        }
    }

    fn end_value(&mut self, events: &mut Vec<ChatEvent>) {
        match &self.state {
            State::Value(Writer::Stream) | State::MayEnd(Writer::Stream, _) => self.json("\"", events),
            State::Value(Writer::Whole(types, raw)) | State::MayEnd(Writer::Whole(types, raw), _) => {
                let json = types.json(raw);
                self.json(&json, events);
            }
            _ => {}
        }
    }

    /// Ends a value that is open and the call.
    fn done(&mut self, events: &mut Vec<ChatEvent>) -> Progress {
        self.end_value(events);
        self.json("}", events);
        events.push(ChatEvent::ToolEnd { index: self.index });
        Progress::Done
    }

    fn held_key(&self) -> String {
        match &self.state {
            State::MayEnd(_, held) => held.key.trim().to_owned(),
            _ => String::new(),
        }
    }

    /// Whether the held text is a declared key that has no value yet.
    fn is_new_key(&self, tools: &Tools) -> bool {
        let key = self.held_key();
        !self.keys.contains(&key) && tools.find(&self.name).is_some_and(|tool| tool.declares(&key))
    }
}
