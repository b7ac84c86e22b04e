//! `maya tokenize` and `maya render`: JSON lines in, JSON lines out, one answer a line.

use std::io::{self, BufRead};

use anyhow::{Context, Result, anyhow, bail};
use glm_chat::{ParseSpecial, parse_json, plain_text};
use serde_json::{Value as Json, json};

use crate::args::TextArgs;
use crate::output::{Out, failure};
use crate::source::Source;
use crate::text;

/// Strings to id arrays.
pub fn tokenize(args: &TextArgs) -> Result<()> {
    let source = Source::open(args.model.model.as_deref())?;
    let tokenizer = text::tokenizer(&source.model, &source.name, "tokenize")?;
    each_line(|value| {
        let (string, special) = match value {
            Json::String(string) => (string, true),
            Json::Object(mut fields) => {
                let special = match fields.get("parse_special") {
                    None => true,
                    Some(Json::Bool(yes)) => *yes,
                    Some(other) => bail!("parse_special is {}, not true or false", kind(other)),
                };
                match fields.remove("text") {
                    Some(Json::String(string)) => (string, special),
                    Some(other) => bail!("text is {}, not a string", kind(&other)),
                    None => bail!("the object has no text"),
                }
            }
            other => bail!("it is {}; a string or an object with text is expected", kind(&other)),
        };
        let Some(string) = plain_text(&string) else {
            bail!("it is a number of more than 64 bits, not a string")
        };
        let ids = tokenizer.encode(string, if special { ParseSpecial::Yes } else { ParseSpecial::No });
        Ok(json!(ids))
    })
}

/// Chat requests to prompts.
pub fn render(args: &TextArgs) -> Result<()> {
    let source = Source::open(args.model.model.as_deref())?;
    let tokenizer = text::tokenizer(&source.model, &source.name, "render")?;
    let template = text::template(&source.model, &source.name, &tokenizer, "render")?;
    each_line(|value| {
        let Json::Object(body) = value else {
            bail!("it is {}; a chat request is an object with messages", kind(&value))
        };
        let prompt = template.render(&server::chat_request(&Json::Object(body))?)?;
        let ids = tokenizer.encode_prompt(&prompt);
        Ok(json!({"prompt": prompt.as_str(), "ids": ids}))
    })
}

/// Answers every line of standard input. A line that cannot be answered gives a numbered sentence on standard error and
/// an object with `error`; the following lines are still answered, and the command fails at the end.
fn each_line(mut answer: impl FnMut(Json) -> Result<Json>) -> Result<()> {
    let mut input = io::stdin().lock();
    let mut out = Out::new();
    let mut line = Vec::new();
    let (mut number, mut failed) = (0u64, 0u64);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).context("standard input cannot be read")? == 0 {
            break;
        }
        number += 1;
        let answered = match std::str::from_utf8(&line) {
            Err(e) => Err(anyhow!("byte {} is not UTF-8", e.valid_up_to() + 1)),
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => parse_json(text.trim())
                .map_err(|e| anyhow!("it is not JSON: {}", one_line(&e)))
                .and_then(&mut answer),
        };
        match answered {
            Ok(value) => out.line(value)?,
            Err(e) => {
                failed += 1;
                let sentence = format!("line {number}: {e:#}");
                out.line(json!({"error": sentence}))?;
                failure(sentence);
            }
        }
    }
    out.flush()?;
    if failed > 0 {
        bail!("{failed} of {number} lines could not be answered");
    }
    Ok(())
}

/// A JSON error without the number of the line, which is always 1 here.
fn one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}
