//! The seam: one forward pass over sequences, whatever it runs on.

use std::fmt;

use crate::error::ExecError;
use crate::sampler::SamplerParams;
use crate::state::Checkpoint;

/// A token id.
pub type Token = u32;

/// A sequence of one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub(crate) u64);

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An answer to wait for. Each is polled once.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

/// What a step feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// This token.
    Token(Token),
    /// The token that the sequence's last step sampled, or will have sampled.
    LastSampled,
}

/// What a step answers with.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// The logits after the fed token.
    Logits,
    /// A token drawn from them.
    Sample(SamplerParams),
    /// Both.
    Both(SamplerParams),
}

impl Want {
    /// How to draw a token, where one is wanted.
    #[must_use]
    pub fn params(&self) -> Option<&SamplerParams> {
        match self {
            Self::Logits => None,
            Self::Sample(params) | Self::Both(params) => Some(params),
        }
    }
}

/// One token of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The sequence; no other step of the batch names it.
    pub seq: SeqId,
    /// Fed at the sequence's next position.
    pub input: Input,
    /// Asked for.
    pub want: Want,
}

/// The answer to one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// The sequence.
    pub seq: SeqId,
    /// `[vocab]`, where asked for.
    pub logits: Option<Vec<f32>>,
    /// Where asked for.
    pub token: Option<Token>,
    /// Set instead of the other two when this sequence failed while the rest of the batch went on.
    pub error: Option<ExecError>,
}

/// What an executor has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tokens fed by `prefill` and `score`.
    pub prefilled: u64,
    /// Tokens fed by `submit`, without undone ones.
    pub decoded: u64,
    /// Routed experts computed, one for each token and rank.
    pub experts: u64,
    /// Checkpoints restored.
    pub restored: u64,
    /// Sequences open now.
    pub open: u64,
}

/// One forward pass over any number of sequences.
///
/// A token's logits depend on its sequence's tokens alone: the cut of the prompt, the number of threads, other sequences
/// and a restore change no bit. An error that names a token, a length or a sequence leaves every sequence as it was. After
/// [`ExecError::NotFinite`] the sequence named can only be closed or restored.
///
/// A sequence may have two steps without an answer. The second one ran *ahead*: until it is polled, or another step of the
/// sequence is submitted, it can be [undone](Self::undo), if the first one's token turns out to be the last. Everything but
/// `submit`, `poll`, `undo`, `restore` and closing needs the sequence's answers first. Whether a step is computed when it is
/// submitted, at once or meanwhile, or only when it is polled, is the executor's affair.
pub trait Executor: Send {
    /// Number of token ids.
    fn vocab(&self) -> usize;

    /// Most tokens a sequence may have.
    fn ctx(&self) -> usize;

    /// Tokens that a call of [`prefill`](Self::prefill) should have, where as many are left: fewer take as long.
    fn span(&self) -> usize;

    /// An empty sequence.
    ///
    /// # Errors
    /// Memory for its state was refused.
    fn open_sequence(&mut self) -> Result<SeqId, ExecError>;

    /// Frees a sequence; allowed for a failed one, and for one with steps without an answer, which nobody can poll then.
    ///
    /// # Errors
    /// The sequence is unknown.
    fn close_sequence(&mut self, seq: SeqId) -> Result<(), ExecError>;

    /// Tokens fed so far, those of steps without an answer included.
    ///
    /// # Errors
    /// The sequence is unknown.
    fn len(&self, seq: SeqId) -> Result<usize, ExecError>;

    /// Feeds tokens without answering. Callers cut long prompts themselves if they want to cancel.
    ///
    /// # Errors
    /// Unknown or failed sequence, a step without an answer, token out of range, context too small, memory, NaN or infinity.
    fn prefill(&mut self, seq: SeqId, tokens: &[Token]) -> Result<(), ExecError>;

    /// Feeds tokens and hands out each one's logits, `(index in tokens, [vocab])`, in order.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill); rows handed out before the error stand.
    fn score(
        &mut self,
        seq: SeqId,
        tokens: &[Token],
        rows: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExecError>;

    /// Feeds one token to each of several sequences, of which each has at most one step without an answer.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), for any of the sequences, before anything is computed; a sequence that fails while
    /// computing reports it in its [`StepRow`] and leaves the others alone.
    fn submit(&mut self, steps: &[Step]) -> Result<Ticket, ExecError>;

    /// The rows of a batch, in the order of its steps. Waits for them. A step that was undone has the error
    /// [`ExecError::Undone`] there.
    ///
    /// # Errors
    /// The ticket is unknown, or all of its steps were undone.
    fn poll(&mut self, ticket: Ticket) -> Result<Vec<StepRow>, ExecError>;

    /// Forgets the step of a sequence that ran ahead: the sequence is as it was before, its sampled token included.
    ///
    /// # Errors
    /// Unknown sequence, or its last step did not run ahead or was polled.
    fn undo(&mut self, seq: SeqId) -> Result<(), ExecError>;

    /// A copy of a sequence's state.
    ///
    /// # Errors
    /// Unknown or failed sequence, a step without an answer.
    fn save(&self, seq: SeqId) -> Result<Checkpoint, ExecError>;

    /// Replaces a sequence's state, and forgets its steps without an answer. Any sequence of an executor over the same model and latent type will do, a failed one
    /// included.
    ///
    /// # Errors
    /// Unknown sequence, foreign checkpoint, or a checkpoint longer than this executor's context.
    fn restore(&mut self, seq: SeqId, checkpoint: &Checkpoint) -> Result<(), ExecError>;

    /// Work done so far.
    fn counters(&self) -> Counters;
}
