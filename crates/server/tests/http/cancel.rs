//! Clients that leave.

use serde_json::json;
use server::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Request;
use crate::script::{Act, Gate};
use crate::{Server, hello};

fn request(stream: bool) -> Request {
    Request::chat(&hello(json!({"stream": stream, "max_tokens": null})))
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_ends_prefill_and_decode_streamed_or_not() {
    let server = Server::start().await;
    let mut left = 0;
    for stream in [false, true] {
        for prefill in [false, true] {
            let act = if prefill { Act::PrefillForever } else { Act::Forever(u32::from(b'a')) };
            server.stage.play(vec![act]);
            let socket = request(stream).send(server.address).await;
            // Two steps in, the work is certainly under way.
            server.stage.wait("work", |seen| seen.running && seen.steps >= 2);
            drop(socket);
            left += 1;
            let seen = server.stage.wait("the end", |seen| !seen.running);
            assert_eq!((seen.cancelled, seen.finished), (left, 0), "stream {stream}, prefill {prefill}");
        }
    }
    // The engine is free for the next.
    server.say("</think>Hi");
    assert_eq!(server.ask(request(false)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_is_seen_behind_bytes_beyond_the_request() {
    let server = Server::start().await;
    let next = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let mut left = 0;
    for stream in [false, true] {
        for extra in [&b"\r\n"[..], &next] {
            server.stage.play(vec![Act::Forever(u32::from(b'a'))]);
            let mut socket = request(stream).send(server.address).await;
            socket.write_all(extra).await.unwrap();
            server.stage.wait("work", |seen| seen.running && seen.steps >= 2);
            drop(socket);
            left += 1;
            let seen = server.stage.wait("the end", |seen| !seen.running);
            assert_eq!((seen.cancelled, seen.finished), (left, 0), "stream {stream}, {} bytes", extra.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_beyond_a_request_are_the_next_request() {
    let server = Server::start().await;
    server.say("</think>Hi");
    let mut socket = request(false).send(server.address).await;
    socket
        .write_all(b"\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("\"Hi\"") && text.ends_with("{\"status\":\"ok\"}"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_in_mid_stream_ends_the_work() {
    let server = Server::start().await;
    server.stage.play(vec![Act::Forever(u32::from(b'a'))]);
    let mut reply = request(true).open(server.address).await;
    for _ in 0..3 {
        reply.event().await.unwrap();
    }
    drop(reply);
    let seen = server.stage.wait("the end", |seen| !seen.running && !seen.prompts.is_empty());
    assert_eq!(seen.cancelled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_the_queue_costs_no_step_and_no_place() {
    let server = Server::with(Config { queue: 2, ..Config::default() }).await;
    let gate = Gate::new();
    server.stage.play(vec![Act::Wait(gate.clone())]);
    let running = request(false).send(server.address).await;
    server.stage.wait("the first", |seen| seen.running);

    // Two fill the queue, streamed so that their acceptance can be seen.
    let first = request(true).open(server.address).await;
    let second = request(true).open(server.address).await;
    assert_eq!((first.status, second.status), (200, 200));
    let full = request(true).open(server.address).await;
    assert_eq!(full.status, 429);
    assert_eq!(full.header("retry-after"), Some("5"));
    let (status, reply) = server.ask(request(false)).await;
    assert_eq!((status, &reply["error"]["code"]), (429, &json!("queue_full")), "{reply}");

    // One leaves: its place is free as soon as the server has seen it go.
    drop(first);
    let mut third = loop {
        let next = request(true).open(server.address).await;
        if next.status == 200 {
            break next;
        }
        assert_eq!(next.status, 429);
    };
    gate.open();
    let mut second = second;
    second.events().await;
    third.events().await;
    drop(running);
    assert_eq!(server.stage.seen().prompts.len(), 3, "the one that left was never computed");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_served_in_order_one_at_a_time() {
    let server = Server::start().await;
    let gate = Gate::new();
    server.stage.play(vec![Act::Wait(gate.clone())]);
    let mut replies = Vec::new();
    for word in ["first", "second", "third", "fourth"] {
        let body = json!({"stream": true, "messages": [{"role": "user", "content": word}]});
        replies.push(Request::chat(&body).open(server.address).await);
    }
    assert_eq!(server.stage.wait("the first", |seen| seen.running).prompts.len(), 1);
    gate.open();
    for reply in &mut replies {
        assert_eq!(reply.status, 200);
        reply.events().await;
    }
    let served: Vec<String> =
        server.stage.seen().prompts.iter().map(|prompt| server.tokenizer.decode(prompt)).collect();
    for (prompt, word) in served.iter().zip(["first", "second", "third", "fourth"]) {
        assert!(prompt.contains(word), "{served:?}");
    }
}
