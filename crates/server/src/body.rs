//! Reading a request body: its type, its size, its pace, and the memory of all of them together.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::error::ApiError;

/// Longest pause inside a body.
const PAUSE: Duration = Duration::from_secs(30);

/// What a body may take before its pace counts, and the slowest pace in bytes a second. A telephone line has that; a client
/// that sends a byte each half a minute would hold its place for years.
const START: Duration = Duration::from_secs(60);
const PACE: u64 = 16 << 10;

/// Memory is counted in pieces of this many bytes.
const PIECE: usize = 4 << 10;

/// How much of a refused body is read and thrown away, so that a client that sends before it reads still gets the reply
/// and not a reset connection: for this long, and at most twice what is allowed.
const DRAIN: Duration = Duration::from_secs(5);

/// The bodies of all requests.
pub(crate) struct Bodies {
    /// Bytes of one.
    most: usize,
    /// Bytes of all that are held at once.
    held: usize,
    room: Arc<Semaphore>,
    pause: Duration,
    start: Duration,
}

/// A whole body. It counts against the memory of all until it is dropped.
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
}

impl Bytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Counts room for more bytes. False if there is none.
    fn grow(&mut self, more: usize, room: &Arc<Semaphore>) -> bool {
        let have = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let need = (self.bytes.len() + more).div_ceil(PIECE).saturating_sub(have);
        let Some(grown) =
            u32::try_from(need).ok().and_then(|n| Arc::clone(room).try_acquire_many_owned(n).ok())
        else {
            return false;
        };
        match &mut self.room {
            Some(room) => room.merge(grown),
            none => *none = Some(grown),
        }
        true
    }
}

impl Bodies {
    /// `most` bytes a body, `held` bytes of all bodies at once, which is never less than one body.
    pub fn new(most: usize, held: usize) -> Self {
        let held = held.max(most);
        let room = Arc::new(Semaphore::new(held.div_ceil(PIECE).min(Semaphore::MAX_PERMITS)));
        Self { most, held, room, pause: PAUSE, start: START }
    }

