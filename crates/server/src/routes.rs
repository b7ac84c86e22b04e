//! The endpoints.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::body;
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

/// What every request needs.
pub(crate) struct App {
    config: Config,
    chat: Arc<Chat>,
    info: ModelInfo,
    queue: Arc<Queue>,
    check: HostCheck,
    ids: Arc<Ids>,
    preparing: Arc<Semaphore>,
    /// For `/v1/models`: when this server started.
    started: u64,
}

impl App {
    pub fn new(config: Config, chat: Arc<Chat>, info: ModelInfo, queue: Arc<Queue>, loopback: bool) -> Self {
        let check = HostCheck::new(loopback, &config.allowed_hosts, &config.allowed_origins);
        Self {
            config,
            chat,
            info,
            queue,
            check,
            ids: Arc::new(Ids::new()),
            preparing: Arc::new(Semaphore::new(PREPARING)),
            started: now(),
        }
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
    let bytes = body::read_json(request, app.config.max_body).await?;
    let ready = prepare(&app, move |app| {
        let call = ChatCall::read(&parse(&bytes)?, app.info.vocab, &app.config.sampler, app.ids.seed())?;
        let (prompt, turn) = app.chat.open(&call, Arc::clone(&app.ids))?;
        Ok(Ready { prompt, turn, settings: call.settings, kind: Kind::Chat })
    });
    answer(&app, ready.await?).await
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let bytes = body::read_json(request, app.config.max_body).await?;
    let ready = prepare(&app, move |app| {
        let call = TextCall::read(&parse(&bytes)?, app.info.vocab, &app.config.sampler, app.ids.seed())?;
        let (prompt, turn) = app.chat.open_text(&call);
        if prompt.is_empty() {
            return Err(ApiError::field("prompt", "must hold at least one token"));
        }
        Ok(Ready { prompt, turn, settings: call.settings, kind: Kind::Text })
    });
    answer(&app, ready.await?).await
}

/// Runs `work` where blocking is allowed, then checks that the prompt fits.
async fn prepare(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<Ready, ApiError> + Send + 'static,
) -> Result<Ready, ApiError> {
    app.queue.check()?;
    let lost = |_| ApiError::internal("The request could not be prepared; the server's log says more.");
    let permit = Arc::clone(&app.preparing).acquire_owned().await.map_err(|_| ApiError::shutting_down())?;
    let worker = Arc::clone(app);
    let ready = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&worker)
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

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        ApiError::invalid(format!("The request body is not UTF-8 from byte {} on.", e.valid_up_to()))
    })?;
    // Integers of any size reach the prompt with all their digits.
    glm_chat::parse_json(text).map_err(|e| ApiError::invalid(format!("The request body is not JSON: {e}.")))
}

async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [describe(&app)]}))
}

async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
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
