//! The accept loop, and stopping it.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::chat::Chat;
use crate::config::Config;
use crate::engine::Generate;
use crate::queue::{self, Queue};
use crate::routes::{self, App};
use crate::shutdown::Shutdown;
use crate::wire::{self, Wire};

/// Connections served at the same time; more wait to be accepted.
const CONNECTIONS: usize = 512;

/// How long a client may take over a request's head, and an idle connection may stay open.
const HEAD: Duration = Duration::from_secs(60);

/// How long a client may take nothing of its answer.
const STALL: Duration = Duration::from_secs(60);

/// What a cut answer gets to leave the machine, and a cut engine to end its step.
const FLUSH: Duration = Duration::from_secs(2);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not one.
    #[error("{address} is not an address to listen on: {source}")]
    Address {
        /// As it was given.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Somebody else listens there.
    #[error("{address} is already in use by another program; stop it or choose another port")]
    InUse {
        /// As it was given.
        address: String,
    },
    /// Any other refusal.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// As it was given.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The listener or the engine's thread could not be set up.
    #[error("cannot start serving: {0}")]
    Start(#[source] std::io::Error),
}

/// A bound socket. Binding first, before a model is loaded, tells at once when the port is taken.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`, `host:port` with a name or a number; port 0 takes a free one.
    ///
    /// # Errors
    /// A sentence with the address.
    pub fn bind(address: &str) -> Result<Self, ServeError> {
        let named = || address.to_owned();
        let candidates = address
            .to_socket_addrs()
            .map_err(|source| ServeError::Address { address: named(), source })?
            .collect::<Vec<_>>();
        let socket = TcpListener::bind(candidates.as_slice()).map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => ServeError::InUse { address: named() },
            _ => ServeError::Bind { address: named(), source },
        })?;
        let address = socket.local_addr().map_err(ServeError::Start)?;
        Ok(Self { socket, address })
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to type into a browser on this machine.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }
}

/// Binds `address` and serves until `shutdown` asks to stop. See [`serve_on`].
///
/// # Errors
/// When the address cannot be bound or the engine's thread cannot start.
pub async fn serve(
    address: &str,
    config: Config,
    chat: Arc<Chat>,
    engine: Box<dyn Generate>,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    serve_on(Listener::bind(address)?, config, chat, engine, shutdown).await
}

/// Serves on a bound socket until `shutdown` asks to stop, and returns when all is over.
///
/// Asked once, it takes no more requests, refuses those that wait, and lets the running one finish for
/// [`Config::shutdown_grace`]; then, or when asked again, it cuts it. It returns four seconds after that at the latest:
/// two for an engine that is stuck inside a step, two for what is left to be sent.
///
/// # Errors
/// When the socket cannot be used or the engine's thread cannot start.
pub async fn serve_on(
    listener: Listener,
    config: Config,
    chat: Arc<Chat>,
    engine: Box<dyn Generate>,
    shutdown: Shutdown,
) -> Result<(), ServeError> {
    let loopback = listener.address.ip().to_canonical().is_loopback();
    listener.socket.set_nonblocking(true).map_err(ServeError::Start)?;
    let socket = tokio::net::TcpListener::from_std(listener.socket).map_err(ServeError::Start)?;
    let queue = Arc::new(Queue::new(config.queue));
    let info = engine.info();
    let grace = config.shutdown_grace;
    let mut engine_ended = queue::start(Arc::clone(&queue), engine).map_err(ServeError::Start)?;
    let _guard = CloseOnDrop(Arc::clone(&queue));
    let router = routes::router(Arc::new(App::new(config, chat, info, Arc::clone(&queue), loopback)));

    let (finish, finishing) = watch::channel(false);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&socket, &slots) => accepted,
            () = shutdown.asked(1) => break,
        };
        while connections.try_join_next().is_some() {}
        let Some((stream, slot)) = accepted else { continue };
        let (router, finishing) = (router.clone(), finishing.clone());
        connections.spawn(async move {
            let _slot = slot;
            connection(stream, router, finishing).await;
        });
    }
    drop(socket);

    tracing::info!("shutting down: no more requests are taken");
    queue.close();
    // Nobody listening means that no connection is open.
    let _ = finish.send(true);
    // The engine's end, not that of the connections: one with half a request would hold the stop for its whole time.
    let ended = tokio::select! {
        _ = &mut engine_ended => true,
        () = sleep(grace) => {
            tracing::warn!("the running answer is cut after {} s", grace.as_secs());
            false
        }
        () = shutdown.asked(2) => {
            tracing::warn!("the running answer is cut");
            false
        }
    };
    queue.cut();
    if !ended && timeout(FLUSH, engine_ended).await.is_err() {
        tracing::warn!("the engine did not stop within {} s", FLUSH.as_secs());
    }
    let over = async { while connections.join_next().await.is_some() {} };
    if timeout(FLUSH, over).await.is_err() {
        tracing::info!("{} connections without a whole request are dropped", connections.len());
    }
    Ok(())
}

/// Ends the engine's thread also when the server's future is dropped.
struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        self.0.cut();
    }
}

/// The next connection and its place. None after an error that passes.
async fn accept(
    socket: &tokio::net::TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, _)) => {
            // Each event is to leave at once, not with the next one.
            let _ = stream.set_nodelay(true);
            Some((stream, slot))
        }
        Err(error) => {
            use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
            if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
                // Most likely no file descriptors are left. They come back when connections end.
                tracing::warn!("cannot accept a connection: {error}");
                sleep(Duration::from_millis(500)).await;
            }
            None
        }
    }
}

/// Serves one connection. The request's future, or the stream's body, is dropped as soon as the client closes: by hyper, or
/// with the connection, where hyper does not look because the client has sent more than its request.
async fn connection(stream: TcpStream, router: Router, mut finishing: watch::Receiver<bool>) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let service = TowerToHyperService::new(router);
    let stream = Arc::new(stream);
    let wire = Wire::new(Arc::clone(&stream), STALL);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(wire), service));
    let mut gone = std::pin::pin!(wire::gone(&stream));
    tokio::select! {
        result = connection.as_mut() => return log_end(result),
        () = gone.as_mut() => return,
        _ = finishing.wait_for(|finish| *finish) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        result = connection => log_end(result),
        () = gone => {}
    }
}

fn log_end(result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!("connection ended: {error}");
    }
}
