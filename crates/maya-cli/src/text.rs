//! The text side of a file: its tokenizer and its chat template, taken out of the metadata.

use anyhow::{Context, Result, bail};
use gguf::{Array, Model, Value};
use glm_chat::{Template, Tokenizer, VocabSource};

/// The tokenizer of a file.
///
/// # Errors
/// The file has none, and then what still works with it; or it is damaged or of another kind.
pub fn tokenizer(model: &Model, name: &str, command: &str) -> Result<Tokenizer> {
    let Some(source) = vocabulary(model)? else {
        bail!(
            "{name} has no tokenizer, so maya {command} cannot turn text into tokens; generate --ids, logits, bench and \
             inspect work with such a file"
        );
    };
    Tokenizer::new(source).with_context(|| format!("the tokenizer of {name} cannot be used"))
}

/// The tokenizer, or `None` where the file has none: for commands that can do without.
///
/// # Errors
/// It has one that is damaged or of another kind.
pub fn tokenizer_if_any(model: &Model, name: &str) -> Result<Option<Tokenizer>> {
    vocabulary(model)?
        .map(|source| {
            Tokenizer::new(source).with_context(|| format!("the tokenizer of {name} cannot be used"))
        })
        .transpose()
}

/// The chat template of a file, compiled.
///
/// # Errors
/// The file has none, or it does not compile.
pub fn template(model: &Model, name: &str, tokenizer: &Tokenizer, command: &str) -> Result<Template> {
    let Some(source) = model.str("tokenizer.chat_template")? else {
        bail!(
            "{name} has no chat template (the key tokenizer.chat_template), so maya {command} cannot put messages into a \
             prompt; generate --prompt works with it"
        );
    };
    Template::new(source, &tokenizer.special_texts())
        .with_context(|| format!("the chat template of {name} cannot be used"))
}

/// The vocabulary as plain data; `None` where the file has no tokens or says that its tokenizer is "none".
fn vocabulary(model: &Model) -> Result<Option<VocabSource>> {
    let text = |key: &str| -> Result<String> { Ok(model.str(key)?.unwrap_or_default().to_owned()) };
    let kind = text("tokenizer.ggml.model")?;
    let Some(tokens) = model.strs("tokenizer.ggml.tokens")? else { return Ok(None) };
    if kind.is_empty() || kind == "none" || kind == "no_vocab" {
        return Ok(None);
    }
    let owned = |list: &[Box<str>]| list.iter().map(|s| s.to_string()).collect::<Vec<String>>();
    let token_types = match model.get("tokenizer.ggml.token_type") {
        Some(Value::Array(Array::I32(list))) => list.clone(),
        _ => model
            .u32s("tokenizer.ggml.token_type")?
            .unwrap_or_default()
            .into_iter()
            .map(|n| i32::try_from(n).context("tokenizer.ggml.token_type has a type that no file uses"))
            .collect::<Result<Vec<i32>>>()?,
    };
    Ok(Some(VocabSource {
        model: kind,
        pre: text("tokenizer.ggml.pre")?,
        tokens: owned(tokens),
        token_types,
        merges: model.strs("tokenizer.ggml.merges")?.map(owned).unwrap_or_default(),
        eos: model.u32("tokenizer.ggml.eos_token_id")?,
        eot: model.u32("tokenizer.ggml.eot_token_id")?,
        eom: model.u32("tokenizer.ggml.eom_token_id")?,
    }))
}
