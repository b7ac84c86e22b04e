//! What must come to the device, in the order in which a token needs it.

use gguf::Extent;
use quant_kernels::Quant;

use crate::cuda::memory::Place;
use crate::cuda::weights::{FfnPlaces, MixerPlaces, MoePlaces, Placed, SwiGluPlaces, Weights};
use crate::model::Model;
use crate::weights::{Ffn, Mixer, Moe, Stack, SwiGlu, Tensor};

/// Kind of a residency entry: in device memory.
const IN_DEVICE: u64 = 1;

/// Bytes that the device has as the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer<'a> {
    /// The tensor that they are of.
    pub(super) tensor: &'a str,
    pub(super) from: Extent,
    pub(super) to: Place,
}

/// Everything that a pass reads.
#[derive(Debug, Default)]
pub(super) struct Wanted<'a> {
    /// The file's own bytes, block by block; what no block has comes last.
    pub(super) transfers: Vec<Vec<Transfer<'a>>>,
    /// Values that the host has.
    pub(super) vectors: Vec<(Place, &'a [f32])>,
    /// Matrices that the device has as f32 and the file in another format.
    pub(super) converted: Vec<(Place, &'a Tensor)>,
    /// Residency entries of the blocks' experts.
    pub(super) tables: Vec<(Place, Vec<u64>)>,
}

impl<'a> Wanted<'a> {
    /// Walks the weights; `address` is where the places begin.
    pub(super) fn of(places: &Weights, model: &'a Model, address: u64) -> Self {
        let mut it = Self::default();
        let weights = model.weights();
        for (places, block) in places.blocks.iter().zip(&weights.blocks) {
            it.transfers.push(Vec::new());
            let hyper = block.hyper.as_ref().expect("a block of the trunk has two sites");
            let norms = [&block.attn_norm, &block.ffn_norm];
            for ((places, site), norm) in places.sites.iter().zip(hyper.iter()).zip(norms) {
                it.values_of(places.mix, &site.mix);
                it.vector(places.base, &site.base);
                it.vector(places.norm, norm);
            }
            it.mixer(&places.mixer, &block.mixer);
            match (&places.ffn, &block.ffn) {
                (FfnPlaces::Dense(places), Ffn::Dense(w)) => it.swiglu(places, w),
                (FfnPlaces::Moe(places), Ffn::Moe(w)) => it.moe(places, w, address),
                _ => unreachable!("places were made for this block"),
            }
        }
        it.transfers.push(Vec::new());
        it.vector(places.output_norm, &weights.output_norm);
        it.matrix(places.output, &weights.output);
        if let Some(embed) = places.embed {
            it.matrix(embed, &weights.embed);
        }
        it
    }

    /// Bytes that come to the device.
    pub(super) fn bytes(&self) -> u64 {
        let transfers = self.transfers.iter().flatten().map(|it| it.from.len);
        let vectors = self.vectors.iter().map(|(_, values)| 4 * values.len() as u64);
        let converted = self.converted.iter().map(|(_, tensor)| 4 * (tensor.rows * tensor.cols) as u64);
        let tables = self.tables.iter().map(|(_, entries)| 8 * entries.len() as u64);
        transfers.chain(vectors).chain(converted).chain(tables).sum()
    }

    fn transfer(&mut self, tensor: &'a str, from: Extent, to: Place) {
        self.transfers.last_mut().expect("a block is open").push(Transfer { tensor, from, to });
    }

    fn vector(&mut self, to: Place, values: &'a [f32]) {
        self.vectors.push((to, values));
    }

    fn matrix(&mut self, to: Placed, tensor: &'a Tensor) {
        self.transfer(&tensor.name, tensor.extent(), to.at);
    }

    /// The f32 values of a matrix.
    fn values_of(&mut self, to: Place, tensor: &'a Tensor) {
        if tensor.quant == Quant::F32 {
            self.transfer(&tensor.name, tensor.extent(), to);
        } else {
            self.converted.push((to, tensor));
        }
    }

    fn stack(&mut self, to: Placed, stack: &'a Stack) {
        for i in 0..stack.n {
            let from = stack.extent(i);
            self.transfer(stack.name(), from, Place(to.at.0 + i as u64 * from.len));
        }
    }

    fn swiglu(&mut self, to: &SwiGluPlaces, w: &'a SwiGlu) {
        self.matrix(to.gate, &w.gate);
        self.matrix(to.up, &w.up);
        self.matrix(to.down, &w.down);
    }

    fn mixer(&mut self, to: &MixerPlaces, mixer: &'a Mixer) {
        match (to, mixer) {
            (MixerPlaces::Kda(to), Mixer::Kda(w)) => {
                for (to, tensor) in to.first.iter().zip([&w.q, &w.k, &w.v, &w.f_a, &w.g_a, &w.beta]) {
                    self.matrix(*to, tensor);
                }
                self.matrix(to.forget, &w.f_b);
                self.matrix(to.gate, &w.g_b);
                self.matrix(to.out, &w.out);
                self.vector(to.taps, &w.conv);
                self.vector(to.bias, &w.dt);
                self.vector(to.decay, &w.decay);
                self.vector(to.norm, &w.norm);
            }
            (MixerPlaces::Dsa(to), Mixer::Dsa(w)) => {
                let ix = &w.indexer;
                for (to, tensor) in to.first.iter().zip([&w.q_a, &w.kv_a, &ix.k, &ix.gate, &ix.proj]) {
                    self.matrix(*to, tensor);
                }
                self.matrix(to.q_b, &w.q_b);
                self.matrix(to.index_q_b, &ix.q_b);
                self.stack(to.k_b, &w.k_b);
                self.stack(to.v_b, &w.v_b);
                self.matrix(to.out, &w.out);
                self.vector(to.q_a_norm, &w.q_a_norm);
                self.vector(to.kv_a_norm, &w.kv_a_norm);
                self.vector(to.k_norm, &ix.k_norm);
                self.vector(to.k_bias, &ix.k_bias);
                self.vector(to.ape, &ix.ape);
            }
            _ => unreachable!("places were made for this mixer"),
        }
    }

    fn moe(&mut self, to: &MoePlaces, w: &'a Moe, address: u64) {
        self.values_of(to.router, &w.router);
        self.vector(to.bias, &w.bias);
        let slot = |expert: usize| to.slots.0 + (expert * to.slot_bytes) as u64;
        let entries = (0..w.gate.n).map(|expert| (address + slot(expert)) | IN_DEVICE);
        self.tables.push((to.table, entries.collect()));
        for (part, stack) in [(to.gate, &w.gate), (to.up, &w.up), (to.down, &w.down)] {
            for expert in 0..stack.n {
                self.transfer(stack.name(), stack.extent(expert), Place(slot(expert) + part.offset as u64));
            }
        }
        self.swiglu(&to.shared, &w.shared);
    }
}
