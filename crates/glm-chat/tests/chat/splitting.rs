//! The splitter: what models write and what clients must get.

use crate::reply::{Reply, merge};
use crate::vocabulary::tiny_a;
use glm_chat::ChatEvent::{self, Reasoning, Text, ToolArguments, ToolEnd, ToolStart};
use glm_chat::{Ending, FinishReason, ParseSpecial, Splitter, SplitterOptions, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> Vec<Value> {
    vec![
        json!({"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}),
        json!({"type": "function", "function": {"name": "shell", "parameters": {"properties": {"command": {"type": "string"}}}}}),
        json!({"type": "function", "function": {"name": "search", "parameters": {"properties": {
            "query": {"type": "string"}, "max_results": {"type": "number"}, "tags": {"type": "array"},
            "deep": {"type": "boolean"}, "opts": {"type": "object"}, "note": {"type": ["string", "null"]}}}}}),
        json!({"name": "edit", "parameters": {"properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}),
        json!({"name": "free"}),
    ]
}

/// An answer after a prompt that closed the thinking, with tools.
fn answer() -> SplitterOptions {
    SplitterOptions { tools: tools(), ..SplitterOptions::default() }
}

/// An answer that starts as reasoning, with tools.
fn thinking() -> SplitterOptions {
    SplitterOptions { thinking_open: true, ..answer() }
}

fn with_stop(options: SplitterOptions, stop: &[&str]) -> SplitterOptions {
    SplitterOptions { stop: stop.iter().map(|s| (*s).to_owned()).collect(), ..options }
}

fn run(
    tokenizer: &Tokenizer,
    options: &SplitterOptions,
    ids: &[u32],
    ending: Ending,
) -> (Vec<ChatEvent>, FinishReason) {
    let mut splitter = Splitter::new(tokenizer, options.clone());
    let mut events = Vec::new();
    for &id in ids {
        events.extend(splitter.push(id));
        if splitter.stopped() {
            break;
        }
    }
    let (rest, reason) = splitter.finish(ending);
    events.extend(rest);
    assert_eq!(splitter.finish(ending).0, []);
    for event in &events {
        match event {
            Reasoning(text) | Text(text) | ToolArguments { json: text, .. } => {
                assert!(!text.is_empty(), "{events:?}")
            }
            _ => {}
        }
    }
    (merge(events), reason)
}

/// The ids of `text` in several cuts: as the tokenizer gives them, special tokens kept but everything else byte by byte,
/// and in runs of a few characters.
fn cuts(tokenizer: &Tokenizer, text: &str) -> Vec<Vec<u32>> {
    let whole = tokenizer.encode(text, ParseSpecial::Yes);
    let mut cuts = vec![whole.clone()];
    for size in [1, 2, 3, 5] {
        let mut cut = Vec::new();
        let mut run = String::new();
        let flush = |run: &mut String, cut: &mut Vec<u32>| {
            for piece in run.chars().collect::<Vec<_>>().chunks(size) {
                let piece: String = piece.iter().collect();
                cut.extend(tokenizer.encode(&piece, ParseSpecial::No));
            }
            run.clear();
        };
        let mut decoder = tokenizer.detokenizer();
        for &id in &whole {
            if tokenizer.is_special(id) {
                flush(&mut run, &mut cut);
                cut.push(id);
            } else {
                run.push_str(&decoder.push(id));
            }
        }
        flush(&mut run, &mut cut);
        cuts.push(cut);
    }
    cuts
}

/// Runs `text` in every cut, checks that they agree, and returns the merged events.
fn split(options: &SplitterOptions, text: &str, ending: Ending) -> Option<(Vec<ChatEvent>, FinishReason)> {
    let tokenizer = tiny_a()?;
    let mut results = cuts(tokenizer, text).into_iter().map(|ids| run(tokenizer, options, &ids, ending));
    let first = results.next().unwrap();
    results.for_each(|other| assert_eq!(other, first, "{text:?}"));
    Some(first)
}

fn call(index: usize, name: &str, arguments: &str) -> [ChatEvent; 3] {
    [
        ToolStart { index, name: name.to_owned() },
        ToolArguments { index, json: arguments.to_owned() },
        ToolEnd { index },
    ]
}

/// Checks the events of `text` at the end of a turn.
fn check(options: &SplitterOptions, text: &str, expected: &[ChatEvent]) {
    let Some((events, _)) = split(options, text, Ending::Turn) else { return };
    assert_eq!(events, expected, "{text:?}");
}

fn reasoning(text: &str) -> ChatEvent {
    Reasoning(text.to_owned())
}

fn text(text: &str) -> ChatEvent {
    Text(text.to_owned())
}

#[test]
fn reasoning_then_text() {
    check(&thinking(), "I think.\n</think>It is.\n", &[reasoning("I think.\n"), text("It is.\n")]);
    check(&answer(), "It is.", &[text("It is.")]);
    check(&thinking(), "</think>It is.", &[text("It is.")]);
    // A second opening tag, an opening tag of its own, a closing tag without need.
    check(&thinking(), "<think>I think.</think>It is.", &[reasoning("I think."), text("It is.")]);
    check(&answer(), "\n<think>I think.</think>It is.", &[reasoning("I think."), text("It is.")]);
    check(&answer(), "</think>It is.", &[text("It is.")]);
    check(&answer(), "It is <think> a </think> tag.", &[text("It is <think> a </think> tag.")]);
}

#[test]
fn p1_a_call_without_arguments() {
    for options in [answer(), thinking()] {
        let before = if options.thinking_open { "ok</think>" } else { "" };
        let mut expected = if options.thinking_open { vec![reasoning("ok")] } else { vec![] };
        expected.extend(call(0, "get_time", "{}"));
        check(&options, &format!("{before}<tool_call>get_time</tool_call>"), &expected);
        check(&options, &format!("{before}\n<tool_call>get_time\n</tool_call>\n"), &expected);
        // The turn ends before the closing tag.
        check(&options, &format!("{before}<tool_call>get_time"), &expected);
        check(&options, &format!("{before}<tool_call>get_time<|observation|>"), &expected);
    }
    // Cut by the limit: the name may not be whole.
    let Some(cut) = split(&answer(), "<tool_call>get_time", Ending::Cut) else { return };
    assert_eq!(cut, (vec![text("<tool_call>get_time")], FinishReason::Length));
}

#[test]
fn p2_arguments_have_the_declared_types() {
    let wire = "<tool_call>search<arg_key>query</arg_key><arg_value>001</arg_value><arg_key>max_results</arg_key><arg_value>10</arg_value>\
        <arg_key>tags</arg_key><arg_value>[]</arg_value><arg_key>deep</arg_key><arg_value>true</arg_value><arg_key>opts</arg_key><arg_value>{\"a\": null}</arg_value>\
        <arg_key>note</arg_key><arg_value>null</arg_value><arg_key>other</arg_key><arg_value>x \"y\"</arg_value></tool_call>";
    let arguments = r#"{"query":"001","max_results":10,"tags":[],"deep":true,"opts":{"a": null},"note":null,"other":"x \"y\""}"#;
    check(&answer(), wire, &call(0, "search", arguments));
    check(
        &answer(),
        "<tool_call>free<arg_key>n</arg_key><arg_value>3</arg_value></tool_call>",
        &call(0, "free", "{\"n\":3}"),
    );
}

#[test]
fn several_calls_and_text_around() {
    let wire = "Let me look.\n<tool_call>get_time</tool_call>\n<tool_call>shell<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>Done";
    let mut expected = vec![text("Let me look.\n")];
    expected.extend(call(0, "get_time", "{}"));
    expected.extend(call(1, "shell", "{\"command\":\"ls\"}"));
    expected.push(text("Done"));
    check(&answer(), wire, &expected);
    let Some((_, reason)) = split(&answer(), wire, Ending::Turn) else { return };
    assert_eq!(reason, FinishReason::ToolCalls);
    assert_eq!(split(&answer(), wire, Ending::Cut).unwrap().1, FinishReason::Length);
}

#[test]
fn a_value_may_quote_any_tag() {
    let value = "a < b </arg_value x <arg_key>y</arg_key> </tool_call> z <arg_value>{\"q\": 1}</arg_value> or <tool_call> \\ \"é\"\n😀";
    let wire = format!("<tool_call>edit<arg_key>text</arg_key><arg_value>{value}</arg_value>\n</tool_call>");
    let arguments = format!("{{\"text\":{}}}", Value::from(value));
    check(&answer(), &wire, &call(0, "edit", &arguments));
}

#[test]
fn p5_one_call_with_two_strings_in_all_cuts() {
    let Some(tokenizer) = tiny_a() else { return };
    let wire = "<tool_call>edit<arg_key>path</arg_key><arg_value>a/é.txt</arg_value><arg_key>text</arg_key><arg_value>x\n\"y\" </arg_value></tool_call>";
    let ids = tokenizer.encode(wire, ParseSpecial::Yes);
    let expected = call(0, "edit", r#"{"path":"a/é.txt","text":"x\n\"y\" "}"#).to_vec();
    for size in 1..=8 {
        // A step of several tokens is several pushes whose events are handed on together.
        let mut splitter = Splitter::new(tokenizer, answer());
        let mut steps = Vec::new();
        for step in ids.chunks(size) {
            steps.push(merge(step.iter().flat_map(|&id| splitter.push(id)).collect::<Vec<_>>()));
        }
        steps.push(splitter.finish(Ending::Turn).0);
        assert_eq!(merge(steps.concat()), expected);
    }
    check(&answer(), wire, &expected);
}

#[test]
fn declared_strings_stream_as_they_come() {
    let Some(tokenizer) = tiny_a() else { return };
    let mut splitter = Splitter::new(tokenizer, answer());
    let mut json = String::new();
    for id in tokenizer
        .encode("<tool_call>shell<arg_key>command</arg_key><arg_value>echo \"hi\"", ParseSpecial::Yes)
    {
        for event in splitter.push(id) {
            if let ToolArguments { json: piece, .. } = event {
                json.push_str(&piece);
            }
        }
    }
    assert_eq!(json, r#"{"command":"echo \"hi\""#);
    // Cut here, the arguments stay as sent and the call is not complete.
    let (rest, reason) = splitter.finish(Ending::Cut);
    assert_eq!((rest, reason), (vec![], FinishReason::Length));
}

#[test]
fn p6_broken_calls_are_repaired_or_given_back() {
    let shell = call(0, "shell", "{\"command\":\"echo hi\"}");
    for wire in [
        "<tool_call>shellcommand</arg_key><arg_value>echo hi</arg_value></tool_call>",
        "<tool_call>shell\ncommand</arg_key><arg_value>echo hi</arg_value></tool_call>",
        "<tool_call>shellcommand<arg_value>echo hi</arg_value></tool_call>",
        "<tool_call>shell<arg_value>echo hi</arg_value></tool_call>",
        "<tool_call>shell<arg_key>command<arg_value>echo hi</arg_value></tool_call>",
        "<tool_call>shell<arg_key>command</arg_key>echo hi</arg_value></tool_call>",
        "<tool_call>shell<arg_key> command </arg_key>\n<arg_value>echo hi</arg_value>\n</tool_call>",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>echo hi</tool_call>",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>echo hi</arg_value>",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>echo hi",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>echo hi</arg_value><arg_key>more</tool_call>",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>echo hi</arg_value><arg_key>command</arg_key><arg_value>again</arg_value></tool_call>",
    ] {
        check(&answer(), wire, &shell);
    }
    let edit = call(0, "edit", r#"{"path":"a","text":"b"}"#);
    for wire in [
        "<tool_call>edit<arg_key>path</arg_key><arg_value>a</arg_value>text</arg_key><arg_value>b</arg_value></tool_call>",
        "<tool_call>edit<arg_key>path</arg_key><arg_value>a<arg_key>text</arg_key><arg_value>b</arg_value></tool_call>",
    ] {
        check(&answer(), wire, &edit);
    }
    let mut both = call(0, "shell", "{\"command\":\"a\"}").to_vec();
    both.extend(call(1, "get_time", "{}"));
    for wire in [
        "<tool_call>shell<arg_key>command</arg_key><arg_value>a</tool_call><tool_call>get_time</tool_call>",
        "<tool_call>shell<arg_key>command</arg_key><arg_value>a</arg_value>\n<tool_call>get_time</tool_call>",
    ] {
        check(&answer(), wire, &both);
    }
    for raw in [
        "<tool_call>None</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>",
        "<tool_call>sh",
        "<tool_call>foocommand</arg_key><arg_value>x</arg_value></tool_call>",
        "<tool_call>shell<arg_key>command</tool_call>",
        "<tool_call>get_time<arg_value>x</arg_value></tool_call>",
        "  <tool_call>{\"name\": \"shell\"}</tool_call> and more",
        "<tool_call>shell</arg_value></tool_call>",
    ] {
        check(&answer(), raw, &[text(raw)]);
        let Some((_, reason)) = split(&answer(), raw, Ending::Turn) else { return };
        assert_eq!(reason, FinishReason::Stop);
    }
    let mut second = vec![text("<tool_call>nonsense\n")];
    second.extend(call(0, "get_time", "{}"));
    check(&answer(), "<tool_call>nonsense\n<tool_call>get_time</tool_call>", &second);
    check(
        &answer(),
        "<tool_call>get_<tool_call>get_time</tool_call>",
        &[&[text("<tool_call>get_")], &call(0, "get_time", "{}")[..]].concat(),
    );
}

#[test]
fn p8_calls_in_thinking_in_code_or_without_tools_are_text() {
    let rm = "<tool_call>shell<arg_key>command</arg_key><arg_value>rm</arg_value></tool_call>";
    check(&thinking(), &format!("maybe {rm}</think>no"), &[reasoning(&format!("maybe {rm}")), text("no")]);
    for quoted in [
        format!("For example:\n```\n{rm}\n```\nend"),
        format!("Write `{rm}` to call."),
        format!("~~~xml\n{rm}\n~~~"),
    ] {
        check(&answer(), &quoted, &[text(&quoted)]);
    }
    // After the code a call is a call.
    let mut expected = vec![text("```\nx\n```\n")];
    expected.extend(call(0, "get_time", "{}"));
    check(&answer(), "```\nx\n```\n<tool_call>get_time</tool_call>", &expected);
    // A fence in the reasoning does not reach into the answer.
    let mut expected = vec![reasoning("```\n")];
    expected.extend(call(0, "get_time", "{}"));
    check(&thinking(), "```\n</think><tool_call>get_time</tool_call>", &expected);
    let none = SplitterOptions::default();
    check(&none, &format!("x {rm}"), &[text(&format!("x {rm}"))]);
    // Spelled in ordinary pieces, as when the model repeats a text of the user.
    let Some(tokenizer) = tiny_a() else { return };
    let ids = tokenizer.encode(rm, ParseSpecial::No);
    assert_eq!(run(tokenizer, &answer(), &ids, Ending::Turn), (vec![text(rm)], FinishReason::Stop));
}

#[test]
fn p10_a_reply_is_never_empty() {
    let Some(stop) = split(&thinking(), "Paris.", Ending::Turn) else { return };
    assert_eq!(stop, (vec![reasoning("Paris."), text("Paris.")], FinishReason::Stop));
    assert_eq!(split(&thinking(), "Paris.<|user|>", Ending::Turn).unwrap(), stop);
    // Cut by the limit it is reasoning and says so.
    assert_eq!(
        split(&thinking(), "Paris.", Ending::Cut).unwrap(),
        (vec![reasoning("Paris.")], FinishReason::Length)
    );
    // The text obeys the stop strings, which the reasoning did not.
    let stopped = split(&with_stop(thinking(), &["is"]), "Paris.", Ending::Turn).unwrap();
    assert_eq!(stopped, (vec![reasoning("Paris."), text("Par")], FinishReason::StopString("is".to_owned())));
    assert_eq!(split(&thinking(), "\n", Ending::Turn).unwrap().0, [reasoning("\n")]);
    assert_eq!(split(&thinking(), "", Ending::Turn).unwrap(), (vec![], FinishReason::Stop));
}

#[test]
fn p11_only_a_suffix_that_can_grow_is_held_back() {
    let Some(tokenizer) = tiny_a() else { return };
    for stop in [&[][..], &["ZZZZZZZZ"]] {
        let mut splitter = Splitter::new(tokenizer, with_stop(thinking(), stop));
        let mut push = |text: &str| {
            let ids = tokenizer.encode(text, ParseSpecial::No);
            merge(ids.into_iter().flat_map(|id| splitter.push(id)).collect::<Vec<_>>())
        };
        assert_eq!(push("abc</th"), [reasoning("abc")]);
        assert_eq!(push("ink>yes"), [text("yes")]);
        assert_eq!(push("</thin"), [text("</thin")], "nothing to hold in the answer");
        let held = !stop.is_empty();
        assert_eq!(push(" aZZ"), [text(if held { " a" } else { " aZZ" })]);
        assert_eq!(push("b"), [text(if held { "ZZb" } else { "b" })]);
        assert_eq!(splitter.finish(Ending::Turn), (vec![], FinishReason::Stop));
    }
    // In code it is a quotation; the token itself always counts.
    let ids = tokenizer.encode("the tag `</think>` ends", ParseSpecial::No);
    let (events, _) = run(tokenizer, &thinking(), &ids, Ending::Cut);
    assert_eq!(events, [reasoning("the tag `</think>` ends")]);
    check(&thinking(), "the tag `</think>` ends", &[reasoning("the tag `"), text("` ends")]);
}

#[test]
fn t5_every_turn_end_stops_also_when_spelled() {
    let Some(tokenizer) = tiny_a() else { return };
    for marker in ["<|user|>", "<|observation|>", "<|endoftext|>"] {
        for parse in [ParseSpecial::Yes, ParseSpecial::No] {
            let mut ids = tokenizer.encode("71 is the largest.", ParseSpecial::No);
            ids.extend(tokenizer.encode(marker, parse));
            ids.extend(tokenizer.encode("And what is", ParseSpecial::No));
            let (events, reason) = run(tokenizer, &answer(), &ids, Ending::Cut);
            assert_eq!((events, reason), (vec![text("71 is the largest.")], FinishReason::Stop));
        }
    }
    let spelled: Vec<u32> = ["71 is the largest.", "<", "|user", "|>", "And"]
        .iter()
        .flat_map(|p| tokenizer.encode(p, ParseSpecial::No))
        .collect();
    assert_eq!(
        run(tokenizer, &answer(), &spelled, Ending::Turn),
        (vec![text("71 is the largest.")], FinishReason::Stop)
    );
    let looks = tokenizer.encode("a <|b|> x<|use", ParseSpecial::No);
    assert_eq!(run(tokenizer, &answer(), &looks, Ending::Turn).0, [text("a <|b|> x<|use")]);
    // The opening of another turn that is no stop token.
    check(&answer(), "done<|assistant|>more", &[text("done")]);
    // In a tool's argument spelled markers are data.
    let mut ids =
        tokenizer.encode("<tool_call>shell<arg_key>command</arg_key><arg_value>", ParseSpecial::Yes);
    ids.extend(tokenizer.encode("grep '<|user|>' </think>", ParseSpecial::No));
    ids.extend(tokenizer.encode("</arg_value></tool_call><|observation|>", ParseSpecial::Yes));
    let (events, reason) = run(tokenizer, &answer(), &ids, Ending::Turn);
    assert_eq!(events, call(0, "shell", "{\"command\":\"grep '<|user|>' </think>\"}"));
    assert_eq!(reason, FinishReason::ToolCalls);
}

#[test]
fn a4_stop_strings_never_leak_and_leave_reasoning_alone() {
    let fox = |stop: &[&str]| split(&with_stop(answer(), stop), "The quick brown fox jumps", Ending::Turn);
    let Some(found) = fox(&["own fox"]) else { return };
    assert_eq!(found, (vec![text("The quick br")], FinishReason::StopString("own fox".to_owned())));
    // One string begins another: the one that is complete first counts.
    assert_eq!(
        fox(&["own fox", "own"]).unwrap(),
        (vec![text("The quick br")], FinishReason::StopString("own".to_owned()))
    );
    assert_eq!(
        fox(&["own foxes", ""]).unwrap(),
        (vec![text("The quick brown fox jumps")], FinishReason::Stop)
    );
    assert_eq!(fox(&["jumps high"]).unwrap().0, [text("The quick brown fox jumps")]);
    assert_eq!(fox(&["The"]).unwrap().0, []);
    let options = with_stop(thinking(), &["fox"]);
    let found = split(&options, "a fox</think>no f fox", Ending::Turn).unwrap();
    assert_eq!(found, (vec![reasoning("a fox"), text("no f ")], FinishReason::StopString("fox".to_owned())));
    // Not in arguments; after a call it is the call that the client has to act on.
    let options = with_stop(answer(), &["fox"]);
    let found = split(
        &options,
        "<tool_call>shell<arg_key>command</arg_key><arg_value>fox</arg_value></tool_call>a fox b",
        Ending::Turn,
    )
    .unwrap();
    assert_eq!(found.0, [&call(0, "shell", "{\"command\":\"fox\"}")[..], &[text("a ")]].concat());
    assert_eq!(found.1, FinishReason::ToolCalls);
    // The text of a special token takes part where it is text.
    let found =
        split(&with_stop(SplitterOptions::default(), &["x<tool_call>"]), "ax<tool_call>b", Ending::Turn)
            .unwrap();
    assert_eq!(found.0, [text("a")]);
}

#[test]
fn a5_characters_are_never_split() {
    let Some(tokenizer) = tiny_a() else { return };
    let ids = tokenizer.encode("a😀", ParseSpecial::No);
    let mut splitter = Splitter::new(tokenizer, answer());
    let events: Vec<Vec<ChatEvent>> = ids.iter().map(|&id| splitter.push(id)).collect();
    assert_eq!(merge(events.concat()), [text("a😀")]);
    // Cut in the middle: one mark at the end.
    let (events, _) = run(tokenizer, &answer(), &ids[..ids.len() - 1], Ending::Cut);
    assert_eq!(events, [text("a\u{FFFD}")]);
    // A tag in the middle of a character ends it.
    let mut broken = ids[..ids.len() - 1].to_vec();
    broken.push(tokenizer.special("</think>").unwrap());
    broken.extend(tokenizer.encode("b", ParseSpecial::No));
    let (events, _) = run(tokenizer, &thinking(), &broken, Ending::Turn);
    assert_eq!(events, [reasoning("a\u{FFFD}"), text("b")]);
}

#[test]
fn a_reply_collects_the_events() {
    let Some((events, _)) = split(&thinking(), "r</think>t<tool_call>get_time</tool_call>u", Ending::Turn)
    else {
        return;
    };
    let mut reply = Reply::default();
    reply.extend(events);
    assert_eq!((reply.reasoning.as_str(), reply.text.as_str()), ("r", "tu"));
    assert_eq!((reply.calls[0].name.as_str(), reply.calls[0].arguments.as_str()), ("get_time", "{}"));
    assert!(reply.calls[0].complete);
}

fn fragments() -> impl Strategy<Value = Vec<(String, bool)>> {
    let special = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<|assistant|>",
        "<|user|>",
        "[MASK]",
        "<tool_response>",
    ]);
    let plain = prop::sample::select(vec![
        "shell", "command", "get_time", "edit", "path", "text", "search", "tags", "[1]", "10", " ", "\n",
        "```", "\n```\n", "`", "</think>", "<|user|>", "<|us", "er|>", "a", "é😀", "stop", "st", "op", "\"",
        "\\", "</th", "ink>", "free", "com",
    ]);
    let fragment = prop_oneof![
        special.prop_map(|text| (text.to_owned(), true)),
        plain.prop_map(|text| (text.to_owned(), false)),
    ];
    prop::collection::vec(fragment, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// However ordinary text is cut into tokens, and however tokens come, the events are the same; they obey the grammar;
    /// the arguments of a complete call are one JSON object.
    #[test]
    fn p5_generated(fragments in fragments(), thinking_open in any::<bool>(), has_tools in any::<bool>(), turn in any::<bool>(), cut in 1usize..6) {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        let options = SplitterOptions { tools: if has_tools { tools() } else { vec![] }, thinking_open, stop: vec!["stop".into(), "a`b".into()] };
        let ending = if turn { Ending::Turn } else { Ending::Cut };
        let mut whole = Vec::new();
        let mut pieces = Vec::new();
        let mut run_text = String::new();
        let mut flush = |run_text: &mut String, whole: &mut Vec<u32>| {
            whole.extend(tokenizer.encode(run_text, ParseSpecial::No));
            let chars: Vec<char> = run_text.chars().collect();
            for piece in chars.chunks(cut) {
                pieces.extend(tokenizer.encode(&piece.iter().collect::<String>(), ParseSpecial::No));
            }
            run_text.clear();
            pieces.len()
        };
        let mut marks = Vec::new();
        for (text, special) in &fragments {
            if *special {
                let at = flush(&mut run_text, &mut whole);
                let id = tokenizer.special(text).unwrap();
                whole.push(id);
                marks.push((at, id));
            } else {
                run_text.push_str(text);
            }
        }
        flush(&mut run_text, &mut whole);
        for (inserted, (at, id)) in marks.into_iter().enumerate() {
            pieces.insert(at + inserted, id);
        }
        prop_assert_eq!(tokenizer.decode(&whole), tokenizer.decode(&pieces));
        let (events, reason) = run(tokenizer, &options, &whole, ending);
        prop_assert_eq!(run(tokenizer, &options, &pieces, ending), (events.clone(), reason.clone()));

        let mut open = None;
        let mut calls = 0;
        let mut complete = 0;
        let mut json = String::new();
        for (at, event) in events.iter().enumerate() {
            match event {
                Reasoning(_) => prop_assert!(at == 0, "{:?}", events),
                Text(text) => {
                    prop_assert!(open.is_none(), "{:?}", events);
                    prop_assert!(!text.contains("stop"), "{:?}", events);
                }
                ToolStart { index, name } => {
                    prop_assert!(has_tools && open.is_none() && *index == calls, "{:?}", events);
                    prop_assert!(["get_time", "shell", "search", "edit", "free"].contains(&name.as_str()));
                    open = Some(*index);
                    calls += 1;
                    json.clear();
                }
                ToolArguments { index, json: piece } => {
                    prop_assert_eq!(open, Some(*index));
                    json.push_str(piece);
                }
                ToolEnd { index } => {
                    prop_assert_eq!(open.take(), Some(*index));
                    prop_assert!(serde_json::from_str::<Value>(&json).unwrap().is_object());
                    complete += 1;
                }
            }
        }
        prop_assert!(!turn || open.is_none(), "{:?}", events);
        if turn && complete > 0 {
            prop_assert_eq!(reason, FinishReason::ToolCalls);
        }
    }

    /// Any ids at all: nothing panics, and without tools and stops nothing of the text is lost.
    #[test]
    fn any_ids_are_survived(ids in prop::collection::vec(0u32..520, 0..80), thinking_open in any::<bool>()) {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        let _ = run(tokenizer, &SplitterOptions { thinking_open, ..answer() }, &ids, Ending::Turn);
        let ids: Vec<u32> = ids.into_iter().filter(|&id| !tokenizer.is_special(id)).collect();
        let (events, _) = run(tokenizer, &SplitterOptions::default(), &ids, Ending::Turn);
        let mut reply = Reply::default();
        reply.extend(events);
        prop_assert_eq!(reply.text, tokenizer.decode(&ids));
    }

    /// Well-formed calls come out as they went in.
    #[test]
    fn p2_generated(values in prop::collection::btree_map("[a-z]{1,8}", "\\PC{0,20}", 0..5), before in "[a-c .]{0,8}") {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        let properties: serde_json::Map<String, Value> = values.keys().map(|k| (k.clone(), json!({"type": "string"}))).collect();
        let tools = vec![json!({"name": "tool", "parameters": {"type": "object", "properties": properties}})];
        let mut ids = tokenizer.encode(&format!("{before}<tool_call>tool"), ParseSpecial::Yes);
        for (key, value) in &values {
            for (text, parse) in [("<arg_key>", ParseSpecial::Yes), (key, ParseSpecial::No), ("</arg_key>", ParseSpecial::Yes),
                ("<arg_value>", ParseSpecial::Yes), (value, ParseSpecial::No), ("</arg_value>", ParseSpecial::Yes)] {
                ids.extend(tokenizer.encode(text, parse));
            }
        }
        ids.extend(tokenizer.encode("</tool_call>", ParseSpecial::Yes));
        let (events, _) = run(tokenizer, &SplitterOptions { tools, ..SplitterOptions::default() }, &ids, Ending::Turn);
        let mut reply = Reply::default();
        reply.extend(events);
        prop_assert_eq!(reply.text.trim(), before.trim());
        let sent: std::collections::BTreeMap<String, String> = serde_json::from_str(&reply.calls[0].arguments).unwrap();
        prop_assert_eq!(sent, values);
    }
}
