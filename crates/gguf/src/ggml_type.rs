//! Tensor types as sizes.

macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $len:literal, $bytes:literal;)*) => {
        /// How a tensor's weights are stored, as far as sizes go: ids and sizes of ggml's `ggml_type`.
        ///
        /// Ids that ggml has withdrawn (4, 5, 31 to 33, 36 to 38) have no variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(non_camel_case_types)]
        pub enum GgmlType {
            $($(#[$doc])* #[doc = concat!("`", $name, "`: ", $len, " weights in ", $bytes, " bytes.")] $variant,)*
        }

        impl GgmlType {
            /// Every type, by rising id.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The type with this id in a file.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// The id in a file.
            pub const fn id(self) -> u32 {
                match self { $(Self::$variant => $id,)* }
            }

            /// ggml's name, such as `IQ2_XXS`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Weights in a block; 1 for plain numbers.
            pub const fn block_len(self) -> u32 {
                match self { $(Self::$variant => $len,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> u32 {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 40;
    Q2K = 10, "Q2_K", 256, 84;
    Q3K = 11, "Q3_K", 256, 110;
    Q4K = 12, "Q4_K", 256, 144;
    Q5K = 13, "Q5_K", 256, 176;
    Q6K = 14, "Q6_K", 256, 210;
    Q8K = 15, "Q8_K", 256, 292;
    Iq2Xxs = 16, "IQ2_XXS", 256, 66;
    Iq2Xs = 17, "IQ2_XS", 256, 74;
    Iq3Xxs = 18, "IQ3_XXS", 256, 98;
    Iq1S = 19, "IQ1_S", 256, 50;
    Iq4Nl = 20, "IQ4_NL", 32, 18;
    Iq3S = 21, "IQ3_S", 256, 110;
    Iq2S = 22, "IQ2_S", 256, 82;
    Iq4Xs = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    Iq1M = 29, "IQ1_M", 256, 56;
    Bf16 = 30, "BF16", 1, 2;
    Tq1_0 = 34, "TQ1_0", 256, 54;
    Tq2_0 = 35, "TQ2_0", 256, 66;
    Mxfp4 = 39, "MXFP4", 32, 17;
    Nvfp4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
}

impl GgmlType {
    /// Bytes of `n` weights; `None` if they are not whole blocks or the count overflows.
    pub fn bytes_for(self, n: u64) -> Option<u64> {
        let len = u64::from(self.block_len());
        if !n.is_multiple_of(len) {
            return None;
        }
        (n / len).checked_mul(u64::from(self.block_bytes()))
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_sizes_are_consistent() {
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
            assert_eq!(ty.bytes_for(u64::from(ty.block_len()) * 3), Some(u64::from(ty.block_bytes()) * 3));
            assert_eq!(
                ty.bytes_for(u64::MAX - 1).is_some(),
                ty.block_len() == 1 && ty.block_bytes() == 1,
                "{ty}"
            );
            if ty.block_len() > 1 {
                assert_eq!(ty.bytes_for(u64::from(ty.block_len()) + 1), None);
            }
        }
        for withdrawn in [4, 5, 31, 32, 33, 36, 37, 38, 42, u32::MAX] {
            assert_eq!(GgmlType::from_id(withdrawn), None);
        }
    }
}
