//! `tojson` against Python's `json.dumps`.

use glm_chat::{ChatRequest, Template, parse_json};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Keyword arguments as a template and Python alike write them.
const OPTIONS: [&str; 10] = [
    "",
    "ensure_ascii=False",
    "ensure_ascii=True",
    "ensure_ascii=False, indent=2",
    "indent=0",
    "indent='\t'",
    "ensure_ascii=False, separators=(',', ':')",
    "separators=(', ', ' = '), indent=1",
    "ensure_ascii=False, sort_keys=True",
    "sort_keys=True, indent=4, separators=(',', ': ')",
];

fn dumps(value: &Value, options: &str) -> String {
    let template =
        Template::new(&format!("{{{{ x | tojson({options}) }}}}"), &["<|user|>".to_owned()]).unwrap();
    let request = ChatRequest {
        chat_template_kwargs: Map::from_iter([("x".to_owned(), value.clone())]),
        ..ChatRequest::default()
    };
    template.render(&request).unwrap().text()
}

/// What Python gives for each pair of JSON text and options, `None` if there is no Python.
fn python(cases: &[(String, &str)]) -> Option<Vec<String>> {
    let script = "import json,sys\nfor line in sys.stdin:\n    text, options = json.loads(line)\n    x = json.loads(text)\n    print(json.dumps(eval('json.dumps(x, %s)' % options)))\n";
    let child =
        Command::new("python3").arg("-c").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        golden::skipped(format_args!("comparison with json.dumps: python3 is not here"));
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = cases.iter().map(|(text, options)| format!("{}\n", json!([text, options]))).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn compare(texts: &[String]) {
    let cases: Vec<(String, &str)> =
        texts.iter().flat_map(|t| OPTIONS.iter().map(|o| (t.clone(), *o))).collect();
    let Some(expected) = python(&cases) else { return };
    assert_eq!(cases.len(), expected.len());
    for ((text, options), expected) in cases.iter().zip(expected) {
        assert_eq!(dumps(&parse_json(text).unwrap(), options), expected, "{text} with {options}");
    }
}

#[test]
fn t2_tool_descriptions_are_not_html() {
    let value = json!({"description": "a<b & c's \"é\" 😀"});
    assert_eq!(dumps(&value, "ensure_ascii=False"), "{\"description\": \"a<b & c's \\\"é\\\" 😀\"}");
    assert_eq!(dumps(&value, ""), "{\"description\": \"a<b & c's \\\"\\u00e9\\\" \\ud83d\\ude00\"}");
}

#[test]
fn t2_hand_picked_values_equal_python() {
    let numbers = [
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e16",
        "1e15",
        "123456789012345680.0",
        "9999999999999998.0",
        "1e-4",
        "1e-5",
        "0.00001234",
        "1.5e300",
        "5e-324",
        "1.7976931348623157e308",
        "0.1",
        "-2.5E-7",
        "1E+2",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "170141183460469231731687303715884105728",
        "123456789012345678901234567890123456789012345678901234567890",
        "3.0000000000000004",
        "2.2250738585072011e-308",
        "0.30000000000000004",
    ];
    let strings = [
        r#""\u0000\u0001\b\f\n\r\t\u001f\u007f\u0080\u2028\u2029\ufdd0\uffff\ud83d\ude00\"\\/""#,
        r#""<|user|><US""#,
        r#""""#,
    ];
    let mut texts: Vec<String> = numbers.iter().chain(&strings).map(|t| (*t).to_owned()).collect();
    texts.push(format!("[{}]", numbers.join(",")));
    texts.push(r#"{"b": [], "a": {}, "": null, "é": [true, false, [1, [2, {"x": []}]]], "B": {"z": 1, "y": {"k": "<|user|>"}}}"#.to_owned());
    compare(&texts);
}

/// A JSON text: keys of one object are distinct, as Python and this crate agree on duplicates only in value.
fn json_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(|x| format!("{x:e}")),
        (-1e6..1e6f64).prop_map(|x| format!("{x:?}")),
        "-?[1-9][0-9]{0,45}",
        "[1-9]\\.[0-9]{1,20}e-?[1-9]",
    ];
    let string = prop_oneof!["\\PC{0,12}", "[<|user>\\x00-\\x20\"\\\\é😀\u{fdd0}]{0,12}"]
        .prop_map(|s| Value::from(s).to_string());
    let leaf = prop_oneof![
        number,
        string.clone(),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned())
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(string.clone(), inner, 0..6).prop_map(|map| {
                let items: Vec<String> = map.iter().rev().map(|(k, v)| format!("{k}:{v}")).collect();
                format!("{{{}}}", items.join(", "))
            }),
        ]
    })
}

#[test]
fn t2_generated_values_equal_python() {
    let mut runner = TestRunner::deterministic();
    let strategy = json_text();
    let texts: Vec<String> = (0..300).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    compare(&texts);
}

#[test]
fn what_python_refuses_is_refused() {
    for source in [
        "{{ missing | tojson }}",
        "{{ 1 | tojson(colour=1) }}",
        "{{ [1] | tojson(separators=1) }}",
        "{{ [1] | tojson(separators=('a',)) }}",
    ] {
        let template = Template::new(source, &[]).unwrap();
        assert!(template.render(&ChatRequest::default()).is_err(), "{source}");
    }
}
