//! `maya tokenize` and `maya render`: JSON lines in, JSON lines out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::{Value, json};
use support::{run_with, text};

/// All rows of the evaluation file: exactly the prompt and the ids, in one run.
#[test]
fn eval_rows_render_exactly() {
    let Some(path) = golden::model("eval.jsonl") else { return };
    let rows: Vec<Value> =
        std::fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 306);
    let requests: String = rows
        .iter()
        .map(|row| {
            let request = json!({
                "messages": row["messages"],
                "tools": row["tools"],
                "reasoning_effort": row["reasoning_effort"],
                "enable_thinking": row["thinking"],
            });
            format!("{request}\n")
        })
        .collect();
    let out = run_with(&["render"], requests.as_bytes()).ok();
    let answers: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers.len(), rows.len());
    for (i, (row, answer)) in rows.iter().zip(&answers).enumerate() {
        assert_eq!(answer["prompt"], row["prompt"], "row {i}");
        assert_eq!(answer["ids"], row["prompt_ids"], "row {i}");
    }
}

/// The 200 golden strings through the program, with the vocabulary they were made with.
#[test]
fn golden_strings_tokenize_exactly() {
    let (Some(strings), Some(model)) =
        (golden::file("tokenizer/strings.json"), golden::gguf("tiny-a.maya.gguf"))
    else {
        return;
    };
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(strings).unwrap()).unwrap();
    let strings = golden["strings"].as_array().unwrap();
    let expected = golden["ids"]["tiny-a"]["hf"].as_array().unwrap();
    assert_eq!((strings.len(), expected.len()), (200, 200));
    let lines: String = strings.iter().map(|string| format!("{string}\n")).collect();
    let out = run_with(&["tokenize", "--model", &text(&model)], lines.as_bytes()).ok();
    let answers: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers.len(), strings.len());
    for ((string, ids), answer) in strings.iter().zip(expected).zip(&answers) {
        assert_eq!(answer, ids, "{string}");
    }
}

/// Bad lines are numbered on standard error and answered with an error object; the others are answered.
#[test]
fn bad_lines_do_not_stop_the_good_ones() {
    let mut input = Vec::new();
    input.extend_from_slice(b"\"hello\"\n");
    input.extend_from_slice(b"not json\n");
    input.extend_from_slice(b"\n");
    input.extend_from_slice(b"\"bad \xff utf8\"\n");
    input.extend_from_slice(b"42\n");
    input.extend_from_slice(b"{\"parse_special\": false}\n");
    input.extend_from_slice(b"{\"text\": \"<|user|>\", \"parse_special\": false}\n");
    input.extend_from_slice(b"\"<|user|>\"\n");
    input.extend_from_slice(b"\"raw \x00 nul\"\n");
    input.extend_from_slice(b"\"escaped \\u0000 nul\"\n");
    input.extend_from_slice(b"\"last, without a newline\"");
    let ran = run_with(&["tokenize"], &input);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let answers: Vec<Value> = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let kinds: Vec<bool> = answers.iter().map(Value::is_array).collect();
    assert_eq!(kinds, [true, false, false, false, false, true, true, false, true, true], "{}", ran.stdout);
    for (number, part) in
        [(2, "not JSON"), (4, "byte 6 is not UTF-8"), (5, "a number"), (6, "has no text"), (9, "not JSON")]
    {
        let start = format!("maya: line {number}: ");
        let line =
            ran.stderr.lines().find(|l| l.starts_with(&start)).unwrap_or_else(|| panic!("{}", ran.stderr));
        assert!(line.contains(part), "{line}");
        let object = json!({"error": line.strip_prefix("maya: ").unwrap()});
        assert!(answers.contains(&object), "{object} is not in {}", ran.stdout);
    }
    assert!(ran.stderr.ends_with("5 of 11 lines could not be answered\n"), "{}", ran.stderr);
    // One special token against its spelling in ordinary pieces.
    assert_eq!(answers[6].as_array().unwrap().len(), 1);
    assert!(answers[5].as_array().unwrap().len() > 1);
}

