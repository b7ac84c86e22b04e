//! Text of GLM-5.3-Flash; the README follows.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod byte_level;
mod conversation;
mod detokenizer;
mod exact_json;
mod limits;
mod long_word;
mod namespaces;
mod pretokenizer;
mod prompt;
mod python_json;
mod python_str;
mod shapes;
mod shield;
mod special;
mod splitter;
mod stack;
mod template;
mod tokenizer;

pub use conversation::{ChatRequest, RequestError};
pub use detokenizer::Detokenizer;
pub use exact_json::{marked_integer, parse_json, plain_text};
pub use limits::TooLong;
pub use prompt::Prompt;
pub use splitter::{ChatEvent, Ending, FinishReason, Splitter, SplitterOptions, StopStrings};
pub use template::{Template, TemplateError};
pub use tokenizer::{ParseSpecial, Tokenizer, TokenizerError, VocabSource};
