//! An engine that follows a script, and records what was asked of it.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use server::{EngineError, Event, Finish, Generate, ModelInfo, Options};

use crate::client::PATIENCE;

/// One thing an engine does. A script that ends without `Finish` ends the answer as the model would.
pub enum Act {
    Prefill(usize, usize),
    Token(u32),
    /// Blocks inside one engine step until the gate opens, as a long computation does.
    Wait(Arc<Gate>),
    /// Steps of prefill without end, a millisecond each.
    PrefillForever,
    /// The same token without end, a millisecond each.
    Forever(u32),
    Finish(Finish),
    Sequence(&'static str),
    Engine(&'static str),
    Panic,
}

/// A door that tests open.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    wake: Condvar,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.wake.notify_all();
    }

    fn wait(&self, most: Duration) -> bool {
        let guard = self.open.lock().unwrap();
        *self.wake.wait_timeout_while(guard, most, |open| !*open).unwrap().0
    }
}

/// What happened so far.
#[derive(Default, Clone, Debug)]
pub struct Seen {
    pub prompts: Vec<Vec<u32>>,
    pub options: Vec<Options>,
    /// Steps of the current or last answer.
    pub steps: usize,
    /// Whether the last answer was broken off by the callback.
    pub cancelled: usize,
    pub finished: usize,
    pub recovered: usize,
    pub running: bool,
    pub dropped: bool,
}

/// The test's side: scripts in, observations out.
#[derive(Default)]
pub struct Stage {
    scripts: Mutex<VecDeque<Vec<Act>>>,
    seen: Mutex<Seen>,
    wake: Condvar,
}

impl Stage {
    pub fn play(&self, script: Vec<Act>) {
        self.scripts.lock().unwrap().push_back(script);
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until `true`, or fails the test. Blocks its thread: the server runs on others.
    pub fn wait(&self, what: &str, mut is: impl FnMut(&Seen) -> bool) -> Seen {
        let guard = self.seen.lock().unwrap();
        let (guard, late) = self.wake.wait_timeout_while(guard, PATIENCE, |seen| !is(seen)).unwrap();
        assert!(!late.timed_out(), "never saw {what}: {guard:?}");
        guard.clone()
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.wake.notify_all();
    }
}

pub struct Scripted {
    pub stage: Arc<Stage>,
    pub info: ModelInfo,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stage.note(|seen| seen.dropped = true);
    }
}

impl Generate for Scripted {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn generate(
        &mut self,
        prompt: &[u32],
        options: &Options,
        on: &mut dyn FnMut(Event) -> ControlFlow<()>,
    ) -> Result<Finish, EngineError> {
        let script = self.stage.scripts.lock().unwrap().pop_front().unwrap_or_default();
        self.stage.note(|seen| {
            seen.prompts.push(prompt.to_vec());
            seen.options.push(options.clone());
            seen.steps = 0;
            seen.running = true;
        });
        let stage = Arc::clone(&self.stage);
        let mut on = |event| {
            stage.note(|seen| seen.steps += 1);
            on(event)
        };
        let result = play(script, prompt.len(), options, &mut on);
        self.stage.note(|seen| {
            seen.running = false;
            match result {
                Ok(Finish::Cancelled) => seen.cancelled += 1,
                Ok(_) => seen.finished += 1,
                Err(_) => {}
            }
        });
        result
    }

    fn recover(&mut self) -> Result<(), EngineError> {
        self.stage.note(|seen| seen.recovered += 1);
        Ok(())
    }
}

fn play(
    script: Vec<Act>,
    prompt: usize,
    options: &Options,
    on: &mut dyn FnMut(Event) -> ControlFlow<()>,
) -> Result<Finish, EngineError> {
    let never = Gate::default();
    let mut emitted = 0;
    for act in script {
        let flow = match act {
            Act::Prefill(done, total) => on(Event::Prefill { done, total }),
            Act::Token(token) => {
                emitted += 1;
                on(Event::Token(token))
            }
            Act::Wait(gate) => {
                assert!(gate.wait(PATIENCE), "the gate stayed shut");
                ControlFlow::Continue(())
            }
            Act::PrefillForever => forever(&never, || on(Event::Prefill { done: 0, total: prompt })),
            Act::Forever(token) => forever(&never, || on(Event::Token(token))),
            Act::Finish(finish) => return Ok(finish),
            Act::Sequence(text) => return Err(EngineError::Sequence(text.into())),
            Act::Engine(text) => return Err(EngineError::Engine(text.into())),
            Act::Panic => panic!("a scripted panic"),
        };
        if flow.is_break() {
            return Ok(Finish::Cancelled);
        }
        if emitted == options.max_tokens {
            return Ok(Finish::Length);
        }
    }
    Ok(Finish::Stop(options.stop_tokens.first().copied().unwrap_or(0)))
}

/// Steps until broken off; fails the test when that takes too long.
fn forever(never: &Gate, mut step: impl FnMut() -> ControlFlow<()>) -> ControlFlow<()> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        step()?;
        never.wait(Duration::from_millis(1));
    }
    panic!("nobody stopped the engine");
}
