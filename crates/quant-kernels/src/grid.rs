//! The codebooks of the IQ formats, expanded from their packed form at compile time.
//!
//! A codebook entry is 8 (or 4) weights in one word, the first weight in the lowest byte.

pub(crate) mod codes;

/// `[-8, 0, 8]` of IQ1_S and IQ1_M: the format's values -1, 0, 1 times 8, so that its shift of 1/8 is 1.
pub(crate) static IQ1: [u64; 2048] = expand8(&codes::IQ1_S_GRID, [0xf8, 0, 8, 0]);
/// Weights of IQ2_XXS without their signs.
pub(crate) static IQ2_XXS: [u64; 256] = expand8(&codes::IQ2_XXS_GRID, [8, 25, 43, 0]);
/// Weights of IQ2_XS without their signs.
pub(crate) static IQ2_XS: [u64; 512] = expand8(&codes::IQ2_XS_GRID, [8, 25, 43, 0]);
/// Weights of IQ2_S without their signs.
pub(crate) static IQ2_S: [u64; 1024] = expand8(&codes::IQ2_S_GRID, [8, 25, 43, 0]);
/// Weights of IQ3_XXS without their signs.
pub(crate) static IQ3_XXS: [u32; 256] = expand4(&codes::IQ3_XXS_GRID, [4, 12, 20, 28, 36, 44, 52, 62]);
/// Weights of IQ3_S without their signs.
pub(crate) static IQ3_S: [u32; 512] = expand4(&codes::IQ3_S_GRID, [1, 3, 5, 7, 9, 11, 13, 15]);
/// The 16 weights of IQ4_NL and IQ4_XS.
pub(crate) static IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// The 16 weights of MXFP4 and NVFP4, twice the E2M1 values.
pub(crate) static FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The 8 sign bits of a 7-bit sign index: the eighth makes their number even.
pub(crate) const fn signs(index: u8) -> u8 {
    index | (((index & 0x7f).count_ones() as u8 & 1) << 7)
}

const fn expand8<const N: usize>(packed: &[u16; N], values: [u8; 4]) -> [u64; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 8 {
            out[i] |= (values[(packed[i] >> (2 * j) & 3) as usize] as u64) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    out
}

const fn expand4<const N: usize>(packed: &[u16; N], values: [u8; 8]) -> [u32; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 4 {
            out[i] |= (values[(packed[i] >> (3 * j) & 7) as usize] as u32) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    fn check<const N: usize>(grids: &SafeTensors<'_>, name: &str, ours: impl Iterator<Item = [u8; N]>) {
        let golden = grids.tensor(name).unwrap();
        let ours: Vec<u8> = ours.flatten().collect();
        assert_eq!(ours, golden.data(), "{name}");
    }

    #[test]
    fn tables_are_those_of_the_fixture() {
        let Some(path) = golden::file("quant/grids.safetensors") else { return };
        let bytes = std::fs::read(path).unwrap();
        let grids = SafeTensors::deserialize(&bytes).unwrap();
        check(&grids, "iq2_xxs_grid", super::IQ2_XXS.iter().map(|e| e.to_le_bytes()));
        check(&grids, "iq2_xs_grid", super::IQ2_XS.iter().map(|e| e.to_le_bytes()));
        check(&grids, "iq2_s_grid", super::IQ2_S.iter().map(|e| e.to_le_bytes()));
        check(&grids, "iq3_xxs_grid", super::IQ3_XXS.iter().map(|e| e.to_le_bytes()));
        check(&grids, "iq3_s_grid", super::IQ3_S.iter().map(|e| e.to_le_bytes()));
        check(
            &grids,
            "iq1_s_grid",
            super::IQ1.iter().map(|e| e.to_le_bytes().map(|value| (value as i8 / 8) as u8)),
        );
        check(&grids, "iq4_nl_values", super::IQ4.iter().map(|&v| [v as u8]));
        check(&grids, "mxfp4_values", super::FP4.iter().map(|&v| [v as u8]));
        check(&grids, "ksigns", (0..128).map(|i| [super::signs(i)]));
    }
}
