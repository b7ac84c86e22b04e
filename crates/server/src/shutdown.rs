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

    /// Asks once more: the first call lets running requests finish, the second stops at once.
    pub fn request(&self) {
        self.asked.send_modify(|n| *n = n.saturating_add(1));
    }

    /// Waits until it was asked `times` times.
    pub(crate) async fn asked(&self, times: usize) {
        // The sender lives in `self`, so the channel cannot close while this waits.
        let _ = self.asked.subscribe().wait_for(|n| *n >= times).await;
    }
}
