//! Which instruction set the arithmetic runs on.

use std::fmt;

/// An instruction set that the arithmetic has been written for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust: the definition that the others are compared with.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL, DQ, VBMI and VNNI, on top of AVX2.
    Avx512,
}

impl Isa {
    /// Every instruction set, weakest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// Whether this processor has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

/// The arithmetic for one instruction set. A value exists only for a set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    isa: Isa,
}

impl Cpu {
    /// The definition.
    #[must_use]
    pub fn scalar() -> Self {
        Self { isa: Isa::Scalar }
    }

    /// The strongest set that this processor has.
    #[must_use]
    pub fn detect() -> Self {
        let isa = Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Scalar);
        Self { isa }
    }

    /// A given set; `None` where the processor lacks it.
    #[must_use]
    pub fn with(isa: Isa) -> Option<Self> {
        isa.is_available().then_some(Self { isa })
    }

    /// The set in use.
    #[must_use]
    pub fn isa(self) -> Isa {
        self.isa
    }
}
