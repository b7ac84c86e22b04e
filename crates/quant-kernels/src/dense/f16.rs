//! IEEE half precision, as bits.

use super::vector::Vector;

/// The f32 of equal value. A signalling NaN becomes quiet, as the processor's instruction does it.
#[inline(always)]
fn widen(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff);
    // Exponent and mantissa in place; the product moves the bias and normalises subnormals, both exactly.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let bits = if magnitude > 0x7c00 {
        0x7fc0_0000 | magnitude << 13
    } else if magnitude == 0x7c00 {
        0x7f80_0000
    } else {
        scaled.to_bits()
    };
    f32::from_bits(sign | bits)
}

/// The nearest half, ties to even; a NaN keeps its upper payload and becomes quiet.
#[inline(always)]
fn narrow(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00 | magnitude >> 13 & 0x3ff
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Subnormal: the sum's ulp is 2^-24, one unit of the half's mantissa, so the addition rounds.
        (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000)
    } else {
        // Rebias, round half to even on the 13 bits that go; a carry may run into the exponent, up to infinity.
        (magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1)) >> 13
    };
    sign | half as u16
}

#[inline(always)]
pub(super) fn widen_f16(x: &[u16], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = widen(x);
    }
}

#[inline(always)]
pub(super) fn narrow_f16(x: &[f32], out: &mut [u16]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = narrow(x);
    }
}

/// Eight at a time by the processor's instructions.
#[inline(always)]
pub(super) fn widen_f16_vector<V: Vector>(v: V, x: &[u16], out: &mut [f32]) {
    let (x, x_rest) = x.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (out, x) in out.iter_mut().zip(x) {
        *out = v.widen(x);
    }
    widen_f16(x_rest, out_rest);
}

/// Eight at a time by the processor's instructions.
#[inline(always)]
pub(super) fn narrow_f16_vector<V: Vector>(v: V, x: &[f32], out: &mut [u16]) {
    let (x, x_rest) = x.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (out, x) in out.iter_mut().zip(x) {
        *out = v.narrow(x);
    }
    narrow_f16(x_rest, out_rest);
}
