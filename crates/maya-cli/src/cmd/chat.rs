//! `maya chat`: a conversation in the terminal.

use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use glm_chat::{ChatEvent, ChatRequest, Ending, Splitter, SplitterOptions, Template, Tokenizer};
use glm_graph::{Checkpoint, Executor, GenerateEvent, GenerateOptions, SamplerParams, SeqId, generate};
use rustyline::error::ReadlineError;
use serde_json::{Value as Json, json};

use super::generate::CHUNK;
use crate::args::{ChatArgs, Think};
use crate::engine::{Engine, sampling};
use crate::output::{Out, count, note};
use crate::progress::{self, Progress};
use crate::{interrupt, text};

const HELP: &str = "\
/help            this list
/clear           forget the conversation
/think [AMOUNT]  how much to think before answering: off, low, high, max
/system [TEXT]   instructions ahead of the conversation; without TEXT, none
/exit            leave (so does Ctrl-D)
Ctrl-C stops an answer.";

/// Talks until the input ends.
pub fn run(args: &ChatArgs) -> Result<()> {
    let engine = Engine::load(&args.engine)?;
    let file = engine.model.gguf();
    let tokenizer = text::tokenizer(file, &engine.name, "chat")?;
    let template = text::template(file, &engine.name, &tokenizer, "chat")?;
    let sampler = sampling(&args.sampling, file)?;
    let mut chat = Chat {
        tokenizer,
        template,
        sampler,
        max_tokens: args.max_tokens as usize,
        system: args.system.clone(),
        think: args.think,
        messages: Vec::new(),
        cache: Cache::default(),
        engine,
    };
    let mut input = Input::open()?;
    if input.interactive() {
        note(format_args!("{}; /help lists the commands, Ctrl-D leaves", chat.engine.name));
    }
    let mut out = Out::new();
    let mut failed = 0;
    while let Some(line) = input.next()? {
        match line {
            Ok(line) => match chat.line(&line, &mut out) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(e) if e.is::<crate::output::StdoutClosed>() => return Err(e),
                Err(e) => {
                    failed += 1;
                    note(format_args!("{e:#}"));
                }
            },
            Err(sentence) => {
                failed += 1;
                note(sentence);
            }
        }
    }
    // Whoever types has read it; a script has only the exit code.
    if failed > 0 && !input.interactive() {
        bail!("{failed} lines could not be answered");
    }
    Ok(())
}

/// Lines from a person with an editor, or plain lines.
enum Input {
    Editor(Box<rustyline::DefaultEditor>),
    Plain { number: u64 },
}

