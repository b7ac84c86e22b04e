//! Stopping, gently and at once.

use std::time::Duration;

use serde_json::json;
use server::{Config, Listener, ServeError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::Request;
use crate::script::{Act, Gate};
use crate::{Server, hello};

fn request(stream: bool) -> Request {
    Request::chat(&hello(json!({"stream": stream})))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_lets_an_answer_finish_and_refuses_the_rest() {
    let server = Server::start().await;
    let gate = Gate::new();
    let mut acts = server.acts("</think>Hel");
    acts.push(Act::Wait(gate.clone()));
    acts.extend(server.acts("lo"));
    server.stage.play(acts);
    let mut running = request(true).open(server.address).await;
    server.stage.wait("the first", |seen| seen.running && seen.steps == 4);
    let mut waiting = request(true).open(server.address).await;
    let unsent = TcpStream::connect(server.address).await.unwrap();

    server.shutdown.request();
    let refused = waiting.events().await;
    assert_eq!(refused.last().unwrap()["error"]["code"], 503);
    gate.open();
    let events = running.events().await;
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Hello");
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let (address, stage) = (server.address, server.stage.clone());
    server.stopped().await;
    drop(unsent);
    assert!(TcpStream::connect(address).await.is_err());
    assert!(stage.seen().dropped, "the engine was given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_too_long_is_cut() {
    let server =
        Server::with(Config { shutdown_grace: Duration::from_millis(50), ..Config::default() }).await;
    server.stage.play(vec![Act::Forever(u32::from(b'a'))]);
    let mut running = request(true).open(server.address).await;
    server.stage.wait("work", |seen| seen.steps >= 2);
    server.shutdown.request();
    let events = running.events().await;
    assert_eq!(events.last().unwrap()["error"]["code"], 503);
    let stage = server.stage.clone();
    server.stopped().await;
    assert_eq!(stage.seen().cancelled, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_reply_that_is_cut_is_a_503() {
    let server =
        Server::with(Config { shutdown_grace: Duration::from_millis(50), ..Config::default() }).await;
    server.stage.play(vec![Act::PrefillForever]);
    let socket = request(false).send(server.address).await;
    server.stage.wait("work", |seen| seen.steps >= 2);
    server.shutdown.request();
    let mut reply = crate::client::Reply::read(socket).await;
    assert_eq!(reply.status, 503);
    assert!(String::from_utf8(reply.rest().await).unwrap().contains("shutting down"));
    server.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_request_stops_at_once() {
    let server = Server::start().await;
    server.stage.play(vec![Act::Forever(u32::from(b'a'))]);
    let mut running = request(true).open(server.address).await;
    server.stage.wait("work", |seen| seen.steps >= 2);
    server.shutdown.request();
    server.shutdown.request();
    let events = running.events().await;
    assert_eq!(events.last().unwrap()["error"]["code"], 503);
    server.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_engine_does_not_hold_the_server() {
    let server = Server::start().await;
    let gate = Gate::new();
    server.stage.play(vec![Act::Wait(gate.clone())]);
    let _running = request(true).open(server.address).await;
    server.stage.wait("work", |seen| seen.running);
    server.shutdown.request();
    server.shutdown.request();
    let stage = server.stage.clone();
    server.stopped().await;
    assert!(stage.seen().running, "the engine is still inside its step");
    gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_the_server() {
    let server =
        Server::with(Config { shutdown_grace: Duration::from_secs(3600), ..Config::default() }).await;
    let unsent = TcpStream::connect(server.address).await.unwrap();
    let mut kept = Request::get("/health").open(server.address).await;
    assert_eq!(kept.rest().await, b"{\"status\":\"ok\"}");
    server.shutdown.request();
    server.stopped().await;
    drop((unsent, kept));
}

/// A client that had sent half a head, or half a body, once held a stop for the whole grace.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_does_not_hold_the_server() {
    for sent in [
        "POST /v1/completions HTTP/1.1\r\nHo",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    ] {
        let config = Config { shutdown_grace: Duration::from_secs(3600), ..Config::default() };
        let server = Server::with(config).await;
        let mut half = TcpStream::connect(server.address).await.unwrap();
        half.write_all(sent.as_bytes()).await.unwrap();
        // An answer on another connection: by then the server has most likely read the half.
        assert_eq!(server.ask(Request::get("/health")).await.0, 200);
        server.shutdown.request();
        server.stopped().await;
        drop(half);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_told_with_its_address() {
    let first = Listener::bind("127.0.0.1:0").unwrap();
    let address = first.address().to_string();
    assert_eq!(first.url(), format!("http://{address}"));
    let error = Listener::bind(&address).unwrap_err();
    assert!(matches!(error, ServeError::InUse { .. }));
    assert!(error.to_string().starts_with(&format!("{address} is already in use")), "{error}");
    for bad in ["", "localhost", "127.0.0.1:x", "127.0.0.1:99999", "no such host:1"] {
        let error = Listener::bind(bad).unwrap_err().to_string();
        assert!(error.contains("is not an address to listen on"), "{bad}: {error}");
    }
}
