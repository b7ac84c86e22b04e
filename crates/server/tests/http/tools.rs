//! Tool calls.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::client::Request;
use crate::{Server, hello};

fn with_tools(more: Value) -> Value {
    let mut body = hello(json!({"tools": [
        {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
        }}},
        {"type": "function", "function": {"name": "get_time"}},
    ]}));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Calls put together from a stream, as a client does it: id, name, arguments.
fn assemble(events: &[Value]) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for delta in events.iter().flat_map(|e| e["choices"][0]["delta"]["tool_calls"].as_array()).flatten() {
        let index = usize::try_from(delta["index"].as_u64().expect("an index")).unwrap();
        let function = &delta["function"];
        if index == calls.len() {
            assert_eq!(delta["type"], "function");
            let id = delta["id"].as_str().expect("an id").to_owned();
            let name = function["name"].as_str().expect("a name").to_owned();
            calls.push((id, name, String::new()));
        } else {
            assert_eq!(index + 1, calls.len(), "calls come one after the other");
            assert!(
                delta.get("id").is_none() && delta.get("type").is_none() && function.get("name").is_none()
            );
        }
        calls[index].2.push_str(function["arguments"].as_str().expect("arguments"));
    }
    calls
}

const SAID: &str = "I look.</think>Let me see.\
    <tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich \"x\"\n</arg_value>\
    <arg_key>days</arg_key><arg_value>3</arg_value><arg_key>tags</arg_key><arg_value>[]</arg_value></tool_call>\
    <tool_call>get_weather<arg_key>city</arg_key><arg_value>001</arg_value></tool_call>\
    <tool_call>get_time</tool_call>";

#[tokio::test(flavor = "multi_thread")]
async fn calls_streamed_and_whole_are_the_same() {
    let server = Server::start().await;
    server.say(SAID);
    let (status, whole) = server.ask(Request::chat(&with_tools(json!({})))).await;
    assert_eq!(status, 200, "{whole}");
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Let me see.");
    assert_eq!(choice["message"]["reasoning_content"], "I look.");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let arguments: Vec<Value> = calls
        .iter()
        .map(|call| serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(
        arguments,
        [json!({"city": "Zürich \"x\"\n", "days": 3, "tags": []}), json!({"city": "001"}), json!({})]
    );
    let ids: HashSet<&str> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| id.starts_with("call_")));
    assert!(calls.iter().all(|call| call["type"] == "function"));

    server.say(SAID);
    let events =
        Request::chat(&with_tools(json!({"stream": true}))).open(server.address).await.events().await;
    let streamed = assemble(&events);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    let pairs: Vec<(&str, &str)> =
        streamed.iter().map(|(_, name, arguments)| (name.as_str(), arguments.as_str())).collect();
    let expected: Vec<(&str, &str)> = calls
        .iter()
        .map(|c| (c["function"]["name"].as_str().unwrap(), c["function"]["arguments"].as_str().unwrap()))
        .collect();
    assert_eq!(pairs, expected);
    let all: HashSet<&str> = streamed.iter().map(|(id, ..)| id.as_str()).chain(ids).collect();
    assert_eq!(all.len(), 6, "ids are never used twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_null_only_beside_calls() {
    let server = Server::start().await;
    server.say("</think><tool_call>get_time</tool_call>");
    let (_, reply) = server.ask(Request::chat(&with_tools(json!({})))).await;
    let message = &reply["choices"][0]["message"];
    assert!(message["content"].is_null() && message.get("reasoning_content").is_none(), "{reply}");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{}");
    server.say("</think>");
    let (_, reply) = server.ask(Request::chat(&with_tools(json!({})))).await;
    assert_eq!(reply["choices"][0]["message"], json!({"role": "assistant", "content": ""}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_cut_ends_by_length() {
    let server = Server::start().await;
    let said = "</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich";
    for stream in [false, true] {
        server.say(&format!("{said} am See</arg_value></tool_call>"));
        let limit = server.ids(said).len();
        let body = with_tools(json!({"stream": stream, "max_tokens": limit}));
        if stream {
            let events = Request::chat(&body).open(server.address).await.events().await;
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
        } else {
            let (_, reply) = server.ask(Request::chat(&body)).await;
            assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_only_when_asked() {
    let server = Server::start().await;
    server.say(SAID);
    let (_, reply) = server.ask(Request::chat(&with_tools(json!({"parallel_tool_calls": false})))).await;
    assert_eq!(reply["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1, "{reply}");
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(server.stage.seen().cancelled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tools_a_call_is_text() {
    let server = Server::start().await;
    let said = "<tool_call>get_time</tool_call>";
    for body in [hello(json!({})), with_tools(json!({"tool_choice": "none"})), hello(json!({"tools": []}))] {
        server.say(&format!("</think>{said}"));
        let (_, reply) = server.ask(Request::chat(&body)).await;
        assert_eq!(reply["choices"][0]["message"]["content"], said, "{body}");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_other_kinds_are_left_out() {
    let server = Server::start().await;
    let function = json!({"type": "function", "function": {"name": "f"}});
    let tools =
        json!([{"type": "web_search"}, {"type": "custom", "name": "c"}, function, {"type": "namespace"}]);
    let (status, reply) = server.ask(Request::chat(&hello(json!({"tools": tools})))).await;
    assert_eq!(status, 200, "{reply}");
    let prompt = server.tokenizer.decode(&server.stage.seen().prompts[0]);
    assert!(prompt.contains("\"f\"") && !prompt.contains("web_search"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_call_is_never_an_error() {
    let server = Server::start().await;
    let broken = [
        "<tool_call>get_timezone</arg_key><arg_value>x</arg_value></tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>None</tool_call>",
        "<tool_call><arg_key><arg_value>",
        "</tool_call></arg_value>",
        "<tool_call>unknown<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>",
    ];
    for said in broken {
        let mut seen = Vec::new();
        for stream in [false, true] {
            server.say(&format!("</think>{said}"));
            let body = with_tools(json!({"stream": stream}));
            if stream {
                let events = Request::chat(&body).open(server.address).await.events().await;
                assert!(events.iter().all(|e| e.get("error").is_none()), "{said}");
                seen.push(events.last().unwrap()["choices"][0]["finish_reason"].clone());
            } else {
                let (status, reply) = server.ask(Request::chat(&body)).await;
                assert_eq!(status, 200, "{said}: {reply}");
                seen.push(reply["choices"][0]["finish_reason"].clone());
            }
        }
        assert_eq!(seen[0], seen[1], "{said}");
    }
}
