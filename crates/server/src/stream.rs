//! An answer as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body::Frame;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep};

use crate::error::ApiError;
use crate::queue::Update;
use crate::response::Reply;

/// Events that are ready together go out together, up to about this many bytes.
const BATCH: usize = 16 << 10;

/// A line that every client ignores.
const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// The 200 whose body is the event stream. Its head and first event leave at once, while the request still waits.
pub(crate) fn response(reply: Reply, updates: UnboundedReceiver<Update>, keep_alive: Duration) -> Response {
    let mut response = Response::new(Body::new(EventBody::new(reply, updates, keep_alive)));
    let headers = response.headers_mut();
    // Some clients read Latin-1 unless told otherwise, and then break lines at U+0085.
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The body. The connection drops it when the client goes; that closes `updates`, and the engine's thread notices at its
/// next step.
struct EventBody {
    reply: Reply,
    updates: UnboundedReceiver<Update>,
    opened: bool,
    ended: bool,
    keep_alive: Duration,
    /// When the wire has been silent too long. It runs on the server's clock and knows nothing of the engine: a prefill
    /// step that takes a minute still lets it fire.
    silence: Pin<Box<Sleep>>,
}

impl EventBody {
    fn new(reply: Reply, updates: UnboundedReceiver<Update>, keep_alive: Duration) -> Self {
        let silence = Box::pin(sleep(keep_alive));
        Self { reply, updates, opened: false, ended: false, keep_alive, silence }
    }

    fn write(&mut self, out: &mut String, update: Option<Update>) {
        match update {
            Some(Update::Delta(delta)) => self.reply.delta(out, &delta),
            Some(Update::Prefill { done, total, ms }) => self.reply.progress(out, done, total, ms),
            Some(Update::Done(outcome)) => {
                self.ended = true;
                self.reply.done(out, &outcome);
            }
            Some(Update::Failed(error)) => {
                self.ended = true;
                self.reply.failed(out, &error);
            }
            None => {
                self.ended = true;
                self.reply.failed(out, &ApiError::internal("The answer was lost."));
            }
        }
    }
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let mut out = String::new();
        if !this.opened {
            this.opened = true;
            this.reply.opening(&mut out);
        }
        while !this.ended && out.len() < BATCH {
            let Poll::Ready(update) = this.updates.poll_recv(cx) else { break };
            this.write(&mut out, update);
        }
        if out.is_empty() {
            if this.ended {
                return Poll::Ready(None);
            }
            ready!(this.silence.as_mut().poll(cx));
            out.push_str(KEEP_ALIVE);
        }
        this.silence.as_mut().reset(Instant::now() + this.keep_alive);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(out)))))
    }
}
