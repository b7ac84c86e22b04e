//! Many tokens through the model, layer by layer: each weight is read once for all of them. They are one sequence's, or one of each
//! of several.
//!
//! The bits are those of one token after the other: every kernel keeps the order of each row's operations, the
//! recurrence included. So it does not matter where a prompt is cut, and there is one class of kernels, not two.

mod dsa;
mod feed;
mod kda;
mod kernels;
mod moe;
mod places;
mod product;
mod site;
mod vectors;

use quant_kernels::cuda::DriverError;

pub(super) use kernels::RowsKernels;
pub(super) use places::{FEWEST_ROWS, MOST_ROWS, SpanPlaces};
use vectors::{Done, Vectors};

use super::scratch::{dsa_width, kda_width};
use super::token::{Pass, StepBuffers};
use super::weights::{BlockPlaces, DsaPlaces, FfnPlaces, KdaPlaces, MixerPlaces, Placed};

/// What the streams wait to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing was there before: all streams are the token's embedding.
    Embedding,
    /// The vector in `y`.
    Vector,
    /// The weighted experts, and the shared one in `y`.
    Experts,
}

/// Whose tokens the rows of a span are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// One sequence's, the first at this position. The pass has its slot.
    One(usize),
    /// One of each of several, as their turns on the device say. The pass has the first slot.
    Each,
}

/// Rows that go through the model together.
pub(super) struct Span<'a> {
    pub(super) pass: Pass<'a>,
    pub(super) places: &'a SpanPlaces,
    pub(super) whose: Whose,
    pub(super) rows: usize,
}

