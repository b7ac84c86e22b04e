//! From logits to a token.
//!
//! Order: logit bias, penalties, top-k, top-p, min-p, temperature, draw. Draws are counter-based: the number drawn depends
//! on the seed and the token's position alone, so a seed reproduces whatever else the process did. A device draws the same
//! tokens: docs/ARITHMETIC.md, "Draws", says what both compute.

mod draw;

use std::sync::Arc;

use quant_kernels::Cpu;

use draw::Draw;
use draw::finite_above;
#[cfg(feature = "cuda")]
pub(crate) use draw::lowest;
pub(crate) use draw::uniform;

use crate::choice::rank_of;
use crate::error::ExecError;
use crate::executor::Token;

/// How a token is drawn. The default is the model card's: temperature 1.0, top-p 0.95, nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// Logits are divided by it before the draw; 0 takes the largest logit, ties to the lowest id, whatever the seed.
    pub temperature: f32,
    /// Keeps this many of the largest; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest of the largest whose probabilities (before temperature, among what top-k kept) reach this sum; 1
    /// keeps all.
    pub top_p: f32,
    /// Keeps what has at least this share of the largest probability (before temperature); 0 keeps all.
    pub min_p: f32,
    /// Positive logits of seen tokens are divided by it, others multiplied; 1 does nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of seen tokens.
    pub presence_penalty: f32,
    /// Subtracted from a seen token's logit once for each time it was seen.
    pub frequency_penalty: f32,
    /// How many of the last tokens count as seen, prompt included; `usize::MAX` for all.
    pub penalty_last_n: usize,
    /// Added to logits, several of one token first to each other; -100 and below bans a token for practical purposes.
    pub logit_bias: Vec<(Token, f32)>,
    /// Never drawn, whatever bias they have: the padding rows of the vocabulary, which have no text.
    pub banned: Arc<[Token]>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 0.95,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: usize::MAX,
            logit_bias: Vec::new(),
            banned: Arc::new([]),
            seed: 0,
        }
    }
}

impl SamplerParams {
    /// The largest logit, always.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, ..Self::default() }
    }

    /// Whether the draw is no draw.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// Names the parameter, its value and what is allowed. Biased tokens are checked against `vocab`.
    pub fn check(&self, vocab: usize) -> Result<(), ExecError> {
        let within = |name, value: f32, ok: bool, range| {
            if ok { Ok(()) } else { Err(ExecError::Sampler { name, value: f64::from(value), range }) }
        };
        let unit = |value: f32| (0.0..=1.0).contains(&value);
        let t = self.temperature;
        within("temperature", t, t.is_finite() && t >= 0.0, "a number, 0 or more")?;
        within("top_p", self.top_p, unit(self.top_p) && self.top_p > 0.0, "above 0 and at most 1")?;
        within("min_p", self.min_p, unit(self.min_p), "from 0 to 1")?;
        let r = self.repetition_penalty;
        within("repetition_penalty", r, (0.01..=100.0).contains(&r), "from 0.01 to 100")?;
        let hundred = |value: f32| (-100.0..=100.0).contains(&value);
        within(
            "presence_penalty",
            self.presence_penalty,
            hundred(self.presence_penalty),
            "from -100 to 100",
        )?;
        within(
            "frequency_penalty",
            self.frequency_penalty,
            hundred(self.frequency_penalty),
            "from -100 to 100",
        )?;
        for (token, bias) in &self.logit_bias {
            let known = (*token as usize) < vocab;
            within("logit_bias (token)", *token as f32, known, "a token of the vocabulary")?;
            within("logit_bias", *bias, !bias.is_nan() && *bias < f32::INFINITY, "a number or -infinity")?;
        }
        Ok(())
    }
}

/// Buffers of the sampler, kept between tokens.
#[derive(Debug)]
pub struct Sampler {
    cpu: Cpu,
    adjusted: Adjusted,
    draw: Draw,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { cpu: Cpu::detect(), adjusted: Adjusted::default(), draw: Draw::default() }
    }
}

/// Logits after bias and penalties.
#[derive(Debug, Default)]
struct Adjusted {
    logits: Vec<f32>,
    seen: Vec<Token>,
}

