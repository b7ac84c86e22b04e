//! What the x86-64 instruction sets provide.
//!
//! | entry | AVX2 | AVX-512 |
//! |---|---|---|
//! | `exact` | avx2_exact | avx512_exact, dequantising as AVX2 |
//! | `fast`, wide formats | avx2_wide with avx2_k, avx2_iq | avx512_wide with avx512_k, avx512_iq |
//! | `fast`, narrow formats | avx2_narrow | avx512_narrow, unpacking as AVX2 |
//! | `fast`, many activation rows | from 16 on: avx2_quads or avx2_panel for wide formats | from 8 on: avx512_panel |
//! | `quantize_block` | avx2_quantize | as AVX2 |

// Iterator adapters put a closure between an intrinsic and its target features, and the call is then not inlined.
#![allow(clippy::needless_range_loop)]

mod avx2;
mod avx2_exact;
mod avx2_iq;
mod avx2_k;
mod avx2_narrow;
mod avx2_panel;
mod avx2_quads;
mod avx2_quantize;
mod avx2_wide;
mod avx512;
mod avx512_exact;
mod avx512_iq;
mod avx512_k;
mod avx512_narrow;
mod avx512_panel;
mod avx512_scratch;
mod avx512_wide;
mod scratch;

use crate::activation::NonFinite;
use crate::dequantize::{with_narrow, with_wide};
use crate::matmul::Kernels;
use crate::rows::Quantized;
use crate::{Isa, Matrix, Rows};

/// The entries of an instruction set; `None` for the scalar one.
///
/// They are reached only through a `Cpu`, and a `Cpu` of an instruction set exists only where the processor has it.
pub(crate) fn kernels(isa: Isa) -> Option<&'static Kernels> {
    match isa {
        Isa::Scalar => None,
        Isa::Avx2 => Some(&AVX2),
        Isa::Avx512 => Some(&AVX512),
    }
}

static AVX2: Kernels = Kernels { exact: exact_avx2, fast: fast_avx2, quantize_block: quantize_block_avx2 };
/// Quantises as AVX2: 64-byte vectors bring little to blocks of 32 to 256 activations.
static AVX512: Kernels =
    Kernels { exact: exact_avx512, fast: fast_avx512, quantize_block: quantize_block_avx2 };

fn exact_avx2(w: Matrix<'_>, x: &Rows, out: &mut [f32]) {
    // SAFETY: `kernels` keeps this entry to processors with AVX2, FMA and F16C; `Cpu::matmul` has checked the sizes.
    unsafe { avx2_exact::matmul(w, x, out) }
}

fn fast_avx2(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    // SAFETY: `kernels` keeps this entry to processors with AVX2, FMA and F16C; `Cpu::matmul` has checked the sizes and
    // picked the form of the format's family.
    unsafe {
        with_wide!(w.quant(), Block => avx2_wide::matmul::<Block>(w, x, n, out), _ => {
            with_narrow!(w.quant(), Block => avx2_narrow::matmul::<Block>(w, x, n, out), _ => {
                unreachable!("the caller asks only for formats of the two integer families")
            })
        });
    }
}

fn quantize_block_avx2(x: &[f32], q: &mut [i8], sums: &mut [i16]) -> Result<f32, NonFinite> {
    // SAFETY: `kernels` keeps this entry to processors with AVX2.
    unsafe { avx2_quantize::quantize_block(x, q, sums) }
}

fn exact_avx512(w: Matrix<'_>, x: &Rows, out: &mut [f32]) {
    // SAFETY: `kernels` keeps this entry to processors with AVX2, FMA, F16C and the AVX-512 features; `Cpu::matmul` has
    // checked the sizes.
    unsafe { avx512_exact::matmul(w, x, out) }
}

fn fast_avx512(w: Matrix<'_>, x: &Quantized, n: usize, out: &mut [f32]) {
    // SAFETY: `kernels` keeps this entry to processors with AVX2, FMA, F16C and the AVX-512 features; `Cpu::matmul` has
    // checked the sizes and picked the form of the format's family.
    unsafe {
        with_wide!(w.quant(), Block => avx512_wide::matmul::<Block>(w, x, n, out), _ => {
            with_narrow!(w.quant(), Block => avx512_narrow::matmul::<Block>(w, x, n, out), _ => {
                unreachable!("the caller asks only for formats of the two integer families")
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use std::arch::asm;

    /// Every way in which the control word can change a result is noticed; bits 0x1f80 mask exceptions, as at the start.
    #[test]
    fn a_changed_float_mode_is_seen() {
        let changes = [
            ("flush to zero", 0x8000),
            ("denormals are zero", 0x40),
            ("down", 0x2000),
            ("up", 0x4000),
            ("to zero", 0x6000),
        ];
        for (name, bits) in changes {
            let seen = std::thread::spawn(move || {
                let (changed, default) = (0x1f80_u32 | bits, 0x1f80_u32);
                // SAFETY: the words are readable, and this thread computes nothing else before the default is back.
                unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const changed) };
                let is_default = crate::is_default_float_mode();
                // SAFETY: as above.
                unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const default) };
                !is_default
            });
            assert!(seen.join().unwrap(), "{name}");
        }
    }
}
