//! Ctrl-C (and a termination request): the first asks to finish, the second ends the process at once with exit code 130.
//! `serve` has a step between them: its second one cuts the running answer, its third ends the process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::output;

static PRESSED: AtomicU32 = AtomicU32::new(0);
type Wake = Box<dyn Fn() + Send>;
static WAKE: Mutex<Option<Wake>> = Mutex::new(None);
/// Presses that ask; the next one ends the process.
static ASKING: AtomicU32 = AtomicU32::new(1);

/// Installs the handler. Once per process.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if PRESSED.fetch_add(1, Ordering::SeqCst) >= ASKING.load(Ordering::SeqCst) {
            end();
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

/// Whether more than a finish was asked for.
pub fn insisted() -> bool {
    PRESSED.load(Ordering::SeqCst) > 1
}

/// Ends the process as an interrupted one, without half-written files.
pub fn end() -> ! {
    output::remove_temporaries();
    std::process::exit(130)
}

/// Forgets it: `chat` goes on after it stopped an answer.
pub fn clear() {
    PRESSED.store(0, Ordering::SeqCst);
}

/// Calls `wake` on the first and the second Ctrl-C, from the handler's own thread; the third ends the process.
pub fn on_both(wake: impl Fn() + Send + 'static) {
    ASKING.store(2, Ordering::SeqCst);
    if let Ok(mut slot) = WAKE.lock() {
        *slot = Some(Box::new(wake));
    }
}
