//! Between conversations and tokens.

use std::sync::Arc;

use glm_chat::{ParseSpecial, Splitter, SplitterOptions, Template, TemplateError, Tokenizer};

use crate::chat_request::ChatCall;
use crate::error::ApiError;
use crate::id::Ids;
use crate::text_request::{TextCall, TextPrompt};
use crate::turn::Turn;

/// The text side of a model: its tokenizer and its chat template.
#[derive(Debug)]
pub struct Chat {
    tokenizer: Tokenizer,
    template: Template,
}

impl Chat {
    /// Both must come from the same model.
    pub fn new(tokenizer: Tokenizer, template: Template) -> Self {
        Self { tokenizer, template }
    }

    /// The prompt of a chat request, and what will read its answer. `context`: tokens that there is room for.
    pub(crate) fn open(
        &self,
        call: &ChatCall,
        context: usize,
        ids: Arc<Ids>,
    ) -> Result<(Vec<u32>, Turn), ApiError> {
        let prompt = self.template.render(&call.request).map_err(refused)?;
        self.check_length("messages", prompt.as_str(), context)?;
        let thinking_open = prompt.thinking_open();
        let options = SplitterOptions {
            tools: call.request.tools.clone().unwrap_or_default(),
            thinking_open,
            stop: call.settings.stops.clone(),
        };
        let splitter = Splitter::new(&self.tokenizer, options);
        // Without that token in the vocabulary the end of reasoning is known by the text that follows it.
        let think_end = self.tokenizer.special("</think>");
        let turn = Turn::chat(splitter, thinking_open, think_end, call.single_call, ids);
        Ok((self.tokenizer.encode_prompt(&prompt), turn))
    }

    /// The prompt of a completion request, and what will read its answer. `context`: tokens that there is room for.
    pub(crate) fn open_text(&self, call: &TextCall, context: usize) -> Result<(Vec<u32>, Turn), ApiError> {
        let prompt = match &call.prompt {
            TextPrompt::Ids(ids) => ids.clone(),
            TextPrompt::Text { text, special } => {
                self.check_length("prompt", text, context)?;
                self.tokenizer.encode(text, if *special { ParseSpecial::Yes } else { ParseSpecial::No })
            }
        };
        Ok((prompt, Turn::text(self.tokenizer.detokenizer(), call.settings.stops.clone())))
    }

    /// Refuses what cannot fit before it is tokenised, which would take a second a megabyte.
    fn check_length(&self, param: &str, text: &str, context: usize) -> Result<(), ApiError> {
        let least = self.tokenizer.fewest_tokens(text.len());
        if least > context {
            return Err(ApiError::text_exceeds_context(param, text.len(), least, context));
        }
        Ok(())
    }

    /// The tokens that end a turn.
    pub(crate) fn stop_tokens(&self) -> &[u32] {
        self.tokenizer.stop_tokens()
    }
}

/// Always a 400: a conversation that the template cannot render would fail again, and clients repeat a 500 for minutes.
fn refused(error: TemplateError) -> ApiError {
    match error {
        TemplateError::Request(error) => ApiError::field(&error.field, error.problem),
        other => ApiError::invalid(format!("The conversation cannot be rendered: {other}.")),
    }
}
