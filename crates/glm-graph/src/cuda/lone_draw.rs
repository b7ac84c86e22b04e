//! One draw on a device, for comparisons with the CPU.

use quant_kernels::cuda::{Buffer, Context, DeviceSlice, KernelStore, Pinned, StoreOptions, Stream};

use super::abi::{Begin, CHOICE_BYTES};
use super::draw::{ANSWER_BYTES, Counted, DrawPlaces, begin, bias_table, drawing};
use super::kernels::Draw;
use super::launch;
use crate::error::ExecError;
use crate::executor::Token;
use crate::sampler::SamplerParams;

/// A device that draws from given logits.
pub struct DeviceSampler {
    output: Pinned,
    logits: DeviceSlice<f32>,
    bias: DeviceSlice<f32>,
    adjusted: DeviceSlice<f32>,
    candidates: DeviceSlice<u64>,
    counts: DeviceSlice<u32>,
    history: DeviceSlice<u32>,
    words: DeviceSlice<u32>,
    choice: Buffer,
    kernels: Draw,
    stream: Stream,
}

/// Most tokens of a history.
const HISTORY: usize = 4096;

impl DeviceSampler {
    /// Opens a device for a vocabulary.
    ///
    /// # Errors
    /// There is no driver or no such device, or no device code for it.
    pub fn open(device: u32, store: StoreOptions, vocab: usize) -> Result<Self, ExecError> {
        let context = Context::new(device)?;
        let kernels = Draw::load(&KernelStore::open(&context, store))?;
        Ok(Self {
            output: Pinned::new(&context, ANSWER_BYTES)?,
            logits: DeviceSlice::zeroed(&context, vocab)?,
            bias: DeviceSlice::zeroed(&context, vocab)?,
            adjusted: DeviceSlice::zeroed(&context, vocab)?,
            candidates: DeviceSlice::zeroed(&context, vocab)?,
            counts: DeviceSlice::zeroed(&context, vocab)?,
            history: DeviceSlice::zeroed(&context, HISTORY)?,
            // The sampled token, the fault; the turn.
            words: DeviceSlice::zeroed(&context, 8)?,
            choice: Buffer::new(&context, CHOICE_BYTES as usize)?,
            stream: Stream::new(&context)?,
            kernels,
        })
    }

    /// As [`Sampler::sample`](crate::Sampler::sample); the history has at least one token.
    ///
    /// # Errors
    /// Lengths that do not fit, or the driver's.
    pub fn sample(
        &mut self,
        logits: &[f32],
        history: &[Token],
        params: &SamplerParams,
    ) -> Result<Token, ExecError> {
        let vocab = self.logits.len();
        for (what, found, expected) in [
            ("the logits", logits.len(), vocab),
            ("the history", history.len(), history.len().clamp(1, HISTORY)),
        ] {
            if found != expected {
                return Err(ExecError::Length { what, found, expected });
            }
        }
        let mut stored = history.to_vec();
        stored.resize(HISTORY, 0);
        self.logits.copy_from(logits)?;
        self.history.copy_from(&stored)?;
        self.bias.copy_from(&bias_table(params, vocab))?;
        let position = history.len() - 1;
        let counted = Counted::default().next(Some(params), position);
        if counted != Counted::default() {
            self.counts.copy_from(&vec![0; vocab])?;
        }
        let fault = self.words.address_of(1);
        let places =
            [self.words.address(), self.output.device_address(), self.bias.address(), self.counts.address()];
        let start = Begin {
            turn: self.words.address_of(4),
            history: self.history.address(),
            counts: self.counts.address(),
            choice: self.choice.address(),
            drawing: drawing(Some(params), position, vocab, places),
            token: history[position],
            position: position as u32,
            vocab: vocab as u32,
            from: counted.from,
            to: counted.to,
            ..bytemuck::Zeroable::zeroed()
        };
        let draw = DrawPlaces {
            rows: 1,
            logits: self.logits.address(),
            vocab: vocab as u32,
            choice: self.choice.address(),
            adjusted: self.adjusted.address(),
            candidates: self.candidates.address(),
            fault,
            code: 1,
        };
        let put = |_, kernel: &_, grid, args| launch::kernel(&self.stream, kernel, grid, args);
        begin(&self.kernels, &[start], &put)?;
        draw.draw(&self.kernels, &put)?;
        self.stream.synchronize()?;
        let [token, _] = launch::heard(&self.output, 0);
        Ok(token)
    }
}