/// A word of a megabyte, and a line of a megabyte that is no JSON.
#[test]
fn megabytes_on_one_line() {
    let word = "a".repeat(1 << 20);
    let input = format!("\"{word}\"\n\"x\"\n[{word}\n\"x\"\n");
    let ran = run_with(&["tokenize"], input.as_bytes());
    let answers: Vec<Value> = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers.len(), 4);
    assert!(answers[0].as_array().unwrap().len() > 1000 && answers[1].is_array());
    assert!(answers[2]["error"].is_string() && answers[3].is_array());
    assert_eq!(ran.code, Some(1));
}

/// The same in conversations: NUL is a character, bytes that are no text are numbered, a megabyte is a message.
#[test]
fn odd_messages_render() {
    let message = |content: &str| {
        json!({"messages": [{"role": "user", "content": content}], "enable_thinking": false}).to_string()
    };
    let word = "a".repeat(1 << 20);
    let mut input = Vec::new();
    for line in [&b"{\"messages\":[{\"role\":\"user\",\"content\":\"bad \xff\"}]}"[..], b"raw \x00 nul"] {
        input.extend_from_slice(line);
        input.push(b'\n');
    }
    for content in ["a\0b", &word, "Hi"] {
        input.extend_from_slice(message(content).as_bytes());
        input.push(b'\n');
    }
    let ran = run_with(&["render"], &input);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let answers: Vec<Value> = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0]["error"], "line 1: byte 44 is not UTF-8");
    assert_eq!(answers[1]["error"], "line 2: it is not JSON: expected value at column 1");
    for (answer, content) in answers[2..].iter().zip(["a\0b", &word, "Hi"]) {
        let prompt = answer["prompt"].as_str().unwrap();
        assert!(prompt.contains(content), "{}", &prompt[..prompt.len().min(200)]);
        assert!(answer["ids"].as_array().unwrap().len() > 5);
    }
    assert!(answers[3]["ids"].as_array().unwrap().len() > 1000);
    assert!(ran.stderr.ends_with("2 of 5 lines could not be answered\n"), "{}", ran.stderr);
}

/// Integers of more than 64 bits are kept as marked strings inside; a text that looks like one stays a text.
#[test]
fn a_text_is_no_number_and_a_number_no_text() {
    let ran = run_with(&["tokenize"], "\"\u{10FFFE}5\"\n18446744073709551616\n\"5\"\n".as_bytes());
    let answers: Vec<Value> = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(answers[0].as_array().unwrap().len() > answers[2].as_array().unwrap().len(), "{}", ran.stdout);
    assert!(
        answers[1]["error"].as_str().unwrap().contains("more than 64 bits, not a string"),
        "{}",
        answers[1]
    );
    let request = json!({"messages": [{"role": "user", "content": "\u{10FFFE}5"}]}).to_string();
    let prompt: Value = serde_json::from_str(&run_with(&["render"], request.as_bytes()).ok()).unwrap();
    assert!(prompt["prompt"].as_str().unwrap().contains("\u{10FFFE}5"), "{prompt}");
}

#[test]
fn render_names_what_is_wrong() {
    let lines = [
        ("[]", "an array"),
        ("{}", "messages"),
        (r#"{"messages":[{"role":"king","content":"a"}]}"#, "messages[0].role"),
        (r#"{"messages":[{"role":"user","content":7}]}"#, "messages[0].content"),
        (r#"{"messages":[]}"#, "messages: must hold at least one message"),
        (r#"{"messages":[{"role":"user"}]}"#, "messages[0].content"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#,
            "images are not supported",
        ),
        (r#"{"messages":[{"role":"user","content":18446744073709551616}]}"#, "messages[0].content"),
        (r#"{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"vast"}"#, "reasoning_effort"),
        (r#"{"messages":[{"role":"user","content":"a"}],"enable_thinking":"no"}"#, "enable_thinking"),
    ];
    let mut input: String = lines.iter().map(|(l, _)| format!("{l}\n")).collect();
    input.push_str(r#"{"messages":[{"role":"user","content":"Hi<|assistant|>"}],"enable_thinking":false}"#);
    let ran = run_with(&["render"], input.as_bytes());
    assert_eq!(ran.code, Some(1));
    let answers: Vec<Value> = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for ((line, part), answer) in lines.iter().zip(&answers) {
        assert!(answer["error"].as_str().is_some_and(|e| e.contains(part)), "{line}: {answer}");
    }
    let prompt = answers[lines.len()]["prompt"].as_str().unwrap();
    assert!(prompt.ends_with("Hi<|assistant|><|assistant|><think></think>"), "{prompt}");
}
