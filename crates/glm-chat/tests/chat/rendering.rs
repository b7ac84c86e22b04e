//! Prompts against golden renderings, and what is done to a request on the way.

use crate::vocabulary::tiny_a;
use glm_chat::{ChatRequest, Prompt, Template, TemplateError};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The template of the fixtures.
pub fn golden_template() -> Option<&'static Template> {
    static TEMPLATE: OnceLock<Option<Template>> = OnceLock::new();
    let make = || {
        let source = std::fs::read_to_string(golden::file("chat/glm_chat.jinja")?).unwrap();
        Some(Template::new(&source, &specials()?).unwrap())
    };
    TEMPLATE.get_or_init(make).as_ref()
}

pub fn specials() -> Option<Vec<String>> {
    Some(tiny_a()?.special_texts())
}

/// A request from messages and variables; `tools` and `add_generation_prompt` go to their fields.
pub fn request(messages: Value, kwargs: Value) -> ChatRequest {
    let Value::Array(messages) = messages else { panic!("messages are a list") };
    let Value::Object(mut kwargs) = kwargs else { panic!("variables are an object") };
    let tools = kwargs.shift_remove("tools").map(|tools| tools.as_array().unwrap().clone());
    let add_generation_prompt =
        kwargs.shift_remove("add_generation_prompt").is_none_or(|v| v.as_bool().unwrap());
    ChatRequest {
        messages,
        tools,
        chat_template_kwargs: kwargs,
        add_generation_prompt,
        ..ChatRequest::default()
    }
}

fn render(messages: Value, kwargs: Value) -> Option<Prompt> {
    Some(golden_template()?.render(&request(messages, kwargs)).unwrap())
}

/// A template made for one test.
fn template(source: &str) -> Template {
    let specials = ["<think>", "</think>", "<|user|>", "<|assistant|>", "[gMASK]"];
    Template::new(source, &specials.map(str::to_owned)).unwrap()
}

#[test]
fn golden_conversations_are_exact() {
    let (Some(path), Some(template)) = (golden::file("chat/conversations.json"), golden_template()) else {
        return;
    };
    let conversations: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut exact = 0;
    for conversation in &conversations {
        let name = conversation["name"].as_str().unwrap();
        let prompt = template
            .render(&request(conversation["messages"].clone(), conversation["kwargs"].clone()))
            .unwrap();
        let mut golden = conversation["rendered"].as_str().unwrap().to_owned();
        if name == "tool_then_answer_then_user" {
            // The public template prints a null content as None; here it is empty.
            assert!(golden.contains("</think>None<tool_call>"));
            golden = golden.replace("</think>None<tool_call>", "</think><tool_call>");
        } else if name == "results_out_of_order" {
            assert_ne!(
                conversation["own_template_equal"], true,
                "the fixture template does not reorder by itself"
            );
        } else {
            assert_eq!(conversation["own_template_equal"], true, "{name}");
            exact += 1;
        }
        assert_eq!(prompt.text(), golden, "{name}");
    }
    assert_eq!((exact, conversations.len()), (13, 15));
}

#[test]
fn one_turn_and_history_as_in_the_specification() {
    let Some(prompt) = render(json!([{"role": "user", "content": "a"}]), json!({})) else { return };
    assert_eq!(prompt.text(), "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>a<|assistant|><think>");
    assert!(prompt.thinking_open());
    let history = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    let prompt = render(history, json!({})).unwrap();
    assert_eq!(
        prompt.text(),
        "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>a<|assistant|><think></think>b<|user|>c<|assistant|><think>"
    );
}

