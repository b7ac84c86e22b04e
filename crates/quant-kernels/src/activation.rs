//! How activations become 8-bit numbers (docs/ARITHMETIC.md, "Activations").

/// How a form cuts a row: block length, and over how many values it keeps sums of q.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) len: usize,
    pub(crate) sum_len: usize,
}

pub(crate) const WIDE: Block = Block { len: 256, sum_len: 16 };
pub(crate) const NARROW: Block = Block { len: 32, sum_len: 32 };

impl Block {
    /// Sums of a block.
    pub(crate) const fn sums(self) -> usize {
        self.len / self.sum_len
    }
}

/// A block held a NaN or an infinity.
#[derive(Debug)]
pub(crate) struct NonFinite;

/// Below this largest magnitude a block counts as zero, so that `127 / amax` is finite with room to spare.
pub(crate) const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Quantises a block; values that `q` has beyond `x` become 0. Fills `sums` with the sums of equal parts of `q` and
/// returns the scale.
pub(crate) fn quantize_block(x: &[f32], q: &mut [i8], sums: &mut [i16]) -> Result<f32, NonFinite> {
    let amax = f32::from_bits(x.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff)));
    if !amax.is_finite() {
        return Err(NonFinite);
    }
    if amax < TINY {
        q.fill(0);
        sums.fill(0);
        return Ok(0.0);
    }
    let inverse = 127.0 / amax;
    let (filled, rest) = q.split_at_mut(x.len());
    for (q, x) in filled.iter_mut().zip(x) {
        *q = (x * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    rest.fill(0);
    add_up(q, sums);
    Ok(amax / 127.0)
}

/// The sums of equal parts of `q`.
#[inline(always)]
pub(crate) fn add_up(q: &[i8], sums: &mut [i16]) {
    let part = q.len() / sums.len();
    for (sum, q) in sums.iter_mut().zip(q.chunks_exact(part)) {
        *sum = q.iter().map(|&q| i16::from(q)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Family, Rows};

    fn prepared(x: &[f32], family: Family) -> (Rows, Vec<usize>) {
        let (mut rows, mut bad) = (Rows::new(), Vec::new());
        rows.reset(1, x.len()).copy_from_slice(x);
        rows.prepare(Cpu::scalar(), family, &mut bad);
        (rows, bad)
    }

    #[test]
    fn halves_round_to_even_and_the_largest_becomes_127() {
        // amax 127 makes the inverse 1.
        let (rows, bad) = prepared(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, -127.0], Family::Narrow);
        let form = rows.quantized(Family::Narrow).unwrap();
        assert_eq!(form.q[..8], [127, 0, 2, 2, 0, -2, -2, -127]);
        assert_eq!(form.q[8..], [0; 24]);
        assert_eq!((form.scale[0], form.sums[0]), (1.0, 0));
        assert!(bad.is_empty());
    }

    #[test]
    fn blocks_are_cut_at_multiples_and_the_last_may_be_shorter() {
        let x: Vec<f32> = (0..288).map(|i| if i < 256 { 1.0 } else { -3.0 }).collect();
        let (rows, _) = prepared(&x, Family::Wide);
        let form = rows.quantized(Family::Wide).unwrap();
        assert_eq!((form.blocks, form.stride, form.q.len()), (2, 8, 512));
        assert_eq!(form.scale, [1.0 / 127.0, 3.0 / 127.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!((form.q[255], form.q[256], form.q[287], form.q[288]), (127, -127, -127, 0));
        assert_eq!((form.sums[15], form.sums[16], form.sums[17], form.sums[18]), (2032, -2032, -2032, 0));
    }

    #[test]
    fn tiny_blocks_are_zero() {
        let below = f32::from_bits(TINY.to_bits() - 1);
        let (rows, _) = prepared(&[below; 32], Family::Narrow);
        let form = rows.quantized(Family::Narrow).unwrap();
        assert_eq!((form.scale[0], form.q[0]), (0.0, 0));
        let (rows, _) = prepared(&[TINY; 32], Family::Narrow);
        let form = rows.quantized(Family::Narrow).unwrap();
        assert_eq!((form.scale[0], form.q[0]), (TINY / 127.0, 127));
        let (rows, bad) = prepared(&[f32::MAX, f32::MIN, 0.0], Family::Wide);
        assert_eq!(rows.quantized(Family::Wide).unwrap().q[..3], [127, -127, 0]);
        assert!(bad.is_empty());
    }

    #[test]
    fn rows_that_are_not_finite_are_named_and_zero() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut rows, mut bad) = (Rows::new(), Vec::new());
            rows.reset(3, 64).fill(1.0);
            rows.reset(3, 64)[64 + 40] = value;
            rows.prepare(Cpu::scalar(), Family::Narrow, &mut bad);
            assert_eq!(bad, [1]);
            let form = rows.quantized(Family::Narrow).unwrap();

            let row = |t: usize| [&form.q[32 * t..][..32], &form.q[32 * (3 + t)..][..32]].concat();
            assert_eq!(row(1), [0; 64]);
            assert_eq!(row(2), [127; 64]);
            assert_eq!(form.scale[8..16], [0.0; 8]);
            rows.prepare(Cpu::scalar(), Family::Narrow, &mut bad);
            assert_eq!(bad, [1], "made once, named once");
        }
    }
}
