//! `maya generate`: one completion.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use glm_chat::{ParseSpecial, Tokenizer};
use glm_graph::{Executor, Finish, GenerateEvent, GenerateOptions, generate};
use serde_json::{Value as Json, json};

use crate::args::GenerateArgs;
use crate::dump::Dump;
use crate::engine::{Engine, sampling};
use crate::output::{Out, note};
use crate::outputs::check_beside;
use crate::progress::Progress;
use crate::{interrupt, text, tiers};

/// Prompt tokens between two looks at Ctrl-C.
pub const CHUNK: usize = 128;

/// Completes the prompt.
pub fn run(args: &GenerateArgs) -> Result<()> {
    let mut engine = Engine::load(&args.engine)?;
    let routes = args.dump_routes.as_deref();
    let outputs = [("--usage", args.engine.tiers.usage.as_deref()), ("--dump-routes", routes)];
    check_beside(&engine, &outputs, &[])?;
    let file = engine.model.gguf();
    let (prompt, tokenizer) = match (&args.ids, &args.prompt) {
        (Some(ids), _) => (ids.0.clone(), text::tokenizer_if_any(file, &engine.name)?),
        (None, Some(prompt)) => {
            let tokenizer = text::tokenizer(file, &engine.name, "generate --prompt")?;
            let special = if args.parse_special { ParseSpecial::Yes } else { ParseSpecial::No };
            (tokenizer.encode(prompt, special), Some(tokenizer))
        }
        (None, None) => bail!("there is no prompt: give --prompt or --ids"),
    };
    engine.check(&prompt)?;
    let options = GenerateOptions {
        max_tokens: args.max_tokens as usize,
        sampler: sampling(&args.sampling, args.engine.seed, file, tokenizer.as_ref())?,
        stop_tokens: stop_tokens(tokenizer.as_ref(), file)?,
        chunk: CHUNK,
    };
    let mut out = Out::new();
    let mut completion = Completion::new(tokenizer.as_ref(), if args.json { None } else { Some(&mut out) });
    let dump = Dump::start(routes, &mut engine)?;
    let finish = completion.run(&mut engine, &prompt, &options);
    tiers::save_usage(&engine, args.engine.tiers.usage.as_deref());
    let finish = finish?;
    dump.finish(&mut engine)?;
    let (ids, timings) = (completion.ids.clone(), completion.timings(&engine, prompt.len()));
    let streamed = completion.end()?;
    if finish == Finish::Cancelled {
        note(format_args!("stopped by Ctrl-C after {} of at most {} tokens", ids.len(), options.max_tokens));
    }
    if args.json {
        out.line(json!({
            "prompt_ids": prompt,
            "text": tokenizer.as_ref().map(|t| t.decode(&ids)).unwrap_or_default(),
            "ids": ids,
            "finish": word(finish),
            "timings": timings,
            "tiers": tiers::json(&engine),
        }))?;
    } else if !streamed {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        out.line(ids.join(" "))?;
    }
    out.flush()
}

/// Tokens that end a text: the tokenizer's, or what a file without one names.
fn stop_tokens(tokenizer: Option<&Tokenizer>, file: &gguf::Model) -> Result<Vec<u32>> {
    match tokenizer {
        Some(tokenizer) => Ok(tokenizer.stop_tokens().to_vec()),
        None => Ok(file.u32("tokenizer.ggml.eos_token_id")?.into_iter().collect()),
    }
}

/// `stop` or `length`, and no third word: whoever reads the JSON knows a text that ended from one that was cut. Ctrl-C cuts
/// it, and standard error says so.
fn word(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop(_) => "stop",
        Finish::Length | Finish::Cancelled => "length",
    }
}

/// A running completion: collects ids and times, and streams text where asked to.
struct Completion<'a> {
    ids: Vec<u32>,
    prefill: Option<Duration>,
    total: Duration,
    detokenizer: Option<glm_chat::Detokenizer>,
    out: Option<&'a mut Out>,
}

impl<'a> Completion<'a> {
    fn new(tokenizer: Option<&Tokenizer>, out: Option<&'a mut Out>) -> Self {
        Self {
            ids: Vec::new(),
            prefill: None,
            total: Duration::ZERO,
            detokenizer: tokenizer.map(Tokenizer::detokenizer),
            out,
        }
    }

    fn run(&mut self, engine: &mut Engine, prompt: &[u32], options: &GenerateOptions) -> Result<Finish> {
        let seq = engine.exec.open_sequence()?;
        let mut progress = Progress::new("reading the prompt", "tokens", prompt.len() as u64);
        let mut failed = None;
        let started = Instant::now();
        let finish = generate(&mut engine.exec, seq, prompt, options, &mut |event| {
            match event {
                GenerateEvent::Prefill { done, .. } => progress.at(done as u64),
                GenerateEvent::Token(id) => {
                    if self.prefill.is_none() {
                        progress.finish();
                        self.prefill = Some(started.elapsed());
                    }
                    self.ids.push(id);
                    if let Err(e) = self.show(id) {
                        failed = Some(e);
                        return ControlFlow::Break(());
                    }
                }
            }
            if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.total = started.elapsed();
        engine.exec.close_sequence(seq)?;
        match failed {
            Some(e) => Err(e),
            None => Ok(finish?),
        }
    }

    fn show(&mut self, id: u32) -> Result<()> {
        if let (Some(out), Some(detokenizer)) = (&mut self.out, &mut self.detokenizer) {
            out.text(&detokenizer.push(id))?;
            out.flush()?;
        }
        Ok(())
    }

    /// Ends the streamed text with a newline; whether there was any stream.
    fn end(self) -> Result<bool> {
        let (Some(out), Some(mut detokenizer)) = (self.out, self.detokenizer) else { return Ok(false) };
        out.line(detokenizer.finish())?;
        Ok(true)
    }

    /// The first token's time counts as prefill, the others' as decode.
    fn timings(&self, engine: &Engine, prompt_tokens: usize) -> Json {
        let prefill = self.prefill.unwrap_or(self.total);
        let decode = self.total - prefill;
        let decoded = self.ids.len().saturating_sub(1);
        let rate =
            |n: usize, time: Duration| (n > 0 && !time.is_zero()).then(|| n as f64 / time.as_secs_f64());
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "load_ms": ms(engine.load_time),
            "prefill_tokens": prompt_tokens,
            "prefill_ms": ms(prefill),
            "prefill_tok_s": rate(prompt_tokens, prefill),
            "decode_tokens": decoded,
            "decode_ms": ms(decode),
            "decode_tok_s": rate(decoded, decode),
        })
    }
}
