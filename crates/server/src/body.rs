//! Reading a request body: its type, its size, its pace.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use tokio::time::timeout;

use crate::error::ApiError;

/// Longest pause inside a body.
const PAUSE: Duration = Duration::from_secs(30);

/// How much of a refused body is read and thrown away, so that a client that sends before it reads still gets the 413
/// and not a reset connection: for this long, and at most twice what is allowed.
const DRAIN: Duration = Duration::from_secs(5);

/// The whole body of a JSON request.
pub(crate) async fn read_json(request: Request, limit: usize) -> Result<Vec<u8>, ApiError> {
    check_type(request.headers())?;
    let waits = request.headers().contains_key(header::EXPECT);
    let declared = declared_length(request.headers());
    let mut body = request.into_body();
    if declared.is_some_and(|n| n > limit as u64) {
        return Err(refuse(body, limit, waits));
    }
    // A declared length is trusted for 1 MiB at most: memory follows the bytes that really come.
    let mut bytes = Vec::with_capacity(declared.map_or(0, |n| n.min(1 << 20) as usize));
    loop {
        let next = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = match timeout(PAUSE, next).await {
            Err(_) => return Err(ApiError::body_timeout(PAUSE.as_secs())),
            Ok(None) => return Ok(bytes),
            Ok(Some(Err(error))) => {
                return Err(ApiError::invalid(format!("The request body could not be read: {error}.")));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > limit - bytes.len() {
            return Err(refuse(body, limit, waits));
        }
        bytes.extend_from_slice(&data);
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

/// The 413. The rest of the body is drained beside the reply, unless the client waits for leave to send it.
fn refuse(mut body: Body, limit: usize, waits: bool) -> ApiError {
    if !waits {
        tokio::spawn(timeout(DRAIN, async move {
            let mut seen = 0;
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                seen += frame.data_ref().map_or(0, |data| data.len());
                if seen > limit.saturating_mul(2) {
                    return;
                }
            }
        }));
    }
    ApiError::too_large(limit)
}
