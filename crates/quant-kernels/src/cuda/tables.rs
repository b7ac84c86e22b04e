//! The codebooks as device code reads them (kernels/include/codebook.cuh): entries, then sign patterns, a word each.

use crate::Quant;
use crate::grid::{self, codes};

/// The tables of a format; none for a format without a codebook.
#[must_use]
pub fn matvec_tables(quant: Quant) -> Vec<u32> {
    let pairs = |codes: &[u16]| codes.iter().map(|code| nibbles(*code)).collect::<Vec<_>>();
    let (mut entries, signs): (Vec<u32>, Vec<u32>) = match quant {
        Quant::Iq1S | Quant::Iq1M => (pairs(&codes::IQ1_S_GRID), Vec::new()),
        Quant::Iq2Xxs => (pairs(&codes::IQ2_XXS_GRID), (0..128).map(|i| thirds(grid::signs(i))).collect()),
        Quant::Iq2Xs => (pairs(&codes::IQ2_XS_GRID), (0..128).map(|i| thirds(grid::signs(i))).collect()),
        Quant::Iq2S => (pairs(&codes::IQ2_S_GRID), (0..=255).map(thirds).collect()),
        Quant::Iq3Xxs => (grid::IQ3_XXS.to_vec(), (0..128).map(|i| tops(grid::signs(i))).collect()),
        Quant::Iq3S => (grid::IQ3_S.to_vec(), (0..=255).map(tops).collect()),
        _ => (Vec::new(), Vec::new()),
    };
    entries.extend(signs);
    entries
}

/// Eight two-bit codes, a nibble each.
fn nibbles(code: u16) -> u32 {
    (0..8).map(|j| u32::from(code >> (2 * j) & 3) << (4 * j)).sum()
}

/// Bit j as the third bit of nibble j.
fn thirds(signs: u8) -> u32 {
    (0..8).map(|j| u32::from(signs >> j & 1) << (4 * j + 2)).sum()
}

/// Bits 0 to 3 as the top bits of the four bytes, bits 4 to 7 below them.
fn tops(signs: u8) -> u32 {
    (0..4)
        .map(|j| u32::from(signs >> j & 1) << (8 * j + 7) | u32::from(signs >> (4 + j) & 1) << (8 * j + 6))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The magnitudes that a nibble chooses are those of the expanded codebook.
    #[test]
    fn nibbles_choose_the_values_of_the_codebook() {
        let values = [8u8, 25, 43];
        for (quant, entries) in
            [(Quant::Iq2Xxs, &grid::IQ2_XXS[..]), (Quant::Iq2Xs, &grid::IQ2_XS), (Quant::Iq2S, &grid::IQ2_S)]
        {
            let tables = matvec_tables(quant);
            for (word, entry) in tables.iter().zip(entries) {
                let chosen = std::array::from_fn(|j| values[(word >> (4 * j) & 15) as usize]);
                assert_eq!(u64::from_le_bytes(chosen), *entry);
            }
            assert_eq!(tables.len() - entries.len(), if quant == Quant::Iq2S { 256 } else { 128 });
        }
    }

    #[test]
    fn signs_keep_their_order() {
        assert_eq!((thirds(0b1000_0001), thirds(0)), (1 << 30 | 1 << 2, 0));
        assert_eq!(tops(0b0001_0010), 1 << 15 | 1 << 6);
        assert!(matvec_tables(Quant::Q6K).is_empty());
        assert_eq!(matvec_tables(Quant::Iq3S).len(), 512 + 256);
        assert_eq!(matvec_tables(Quant::Iq1M).len(), 2048);
    }
}
