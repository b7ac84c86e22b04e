//! `maya serve` end to end: the real binary, the demo model, HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{maya, signal};

struct Server {
    child: Child,
    // Kept open: a closed pipe is another test.
    stdout: BufReader<ChildStdout>,
    block: String,
    address: String,
}

impl Server {
    /// Starts it on a free port and reads the block up to its last line.
    fn start(args: &[&str]) -> Self {
        let mut child = maya(&[&["serve", "--port", "0"], args].concat()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut block = String::new();
        loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it ended: {block}");
            block.push_str(&line);
            if line.starts_with("stop") {
                break;
            }
        }
        let url = block.lines().find_map(|l| l.strip_prefix("url")).unwrap().trim();
        let address = url.strip_prefix("http://").unwrap().to_owned();
        Self { child, stdout, block, address }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            joined(body)
        } else {
            body.to_owned()
        };
        (status, body)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Waits for the end after a signal.
    fn ended(mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The chunks of a chunked body, joined.
fn joined(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let n = usize::from_str_radix(size.trim(), 16).unwrap();
        if n == 0 {
            break;
        }
        out.push_str(&rest[..n]);
        body = &rest[n + 2..];
    }
    out
}

fn question(stream: bool) -> String {
    json!({
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "enable_thinking": false,
        "temperature": 0,
        "stream": stream,
    })
    .to_string()
}

#[test]
fn a_chat_over_http() {
    let server = Server::start(&[]);
    for part in
        ["model", "size", "context", "device", "memory", "url", "curl", "127.0.0.1", "cpu", "maya-nano"]
    {
        assert!(server.block.contains(part), "{part} is not in:\n{}", server.block);
    }
    let (status, body) = server.request("GET", "/health", "");
    assert_eq!(status, 200, "{body}");
    let (status, body) = server.request("GET", "/v1/models", "");
    let models: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, models["data"][0]["id"].as_str()), (200, Some("maya-nano")));

    let (status, body) = server.request("POST", "/v1/chat/completions", &question(false));
    assert_eq!(status, 200, "{body}");
    let reply: Value = serde_json::from_str(&body).unwrap();
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(content.contains("Paris"), "{body}");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert!(reply["usage"]["prompt_tokens"].as_u64().unwrap() > 5);

    // Streamed, the same text.
    let (status, body) = server.request("POST", "/v1/chat/completions", &question(true));
    assert_eq!(status, 200, "{body}");
    let mut streamed = String::new();
    for line in body.lines().filter_map(|l| l.strip_prefix("data: ")) {
        if line != "[DONE]" {
            let chunk: Value = serde_json::from_str(line).unwrap();
            streamed.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        }
    }
    assert_eq!(streamed, content);
    assert!(body.trim_end().ends_with("data: [DONE]"));

    // With thinking, the reasoning is apart from the answer.
    let thinking = json!({
        "messages": [{"role": "user", "content": "What is the capital of Japan?"}],
        "reasoning_effort": "low",
        "temperature": 0,
        "max_tokens": 200,
    });
    let (_, body) = server.request("POST", "/v1/chat/completions", &thinking.to_string());
    let reply: Value = serde_json::from_str(&body).unwrap();
    let message = &reply["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().is_some_and(|r| !r.is_empty()), "{body}");
    assert!(message["content"].as_str().unwrap().contains("Tokyo"), "{body}");

    for bad in [
        "{",
        "[]",
        r#"{"messages":7}"#,
        r#"{"messages":[{"role":"user","content":"a"}],"temperature":"hot"}"#,
    ] {
        let (status, body) = server.request("POST", "/v1/chat/completions", bad);
        assert_eq!(status, 400, "{bad}: {body}");
        assert!(serde_json::from_str::<Value>(&body).unwrap()["error"]["message"].is_string());
    }
    let (status, body) = server.request(
        "POST",
        "/v1/chat/completions",
        &json!({"messages": [{"role": "user", "content": "word ".repeat(20_000)}]}).to_string(),
    );
    assert_eq!(status, 400);
    assert!(body.contains("16384") || body.contains("16,384"), "{body}");

    signal(&server.child, "INT");
    assert_eq!(server.ended(), Some(0));
}

/// A termination request ends it too, and an idle connection does not keep it.
#[test]
fn it_ends_when_asked() {
    let server = Server::start(&["--ctx", "512"]);
    let idle = server.connect();
    signal(&server.child, "TERM");
    assert_eq!(server.ended(), Some(0));
    drop(idle);
}

/// Nobody reads its output any more: it goes on serving.
#[test]
fn it_serves_without_a_reader() {
    let mut server = Server::start(&[]);
    drop(std::mem::replace(&mut server.stdout, BufReader::new(replacement())));
    drop(server.child.stderr.take());
    let (status, body) = server.request("POST", "/v1/chat/completions", &question(false));
    assert_eq!(status, 200, "{body}");
}

/// A pipe that belongs to nobody, to put in place of the server's.
fn replacement() -> ChildStdout {
    let mut child = std::process::Command::new("true").stdout(std::process::Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}
