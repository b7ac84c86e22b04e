//! Every tensor of the file by its role (model-spec 9.2). Matrices stay in the file's map; vectors are copied.

mod claim;
mod roles;

use gguf::{Extent, Model as File};
use quant_kernels::{Matrix, Quant, dequantize};

/// A matrix of the file: `rows` outputs of `cols` inputs, a row contiguous.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name in the file.
    pub name: Box<str>,
    /// Weight format, one with kernels.
    pub quant: Quant,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    extent: Extent,
}

/// `n` matrices of one shape, stacked on the slowest axis: the experts of a layer, or the heads of `attn_k_b`.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The first matrix.
    slice: Tensor,
    /// How many there are.
    pub n: usize,
}

impl Tensor {
    /// The weights in place.
    ///
    /// # Panics
    /// If `file` is not the model that the tensor was claimed from.
    #[must_use]
    pub fn matrix<'a>(&self, file: &'a File) -> Matrix<'a> {
        let bytes = file.bytes(self.extent).expect("a claimed tensor's extent lies in its file");
        Matrix::new(self.quant, self.rows, self.cols, bytes).expect("a claimed tensor's shape fits its bytes")
    }

    /// Dequantises row `row` into `out`, which has `cols` places.
    ///
    /// # Panics
    /// If the row is beyond the tensor, or as [`matrix`](Self::matrix).
    pub fn row(&self, file: &File, row: usize, out: &mut [f32]) {
        let bytes = file.bytes(self.extent).expect("a claimed tensor's extent lies in its file");
        let row_bytes = self.quant.row_bytes(self.cols).expect("a claimed tensor's row is whole blocks");
        dequantize(self.quant, &bytes[row * row_bytes..][..row_bytes], out)
            .expect("one row of `cols` weights");
    }

    /// Bytes in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extent.len
    }

    /// Where the weights are.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }
}

#[cfg(test)]
impl Tensor {
    /// A matrix of a file that is no model.
    pub(crate) fn for_test(file: &File, name: &str) -> Self {
        let info = file.tensor(name).expect("the file has the tensor");
        let quant = Quant::from_ggml_id(info.ty.id()).expect("a known type");
        let (rows, cols) = (info.dims[1] as usize, info.dims[0] as usize);
        Self { name: name.into(), quant, rows, cols, extent: info.extent }
    }
}

impl Stack {
    /// Matrix `i` in place.
    ///
    /// # Panics
    /// If `i` is not below `n`, or as [`Tensor::matrix`].
    #[must_use]
    pub fn matrix<'a>(&self, file: &'a File, i: usize) -> Matrix<'a> {
        let bytes = file.bytes(self.extent(i)).expect("a claimed tensor's extent lies in its file");
        let slice = &self.slice;
        Matrix::new(slice.quant, slice.rows, slice.cols, bytes)
            .expect("a claimed tensor's shape fits its bytes")
    }

    /// Where matrix `i` is.
    ///
    /// # Panics
    /// If `i` is not below `n`.
    #[must_use]
    pub fn extent(&self, i: usize) -> Extent {
        assert!(i < self.n, "slice {i} of {} of {}", self.n, self.slice.name);
        let Extent { shard, offset, len } = self.slice.extent;
        Extent { shard, offset: offset + i as u64 * len, len }
    }

    /// Outputs of one matrix.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.slice.rows
    }

    /// Inputs of one matrix.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.slice.cols
    }

    /// Name in the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.slice.name
    }

    /// Weight format.
    #[must_use]
    pub fn quant(&self) -> Quant {
        self.slice.quant
    }
}

/// One site of hyper-connections (model-spec 2.3).
#[derive(Clone, Debug)]
pub struct HyperSite {
    /// `[2n + n*n, n*hidden]` for n streams: rows pre, post, comb (source-major); columns stream-major.
    pub mix: Tensor,
    /// Added to the scaled mixing logits, one a row of `mix`.
    pub base: Vec<f32>,
    /// Factors of pre, post and comb.
    pub scale: [f32; 3],
}

