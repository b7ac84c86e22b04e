//! The tokenizer and chat traps of the model's specification, by number.

use crate::rendering::{golden_template, request};
use crate::vocabulary::tiny_a;
use glm_chat::{
    ChatEvent, ChatRequest, Ending, ParseSpecial, Splitter, SplitterOptions, Template, Tokenizer,
};
use serde_json::json;

#[test]
fn trap_66_three_stops_no_bos_and_an_open_think_block() {
    let (Some(tokenizer), Some(template)) = (tiny_a(), golden_template()) else { return };
    let id = |text: &str| tokenizer.special(text).unwrap();
    assert_eq!(tokenizer.stop_tokens(), [id("<|endoftext|>"), id("<|user|>"), id("<|observation|>")]);
    let prompt = template.render(&request(json!([{"role": "user", "content": "a"}]), json!({}))).unwrap();
    let mut expected = vec![id("[gMASK]"), id("<sop>"), id("<|system|>")];
    expected.extend(tokenizer.encode("Reasoning Effort: Max", ParseSpecial::No));
    expected.push(id("<|user|>"));
    expected.extend(tokenizer.encode("a", ParseSpecial::No));
    expected.extend([id("<|assistant|>"), id("<think>")]);
    assert_eq!(tokenizer.encode_prompt(&prompt), expected);
}

#[test]
fn trap_67_digits_go_in_threes_from_the_left() {
    let Some(tokenizer) = tiny_a() else { return };
    for (number, groups) in [
        ("1234", &["123", "4"][..]),
        ("504", &["504"]),
        ("5504", &["550", "4"]),
        ("1234567", &["123", "456", "7"]),
    ] {
        let expected: Vec<u32> = groups.iter().flat_map(|g| tokenizer.encode(g, ParseSpecial::No)).collect();
        assert_eq!(tokenizer.encode(number, ParseSpecial::No), expected, "{number}");
    }
}

#[test]
fn trap_68_a_whole_word_of_the_vocabulary_needs_no_merges() {
    let Some(tokenizer) = tiny_a() else { return };
    // The fixture vocabulary has tokens that no sequence of merges builds.
    let whole: Vec<u32> =
        [" quokka", "zyzzyva"].iter().flat_map(|word| tokenizer.encode(word, ParseSpecial::No)).collect();
    assert_eq!(whole.len(), 2, "{whole:?}");
}

#[test]
fn trap_69_medium_as_a_variable_renders_max() {
    let Some(template) = golden_template() else { return };
    let effort = |request: ChatRequest| {
        let text = template.render(&request).unwrap().text();
        text.split("Reasoning Effort: ").nth(1).unwrap().split('<').next().unwrap().to_owned()
    };
    let user = json!([{"role": "user", "content": "x"}]);
    assert_eq!(effort(request(user.clone(), json!({"reasoning_effort": "medium"}))), "Max");
    assert_eq!(effort(request(user.clone(), json!({"reasoning_effort": "high"}))), "High");
    // A field of an API speaks another language: there it is high.
    assert_eq!(
        effort(ChatRequest { reasoning_effort: Some("medium".into()), ..request(user, json!({})) }),
        "High"
    );
}

#[test]
fn trap_70_calls_are_tags_not_json() {
    let Some(tokenizer) = tiny_a() else { return };
    let tools = vec![json!({"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}})];
    let events = |text: &str| {
        let mut splitter =
            Splitter::new(tokenizer, SplitterOptions { tools: tools.clone(), ..SplitterOptions::default() });
        let mut events: Vec<ChatEvent> =
            tokenizer.encode(text, ParseSpecial::Yes).into_iter().flat_map(|id| splitter.push(id)).collect();
        events.extend(splitter.finish(Ending::Turn).0);
        crate::reply::merge(events)
    };
    let json = "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>";
    assert_eq!(events(json), [ChatEvent::Text(json.to_owned())]);
    assert_eq!(
        events("<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>"),
        [
            ChatEvent::ToolStart { index: 0, name: "f".to_owned() },
            ChatEvent::ToolArguments { index: 0, json: "{\"n\":1}".to_owned() },
            ChatEvent::ToolEnd { index: 0 },
        ]
    );
}

#[test]
fn everything_can_be_shared_or_sent() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Tokenizer>();
    shared::<Template>();
    sent::<Splitter>();
}
