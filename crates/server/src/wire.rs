//! A client's socket, watched from both sides: who is gone, and who takes nothing.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Between two looks at a socket that holds bytes nobody reads yet.
const LOOK: Duration = Duration::from_millis(250);

/// What the answers to requests that came before the end get.
const LAST: Duration = Duration::from_millis(500);

/// Reads and writes a socket. A write that makes no progress for `patience` is an error.
pub(crate) struct Wire {
    stream: Arc<TcpStream>,
    patience: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub fn new(stream: Arc<TcpStream>, patience: Duration) -> Self {
        Self { stream, patience, stalled: None }
    }

    /// Writes with `write` as soon as the socket takes something.
    fn poll_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> Result<usize>,
    ) -> Poll<Result<usize>> {
        loop {
            let Poll::Ready(can) = self.stream.poll_write_ready(cx) else {
                let patience = self.patience;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(stalled.as_mut().poll(cx));
                return Poll::Ready(Err(Error::new(
                    ErrorKind::TimedOut,
                    "the client takes nothing of its answer",
                )));
            };
            can?;
            match write(&self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => {
                    self.stalled = None;
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(n) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.poll_with(cx, |stream| stream.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(shut(&self.stream))
    }
}

/// Tells the client that nothing more comes.
#[cfg(unix)]
fn shut(stream: &TcpStream) -> Result<()> {
    use std::os::fd::AsFd;
    // The other handles of the stream stay as they are: closing a direction is the socket's, not the descriptor's.
    let socket = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    socket.shutdown(std::net::Shutdown::Write)
}

/// Where that cannot be said through a shared handle, dropping the stream says it.
#[cfg(not(unix))]
fn shut(_: &TcpStream) -> Result<()> {
    Ok(())
}

/// Ends a moment after the client has closed its side.
///
/// The connection notices that itself while it waits with nothing left to read. But bytes beyond a request, a line break or
/// the next request, stop it from looking before the answer is done. The system's flag for a closed side is seen also
/// behind bytes that nobody reads, unless there are more than the socket's buffer holds.
pub(crate) async fn gone(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => break,
        }
        match stream.peek(&mut [0]).await {
            Ok(0) | Err(_) => break,
            Ok(_) => sleep(LOOK).await,
        }
    }
    sleep(LAST).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::{Wire, gone};

    async fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Arc::new(listener.accept().await.unwrap().0), client)
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_is_an_error() {
        let (stream, mut client) = pair().await;
        let mut wire = Wire::new(stream, Duration::from_millis(100));
        let block = vec![7; 1 << 20];
        let mut written = 0;
        let error = loop {
            match wire.write(&block).await {
                Ok(n) => written += n,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        // What it takes later is all there, and then the writes go on.
        let mut read = vec![0; written];
        client.read_exact(&mut read).await.unwrap();
        assert!(read.iter().all(|&b| b == 7));
        assert!(wire.write(&block).await.unwrap() > 0);
        wire.shutdown().await.unwrap();
        client.read_to_end(&mut read).await.unwrap();
    }

    #[tokio::test]
    async fn the_end_is_seen_behind_bytes_that_nobody_reads() {
        for extra in [&b""[..], b"\r\n", &[b'x'; 5000]] {
            let (stream, mut client) = pair().await;
            client.write_all(extra).await.unwrap();
            assert!(timeout(Duration::from_millis(50), gone(&stream)).await.is_err(), "it is still there");
            drop(client);
            timeout(Duration::from_secs(20), gone(&stream)).await.expect("it is seen to leave");
        }
    }
}
