//! The fields that every completion request shares: sampling, limits, stop strings, streaming.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::engine::SamplerParams;
use crate::error::ApiError;
use crate::field::Field;

/// Most stop strings, and the most bytes of one. Both bound the work that a token costs.
const STOPS: usize = 16;
const STOP_BYTES: usize = 1024;

/// Repetition penalties that are taken; 1 is off. A logit is divided or multiplied by it, and beyond these it is no penalty
/// any more: models have logits of 10 to 50, and clients use 0.8 to 2.
const REPETITION: RangeInclusive<f32> = 0.01..=100.0;

/// What a request asks of sampling and delivery, checked.
#[derive(Debug)]
pub(crate) struct Settings {
    pub stream: bool,
    /// A last chunk with the token counts.
    pub include_usage: bool,
    /// Chunks that tell how far the prompt is.
    pub progress: bool,
    /// None: as many as the context has room for.
    pub max_tokens: Option<usize>,
    pub stops: Vec<String>,
    pub sampler: SamplerParams,
}

impl Settings {
    /// Reads them. `defaults` stand in for sampler fields that are not given, `seed` for a missing seed.
    pub fn read(
        body: &Field<'_>,
        vocab: usize,
        defaults: &SamplerParams,
        seed: u64,
    ) -> Result<Self, ApiError> {
        one_choice(body)?;
        let stream = body.get("stream").bool()?.unwrap_or(false);
        let options = body.get("stream_options");
        options.object()?;
        Ok(Self {
            stream,
            include_usage: stream && options.get("include_usage").bool()?.unwrap_or(false),
            progress: stream && body.get("return_progress").bool()?.unwrap_or(false),
            max_tokens: max_tokens(body)?,
            stops: stops(&body.get("stop"))?,
            sampler: sampler(body, vocab, defaults, seed)?,
        })
    }
}

/// One answer a request: one sequence is decoded at a time.
fn one_choice(body: &Field<'_>) -> Result<(), ApiError> {
    for key in ["n", "best_of"] {
        let n = body.get(key);
        if n.integer(1..=i64::MAX)?.is_some_and(|n| n > 1) {
            return Err(ApiError::unsupported(key, "only 1 is supported; send several requests instead"));
        }
    }
    Ok(())
}

/// 0, -1 and null mean "the rest of the context".
fn max_tokens(body: &Field<'_>) -> Result<Option<usize>, ApiError> {
    // Both are checked, so that a wrong one is named even when the other counts.
    let old = body.get("max_tokens").integer(-1..=i64::MAX)?;
    let new = body.get("max_completion_tokens").integer(-1..=i64::MAX)?;
    Ok(new.or(old).filter(|n| *n > 0).map(|n| usize::try_from(n).unwrap_or(usize::MAX)))
}

fn stops(stop: &Field<'_>) -> Result<Vec<String>, ApiError> {
    match stop.value() {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() > STOPS => {
            let text = format!("at most {STOPS} stop strings are supported, and there are {}", items.len());
            Err(ApiError::field(&stop.path, text))
        }
        Some(Value::Array(_)) => stop.array()?.into_iter().flatten().map(|item| one_stop(&item)).collect(),
        Some(_) if stop.is_text() => Ok(vec![one_stop(stop)?]),
        Some(_) => Err(stop.expected("a string or an array of strings")),
    }
}

fn one_stop(item: &Field<'_>) -> Result<String, ApiError> {
    let text = item.string()?.ok_or_else(|| item.expected("a string"))?;
    if text.is_empty() {
        return Err(ApiError::field(&item.path, "a stop string must not be empty"));
    }
    if text.len() > STOP_BYTES {
        let text = format!("a stop string may have {STOP_BYTES} bytes, and this one has {}", text.len());
        return Err(ApiError::field(&item.path, text));
    }
    Ok(text.to_owned())
}

