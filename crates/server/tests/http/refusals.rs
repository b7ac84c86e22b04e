//! What the server says no to, and how.

use serde_json::{Value, json};
use server::Config;
use tokio::io::AsyncWriteExt;

use crate::client::{Reply, Request};
use crate::{CONTEXT, Server, hello};

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_field_is_named() {
    let server = Server::start().await;
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let assistant = |call: Value| json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]});
    let tool = |tool: Value| hello(json!({"tools": [tool]}));
    let cases = [
        (json!({}), "messages", "expected an array of messages, found nothing"),
        (json!({"messages": null}), "messages", "found nothing"),
        (json!({"messages": "hi"}), "messages", "expected an array, found a string"),
        (json!({"messages": []}), "messages", "at least one message"),
        (json!({"messages": [null]}), "messages[0]", "expected an object, found nothing"),
        (json!({"messages": ["hi"]}), "messages[0]", "expected an object, found a string"),
        (json!({"messages": [{"content": "a"}]}), "messages[0].role", "expected a string, found nothing"),
        (json!({"messages": [{"role": 5, "content": "a"}]}), "messages[0].role", "found a number"),
        (
            json!({"messages": [{"role": "king", "content": "a"}]}),
            "messages[0].role",
            "\"king\" is not one of",
        ),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content", "found nothing"),
        (user(json!(5)), "messages[0].content", "expected a string or an array of parts, found a number"),
        (user(json!({"text": "a"})), "messages[0].content", "found an object"),
        (user(json!([5])), "messages[0].content[0]", "expected an object, found a number"),
        (user(json!([{"text": "a"}])), "messages[0].content[0].type", "expected a string, found nothing"),
        (user(json!([{"type": "text"}])), "messages[0].content[0].text", "expected a string, found nothing"),
        (
            user(
                json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]),
            ),
            "messages[0].content[1]",
            "images are not supported",
        ),
        (
            user(json!([{"type": "input_audio"}])),
            "messages[0].content[0]",
            "\"input_audio\" are not supported",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": "a", "reasoning_content": 5}]}),
            "messages[0].reasoning_content",
            "expected a string",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": {}}]}),
            "messages[0].tool_calls",
            "expected an array, found an object",
        ),
        (assistant(json!("f")), "messages[1].tool_calls[0]", "expected an object"),
        (assistant(json!({"id": "a"})), "messages[1].tool_calls[0].function", "found nothing"),
        (
            assistant(json!({"function": {"name": null, "arguments": "{}"}})),
            "messages[1].tool_calls[0].function.name",
            "expected a string, found nothing",
        ),
        (
            assistant(json!({"function": {"name": "f", "arguments": 5}})),
            "messages[1].tool_calls[0].function.arguments",
            "expected a string or an object",
        ),
        (hello(json!({"tools": {}})), "tools", "expected an array, found an object"),
        (tool(json!(5)), "tools[0]", "expected an object"),
        (tool(json!({"function": {"name": "f"}})), "tools[0].type", "expected a string, found nothing"),
        (tool(json!({"type": "function"})), "tools[0].function", "expected an object, found nothing"),
        (tool(json!({"type": "function", "function": {}})), "tools[0].function.name", "found nothing"),
        (
            tool(json!({"type": "function", "function": {"name": ""}})),
            "tools[0].function.name",
            "not be empty",
        ),
        (
            tool(json!({"type": "function", "function": {"name": "f", "parameters": []}})),
            "tools[0].function.parameters",
            "expected an object, found an array",
        ),
        (hello(json!({"tool_choice": "required"})), "tool_choice", "not supported"),
        (hello(json!({"tool_choice": "maybe"})), "tool_choice", "is not one of"),
        (
            hello(json!({"tool_choice": {"type": "function", "function": {"name": "f"}}})),
            "tool_choice",
            "not supported",
        ),
        (hello(json!({"parallel_tool_calls": 1})), "parallel_tool_calls", "expected true or false"),
        (hello(json!({"n": 2})), "n", "only 1 is supported"),
        (hello(json!({"logprobs": true})), "logprobs", "not supported"),
        (hello(json!({"top_logprobs": 3})), "top_logprobs", "not supported"),
        (hello(json!({"response_format": "json"})), "response_format", "expected an object"),
        (hello(json!({"response_format": {}})), "response_format.type", "found nothing"),
        (hello(json!({"response_format": {"type": "json_object"}})), "response_format", "not supported"),
        (
            hello(json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}})),
            "response_format",
            "\"json_schema\" is not supported",
        ),
        (hello(json!({"grammar": "root ::= \"a\""})), "grammar", "not supported"),
        (hello(json!({"reasoning_effort": 5})), "reasoning_effort", "expected a string"),
        (hello(json!({"reasoning": "high"})), "reasoning", "expected an object"),
        (hello(json!({"enable_thinking": "no"})), "enable_thinking", "expected true or false"),
        (hello(json!({"thinking": {"type": "perhaps"}})), "thinking.type", "is not one of"),
        (hello(json!({"chat_template_kwargs": []})), "chat_template_kwargs", "expected an object"),
        (hello(json!({"model": 5})), "model", "expected a string"),
        (hello(json!({"temperature": "hot"})), "temperature", "expected a number, found a string"),
        (hello(json!({"stop": [""]})), "stop[0]", "must not be empty"),
        (hello(json!({"logit_bias": {"274": 1}})), "logit_bias.274", "is not a token id below 274"),
    ];
    for (body, path, text) in cases {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let (status, reply) = server.ask(Request::chat(&body)).await;
            assert_eq!(status, 400, "{body}: {reply}");
            let error = &reply["error"];
            assert_eq!(error["param"], path, "{body}: {reply}");
            assert_eq!(error["type"], "invalid_request_error");
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(path) && message.contains(text), "{body}: {message}");
        }
    }
    assert!(server.stage.seen().prompts.is_empty(), "nothing reached the engine");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_object_is_refused() {
    let server = Server::start().await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"{\"messages\": [}",
        b"\xff\xfe",
        b"{\"messages\": \"\xff\"}",
        b"[]",
        b"null",
        b"{\"temperature\": 1e999, \"messages\": []}",
        deep.as_bytes(),
    ];
    for body in bodies {
        for path in ["/v1/chat/completions", "/v1/completions"] {
            let (status, reply) = server.ask(Request::post_bytes(path, body)).await;
            assert_eq!(status, 400, "{reply}");
            assert!(reply["error"]["message"].as_str().unwrap().starts_with("The request body"), "{reply}");
        }
    }
}