    /// The whole body of a JSON request.
    pub async fn read_json(&self, request: Request) -> Result<Bytes, ApiError> {
        check_type(request.headers())?;
        let declared = declared_length(request.headers());
        let mut unread = Unread::of(request, self.most);
        if declared.is_some_and(|n| n > self.most as u64) {
            unread.drain();
            return Err(ApiError::too_large(self.most));
        }
        // A declared length is trusted for 1 MiB at most: memory follows the bytes that really come.
        let capacity = declared.map_or(0, |n| n.min(1 << 20) as usize);
        let mut body = Bytes { bytes: Vec::with_capacity(capacity), room: None };
        let begin = Instant::now();
        loop {
            let due = begin + self.start + Duration::from_secs(body.bytes.len() as u64 / PACE);
            let left = due.saturating_duration_since(Instant::now());
            let next = poll_fn(|cx| Pin::new(&mut unread.body).poll_frame(cx));
            let frame = match timeout(left.min(self.pause), next).await {
                Err(_) if left < self.pause => return Err(ApiError::body_too_slow(PACE)),
                Err(_) => return Err(ApiError::body_timeout(self.pause.as_secs())),
                Ok(None) => return Ok(body),
                Ok(Some(Err(error))) => {
                    return Err(ApiError::invalid(format!("The request body could not be read: {error}.")));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > self.most - body.bytes.len() {
                unread.drain();
                return Err(ApiError::too_large(self.most));
            }
            if !body.grow(data.len(), &self.room) {
                unread.drain();
                return Err(ApiError::bodies_full(self.held));
            }
            body.bytes.extend_from_slice(&data);
        }
    }

    /// Refuses a request whose body nobody has read.
    pub fn refuse(&self, request: Request, error: ApiError) -> ApiError {
        Unread::of(request, self.most).drain();
        error
    }
}

/// Content-Type must be JSON: a page of another site cannot send that without asking first.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).map(|v| String::from_utf8_lossy(v.as_bytes()));
    let Some(given) = given else { return Err(ApiError::not_json(None)) };
    let essence = given.split(';').next().unwrap_or("").trim();
    let json = essence.eq_ignore_ascii_case("application/json")
        || (essence.get(..12).is_some_and(|s| s.eq_ignore_ascii_case("application/"))
            && essence.len() > 5
            && essence.get(essence.len() - 5..).is_some_and(|s| s.eq_ignore_ascii_case("+json")));
    if json { Ok(()) } else { Err(ApiError::not_json(Some(&given))) }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A body, or the rest of one.
struct Unread {
    body: Body,
    most: usize,
    /// The client waits for leave to send it.
    waits: bool,
}

impl Unread {
    fn of(request: Request, most: usize) -> Self {
        let waits = request.headers().contains_key(header::EXPECT);
        Self { body: request.into_body(), most, waits }
    }

    /// Throws it away beside the reply, unless the client waits for leave to send it.
    fn drain(mut self) {
        if self.waits {
            return;
        }
        tokio::spawn(timeout(DRAIN, async move {
            let mut seen = 0;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                seen += frame.data_ref().map_or(0, |data| data.len());
                if seen > self.most.saturating_mul(2) {
                    return;
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use axum::body::{Body, HttpBody};
    use axum::extract::Request;
    use http_body::Frame;
    use tokio::time::{Sleep, sleep};

    use super::{Bodies, Bytes, PACE};
    use crate::error::ApiError;

    /// `blocks` blocks of `bytes` bytes, one each `pause`.
    struct Drip {
        blocks: usize,
        bytes: usize,
        pause: Duration,
        next: Pin<Box<Sleep>>,
    }

    impl HttpBody for Drip {
        type Data = axum::body::Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            let this = self.get_mut();
            ready!(this.next.as_mut().poll(cx));
            this.next = Box::pin(sleep(this.pause));
            let Some(left) = this.blocks.checked_sub(1) else { return Poll::Ready(None) };
            this.blocks = left;
            Poll::Ready(Some(Ok(Frame::data(vec![b' '; this.bytes].into()))))
        }
    }

    async fn read(bodies: &Bodies, blocks: usize, bytes: usize, pause: u64) -> Result<Bytes, ApiError> {
        let pause = Duration::from_millis(pause);
        let drip = Drip { blocks, bytes, pause, next: Box::pin(sleep(pause)) };
        let request = Request::builder().header("content-type", "application/json");
        bodies.read_json(request.body(Body::new(drip)).unwrap()).await
    }

    #[tokio::test]
    async fn a_body_that_trickles_is_given_up() {
        let mut bodies = Bodies::new(1 << 20, 1 << 20);
        bodies.start = Duration::from_millis(100);
        let error = read(&bodies, 1000, 1, 5).await.err().unwrap();
        assert_eq!(error.status, 408);
        assert!(error.message.contains("16384 bytes a second"), "{}", error.message);
        // As fast as is asked for, it may take longer than the start.
        let body = read(&bodies, 8, PACE as usize, 30).await.ok().unwrap();
        assert_eq!(body.as_slice().len(), 8 * PACE as usize);
        bodies.pause = Duration::from_millis(20);
        let error = read(&bodies, 2, 10, 60).await.err().unwrap();
        assert!(error.message.starts_with("No more of the request body came"), "{}", error.message);
    }

    #[tokio::test]
    async fn all_bodies_share_one_memory() {
        let bodies = Bodies::new(10_000, 24_000);
        let first = read(&bodies, 10, 1000, 0).await.ok().unwrap();
        let second = read(&bodies, 10, 1000, 0).await.ok().unwrap();
        let error = read(&bodies, 3, 1000, 0).await.err().unwrap();
        assert_eq!((error.status.as_u16(), error.code), (503, Some("bodies_full")));
        assert!(error.message.contains("24000 bytes"), "{}", error.message);
        drop(first);
        assert!(read(&bodies, 10, 1000, 0).await.is_ok());
        drop(second);
        // What was given up or refused holds nothing.
        assert_eq!(read(&bodies, 11, 1000, 0).await.err().unwrap().status, 413);
        assert_eq!(bodies.room.available_permits(), 6);
        // One body always fits.
        assert!(read(&Bodies::new(10_000, 0), 10, 1000, 0).await.is_ok());
    }
}