fn sampler(
    body: &Field<'_>,
    vocab: usize,
    defaults: &SamplerParams,
    seed: u64,
) -> Result<SamplerParams, ApiError> {
    let mut params = defaults.clone();
    // f32::MAX as an end means that any finite value goes.
    if let Some(t) = body.get("temperature").number(0.0..=f32::MAX)? {
        params.temperature = t;
    }
    // -1 is how some clients say "off".
    if let Some(k) = body.get("top_k").integer(-1..=i64::MAX)? {
        params.top_k = usize::try_from(k).unwrap_or(0);
    }
    // Clients that send 0 want the most probable token alone.
    if let Some(p) = body.get("top_p").number(0.0..=1.0)? {
        params.top_p = p.max(f32::MIN_POSITIVE);
    }
    if let Some(p) = body.get("min_p").number(0.0..=1.0)? {
        params.min_p = p;
    }
    let repetition = body.first_of(&["repetition_penalty", "repeat_penalty"]);
    if let Some(p) = repetition.number(REPETITION)? {
        params.repetition_penalty = p;
    }
    if let Some(p) = body.get("presence_penalty").number(-2.0..=2.0)? {
        params.presence_penalty = p;
    }
    if let Some(p) = body.get("frequency_penalty").number(-2.0..=2.0)? {
        params.frequency_penalty = p;
    }
    // -1 looks back on everything.
    let window = body.first_of(&["penalty_last_n", "repeat_last_n"]);
    if let Some(n) = window.integer(-1..=i64::MAX)? {
        params.penalty_last_n = usize::try_from(n).unwrap_or(usize::MAX);
    }
    if let Some(bias) = logit_bias(&body.get("logit_bias"), vocab)? {
        params.logit_bias = bias;
    }
    // As elsewhere, -1 asks for a fresh seed; every other whole number of 64 bits is one.
    let given = body.get("seed");
    let fresh = given.value().and_then(Value::as_i64) == Some(-1);
    params.seed = given.seed()?.filter(|_| !fresh).unwrap_or(seed);
    Ok(params)
}