#[test]
fn p9_thinking_off_closes_the_block_for_every_spelling_and_any_template() {
    let Some(golden) = golden_template() else { return };
    // A template without the switch, as the public one.
    let without = template(
        "[gMASK]{{ '<|user|>' + messages[0].content }}{% if add_generation_prompt %}<|assistant|><think>{% endif %}",
    );
    let bare =
        template("<|user|>{{ messages[0].content }}{% if add_generation_prompt %}<|assistant|>{% endif %}");
    let hi =
        || ChatRequest { messages: vec![json!({"role": "user", "content": "hi"})], ..ChatRequest::default() };
    let kwargs =
        |value: Value| ChatRequest { chat_template_kwargs: value.as_object().unwrap().clone(), ..hi() };
    let effort = |effort: &str| ChatRequest { reasoning_effort: Some(effort.to_owned()), ..hi() };
    let off = [
        ChatRequest { enable_thinking: Some(false), ..hi() },
        kwargs(json!({"enable_thinking": false})),
        kwargs(json!({"thinking": false})),
        kwargs(json!({"thinking": {"type": "disabled"}})),
        kwargs(json!({"reasoning_effort": "none"})),
        effort("none"),
        effort("Minimal"),
        ChatRequest { enable_thinking: Some(false), reasoning_effort: Some("low".to_owned()), ..hi() },
    ];
    for request in &off {
        assert!(request.thinking_off(), "{request:?}");
        for template in [golden, &without, &bare] {
            let prompt = template.render(request).unwrap();
            assert!(
                prompt.as_str().ends_with("<|assistant|><think></think>"),
                "{request:?}: {}",
                prompt.text()
            );
            assert_eq!(prompt.as_str().matches("</think>").count(), 1);
            assert!(!prompt.thinking_open());
            let last: Vec<&str> =
                prompt.specials().iter().rev().take(2).map(|r| &prompt.as_str()[r.clone()]).collect();
            assert_eq!(last, ["</think>", "<think>"], "what is appended is special");
        }
        let request = ChatRequest { add_generation_prompt: false, ..request.clone() };
        assert!(without.render(&request).unwrap().as_str().ends_with("<|user|>hi"));
    }
    let on = [
        hi(),
        ChatRequest { enable_thinking: Some(true), ..hi() },
        effort("low"),
        ChatRequest { enable_thinking: Some(false), ..kwargs(json!({"enable_thinking": true})) },
        ChatRequest { reasoning_effort: Some("none".to_owned()), ..kwargs(json!({"enable_thinking": true})) },
        ChatRequest {
            reasoning_effort: Some("none".to_owned()),
            ..kwargs(json!({"reasoning_effort": "high"}))
        },
    ];
    for request in &on {
        assert!(!request.thinking_off(), "{request:?}");
        assert!(without.render(request).unwrap().thinking_open());
    }
}

/// What the template sees of the effort and of the switch.
fn seen(request: ChatRequest) -> String {
    let source = "{{ reasoning_effort if reasoning_effort is defined else '-' }} {{ enable_thinking if enable_thinking is defined else '-' }}";
    template(source).render(&ChatRequest { add_generation_prompt: false, ..request }).unwrap().text()
}

#[test]
fn effort_reaches_the_template_as_documented() {
    let field =
        |effort: &str| ChatRequest { reasoning_effort: Some(effort.to_owned()), ..ChatRequest::default() };
    let kwargs = |value: Value| value.as_object().unwrap().clone();
    assert_eq!(seen(ChatRequest::default()), "- -");
    for (given, expected) in [
        ("low", "low -"),
        ("Low", "low -"),
        ("HIGH", "high -"),
        ("medium", "high -"),
        ("Max", "max -"),
        ("xhigh", "max -"),
        ("none", "none False"),
        ("Minimal", "minimal False"),
    ] {
        assert_eq!(seen(field(given)), expected, "{given}");
    }
    assert_eq!(seen(ChatRequest { enable_thinking: Some(false), ..field("low") }), "low False");
    // Variables are not touched, and win.
    for (given, expected) in [("Low", "Low -"), ("medium", "medium -"), ("anything", "anything -")] {
        let request =
            ChatRequest { chat_template_kwargs: kwargs(json!({"reasoning_effort": given})), ..field("high") };
        assert_eq!(seen(request), expected);
    }
    let request =
        ChatRequest { chat_template_kwargs: kwargs(json!({"enable_thinking": true})), ..field("none") };
    assert_eq!(seen(request), "none True");
    let error = template("").render(&field("lots")).unwrap_err().to_string();
    assert!(error.starts_with("reasoning_effort: expected none, minimal, low"), "{error}");
}