impl Sampler {
    /// Draws the token for position `history.len()`.
    ///
    /// `logits` has one value an id, at least one; NaN is never drawn where there is a number. `history` is every token of
    /// the sequence so far. `params` has passed [`SamplerParams::check`].
    pub fn sample(&mut self, logits: &[f32], history: &[Token], params: &SamplerParams) -> Token {
        let Self { cpu, adjusted, draw } = self;
        let logits = adjusted.apply(logits, history, params);
        if params.is_greedy() {
            return argmax(logits);
        }
        draw.token(*cpu, logits, params, uniform(params.seed, history.len() as u64))
    }
}

impl SamplerParams {
    /// Whether tokens that were seen count.
    pub(crate) fn is_penalised(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// The first position whose token counts as seen, of `len`.
    pub(crate) fn first_seen(&self, len: usize) -> usize {
        len.saturating_sub(self.penalty_last_n)
    }

    /// The biases, one a token: several of one token are added up in their order.
    pub(crate) fn biases(&self) -> Vec<(Token, f32)> {
        let mut biases = self.logit_bias.clone();
        biases.sort_by_key(|(token, _)| *token);
        biases.dedup_by(|(token, bias), (first, sum)| {
            let same = token == first;
            if same {
                *sum = finite_above(*sum + *bias);
            }
            same
        });
        biases
    }
}

impl Adjusted {
    /// Logit bias and penalties; the logits themselves where there are none.
    fn apply<'a>(&'a mut self, logits: &'a [f32], history: &[Token], params: &SamplerParams) -> &'a [f32] {
        let penalised = params.is_penalised();
        if params.logit_bias.is_empty() && params.banned.is_empty() && !penalised {
            return logits;
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        for (token, bias) in params.biases() {
            if let Some(logit) = self.logits.get_mut(token as usize).filter(|_| bias != 0.0) {
                *logit = finite_above(*logit + bias);
            }
        }
        if penalised {
            self.seen.clear();
            self.seen.extend_from_slice(&history[params.first_seen(history.len())..]);
            self.seen.sort_unstable();
            for run in self.seen.chunk_by(|a, b| a == b) {
                let Some(logit) = self.logits.get_mut(run[0] as usize) else { continue };
                let repetition = params.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / repetition } else { *logit * repetition };
                *logit -= params.presence_penalty + params.frequency_penalty * run.len() as f32;
                *logit = finite_above(*logit);
            }
        }
        for token in params.banned.iter() {
            if let Some(logit) = self.logits.get_mut(*token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        &self.logits
    }
}

/// The largest logit's id, the lowest of equals. Ranks are compared in lanes, which the compiler makes vectors of: one by one
/// 155,000 of them took half a millisecond.
fn argmax(logits: &[f32]) -> Token {
    let (chunks, rest) = logits.as_chunks::<16>();
    let mut lanes = [i32::MIN; 16];
    for chunk in chunks {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane).max(rank_of(*logit));
        }
    }
    let most = lanes.into_iter().chain(rest.iter().map(|logit| rank_of(*logit))).max().unwrap_or(i32::MIN);
    logits.iter().position(|logit| rank_of(*logit) == most).unwrap_or(0) as Token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(logits: &[f32], params: &SamplerParams, at: usize) -> Token {
        Sampler::default().sample(logits, &vec![0; at], params)
    }

    /// How often each id is drawn over 4,000 positions.
    fn counts(logits: &[f32], params: &SamplerParams) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        let mut sampler = Sampler::default();
        let history = vec![0; 4000];
        (0..4000).for_each(|at| counts[sampler.sample(logits, &history[..at], params) as usize] += 1);
        counts
    }

