//! Vocabularies for tests.

use glm_chat::{Tokenizer, VocabSource};
use serde_json::Value;
use std::sync::OnceLock;

/// The vocabulary of a `tokenizer.json` among the fixtures.
pub fn source(name: &str) -> Option<VocabSource> {
    let path = golden::file(&format!("tokenizer/{name}.tokenizer.json"))?;
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut placed: Vec<(usize, String, i32)> = json["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap() as usize, token.clone(), 1))
        .collect();
    for added in json["added_tokens"].as_array().unwrap() {
        let kind = if added["special"] == true { 3 } else { 4 };
        placed.push((
            added["id"].as_u64().unwrap() as usize,
            added["content"].as_str().unwrap().to_owned(),
            kind,
        ));
    }
    let size = 1 + placed.iter().map(|(id, _, _)| *id).max().unwrap();
    let mut tokens: Vec<String> = (0..size).map(|id| format!("[PAD{id}]")).collect();
    let mut token_types = vec![5; size];
    for (id, token, kind) in placed {
        tokens[id] = token;
        token_types[id] = kind;
    }
    let merges = json["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|merge| match merge {
            Value::String(text) => text.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        })
        .collect();
    let id = |text: &str| tokens.iter().position(|t| t == text).map(|id| id as u32);
    Some(VocabSource {
        model: "gpt2".to_owned(),
        pre: "glm4".to_owned(),
        eos: id("<|endoftext|>"),
        eot: id("<|user|>"),
        eom: id("<|observation|>"),
        tokens,
        token_types,
        merges,
    })
}

/// The tokenizer of the model tiny-a.
pub fn tiny_a() -> Option<&'static Tokenizer> {
    static TOKENIZER: OnceLock<Option<Tokenizer>> = OnceLock::new();
    TOKENIZER.get_or_init(|| Some(Tokenizer::new(source("tiny-a")?).unwrap())).as_ref()
}
