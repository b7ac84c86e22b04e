//! Event streams.

use std::time::Duration;

use serde_json::{Value, json};
use server::Config;

use crate::client::Request;
use crate::script::{Act, Gate};
use crate::{Server, hello};

fn streamed(more: Value) -> Request {
    let mut body = hello(more);
    body["stream"] = json!(true);
    Request::chat(&body)
}

/// All deltas of one key, joined.
fn joined(events: &[Value], key: &str) -> String {
    events.iter().filter_map(|e| e["choices"][0]["delta"][key].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chunks_come_in_order() {
    let server = Server::start().await;
    server.say("I greet.</think>Hi 😀\nthere");
    let more = json!({"stream_options": {"include_usage": true}});
    let mut reply = streamed(more).open(server.address).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    let events = reply.events().await;

    for event in &events {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!(event["model"], "tiny");
        for key in ["id", "created", "system_fingerprint"] {
            assert_eq!(event[key], events[0][key]);
        }
    }
    assert_eq!(
        events[0]["choices"],
        json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}])
    );
    let (usage, chunks) = events.split_last().unwrap();
    let (finish, chunks) = chunks.split_last().unwrap();
    let first_text =
        chunks[1..].iter().position(|e| e["choices"][0]["delta"]["content"].is_string()).unwrap();
    for (i, event) in chunks[1..].iter().enumerate() {
        let delta = event["choices"][0]["delta"].as_object().unwrap();
        let key = if i < first_text { "reasoning_content" } else { "content" };
        assert_eq!(delta.keys().collect::<Vec<_>>(), [key]);
        assert!(!delta[key].as_str().unwrap().is_empty());
        assert!(event["choices"][0]["finish_reason"].is_null());
        assert!(event.get("usage").is_none());
    }
    assert_eq!(joined(chunks, "reasoning_content"), "I greet.");
    assert_eq!(joined(chunks, "content"), "Hi 😀\nthere");
    assert!(!joined(chunks, "content").contains('\u{fffd}'));
    assert_eq!(finish["choices"][0]["delta"], json!({}));
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens_details"]["reasoning_tokens"], 9);
    assert!(usage["timings"]["predicted_n"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_comes_only_when_asked_for() {
    let server = Server::start().await;
    for more in
        [json!({}), json!({"stream_options": {}}), json!({"stream_options": {"include_usage": false}})]
    {
        server.say("</think>Hi");
        let events = streamed(more).open(server.address).await.events().await;
        assert!(events.iter().all(|e| e.get("usage").is_none() && e["choices"][0].is_object()));
        let finish = events.last().unwrap();
        assert_eq!(finish["choices"][0]["finish_reason"], "stop");
        assert!(finish["timings"]["predicted_n"].is_number());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_says_what_a_whole_reply_says() {
    let server = Server::start().await;
    let spoken = [
        "",
        "</think>",
        "thoughts</think>answer",
        "thoughts only",
        "a</think>b</think>c",
        "</think>a<b<|c 😀 ü\u{85}\u{2028}\r\n</thin",
        "</think>one own two own fox three",
        "x</think>```\n<tool_call>f</tool_call>\n```",
    ];
    let settings = [
        json!({}),
        json!({"max_tokens": 12}),
        json!({"stop": ["own fox", "😀 ü"]}),
        json!({"enable_thinking": false}),
    ];
    for text in spoken {
        for more in &settings {
            server.say(text);
            let (_, whole) = server.ask(Request::chat(&hello(more.clone()))).await;
            server.say(text);
            let events = streamed(more.clone()).open(server.address).await.events().await;
            let choice = &whole["choices"][0];
            assert_eq!(
                joined(&events, "content"),
                choice["message"]["content"].as_str().unwrap(),
                "{text:?} {more}"
            );
            let thoughts = choice["message"]["reasoning_content"].as_str().unwrap_or("");
            assert_eq!(joined(&events, "reasoning_content"), thoughts, "{text:?} {more}");
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], choice["finish_reason"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_and_the_role_come_before_the_work_and_comments_during_it() {
    let server = Server::with(Config { keep_alive: Duration::from_millis(50), ..Config::default() }).await;
    let (first, second) = (Gate::new(), Gate::new());
    let mut acts = vec![Act::Wait(first.clone()), Act::Prefill(1, 2)];
    acts.extend(server.acts("hm"));
    acts.push(Act::Wait(second.clone()));
    acts.extend(server.acts("m</think>Hi"));
    server.stage.play(acts);

    // The engine is stuck in one prefill step: the head, the role and comments come all the same.
    let mut running = streamed(json!({})).open(server.address).await;
    assert!(running.event().await.unwrap().contains("\"role\":\"assistant\""));
    assert_eq!(running.event().await.unwrap(), ": keep-alive");
    assert_eq!(running.event().await.unwrap(), ": keep-alive");

    // One that waits in the queue hears the same.
    server.say("</think>second");
    let mut waiting = streamed(json!({})).open(server.address).await;
    assert!(waiting.event().await.unwrap().contains("\"role\":\"assistant\""));
    assert_eq!(waiting.event().await.unwrap(), ": keep-alive");
    assert_eq!(waiting.event().await.unwrap(), ": keep-alive");

    // And one that thinks.
    first.open();
    loop {
        let event = running.event().await.unwrap();
        if event.contains("reasoning_content") {
            break;
        }
        assert_eq!(event, ": keep-alive");
    }
    while running.event().await.unwrap() != ": keep-alive" {}
    assert_eq!(running.event().await.unwrap(), ": keep-alive");
    second.open();
    assert_eq!(joined(&running.events().await, "content"), "Hi");
    assert_eq!(joined(&waiting.events().await, "content"), "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_to_those_who_ask() {
    let server = Server::start().await;
    let script = || {
        let mut acts = vec![Act::Prefill(5, 10), Act::Prefill(10, 10)];
        acts.extend(server.acts("</think>Hi"));
        acts
    };
    server.stage.play(script());
    let events = streamed(json!({"return_progress": true})).open(server.address).await.events().await;
    let told: Vec<_> = events
        .iter()
        .filter_map(|e| e.get("prompt_progress"))
        .map(|p| (p["processed"].as_u64().unwrap(), p["total"].as_u64().unwrap()))
        .collect();
    assert_eq!(told, [(5, 10), (10, 10)]);
    server.stage.play(script());
    let events = streamed(json!({})).open(server.address).await.events().await;
    assert!(events.iter().all(|e| e.get("prompt_progress").is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_error_ends_the_stream_with_an_event() {
    let server = Server::start().await;
    for act in [Act::Panic, Act::Sequence("not finite"), Act::Engine("gone")] {
        let mut acts = server.acts("</think>Hi");
        acts.push(act);
        server.stage.play(acts);
        let events = streamed(json!({})).open(server.address).await.events().await;
        assert_eq!(joined(&events, "content"), "Hi");
        let error = &events.last().unwrap()["error"];
        assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!(500)));
        assert!(!error["message"].as_str().unwrap().is_empty());

        server.say("</think>next");
        let events = streamed(json!({})).open(server.address).await.events().await;
        assert_eq!(joined(&events, "content"), "next");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_request_is_told_before_the_stream() {
    let server = Server::start().await;
    let mut long = hello(json!({"stream": true}));
    long["messages"][0]["content"] = json!("x".repeat(1100));
    let reply = Request::chat(&long).open(server.address).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.header("content-type"), Some("application/json"));
}