/// KDA weights of a block (model-spec 3). `inner` is heads times head width.
#[derive(Clone, Debug)]
pub struct Kda {
    /// `[inner, hidden]`.
    pub q: Tensor,
    /// `[inner, hidden]`.
    pub k: Tensor,
    /// `[inner, hidden]`.
    pub v: Tensor,
    /// Convolution taps of q, k and v, `[3 * inner][taps]`; the last tap is the current position's.
    pub conv: Vec<f32>,
    /// Forget gate, low rank: `[head width, hidden]`.
    pub f_a: Tensor,
    /// Forget gate: `[inner, head width]`.
    pub f_b: Tensor,
    /// Forget gate's bias, `[inner]`.
    pub dt: Vec<f32>,
    /// exp(A_log), `[heads]`: the file's `ssm_a` with its sign turned.
    pub decay: Vec<f32>,
    /// Write strength: `[heads, hidden]`.
    pub beta: Tensor,
    /// Output gate, low rank: `[head width, hidden]`.
    pub g_a: Tensor,
    /// Output gate: `[inner, head width]`.
    pub g_b: Tensor,
    /// Output norm, `[head width]`, shared by the heads.
    pub norm: Vec<f32>,
    /// `[hidden, inner]`.
    pub out: Tensor,
}

/// Indexer weights of a DSA block (model-spec 4.2, 4.3).
#[derive(Clone, Debug)]
pub struct Indexer {
    /// `[index heads * index width, q rank]`.
    pub q_b: Tensor,
    /// `[index width, hidden]`.
    pub k: Tensor,
    /// Layer norm of the keys: weight, `[index width]`.
    pub k_norm: Vec<f32>,
    /// Layer norm of the keys: bias, `[index width]`.
    pub k_bias: Vec<f32>,
    /// Head weights: `[index heads, hidden]`.
    pub proj: Tensor,
    /// Pool gates: `[index width, hidden]`.
    pub gate: Tensor,
    /// Added to the gates by place in the pool, `[kpool][index width]`.
    pub ape: Vec<f32>,
}

/// Latent-attention weights of a block (model-spec 4).
#[derive(Clone, Debug)]
pub struct Dsa {
    /// `[q rank, hidden]`.
    pub q_a: Tensor,
    /// `[q rank]`.
    pub q_a_norm: Vec<f32>,
    /// `[heads * key width, q rank]`, head-major.
    pub q_b: Tensor,
    /// `[latent, hidden]`.
    pub kv_a: Tensor,
    /// `[latent]`.
    pub kv_a_norm: Vec<f32>,
    /// One `[latent, key width]` a head.
    pub k_b: Stack,
    /// One `[value width, latent]` a head.
    pub v_b: Stack,
    /// `[hidden, heads * value width]`.
    pub out: Tensor,
    /// Which positions are attended to.
    pub indexer: Indexer,
}

/// The clamped SwiGLU of a dense layer or of the shared expert.
#[derive(Clone, Debug)]
pub struct SwiGlu {
    /// `[width, hidden]`.
    pub gate: Tensor,
    /// `[width, hidden]`.
    pub up: Tensor,
    /// `[hidden, width]`.
    pub down: Tensor,
}

/// Routed experts and the shared one (model-spec 5.3, 5.4).
#[derive(Clone, Debug)]
pub struct Moe {
    /// `[experts, hidden]`.
    pub router: Tensor,
    /// Added to the sigmoid scores for the choice only, `[experts]`.
    pub bias: Vec<f32>,
    /// One `[width, hidden]` an expert.
    pub gate: Stack,
    /// One `[width, hidden]` an expert.
    pub up: Stack,
    /// One `[hidden, width]` an expert.
    pub down: Stack,
    /// The expert that every token takes.
    pub shared: SwiGlu,
}

/// What mixes positions.
#[derive(Clone, Debug)]
pub enum Mixer {
    /// Delta attention.
    Kda(Box<Kda>),
    /// Latent attention.
    Dsa(Box<Dsa>),
}

