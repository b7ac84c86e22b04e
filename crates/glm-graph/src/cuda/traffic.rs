//! Bytes that a pass has to move: what its time is measured against.

use super::CudaExecutor;
use super::weights::{BlockPlaces, FfnPlaces, InSlot, MixerPlaces, MoePlaces, Placed, SwiGluPlaces};
use crate::error::ExecError;
use crate::executor::{Executor, SeqId};

/// Bytes of a pass with a token of each of some sequences, each read once, or written once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Weights that every pass reads.
    pub dense: u64,
    /// Those of the experts that were taken, each once.
    pub experts: u64,
    /// Recurrent states, both ways.
    pub states: u64,
    /// Latents of the positions attended to, and keys of the pools that they are chosen by.
    pub caches: u64,
}

impl Traffic {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.dense + self.experts + self.states + self.caches
    }
}

fn in_slot(part: &InSlot) -> u64 {
    (part.rows * part.quant.row_bytes(part.cols).unwrap_or(0)) as u64
}

fn matrices(list: &[Placed]) -> u64 {
    list.iter().map(|w| (w.rows * w.row_bytes()) as u64).sum()
}

fn swiglu(w: &SwiGluPlaces) -> u64 {
    matrices(&[w.gate, w.up, w.down])
}

fn moe(block: &BlockPlaces) -> Option<&MoePlaces> {
    match &block.ffn {
        FfnPlaces::Moe(w) => Some(w),
        FfnPlaces::Dense(_) => None,
    }
}

impl CudaExecutor {
    /// How often each expert has been taken since the weights came, of each layer that has experts.
    ///
    /// # Errors
    /// The driver's.
    pub fn expert_uses(&mut self) -> Result<Vec<Vec<u32>>, ExecError> {
        self.land_all()?;
        self.stream.synchronize()?;
        let experts = self.model.config().experts;
        let layers = self.weights.blocks.iter().filter_map(moe);
        layers.map(|w| self.read(w.uses.0, experts)).collect()
    }

    /// Bytes of a pass with the next token of each of `seqs`, if `distinct` experts are taken in all layers together; of a file whose
    /// layers' experts have different formats those of the mean.
    ///
    /// # Errors
    /// Unknown sequence.
    pub fn traffic(&self, seqs: &[SeqId], distinct: usize) -> Result<Traffic, ExecError> {
        let c = self.model.config();
        let mixing = (2 * c.hc_rows() * c.residual() * 4) as u64;
        let of_block = |block: &BlockPlaces| {
            let mixer = match &block.mixer {
                MixerPlaces::Kda(w) => matrices(&w.first) + matrices(&[w.forget, w.gate, w.out]),
                MixerPlaces::Dsa(w) => {
                    matrices(&w.first) + matrices(&[w.q_b, w.index_q_b, w.k_b, w.v_b, w.out])
                }
            };
            let ffn = match &block.ffn {
                FfnPlaces::Dense(w) => swiglu(w),
                FfnPlaces::Moe(w) => (c.experts * c.hidden * 4) as u64 + swiglu(&w.shared),
            };
            mixing + mixer + ffn
        };
        let blocks = &self.weights.blocks;
        let dense = blocks.iter().map(of_block).sum::<u64>() + matrices(&[self.weights.output]);
        let of_experts: Vec<u64> = blocks
            .iter()
            .filter_map(moe)
            .map(|w| in_slot(&w.gate) + in_slot(&w.up) + in_slot(&w.down))
            .collect();
        let mean = of_experts.iter().sum::<u64>() / of_experts.len().max(1) as u64;
        let states = (seqs.len() * 2 * self.weights.state_values * 4) as u64;
        let dsa = blocks.iter().filter(|block| matches!(block.mixer, MixerPlaces::Dsa(_))).count();
        let mut caches = 0;
        for seq in seqs {
            let len = self.len(*seq)? + 1;
            let attended = len.min((c.top_pools() + 1) * c.kpool);
            let pools = if len > attended { len / c.kpool } else { 0 };
            caches += dsa * (attended * c.latent * self.kv.bytes() + pools * c.index_dim * 4);
        }
        Ok(Traffic { dense, experts: mean * distinct as u64, states, caches: caches as u64 })
    }
}