/// A completion that ignored what it was asked to look like would be taken for one that does.
#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_is_never_ignored() {
    let server = Server::start().await;
    let constraints = [
        ("response_format", json!({"type": "json_object"})),
        ("grammar", json!("root ::= \"a\"")),
        ("guided_json", json!({})),
        ("structured_outputs", json!({"regex": "a"})),
    ];
    for (key, value) in constraints {
        for (path, body) in
            [("/v1/chat/completions", hello(json!({}))), ("/v1/completions", json!({"prompt": "a"}))]
        {
            let mut body = body;
            body[key] = value.clone();
            let (status, reply) = server.ask(Request::post(path, &body)).await;
            assert_eq!((status, &reply["error"]["param"]), (400, &json!(key)), "{path}: {reply}");
        }
    }
    let plain = json!({"prompt": "a", "response_format": {"type": "text"}, "max_tokens": 1});
    assert_eq!(server.ask(Request::post("/v1/completions", &plain)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_matter_is_ignored() {
    let server = Server::start().await;
    let more = json!({
        "user": "me", "metadata": {"a": 1}, "store": false, "service_tier": "auto", "cache_prompt": true, "hello": [1],
        "n": 1, "logprobs": false, "top_logprobs": 0, "response_format": {"type": "text"}, "tools": [],
        "tool_choice": "auto", "stop": null, "logit_bias": {}, "model": "gpt-5",
    });
    let (status, reply) = server.ask(Request::chat(&hello(more))).await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_too_long_is_refused_with_both_numbers() {
    let server = Server::start().await;
    let frame = server.ids("[gMASK]<sop><|user|><|assistant|><think>").len();
    for (length, fits) in [(CONTEXT - frame - 1, true), (CONTEXT - frame, false), (CONTEXT * 5, false)] {
        for stream in [false, true] {
            let body =
                json!({"stream": stream, "messages": [{"role": "user", "content": "x".repeat(length)}]});
            if fits {
                assert_eq!(Request::chat(&body).open(server.address).await.status, 200);
                let seen = server.stage.wait("it", |seen| !seen.options.is_empty());
                assert_eq!(seen.options[0].max_tokens, 1);
                continue;
            }
            let (status, reply) = server.ask(Request::chat(&body)).await;
            assert_eq!(status, 400, "{reply}");
            let error = &reply["error"];
            let tokens = length + frame;
            assert_eq!(error["code"], "context_length_exceeded");
            assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(tokens), &json!(CONTEXT)));
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("maximum context length is 1000 tokens"), "{message}");
            assert!(message.contains(&format!("your messages resulted in {tokens} tokens")), "{message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_are_json() {
    let server = Server::start().await;
    for path in
        ["/", "/v1", "/v2/chat/completions", "/v1/chat/completions/", "/v1/embeddings", "/favicon.ico"]
    {
        let (status, reply) = server.ask(Request::get(path)).await;
        assert_eq!(status, 404, "{path}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("There is no GET {path}.")), "{message}");
    }
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("GET", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET,HEAD"),
        ("DELETE", "/health", "GET,HEAD"),
    ] {
        let mut reply = Request::new(method, path).open(server.address).await;
        assert_eq!(reply.status, 405, "{method} {path}");
        assert_eq!(reply.header("allow"), Some(allow));
        assert_eq!(reply.header("access-control-allow-origin"), None);
        let body: Value = serde_json::from_slice(&reply.rest().await).unwrap();
        assert_eq!(body["error"]["code"], "method_not_allowed");
    }
    // A query does not change the path.
    assert_eq!(server.ask(Request::post("/v1/chat/completions?beta=true", &hello(json!({})))).await.0, 200);
    for model in ["none", "a/b", "%ff", "%C3%28", "%00"] {
        let (status, reply) = server.ask(Request::get(&format!("/v1/models/{model}"))).await;
        assert_eq!((status, &reply["error"]["code"]), (404, &json!("not_found")), "{model}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_cannot_fit_is_not_tokenised() {
    let server = Server::start().await;
    // The longest token has 16 bytes, so that 16,001 bytes are more than 1000 tokens whatever they are.
    let text = "x".repeat(16_001);
    for (path, body, name) in [
        ("/v1/completions", json!({ "prompt": text }), "prompt"),
        ("/v1/completions", json!({ "prompt": [text], "parse_special": false }), "prompt"),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": text}]}), "messages"),
    ] {
        let (status, reply) = server.ask(Request::post(path, &body)).await;
        let error = &reply["error"];
        assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")), "{reply}");
        assert_eq!((&error["param"], &error["n_ctx"]), (&json!(name), &json!(CONTEXT)));
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("context length is 1000 tokens") && message.contains(" bytes, which are"),
            "{message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_integer_of_any_size_is_no_text() {
    let server = Server::start().await;
    let big = "123456789012345678901";
    let chat = |part: &str| format!("{{\"messages\": [{{\"role\": \"user\", \"content\": {part}}}]}}");
    for (body, path) in [
        (chat(big), "messages[0].content"),
        (chat(&format!("[{big}]")), "messages[0].content[0]"),
        (chat(&format!("\"a\"}}], \"tool_choice\": {big}, \"x\": [{{\"y\": 1")), "tool_choice"),
        (format!("{{\"messages\": [{{\"role\": {big}, \"content\": \"a\"}}]}}"), "messages[0].role"),
    ] {
        let (status, reply) = server.ask(Request::post_bytes("/v1/chat/completions", body.as_bytes())).await;
        assert_eq!((status, &reply["error"]["param"]), (400, &json!(path)), "{body}: {reply}");
        assert!(
            reply["error"]["message"].as_str().unwrap().contains("a number of more than 64 bits"),
            "{reply}"
        );
    }
    let body = format!("{{{big}: 1, \"messages\": []}}");
    let (status, reply) = server.ask(Request::post_bytes("/v1/chat/completions", body.as_bytes())).await;
    assert_eq!(status, 400);
    assert!(
        reply["error"]["message"].as_str().unwrap().starts_with("The request body is not JSON"),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_told_before_the_body_is_read() {
    let server = Server::with(Config { queue: 0, ..Config::default() }).await;
    let head = |length: usize| {
        Request::new("POST", "/v1/chat/completions")
            .header("Content-Type", "application/json")
            .header("Content-Length", &length.to_string())
    };
    // None of the body has come, and none is asked for.
    let reply = head(1000).header("Expect", "100-continue").open(server.address).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("5")));
    // Who sends before reading still reads the reply.
    let body = vec![b' '; 31 << 20];
    assert_eq!(Request::post_bytes("/v1/chat/completions", &body).open(server.address).await.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_share_one_memory() {
    let config = Config { max_body: 40_000, max_bodies: 40_000, ..Config::default() };
    let server = Server::with(config).await;
    let mut body = hello(json!({})).to_string();
    body.push_str(&" ".repeat(30_000 - body.len()));
    let half_sent = async || {
        let request = Request::new("POST", "/v1/chat/completions")
            .header("Content-Type", "application/json")
            .header("Content-Length", "30000");
        let mut slow = request.send(server.address).await;
        slow.write_all(&body.as_bytes()[..29_000]).await.unwrap();
        slow
    };
    let mut slow = half_sent().await;
    // As soon as the server has read those, there is no room for another. Where the other was read first, there was none
    // for the half: it has its answer, and another half is sent.
    let full = loop {
        let reply = Request::post_bytes("/v1/chat/completions", body.as_bytes()).open(server.address).await;
        if reply.status != 200 {
            break reply;
        }
        if slow.try_read(&mut [0]).is_ok() {
            slow = half_sent().await;
        }
    };
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    slow.write_all(&body.as_bytes()[29_000..]).await.unwrap();
    assert_eq!(Reply::read(slow).await.status, 200);
    let (status, reply) = server.ask(Request::post_bytes("/v1/chat/completions", body.as_bytes())).await;
    assert_eq!(status, 200, "the room is free again: {reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_json_is_taken() {
    let server = Server::start().await;
    let cases = [
        ("", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
        ("multipart/form-data; boundary=application/json", 415),
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
    ];
    for (kind, expected) in cases {
        let request = Request::chat(&hello(json!({}))).header("Content-Type", kind);
        let (status, reply) = server.ask(request).await;
        assert_eq!(status, expected, "{kind:?}: {reply}");
        if status == 415 {
            assert!(reply["error"]["message"].as_str().unwrap().contains("must be application/json"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused_before_and_while_reading() {
    let server = Server::with(Config { max_body: 10_000, ..Config::default() }).await;
    // Declared: refused without a byte of it.
    let declared = Request::new("POST", "/v1/chat/completions")
        .header("Content-Type", "application/json")
        .header("Content-Length", "10001")
        .header("Expect", "100-continue");
    let mut reply = declared.open(server.address).await;
    assert_eq!(reply.status, 413);
    let body: Value = serde_json::from_slice(&reply.rest().await).unwrap();
    assert_eq!(body["error"]["code"], "request_too_large");
    assert!(body["error"]["message"].as_str().unwrap().contains("10000 bytes"));

    // Sent whole before reading: the answer still arrives.
    let big = hello(json!({"user": "x".repeat(15_000)}));
    assert_eq!(Request::chat(&big).open(server.address).await.status, 413);

    // Chunked: refused once it is too much.
    let mut socket = Request::new("POST", "/v1/chat/completions")
        .header("Content-Type", "application/json")
        .header("Transfer-Encoding", "chunked")
        .send(server.address)
        .await;
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
    for _ in 0..3 {
        socket.write_all(chunk.as_bytes()).await.unwrap();
    }
    assert_eq!(Reply::read(socket).await.status, 413);

    // Exactly the limit is taken.
    let mut body = hello(json!({})).to_string();
    body.push_str(&" ".repeat(10_000 - body.len()));
    let request = Request::post_bytes("/v1/chat/completions", body.as_bytes());
    assert_eq!(server.ask(request).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_before_reading_still_reads_the_413() {
    // More than the sockets' buffers hold, so that the client is still sending when the answer is written.
    let server = Server::with(Config { max_body: 16 << 20, ..Config::default() }).await;
    let body = vec![b' '; 31 << 20];
    let mut reply = Request::post_bytes("/v1/chat/completions", &body).open(server.address).await;
    assert_eq!(reply.status, 413);
    assert!(String::from_utf8(reply.rest().await).unwrap().contains("16777216 bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_pages_are_refused() {
    let config = Config {
        allowed_hosts: vec!["desk.lan".into()],
        allowed_origins: vec!["https://chat.example".into()],
        ..Config::default()
    };
    let server = Server::with(config).await;
    let own = format!("http://{}", server.address);
    for (name, value, expected) in [
        ("Host", "localhost", 200),
        ("Host", "127.0.0.1:8080", 200),
        ("Host", "desk.lan:8080", 200),
        ("Host", "evil.example:8080", 403),
        ("Host", "", 403),
        ("Origin", "https://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "https://chat.example", 200),
        ("Origin", "http://localhost", 200),
        ("Origin", own.as_str(), 403),
    ] {
        for request in [Request::get("/v1/models"), Request::chat(&hello(json!({})))] {
            let (status, reply) = server.ask(request.header(name, value)).await;
            assert_eq!(status, expected, "{name}: {value:?}: {reply}");
            if status == 403 {
                assert_eq!(reply["error"]["type"], "permission_error");
            }
        }
    }
    let (status, _) = server.ask(Request::get("/none").header("Host", "evil.example")).await;
    assert_eq!(status, 403, "nothing is told to a foreign host");
}

#[tokio::test(flavor = "multi_thread")]
async fn models_and_health() {
    let server = Server::start().await;
    let (status, list) = server.ask(Request::get("/v1/models")).await;
    assert_eq!((status, &list["object"]), (200, &json!("list")));
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!("tiny"), &json!("model")));
    assert_eq!((&model["context_length"], &model["meta"]["n_ctx"]), (&json!(CONTEXT), &json!(CONTEXT)));
    assert_eq!(server.ask(Request::get("/v1/models/tiny")).await, (200, model.clone()));
    assert_eq!(server.ask(Request::get("/health")).await, (200, json!({"status": "ok"})));
}
