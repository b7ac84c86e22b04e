//! Level `text`: token ids of strings, renderings of conversations, prompts of the evaluation rows.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use glm_chat::{ChatRequest, ParseSpecial, Template, Tokenizer, parse_json};
use serde_json::{Map, Value, json};

use super::golden::Fixtures;
use super::table::Table;
use crate::text;

const LEVEL: &str = "text";
const DEMO: &str = "models/maya-nano.gguf";
const ROWS: &str = "models/eval.jsonl";
/// The conversation whose golden rendering is of a template that prints Python's `None` for null content; a null content
/// is an empty one.
const NULL_CONTENT: &str = "tool_then_answer_then_user";

/// Compares strings, conversations and evaluation rows.
pub fn run(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    strings(fixtures, table)?;
    conversations(fixtures, table)?;
    evaluation(fixtures, table)
}

/// Counts answers that differ, and remembers the first.
#[derive(Debug, Default)]
struct Differing {
    compared: usize,
    count: usize,
    first: Option<String>,
}

impl Differing {
    fn add(&mut self, same: bool, name: impl FnOnce() -> String) {
        self.compared += 1;
        if !same {
            self.count += 1;
            self.first.get_or_insert_with(name);
        }
    }

    fn report(self, table: &mut Table, subject: &str, what: &str) {
        let note = match self.first {
            Some(first) => format!("of {}; first {first}", self.compared),
            None => format!("of {}", self.compared),
        };
        // Nothing compared is no success.
        let worst = if self.compared == 0 { f64::NAN } else { self.count as f64 };
        table.at_most(LEVEL, subject, what, worst, 0.0, note);
    }
}

fn open(fixtures: &Fixtures, file: &str, table: &mut Table) -> Result<Option<gguf::Model>> {
    let Some(path) = fixtures.path(file) else {
        table.skipped(LEVEL, file, "it is not here");
        return Ok(None);
    };
    Ok(Some(gguf::Model::open(&path)?))
}

fn strings(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    let golden = fixtures.json("tokenizer/strings.json")?.context("tokenizer/strings.json is not here")?;
    let strings: Vec<String> = serde_json::from_value(golden["strings"].clone())?;
    // One file of each vocabulary that the fixtures have ids for.
    for (name, file) in [
        ("tiny-a", "tiny-a.maya.gguf"),
        ("tiny-b", "tiny-b.maya-00001-of-00003.gguf"),
        ("tiny-vision", "tiny-vision.f32.gguf"),
    ] {
        let ids: Vec<Vec<u32>> = serde_json::from_value(golden["ids"][name]["hf"].clone())?;
        let Some(model) = open(fixtures, file, table)? else { continue };
        let tokenizer = text::tokenizer(&model, name, "parity")?;
        let (mut encoded, mut decoded) = (Differing::default(), Differing::default());
        for (string, ids) in strings.iter().zip(&ids) {
            encoded.add(tokenizer.encode(string, ParseSpecial::Yes) == *ids, || format!("{string:?}"));
            decoded.add(tokenizer.decode(ids) == *string, || format!("{string:?}"));
        }
        encoded.report(table, name, "strings with other ids");
        decoded.report(table, name, "ids with other strings");
    }
    Ok(())
}

fn conversations(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    let golden = fixtures.json("chat/conversations.json")?.context("chat/conversations.json is not here")?;
    let file = "tiny-a.maya.gguf";
    let Some(model) = open(fixtures, file, table)? else { return Ok(()) };
    let tokenizer = text::tokenizer(&model, file, "parity")?;
    let template = text::template(&model, file, &tokenizer, "parity")?;
    for conversation in golden.as_array().into_iter().flatten() {
        let name = conversation["name"].as_str().unwrap_or_default();
        let rendered = render(&template, &request(conversation)?)?;
        let expected = conversation["rendered"].as_str().unwrap_or_default();
        let expected = match name {
            NULL_CONTENT => expected.replacen("</think>None<tool_call>", "</think><tool_call>", 1),
            _ => expected.to_owned(),
        };
        let same = rendered == expected && !expected.is_empty();
        let note = if same { String::new() } else { parting(&rendered, &expected) };
        table.holds(LEVEL, "conversation", name, same, note);
    }
    Ok(())
}

