//! Requests in order, and the thread that serves them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::engine::{Generate, Options};
use crate::error::ApiError;
use crate::job;
use crate::outcome::Outcome;
use crate::turn::{Delta, Turn};

/// One request, ready for the engine. It is given up as soon as nobody holds the other end of `reply`.
pub(crate) struct Job {
    /// The reply's id, for the log.
    pub id: String,
    pub prompt: Vec<u32>,
    pub options: Options,
    /// Turns tokens into what the client sees.
    pub turn: Turn,
    /// Whether [`Update::Prefill`] is wanted.
    pub progress: bool,
    pub reply: mpsc::UnboundedSender<Update>,
}

/// What a request hears. The last one is `Done` or `Failed`.
///
/// The channel is unbounded, yet what it holds is bounded: a few updates a token of one answer, and one for each of the
/// engine's prefill steps if they are wanted. A client that takes nothing is cut off (see `wire`), and its answer ends.
#[derive(Debug)]
pub(crate) enum Update {
    /// `done` of `total` prompt tokens after `ms` milliseconds of work.
    Prefill {
        done: usize,
        total: usize,
        ms: u64,
    },
    Delta(Delta),
    Done(Outcome),
    Failed(ApiError),
}

/// A bounded first-in-first-out queue with one consumer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    capacity: usize,
    /// The running job is to end now.
    cut: AtomicBool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    pub fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), capacity, cut: AtomicBool::new(false) }
    }

    /// Puts a job last.
    ///
    /// # Errors
    /// 429 when `capacity` live jobs wait, 503 once closed.
    pub fn submit(&self, job: Job) -> Result<(), ApiError> {
        let mut state = self.state();
        self.room(&mut state)?;
        state.waiting.push_back(job);
        self.wake.notify_one();
        Ok(())
    }

    /// The same errors without a job: asked before a prompt is tokenised for nothing.
    pub fn check(&self) -> Result<(), ApiError> {
        self.room(&mut self.state())
    }

    fn room(&self, state: &mut State) -> Result<(), ApiError> {
        if state.closed {
            return Err(ApiError::shutting_down());
        }
        if state.waiting.len() >= self.capacity {
            state.waiting.retain(|job| !job.reply.is_closed());
        }
        if state.waiting.len() >= self.capacity {
            return Err(ApiError::queue_full(state.waiting.len()));
        }
        Ok(())
    }

    /// Takes no more jobs and refuses those that wait; the running one goes on.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for job in state.waiting.drain(..) {
            // A client that is gone needs no answer.
            let _ = job.reply.send(Update::Failed(ApiError::shutting_down()));
        }
        self.wake.notify_all();
    }

    /// Whether the queue takes no more jobs.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Ends the running job within one engine step; its client gets an error.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Waits for the next job that somebody still wants. None once closed.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            while let Some(job) = state.waiting.pop_front() {
                if !job.reply.is_closed() {
                    return Some(job);
                }
                tracing::info!(id = job.id, "client gone while waiting");
            }
            if state.closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the engine's thread. The receiver resolves when the thread has ended, which it does once the queue is closed
/// and the running job is over.
///
/// # Errors
/// When the system has no thread to give.
pub(crate) fn start(
    queue: Arc<Queue>,
    mut engine: Box<dyn Generate>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let (ended, wait) = oneshot::channel();
    thread::Builder::new().name("engine".to_owned()).spawn(move || {
        let mut sound = true;
        while let Some(job) = queue.next() {
            sound = job::run(job, engine.as_mut(), sound, &queue);
        }
        drop(engine);
        let _ = ended.send(());
    })?;
    Ok(wait)
}
