//! `maya serve` end to end: the real binary, the demo model, HTTP.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{LOOPING, changed, endless, maya, poisoned, signal, text};

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
        Self::reply(self.send(method, path, body))
    }

    /// Sends a request and does not wait for its reply.
    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        stream
    }

    /// Status and body of what is sent back.
    fn reply(mut stream: TcpStream) -> (u16, String) {
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

/// A client that leaves takes its request with it: a long answer, streamed or not, does not keep the next one waiting.
#[test]
fn a_dropped_request_frees_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    // One thread of `exact` takes a minute or more for 16,000 tokens, and one token to notice that nobody listens.
    let model = text(&endless(folder.path()));
    let server = Server::start(&["--threads", "1", "--precision", "exact", "--model", &model]);
    let ask = |max_tokens: u32, stream: bool| {
        json!({
            "messages": [{"role": "user", "content": "Tell me a story."}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": stream,
        })
        .to_string()
    };
    let send = |body: &str| server.send("POST", "/v1/chat/completions", body);
    for stream in [true, false] {
        let mut long = send(&ask(16_000, stream));
        if stream {
            long.read_exact(&mut [0; 2048]).unwrap();
        } else {
            std::thread::sleep(Duration::from_secs(1));
        }
        // It runs: the next one gets no byte.
        let mut next = send(&ask(2, false));
        next.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
        let early = next.read(&mut [0; 1]);
        assert!(early.is_err(), "stream {stream}: {early:?}");
        drop(long);
        let dropped = Instant::now();
        next.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let (status, body) = Server::reply(next);
        assert_eq!(status, 200, "{body}");
        let reply: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(reply["usage"]["completion_tokens"], 2, "{body}");
        assert!(dropped.elapsed() < Duration::from_secs(15), "stream {stream}: {:?}", dropped.elapsed());
    }
}

/// Weights that are not numbers fail the request with the tensor's name, from the first token on, and not the process.
#[test]
fn poisoned_weights_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--model", &text(&poisoned(folder.path()))]);
    let one_token = json!({"prompt": [5], "max_tokens": 4}).to_string();
    let chat = question(false);
    let named = "NaN or infinity in ffn_down_exps of layer 3, at position ";
    for (path, body, says) in [
        ("/v1/completions", &one_token, &format!("{named}0")),
        // Which rows of a longer prompt fail first depends on the experts that they take.
        ("/v1/chat/completions", &chat, &named.to_owned()),
        ("/v1/completions", &one_token, &format!("{named}0")),
    ] {
        let (status, reply) = server.request("POST", path, body);
        assert_eq!(status, 500, "{path}: {reply}");
        let error: Value = serde_json::from_str(&reply).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{path}: {message}");
        let (status, reply) = server.request("GET", "/health", "");
        assert_eq!(status, 200, "{reply}");
    }
    signal(&server.child, "INT");
    assert_eq!(server.ended(), Some(0));
}

/// A template that does not end is the request's failure, in one sentence.
#[test]
fn a_looping_template_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let same = |name: &str| (name.to_owned(), None);
    let path = changed(folder.path(), &[("tokenizer.chat_template", LOOPING.into())], &same);
    let server = Server::start(&["--model", &text(&path)]);
    let (status, body) = server.request("POST", "/v1/chat/completions", &question(false));
    assert_eq!(status, 400, "{body}");
    let error: Value = serde_json::from_str(&body).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with(
            "The conversation cannot be rendered: tokenizer.chat_template does not come to an end"
        ),
        "{message}"
    );
    // What needs no template still works.
    let (status, body) =
        server.request("POST", "/v1/completions", &json!({"prompt": "Hi", "max_tokens": 2}).to_string());
    assert_eq!(status, 200, "{body}");
}

/// The second Ctrl-C cuts the running answer, which the first would have let finish, and ends with 130.
#[test]
fn a_second_control_c_cuts_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&endless(folder.path()));
    let mut server = Server::start(&["--threads", "1", "--precision", "exact", "--model", &model]);
    let body = json!({"prompt": "Once", "temperature": 0, "max_tokens": 16_000, "stream": true}).to_string();
    let mut long = server.send("POST", "/v1/completions", &body);
    long.read_exact(&mut [0; 2048]).unwrap();
    signal(&server.child, "INT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.child.try_wait().unwrap().is_none(), "the first one ended it");
    // Still answering.
    long.read_exact(&mut [0; 1024]).unwrap();
    let second = Instant::now();
    signal(&server.child, "INT");
    // The client is told why, which a process that ends at once has no time for.
    let mut rest = String::new();
    long.read_to_string(&mut rest).unwrap();
    let mut events = rest.lines().rev().filter_map(|l| l.strip_prefix("data: "));
    let told = events.find(|event| *event != "[DONE]").unwrap_or_else(|| panic!("{rest}"));
    assert!(told.contains("503") && told.contains("shutting down"), "{told}");
    assert_eq!(server.ended(), Some(130));
    // The first one alone waits 20 s for the answer.
    assert!(second.elapsed() < Duration::from_secs(15), "{:?}", second.elapsed());
}

/// `--seed` is the seed of requests that name none: two drawn answers are then the same.
#[test]
fn a_seed_for_all() {
    let server = Server::start(&["--seed", "7"]);
    let body = json!({"prompt": "A story:", "temperature": 1.5, "top_p": 1, "max_tokens": 20}).to_string();
    let texts = [0, 1].map(|_| {
        let (status, reply) = server.request("POST", "/v1/completions", &body);
        assert_eq!(status, 200, "{reply}");
        let reply: Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(reply["seed"], 7, "{reply}");
        reply["choices"][0]["text"].as_str().unwrap().to_owned()
    });
    assert_eq!(texts[0], texts[1]);
}

/// Bound to more than this machine it says that anybody may use it.
#[test]
fn an_open_door_is_told() {
    for (host, told) in [("0.0.0.0", true), ("127.0.0.1", false)] {
        let mut server = Server::start(&["--host", host]);
        signal(&server.child, "INT");
        let mut stderr = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr.contains("--host 0.0.0.0 lets everybody"), told, "{stderr}");
        assert_eq!(server.ended(), Some(0));
    }
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