impl Span<'_> {
    /// From the embeddings in `y` to what the next token needs; with `to_head`, to the input of the head in `x`.
    pub(super) fn run(&self, to_head: bool) -> Result<(), DriverError> {
        let blocks = &self.pass.weights.blocks;
        let (mut turn, mut pending) = (0, Pending::Embedding);
        for (layer, block) in blocks.iter().enumerate() {
            let later = self.sites_of_each();
            self.site(layer, Some(&block.sites[0]), turn, pending, later)?;
            turn ^= 1;
            let gates = self.pass.unfinished_gates(later, turn);
            match &block.mixer {
                MixerPlaces::Kda(w) => self.kda(layer, w, gates)?,
                MixerPlaces::Dsa(w) => self.dsa(w, gates)?,
            }
            if layer + 1 == blocks.len() && !to_head {
                return Ok(());
            }
            let later = self.sites_of_each() && self.pass.router_finishes_gates(block);
            self.site(layer, Some(&block.sites[1]), turn, Pending::Vector, later)?;
            turn ^= 1;
            pending = self.ffn(layer, block, self.pass.unfinished_gates(later, turn))?;
        }
        self.site(blocks.len(), None, turn, pending, false)
    }

    /// The logits of `n` rows from row `from` on, into `logits`.
    pub(super) fn head(&self, from: usize, n: usize) -> Result<(), DriverError> {
        let p = self.places;
        let w = &self.pass.weights.output;
        let x = Vectors { x: self.pass.behind(p.x, from * w.cols), rows: n, from, ..self.normed() };
        self.products("head", &x, &[self.product(w, self.pass.at(p.logits), w.rows)])
    }

    /// One vector a row, `stride` values apart.
    fn vectors(&self, x: u64, stride: usize, k: usize) -> Vectors {
        Vectors { x, stride, k, rows: self.rows, parts: 1, share: 1, from: 0, gate: None, done: None }
    }

    /// The normed input of a layer's part, which sites of a row of each of several sequences round themselves.
    fn normed(&self) -> Vectors {
        let (hidden, done) = (self.pass.config.hidden, Done { both: true, earlier: false });
        let done = if self.sites_of_each() && self.has_room_for_both() { Some(done) } else { None };
        Vectors { done, ..self.vectors(self.pass.at(self.places.x), hidden, hidden) }
    }

    /// Products of the matrices `list` with the normed input, side by side in rows of `width` values at `to`.
    fn side_by_side(
        &self,
        what: &'static str,
        x: &Vectors,
        list: &[&Placed],
        to: u64,
        width: usize,
    ) -> Result<(), DriverError> {
        let mut at = 0;
        let products = list.iter().map(|w| {
            at += w.rows;
            self.product(w, to + 4 * (at - w.rows) as u64, width)
        });
        let products: Vec<_> = products.collect();
        self.products(what, x, &products)
    }

    /// What kernels for sequences' turns find and leave here.
    fn buffers(&self) -> StepBuffers {
        let (p, at) = (self.places, |place| self.pass.at(place));
        StepBuffers {
            n: self.rows as u32,
            faults: at(p.faults),
            first: at(p.first),
            second: at(p.second),
            joined: at(p.joined),
            low: at(p.low),
            absorbed: at(p.absorbed),
            mixed: at(p.mixed),
            x: at(p.x),
            router: at(p.router),
            ids: at(p.ids),
            weights: at(p.weights),
        }
    }

    fn kda(&self, layer: usize, w: &KdaPlaces, gates: u64) -> Result<(), DriverError> {
        let (c, p) = (self.pass.config, self.places);
        let (inner, d) = (c.kda_inner(), c.kda_dim);
        let width = kda_width(c);
        let x = self.normed();
        self.side_by_side("kda in", &x, &w.first.each_ref(), self.pass.at(p.first), width)?;
        // The low ranks of both gates are neighbours.
        let low = self.pass.behind(p.first, 3 * inner);
        let low = Vectors { parts: 2, ..self.vectors(low, width, d) };
        let mut forget = self.product(&w.forget, self.pass.at(p.second), 2 * inner);
        let mut gate = self.product(&w.gate, self.pass.behind(p.second, inner), 2 * inner);
        (forget.part, gate.part) = (Some(0), Some(1));
        self.products("kda gates", &low, &[forget, gate])?;
        let joined = self.vectors(self.pass.at(p.joined), inner, inner);
        let joined = match self.whose {
            Whose::One(first) => self.kda_scan(layer, w, first).map(|()| joined)?,
            Whose::Each => self.kda_step(layer, w, joined, gates)?,
        };
        self.products("kda out", &joined, &[self.product(&w.out, self.pass.at(p.y), c.hidden)])
    }

    fn dsa(&self, w: &DsaPlaces, gates: u64) -> Result<(), DriverError> {
        let (c, p) = (self.pass.config, self.places);
        let queries = c.heads * c.key_dim;
        let all = queries + c.index_heads * c.index_dim;
        let x = self.normed();
        self.side_by_side("dsa in", &x, &w.first.each_ref(), self.pass.at(p.first), dsa_width(c))?;
        match self.whose {
            Whose::One(first) => self.dsa_prepare(w, first)?,
            Whose::Each => self.pass.prepare(w, &self.buffers(), gates)?,
        }
        let low = self.vectors(self.pass.at(p.low), c.q_rank, c.q_rank);
        self.side_by_side("dsa queries", &low, &[&w.q_b, &w.index_q_b], self.pass.at(p.second), all)?;
        // Each head's queries meet its own matrix.
        let heads = Vectors { parts: c.heads, ..self.vectors(self.pass.at(p.second), all, c.key_dim) };
        let absorb = self.product(&w.k_b, self.pass.at(p.absorbed), c.heads * c.latent);
        match self.whose {
            Whose::One(first) => {
                self.products("absorb", &heads, &[absorb])?;
                self.dsa_choose_and_attend(w, first)?;
            }
            Whose::Each => {
                let rows = self.buffers();
                self.pass.index_scores(w, &rows)?;
                self.products("absorb", &heads, &[absorb])?;
                self.pass.choose(&rows)?;
                self.pass.attend(w, &rows)?;
            }
        }
        let mixed = c.heads * c.latent;
        let mixed = Vectors { parts: c.heads, ..self.vectors(self.pass.at(p.mixed), mixed, c.latent) };
        let values = c.heads * c.value_dim;
        self.products("expand", &mixed, &[self.product(&w.v_b, self.pass.at(p.joined), values)])?;
        let joined = self.vectors(self.pass.at(p.joined), values, values);
        self.products("dsa out", &joined, &[self.product(&w.out, self.pass.at(p.y), c.hidden)])
    }

    fn ffn(&self, layer: usize, block: &BlockPlaces, gates: u64) -> Result<Pending, DriverError> {
        let (c, p) = (self.pass.config, self.places);
        let x = self.normed();
        match &block.ffn {
            FfnPlaces::Dense(w) => {
                self.products("dense gate, up", &x, &self.gate_and_up(w, p.wide))?;
                self.down("dense down", w, p.wide, c.clamp_shared[layer])?;
            }
            FfnPlaces::Moe(w) => {
                if self.whose == Whose::Each {
                    self.experts_of_turns(layer, w, &x, gates)?;
                } else {
                    self.routes(w)?;
                    self.experts(layer, w, &x)?;
                }
                if self.sites_of_each() {
                    return Ok(Pending::Experts);
                }
                self.combine()?;
            }
        }
        Ok(Pending::Vector)
    }
}
