//! The body of `POST /v1/completions`.

use serde_json::Value;

use crate::chat_request::refuse_constraints;
use crate::engine::{ModelInfo, SamplerParams};
use crate::error::ApiError;
use crate::field::{Field, text_of};
use crate::settings::Settings;

/// A checked completion request.
#[derive(Debug)]
pub(crate) struct TextCall {
    pub settings: Settings,
    pub prompt: TextPrompt,
}

/// What to continue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextPrompt {
    Text {
        text: String,
        /// Whether the names of special tokens in the text stand for those tokens.
        special: bool,
    },
    /// Ids below the vocabulary's size.
    Ids(Vec<u32>),
}

impl TextCall {
    /// Checks every field that is known and ignores the others.
    pub fn read(
        body: &Value,
        info: &ModelInfo,
        defaults: &SamplerParams,
        seed: u64,
    ) -> Result<Self, ApiError> {
        let body = Field::root(body)?;
        body.get("model").string()?;
        let settings = Settings::read(&body, info.vocab, defaults, seed)?;
        refuse_constraints(&body)?;
        let echo = body.get("echo");
        if echo.bool()? == Some(true) {
            return Err(ApiError::unsupported(&echo.path, "repeating the prompt is not supported"));
        }
        let suffix = body.get("suffix");
        if suffix.string()?.is_some_and(|s| !s.is_empty()) {
            return Err(ApiError::unsupported(&suffix.path, "filling a gap is not supported"));
        }
        let logprobs = body.get("logprobs");
        // Here it is a count, but clients also send the chat endpoint's flag.
        if logprobs.is_given() && logprobs.value() != Some(&Value::Bool(false)) {
            logprobs.integer(0..=20)?;
            return Err(ApiError::unsupported(&logprobs.path, "log probabilities are not supported"));
        }
        let special = body.get("parse_special").bool()?.unwrap_or(true);
        let prompt = prompt(&body.get("prompt"), info, special)?;
        Ok(Self { settings, prompt })
    }
}

fn prompt(field: &Field<'_>, info: &ModelInfo, special: bool) -> Result<TextPrompt, ApiError> {
    const WHAT: &str = "a string or an array of token ids";
    let Value::Array(items) = field.required(WHAT)? else { return text(field, WHAT, special) };
    let prompts = |value: &Value| text_of(value).is_some() || value.is_array();
    match items.as_slice() {
        [] => Err(ApiError::field(&field.path, "must not be empty")),
        // An array of one prompt is that prompt.
        [only] if prompts(only) => {
            let only = field.array()?.into_iter().flatten().next().unwrap_or_else(|| field.clone());
            match only.value() {
                Some(Value::Array(items)) => ids(&only, items.len(), info),
                _ => text(&only, WHAT, special),
            }
        }
        [first, ..] if prompts(first) => {
            Err(ApiError::unsupported(&field.path, "only one prompt a request is supported"))
        }
        items => ids(field, items.len(), info),
    }
}

fn text(field: &Field<'_>, what: &str, special: bool) -> Result<TextPrompt, ApiError> {
    let text = field.value().and_then(text_of).ok_or_else(|| field.expected(what))?;
    Ok(TextPrompt::Text { text: text.to_owned(), special })
}

