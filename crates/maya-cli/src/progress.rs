//! Progress on standard error: a bar where a person watches, else a plain line at most every five seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Between two plain lines: often enough to see life, rare enough for a log file.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Whether standard error may receive control codes.
pub fn fancy() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|v| v == "dumb" || v.is_empty());
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

/// One piece of work with a known amount.
pub struct Progress {
    what: &'static str,
    unit: &'static str,
    total: u64,
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Progress {
    /// Starts it. `what` is a verb with its object ("reading the prompt"), `unit` what is counted.
    pub fn new(what: &'static str, unit: &'static str, total: u64) -> Self {
        let bar = fancy().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg} {eta}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(what);
            bar.set_message(unit);
            bar
        });
        Self { what, unit, total, bar, said: Instant::now() }
    }

    /// Work whose amount is not known: a spinner where a person watches, nothing elsewhere.
    pub fn spinner(what: &'static str) -> Self {
        let bar = fancy().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_message(what);
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { what, unit: "", total: 0, bar, said: Instant::now() }
    }

    /// `done` of the total are finished.
    pub fn at(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if self.said.elapsed() >= PLAIN_EVERY {
            self.said = Instant::now();
            output::note(format_args!(
                "{}: {} of {} {}",
                self.what,
                output::count(done),
                output::count(self.total),
                self.unit
            ));
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
