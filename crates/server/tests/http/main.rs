//! The server over real sockets, with a scripted engine and a tokenizer of 256 bytes and the special tokens.
#![allow(clippy::unwrap_used, reason = "what a test does not expect fails it")]

mod cancel;
mod chat;
mod client;
mod refusals;
mod script;
mod shutdown;
mod stream;
mod text;
mod tools;

use std::net::SocketAddr;
use std::sync::Arc;

use glm_chat::{ParseSpecial, Template, Tokenizer, VocabSource};
use serde_json::{Value, json};
use server::{Chat, Config, Listener, ModelInfo, ServeError, Shutdown};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use client::{PATIENCE, Request};
use script::{Act, Scripted, Stage};

const SPECIALS: [&str; 18] = [
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|image|>",
];

/// As short as a template of this family can be.
const TEMPLATE: &str = "[gMASK]<sop>\
    {%- if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}\
    {%- for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}\
    {%- if add_generation_prompt %}<|assistant|><think>{% endif %}";

const CONTEXT: usize = 1000;

/// Every byte by its printable stand-in, as byte-level vocabularies spell them; then the special tokens.
fn vocabulary() -> VocabSource {
    let plain = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let bytes = (0..256_u32)
        .map(|b| char::from_u32(if plain(&b) { b } else { others.next().unwrap() }).unwrap().to_string());
    let tokens: Vec<String> = bytes.chain(SPECIALS.map(str::to_owned)).collect();
    let token_types = (0..tokens.len()).map(|i| if i < 256 { 1 } else { 3 }).collect();
    VocabSource {
        model: "gpt2".into(),
        pre: "glm4".into(),
        tokens,
        token_types,
        merges: Vec::new(),
        eos: Some(256),
        eot: Some(260),
        eom: Some(262),
    }
}

/// A running server.
struct Server {
    address: SocketAddr,
    stage: Arc<Stage>,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), ServeError>>,
    tokenizer: Tokenizer,
}

impl Server {
    async fn start() -> Self {
        Self::with(Config::default()).await
    }

    async fn with(config: Config) -> Self {
        let tokenizer = Tokenizer::new(vocabulary()).unwrap();
        let template = Template::new(TEMPLATE, &tokenizer.special_texts()).unwrap();
        let chat = Arc::new(Chat::new(Tokenizer::new(vocabulary()).unwrap(), template));
        let stage = Arc::new(Stage::default());
        let info = ModelInfo { id: "tiny".into(), context: CONTEXT, vocab: tokenizer.vocab_size() };
        let engine = Box::new(Scripted { stage: Arc::clone(&stage), info });
        let shutdown = Shutdown::new();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let task = tokio::spawn(server::serve_on(listener, config, chat, engine, shutdown.clone()));
        Self { address, stage, shutdown, task, tokenizer }
    }

    /// The ids of `text`, special tokens included.
    fn ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, ParseSpecial::Yes)
    }

    /// The engine will say `text`, a byte or special token at a time, and end its turn.
    fn say(&self, text: &str) {
        self.stage.play(self.acts(text));
    }

    fn acts(&self, text: &str) -> Vec<Act> {
        self.ids(text).into_iter().map(Act::Token).collect()
    }

    async fn ask(&self, request: Request) -> (u16, Value) {
        request.ask(self.address).await
    }

    /// Waits for the server to return, having been asked to stop.
    async fn stopped(self) {
        timeout(PATIENCE, self.task).await.expect("the server stops").unwrap().unwrap();
    }
}

/// A request with one user message, and `more` fields.
fn hello(more: Value) -> Value {
    let mut body = json!({"model": "any", "messages": [{"role": "user", "content": "Hello"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}
