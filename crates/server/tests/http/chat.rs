//! Whole chat replies.

use glm_chat::ParseSpecial;
use serde_json::json;

use crate::client::Request;
use crate::script::Act;
use crate::{CONTEXT, Server, hello};
use server::Finish;

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_has_reasoning_text_and_counts() {
    let server = Server::start().await;
    server.say("I greet.</think>Hi there");
    let (status, reply) = server.ask(Request::chat(&hello(json!({"seed": 5})))).await;
    assert_eq!(status, 200, "{reply}");
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["model"], "tiny");
    assert!(reply["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &reply["choices"][0];
    assert_eq!(
        choice["message"],
        json!({"role": "assistant", "content": "Hi there", "reasoning_content": "I greet."})
    );
    assert_eq!(choice["finish_reason"], "stop");
    let prompt = server.ids("[gMASK]<sop><|user|>Hello<|assistant|><think>");
    let seen = server.stage.seen();
    assert_eq!(seen.prompts[0], prompt);
    assert_eq!(
        reply["usage"],
        json!({
            "prompt_tokens": prompt.len(), "completion_tokens": 17, "total_tokens": prompt.len() + 17,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 9},
        })
    );
    assert_eq!(seen.options[0].sampler.seed, 5);
    assert_eq!(seen.options[0].stop_tokens, [256, 260, 262]);
    assert_eq!(seen.options[0].max_tokens, CONTEXT - prompt.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_off_closes_the_block_and_starts_with_text() {
    let server = Server::start().await;
    let spellings = [
        json!({"chat_template_kwargs": {"enable_thinking": false}}),
        json!({"chat_template_kwargs": {"thinking": false}}),
        json!({"enable_thinking": false}),
        json!({"thinking": false}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"reasoning_effort": "none"}),
        json!({"reasoning_effort": "minimal"}),
        json!({"reasoning": {"effort": "none"}}),
    ];
    for more in spellings {
        server.say("Hi");
        let (_, reply) = server.ask(Request::chat(&hello(more.clone()))).await;
        assert_eq!(reply["choices"][0]["message"], json!({"role": "assistant", "content": "Hi"}), "{more}");
        assert_eq!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
        let prompt = server.stage.seen().prompts.pop().unwrap();
        assert!(prompt.ends_with(&server.ids("<think></think>")), "{more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ends_without_closing_its_thoughts_has_content() {
    let server = Server::start().await;
    server.say("Paris.");
    let (_, reply) = server.ask(Request::chat(&hello(json!({})))).await;
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    assert_eq!(reply["choices"][0]["message"]["content"], "Paris.", "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_clamped_and_named() {
    let server = Server::start().await;
    let room = CONTEXT - server.ids("[gMASK]<sop><|user|>Hello<|assistant|><think>").len();
    let cases = [
        (json!({"max_tokens": 3}), 3),
        (json!({"max_completion_tokens": 4, "max_tokens": 3}), 4),
        (json!({"max_tokens": 32000}), room),
        (json!({"max_tokens": 0}), room),
        (json!({"max_tokens": -1}), room),
        (json!({"max_tokens": null}), room),
        (json!({"max_tokens": 9_223_372_036_854_775_807_i64}), room),
    ];
    for (more, limit) in cases {
        server.say("</think>abcdefgh");
        let (status, reply) = server.ask(Request::chat(&hello(more.clone()))).await;
        assert_eq!(status, 200, "{reply}");
        assert_eq!(server.stage.seen().options.pop().unwrap().max_tokens, limit, "{more}");
        let expected = if limit < 9 { "length" } else { "stop" };
        assert_eq!(reply["choices"][0]["finish_reason"], expected, "{more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_character_ends_as_a_replacement() {
    let server = Server::start().await;
    server.stage.play(server.acts("</think>a😀"));
    let (_, whole) = server.ask(Request::chat(&hello(json!({})))).await;
    assert_eq!(whole["choices"][0]["message"]["content"], "a😀");
    server.stage.play(server.acts("</think>a😀"));
    let (_, cut) = server.ask(Request::chat(&hello(json!({"max_tokens": 4})))).await;
    assert_eq!(cut["choices"][0]["message"]["content"], "a\u{fffd}");
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_ends_text_and_not_thoughts() {
    let server = Server::start().await;
    server.say("not own fox here</think>The quick brown fox jumps");
    let (_, reply) = server.ask(Request::chat(&hello(json!({"stop": ["own fox", "ZZZ"]})))).await;
    let message = &reply["choices"][0]["message"];
    assert_eq!(message["content"], "The quick br");
    assert_eq!(message["reasoning_content"], "not own fox here");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    // The engine stops with the token that completes the match.
    let seen = server.stage.seen();
    assert_eq!(seen.cancelled, 1);
    let spoken = server.ids("not own fox here</think>The quick brown fox").len();
    assert_eq!(seen.steps, spoken);
    assert_eq!(reply["usage"]["completion_tokens"], spoken);
}

#[tokio::test(flavor = "multi_thread")]
async fn special_tokens_in_a_message_are_text() {
    let server = Server::start().await;
    let text = "a<|user|>b</think>";
    let body = json!({"messages": [{"role": "user", "content": text}]});
    server.ask(Request::chat(&body)).await;
    let prompt = server.stage.seen().prompts.pop().unwrap();
    let count = |name: &str| prompt.iter().filter(|id| **id == server.ids(name)[0]).count();
    assert_eq!((count("<|user|>"), count("</think>")), (1, 0));
    assert_eq!(server.tokenizer.decode(&prompt), format!("[gMASK]<sop><|user|>{text}<|assistant|><think>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_reasoning_reach_the_template() {
    let server = Server::start().await;
    let body = json!({"messages": [
        {"role": "developer", "content": "Be terse."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]});
    let (status, reply) = server.ask(Request::chat(&body)).await;
    assert_eq!(status, 200, "{reply}");
    let prompt = server.tokenizer.decode(&server.stage.seen().prompts[0]);
    assert!(prompt.starts_with("[gMASK]<sop><|system|>Be terse.<|user|>"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_error_is_a_500_and_the_next_request_is_served() {
    let server = Server::start().await;
    let ask = || server.ask(Request::chat(&hello(json!({}))));

    server.stage.play(vec![Act::Sequence("position 3 of layer 2 is not finite")]);
    let (status, reply) = ask().await;
    assert_eq!((status, &reply["error"]["type"]), (500, &json!("server_error")), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("position 3 of layer 2"), "{reply}");
    assert_eq!(ask().await.0, 200);
    assert_eq!(server.stage.seen().recovered, 0);

    server.stage.play(vec![Act::Engine("the device is gone")]);
    assert_eq!(ask().await.0, 500);
    assert_eq!(ask().await.0, 200);
    assert_eq!(server.stage.seen().recovered, 1);

    server.stage.play(vec![Act::Prefill(1, 2), Act::Panic]);
    let (status, reply) = ask().await;
    assert_eq!(status, 500);
    assert!(!reply.to_string().contains("a scripted panic"), "{reply}");
    assert_eq!(ask().await.0, 200);
    assert_eq!(server.stage.seen().recovered, 2);

    server.stage.play(vec![Act::Finish(Finish::Cancelled)]);
    assert_eq!(ask().await.0, 500);
    assert_eq!(ask().await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_from_nowhere_do_no_harm() {
    let server = Server::start().await;
    let mut acts = server.acts("</think>a");
    acts.extend([Act::Token(u32::MAX), Act::Token(274), Act::Token(255)]);
    server.stage.play(acts);
    let (status, reply) = server.ask(Request::chat(&hello(json!({})))).await;
    assert_eq!(status, 200, "{reply}");
    assert!(reply["choices"][0]["message"]["content"].as_str().unwrap().starts_with('a'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_end_spelled_in_pieces_ends_the_answer() {
    let server = Server::start().await;
    for (text, shown) in
        [("71 is the largest.<|user|>And then", "71 is the largest."), ("a <|b|> x<|use", "a <|b|> x<|use")]
    {
        let mut acts = server.acts("</think>");
        acts.extend(server.tokenizer.encode(text, ParseSpecial::No).into_iter().map(Act::Token));
        server.stage.play(acts);
        let (_, reply) = server.ask(Request::chat(&hello(json!({})))).await;
        assert_eq!(reply["choices"][0]["message"]["content"], shown);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
}
