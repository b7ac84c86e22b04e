//! The weights in device memory: where each matrix lies.

use quant_kernels::Quant;

use super::memory::{DevicePlan, Part, Place};
use crate::config::Config;
use crate::model::Model;
use crate::weights::{Ffn, Mixer, Moe, Stack, SwiGlu, Tensor};

/// A matrix in device memory, with the file's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) at: Place,
    pub(super) quant: Quant,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Placed {
    pub(super) fn row_bytes(&self) -> usize {
        self.quant.row_bytes(self.cols).expect("a claimed tensor's row is whole blocks")
    }
}

/// The part of a slot that one matrix takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct InSlot {
    pub(super) offset: usize,
    pub(super) quant: Quant,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

/// A hyper-connection site.
#[derive(Clone, Copy, Debug)]
pub(super) struct SitePlaces {
    pub(super) mix: Place,
    pub(super) base: Place,
    pub(super) norm: Place,
    pub(super) scale: [f32; 3],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KdaPlaces {
    /// q, k, v, the low ranks of the two gates, the write strength.
    pub(super) first: [Placed; 6],
    pub(super) forget: Placed,
    pub(super) gate: Placed,
    pub(super) out: Placed,
    pub(super) taps: Place,
    pub(super) bias: Place,
    pub(super) decay: Place,
    pub(super) norm: Place,
    /// Where the layer begins in a copy of the state, in values.
    pub(super) matrix: usize,
    pub(super) history: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DsaPlaces {
    /// q_a, kv_a, the indexer's key, gate and head weights.
    pub(super) first: [Placed; 5],
    pub(super) q_b: Placed,
    pub(super) index_q_b: Placed,
    /// All heads under one another.
    pub(super) k_b: Placed,
    pub(super) v_b: Placed,
    pub(super) out: Placed,
    pub(super) q_a_norm: Place,
    pub(super) kv_a_norm: Place,
    pub(super) k_norm: Place,
    pub(super) k_bias: Place,
    pub(super) ape: Place,
    /// Which of the DSA layers.
    pub(super) nth: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SwiGluPlaces {
    pub(super) gate: Placed,
    pub(super) up: Placed,
    pub(super) down: Placed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MoePlaces {
    /// `[experts][hidden]`, f32.
    pub(super) router: Place,
    pub(super) bias: Place,
    /// Residency entries, one an expert.
    pub(super) table: Place,
    /// Counts of use.
    pub(super) uses: Place,
    pub(super) gate: InSlot,
    pub(super) up: InSlot,
    pub(super) down: InSlot,
    /// The first slot, and bytes of one.
    pub(super) slots: Place,
    pub(super) slot_bytes: usize,
    pub(super) shared: SwiGluPlaces,
}

impl MoePlaces {
    /// Whether an expert's gate and up are one matrix: of one format and side by side.
    pub(super) fn joined(&self) -> bool {
        let gate_bytes = self.gate.quant.row_bytes(self.gate.cols).map(|bytes| self.gate.rows * bytes);
        self.gate.quant == self.up.quant && gate_bytes == Some(self.up.offset)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MixerPlaces {
    Kda(KdaPlaces),
    Dsa(DsaPlaces),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FfnPlaces {
    Dense(SwiGluPlaces),
    Moe(MoePlaces),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlaces {
    pub(super) sites: [SitePlaces; 2],
    pub(super) mixer: MixerPlaces,
    pub(super) ffn: FfnPlaces,
}

/// Everything that a pass reads.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub(super) blocks: Vec<BlockPlaces>,
    pub(super) output_norm: Place,
    pub(super) output: Placed,
    /// Embeddings, in a format whose rows the device takes apart; otherwise the host does.
    pub(super) embed: Option<Placed>,
    /// Values of a copy of a sequence's recurrent state.
    pub(super) state_values: usize,
}

/// The number of a format in kernels/include/row.cuh.
pub(super) fn row_format(quant: Quant) -> Option<u32> {
    Some(match quant {
        Quant::F32 => 0,
        Quant::F16 => 1,
        Quant::Bf16 => 2,
        Quant::Q4_0 => 3,
        Quant::Q4_1 => 4,
        Quant::Q5_0 => 5,
        Quant::Q5_1 => 6,
        Quant::Q8_0 => 7,
        Quant::Q2K => 8,
        Quant::Q3K => 9,
        Quant::Q4K => 10,
        Quant::Q5K => 11,
        Quant::Q6K => 12,
        _ => return None,
    })
}

/// A slot's matrices begin where copies of sixteen bytes can.
const SLOT_ALIGNMENT: usize = 256;

impl Weights {
    /// Finds a place for everything that the trunk reads.
    pub(super) fn plan(model: &Model, plan: &mut DevicePlan) -> Self {
        let (config, weights) = (model.config(), model.weights());
        let mut it = Planner { config, plan, state: 0, n_dsa: 0 };
        let blocks = weights.blocks[..config.trunk].iter().enumerate().map(|(at, block)| {
            let hyper = block.hyper.as_ref().expect("a block of the trunk has two sites");
            let sites = [0, 1].map(|i| SitePlaces {
                mix: it.plan.words(Part::Dense, config.hc_rows() * config.residual()),
                base: it.vector(hyper[i].base.len()),
                norm: it.vector(config.hidden),
                scale: hyper[i].scale,
            });
            let mixer = it.mixer(&block.mixer);
            let ffn = match &block.ffn {
                Ffn::Dense(w) => FfnPlaces::Dense(it.swiglu(w)),
                Ffn::Moe(w) => FfnPlaces::Moe(it.moe(w)),
            };
            debug_assert_eq!(config.is_moe(at), matches!(ffn, FfnPlaces::Moe(_)));
            BlockPlaces { sites, mixer, ffn }
        });
        let blocks: Vec<_> = blocks.collect();
        let (output_norm, output) = (it.vector(config.hidden), it.matrix(&weights.output));
        let embed = row_format(weights.embed.quant).map(|_| it.matrix(&weights.embed));
        Self { blocks, output_norm, output, embed, state_values: it.state }
    }
}

struct Planner<'a> {
    config: &'a Config,
    plan: &'a mut DevicePlan,
    state: usize,
    n_dsa: usize,
}

impl Planner<'_> {
    fn vector(&mut self, len: usize) -> Place {
        self.plan.words(Part::Vectors, len)
    }

    fn matrix(&mut self, tensor: &Tensor) -> Placed {
        let at = self.plan.place(Part::Dense, tensor.bytes());
        Placed { at, quant: tensor.quant, rows: tensor.rows, cols: tensor.cols }
    }

    /// The matrices of a stack under one another, as the file has them.
    fn stack(&mut self, stack: &Stack) -> Placed {
        let at = self.plan.place(Part::Dense, stack.extent(0).len * stack.n as u64);
        Placed { at, quant: stack.quant(), rows: stack.rows() * stack.n, cols: stack.cols() }
    }

    fn swiglu(&mut self, w: &SwiGlu) -> SwiGluPlaces {
        SwiGluPlaces { gate: self.matrix(&w.gate), up: self.matrix(&w.up), down: self.matrix(&w.down) }
    }

    fn mixer(&mut self, mixer: &Mixer) -> MixerPlaces {
        let c = self.config;
        match mixer {
            Mixer::Kda(w) => {
                let first = [&w.q, &w.k, &w.v, &w.f_a, &w.g_a, &w.beta].map(|tensor| self.matrix(tensor));
                let (matrix, history) = (self.state, self.state + c.kda_inner() * c.kda_dim);
                self.state = history + 3 * c.kda_inner() * (c.conv_taps - 1);
                // Matrices are copied sixteen bytes at a time.
                self.state = self.state.next_multiple_of(4);
                MixerPlaces::Kda(KdaPlaces {
                    first,
                    forget: self.matrix(&w.f_b),
                    gate: self.matrix(&w.g_b),
                    out: self.matrix(&w.out),
                    taps: self.vector(w.conv.len()),
                    bias: self.vector(w.dt.len()),
                    decay: self.vector(w.decay.len()),
                    norm: self.vector(w.norm.len()),
                    matrix,
                    history,
                })
            }
            Mixer::Dsa(w) => {
                let ix = &w.indexer;
                let first = [&w.q_a, &w.kv_a, &ix.k, &ix.gate, &ix.proj].map(|tensor| self.matrix(tensor));
                self.n_dsa += 1;
                MixerPlaces::Dsa(DsaPlaces {
                    first,
                    q_b: self.matrix(&w.q_b),
                    index_q_b: self.matrix(&ix.q_b),
                    k_b: self.stack(&w.k_b),
                    v_b: self.stack(&w.v_b),
                    out: self.matrix(&w.out),
                    q_a_norm: self.vector(w.q_a_norm.len()),
                    kv_a_norm: self.vector(w.kv_a_norm.len()),
                    k_norm: self.vector(ix.k_norm.len()),
                    k_bias: self.vector(ix.k_bias.len()),
                    ape: self.vector(ix.ape.len()),
                    nth: self.n_dsa - 1,
                })
            }
        }
    }

    fn moe(&mut self, w: &Moe) -> MoePlaces {
        let mut end = 0;
        let mut part = |stack: &Stack| {
            let offset = end;
            end = (end + stack.extent(0).len as usize).next_multiple_of(SLOT_ALIGNMENT);
            InSlot { offset, quant: stack.quant(), rows: stack.rows(), cols: stack.cols() }
        };
        let (gate, up, down) = (part(&w.gate), part(&w.up), part(&w.down));
        let slot_bytes = end;
        MoePlaces {
            router: self.plan.words(Part::Dense, w.router.rows * w.router.cols),
            bias: self.vector(w.bias.len()),
            table: self.plan.place(Part::Vectors, 8 * w.bias.len() as u64),
            uses: self.vector(w.bias.len()),
            gate,
            up,
            down,
            slots: self.plan.place(Part::Experts, (slot_bytes * w.gate.n) as u64),
            slot_bytes,
            shared: self.swiglu(&w.shared),
        }
    }
}
