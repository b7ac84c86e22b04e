//! What can go wrong, as sentences: once while loading, once while running.

use std::fmt;

use crate::executor::SeqId;

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file itself is at fault.
    #[error(transparent)]
    File(#[from] gguf::Error),
    /// Another model family.
    #[error(
        "the architecture is {found:?}; maya runs \"glm5-next\" (also spelt \"glm5next\") and nothing else"
    )]
    Architecture {
        /// `general.architecture`.
        found: String,
    },
    /// The third metadata dialect (model-spec 9.6).
    #[error(
        "the file uses the \"ds4\" layout of this architecture (it has the key {key}), whose tensors have other \
         names; convert the model with llama.cpp's converter, or use a Maya or unsloth file"
    )]
    Dialect {
        /// The key that gives it away.
        key: String,
    },
    /// A key that has no default.
    #[error("the key {key} is missing")]
    MissingKey {
        /// The whole key.
        key: String,
    },
    /// A value that makes no model, or one that this engine does not run.
    #[error("{key} is {value}: {problem}")]
    Value {
        /// The whole key.
        key: String,
        /// The value found.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A tensor that the metadata call for.
    #[error("the tensor {name} is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// Tensors that no part of the model claims.
    #[error("{count} tensor(s) of the file belong to no part of this model: {names}")]
    UnknownTensors {
        /// How many.
        count: usize,
        /// The first few names.
        names: String,
    },
    /// A shape that contradicts the metadata.
    #[error("the tensor {name} has the shape {found}, but {because} asks for {expected}")]
    Shape {
        /// Its name.
        name: String,
        /// The shape in the file, fastest axis first.
        found: Dims,
        /// The shape asked for.
        expected: Dims,
        /// The keys it follows from.
        because: &'static str,
    },
    /// A type without kernels.
    #[error("the tensor {name} has the type {ty}, for which there are no kernels: {instead}")]
    Type {
        /// Its name.
        name: String,
        /// The type's name.
        ty: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// NaN or infinity in one of the small vectors, which are read when the model is loaded.
    #[error("the tensor {name} holds {value} at element {index}")]
    NotFinite {
        /// Its name.
        name: String,
        /// NaN or an infinity.
        value: f32,
        /// Where.
        index: usize,
    },
}

/// A shape, fastest axis first, printed as `256 x 512`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims(pub Vec<u64>);

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { " x " })?;
        }
        Ok(())
    }
}

