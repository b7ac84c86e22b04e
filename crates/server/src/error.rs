//! Refusals: an HTTP status and the JSON body that OpenAI clients read.

use axum::Json;
use axum::http::header::{self, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// What a client gets instead of an answer. The message is a sentence that names the field.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub message: String,
    pub kind: &'static str,
    pub param: Option<String>,
    pub code: Option<&'static str>,
    /// Tokens of the prompt and positions of the context, when the one is too long for the other.
    lengths: Option<(usize, usize)>,
    /// The same request may do later.
    retry: bool,
    /// The connection ends after this reply.
    close: bool,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            kind,
            param: None,
            code: None,
            lengths: None,
            retry: false,
            close: false,
        }
    }

    /// 400 about the field at `path`; the message is `path: text`.
    pub fn field(path: &str, text: impl std::fmt::Display) -> Self {
        let message = if path.is_empty() { text.to_string() } else { format!("{path}: {text}") };
        let mut error = Self::invalid(message);
        error.param = (!path.is_empty()).then(|| path.to_owned());
        error
    }

    /// 400 about the field at `path` for something that other servers may do.
    pub fn unsupported(path: &str, text: impl std::fmt::Display) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::field(path, text) }
    }

    /// 400 about the request as a whole.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// 400: the prompt leaves no room. The wording and both extra keys are what clients search for.
    pub fn context_exceeded(param: &str, prompt: usize, context: usize) -> Self {
        let mut error = Self::invalid(format!(
            "This model's maximum context length is {context} tokens. However, your {param} resulted in {prompt} \
             tokens{}.",
            if prompt == context { ", which leaves no room for an answer" } else { "" },
        ));
        error.param = Some(param.to_owned());
        error.code = Some("context_length_exceeded");
        error.lengths = Some((prompt, context));
        error
    }

    /// The same about `bytes` bytes of text that are `least` tokens or more.
    pub fn text_exceeds_context(param: &str, bytes: usize, least: usize, context: usize) -> Self {
        let mut error = Self::context_exceeded(param, least, context);
        error.message = format!(
            "This model's maximum context length is {context} tokens. However, your {param} resulted in {bytes} bytes, \
             which are {least} tokens or more."
        );
        error
    }

    /// 403: the request came through a name or a page that has no business here.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { code: Some("not_found"), ..Self::new(StatusCode::NOT_FOUND, "not_found_error", message) }
    }

    /// 405; axum adds the `Allow` header.
    pub fn method_not_allowed(method: &Method, path: &str) -> Self {
        let message = format!("{path} does not answer to {method}.");
        Self {
            code: Some("method_not_allowed"),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
        }
    }

    /// 408: the body stopped coming.
    pub fn body_timeout(seconds: u64) -> Self {
        let message = format!("No more of the request body came for {seconds} seconds.");
        Self { close: true, ..Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message) }
    }

    /// 408: the body comes, but too slowly.
    pub fn body_too_slow(pace: u64) -> Self {
        let message = format!("The request body came more slowly than {pace} bytes a second.");
        Self { close: true, ..Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message) }
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("The request body is larger than {limit} bytes, the most this server takes.");
        Self {
            code: Some("request_too_large"),
            close: true,
            ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
        }
    }

    /// 415.
    pub fn not_json(found: Option<&str>) -> Self {
        let found = match found {
            Some(name) => format!("it is {name:?}"),
            None => "there is none".to_owned(),
        };
        let message = format!("Content-Type must be application/json, and {found}.");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// 429: as many requests wait as may wait.
    pub fn queue_full(waiting: usize) -> Self {
        let message = format!("{waiting} requests are already waiting; try again shortly.");
        Self {
            code: Some("queue_full"),
            retry: true,
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message)
        }
    }

    /// 503: the bodies of other requests take all the memory that there is for them.
    pub fn bodies_full(held: usize) -> Self {
        let message = format!(
            "The bodies of other requests take the {held} bytes that this server has for them; try again shortly."
        );
        Self {
            code: Some("bodies_full"),
            retry: true,
            close: true,
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
        }
    }

    /// 503: no new work is taken.
    pub fn shutting_down() -> Self {
        let message = "The server is shutting down.";
        Self {
            retry: true,
            close: true,
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
        }
    }

    /// 500: ours or the engine's fault, never the request's.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The reply's body.
    pub fn body(&self) -> Value {
        let mut error = Map::new();
        error.insert("message".to_owned(), json!(self.message));
        error.insert("type".to_owned(), json!(self.kind));
        error.insert("param".to_owned(), json!(self.param));
        error.insert("code".to_owned(), json!(self.code));
        if let Some((prompt, context)) = self.lengths {
            error.insert("n_prompt_tokens".to_owned(), json!(prompt));
            error.insert("n_ctx".to_owned(), json!(context));
        }
        json!({ "error": error })
    }

    /// The body of an error event inside a stream that already has a 200: here `code` is the status it would have had.
    pub fn event(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "code": self.status.as_u16() } })
    }
}

/// Text with a client's words in it, for one line of a log: control characters escaped, and not longer than a line.
pub(crate) fn log_text(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut line = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == LONGEST {
            line.push('…');
            break;
        }
        // U+2028, U+2029 and the marks that turn the direction of writing are no control characters by category.
        if c.is_control() || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}') {
            line.extend(c.escape_unicode());
        } else {
            line.push(c);
        }
    }
    line
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(status = self.status.as_u16(), "{}", log_text(&self.message));
        } else {
            tracing::debug!(status = self.status.as_u16(), "{}", log_text(&self.message));
        }
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if self.retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::log_text;

    #[test]
    fn a_client_cannot_forge_a_line_of_the_log() {
        assert_eq!(log_text("tools[0] é 日"), "tools[0] é 日");
        assert_eq!(log_text("a\nERROR b\r\u{1b}[2J\u{85}"), "a\\u{a}ERROR b\\u{d}\\u{1b}[2J\\u{85}");
        assert_eq!(log_text("\u{2028}\u{202e}"), "\\u{2028}\\u{202e}");
        let long = log_text(&"x".repeat(1 << 20));
        assert_eq!(long.chars().count(), 301);
    }
}
