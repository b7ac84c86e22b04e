//! Activations to 8 bits with AVX2: the same bits as `crate::activation`, since every step is rounded on its own.

use std::arch::x86_64::*;

use crate::activation::{NonFinite, TINY, add_up};

/// Largest |x| as bits.
///
/// # Safety
///
/// AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn max_magnitude(x: &[f32]) -> u32 {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let (eights, rest) = x.as_chunks::<8>();
    let mut max = _mm256_setzero_si256();
    for eight in eights {
        // SAFETY: eight floats are readable.
        let bits = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
        max = _mm256_max_epu32(max, _mm256_and_si256(bits, magnitude));
    }
    // SAFETY: both are 32 bytes of plain integers.
    let lanes: [u32; 8] = unsafe { std::mem::transmute(max) };
    let rest = rest.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    lanes.into_iter().chain(rest).max().unwrap_or(0)
}

/// See `crate::activation::quantize_block`.
///
/// # Safety
///
/// AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn quantize_block(x: &[f32], q: &mut [i8], sums: &mut [i16]) -> Result<f32, NonFinite> {
    // SAFETY: AVX2 is the caller's.
    let amax = f32::from_bits(unsafe { max_magnitude(x) });
    if !amax.is_finite() {
        return Err(NonFinite);
    }
    if amax < TINY {
        q.fill(0);
        sums.fill(0);
        return Ok(0.0);
    }
    let inverse = 127.0 / amax;
    let by = _mm256_set1_ps(inverse);
    let (filled, rest) = q.split_at_mut(x.len());
    let (eights, last) = x.as_chunks::<8>();
    let (q_eights, q_last) = filled.as_chunks_mut::<8>();
    for (x, q) in eights.iter().zip(q_eights) {
        // SAFETY: eight floats are readable, eight bytes writable.
        unsafe {
            // Ties go to even as the default rounding mode says. |x * inverse| is at most 127 and a few units in the
            // last place, so no rounded value leaves -127..127; the saturating packs are exact.
            let rounded = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr()), by));
            let (low, high) = (_mm256_castsi256_si128(rounded), _mm256_extracti128_si256::<1>(rounded));
            let words = _mm_packs_epi32(low, high);
            _mm_storel_epi64(q.as_mut_ptr().cast(), _mm_packs_epi16(words, words));
        }
    }
    for (x, q) in last.iter().zip(q_last) {
        *q = (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    rest.fill(0);
    add_up(q, sums);
    Ok(amax / 127.0)
}