/// The request of a golden conversation: its keyword arguments are variables of the template, except those that have a
/// field of their own.
fn request(conversation: &Value) -> Result<Map<String, Value>> {
    let Value::Object(mut variables) = conversation["kwargs"].clone() else { bail!("kwargs is no object") };
    let mut body = Map::new();
    body.insert("messages".to_owned(), conversation["messages"].clone());
    for field in ["tools", "add_generation_prompt", "reasoning_effort"] {
        if let Some(value) = variables.remove(field) {
            body.insert(field.to_owned(), value);
        }
    }
    body.insert("chat_template_kwargs".to_owned(), Value::Object(variables));
    Ok(body)
}

fn render(template: &Template, body: &Map<String, Value>) -> Result<String> {
    Ok(template.render(&ChatRequest::from_body(body)?)?.text())
}

/// Where two texts part.
fn parting(found: &str, expected: &str) -> String {
    let same = found.chars().zip(expected.chars()).take_while(|(f, e)| f == e).count();
    let rest = |text: &str| text.chars().skip(same).take(30).collect::<String>();
    format!("after {same} characters {:?} where {:?} is golden", rest(found), rest(expected))
}

fn evaluation(fixtures: &Fixtures, table: &mut Table) -> Result<()> {
    let Some(path) = fixtures.path(ROWS) else {
        table.skipped(LEVEL, ROWS, "it is not here");
        return Ok(());
    };
    let Some(model) = open(fixtures, DEMO, table)? else { return Ok(()) };
    let tokenizer = text::tokenizer(&model, DEMO, "parity")?;
    let template = text::template(&model, DEMO, &tokenizer, "parity")?;
    let rows =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (mut prompts, mut ids) = (Differing::default(), Differing::default());
    for (number, line) in rows.lines().enumerate() {
        let row = parse_json(line).with_context(|| format!("{ROWS} line {}", number + 1))?;
        let [found, found_ids] = answer(&template, &tokenizer, &row)?;
        prompts.add(found == row["prompt"], || format!("row {number}"));
        ids.add(found_ids == row["prompt_ids"], || format!("row {number}"));
    }
    prompts.report(table, "eval.jsonl", "other prompts");
    ids.report(table, "eval.jsonl", "other prompt ids");
    Ok(())
}

/// Prompt and ids of an evaluation row.
fn answer(template: &Template, tokenizer: &Tokenizer, row: &Value) -> Result<[Value; 2]> {
    let fields = ["messages", "tools", "reasoning_effort"];
    let mut body: BTreeMap<&str, Value> = fields.into_iter().map(|f| (f, row[f].clone())).collect();
    body.insert("enable_thinking", row["thinking"].clone());
    let body: Map<String, Value> = body.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let prompt = template.render(&ChatRequest::from_body(&body)?)?;
    Ok([json!(prompt.text()), json!(tokenizer.encode_prompt(&prompt))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_and_nothing_is_no_success() {
        let mut table = Table::default();
        let mut differing = Differing::default();
        differing.add(true, || "a".to_owned());
        differing.add(false, || "b".to_owned());
        differing.add(false, || "c".to_owned());
        assert_eq!((differing.count, differing.first.as_deref()), (2, Some("b")));
        differing.report(&mut table, "s", "w");
        Differing::default().report(&mut table, "s", "w");
        assert_eq!(table.json()["missed"], 2);
    }

    #[test]
    fn the_place_where_texts_part_is_told() {
        assert!(parting("abcd", "abXd").starts_with("after 2 characters \"cd\""));
    }
}
