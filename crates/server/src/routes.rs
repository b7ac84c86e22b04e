//! The endpoints.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::body::Bodies;
use crate::chat::Chat;
use crate::chat_request::ChatCall;
use crate::config::Config;
use crate::engine::{ModelInfo, Options};
use crate::error::ApiError;
use crate::host_check::HostCheck;
use crate::id::{Ids, now};
use crate::queue::{Job, Queue, Update};
use crate::response::{Answer, Kind, Reply};
use crate::settings::Settings;
use crate::stream;
use crate::text_request::TextCall;
use crate::turn::Turn;

/// Prompts that are parsed, rendered and tokenised at the same time. Long ones take a second or two of a core and some
/// multiples of their size in memory.
const PREPARING: usize = 2;

/// Values in the JSON of a body, besides a token id for each place of the context. One takes some 100 bytes of memory, so
/// that 64 MiB of `1,1,1` would take gigabytes; the longest conversations of coding agents have some ten thousand.
const VALUES: usize = 1_000_000;

/// What every request needs.
pub(crate) struct App {
    config: Config,
    chat: Arc<Chat>,
    info: ModelInfo,
    queue: Arc<Queue>,
    check: HostCheck,
    ids: Arc<Ids>,
    preparing: Arc<Semaphore>,
    bodies: Bodies,
    /// For `/v1/models`: when this server started.
    started: u64,
}

impl App {
    pub fn new(config: Config, chat: Arc<Chat>, info: ModelInfo, queue: Arc<Queue>, loopback: bool) -> Self {
        let check = HostCheck::new(loopback, &config.allowed_hosts, &config.allowed_origins);
        let bodies = Bodies::new(config.max_body, config.max_bodies);
        Self {
            config,
            chat,
            info,
            queue,
            check,
            ids: Arc::new(Ids::new()),
            preparing: Arc::new(Semaphore::new(PREPARING)),
            bodies,
            started: now(),
        }
    }
}

impl App {
    /// The seed of a request that names none.
    fn seed(&self) -> u64 {
        self.config.seed.unwrap_or_else(|| self.ids.seed())
    }
}

/// A request that passed every check, with nothing sent yet.
struct Ready {
    prompt: Vec<u32>,
    turn: Turn,
    settings: Settings,
    kind: Kind,
}

/// All routes behind the host check.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), check_host))
        .with_state(app)
}

async fn check_host(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.check.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn chat_completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let ready = prepare(&app, request, |app, body| {
        let call = ChatCall::read(body, app.info.vocab, &app.config.sampler, app.seed())?;
        let (prompt, turn) = app.chat.open(&call, app.info.context, Arc::clone(&app.ids))?;
        Ok(Ready { prompt, turn, settings: call.settings, kind: Kind::Chat })
    });
    answer(&app, ready.await?).await
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let ready = prepare(&app, request, |app, body| {
        let call = TextCall::read(body, &app.info, &app.config.sampler, app.seed())?;
        let (prompt, turn) = app.chat.open_text(&call, app.info.context)?;
        if prompt.is_empty() {
            return Err(ApiError::field("prompt", "must hold at least one token"));
        }
        Ok(Ready { prompt, turn, settings: call.settings, kind: Kind::Text })
    });
    answer(&app, ready.await?).await
}

/// Reads a body, runs `work` on its JSON where blocking is allowed, then checks that the prompt fits.
async fn prepare(
    app: &Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &Value) -> Result<Ready, ApiError> + Send + 'static,
) -> Result<Ready, ApiError> {
    // A request that would be refused anyway must not take memory first.
    if let Err(full) = app.queue.check() {
        return Err(app.bodies.refuse(request, full));
    }
    let body = app.bodies.read_json(request).await?;
    app.queue.check()?;
    let lost = |_| ApiError::internal("The request could not be prepared; the server's log says more.");
    let permit = Arc::clone(&app.preparing).acquire_owned().await.map_err(|_| ApiError::shutting_down())?;
    let worker = Arc::clone(app);
    let ready = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        // The body counts until its values are gone, too.
        work(&worker, &parse(body.as_slice(), worker.info.context)?)
    })
    .await
    .map_err(lost)??;
    let context = app.info.context;
    if ready.prompt.len() >= context {
        let name = if ready.kind == Kind::Chat { "messages" } else { "prompt" };
        return Err(ApiError::context_exceeded(name, ready.prompt.len(), context));
    }
    if let Some((i, id)) = ready.prompt.iter().enumerate().find(|(_, id)| **id as usize >= app.info.vocab) {
        let message = format!(
            "Token {i} of the prompt is {id}, and the model's vocabulary has {} tokens: tokenizer and weights do not \
             belong together.",
            app.info.vocab
        );
        return Err(ApiError::internal(message));
    }
    Ok(ready)
}

