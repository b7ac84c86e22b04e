//! 32-weight blocks taken apart: the definition that every instruction set is compared with. NVFP4 is here too, though
//! it has no fast product.

use bytemuck::Pod;

use crate::block::{Iq4Nl, Mxfp4, Nvfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, half};
use crate::grid;

/// Weights in a narrow block.
pub(crate) const LEN: usize = 32;

/// A block in pieces. Weight i is `d * w[i]`, or `d * w[i] + m` for a format with a minimum, every operation rounded.
pub(crate) struct Parts {
    pub w: [i8; LEN],
    pub d: f32,
    pub m: f32,
}

impl Parts {
    pub(crate) const fn new() -> Self {
        Self { w: [0; LEN], d: 0.0, m: 0.0 }
    }
}

/// A narrow format.
pub(crate) trait Narrow: Pod {
    /// Whether the format adds a minimum.
    const MINIMUM: bool;

    fn unpack(&self, parts: &mut Parts);

    /// The 32 weights as f32.
    #[inline(always)]
    fn dequantize(&self, out: &mut [f32]) {
        let mut parts = Parts::new();
        self.unpack(&mut parts);
        for (out, &w) in out.iter_mut().zip(&parts.w) {
            let product = parts.d * f32::from(w);
            *out = if Self::MINIMUM { product + parts.m } else { product };
        }
    }
}

/// Nibbles of 16 bytes, the low ones first.
#[inline(always)]
fn nibbles(qs: &[u8; 16], value: impl Fn(u8) -> i8) -> [i8; LEN] {
    std::array::from_fn(|i| value(if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }))
}

#[inline(always)]
fn five_bits(qs: &[u8; 16], qh: [u8; 4]) -> [i8; LEN] {
    let high = u32::from_le_bytes(qh);
    let mut w = nibbles(qs, |q| q as i8);
    for (i, w) in w.iter_mut().enumerate() {
        *w |= ((high >> i & 1) << 4) as i8;
    }
    w
}

impl Narrow for Q4_0 {
    const MINIMUM: bool = false;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = nibbles(&self.qs, |q| q as i8 - 8);
        parts.d = half(self.d);
    }
}

impl Narrow for Q4_1 {
    const MINIMUM: bool = true;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = nibbles(&self.qs, |q| q as i8);
        parts.d = half(self.d);
        parts.m = half(self.m);
    }
}

impl Narrow for Q5_0 {
    const MINIMUM: bool = false;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = five_bits(&self.qs, self.qh).map(|q| q - 16);
        parts.d = half(self.d);
    }
}

impl Narrow for Q5_1 {
    const MINIMUM: bool = true;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = five_bits(&self.qs, self.qh);
        parts.d = half(self.d);
        parts.m = half(self.m);
    }
}

impl Narrow for Q8_0 {
    const MINIMUM: bool = false;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = self.qs;
        parts.d = half(self.d);
    }
}

impl Narrow for Iq4Nl {
    const MINIMUM: bool = false;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = nibbles(&self.qs, |q| grid::IQ4[usize::from(q)]);
        parts.d = half(self.d);
    }
}

/// `2^(e - 128)`: half of what the exponent byte says, because the table holds twice the values.
#[inline(always)]
pub(crate) fn half_exponent(e: u8) -> f32 {
    // 2^-128 and 2^-127 are subnormal.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

impl Narrow for Mxfp4 {
    const MINIMUM: bool = false;

    #[inline(always)]
    fn unpack(&self, parts: &mut Parts) {
        parts.w = nibbles(&self.qs, |q| grid::FP4[usize::from(q)]);
        parts.d = half_exponent(self.e);
    }
}

impl Nvfp4 {
    /// The 64 weights as f32.
    #[inline(always)]
    pub(crate) fn dequantize(&self, out: &mut [f32]) {
        for ((out, qs), d) in out.chunks_exact_mut(16).zip(self.qs.chunks_exact(8)).zip(self.d) {
            let d = half_e4m3(d);
            for (l, q) in qs.iter().enumerate() {
                out[l] = d * f32::from(grid::FP4[usize::from(q & 15)]);
                out[8 + l] = d * f32::from(grid::FP4[usize::from(q >> 4)]);
            }
        }
    }
}

/// Half the value of an unsigned E4M3 byte; its NaN counts as 0.
fn half_e4m3(x: u8) -> f32 {
    let (exponent, mantissa) = (x >> 3 & 15, f32::from(x & 7));
    match (x, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa * f32::from_bits((127 - 10) << 23),
        _ => (8.0 + mantissa) * f32::from_bits((u32::from(exponent) + 127 - 11) << 23),
    }
}
