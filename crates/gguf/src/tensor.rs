//! What the header says of a tensor, and where its bytes are.

use crate::error::Error;
use crate::ggml_type::GgmlType;
use crate::phrase::Quoted;

/// A run of bytes in one shard: all that a disk reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Index into [`Model::shards`](crate::Model::shards), from 0.
    pub shard: u16,
    /// First byte, from the start of the shard's file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// One entry of the tensor table. Its extent lies inside its file: that was checked when the file was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, such as `blk.3.ffn_up_exps.weight`.
    pub name: Box<str>,
    /// How weights are stored.
    pub ty: GgmlType,
    /// Sizes, fastest axis first, 1 beyond `n_dims`. None is 0 and their product fits 63 bits.
    pub dims: [u64; 4],
    /// Dimensions as the file counts them, 1 to 4.
    pub n_dims: u8,
    /// Where the bytes are.
    pub extent: Extent,
}

impl TensorInfo {
    /// Number of weights.
    pub fn n_elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes of one row, the run of `dims[0]` weights.
    pub fn row_bytes(&self) -> u64 {
        self.dims[0] / u64::from(self.ty.block_len()) * u64::from(self.ty.block_bytes())
    }

    /// Number of slices along the slowest axis: experts of a 3-D tensor, 1 for anything of lower rank.
    pub fn n_slices(&self) -> u64 {
        self.dims[2]
    }

    /// Where slice `i` of the third axis is: `dims[1]` rows, such as one expert of `ffn_up_exps`. A tensor of one or two
    /// dimensions is its own slice 0.
    ///
    /// # Errors
    /// `i` is beyond the axis, or the tensor has a fourth axis longer than 1.
    pub fn slice(&self, i: u64) -> Result<Extent, Error> {
        let (tensor, dims) = (|| Quoted::new(&self.name), self.dims.into());
        if self.dims[3] != 1 {
            return Err(Error::FourAxes { tensor: tensor(), dims });
        }
        if i >= self.dims[2] {
            return Err(Error::Slice { tensor: tensor(), dims, index: i });
        }
        let len = self.row_bytes() * self.dims[1];
        Ok(Extent { shard: self.extent.shard, offset: self.extent.offset + i * len, len })
    }
}