/// The `count` ids of an array.
fn ids(field: &Field<'_>, count: usize, info: &ModelInfo) -> Result<TextPrompt, ApiError> {
    if count == 0 {
        return Err(ApiError::field(&field.path, "must not be empty"));
    }
    if count >= info.context {
        return Err(ApiError::context_exceeded("prompt", count, info.context));
    }
    let vocab = info.vocab;
    let id = |item: Field<'_>| {
        let n = item.integer(i64::MIN..=i64::MAX)?.ok_or_else(|| item.expected("a token id"))?;
        u32::try_from(n)
            .ok()
            .filter(|id| (*id as usize) < vocab)
            .ok_or_else(|| ApiError::field(&item.path, format_args!("{n} is not a token id below {vocab}")))
    };
    field.array()?.into_iter().flatten().map(id).collect::<Result<_, _>>().map(TextPrompt::Ids)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ModelInfo, SamplerParams, TextCall, TextPrompt};
    use crate::error::ApiError;

    fn info() -> ModelInfo {
        ModelInfo { id: "model".into(), context: 50, vocab: 300 }
    }

    fn read(body: Value) -> Result<TextPrompt, ApiError> {
        TextCall::read(&body, &info(), &SamplerParams::default(), 7).map(|call| call.prompt)
    }

    #[test]
    fn four_forms_of_a_prompt() {
        let text = |special| TextPrompt::Text { text: "hi".into(), special };
        assert_eq!(read(json!({"prompt": "hi"})).unwrap(), text(true));
        assert_eq!(read(json!({"prompt": "hi", "parse_special": false})).unwrap(), text(false));
        assert_eq!(read(json!({"prompt": ["hi"]})).unwrap(), text(true));
        assert_eq!(read(json!({"prompt": [1, 2.0, 299]})).unwrap(), TextPrompt::Ids(vec![1, 2, 299]));
        assert_eq!(read(json!({"prompt": [[1, 2]]})).unwrap(), TextPrompt::Ids(vec![1, 2]));
    }

    #[test]
    fn each_wrong_field_is_named() {
        let cases = [
            (json!({}), "prompt", "found nothing"),
            (json!({"prompt": null}), "prompt", "found nothing"),
            (json!({"prompt": 5}), "prompt", "found a number"),
            (json!({"prompt": []}), "prompt", "must not be empty"),
            (json!({"prompt": [[]]}), "prompt[0]", "must not be empty"),
            (json!({"prompt": ["a", "b"]}), "prompt", "only one prompt"),
            (json!({"prompt": [1, 300]}), "prompt[1]", "300 is not a token id below 300"),
            (json!({"prompt": [1, -1]}), "prompt[1]", "-1 is not a token id"),
            (json!({"prompt": [1, "a"]}), "prompt[1]", "expected a whole number, found a string"),
            (json!({"prompt": [null]}), "prompt[0]", "expected a token id, found nothing"),
            (json!({"prompt": "a", "echo": true}), "echo", "not supported"),
            (json!({"prompt": "a", "suffix": "b"}), "suffix", "not supported"),
            (json!({"prompt": "a", "logprobs": 5}), "logprobs", "not supported"),
            (json!({"prompt": "a", "parse_special": "no"}), "parse_special", "found a string"),
            (json!({"prompt": "a", "model": 5}), "model", "found a number"),
        ];
        for (body, path, text) in cases {
            let error = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(error.param.as_deref(), Some(path), "{body}");
            assert!(error.message.contains(text), "{body}: {}", error.message);
        }
        assert!(TextCall::read(&json!([]), &info(), &SamplerParams::default(), 7).is_err());
    }

    #[test]
    fn more_ids_than_the_context_are_refused_before_one_is_looked_at() {
        for prompt in [json!(vec!["no id"; 1]), json!([vec![5; 49]])] {
            assert!(read(json!({ "prompt": prompt })).is_ok());
        }
        for prompt in [json!(vec![json!({}); 50]), json!([vec![5; 60]])] {
            let error = read(json!({ "prompt": prompt })).unwrap_err();
            assert_eq!(error.code, Some("context_length_exceeded"));
            assert!(error.message.contains("is 50 tokens"), "{}", error.message);
        }
    }

    #[test]
    fn an_integer_of_more_than_64_bits_is_no_text() {
        for (body, path) in [
            (r#"{"prompt": 123456789012345678901}"#, "prompt"),
            (r#"{"prompt": [123456789012345678901]}"#, "prompt[0]"),
            (r#"{"prompt": "a", "model": 123456789012345678901}"#, "model"),
            (r#"{"prompt": "a", "stop": 123456789012345678901}"#, "stop"),
            (r#"{"prompt": "a", "stop": [123456789012345678901]}"#, "stop[0]"),
        ] {
            let error = read(glm_chat::parse_json(body).unwrap()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(path), "{body}");
            assert!(error.message.ends_with("found a number of more than 64 bits"), "{}", error.message);
        }
    }
}
