//! Q2_K to Q6_K, and the ternary TQ1_0 and TQ2_0.

use super::{Minima, Parts, Wide};
use crate::block::{Q2K, Q3K, Q4K, Q5K, Q6K, Tq1_0, Tq2_0, half};

/// 2-bit fields: 32 bytes hold four runs of 32 weights, lowest bits first.
fn two_bits(qs: &[u8; 64], w: &mut [i8; 256]) {
    for (half, qs) in w.chunks_exact_mut(128).zip(qs.chunks_exact(32)) {
        for (j, run) in half.chunks_exact_mut(32).enumerate() {
            for (w, q) in run.iter_mut().zip(qs) {
                *w = (q >> (2 * j) & 3) as i8;
            }
        }
    }
}

impl Wide for Q2K {
    const MINIMA: Minima = Minima::Yes;

    fn unpack(&self, parts: &mut Parts) {
        two_bits(&self.qs, &mut parts.w);
        for (i, s) in self.scales.iter().enumerate() {
            parts.scale[i] = i16::from(s & 15);
            parts.min[i] = s >> 4;
        }
        parts.d = half(self.d);
        parts.dmin = half(self.dmin);
    }
}

/// The 16 six-bit scales of Q3_K: low nibbles of the first 8 bytes, then their high nibbles; top bits in the last 4.
pub(crate) fn q3k_scales(s: &[u8; 12]) -> [i16; 16] {
    std::array::from_fn(|i| {
        let low = s[i % 8] >> (4 * (i / 8)) & 15;
        let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
        i16::from(low | high << 4) - 32
    })
}

impl Wide for Q3K {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        two_bits(&self.qs, &mut parts.w);
        for (j, run) in parts.w.chunks_exact_mut(32).enumerate() {
            for (w, mask) in run.iter_mut().zip(&self.hmask) {
                *w -= if mask >> j & 1 == 0 { 4 } else { 0 };
            }
        }
        parts.scale = q3k_scales(&self.scales);
        parts.d = half(self.d);
    }
}

/// The 8 six-bit scales and mins of Q4_K and Q5_K.
pub(crate) fn q4k_scales(s: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let scale = |i: usize| if i < 4 { s[i] & 63 } else { s[i + 4] & 15 | s[i - 4] >> 6 << 4 };
    let min = |i: usize| if i < 4 { s[i + 4] & 63 } else { s[i + 4] >> 4 | s[i] >> 6 << 4 };
    (std::array::from_fn(scale), std::array::from_fn(min))
}

fn four_bits(scales: &[u8; 12], qs: &[u8; 128], parts: &mut Parts) {
    for (run, qs) in parts.w.chunks_exact_mut(64).zip(qs.chunks_exact(32)) {
        let (low, high) = run.split_at_mut(32);
        for ((low, high), q) in low.iter_mut().zip(high).zip(qs) {
            *low = (q & 15) as i8;
            *high = (q >> 4) as i8;
        }
    }
    let (scale, min) = q4k_scales(scales);
    for i in 0..16 {
        parts.scale[i] = i16::from(scale[i / 2]);
        parts.min[i] = min[i / 2];
    }
}

impl Wide for Q4K {
    const MINIMA: Minima = Minima::Yes;

    fn unpack(&self, parts: &mut Parts) {
        four_bits(&self.scales, &self.qs, parts);
        parts.d = half(self.d);
        parts.dmin = half(self.dmin);
    }
}

impl Wide for Q5K {
    const MINIMA: Minima = Minima::Yes;

    fn unpack(&self, parts: &mut Parts) {
        four_bits(&self.scales, &self.qs, parts);
        for (j, run) in parts.w.chunks_exact_mut(32).enumerate() {
            for (w, q) in run.iter_mut().zip(&self.qh) {
                *w |= ((q >> j & 1) << 4) as i8;
            }
        }
        parts.d = half(self.d);
        parts.dmin = half(self.dmin);
    }
}

impl Wide for Q6K {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        let halves = self.ql.chunks_exact(64).zip(self.qh.chunks_exact(32));
        for (out, (ql, qh)) in parts.w.chunks_exact_mut(128).zip(halves) {
            for (j, run) in out.chunks_exact_mut(32).enumerate() {
                for (l, w) in run.iter_mut().enumerate() {
                    let low = ql[32 * (j % 2) + l] >> (4 * (j / 2)) & 15;
                    let high = qh[l] >> (2 * j) & 3;
                    *w = (low | high << 4) as i8 - 32;
                }
            }
        }
        parts.scale = self.scales.map(i16::from);
        parts.d = half(self.d);
    }
}

impl Wide for Tq1_0 {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        const POW3: [u8; 5] = [1, 3, 9, 27, 81];
        let trit = |q: u8, digit: usize| ((u16::from(q.wrapping_mul(POW3[digit])) * 3) >> 8) as i8 - 1;
        for digit in 0..5 {
            for l in 0..32 {
                parts.w[32 * digit + l] = trit(self.qs[l], digit);
            }
            for l in 0..16 {
                parts.w[160 + 16 * digit + l] = trit(self.qs[32 + l], digit);
            }
        }
        for digit in 0..4 {
            for l in 0..4 {
                parts.w[240 + 4 * digit + l] = trit(self.qh[l], digit);
            }
        }
        parts.scale = [1; 16];
        parts.d = half(self.d);
    }
}

impl Wide for Tq2_0 {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        two_bits(&self.qs, &mut parts.w);
        parts.w.iter_mut().for_each(|w| *w -= 1);
        parts.scale = [1; 16];
        parts.d = half(self.d);
    }
}
