//! Each operation's body, compiled for one instruction set at a time, and what [`Vector`] asks of each.
//!
//! The bodies fix the order of every sum and write every fused multiply-add, and LLVM never reassociates floats, so the
//! instances give equal bits.

use super::kda::Tokens;
#[cfg(target_arch = "x86_64")]
use super::vector::Vector;
use super::{attend, canon, f16, kda, norm, order, rows};
use crate::isa::{Cpu, Isa};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256, __m512, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_ps,
    _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_mul_ps,
    _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_storeu_ps, _mm256_sub_ps, _mm512_add_ps,
    _mm512_castps512_ps256, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps,
    _mm512_shuffle_f32x4, _mm512_shuffle_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

/// AVX2, FMA and F16C. Made only in the functions of module `avx2` below.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx2(());

/// AVX-512 F, BW, VL and DQ over AVX2. Made only in the functions of module `avx512` below.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(());

// SAFETY of every block in the two implementations: a value of the type exists only inside a function compiled for its
// instructions, which the dispatch below enters only where `Cpu` says that the processor has them. Pointers come from
// slices or arrays whose length the signature or the assertion on the line before guarantees.

#[cfg(target_arch = "x86_64")]
impl Vector for Avx2 {
    type F = __m256;
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: see above the implementation.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m256 {
        let x = &x[..8];
        // SAFETY: see above the implementation; x has 8 values.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m256, to: &mut [f32]) {
        let to = &mut to[..8];
        // SAFETY: see above the implementation; `to` has 8 values.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above the implementation.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above the implementation.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above the implementation.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sums(self, x: [__m256; 8]) -> [f32; 8] {
        let mut out = [0.0; 8];
        // SAFETY: see above the implementation; `out` has 8 values.
        unsafe {
            // hadd adds adjacent pairs within 128 bits: after two levels each half holds four sums of four values.
            let low = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
            let high = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
            let first = _mm256_permute2f128_ps::<0x20>(low, high);
            let second = _mm256_permute2f128_ps::<0x31>(low, high);
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_add_ps(first, second));
        }
        out
    }

    #[inline(always)]
    fn widen(self, x: &[u16; 8]) -> [f32; 8] {
        widen(x)
    }

    #[inline(always)]
    fn narrow(self, x: &[f32; 8]) -> [u16; 8] {
        narrow(x)
    }
}

#[cfg(target_arch = "x86_64")]
impl Vector for Avx512 {
    type F = __m512;
    const WIDTH: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: see above the implementation.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32]) -> __m512 {
        let x = &x[..16];
        // SAFETY: see above the implementation; x has 16 values.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m512, to: &mut [f32]) {
        let to = &mut to[..16];
        // SAFETY: see above the implementation; `to` has 16 values.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above the implementation.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above the implementation.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above the implementation.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sums(self, x: [__m512; 8]) -> [f32; 8] {
        let mut out = [0.0; 8];
        // SAFETY: see above the implementation; `out` has 8 values.
        unsafe {
            let low = quads(quads(x[0], x[1]), quads(x[2], x[3]));
            let high = quads(quads(x[4], x[5]), quads(x[6], x[7]));
            // Now each 128-bit quarter holds four sums of four values: quarters 0 + 1 and 2 + 3, then the two.
            let even = _mm512_shuffle_f32x4::<0x88>(low, high);
            let odd = _mm512_shuffle_f32x4::<0xdd>(low, high);
            let halves = _mm512_add_ps(even, odd);
            let first = _mm512_shuffle_f32x4::<0x88>(halves, halves);
            let second = _mm512_shuffle_f32x4::<0xdd>(halves, halves);
            let sums = _mm512_castps512_ps256(_mm512_add_ps(first, second));
            _mm256_storeu_ps(out.as_mut_ptr(), sums);
        }
        out
    }

    #[inline(always)]
    fn widen(self, x: &[u16; 8]) -> [f32; 8] {
        widen(x)
    }

    #[inline(always)]
    fn narrow(self, x: &[f32; 8]) -> [u16; 8] {
        narrow(x)
    }
}

/// Adjacent pairs of a, then of b, within each 128 bits: the 512-bit form of hadd.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
fn quads(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
}

