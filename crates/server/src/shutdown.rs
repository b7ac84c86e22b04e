//! Asking a server to stop: once to finish what runs, twice to stop at once.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle that the program keeps and the server watches. Clones share one state.
#[derive(Clone, Debug)]
pub struct Shutdown {
    asked: Arc<watch::Sender<usize>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Nothing asked yet.
    pub fn new() -> Self {
        Self { asked: Arc::new(watch::Sender::new(0)) }
    }

    /// One that counts Ctrl-C and, on Unix, SIGTERM.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    ///
    /// # Panics
    /// Outside a tokio runtime, as all of tokio does.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let asked = shutdown.clone();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        Some(()) = interrupt.recv() => {}
                        Some(()) = terminate.recv() => {}
                        else => return,
                    }
                    asked.request();
                }
            });
        }
        #[cfg(not(unix))]
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                asked.request();
            }
        });
        Ok(shutdown)
    }

    /// Asks once more: the first call lets running requests finish, the second stops at once.
    pub fn request(&self) {
        self.asked.send_modify(|n| *n = n.saturating_add(1));
    }

    /// How often it was asked.
    pub fn requests(&self) -> usize {
        *self.asked.borrow()
    }

    /// Waits until it was asked `times` times.
    pub(crate) async fn asked(&self, times: usize) {
        // The sender lives in `self`, so the channel cannot close while this waits.
        let _ = self.asked.subscribe().wait_for(|n| *n >= times).await;
    }
}
