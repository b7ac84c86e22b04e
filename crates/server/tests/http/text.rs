//! `/v1/completions`.

use serde_json::{Value, json};

use crate::client::Request;
use crate::{CONTEXT, Server};

fn request(body: Value) -> Request {
    Request::post("/v1/completions", &body)
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_continued_as_it_is() {
    let server = Server::start().await;
    let said = "a</think>b<tool_call>f</tool_call>😀";
    server.say(said);
    let (status, reply) = server.ask(request(json!({"prompt": "Once"}))).await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(reply["object"], "text_completion");
    assert!(reply["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(
        reply["choices"],
        json!([{"text": said, "index": 0, "logprobs": null, "finish_reason": "stop"}])
    );
    assert_eq!(reply["usage"]["prompt_tokens"], 4);
    assert_eq!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);

    server.say(said);
    let stream = json!({"prompt": "Once", "stream": true, "stream_options": {"include_usage": true}});
    let events = request(stream).open(server.address).await.events().await;
    let text: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, said);
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events.last().unwrap()["choices"], json!([]));
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn special_tokens_are_parsed_unless_refused() {
    let server = Server::start().await;
    let text = "<|user|>a";
    server.ask(request(json!({"prompt": text}))).await;
    server.ask(request(json!({"prompt": text, "parse_special": false}))).await;
    server.ask(request(json!({"prompt": [260, 97]}))).await;
    let prompts = server.stage.seen().prompts;
    assert_eq!(prompts[0], [260, 97]);
    assert_eq!(prompts[1], text.bytes().map(u32::from).collect::<Vec<_>>());
    assert_eq!(prompts[2], [260, 97]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_and_length() {
    let server = Server::start().await;
    server.say("one two three");
    let (_, reply) = server.ask(request(json!({"prompt": "a", "stop": "two"}))).await;
    assert_eq!(reply["choices"][0]["text"], "one ");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    server.say("one two three");
    let (_, reply) = server.ask(request(json!({"prompt": "a", "max_tokens": 5, "stop": "two"}))).await;
    assert_eq!(reply["choices"][0]["text"], "one t");
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_are_none_are_refused() {
    let server = Server::start().await;
    let cases = [
        (json!({"prompt": ""}), "prompt", "at least one token"),
        (json!({"prompt": [[], []]}), "prompt", "only one prompt"),
        (json!({"prompt": [274]}), "prompt[0]", "is not a token id below 274"),
        (json!({"prompt": "a", "best_of": 2}), "best_of", "only 1"),
    ];
    for (body, path, text) in cases {
        let (status, reply) = server.ask(request(body.clone())).await;
        assert_eq!((status, &reply["error"]["param"]), (400, &json!(path)), "{body}: {reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains(text), "{reply}");
    }
    let (status, reply) = server.ask(request(json!({"prompt": vec![97; CONTEXT]}))).await;
    assert_eq!((status, &reply["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(reply["error"]["message"].as_str().unwrap().contains("your prompt resulted in 1000 tokens"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_names_its_seed() {
    let server = Server::start().await;
    let (_, given) = server.ask(request(json!({"prompt": "a", "seed": 42}))).await;
    assert_eq!(given["seed"], 42);
    for more in [json!({}), json!({"include_usage": true})] {
        let (_, drawn) = server.ask(request(json!({"prompt": "a"}))).await;
        let stream = json!({"prompt": "a", "seed": drawn["seed"], "stream": true, "stream_options": more});
        let events = request(stream).open(server.address).await.events().await;
        assert_eq!(events.last().unwrap()["seed"], drawn["seed"]);
        let options = server.stage.seen().options;
        let seeds: Vec<u64> = options.iter().rev().take(2).map(|options| options.sampler.seed).collect();
        assert_eq!(seeds[0], seeds[1], "the drawn one, given again, is the same");
        assert!(seeds[0] < 1 << 53, "a JavaScript client gives it back as it is");
    }
}