/// Why a call failed. Unless a variant says otherwise the sequences are as they were before the call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The id was never given out, or the sequence is closed.
    #[error("there is no open sequence {0}")]
    UnknownSequence(SeqId),
    /// A token outside the vocabulary.
    #[error("token {token} at place {at} is outside the vocabulary of {vocab} tokens")]
    TokenRange {
        /// The id given.
        token: u32,
        /// Its place in the call.
        at: usize,
        /// The vocabulary.
        vocab: usize,
    },
    /// More tokens than the context holds.
    #[error("{wanted} tokens do not fit the context of {ctx} tokens")]
    Context {
        /// Tokens that the sequence would have.
        wanted: usize,
        /// The context.
        ctx: usize,
    },
    /// A prompt without tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// NaN or infinity: the sequence named in the call can only be closed or restored from here on.
    #[error("NaN or infinity in {what} of layer {layer}, at position {position} of sequence {seq}")]
    NotFinite {
        /// The sequence.
        seq: SeqId,
        /// Block number; the number of trunk layers stands for the head.
        layer: usize,
        /// Which values.
        what: &'static str,
        /// Position in the sequence.
        position: usize,
    },
    /// The sequence met [`ExecError::NotFinite`] or an interrupted call before.
    #[error("sequence {0} failed in an earlier call: close it, or restore a checkpoint into it")]
    Broken(SeqId),
    /// A sequence stands twice in one `submit`.
    #[error("sequence {0} stands twice in one batch of steps")]
    Twice(SeqId),
    /// A call that needs the answers of all steps first.
    #[error("sequence {0} has a step without an answer: poll it first")]
    Unanswered(SeqId),
    /// A third step without an answer.
    #[error("sequence {0} has two steps without an answer: poll one first")]
    TooFarAhead(SeqId),
    /// `undo` of a sequence whose last step did not run ahead, or was polled.
    #[error("sequence {0} has no step that ran ahead")]
    NotAhead(SeqId),
    /// What an undone step has for an answer.
    #[error("the step of sequence {0} was undone")]
    Undone(SeqId),
    /// `Input::LastSampled` where nothing was sampled.
    #[error("sequence {0} has no sampled token to continue from")]
    NothingSampled(SeqId),
    /// A ticket that was never given out, or was polled before.
    #[error("there is no unanswered ticket {0}")]
    UnknownTicket(u64),
    /// A checkpoint of other weights, or with another latent type.
    #[error("the checkpoint belongs to another model or another latent type")]
    ForeignCheckpoint,
    /// Sampling parameters that mean nothing.
    #[error("the sampling parameter {name} is {value}: it must be {range}")]
    Sampler {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// Memory for a sequence's state could not be had.
    #[error("no memory for {what}: {bytes} bytes were refused")]
    Memory {
        /// Which state.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The thread pool did not start.
    #[error("the {threads} worker threads did not start: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's reason.
        reason: String,
    },
    /// An instruction set that this processor lacks.
    #[error("this processor does not have the instruction set {0}")]
    NoIsa(quant_kernels::Isa),
    /// The threads inherited a floating-point mode that would change bits.
    #[error(
        "a worker thread's floating-point mode is not the default one (round to nearest, keep small numbers): another library \
         of this process changed it"
    )]
    FloatMode,
    /// Drafts from a file without a NextN block.
    #[error("the file has no NextN block")]
    NoNextN,
    /// A slice whose length does not fit the model.
    #[error("{what} has {found} values, {expected} are needed")]
    Length {
        /// Which slice.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length needed.
        expected: usize,
    },
    /// The weights of an expert could not be read: the sequences that needed it can only be closed or restored from here
    /// on, the others go on.
    #[error("expert {expert} of block {block} could not be read: {why}")]
    Read {
        /// The expert.
        expert: u32,
        /// The block.
        block: usize,
        /// The file and the offset, and what the drive said.
        why: String,
    },
    /// The tiers cannot be made.
    #[error("experts cannot be kept in tiers: {0}")]
    Tiers(String),
    /// All sequences that there is device memory for are open.
    #[error("all {slots} sequences that there is memory for are open: close one first")]
    NoSlot {
        /// How many can be open.
        slots: usize,
    },
    /// The device's memory does not hold the model.
    #[error(
        "{needed} bytes of device memory are needed and {room} bytes {}: {parts}",
        if *limited { "are allowed by --vram" } else { "are free" }
    )]
    DeviceMemory {
        /// Bytes of everything.
        needed: u64,
        /// Bytes that there are.
        room: u64,
        /// Whether a limit of the caller's is what they do not fit.
        limited: bool,
        /// What they are for.
        parts: String,
    },
    /// A part of the file could not be read.
    #[error("the weights cannot be brought to the device: {0}")]
    Load(String),
    /// The device code was not made for such a size.
    #[error("{found} {what}: a device takes at most {most}; the processor (--device cpu) takes any number")]
    TooLong {
        /// Of what there are so many.
        what: &'static str,
        /// How many.
        found: usize,
        /// The most there may be.
        most: usize,
    },
    /// There is no device code for a format or an operation.
    #[error("there is no device code for {0}")]
    NoKernel(String),
    /// The driver refused something, or the device failed.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] quant_kernels::cuda::DriverError),
    /// Device code was not found.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Code(#[from] quant_kernels::cuda::StoreError),
}

#[cfg(feature = "cuda")]
impl ExecError {
    /// Of a file that could not be read while its weights were loaded.
    pub(crate) fn file(error: gguf::Error) -> Self {
        Self::Load(error.to_string())
    }
}