    fn plain() -> SamplerParams {
        SamplerParams { top_p: 1.0, ..SamplerParams::default() }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_whatever_the_seed() {
        for seed in [0, 1, u64::MAX] {
            let params = SamplerParams { seed, ..SamplerParams::greedy() };
            assert_eq!(sample(&[1.0, 3.0, 3.0, f32::NAN, -1.0], &params, 7), 1);
            assert_eq!(sample(&[f32::NAN, f32::NEG_INFINITY], &params, 7), 1);
        }
    }

    #[test]
    fn a_seed_reproduces_and_seeds_differ() {
        let logits: Vec<f32> = (0..500).map(|i| (i as f32 * 0.37).sin()).collect();
        let draw = |seed| {
            (0..50).map(|at| sample(&logits, &SamplerParams { seed, ..plain() }, at)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0, 2f32.ln(), f32::NEG_INFINITY, 5f32.ln()];
        let counts = counts(&logits, &plain());
        for (count, expected) in counts.iter().zip([500.0, 1000.0, 0.0, 2500.0]) {
            assert!((*count as f64 - expected).abs() < 120.0, "{counts:?}");
        }
    }

    #[test]
    fn temperature_comes_last() {
        // At temperature 2 the ratio 4 becomes 2; top_p is judged before that: 0.8 of the mass is one token.
        let logits = [0.0, 4f32.ln()];
        let hot = SamplerParams { temperature: 2.0, ..plain() };
        let seen = counts(&logits, &hot);
        assert!((seen[1] as f64 / seen[0] as f64 - 2.0).abs() < 0.2, "{seen:?}");
        assert_eq!(counts(&logits, &SamplerParams { top_p: 0.79, ..hot })[0], 0);
    }

    #[test]
    fn cuts_keep_what_they_say() {
        let logits: Vec<f32> = (0..300).map(|i| (i * 37 % 300) as f32 * 0.01).collect();
        let kept = |params: &SamplerParams| Draw::default().kept(Cpu::detect(), &logits, params);
        let mut order: Vec<Token> = (0..300).collect();
        order.sort_by_key(|id| std::cmp::Reverse(id * 37 % 300));
        assert_eq!(kept(&SamplerParams { top_k: 7, ..plain() }), order[..7]);
        assert_eq!(kept(&plain()), order);
        let mass: Vec<f64> = order.iter().map(|id| f64::from(logits[*id as usize]).exp()).collect();
        let total: f64 = mass.iter().sum();
        for top_p in [0.001, 0.3, 0.9, 0.999] {
            let mut sum = 0.0;
            let expected = mass.iter().take_while(|m| {
                let take = sum < f64::from(top_p) * total;
                sum += **m;
                take
            });
            assert_eq!(kept(&SamplerParams { top_p, ..plain() }), order[..expected.count()]);
        }
        let min_p = kept(&SamplerParams { min_p: 0.5, ..plain() });
        let expected = mass.iter().filter(|m| **m >= 0.5 * mass[0]).count();
        assert_eq!(min_p, order[..expected]);
    }

    #[test]
    fn ties_at_the_cut_go_to_the_lower_id() {
        let params = SamplerParams { top_k: 2, ..plain() };
        assert_eq!(Draw::default().kept(Cpu::detect(), &[1.0; 5], &params), [0, 1]);
    }

    #[test]
    fn penalties_see_the_last_tokens() {
        let greedy = |params: SamplerParams, history: &[Token]| {
            Sampler::default().sample(
                &[2.0, 1.9, -1.0],
                history,
                &SamplerParams { temperature: 0.0, ..params },
            )
        };
        let presence = SamplerParams { presence_penalty: 0.2, ..SamplerParams::greedy() };
        assert_eq!(greedy(presence.clone(), &[2]), 0);
        assert_eq!(greedy(presence.clone(), &[0]), 1);
        assert_eq!(greedy(SamplerParams { penalty_last_n: 1, ..presence }, &[0, 2]), 0);
        let frequency = SamplerParams { frequency_penalty: 0.06, ..SamplerParams::greedy() };
        assert_eq!(greedy(frequency.clone(), &[0]), 0);
        assert_eq!(greedy(frequency, &[0, 0]), 1);
        let repetition = SamplerParams { repetition_penalty: 1.1, ..SamplerParams::greedy() };
        assert_eq!(greedy(repetition.clone(), &[0]), 1);
        let mut adjusted = Adjusted::default();
        assert_eq!(adjusted.apply(&[2.0, 1.9, -1.0], &[2], &repetition)[2], -1.1);
    }

    #[test]
    fn bias_bans_and_forces() {
        let bias = |token, bias| SamplerParams { logit_bias: vec![(token, bias)], ..SamplerParams::greedy() };
        assert_eq!(sample(&[1.0, 5.0, 2.0], &bias(1, -100.0), 0), 2);
        assert_eq!(sample(&[1.0, 5.0, 2.0], &bias(0, 100.0), 0), 0);
        let all =
            SamplerParams { logit_bias: vec![(0, f32::NEG_INFINITY), (1, f32::NEG_INFINITY)], ..plain() };
        assert_eq!(sample(&[1.0, 5.0], &all, 0), 0);
    }

    #[test]
    fn a_banned_token_is_never_drawn() {
        let banned = |params| SamplerParams { banned: Arc::new([1, 2, 9]), ..params };
        assert_eq!(sample(&[1.0, 5.0, 4.0, 0.5], &banned(SamplerParams::greedy()), 0), 0);
        assert_eq!(counts(&[1.0, 5.0, 4.0, 1.0], &banned(plain()))[1..3], [0, 0]);
        let forced = SamplerParams { logit_bias: vec![(1, 100.0)], ..banned(plain()) };
        assert_eq!(sample(&[1.0, 5.0, 4.0, -90.0], &forced, 0), 0);
    }

    /// A repetition penalty of 1e-40 once made a seen token's logit infinite; no probability was a number then, no token
    /// was kept, and the draw panicked.
    #[test]
    fn every_allowed_extreme_can_be_drawn_from() {
        let logits = [3e38, 1.0, -3e38, 0.0, -0.0, f32::NEG_INFINITY, f32::NAN];
        for repetition_penalty in [0.01, 100.0] {
            for penalty in [-100.0, 100.0] {
                for (temperature, top_p) in
                    [(f32::MIN_POSITIVE, f32::MIN_POSITIVE), (3.4e38, 1.0), (0.0, 0.95)]
                {
                    let params = SamplerParams {
                        temperature,
                        top_p,
                        repetition_penalty,
                        presence_penalty: penalty,
                        frequency_penalty: penalty,
                        logit_bias: vec![(0, f32::MAX), (1, f32::MAX), (2, f32::NEG_INFINITY)],
                        ..SamplerParams::default()
                    };
                    params.check(logits.len()).unwrap();
                    let history: Vec<Token> = (0..7).chain(0..7).collect();
                    assert!((Sampler::default().sample(&logits, &history, &params) as usize) < 2);
                }
            }
        }
    }

    #[test]
    fn meaningless_parameters_are_named() {
        let refused = |params: SamplerParams| params.check(10).expect_err("refused").to_string();
        let base = SamplerParams::default;
        assert!(refused(SamplerParams { temperature: -1.0, ..base() }).contains("temperature is -1"));
        assert!(refused(SamplerParams { temperature: f32::NAN, ..base() }).contains("temperature"));
        assert!(refused(SamplerParams { top_p: 0.0, ..base() }).contains("top_p"));
        assert!(refused(SamplerParams { min_p: 1.5, ..base() }).contains("min_p"));
        for repetition_penalty in [0.0, 1e-40, f32::INFINITY] {
            let sentence = refused(SamplerParams { repetition_penalty, ..base() });
            assert!(
                sentence.contains("repetition_penalty") && sentence.contains("0.01 to 100"),
                "{sentence}"
            );
        }
        assert!(refused(SamplerParams { presence_penalty: f32::INFINITY, ..base() }).contains("presence"));
        assert!(refused(SamplerParams { logit_bias: vec![(10, 1.0)], ..base() }).contains("logit_bias"));
        assert!(base().check(10).is_ok() && SamplerParams::greedy().check(10).is_ok());
    }

    #[test]
    fn biases_of_one_token_are_added_up() {
        let logit_bias = vec![(4, 1.0), (2, f32::MAX), (4, 0.5), (2, f32::MAX), (4, -3.0), (2, -1.0)];
        let params = SamplerParams { logit_bias, ..plain() };
        assert_eq!(params.biases(), [(2, f32::MAX), (4, -1.5)]);
    }
}
