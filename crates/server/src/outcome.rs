//! How an answer ended, and what it took.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The end of an answer that went well.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// `stop`, `length` or `tool_calls`.
    pub finish: &'static str,
    pub usage: Usage,
    pub timings: Timings,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub prompt: usize,
    /// Emitted tokens; the one that ended the turn is not among them.
    pub completion: usize,
    /// Those of them that are reasoning, its end mark included.
    pub reasoning: usize,
}

impl Usage {
    pub fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt.saturating_add(self.completion),
            // Every prompt is computed whole.
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }
}

/// Milliseconds and rates, under the names that local clients know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timings {
    pub prompt: usize,
    /// From the start of the work to the first token.
    pub prompt_ms: f64,
    pub predicted: usize,
    /// From the first token to the end.
    pub predicted_ms: f64,
}

impl Timings {
    /// Tokens a second after the first one; 0 when there are not two.
    pub fn predicted_per_second(&self) -> f64 {
        rate(self.predicted.saturating_sub(1), self.predicted_ms)
    }

    pub fn to_json(self) -> Value {
        json!({
            "cache_n": 0,
            "prompt_n": self.prompt,
            "prompt_ms": self.prompt_ms,
            "prompt_per_second": rate(self.prompt, self.prompt_ms),
            "predicted_n": self.predicted,
            "predicted_ms": self.predicted_ms,
            "predicted_per_second": self.predicted_per_second(),
        })
    }
}

fn rate(n: usize, ms: f64) -> f64 {
    if ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 }
}

/// Counts tokens and takes the times between them.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    prompt: usize,
    tokens: usize,
}

impl Clock {
    /// Starts with the work on a prompt of `prompt` tokens.
    pub fn start(prompt: usize) -> Self {
        Self { start: Instant::now(), first: None, last: None, prompt, tokens: 0 }
    }

    /// A token came.
    pub fn token(&mut self) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.tokens += 1;
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The counts and times so far; `reasoning` of the tokens were reasoning.
    pub fn measure(&self, reasoning: usize) -> (Usage, Timings) {
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        let usage = Usage { prompt: self.prompt, completion: self.tokens, reasoning };
        let timings = Timings {
            prompt: self.prompt,
            prompt_ms: ms(self.first.map_or_else(|| self.start.elapsed(), |first| first - self.start)),
            predicted: self.tokens,
            predicted_ms: self.first.zip(self.last).map_or(0.0, |(first, last)| ms(last - first)),
        };
        (usage, timings)
    }
}
