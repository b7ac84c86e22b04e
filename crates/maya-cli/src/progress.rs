//! Progress on standard error: a bar where a person watches, else a plain line at most every five seconds.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Between two plain lines: often enough to see life, rare enough for a log file.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// Redraws of a bar a second.
const HZ: u8 = 10;

/// Whether standard error may receive control codes.
pub fn fancy() -> bool {
    let text = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    watched(std::io::stderr().is_terminal(), text("NO_COLOR").as_deref(), text("TERM").as_deref())
}

/// The rule behind [`fancy`]: a terminal, no `NO_COLOR` (an empty one counts as unset), and a `TERM` that is not dumb.
fn watched(terminal: bool, no_color: Option<&str>, term: Option<&str>) -> bool {
    terminal && no_color.is_none_or(str::is_empty) && term.is_some_and(|t| !t.is_empty() && t != "dumb")
}

/// Where bars are drawn; `None` where plain lines are said instead.
fn target() -> Option<ProgressDrawTarget> {
    fancy().then(|| ProgressDrawTarget::stderr_with_hz(HZ))
}

/// One piece of work with a known amount.
pub struct Progress {
    form: Form,
}

enum Form {
    Bar(ProgressBar),
    Plain(Plain),
}

impl Progress {
    /// Starts it. `what` is a verb with its object ("reading the prompt"), `unit` what is counted.
    pub fn new(what: &'static str, unit: &'static str, total: u64) -> Self {
        let form = match target() {
            Some(target) => Form::Bar(bar(target, what, unit, total)),
            None => Form::Plain(Plain { what, unit, total, said: Instant::now() }),
        };
        Self { form }
    }

    /// `done` of the total are finished.
    pub fn at(&mut self, done: u64) {
        match &mut self.form {
            Form::Bar(bar) => bar.set_position(done),
            Form::Plain(plain) => {
                if let Some(line) = plain.line(done, Instant::now()) {
                    output::note(line);
                }
            }
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(target: ProgressDrawTarget, what: &'static str, unit: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target).with_prefix(what).with_message(unit);
    match ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg} {eta}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// Lines for a log: silent for work that is over within [`PLAIN_EVERY`].
struct Plain {
    what: &'static str,
    unit: &'static str,
    total: u64,
    said: Instant,
}

impl Plain {
    fn line(&mut self, done: u64, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.said) < PLAIN_EVERY {
            return None;
        }
        self.said = now;
        let (done, total) = (output::count(done), output::count(self.total));
        Some(format!("{}: {done} of {total} {}", self.what, self.unit))
    }
}

/// Work that is one call and whose amount is not known: a spinner, or a plain line every five seconds. Ends when dropped.
pub struct Waiting {
    spinner: Option<ProgressBar>,
    clock: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    /// Starts it. `what` is a verb with its object ("loading the model").
    pub fn new(what: &'static str) -> Self {
        match target() {
            Some(target) => Self { spinner: Some(spinner(target, what)), clock: None },
            None => Self { spinner: None, clock: clock(what, PLAIN_EVERY, output::note) },
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        if let Some((stop, thread)) = self.clock.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn spinner(target: ProgressDrawTarget, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target)
        .with_style(ProgressStyle::default_spinner())
        .with_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A thread that says a line every `every` until its sender is dropped; `None` where there can be no thread: the work
/// then goes on in silence.
fn clock(
    what: &'static str,
    every: Duration,
    say: impl Fn(String) + Send + 'static,
) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel();
    let started = Instant::now();
    let run = move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            say(format!("{what}: {} s so far", started.elapsed().as_secs()));
        }
    };
    let thread = std::thread::Builder::new().name("waiting".to_owned()).spawn(run).ok()?;
    Some((stop, thread))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    #[test]
    fn bars_only_where_a_person_watches() {
        let term = Some("xterm-256color");
        assert!(watched(true, None, term));
        assert!(watched(true, Some(""), term));
        assert!(!watched(false, None, term), "redirected");
        assert!(!watched(true, Some("1"), term), "NO_COLOR");
        assert!(!watched(true, None, Some("dumb")), "TERM=dumb");
        assert!(!watched(true, None, Some("")), "TERM empty");
        assert!(!watched(true, None, None), "no TERM");
    }

    /// However often work reports, a log gets one line for five seconds, and none for work that is over before.
    #[test]
    fn a_plain_line_every_five_seconds() {
        let start = Instant::now();
        let mut plain = Plain { what: "reading", unit: "tokens", total: 20_000, said: start };
        let lines: Vec<(u64, String)> = (0..=200u64)
            .filter_map(|i| Some((i, plain.line(i * 100, start + Duration::from_millis(i * 100))?)))
            .collect();
        let at: Vec<u64> = lines.iter().map(|(i, _)| *i).collect();
        assert_eq!(at, [50, 100, 150, 200]);
        assert_eq!(lines[1].1, "reading: 10,000 of 20,000 tokens");
    }

    /// Everything that was sent to a terminal.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn push(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, s: &str) -> io::Result<()> {
            self.push(s)
        }
        fn write_str(&self, s: &str) -> io::Result<()> {
            self.push(s)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.push("<cleared>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_shows_how_far_it_is_and_goes_away() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let mut progress = Progress { form: Form::Bar(bar(target, "reading", "tokens", 40)) };
        progress.at(10);
        if let Form::Bar(bar) = &progress.form {
            bar.force_draw();
        }
        let shown = screen.0.lock().unwrap().clone();
        assert!(shown.contains("reading [") && shown.contains("=>"), "{shown:?}");
        assert!(shown.contains("10/40 tokens"), "{shown:?}");
        drop(progress);
        let after = screen.0.lock().unwrap()[shown.len()..].to_owned();
        assert!(after.contains("<cleared>") && !after.contains("reading"), "{after:?}");
    }

    #[test]
    fn a_spinner_says_what_it_waits_for_and_goes_away() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let waiting = Waiting { spinner: Some(spinner(target, "loading")), clock: None };
        waiting.spinner.as_ref().unwrap().force_draw();
        let shown = screen.0.lock().unwrap().clone();
        assert!(shown.contains("loading") && !shown.contains("0/0"), "{shown:?}");
        drop(waiting);
        assert!(screen.0.lock().unwrap().ends_with("<cleared>"));
    }

    #[test]
    fn a_long_wait_says_so_until_it_is_over() {
        let (lines, said) = mpsc::channel();
        let say = move |line| drop(lines.send(line));
        let waiting = Waiting { spinner: None, clock: clock("loading", Duration::from_millis(5), say) };
        let line = || said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(line(), "loading: 0 s so far");
        line();
        drop(waiting);
        // Its thread is over and has let go of the sender: what is left ends.
        while said.try_recv().is_ok() {}
        assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        // A wait that is over soon says nothing.
        let (lines, said) = mpsc::channel::<String>();
        let say = move |line| drop(lines.send(line));
        drop(Waiting { spinner: None, clock: clock("loading", Duration::from_secs(3600), say) });
        assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
