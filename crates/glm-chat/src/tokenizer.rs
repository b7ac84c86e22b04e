//! Byte-level BPE with the file's vocabulary (model-spec 10.1).

use crate::byte_level;
use crate::detokenizer::{Detokenizer, Pieces};
use crate::long_word;
use crate::pretokenizer::Pretokenizer;
use crate::prompt::Prompt;
use crate::special::SpecialSet;
use std::collections::HashMap;
use std::sync::Arc;
use tokenizers::models::bpe::{BPE, Vocab};

/// A vocabulary as a model file holds it; plain data.
#[derive(Clone, Debug, Default)]
pub struct VocabSource {
    /// `tokenizer.ggml.model`: must be `gpt2` (byte-level BPE).
    pub model: String,
    /// `tokenizer.ggml.pre`: `glm4`, `glm5` or `chatglm-bpe`, which all name the same pattern.
    pub pre: String,
    /// `tokenizer.ggml.tokens`: the index is the id. Normal tokens are written in the byte alphabet.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`, one a token: 1 normal, 3 control, 4 user-defined, 5 unused.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: two tokens with a space between, best rank first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`.
    pub eom: Option<u32>,
}

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// Not byte-level BPE.
    #[error("tokenizer.ggml.model is \"{0}\"; only \"gpt2\" (byte-level BPE) is supported")]
    Model(String),
    /// A pre-tokenizer whose pattern we do not know: guessing would split numbers wrongly.
    #[error("tokenizer.ggml.pre is \"{0}\"; supported are glm4, glm5 and chatglm-bpe")]
    Pre(String),
    /// No tokens, or more than ids can count.
    #[error("tokenizer.ggml.tokens has {0} entries")]
    Count(usize),
    /// Types and tokens do not pair up.
    #[error("tokenizer.ggml.token_type has {types} entries for {tokens} tokens")]
    Types {
        /// Entries of `token_type`.
        types: usize,
        /// Entries of `tokens`.
        tokens: usize,
    },
    /// Two tokens with one text.
    #[error("tokenizer.ggml.tokens holds \"{text}\" twice, as {first} and as {second}")]
    Duplicate {
        /// The text.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// Text that contains this byte could not be encoded.
    #[error("tokenizer.ggml.tokens has no token for the byte {0:#04x}")]
    Byte(u8),
    /// A merge that is not two tokens.
    #[error("tokenizer.ggml.merges[{index}] is \"{merge}\": {reason}")]
    Merge {
        /// Index in the list.
        index: usize,
        /// The entry.
        merge: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A stop token outside the vocabulary.
    #[error("tokenizer.ggml.{key} is {id}, but there are {tokens} tokens")]
    Stop {
        /// `eos_token_id`, `eot_token_id` or `eom_token_id`.
        key: &'static str,
        /// Its value.
        id: u32,
        /// Size of the vocabulary.
        tokens: usize,
    },
    /// A special token longer than any name of one.
    #[error(
        "tokenizer.ggml.tokens[{id}] is a special token of {bytes} bytes; at most {LONGEST_SPECIAL} are taken"
    )]
    SpecialLength {
        /// Its id.
        id: u32,
        /// Length of its text.
        bytes: usize,
    },
    /// More special tokens than a vocabulary has a use for.
    #[error(
        "tokenizer.ggml.tokens[{id}] is special token number {count}, and they have {bytes} bytes; at most {MOST_SPECIALS} \
         with {MOST_SPECIAL_BYTES} bytes are taken"
    )]
    SpecialCount {
        /// The one that is too many.
        id: u32,
        /// How many there are up to it.
        count: usize,
        /// Bytes of their texts.
        bytes: usize,
    },
    /// The BPE library refused the vocabulary.
    #[error("the vocabulary was refused: {0}")]
    Library(String),
}

/// Whether the text of a special token becomes that token or ordinary pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseSpecial {
    /// Recognise special tokens, leftmost and longest first.
    Yes,
    /// All text is text.
    No,
}

/// Text to ids and back. Cheap to share behind an `Arc`; all methods take `&self`.
#[derive(Debug)]
pub struct Tokenizer {
    bpe: BPE,
    pretokenizer: Pretokenizer,
    pieces: Arc<Pieces>,
    specials: SpecialSet,
    /// Id of each text of `specials`, in its order.
    special_ids: Vec<u32>,
    special_by_text: HashMap<Box<str>, u32>,
    /// Sorted.
    special_sorted: Vec<u32>,
    unused: Vec<u32>,
    stop: Vec<u32>,
    size: usize,
}