#[test]
fn a_body_is_read_by_its_fields() {
    let body = |value: Value| ChatRequest::from_body(value.as_object().unwrap());
    let request =
        body(json!({"messages": [], "tools": null, "reasoning_effort": "Low", "thinking": false, "x": 1}))
            .unwrap();
    assert!(request.thinking_off() && request.add_generation_prompt && request.tools.is_none());
    assert!(
        body(json!({"messages": [], "thinking": {"type": "disabled", "budget_tokens": 5}}))
            .unwrap()
            .thinking_off()
    );
    assert!(!body(json!({"messages": [], "thinking": {"type": "enabled"}})).unwrap().thinking_off());
    for (wrong, field) in [
        (json!({}), "messages: is missing"),
        (json!({"messages": 5}), "messages: expected a list"),
        (json!({"messages": [], "tools": {}}), "tools: expected a list"),
        (json!({"messages": [], "reasoning_effort": 5}), "reasoning_effort: expected a string"),
        (json!({"messages": [], "enable_thinking": "no"}), "enable_thinking: expected true or false"),
        (json!({"messages": [], "thinking": "no"}), "thinking: expected true, false or an object"),
        (json!({"messages": [], "chat_template_kwargs": []}), "chat_template_kwargs: expected an object"),
    ] {
        let error = body(wrong).unwrap_err().to_string();
        assert!(error.starts_with(field), "{error}");
    }
}

#[test]
fn arguments_become_an_object() {
    let call = |arguments: Value| {
        json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}])
    };
    for (given, expected) in [
        (
            json!({"a": 1, "b": "x"}),
            "f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>x</arg_value>",
        ),
        (
            json!("{\"b\": \"x\", \"a\": 1.50}"),
            "f<arg_key>b</arg_key><arg_value>x</arg_value><arg_key>a</arg_key><arg_value>1.5</arg_value>",
        ),
        (
            json!("{\"n\": 123456789012345678901234567890}"),
            "f<arg_key>n</arg_key><arg_value>123456789012345678901234567890</arg_value>",
        ),
        (json!("{}"), "f"),
        (json!(""), "f"),
        (json!(null), "f"),
        // No JSON object: the text itself, under one key.
        (json!("{\"a\": "), "f<arg_key>arguments</arg_key><arg_value>{\"a\": </arg_value>"),
        (json!("[1]"), "f<arg_key>arguments</arg_key><arg_value>[1]</arg_value>"),
    ] {
        let Some(prompt) = render(call(given.clone()), json!({})) else { return };
        assert!(
            prompt.as_str().contains(&format!("<tool_call>{expected}</tool_call>")),
            "{given}: {}",
            prompt.text()
        );
    }
    let error =
        golden_template().unwrap().render(&request(call(json!(5)), json!({}))).unwrap_err().to_string();
    assert_eq!(error, "messages[1].tool_calls[0].function.arguments: expected an object or a string of JSON");
}

#[test]
fn reasoning_is_accepted_under_both_names() {
    for message in [
        json!({"role": "assistant", "content": "4", "reasoning": "sum"}),
        json!({"role": "assistant", "content": "4", "reasoning_content": "sum"}),
        json!({"role": "assistant", "content": "4", "reasoning_content": "sum", "reasoning": "other"}),
        json!({"role": "assistant", "content": "4", "reasoning_content": null, "reasoning": "sum"}),
    ] {
        let Some(prompt) = render(json!([{"role": "user", "content": "?"}, message]), json!({})) else {
            return;
        };
        assert!(prompt.as_str().contains("<|assistant|><think>sum</think>4"), "{}", prompt.text());
    }
}

#[test]
fn empty_tools_are_no_tools_and_developer_is_system() {
    let messages = json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    let Some(prompt) = render(messages, json!({"tools": []})) else { return };
    assert_eq!(
        prompt.text(),
        "[gMASK]<sop><|system|>Reasoning Effort: Max<|system|>Be brief.<|user|>hi<|assistant|><think>"
    );
}

