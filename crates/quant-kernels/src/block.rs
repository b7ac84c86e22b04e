//! The blocks as they lie in a file. Every field is made of bytes, so a block has alignment 1 and any byte slice can be
//! seen as blocks.

use bytemuck::{Pod, Zeroable};
use half::f16;

/// Two bytes of an IEEE half, little endian.
pub(crate) type Half = [u8; 2];

/// The value of a half: exact.
#[inline(always)]
pub(crate) fn half(bytes: Half) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Pod, Zeroable)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $ty),* }
        const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() == 1);
    )*};
}

blocks! {
    /// 32 weights `d * (q - 8)`; the low nibbles are weights 0..16, the high ones 16..32.
    Q4_0: 18 { d: Half, qs: [u8; 16] }
    /// 32 weights `d * q + m`.
    Q4_1: 20 { d: Half, m: Half, qs: [u8; 16] }
    /// 32 weights `d * (q - 16)`; bit i of `qh` is the fifth bit of weight i.
    Q5_0: 22 { d: Half, qh: [u8; 4], qs: [u8; 16] }
    /// 32 weights `d * q + m`.
    Q5_1: 24 { d: Half, m: Half, qh: [u8; 4], qs: [u8; 16] }
    /// 32 weights `d * q`.
    Q8_0: 34 { d: Half, qs: [i8; 32] }
    /// 256 weights `d * scale * q - dmin * min`, 2 bits each; scale and min are the nibbles of `scales`, one per 16.
    Q2K: 84 { scales: [u8; 16], qs: [u8; 64], d: Half, dmin: Half }
    /// 256 weights `d * scale * q`, 3 bits each, the top one inverted in `hmask`; 6-bit scales per 16.
    Q3K: 110 { hmask: [u8; 32], qs: [u8; 64], scales: [u8; 12], d: Half }
    /// 256 weights `d * scale * q - dmin * min`, 4 bits each; 6-bit scales and mins per 32.
    Q4K: 144 { d: Half, dmin: Half, scales: [u8; 12], qs: [u8; 128] }
    /// As Q4_K with a fifth bit in `qh`.
    Q5K: 176 { d: Half, dmin: Half, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128] }
    /// 256 weights `d * scale * (q - 32)`, 6 bits each; 8-bit scales per 16.
    Q6K: 210 { ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: Half }
    /// Codebook of 2048 entries of 8; per 32 weights 16 bits of high index bits, scale and shift.
    Iq1S: 50 { d: Half, qs: [u8; 32], qh: [Half; 8] }
    /// As IQ1_S with scales per 16 and shifts per 8; the half `d` is spread over the top nibbles of `scales`.
    Iq1M: 56 { qs: [u8; 32], qh: [u8; 16], scales: [Half; 4] }
    /// Per 32 weights four 8-bit codebook indices, then four 7-bit sign indices and a 4-bit scale.
    Iq2Xxs: 66 { d: Half, qs: [[u8; 8]; 8] }
    /// Per 8 weights a 9-bit codebook index and a 7-bit sign index; 4-bit scales per 16.
    Iq2Xs: 74 { d: Half, qs: [Half; 32], scales: [u8; 8] }
    /// Per 8 weights a 10-bit codebook index and 8 sign bits; 4-bit scales per 16.
    Iq2S: 82 { d: Half, qs: [u8; 32], signs: [u8; 32], qh: [u8; 8], scales: [u8; 8] }
    /// Per 4 weights an 8-bit codebook index; per 32 four 7-bit sign indices and a 4-bit scale.
    Iq3Xxs: 98 { d: Half, qs: [u8; 64], signs: [[u8; 4]; 8] }
    /// Per 4 weights a 9-bit codebook index; 8 sign bits per 8; 4-bit scales per 32.
    Iq3S: 110 { d: Half, qs: [u8; 64], qh: [u8; 8], signs: [u8; 32], scales: [u8; 4] }
    /// 32 weights `d * IQ4[q]`.
    Iq4Nl: 18 { d: Half, qs: [u8; 16] }
    /// 256 weights `d * (scale - 32) * IQ4[q]`; 6-bit scales per 32.
    Iq4Xs: 136 { d: Half, scales_h: Half, scales_l: [u8; 4], qs: [u8; 128] }
    /// 32 weights `2^(e - 128) * FP4[q]`.
    Mxfp4: 17 { e: u8, qs: [u8; 16] }
    /// 64 weights, one E4M3 scale per 16.
    Nvfp4: 36 { d: [u8; 4], qs: [u8; 32] }
    /// 256 weights `d * {-1, 0, 1}`, five to a byte in `qs`, four in `qh`.
    Tq1_0: 54 { qs: [u8; 48], qh: [u8; 4], d: Half }
    /// 256 weights `d * {-1, 0, 1, 2}`, 2 bits each.
    Tq2_0: 66 { qs: [u8; 64], d: Half }
}
