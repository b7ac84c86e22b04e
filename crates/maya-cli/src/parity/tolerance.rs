//! What comparisons allow: `tolerances.json`, a reason beside every number, and `yardstick.json`, the errors that
//! llama.cpp b11434 makes on the same prompts with 8-bit activations, and with an f16 cache.

use anyhow::{Context, Result};
use serde_json::Value;

/// The most that the comparison `name` allows.
pub fn limit(name: &str) -> Result<f64> {
    let list: Value = serde_json::from_str(include_str!("tolerances.json")).context("tolerances.json")?;
    let entry = list.as_array().into_iter().flatten().find(|e| e["name"] == name);
    entry.and_then(|e| e["limit"].as_f64()).with_context(|| format!("tolerances.json has no limit {name}"))
}

/// llama.cpp's errors on one prompt of one file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yardstick {
    /// Mean absolute error of a logit, f32 cache.
    pub mean: f64,
    /// Largest absolute error of a logit, f16 cache.
    pub f16_max: f64,
    /// Share of positions with the same most likely token.
    pub argmax: f64,
}

/// The errors for `file` (`tiny-a.maya`) on the prompt of `prompt` tokens.
pub fn yardstick(file: &str, prompt: usize) -> Result<Yardstick> {
    let list: Value = serde_json::from_str(include_str!("yardstick.json")).context("yardstick.json")?;
    let entry = list.as_array().into_iter().flatten().find(|e| e["file"] == file && e["prompt"] == prompt);
    let number = |key: &str| entry.and_then(|e| e[key].as_f64());
    let all = number("mean").zip(number("f16_max")).zip(number("argmax"));
    let ((mean, f16_max), argmax) =
        all.with_context(|| format!("yardstick.json has no row of {file} with {prompt} tokens"))?;
    Ok(Yardstick { mean, f16_max, argmax })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_name_a_number_and_a_reason() {
        let list: Value = serde_json::from_str(include_str!("tolerances.json")).unwrap();
        for entry in list.as_array().unwrap() {
            assert!(limit(entry["name"].as_str().unwrap()).unwrap() >= 0.0);
            assert!(entry["reason"].as_str().unwrap().len() > 20, "{entry}");
        }
        assert!(limit("no.such").is_err());
    }

    #[test]
    fn the_yardstick_is_found_by_file_and_prompt() {
        let found = yardstick("tiny-b.q8_0", 515).unwrap();
        assert_eq!(found, Yardstick { mean: 0.86, f16_max: 8.0, argmax: 0.48 });
        assert!(yardstick("tiny-b.q8_0", 516).is_err());
    }
}