#[test]
fn results_are_reordered_only_if_all_ids_match() {
    let calls = |ids: &[Value]| -> Value {
        ids.iter().map(|id| json!({"id": id, "function": {"name": "f", "arguments": {}}})).collect()
    };
    let order = |calls: Value, results: &[Value]| -> Option<String> {
        let mut messages =
            vec![json!({"role": "user", "content": "x"}), json!({"role": "assistant", "tool_calls": calls})];
        messages.extend(
            results
                .iter()
                .map(|id| json!({"role": "tool", "tool_call_id": id, "content": format!("[{id}]")})),
        );
        messages.push(json!({"role": "user", "content": "y"}));
        let text = render(Value::Array(messages), json!({}))?.text();
        Some(
            text.split("<tool_response>")
                .skip(1)
                .map(|r| r.split("</tool_response>").next().unwrap())
                .collect(),
        )
    };
    let (a, b, c, none) = (json!("a"), json!("b"), json!("c"), json!(null));
    let ab = || calls(&[a.clone(), b.clone()]);
    let Some(first) = order(ab(), &[b.clone(), a.clone()]) else { return };
    assert_eq!(first, "[\"a\"][\"b\"]");
    for kept in [[&b, &b], [&b, &c], [&b, &none]] {
        let expected: String = kept.iter().map(|id| format!("[{id}]")).collect();
        assert_eq!(order(ab(), &kept.map(Value::clone)).unwrap(), expected);
    }
    assert_eq!(order(ab(), std::slice::from_ref(&b)).unwrap(), "[\"b\"]");
    assert_eq!(order(ab(), &[c.clone(), b.clone(), a.clone()]).unwrap(), "[\"c\"][\"b\"][\"a\"]");
    assert_eq!(order(calls(&[a.clone(), a.clone()]), &[b.clone(), a.clone()]).unwrap(), "[\"b\"][\"a\"]");
    assert_eq!(order(calls(&[a.clone(), none]), &[b, a]).unwrap(), "[\"b\"][\"a\"]");
}