/// `{"token id": bias}`.
fn logit_bias(field: &Field<'_>, vocab: usize) -> Result<Option<Vec<(u32, f32)>>, ApiError> {
    let Some(map) = field.object()? else { return Ok(None) };
    let mut biases = Vec::with_capacity(map.len());
    for key in map.keys() {
        let entry = field.get(key);
        // One spelling a token: "05" and "+5" beside "5" would add up to more than a bias may be.
        let id = key.parse::<u32>().ok().filter(|id| (*id as usize) < vocab && id.to_string() == *key);
        let token = id.ok_or_else(|| {
            ApiError::field(&entry.path, format_args!("{key:?} is not a token id below {vocab}"))
        })?;
        let bias = entry.number(-100.0..=100.0)?.ok_or_else(|| entry.expected("a number"))?;
        biases.push((token, bias));
    }
    Ok(Some(biases))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Field, SamplerParams, Settings};
    use crate::error::ApiError;

    fn read(body: serde_json::Value) -> Result<Settings, ApiError> {
        Settings::read(&Field::root(&body).unwrap(), 300, &SamplerParams::default(), 7)
    }

    #[test]
    fn nothing_given_is_the_model_card() {
        let settings =
            read(json!({"temperature": null, "stop": null, "max_tokens": null, "n": null})).unwrap();
        assert_eq!(settings.sampler, SamplerParams { seed: 7, ..SamplerParams::default() });
        assert!(settings.stops.is_empty() && settings.max_tokens.is_none() && !settings.stream);
    }

    #[test]
    fn every_field_arrives() {
        let settings = read(json!({
            "temperature": 0, "top_k": 40.0, "top_p": 0.5, "min_p": 0.05, "repeat_penalty": 1.5,
            "presence_penalty": -1, "frequency_penalty": 2, "repeat_last_n": -1, "logit_bias": {"5": -100, "299": 1.5},
            "seed": 18_446_744_073_709_551_615_u64, "stop": ["a", "b"], "max_tokens": 5, "max_completion_tokens": 9,
            "stream": true, "stream_options": {"include_usage": true}, "return_progress": true, "n": 1
        }))
        .unwrap();
        let expected = SamplerParams {
            temperature: 0.0,
            top_k: 40,
            top_p: 0.5,
            min_p: 0.05,
            repetition_penalty: 1.5,
            presence_penalty: -1.0,
            frequency_penalty: 2.0,
            penalty_last_n: usize::MAX,
            logit_bias: vec![(5, -100.0), (299, 1.5)],
            banned: SamplerParams::default().banned,
            seed: u64::MAX,
        };
        assert_eq!(settings.sampler, expected);
        assert_eq!(settings.stops, ["a", "b"]);
        assert_eq!(settings.max_tokens, Some(9));
        assert!(settings.stream && settings.include_usage && settings.progress);
    }

    #[test]
    fn whatever_is_accepted_can_be_sampled() {
        let extremes = [
            json!({"temperature": 3.4e38, "top_p": 0, "min_p": 1, "repetition_penalty": 0.01, "top_k": i64::MAX}),
            json!({"temperature": 1e-300, "top_p": 1e-300, "min_p": 0, "repetition_penalty": 100, "top_k": -1}),
            json!({"temperature": -0.0, "logit_bias": {"0": -100, "299": 100}, "penalty_last_n": 0}),
        ];
        for body in extremes {
            let params = read(body.clone()).unwrap().sampler;
            assert!(params.check(300).is_ok(), "{body}: {:?}", params.check(300));
        }
    }

    #[test]
    fn no_limit_has_four_spellings() {
        for value in [json!(0), json!(-1), json!(null), json!(-1.0)] {
            assert_eq!(read(json!({"max_tokens": value})).unwrap().max_tokens, None);
        }
    }

    #[test]
    fn seeds_of_either_sign() {
        assert_eq!(read(json!({"seed": -1})).unwrap().sampler.seed, 7);
        assert_eq!(read(json!({"seed": -2})).unwrap().sampler.seed, u64::MAX - 1);
        assert_eq!(read(json!({"seed": 42.0})).unwrap().sampler.seed, 42);
    }

    #[test]
    fn each_wrong_field_is_named() {
        let cases = [
            (json!({"temperature": "1"}), "temperature", "temperature: expected a number, found a string"),
            (json!({"temperature": -0.1}), "temperature", "temperature: -0.1 is not in 0 and above"),
            (json!({"temperature": 1e300}), "temperature", "temperature: 1e+300 is not in 0 and above"),
            (json!({"top_k": 1.5}), "top_k", "top_k: expected a whole number, found 1.5"),
            (json!({"top_k": "40"}), "top_k", "top_k: expected a whole number, found a string"),
            (json!({"top_p": 1.1}), "top_p", "top_p: 1.1 is not in 0 to 1"),
            (json!({"min_p": []}), "min_p", "min_p: expected a number, found an array"),
            (json!({"repetition_penalty": 0}), "repetition_penalty", "0 is not in 0.01 to 100"),
            (json!({"repetition_penalty": 1e-40}), "repetition_penalty", "is not in 0.01 to 100"),
            (json!({"repeat_penalty": 3e38}), "repeat_penalty", "is not in 0.01 to 100"),
            (json!({"presence_penalty": 3}), "presence_penalty", "presence_penalty: 3 is not in -2 to 2"),
            (json!({"frequency_penalty": {}}), "frequency_penalty", "expected a number, found an object"),
            (json!({"penalty_last_n": -2}), "penalty_last_n", "penalty_last_n: -2 is not in -1 and above"),
            (json!({"logit_bias": {"300": 1}}), "logit_bias.300", "is not a token id below 300"),
            (json!({"logit_bias": {"x": 1}}), "logit_bias.x", "is not a token id below 300"),
            (json!({"logit_bias": {"05": 1}}), "logit_bias.05", "is not a token id below 300"),
            (json!({"logit_bias": {"5": 1, "+5": 1}}), "logit_bias.+5", "is not a token id below 300"),
            (json!({"logit_bias": {"-0": 1}}), "logit_bias.-0", "is not a token id below 300"),
            (json!({"logit_bias": {"5": 101}}), "logit_bias.5", "is not in -100 to 100"),
            (json!({"logit_bias": {"5": null}}), "logit_bias.5", "expected a number, found nothing"),
            (json!({"logit_bias": [[5, 1]]}), "logit_bias", "expected an object, found an array"),
            (json!({"seed": 1.5}), "seed", "whole number of 64 bits"),
            (json!({"seed": 1e30}), "seed", "whole number of 64 bits"),
            (json!({"seed": "7"}), "seed", "expected a whole number, found a string"),
            (json!({"stop": ""}), "stop", "must not be empty"),
            (json!({"stop": ["a", ""]}), "stop[1]", "must not be empty"),
            (json!({"stop": ["a", 5]}), "stop[1]", "expected a string, found a number"),
            (json!({"stop": [null]}), "stop[0]", "expected a string, found nothing"),
            (json!({"stop": 5}), "stop", "expected a string or an array of strings, found a number"),
            (json!({"stop": vec!["a"; 17]}), "stop", "at most 16"),
            (json!({"stop": "x".repeat(1025)}), "stop", "has 1025"),
            (json!({"max_tokens": -2}), "max_tokens", "max_tokens: -2 is not in -1 and above"),
            (json!({"max_tokens": "9"}), "max_tokens", "expected a whole number, found a string"),
            (json!({"max_tokens": 1e30, "max_completion_tokens": 1}), "max_tokens", "whole number"),
            (json!({"max_completion_tokens": false}), "max_completion_tokens", "found a boolean"),
            (json!({"stream": "true"}), "stream", "expected true or false, found a string"),
            (json!({"stream_options": true}), "stream_options", "expected an object, found a boolean"),
            (
                json!({"stream": true, "stream_options": {"include_usage": 1}}),
                "stream_options.include_usage",
                "expected true or false",
            ),
            (json!({"stream": true, "return_progress": 1}), "return_progress", "expected true or false"),
            (json!({"n": 2}), "n", "only 1 is supported"),
            (json!({"n": 0}), "n", "n: 0 is not in 1 and above"),
            (json!({"best_of": 4}), "best_of", "only 1 is supported"),
        ];
        for (body, path, text) in cases {
            let error = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(error.status, 400, "{body}");
            assert_eq!(error.param.as_deref(), Some(path), "{body}");
            assert!(
                error.message.starts_with(path) && error.message.contains(text),
                "{body}: {}",
                error.message
            );
        }
    }
}