/// Queues a request and answers it. When the client goes, the receiver goes, and with it the request.
async fn answer(app: &App, ready: Ready) -> Result<Response, ApiError> {
    let Ready { prompt, turn, settings, kind } = ready;
    let room = app.info.context - prompt.len();
    let id = app.ids.name(if kind == Kind::Chat { "chatcmpl-" } else { "cmpl-" });
    let seed = settings.sampler.seed;
    let options = Options {
        // More than fits is clamped: coding agents ask for 32,000 every time. The finish reason tells.
        max_tokens: settings.max_tokens.map_or(room, |n| n.min(room)),
        sampler: settings.sampler,
        stop_tokens: app.chat.stop_tokens().to_vec(),
    };
    let reply = Reply {
        kind,
        id: id.clone(),
        created: now(),
        model: app.info.id.clone(),
        include_usage: settings.include_usage,
        seed,
    };
    let (sender, mut updates) = mpsc::unbounded_channel();
    app.queue.submit(Job { id, prompt, options, turn, progress: settings.progress, reply: sender })?;
    if settings.stream {
        return Ok(stream::response(reply, updates, app.config.keep_alive));
    }
    let mut answer = Answer::default();
    while let Some(update) = updates.recv().await {
        match update {
            Update::Prefill { .. } => {}
            Update::Delta(delta) => answer.add(delta),
            Update::Done(outcome) => return Ok(Json(reply.whole(answer, &outcome)).into_response()),
            Update::Failed(error) => return Err(error),
        }
    }
    Err(ApiError::internal("The answer was lost."))
}

/// The JSON of a body. Most it may hold: [`VALUES`] and as many as the context has tokens.
fn parse(bytes: &[u8], context: usize) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        ApiError::invalid(format!("The request body is not UTF-8 from byte {} on.", e.valid_up_to()))
    })?;
    let most = VALUES.saturating_add(context);
    let values = values(bytes, most);
    if values > most {
        return Err(ApiError::invalid(format!(
            "The request body holds {values} JSON values or more, and at most {most} are taken: {VALUES} and the context of \
             {context} tokens."
        )));
    }
    // Integers of any size reach the prompt with all their digits.
    glm_chat::parse_json(text).map_err(|e| ApiError::invalid(format!("The request body is not JSON: {e}.")))
}

/// Not fewer than the values of a JSON text, and exact where it is more than `most`.
fn values(bytes: &[u8], most: usize) -> usize {
    let opens = |b: &&u8| matches!(b, b',' | b'[' | b'{');
    let rough = 1 + bytes.iter().filter(opens).count();
    if rough <= most {
        return rough;
    }
    // Most of them may stand in strings.
    let mut count = 1;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'"' {
            at += 1;
            while bytes.get(at).is_some_and(|&b| b != b'"') {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
        }
        count += usize::from(opens(&&byte));
        at += 1;
    }
    count
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [describe(&app)]}))
}

async fn model(
    State(app): State<Arc<App>>,
    uri: Uri,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    // What is no UTF-8 once it is decoded is no name of a model either.
    let id = id.map_or_else(|_| uri.path().to_owned(), |Path(id)| id);
    if id == app.info.id {
        return Ok(Json(describe(&app)));
    }
    Err(ApiError::not_found(format!("There is no model {id:?} here, only {:?}.", app.info.id)))
}

/// The context length under each name that clients look for.
fn describe(app: &App) -> Value {
    let context = app.info.context;
    json!({
        "id": app.info.id, "object": "model", "created": app.started, "owned_by": "maya",
        "context_length": context, "max_model_len": context,
        "meta": {"n_ctx": context, "n_vocab": app.info.vocab},
    })
}

async fn health(State(app): State<Arc<App>>) -> Response {
    if app.queue.is_closed() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "shutting down"}))).into_response();
    }
    Json(json!({"status": "ok"})).into_response()
}

async fn no_such_path(method: Method, uri: Uri) -> ApiError {
    ApiError::not_found(format!(
        "There is no {method} {}. Here are POST /v1/chat/completions, POST /v1/completions, GET /v1/models and GET \
         /health.",
        uri.path()
    ))
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(&method, uri.path())
}

#[cfg(test)]
mod tests {
    use super::{VALUES, parse, values};

    #[test]
    fn values_are_counted_before_they_are_made() {
        assert_eq!(values(br#"{"a": [1, 2, {}], "b": "x"}"#, 0), 7);
        assert_eq!(values(br#"{"a": "[[,,\\\"{,", "b": 1}"#, 5), 3);
        assert_eq!(values(b"\"\\", 0), 1);
        let many = format!("[{}1]", "1,".repeat(VALUES + 100));
        let error = parse(many.as_bytes(), 50).unwrap_err();
        assert!(
            error.message.contains("holds 1000102 JSON values or more, and at most 1000050"),
            "{}",
            error.message
        );
        assert!(parse(many.as_bytes(), 200).is_ok());
        let text = format!("[\"{}\"]", ",".repeat(2 * VALUES));
        assert!(parse(text.as_bytes(), 50).is_ok(), "commas of a text are no values");
    }
}