#[test]
fn wrong_messages_are_refused_by_their_place() {
    let Some(template) = golden_template() else { return };
    for (messages, words) in [
        (json!(["x"]), "messages[0]: expected an object"),
        (
            json!([{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]),
            "messages[1].role: expected system",
        ),
        (json!([{"content": "x"}]), "messages[0].role: expected system"),
        (json!([{"role": "user", "content": 5}]), "messages[0].content: expected a string"),
        (json!([{"role": "user", "content": [5]}]), "messages[0].content[0]: expected a string or an object"),
        (json!([{"role": "assistant", "tool_calls": "f"}]), "messages[0].tool_calls: expected a list"),
        (
            json!([{"role": "assistant", "tool_calls": ["f"]}]),
            "messages[0].tool_calls[0]: expected an object",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": 5}]}]),
            "messages[0].tool_calls[0].function: expected an object",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": null}}]}]),
            "messages[0].tool_calls[0].function.name: expected a string",
        ),
    ] {
        let error = template.render(&request(messages, json!({}))).unwrap_err();
        assert!(matches!(error, TemplateError::Request(_)));
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let error = template.render(&request(json!([]), json!({"tools": [1]}))).unwrap_err().to_string();
    assert_eq!(error, "tools[0]: expected an object");
    let error = template.render(&request(json!([]), json!({"messages": []}))).unwrap_err().to_string();
    assert!(error.starts_with("chat_template_kwargs.messages:"), "{error}");
}

#[test]
fn templates_that_do_not_compile_loop_or_refuse_say_so() {
    let error = Template::new("a\n{% if %}", &[]).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.chat_template does not compile") && error.contains(":2"), "{error}");
    let refuses = template("{{ raise_exception('only one system message') }}");
    let error = refuses.render(&ChatRequest::default()).unwrap_err().to_string();
    assert_eq!(error, "the chat template refuses this conversation: only one system message");
    let error = template("{{ 1 / nothing }}").render(&ChatRequest::default()).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.chat_template failed:"), "{error}");
}

#[test]
fn hostile_templates_end_in_bounded_time_and_space() {
    let start = Instant::now();
    for source in [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{% set a = 'x' * 100000 %}{{ a | replace('x', a) | length }}",
        "{% set a = ['x' * 10000] * 1000 %}{% set b = [a] * 1000 %}{{ b | tojson | length }}",
        "{% set n = namespace(a=['x' * 1000]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
        "{% set n = namespace(a=[]) %}{% for i in range(99999) %}{% set n.a = [[[[[[[[[[[[[[[[[[[[n.a]]]]]]]]]]]]]]]]]]]] %}{% endfor %}",
        "{% set n = namespace(a=[], b=[]) %}{% for i in range(99999) %}{% set n.a = {'x': n.a} %}{% set n.b = {'x': n.b} %}{% endfor %}{{ n.a == n.b }}",
    ] {
        let error = template(source).render(&ChatRequest::default()).unwrap_err();
        assert!(matches!(error, TemplateError::Endless(_)), "{source}: {error}");
        assert!(error.to_string().contains("does not come to an end"));
    }
    for source in [
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{% include 'chat_template' %}",
        "{% set n = namespace(a=[]) %}{% for i in range(500) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a }}",
    ] {
        let error = template(source).render(&ChatRequest::default()).unwrap_err();
        assert!(matches!(error, TemplateError::Render(_)), "{source}: {error}");
    }
    // The engine recurses over each of these as often as they are long.
    for long in ["1+", "1~", "-", "not ", "1 and ", "1 if 0 else ", "1**"] {
        let _ = Template::new(&format!("{{{{ {}1 }}}}", long.repeat(8_000 / long.len())), &[]);
    }
    for long in [".a", "|upper", "()", "[0]"] {
        let _ = Template::new(&format!("{{{{ a{} }}}}", long.repeat(8_000 / long.len())), &[]);
    }
    let _ = Template::new(&format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(5_000)), &[]);
    let error = Template::new(&format!("{{{{ {}1 }}}}", "1~".repeat(5_000)), &[]).unwrap_err().to_string();
    assert_eq!(error, "tokenizer.chat_template has a tag of 10007 bytes at byte 0; at most 8192 are taken");
    let error = Template::new(&" ".repeat(300_000), &[]).unwrap_err().to_string();
    assert_eq!(error, "tokenizer.chat_template has 300000 bytes; at most 65536 are taken");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_namespace_cannot_become_part_of_a_namespace() {
    // Two that hold themselves, in every way to say it; then what the engine does without an end to such values.
    for hold in [
        "{% set n.a = n %}{% set m.a = m %}",
        "{%- set n.a=n-%}{%- set m.a=m-%}",
        "{% set n.a = [1, [n]] %}{% set m.a = [1, [m]] %}",
        "{% set n.a = {'x': n} %}{% set m.a = {'x': m} %}",
        "{% set x, n.a = 1, n %}{% set x, m.a = 1, m %}",
        "{% set (n.a) = n %}{% set (m.a) = m %}",
        "{% set n.a = 0 or n %}{% set m.a = m if true else 0 %}",
        "{% set n.a | default(n, true) %}{% endset %}{% set m.a | default(m, true) %}{% endset %}",
        "{% for x in [n] %}{% set x.a = n %}{% endfor %}{% for x in [m] %}{% set x.a = x %}{% endfor %}",
        "{% macro f(x) %}{% set x.a = x %}{% endmacro %}{{ f(n) }}{{ f(m) }}",
        "{% set n.b = namespace() %}{% set n.b.a = n %}{% set m.b = namespace() %}{% set m.b.a = m %}",
        "{% set n.a = [n] | list %}{% set m.a = [m] | reverse %}",
        "{% set n.a = [n][:1] %}{% set m.a = dict(x=m) %}",
        "{% set n.a = n.items() %}{% set n.a = [n] | map('default') %}{% set m.a = [m] | map('default') %}",
        "{% for x in [n] %}{% set n.a = loop %}{% endfor %}{% for x in [m] %}{% set m.a = loop %}{% endfor %}",
    ] {
        for then in [
            "{{ n == m }}",
            "{{ n < m }}",
            "{{ [n] | join }}",
            "{{ n ~ '' }}",
            "{{ [n, m] | sort }}",
            "{{ n }}",
        ] {
            let source = format!("{{% set n = namespace() %}}{{% set m = namespace() %}}{hold}{then}");
            let error = template(&source).render(&ChatRequest::default()).unwrap_err();
            assert!(error.to_string().contains("cannot be put into a namespace"), "{source}: {error}");
        }
    }
}

#[test]
fn messages_can_be_gathered_in_a_namespace() {
    let source = "{% set n = namespace(kept=[]) %}{% for m in messages %}{% set n.kept = n.kept + [m] %}{% endfor %}\
        {{ n.kept | length }}";
    let messages: Vec<Value> = (0..2000)
        .map(|i| json!({"role": "user", "content": [{"type": "text", "text": i.to_string()}]}))
        .collect();
    assert_eq!(
        template(source).render(&request(Value::Array(messages), json!({}))).unwrap().as_str(),
        "2000"
    );
}

#[test]
fn a_namespace_holds_everything_else() {
    let source = "{% set n = namespace(a=1, l=[], in=namespace(x=5)) %}\
        {% for m in [1, 2, 3] %}{% set n.a = n.a + m %}{% set n.l = n.l + [m] %}{% set n.in.x = loop.index %}{% endfor %}\
        {%- set n.s = 'x' ~ n.a -%}{% set t, n.t = 1, {'k': [n.l]} %}{% set n.u = nothing %}\
        {% set n.b %}{{ n.a }}!{% endset %}{% set n.c | upper %}up{% endset %}{%+ set n.q = '%}' ~ \"=\" %}\
        {# {% set n.a = n %} #}{% raw %}{% set n.a = n %}{% endraw %}\
        {{ n.a }} {{ n.l }} {{ n.in.x }} {{ n.s }} {{ n.t }} {{ n.u is undefined }} {{ n.b }} {{ n.c }} {{ n.q }}";
    let request = ChatRequest { add_generation_prompt: false, ..ChatRequest::default() };
    assert_eq!(
        template(source).render(&request).unwrap().as_str(),
        "{% set n.a = n %}7 [1, 2, 3] 3 x7 {'k': [[1, 2, 3]]} True 7! UP %}="
    );
}

#[test]
fn a_long_conversation_is_not_taken_for_a_loop() {
    let Some(template) = golden_template() else { return };
    let text = "word ".repeat(2000);
    let messages: Vec<Value> = (0..400)
        .map(|i| json!({"role": if i % 2 == 0 { "user" } else { "assistant" }, "content": text}))
        .collect();
    let start = Instant::now();
    let prompt = template.render(&request(Value::Array(messages), json!({}))).unwrap();
    assert!(prompt.as_str().len() > 400 * 9000);
    eprintln!("{} bytes rendered in {:?}", prompt.as_str().len(), start.elapsed());
}

#[test]
fn blocks_are_trimmed_and_python_idioms_work() {
    let source = "  {% if true %}\nA\n  {% endif %}\nB {{ [1, 2, 3][-1] }} {{ 'a,b'.split(',')[1] }} {{ ' x '.strip() }}\
        {% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}\n\
        {{ {'b': 1, 'a': 2}.items() | list | length }}{{ messages[0].content.0 if false else '' }}{{ none }} {{ true }} {{ 1e16 }} {{ 2.0 }} {{ 1e-5 }}\n";
    let prompt = template(source)
        .render(&ChatRequest { add_generation_prompt: false, ..ChatRequest::default() })
        .unwrap();
    assert_eq!(prompt.text(), "A\nB 3 b x012None True 1e+16 2.0 1e-05");
}

#[test]
fn keys_keep_their_order() {
    let mut object = Map::new();
    for key in ["z", "a", "m", "b"] {
        object.insert(key.to_owned(), json!({"y": 1, "x": 2}));
    }
    let request = ChatRequest {
        chat_template_kwargs: Map::from_iter([("x".to_owned(), Value::Object(object))]),
        ..ChatRequest::default()
    };
    assert_eq!(
        template("{{ x | tojson }}").render(&request).unwrap().text(),
        r#"{"z": {"y": 1, "x": 2}, "a": {"y": 1, "x": 2}, "m": {"y": 1, "x": 2}, "b": {"y": 1, "x": 2}}"#
    );
}
