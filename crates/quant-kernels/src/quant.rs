//! Names and sizes of the weight formats.

use crate::block;

/// How a format is multiplied by activations (docs/ARITHMETIC.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// 256-weight blocks against 8-bit activations cut at multiples of 256.
    Wide,
    /// 32-weight blocks with a float scale against 8-bit activations cut at multiples of 32.
    Narrow,
    /// Float weights against f32 activations.
    Float,
}

/// How exact a product is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Weights dequantised block by block, f32 activations and accumulation.
    Exact,
    /// 8-bit activations and integer block products, in the order that docs/ARITHMETIC.md fixes.
    Fast,
}

/// A weight format. The variants are spelt as in GGML's names without the inner underscore of the K formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Quant {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq1S,
    Iq1M,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
    Nvfp4,
    Tq1_0,
    Tq2_0,
}

impl Quant {
    /// Every format.
    pub const ALL: [Self; 26] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq1S,
        Self::Iq1M,
        Self::Iq2Xxs,
        Self::Iq2Xs,
        Self::Iq2S,
        Self::Iq3Xxs,
        Self::Iq3S,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
        Self::Nvfp4,
        Self::Tq1_0,
        Self::Tq2_0,
    ];

    /// Id in GGUF, name, weights a block, bytes a block, family.
    const fn facts(self) -> (u32, &'static str, usize, usize, Option<Family>) {
        use Family::{Float, Narrow, Wide};
        match self {
            Self::F32 => (0, "F32", 1, 4, Some(Float)),
            Self::F16 => (1, "F16", 1, 2, Some(Float)),
            Self::Bf16 => (30, "BF16", 1, 2, Some(Float)),
            Self::Q4_0 => (2, "Q4_0", 32, size_of::<block::Q4_0>(), Some(Narrow)),
            Self::Q4_1 => (3, "Q4_1", 32, size_of::<block::Q4_1>(), Some(Narrow)),
            Self::Q5_0 => (6, "Q5_0", 32, size_of::<block::Q5_0>(), Some(Narrow)),
            Self::Q5_1 => (7, "Q5_1", 32, size_of::<block::Q5_1>(), Some(Narrow)),
            Self::Q8_0 => (8, "Q8_0", 32, size_of::<block::Q8_0>(), Some(Narrow)),
            Self::Q2K => (10, "Q2_K", 256, size_of::<block::Q2K>(), Some(Wide)),
            Self::Q3K => (11, "Q3_K", 256, size_of::<block::Q3K>(), Some(Wide)),
            Self::Q4K => (12, "Q4_K", 256, size_of::<block::Q4K>(), Some(Wide)),
            Self::Q5K => (13, "Q5_K", 256, size_of::<block::Q5K>(), Some(Wide)),
            Self::Q6K => (14, "Q6_K", 256, size_of::<block::Q6K>(), Some(Wide)),
            Self::Iq1S => (19, "IQ1_S", 256, size_of::<block::Iq1S>(), Some(Wide)),
            Self::Iq1M => (29, "IQ1_M", 256, size_of::<block::Iq1M>(), Some(Wide)),
            Self::Iq2Xxs => (16, "IQ2_XXS", 256, size_of::<block::Iq2Xxs>(), Some(Wide)),
            Self::Iq2Xs => (17, "IQ2_XS", 256, size_of::<block::Iq2Xs>(), Some(Wide)),
            Self::Iq2S => (22, "IQ2_S", 256, size_of::<block::Iq2S>(), Some(Wide)),
            Self::Iq3Xxs => (18, "IQ3_XXS", 256, size_of::<block::Iq3Xxs>(), Some(Wide)),
            Self::Iq3S => (21, "IQ3_S", 256, size_of::<block::Iq3S>(), Some(Wide)),
            Self::Iq4Nl => (20, "IQ4_NL", 32, size_of::<block::Iq4Nl>(), Some(Narrow)),
            Self::Iq4Xs => (23, "IQ4_XS", 256, size_of::<block::Iq4Xs>(), Some(Wide)),
            Self::Mxfp4 => (39, "MXFP4", 32, size_of::<block::Mxfp4>(), Some(Narrow)),
            Self::Nvfp4 => (40, "NVFP4", 64, size_of::<block::Nvfp4>(), None),
            Self::Tq1_0 => (34, "TQ1_0", 256, size_of::<block::Tq1_0>(), None),
            Self::Tq2_0 => (35, "TQ2_0", 256, size_of::<block::Tq2_0>(), None),
        }
    }

    /// The format with this id in a GGUF tensor table, if the crate has it.
    #[must_use]
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|quant| quant.facts().0 == id)
    }

    /// GGML's name, as in `IQ2_XXS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().1
    }

    /// Weights in a block.
    #[must_use]
    pub const fn block_len(self) -> usize {
        self.facts().2
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        self.facts().3
    }

    /// Bytes of a row of `cols` weights; `None` where `cols` is no whole number of blocks or the size overflows.
    #[must_use]
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    /// How `Precision::Fast` multiplies it; `None` where it cannot (TQ1_0, TQ2_0, NVFP4).
    #[must_use]
    pub const fn family(self) -> Option<Family> {
        self.facts().4
    }
}
