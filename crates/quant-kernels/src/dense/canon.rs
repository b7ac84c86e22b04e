//! E(t), the exponential that every lane computes alike, and the two functions built on it.
//!
//! docs/ARITHMETIC.md, section "E(t)", lists the same steps and constants. Nothing here depends on a library's `exp`.

/// log2(e), rounded to f32.
pub const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln(2), rounded to f32. With fmaf the product n * LN2_HI is exact and so is its difference to t.
pub const LN2_HI: f32 = f32::from_bits(0x3f31_7218);
/// ln(2) - LN2_HI, rounded to f32.
pub const LN2_LO: f32 = f32::from_bits(0xb102_e308);
/// 1.5 * 2^23: adding it leaves an f32 rounded to an integer, half to even, in the low mantissa bits.
pub const MAGIC: f32 = f32::from_bits(0x4b40_0000);
/// Arguments are clamped to +-LIMIT, so that 2^n stays a normal number (n is at most 126 in magnitude).
pub const LIMIT: f32 = 87.0;
/// exp(r) on |r| <= ln(2)/2: coefficients of r^6 down to r^0, in the order of Horner's scheme. Relative error of the
/// polynomial 3.1e-9 before rounding.
pub const COEFFICIENTS: [f32; 7] = [
    f32::from_bits(0x3ab5_121a),
    f32::from_bits(0x3c09_1cf1),
    f32::from_bits(0x3d2a_ac79),
    f32::from_bits(0x3e2a_aa49),
    f32::from_bits(0x3eff_fffe),
    1.0,
    1.0,
];

/// E(t): e to the power t, with t clamped to +-87 first. NaN stays NaN. E(0) is 1.
///
/// Within 1 ulp of the true value. The steps are those of docs/ARITHMETIC.md, so that any processor with a fused
/// multiply-add gives the same bits.
#[inline(always)]
#[must_use]
pub fn exp(t: f32) -> f32 {
    // Comparisons, not min and max: a NaN fails both and passes through.
    let t = if t > LIMIT { LIMIT } else { t };
    let t = if t < -LIMIT { -LIMIT } else { t };
    let shifted = t.mul_add(LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = n.mul_add(-LN2_HI, t);
    let r = n.mul_add(-LN2_LO, r);
    let mut p = COEFFICIENTS[0];
    p = p.mul_add(r, COEFFICIENTS[1]);
    p = p.mul_add(r, COEFFICIENTS[2]);
    p = p.mul_add(r, COEFFICIENTS[3]);
    p = p.mul_add(r, COEFFICIENTS[4]);
    p = p.mul_add(r, COEFFICIENTS[5]);
    p = p.mul_add(r, COEFFICIENTS[6]);
    // The low bits of `shifted` are n in two's complement above those of MAGIC; what lies above bit 8 is shifted out.
    let exponent = shifted.to_bits().wrapping_add(127) << 23;
    p * f32::from_bits(exponent)
}

/// 1 / (1 + E(-t)), IEEE division.
#[inline(always)]
#[must_use]
pub fn sigmoid(t: f32) -> f32 {
    1.0 / (1.0 + exp(-t))
}

/// t / (1 + E(-t)), IEEE division.
#[inline(always)]
#[must_use]
pub fn silu(t: f32) -> f32 {
    t / (1.0 + exp(-t))
}

#[inline(always)]
pub(super) fn exp_slice(x: &mut [f32]) {
    for v in x {
        *v = exp(*v);
    }
}

#[inline(always)]
pub(super) fn sigmoid_slice(x: &mut [f32]) {
    for v in x {
        *v = sigmoid(*v);
    }
}

#[inline(always)]
pub(super) fn silu_slice(x: &mut [f32]) {
    for v in x {
        *v = silu(*v);
    }
}
