//! Ctrl-C (and a termination request): the first asks to finish, the second ends the process at once with exit code 130.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::output;

static PRESSED: AtomicU32 = AtomicU32::new(0);
type Wake = Box<dyn Fn() + Send>;
static WAKE: Mutex<Option<Wake>> = Mutex::new(None);

/// Installs the handler. Once per process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if PRESSED.fetch_add(1, Ordering::SeqCst) > 0 {
            output::remove_temporaries();
            std::process::exit(130);
        }
        if let Ok(wake) = WAKE.lock()
            && let Some(wake) = wake.as_ref()
        {
            wake();
        }
    })
    .context("the handler for Ctrl-C cannot be installed")
}

/// Whether a finish was asked for.
pub fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst) > 0
}

/// Forgets it: `chat` goes on after it stopped an answer.
pub fn clear() {
    PRESSED.store(0, Ordering::SeqCst);
}

/// Also calls `wake` on the first Ctrl-C, from the handler's own thread.
pub fn on_first(wake: impl Fn() + Send + 'static) {
    if let Ok(mut slot) = WAKE.lock() {
        *slot = Some(Box::new(wake));
    }
}
