//! The codebook formats IQ1_S to IQ4_XS.

use super::{Minima, Parts, Wide};
use crate::block::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Xs, half};
use crate::grid;

/// Stores a codebook entry, each value negated where its bit of `signs` is set.
fn signed<const N: usize>(entry: [u8; N], signs: u8, w: &mut [i8]) {
    for (j, (w, value)) in w.iter_mut().zip(entry).enumerate() {
        *w = if signs >> j & 1 == 0 { value as i8 } else { -(value as i8) };
    }
}

/// Stores 8 weights of an IQ1 format: 8 times the codebook's -1, 0, 1, shifted by 1 down or up.
fn shifted(index: usize, down: bool, w: &mut [i8]) {
    for (w, value) in w.iter_mut().zip(grid::IQ1[index].to_le_bytes()) {
        *w = value as i8 + if down { -1 } else { 1 };
    }
}

/// `2 * scale + 1` for the 16 nibbles of 8 bytes: the half that the formats add, doubled.
fn odd_nibbles(scales: &[u8; 8]) -> [i16; 16] {
    std::array::from_fn(|i| 2 * i16::from(scales[i / 2] >> (4 * (i % 2)) & 15) + 1)
}

impl Wide for Iq1S {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (g, w) in parts.w.chunks_exact_mut(8).enumerate() {
            let qh = u16::from_le_bytes(self.qh[g / 4]);
            let index = usize::from(self.qs[g]) | usize::from(qh >> (3 * (g % 4)) & 7) << 8;
            shifted(index, qh & 0x8000 != 0, w);
            parts.scale[g / 2] = 2 * (qh >> 12 & 7) as i16 + 1;
        }
        parts.d = half(self.d) * 0.125;
    }
}

impl Wide for Iq1M {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        let scales = self.scales.map(u16::from_le_bytes);
        for (g, w) in parts.w.chunks_exact_mut(8).enumerate() {
            let qh = self.qh[g / 2] >> (4 * (g % 2));
            shifted(usize::from(self.qs[g]) | usize::from(qh & 7) << 8, qh & 8 != 0, w);
            let s = g / 2;
            parts.scale[s] = 2 * (scales[s / 4] >> (3 * (s % 4)) & 7) as i16 + 1;
        }
        parts.d = half(self.d()) * 0.125;
    }
}

impl Iq1M {
    /// The half that is spread over the top nibbles of the scales, lowest nibble first.
    pub(crate) fn d(&self) -> [u8; 2] {
        let top = self.scales.map(|s| u16::from_le_bytes(s) >> 12);
        (top[0] | top[1] << 4 | top[2] << 8 | top[3] << 12).to_le_bytes()
    }
}

impl Wide for Iq2Xxs {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (i, (w, qs)) in parts.w.chunks_exact_mut(32).zip(self.qs).enumerate() {
            let signs = u32::from_le_bytes([qs[4], qs[5], qs[6], qs[7]]);
            for (j, w) in w.chunks_exact_mut(8).enumerate() {
                let entry = grid::IQ2_XXS[usize::from(qs[j])];
                signed(entry.to_le_bytes(), grid::signs((signs >> (7 * j) & 127) as u8), w);
            }
            parts.scale[2 * i..2 * i + 2].fill(2 * (signs >> 28) as i16 + 1);
        }
        parts.d = half(self.d) * 0.125;
    }
}

impl Wide for Iq2Xs {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (w, qs) in parts.w.chunks_exact_mut(8).zip(self.qs) {
            let q = u16::from_le_bytes(qs);
            signed(grid::IQ2_XS[usize::from(q & 511)].to_le_bytes(), grid::signs((q >> 9) as u8), w);
        }
        parts.scale = odd_nibbles(&self.scales);
        parts.d = half(self.d) * 0.125;
    }
}

impl Wide for Iq2S {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (g, w) in parts.w.chunks_exact_mut(8).enumerate() {
            let index = usize::from(self.qs[g]) | usize::from(self.qh[g / 4] >> (2 * (g % 4)) & 3) << 8;
            signed(grid::IQ2_S[index].to_le_bytes(), self.signs[g], w);
        }
        parts.scale = odd_nibbles(&self.scales);
        parts.d = half(self.d) * 0.125;
    }
}

impl Wide for Iq3Xxs {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (i, w) in parts.w.chunks_exact_mut(32).enumerate() {
            let word = u32::from_le_bytes(self.signs[i]);
            for (j, w) in w.chunks_exact_mut(8).enumerate() {
                let signs = grid::signs((word >> (7 * j) & 127) as u8);
                let (low, high) = w.split_at_mut(4);
                signed(grid::IQ3_XXS[usize::from(self.qs[8 * i + 2 * j])].to_le_bytes(), signs, low);
                signed(
                    grid::IQ3_XXS[usize::from(self.qs[8 * i + 2 * j + 1])].to_le_bytes(),
                    signs >> 4,
                    high,
                );
            }
            parts.scale[2 * i..2 * i + 2].fill(2 * (word >> 28) as i16 + 1);
        }
        parts.d = half(self.d) * 0.25;
    }
}

impl Wide for Iq3S {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        for (k, w) in parts.w.chunks_exact_mut(4).enumerate() {
            let index = usize::from(self.qs[k]) | usize::from(self.qh[k / 8] >> (k % 8) & 1) << 8;
            signed(grid::IQ3_S[index].to_le_bytes(), self.signs[k / 2] >> (4 * (k % 2)), w);
        }
        for (s, scale) in parts.scale.iter_mut().enumerate() {
            *scale = 2 * i16::from(self.scales[s / 4] >> (4 * (s / 2 % 2)) & 15) + 1;
        }
        parts.d = half(self.d);
    }
}

impl Wide for Iq4Xs {
    const MINIMA: Minima = Minima::No;

    fn unpack(&self, parts: &mut Parts) {
        let high = u16::from_le_bytes(self.scales_h);
        for (i, (w, qs)) in parts.w.chunks_exact_mut(32).zip(self.qs.chunks_exact(16)).enumerate() {
            for (l, q) in qs.iter().enumerate() {
                w[l] = grid::IQ4[usize::from(q & 15)];
                w[16 + l] = grid::IQ4[usize::from(q >> 4)];
            }
            let scale =
                i16::from(self.scales_l[i / 2] >> (4 * (i % 2)) & 15) | ((high >> (2 * i) & 3) << 4) as i16;
            parts.scale[2 * i..2 * i + 2].fill(scale - 32);
        }
        parts.d = half(self.d);
    }
}