/// Special tokens are looked for at every character of a text and compared with every string of a request. Published
/// vocabularies of the family have about 40 of 25 bytes at most; others have been seen with some thousand of 30.
const LONGEST_SPECIAL: usize = 512;
const MOST_SPECIALS: usize = 4096;
const MOST_SPECIAL_BYTES: usize = 256 << 10;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// The two tokens of every merge. `longest` is the length of the longest token: the library copies a merge's result into a
/// buffer of that size before it looks the result up.
fn split_merges(merges: &[String], longest: usize) -> Result<Vec<(String, String)>, TokenizerError> {
    let split = merges.iter().enumerate().map(|(index, merge)| {
        let refuse = |reason| TokenizerError::Merge { index, merge: merge.clone(), reason };
        let (left, right) =
            merge.split_once(' ').ok_or_else(|| refuse("two tokens and a space were expected"))?;
        if left.len() + right.len() > longest {
            return Err(refuse("its result is not a token"));
        }
        Ok((left.to_owned(), right.to_owned()))
    });
    split.collect()
}

/// Names the merge that the library stumbled over. (Looking all parts up beforehand would double the time.)
fn refused(error: &(dyn std::error::Error + Send + Sync + 'static), merges: &[String]) -> TokenizerError {
    if let Some(tokenizers::models::bpe::Error::MergeTokenOutOfVocabulary(missing)) = error.downcast_ref() {
        for (index, merge) in merges.iter().enumerate() {
            let Some((left, right)) = merge.split_once(' ') else { continue };
            let part = left == missing || right == missing;
            let result = || missing.strip_prefix(left).is_some_and(|rest| rest == right);
            if part || result() {
                let reason = if part { "a part of it is not a token" } else { "its result is not a token" };
                return TokenizerError::Merge { index, merge: merge.clone(), reason };
            }
        }
    }
    TokenizerError::Library(error.to_string())
}

/// Turn ends of the model family; `stop_tokens` has them in addition to the ids that the file names, because files have
/// been seen with `eos_token_id` alone.
const STOP_TEXTS: [&str; 3] = ["<|endoftext|>", "<|user|>", "<|observation|>"];

impl Tokenizer {
    /// Checks the vocabulary and builds the tables.
    ///
    /// # Errors
    /// A sentence that names the metadata key, see [`TokenizerError`].
    pub fn new(source: VocabSource) -> Result<Self, TokenizerError> {
        if source.model != "gpt2" {
            return Err(TokenizerError::Model(source.model));
        }
        if !matches!(source.pre.as_str(), "glm4" | "glm5" | "chatglm-bpe") {
            return Err(TokenizerError::Pre(source.pre));
        }
        let size = source.tokens.len();
        if size == 0 || u32::try_from(size).is_err() {
            return Err(TokenizerError::Count(size));
        }
        if source.token_types.len() != size {
            return Err(TokenizerError::Types { types: source.token_types.len(), tokens: size });
        }

        let mut pieces = Pieces::with_capacity(size);
        let mut vocab = Vocab::with_capacity(size);
        let mut special_by_text = HashMap::new();
        let mut special_texts = Vec::new();
        let mut special_ids = Vec::new();
        let mut special_bytes = 0;
        let mut unused = Vec::new();
        for (id, (token, &kind)) in (0u32..).zip(source.tokens.into_iter().zip(&source.token_types)) {
            match kind {
                UNUSED => {
                    pieces.push_text("");
                    unused.push(id);
                }
                CONTROL | USER_DEFINED => {
                    if token.len() > LONGEST_SPECIAL {
                        return Err(TokenizerError::SpecialLength { id, bytes: token.len() });
                    }
                    special_bytes += token.len();
                    let count = special_texts.len() + 1;
                    if count > MOST_SPECIALS || special_bytes > MOST_SPECIAL_BYTES {
                        return Err(TokenizerError::SpecialCount { id, count, bytes: special_bytes });
                    }
                    pieces.push_text(&token);
                    special_texts.push(token.clone());
                    special_ids.push(id);
                    if let Some(first) = special_by_text.insert(token.as_str().into(), id) {
                        return Err(TokenizerError::Duplicate { text: token, first, second: id });
                    }
                }
                NORMAL => {
                    pieces.push_encoded(&token);
                    // Only these can come out of ordinary text. A special token must not be among them: "/nothink" is
                    // one pre-token, and ignore_merges would turn a user's word into the control token.
                    if let Some(first) = vocab.insert(token, id) {
                        let text = String::from_utf8_lossy(pieces.get(id)).into_owned();
                        return Err(TokenizerError::Duplicate { text, first, second: id });
                    }
                }
                _ => pieces.push_text(&token),
            }
        }
        let mut buffer = [0; 4];
        for byte in 0..=255u8 {
            if !vocab.contains_key(&*byte_level::char_of(byte).encode_utf8(&mut buffer)) {
                return Err(TokenizerError::Byte(byte));
            }
        }

        let merges = split_merges(&source.merges, vocab.keys().map(String::len).max().unwrap_or(0))?;

        let mut stop = Vec::new();
        for (key, id) in
            [("eos_token_id", source.eos), ("eot_token_id", source.eot), ("eom_token_id", source.eom)]
        {
            let Some(id) = id else { continue };
            if id as usize >= size {
                return Err(TokenizerError::Stop { key, id, tokens: size });
            }
            stop.push(id);
        }
        stop.extend(STOP_TEXTS.iter().filter_map(|&text| special_by_text.get(text)));
        stop.sort_unstable();
        stop.dedup();

        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(true)
            .build()
            .map_err(|error| refused(&*error, &source.merges))?;
        let mut special_sorted = special_ids.clone();
        special_sorted.sort_unstable();
        // An empty special text can never be matched, but it keeps its id in the sorted list.
        let specials = SpecialSet::new(&special_texts);
        let special_ids = specials.texts().iter().map(|text| special_by_text[text]).collect();
        Ok(Self {
            bpe,
            pretokenizer: Pretokenizer::new(),
            pieces: Arc::new(pieces),
            specials,
            special_ids,
            special_by_text,
            special_sorted,
            unused,
            stop,
            size,
        })
    }

    /// The ids of `text`. Nothing is put before or after it.
    ///
    /// Text between two recognised special tokens is one run: its pieces depend on nothing outside the run.
    pub fn encode(&self, text: &str, special: ParseSpecial) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        let mut at = 0;
        if special == ParseSpecial::Yes {
            while let Some((range, index)) = self.specials.next(text, at) {
                self.encode_run(&text[at..range.start], &mut ids);
                ids.push(self.special_ids[index]);
                at = range.end;
            }
        }
        self.encode_run(&text[at..], &mut ids);
        ids
    }

    /// The ids of a rendered prompt: special tokens where the template put them and nowhere else.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Vec<u32> {
        let text = prompt.as_str();
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        let mut at = 0;
        for range in prompt.specials() {
            // A special of the template that this vocabulary lacks stays text, in one run with its neighbours.
            let Some(id) = self.special(&text[range.clone()]) else { continue };
            self.encode_run(&text[at..range.start], &mut ids);
            ids.push(id);
            at = range.end;
        }
        self.encode_run(&text[at..], &mut ids);
        ids
    }

    fn encode_run(&self, text: &str, ids: &mut Vec<u32>) {
        for pretoken in self.pretokenizer.split(text) {
            long_word::encode(&self.bpe, &self.pieces, pretoken.as_bytes(), ids);
        }
    }

    /// The text of `ids`; bytes that are no UTF-8 become U+FFFD. Special tokens appear as their text, ids outside the
    /// vocabulary and unused ones as nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.pieces.get(id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Tokens that a text of `bytes` bytes has at the least: as many as if all were the longest one of the vocabulary. What
    /// is too long by this need not be tokenised to be refused.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.pieces.longest().max(1))
    }

    /// A decoder for a stream of ids.
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.pieces))
    }

    /// The id of the special token with exactly this text.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.special_by_text.get(text).copied()
    }

    /// The texts of all special tokens (control and user-defined), for [`crate::Template::new`].
    pub fn special_texts(&self) -> Vec<String> {
        self.specials.texts().iter().map(|text| text.to_string()).collect()
    }

    /// Whether `id` is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special_sorted.binary_search(&id).is_ok()
    }

    /// The tokens that end a turn: what the file names and `<|endoftext|>`, `<|user|>`, `<|observation|>`. Ascending.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// Padding rows without text, which a sampler has to mask. Ascending.
    pub fn unused_tokens(&self) -> &[u32] {
        &self.unused
    }

    /// Number of tokens, padding included.
    pub fn vocab_size(&self) -> usize {
        self.size
    }
}
