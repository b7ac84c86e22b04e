//! `maya serve`: binds, loads, says what it serves, and serves until Ctrl-C.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use glm_graph::Executor;
use server::{Chat, Config, Listener, Shutdown};

use crate::args::{EngineArgs, ServeArgs};
use crate::engine::{Engine, recommended};
use crate::output::{Out, bytes, count, note, printable};
use crate::served::Served;
use crate::{interrupt, text};

/// Serves. The port is taken before the model is loaded: a port in use is told at once.
pub fn run(args: &ServeArgs) -> Result<()> {
    let listener = Listener::bind(&SocketAddr::new(args.host, args.port).to_string())?;
    let engine = Engine::load(&args.engine)?;
    let file = engine.model.gguf();
    let tokenizer = text::tokenizer(file, &engine.name, "serve")?;
    let template = text::template(file, &engine.name, &tokenizer, "serve")?;
    let config =
        Config { sampler: recommended(file, Some(&tokenizer))?, seed: args.engine.seed, ..Config::default() };
    let id = id(&args.engine, file);
    if !args.host.is_loopback() {
        note(format_args!(
            "--host {} lets everybody who reaches this machine's port {} use the model: there are no keys yet",
            args.host,
            listener.address().port()
        ));
    }
    let mut out = Out::new();
    out.text(&block(&engine, &listener.url(), &id))?;
    out.flush()?;
    drop(out);

    let shutdown = Shutdown::new();
    let asked = shutdown.clone();
    interrupt::on_both(move || asked.request());
    if interrupt::pressed() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the server's threads cannot be started")?;
    let chat = Arc::new(Chat::new(tokenizer, template));
    runtime.block_on(server::serve_on(
        listener,
        config,
        chat,
        Box::new(Served::new(engine, id, args.engine.tiers.usage.clone())),
        shutdown,
    ))?;
    // A client that keeps its connection open must not keep the process.
    runtime.shutdown_background();
    if interrupt::insisted() {
        interrupt::end();
    }
    Ok(())
}

/// The id in `/v1/models`: the file's own name, else its file name, else the demo's.
fn id(args: &EngineArgs, file: &gguf::Model) -> String {
    let named = file.str("general.name").ok().flatten().filter(|n| !n.trim().is_empty()).map(printable);
    let stem =
        args.model.model.as_deref().and_then(Path::file_stem).map(|s| s.to_string_lossy().into_owned());
    named.or(stem).unwrap_or_else(|| "maya".to_owned())
}

/// What a person wants to know before the first request.
fn block(engine: &Engine, url: &str, id: &str) -> String {
    let plan = &engine.plan;
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:<9}{}", printable(value));
    };
    line("model", &format!("{id}: {}", engine.name));
    line("size", &format!("{}, vocabulary {}", bytes(engine.file_bytes), count(engine.exec.vocab() as u64)));
    line("context", &format!("{} tokens", count(engine.options.ctx as u64)));
    let precision = format!("{:?}", engine.options.precision).to_lowercase();
    line("device", &engine.device_line(&precision));
    line(
        "memory",
        &format!(
            "{} of weights mapped; {} of state and up to {} of caches a request; {} of buffers",
            bytes(plan.weights - if engine.tiers.is_some() { plan.routed } else { 0 }),
            bytes(plan.state),
            bytes(plan.caches),
            bytes(plan.scratch + plan.vectors)
        ),
    );
    if let Some(tiers) = &engine.tiers {
        line("experts", &tiers.to_string());
    }
    line("url", url);
    let body = r#"{"messages":[{"role":"user","content":"What is the capital of France?"}]}"#;
    line("try", &format!("curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"));
    line("stop", "Ctrl-C finishes the running answer within 20 s, a second one cuts it");
    text
}
