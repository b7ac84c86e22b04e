//! `maya chat`: a conversation in the terminal.

mod cache;
mod input;
mod printer;

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use cache::Cache;
use glm_chat::{ChatRequest, Ending, Splitter, SplitterOptions, Template, Tokenizer};
use glm_graph::{Finish, GenerateOptions, SamplerParams};
use input::Input;
use printer::Printer;
use serde_json::{Value as Json, json};

use super::generate::CHUNK;
use crate::args::{ChatArgs, Think};
use crate::engine::{Engine, sampling};
use crate::output::{Out, count, note};
use crate::{interrupt, text, tiers};

const HELP: &str = "\
/help            this list
/clear           forget the conversation
/think [AMOUNT]  how much to think before answering: off, low, high, max
/system [TEXT]   instructions ahead of the conversation; without TEXT, none
/exit            leave (so does Ctrl-D)
Ctrl-C stops an answer.";

/// Talks until the input ends.
pub fn run(args: &ChatArgs) -> Result<()> {
    let mut chat = Chat::open(args)?;
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
    tiers::save_usage(&chat.engine, args.engine.tiers.usage.as_deref());
    // Whoever types has read it; a script has only the exit code.
    if failed > 0 && !input.interactive() {
        bail!("{failed} {} could not be answered", if failed == 1 { "line" } else { "lines" });
    }
    Ok(())
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
    fn open(args: &ChatArgs) -> Result<Self> {
        // The conversation, and the checkpoint before its last answer.
        let engine = Engine::load_for(&args.engine, 2)?;
        let file = engine.model.gguf();
        let tokenizer = text::tokenizer(file, &engine.name, "chat")?;
        let template = text::template(file, &engine.name, &tokenizer, "chat")?;
        let sampler = sampling(&args.sampling, args.engine.seed, file, Some(&tokenizer))?;
        Ok(Self {
            tokenizer,
            template,
            sampler,
            max_tokens: args.max_tokens as usize,
            system: args.system.clone(),
            think: args.think,
            messages: Vec::new(),
            cache: Cache::default(),
            engine,
        })
    }

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

    /// A message of the user, answered. If nothing comes, by an error or Ctrl-C, the conversation is as before.
    fn message(&mut self, text: &str, out: &mut Out) -> Result<()> {
        self.messages.push(json!({"role": "user", "content": text}));
        match self.answer(out) {
            Ok(Some(message)) => {
                self.messages.push(message);
                Ok(())
            }
            Ok(None) => {
                self.messages.pop();
                Ok(())
            }
            Err(e) => {
                self.messages.pop();
                Err(e)
            }
        }
    }

    fn answer(&mut self, out: &mut Out) -> Result<Option<Json>> {
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
        let ending = if matches!(result, Ok(Finish::Stop(_))) { Ending::Turn } else { Ending::Cut };
        let finished = printer.end(ending, out);
        let finish = result?;
        finished?;
        if finish == Finish::Length {
            note("the answer is cut: --max-tokens, or the context, is full");
        }
        if interrupt::pressed() {
            note("stopped");
            interrupt::clear();
        }
        Ok(printer.message())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        chat: ChatArgs,
    }

    fn chat(flags: &[&str]) -> Chat {
        let args = [&["chat", "--device", "cpu", "--temperature", "0"], flags].concat();
        let mut args = Line::parse_from(args).chat;
        // The demo model, whatever the environment names.
        args.engine.model.model = None;
        Chat::open(&args).unwrap()
    }

    fn say(chat: &mut Chat, line: &str) {
        let mut out = Out::to(Box::new(std::io::sink()));
        assert!(chat.line(line, &mut out).unwrap().is_continue());
    }

    /// The model ends its turn at once: the message is taken back, and the next one finds the conversation as it was.
    #[test]
    fn an_answer_of_nothing_leaves_the_conversation_as_it_was() {
        let mut chat = chat(&[]);
        say(&mut chat, "What is the capital of France?");
        let before = chat.messages.clone();
        assert_eq!(before.len(), 2);
        assert!(before[1]["content"].as_str().unwrap().contains("Paris"), "{before:?}");
        chat.sampler.logit_bias = vec![(chat.tokenizer.stop_tokens()[0], 1e6)];
        say(&mut chat, "What is the capital of Japan?");
        assert_eq!(chat.messages, before);
        chat.sampler.logit_bias.clear();
        say(&mut chat, "What is the capital of Japan?");
        assert_eq!(chat.messages.len(), 4);
        assert!(chat.messages[3]["content"].as_str().unwrap().contains("Tokyo"), "{:?}", chat.messages);
    }

    /// `--max-tokens` in the middle of thinking: what was thought does not become the answer.
    #[test]
    fn thinking_that_is_cut_stays_thinking() {
        let mut chat = chat(&["--think", "high", "--max-tokens", "4"]);
        say(&mut chat, "What is the capital of France?");
        let answer = &chat.messages[1];
        assert_eq!(answer["content"], "", "{answer}");
        assert!(answer["reasoning_content"].as_str().is_some_and(|t| !t.trim().is_empty()), "{answer}");
    }

    /// The token after which the listener had enough is kept, and the next prompt goes on from what was fed.
    #[test]
    fn an_answer_that_was_broken_off_can_be_followed() {
        let Chat { mut engine, tokenizer, mut cache, .. } = chat(&[]);
        let options = GenerateOptions {
            max_tokens: 50,
            sampler: SamplerParams::greedy(),
            stop_tokens: Vec::new(),
            chunk: CHUNK,
        };
        let mut prompt = tokenizer.encode("Once upon a time there was", glm_chat::ParseSpecial::No);
        let mut answers = [Vec::new(), Vec::new()];
        for (round, answer) in answers.iter_mut().enumerate() {
            let finish = cache
                .decode(&mut engine, &prompt, &options, &mut |id| {
                    answer.push(id);
                    Ok(if answer.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })
                .unwrap();
            assert_eq!((finish, answer.len()), (Finish::Cancelled, 3), "round {round}");
            prompt.extend_from_slice(answer);
        }
        // In one go the text is the same.
        let mut whole = Vec::new();
        let start = &prompt[..prompt.len() - 6];
        let decoded = Cache::default().decode(&mut engine, start, &options, &mut |id| {
            whole.push(id);
            Ok(if whole.len() == 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!(decoded.unwrap(), Finish::Cancelled);
        assert_eq!(answers.concat(), whole);
    }
}