impl Input {
    fn open() -> Result<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
        if dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Self::Plain { number: 0 });
        }
        let editor = rustyline::DefaultEditor::new().context("the line editor cannot be started")?;
        Ok(Self::Editor(Box::new(editor)))
    }

    fn interactive(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// The next line; a sentence for one that is no text; `None` at the end.
    fn next(&mut self) -> Result<Option<Result<String, String>>> {
        match self {
            Self::Editor(editor) => loop {
                match editor.readline("> ") {
                    Ok(line) => {
                        let _ = editor.add_history_entry(&line);
                        return Ok(Some(Ok(line)));
                    }
                    Err(ReadlineError::Interrupted) => note("Ctrl-D or /exit leaves"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(e) => return Err(e).context("the terminal cannot be read"),
                }
            },
            Self::Plain { number } => {
                let mut bytes = Vec::new();
                let n = io::stdin()
                    .lock()
                    .read_until(b'\n', &mut bytes)
                    .context("standard input cannot be read")?;
                if n == 0 || interrupt::pressed() {
                    return Ok(None);
                }
                *number += 1;
                Ok(Some(String::from_utf8(bytes).map_err(|e| {
                    format!("line {number}: byte {} is not UTF-8", e.utf8_error().valid_up_to() + 1)
                })))
            }
        }
    }
}

struct Chat {
    engine: Engine,
    tokenizer: Tokenizer,
    template: Template,
    sampler: SamplerParams,
    max_tokens: usize,
    system: Option<String>,
    think: Think,
    messages: Vec<Json>,
    cache: Cache,
}

impl Chat {
    /// A command or a message. `Break` ends the program.
    fn line(&mut self, line: &str, out: &mut Out) -> Result<ControlFlow<()>> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "" => {}
            "/help" => out.line(HELP)?,
            "/exit" | "/quit" => return Ok(ControlFlow::Break(())),
            "/clear" => {
                self.messages.clear();
                note("the conversation is forgotten");
            }
            "/think" => {
                let amount = <Think as clap::ValueEnum>::from_str(rest, true);
                match amount {
                    Ok(amount) => self.think = amount,
                    Err(_) if rest.is_empty() => {}
                    Err(_) => bail!("/think {rest}: it must be off, low, high or max"),
                }
                note(format_args!("thinking: {:?}", self.think).to_string().to_lowercase());
            }
            "/system" => {
                self.system = (!rest.is_empty()).then(|| rest.to_owned());
                note(if rest.is_empty() { "no instructions" } else { "instructions are set" });
            }
            _ if word.starts_with('/') && word[1..].chars().all(char::is_alphabetic) => {
                bail!("{word} is no command; /help lists them");
            }
            _ => self.message(line, out)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A message of the user, answered. If it cannot be answered, the conversation is as before.
    fn message(&mut self, text: &str, out: &mut Out) -> Result<()> {
        self.messages.push(json!({"role": "user", "content": text}));
        match self.answer(out) {
            Ok(message) => {
                self.messages.push(message);
                Ok(())
            }
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    fn answer(&mut self, out: &mut Out) -> Result<Json> {
        interrupt::clear();
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        let request = ChatRequest {
            messages: system.chain(self.messages.iter().cloned()).collect(),
            reasoning_effort: match self.think {
                Think::Off => None,
                Think::Low => Some("low".to_owned()),
                Think::High => Some("high".to_owned()),
                Think::Max => Some("max".to_owned()),
            },
            enable_thinking: (self.think == Think::Off).then_some(false),
            ..ChatRequest::default()
        };
        let prompt = self.template.render(&request)?;
        let ids = self.tokenizer.encode_prompt(&prompt);
        let ctx = self.engine.options.ctx;
        if ids.len() >= ctx {
            bail!(
                "the conversation has {} tokens and the context is {}: /clear starts a new one",
                count(ids.len() as u64),
                count(ctx as u64)
            );
        }
        self.engine.check(&ids)?;
        let options = SplitterOptions { thinking_open: prompt.thinking_open(), ..SplitterOptions::default() };
        let mut printer = Printer::new(Splitter::new(&self.tokenizer, options));
        let options = GenerateOptions {
            max_tokens: self.max_tokens,
            sampler: self.sampler.clone(),
            stop_tokens: self.tokenizer.stop_tokens().to_vec(),
            chunk: CHUNK,
        };
        // Each answer draws its own numbers; with --seed the conversation as a whole reproduces.
        self.sampler.seed = self.sampler.seed.wrapping_add(1);
        let result = self.cache.decode(&mut self.engine, &ids, &options, &mut |id| printer.push(id, out));
        let finished = printer.end(out);
        result?;
        finished?;
        if interrupt::pressed() {
            note("stopped");
            interrupt::clear();
        }
        Ok(printer.message())
    }
}

/// The sequence of the conversation. A next prompt that begins with what was fed goes on from there; one that differs in
/// the last answer (the template drops its reasoning) goes back to the checkpoint before it.
#[derive(Default)]
struct Cache {
    seq: Option<SeqId>,
    fed: Vec<u32>,
    before_answer: Option<Checkpoint>,
}

impl Cache {
    fn decode(
        &mut self,
        engine: &mut Engine,
        prompt: &[u32],
        options: &GenerateOptions,
        on: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        let result = self.feed_and_decode(engine, prompt, options, on);
        if result.is_err()
            && let Some(seq) = self.seq.take()
        {
            // Whatever state it is in, the next message starts anew.
            engine.exec.close_sequence(seq)?;
            *self = Self::default();
        }
        result
    }

    fn feed_and_decode(
        &mut self,
        engine: &mut Engine,
        prompt: &[u32],
        options: &GenerateOptions,
        on: &mut dyn FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        let seq = self.rewind(engine, prompt)?;
        let exec = &mut engine.exec;
        let (last, head) = (prompt.len() - 1, self.fed.len());
        let mut progress = Progress::new("reading the conversation", "tokens", (last - head) as u64);
        for chunk in prompt[head..last].chunks(options.chunk) {
            if interrupt::pressed() {
                return Ok(());
            }
            exec.prefill(seq, chunk)?;
            self.fed.extend_from_slice(chunk);
            progress.at((self.fed.len() - head) as u64);
        }
        progress.finish();
        self.before_answer = Some(exec.save(seq)?);
        let mut fed = prompt.to_vec();
        let mut failed = None;
        let finish = generate(exec, seq, &prompt[last..], options, &mut |event| {
            if let GenerateEvent::Token(id) = event {
                fed.push(id);
                if let Err(e) = on(id) {
                    failed = Some(e);
                    return ControlFlow::Break(());
                }
            }
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // The last token was drawn and may not have been fed.
        fed.truncate(exec.len(seq)?);
        self.fed = fed;
        match failed {
            Some(e) => Err(e),
            None => finish.map(|_| ()).map_err(Into::into),
        }
    }

    /// A sequence that holds a proper prefix of `prompt`, as long as possible.
    fn rewind(&mut self, engine: &mut Engine, prompt: &[u32]) -> Result<SeqId> {
        let prefix = |fed: &[u32]| fed.len() < prompt.len() && prompt.starts_with(fed);
        if let Some(seq) = self.seq {
            if prefix(&self.fed) {
                return Ok(seq);
            }
            if let Some(checkpoint) = self.before_answer.as_ref().filter(|c| prefix(c.tokens())) {
                engine.exec.restore(seq, checkpoint)?;
                self.fed = checkpoint.tokens().to_vec();
                return Ok(seq);
            }
            engine.exec.close_sequence(seq)?;
            *self = Self::default();
        }
        let seq = engine.exec.open_sequence()?;
        self.seq = Some(seq);
        Ok(seq)
    }
}

/// Shows an answer as it comes, reasoning dimmed where the terminal can, and keeps it for the conversation.
struct Printer {
    splitter: Splitter,
    reasoning: String,
    text: String,
    dim: bool,
    fancy: bool,
}

impl Printer {
    fn new(splitter: Splitter) -> Self {
        let fancy = progress::fancy() && io::stdout().is_terminal();
        Self { splitter, reasoning: String::new(), text: String::new(), dim: false, fancy }
    }

    fn push(&mut self, id: u32, out: &mut Out) -> Result<()> {
        let events = self.splitter.push(id);
        self.show(events, out)
    }

    fn show(&mut self, events: Vec<ChatEvent>, out: &mut Out) -> Result<()> {
        for event in events {
            match event {
                ChatEvent::Reasoning(piece) => {
                    if self.fancy && !self.dim {
                        self.dim = true;
                        out.text("\u{1b}[2m")?;
                    }
                    out.text(&piece)?;
                    self.reasoning.push_str(&piece);
                }
                ChatEvent::Text(piece) => {
                    if self.text.is_empty() && !self.reasoning.is_empty() {
                        self.bright(out)?;
                        out.text("\n\n")?;
                    }
                    out.text(&piece)?;
                    self.text.push_str(&piece);
                }
                // No tools are declared here, so a call stays text.
                ChatEvent::ToolStart { .. } | ChatEvent::ToolArguments { .. } | ChatEvent::ToolEnd { .. } => {
                }
            }
        }
        out.flush()
    }

    fn bright(&mut self, out: &mut Out) -> Result<()> {
        if self.dim {
            self.dim = false;
            out.text("\u{1b}[0m")?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<()> {
        let (events, _) = self.splitter.finish(Ending::Turn);
        self.show(events, out)?;
        self.bright(out)?;
        out.line("")
    }

    fn message(self) -> Json {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.into();
        }
        message
    }
}