/// What mixes features.
#[derive(Clone, Debug)]
pub enum Ffn {
    /// The first layers.
    Dense(Box<SwiGlu>),
    /// All others, and NextN.
    Moe(Box<Moe>),
}

/// One block.
#[derive(Clone, Debug)]
pub struct Block {
    /// `[hidden]`.
    pub attn_norm: Vec<f32>,
    /// `[hidden]`.
    pub ffn_norm: Vec<f32>,
    /// Attention.
    pub mixer: Mixer,
    /// Feed-forward.
    pub ffn: Ffn,
    /// The two hyper-connection sites, attention first; a NextN block has none.
    pub hyper: Option<Box<[HyperSite; 2]>>,
}

/// What NextN has besides its block (model-spec 6).
#[derive(Clone, Debug)]
pub struct NextN {
    /// `[hidden, 2 * hidden]`, embedding half first.
    pub eh: Tensor,
    /// `[hidden]`.
    pub embed_norm: Vec<f32>,
    /// `[hidden]`.
    pub hidden_norm: Vec<f32>,
    /// `[hidden]`.
    pub head_norm: Vec<f32>,
    /// Own embedding, where the file has one.
    pub embed: Option<Tensor>,
    /// Own head, where the file has one.
    pub head: Option<Tensor>,
}

/// All weights.
#[derive(Clone, Debug)]
pub struct Weights {
    /// `[vocab, hidden]`.
    pub embed: Tensor,
    /// `[hidden]`.
    pub output_norm: Vec<f32>,
    /// `[vocab, hidden]`; the embedding again where the file has no head of its own.
    pub output: Tensor,
    /// The trunk's blocks, then NextN's.
    pub blocks: Vec<Block>,
    /// The rest of the NextN block.
    pub nextn: Option<NextN>,
}

impl Weights {
    /// The tensors of routed experts of the first `blocks` blocks.
    pub(crate) fn routed_extents(&self, blocks: usize) -> Vec<Extent> {
        let moe = self.blocks.iter().take(blocks).filter_map(|block| match &block.ffn {
            Ffn::Moe(w) => Some([&w.gate, &w.up, &w.down]),
            Ffn::Dense(_) => None,
        });
        let whole = |stack: &Stack| {
            let Extent { shard, offset, len } = stack.slice.extent;
            Extent { shard, offset, len: len * stack.n as u64 }
        };
        moe.flatten().map(whole).collect()
    }

    /// Bytes of the routed experts of the first `blocks` blocks.
    pub(crate) fn routed(&self, blocks: usize) -> u64 {
        let bytes = |stack: &Stack| stack.slice.extent.len * stack.n as u64;
        let moe = self.blocks.iter().take(blocks).filter_map(|block| match &block.ffn {
            Ffn::Moe(w) => Some(bytes(&w.gate) + bytes(&w.up) + bytes(&w.down)),
            Ffn::Dense(_) => None,
        });
        moe.sum()
    }

    /// Values of the vectors that were copied out of the file.
    pub(crate) fn vectors(&self) -> usize {
        let block = |block: &Block| {
            let mixer = match &block.mixer {
                Mixer::Kda(w) => w.conv.len() + w.dt.len() + w.decay.len() + w.norm.len(),
                Mixer::Dsa(w) => {
                    let index = &w.indexer;
                    w.q_a_norm.len() + w.kv_a_norm.len() + 2 * index.k_norm.len() + index.ape.len()
                }
            };
            let ffn = if let Ffn::Moe(w) = &block.ffn { w.bias.len() } else { 0 };
            let hyper = block
                .hyper
                .iter()
                .flat_map(|sites| sites.iter())
                .map(|site| site.base.len() + 3)
                .sum::<usize>();
            mixer + ffn + hyper + block.attn_norm.len() + block.ffn_norm.len()
        };
        self.blocks.iter().map(block).sum::<usize>() + 4 * self.output_norm.len()
    }
}
