//! 256-weight blocks taken apart: the definition that every instruction set is compared with.

mod iq;
mod k;

use bytemuck::Pod;

/// Weights in a wide block.
pub(crate) const LEN: usize = 256;

/// A block in pieces. Weight i is `d * scale[i / 16] * w[i] - dmin * min[i / 16]`, every operation rounded.
///
/// `d` already holds the format's power of two, which is exact.
pub(crate) struct Parts {
    pub w: [i8; LEN],
    pub scale: [i16; LEN / 16],
    pub min: [u8; LEN / 16],
    pub d: f32,
    pub dmin: f32,
}

impl Parts {
    pub(crate) const fn new() -> Self {
        Self { w: [0; LEN], scale: [0; LEN / 16], min: [0; LEN / 16], d: 0.0, dmin: 0.0 }
    }

    /// The 256 weights as f32.
    #[inline(always)]
    pub(crate) fn dequantize(&self, minima: Minima, out: &mut [f32]) {
        for (i, (out, w)) in out.chunks_exact_mut(16).zip(self.w.chunks_exact(16)).enumerate() {
            let scale = self.d * f32::from(self.scale[i]);
            match minima {
                Minima::No => {
                    for (out, &w) in out.iter_mut().zip(w) {
                        *out = scale * f32::from(w);
                    }
                }
                Minima::Yes => {
                    let min = self.dmin * f32::from(self.min[i]);
                    for (out, &w) in out.iter_mut().zip(w) {
                        *out = scale * f32::from(w) - min;
                    }
                }
            }
        }
    }
}

/// Whether a format subtracts a minimum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Minima {
    No,
    Yes,
}

/// A wide format.
pub(crate) trait Wide: Pod {
    const MINIMA: Minima;

    fn unpack(&self, parts: &mut Parts);
}
