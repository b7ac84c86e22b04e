//! A small HTTP/1.1 client that shows what is on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No test waits longer than this for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One request on its own connection.
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    pub fn new(method: &'static str, path: &str) -> Self {
        let headers = vec![("Host".to_owned(), "localhost".to_owned())];
        Self { method, path: path.to_owned(), headers, body: Vec::new() }
    }

    pub fn post(path: &str, body: &Value) -> Self {
        Self::post_bytes(path, body.to_string().as_bytes())
    }

    pub fn post_bytes(path: &str, body: &[u8]) -> Self {
        let mut request = Self::new("POST", path).header("Content-Type", "application/json");
        request.body = body.to_vec();
        request.header("Content-Length", &body.len().to_string())
    }

    pub fn chat(body: &Value) -> Self {
        Self::post("/v1/chat/completions", body)
    }

    /// Sets a header; an empty value removes it.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sends it and reads the reply's head.
    pub async fn open(self, address: SocketAddr) -> Reply {
        let stream = self.send(address).await;
        Reply::read(stream).await
    }

    /// Sends it and leaves at once, without waiting for an answer; the connection stays open until dropped.
    pub async fn send(self, address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.write_all(&self.body).await.unwrap();
        stream
    }

    /// Sends it and reads the whole reply.
    pub async fn ask(self, address: SocketAddr) -> (u16, Value) {
        let mut reply = self.open(address).await;
        let status = reply.status;
        let body = reply.rest().await;
        let json = serde_json::from_slice(&body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&body)));
        (status, json)
    }
}

/// A reply whose head has arrived.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    stream: TcpStream,
    raw: Vec<u8>,
    /// Decoded body bytes not yet taken.
    body: Vec<u8>,
    ended: bool,
}

impl Reply {
    pub async fn read(stream: TcpStream) -> Self {
        let mut reply =
            Self { status: 0, headers: Vec::new(), stream, raw: Vec::new(), body: Vec::new(), ended: false };
        let end = loop {
            if let Some(at) = reply.raw.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            assert!(reply.fill().await, "the connection ended before a head: {:?}", reply.raw);
        };
        let head = String::from_utf8(reply.raw[..end].to_vec()).unwrap();
        reply.raw.drain(..end + 4);
        let mut lines = head.split("\r\n");
        reply.status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        reply.headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        reply
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Reads more from the socket; false at its end.
    async fn fill(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let n = timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("a byte in time").unwrap_or(0);
        self.raw.extend_from_slice(&buffer[..n]);
        n > 0
    }

    /// Decodes what `raw` holds; chunked or by length.
    fn decode(&mut self) {
        if self.header("transfer-encoding") == Some("chunked") {
            while let Some(at) = self.raw.windows(2).position(|w| w == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..at]).unwrap(), 16).unwrap();
                if self.raw.len() < at + 2 + size + 2 {
                    return;
                }
                self.body.extend_from_slice(&self.raw[at + 2..at + 2 + size]);
                self.raw.drain(..at + 2 + size + 2);
                self.ended = size == 0;
            }
        } else {
            let total: usize = self.header("content-length").map_or(0, |n| n.parse().unwrap());
            self.ended = self.raw.len() >= total;
            if self.ended {
                self.body = self.raw.drain(..total).collect();
            }
        }
    }

    /// The rest of the body.
    pub async fn rest(&mut self) -> Vec<u8> {
        loop {
            self.decode();
            if self.ended || !self.fill().await {
                return std::mem::take(&mut self.body);
            }
        }
    }

    /// The next event block, without its blank line: a `data:` line or a comment. None at the end.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            self.decode();
            if let Some(at) = self.body.windows(2).position(|w| w == b"\n\n") {
                let block: Vec<u8> = self.body.drain(..at + 2).collect();
                return Some(String::from_utf8(block[..at].to_vec()).expect("whole code points"));
            }
            if self.ended || !self.fill().await {
                assert!(self.body.is_empty(), "half an event: {:?}", self.body);
                return None;
            }
        }
    }

    /// All events up to `[DONE]`, which must be the last.
    pub async fn events(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut done = false;
        while let Some(block) = self.event().await {
            assert!(!done, "after [DONE]: {block}");
            if block.starts_with(':') {
                continue;
            }
            let data = block.strip_prefix("data: ").expect("a data line");
            if data == "[DONE]" {
                done = true;
            } else {
                all.push(serde_json::from_str(data).unwrap());
            }
        }
        assert!(done, "no [DONE] after {all:?}");
        all
    }
}