/// Called only from the two implementations of [`Vector`], each of which has F16C.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widen(x: &[u16; 8]) -> [f32; 8] {
    let mut out = [0.0; 8];
    // SAFETY: F16C by the caller's type; both arrays hold what is read and written.
    unsafe {
        let halves = _mm_loadu_si128(x.as_ptr().cast::<__m128i>());
        _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
    }
    out
}

/// Called only from the two implementations of [`Vector`], each of which has F16C.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn narrow(x: &[f32; 8]) -> [u16; 8] {
    let mut out = [0; 8];
    // SAFETY: F16C by the caller's type; both arrays hold what is read and written.
    unsafe {
        let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
        _mm_storeu_si128(out.as_mut_ptr().cast::<__m128i>(), halves);
    }
    out
}

/// `fn name(arguments) = definition;` where LLVM vectorises the definition itself, `= definition, vector body;` where
/// there is a body on [`Vector`].
macro_rules! instances {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $body:path $(, $vector:path)?;)*) => {
        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            use super::*;
            $(
                #[target_feature(enable = "avx2,fma,f16c")]
                pub(super) fn $name($($arg: $ty),*) $(-> $ret)? {
                    instances!(@call Avx2(()), ($($arg),*), $body $(, $vector)?)
                }
            )*
        }

        #[cfg(target_arch = "x86_64")]
        mod avx512 {
            use super::*;
            $(
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
                pub(super) fn $name($($arg: $ty),*) $(-> $ret)? {
                    instances!(@call Avx512(()), ($($arg),*), $body $(, $vector)?)
                }
            )*
        }

        $(
            #[inline]
            pub(super) fn $name(cpu: Cpu, $($arg: $ty),*) $(-> $ret)? {
                match cpu.isa() {
                    // SAFETY: `Cpu` holds Avx2 only where `Isa::is_available` found avx2, fma and f16c.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { avx2::$name($($arg),*) },
                    // SAFETY: `Cpu` holds Avx512 only where `Isa::is_available` found all of the instance's features.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => unsafe { avx512::$name($($arg),*) },
                    _ => $body($($arg),*),
                }
            }
        )*
    };
    (@call $isa:expr, ($($arg:ident),*), $body:path) => { $body($($arg),*) };
    (@call $isa:expr, ($($arg:ident),*), $body:path, $vector:path) => { $vector($isa, $($arg),*) };
}

instances! {
    fn exp(x: &mut [f32]) = canon::exp_slice;
    fn sigmoid(x: &mut [f32]) = canon::sigmoid_slice;
    fn silu(x: &mut [f32]) = canon::silu_slice;
    fn dot(a: &[f32], b: &[f32]) -> f32 = order::dot, order::dot_vector;
    fn dot_rows(a: &[f32], rows: &[f32], out: &mut [f32]) = rows::dot_rows, rows::dot_rows_vector;
    fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) = rows::axpy;
    fn weighted_rows(p: &[f32], rows: &[f32], out: &mut [f32]) = rows::weighted_rows, rows::weighted_rows_vector;
    fn add(x: &[f32], y: &mut [f32]) = rows::add;
    fn scale_add(w: f32, x: &[f32], y: &mut [f32]) = rows::scale_add;
    fn softmax(x: &mut [f32]) = norm::softmax, norm::softmax_vector;
    fn swiglu(gate: &mut [f32], up: &[f32], limit: f32) = norm::swiglu;
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = norm::rms_norm, norm::rms_norm_vector;
    fn widen_f16(x: &[u16], out: &mut [f32]) = f16::widen_f16, f16::widen_f16_vector;
    fn narrow_f16(x: &[f32], out: &mut [u16]) = f16::narrow_f16, f16::narrow_f16_vector;
    fn kda_recurrence(state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) = kda::recurrence, kda::recurrence_vector;
    fn attend(q: &[f32], rows: &[f32], width: usize, scale: f32, scores: &mut [f32], out: &mut [f32])
        = attend::attend, attend::attend_vector;
    fn index_scores(iq: &[f32], iw: &[f32], pooled: &[f32], dim: usize, scale: f32, out: &mut [f32])
        = attend::index_scores, attend::index_scores_vector;
}
