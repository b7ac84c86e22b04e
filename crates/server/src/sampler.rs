//! How a token is drawn.

/// Sampler settings of one request. The order of the steps: logit bias, penalties, top_k, top_p, min_p, temperature,
/// draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerParams {
    /// 0 takes the largest logit whatever the other settings and the seed.
    pub temperature: f32,
    /// Keep this many of the largest logits; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of tokens with this much probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens below this share of the most probable one; 0 drops none.
    pub min_p: f32,
    /// Divides (or multiplies, when negative) the logits of seen tokens; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every seen token.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a seen token once for each time it was seen.
    pub frequency_penalty: f32,
    /// Tokens the penalties look back on; 0 is off, `usize::MAX` all.
    pub penalty_last_n: usize,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where the draws start: the same seed and request give the same tokens.
    pub seed: u64,
}

impl Default for SamplerParams {
    /// The model card's settings: temperature 1.0 and top_p 0.95, nothing else.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 0.95,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}
