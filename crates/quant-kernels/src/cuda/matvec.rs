//! Device code for products of quantised rows with one vector: the units, and the shared memory that they ask for.

use super::unit::Unit;
use crate::{Family, Quant};

/// A file of the folder `kernels/`.
macro_rules! device_code {
    ($path:expr) => {
        include_str!(concat!("../../../../kernels/", $path))
    };
}

/// What every such unit includes.
pub(super) const HEADERS: &[(&str, &str)] = &[
    ("base.cuh", device_code!("include/base.cuh")),
    ("canon.cuh", device_code!("include/canon.cuh")),
    ("activation.cuh", device_code!("include/activation.cuh")),
    ("packed.cuh", device_code!("include/packed.cuh")),
    ("tree.cuh", device_code!("include/tree.cuh")),
    ("task.cuh", device_code!("include/task.cuh")),
    ("ring.cuh", device_code!("include/ring.cuh")),
    ("row_sums.cuh", device_code!("include/row_sums.cuh")),
    ("wide.cuh", device_code!("include/wide.cuh")),
    ("codebook.cuh", device_code!("include/codebook.cuh")),
    ("narrow.cuh", device_code!("include/narrow.cuh")),
    ("floats.cuh", device_code!("include/floats.cuh")),
    ("matvec.cuh", device_code!("include/matvec.cuh")),
];

macro_rules! units {
    ($($name:literal: $formats:expr;)*) => {
        /// The units, each with the one format or the two that it takes.
        pub(super) static MATVECS: &[(&[Quant], Unit)] = &[$((
            $formats,
            Unit {
                name: concat!("matvec_", $name),
                source: device_code!(concat!("quant/matvec_", $name, ".cu")),
                headers: HEADERS,
                entries: &[concat!("matvec_", $name)],
            },
        ),)*];
    };
}

units! {
    "f32": &[Quant::F32];
    "f16": &[Quant::F16];
    "bf16": &[Quant::Bf16];
    "q8_0": &[Quant::Q8_0];
    "q4_0": &[Quant::Q4_0];
    "q4_1": &[Quant::Q4_1];
    "q5_0": &[Quant::Q5_0];
    "q5_1": &[Quant::Q5_1];
    "iq4_nl": &[Quant::Iq4Nl];
    "mxfp4": &[Quant::Mxfp4];
    "q2_k": &[Quant::Q2K];
    "q3_k": &[Quant::Q3K];
    "q4_k": &[Quant::Q4K];
    "q5_k": &[Quant::Q5K];
    "q6_k": &[Quant::Q6K];
    "iq1_s": &[Quant::Iq1S];
    "iq1_m": &[Quant::Iq1M];
    "iq2_xxs": &[Quant::Iq2Xxs];
    "iq2_xs": &[Quant::Iq2Xs];
    "iq2_s": &[Quant::Iq2S];
    "iq3_xxs": &[Quant::Iq3Xxs];
    "iq3_s": &[Quant::Iq3S];
    "iq4_xs": &[Quant::Iq4Xs];
    "q6_k_q8_0": &[Quant::Q6K, Quant::Q8_0];
    "iq2_xxs_q6_k": &[Quant::Iq2Xxs, Quant::Q6K];
    "iq2_s_q6_k": &[Quant::Iq2S, Quant::Q6K];
    "iq3_xxs_q6_k": &[Quant::Iq3Xxs, Quant::Q6K];
}

/// The unit of one format; `None` for one without a fast product.
#[must_use]
pub fn matvec_unit(quant: Quant) -> Option<&'static Unit> {
    MATVECS.iter().find(|(formats, _)| *formats == [quant]).map(|(_, unit)| unit)
}

/// The unit that takes two formats in one launch, the first of them as format 0.
#[must_use]
pub fn matvec_pair_unit(pair: [Quant; 2]) -> Option<&'static Unit> {
    MATVECS.iter().find(|(formats, _)| *formats == pair).map(|(_, unit)| unit)
}

/// Shared memory of a block from which on a device has the large tables: sm_90 to sm_11x have 227 KB, all others at most 164
/// (`ROOMY` in kernels/include/codebook.cuh).
const ROOMY: u32 = 200 << 10;

/// Words of a format's tables in shared memory and tiles of a stage, as the format's structure says in
/// kernels/include/{wide,codebook,narrow}.cuh.
const fn tables_and_tiles(quant: Quant, roomy: bool) -> (u32, u32) {
    match quant {
        Quant::Iq1S | Quant::Iq1M => (2048 * 4, 4),
        Quant::Iq2Xxs if roomy => (256 * 64, 4),
        Quant::Iq2Xxs => ((256 + 128) * 32, 4),
        Quant::Iq2Xs => ((512 + 128) * 16, 4),
        Quant::Iq2S if roomy => (2 * 256 * 64, 2),
        Quant::Iq2S => ((1024 + 256) * 8, 4),
        Quant::Iq3Xxs if roomy => (256 * 64, 2),
        Quant::Iq3Xxs => ((256 + 128) * 32, 2),
        Quant::Iq3S => ((512 + 256) * 16, 2),
        Quant::Q2K => (0, 4),
        Quant::Q8_0 => (0, 1),
        _ => (0, 2),
    }
}

/// Tiles whose sums are made at once (`TOGETHER` in kernels/include/{wide,codebook,narrow}.cuh; Q6_K's beside IQ2_XXS).
const fn together(quant: Quant) -> u32 {
    match quant {
        Quant::Iq2Xxs => 8,
        Quant::Q6K => 4,
        _ => 0,
    }
}

/// Stages of a warp that have room (`STAGES` in kernels/include/ring.cuh).
const STAGES: u32 = 2;

/// Bytes of shared memory that a block of `threads` threads takes for `rows` rows of `k` weights on a device that gives a block
/// `room` bytes (kernels/include/ring.cuh and floats.cuh have the formula).
#[must_use]
pub fn matvec_smem(quant: Quant, k: u32, rows: u32, threads: u32, room: u32) -> u32 {
    let Some(family) = quant.family() else { return 0 };
    if family == Family::Float {
        return k.next_multiple_of(4) * 4;
    }
    let (units, warps) = (k.div_ceil(128), threads / 32);
    let segments = units.div_ceil(32);
    let (tables, tiles) = tables_and_tiles(quant, room >= ROOMY);
    let partials = if segments > 1 { rows * segments * 4 } else { 0 };
    let stage = tiles * (4096 / quant.block_len() as u32 * quant.block_bytes() as u32 + 32);
    let fixed = tables * 4 + units * 144 + k.div_ceil(32).next_multiple_of(4) * 4 + partials;
    fixed.next_multiple_of(16) + warps * (STAGES * (8 + stage) + together(quant) * 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with the widest rows of the real model stays below what an H100's multiprocessor gives one block; every
    /// format with a product has its unit.
    #[test]
    fn every_format_has_a_unit_that_fits() {
        for quant in Quant::ALL.into_iter().filter(|quant| quant.family().is_some()) {
            assert_eq!(matvec_unit(quant).map(|unit| unit.entries.len()), Some(1), "{}", quant.name());
            let most = matvec_smem(quant, 4096, 32, 512, 227 << 10);
            assert!(most > 0 && most <= 227 << 10, "{}: {most}", quant.name());
            // Volta, with four warps.
            let most = matvec_smem(quant, 4096, 32, 128, 96 << 10);
            assert!(most <= 96 << 10, "{}: {most}", quant.name());
        }
        assert_eq!(matvec_smem(Quant::F32, 5, 1, 512, 227 << 10), 32);
        // Q6_K, 4096 weights: 32 units, 16 warps with two stages of two tiles, and sums of four.
        assert_eq!(
            matvec_smem(Quant::Q6K, 4096, 9, 512, 227 << 10),
            32 * 144 + 128 * 4 + 32 * (8 + 2 * 3392) + 16 * 4 * 64
        );
        assert!(matvec_pair_unit([Quant::Q6K, Quant::Q8_0]).is_some());
        assert!(matvec_pair_unit([Quant::Q8_0, Quant::Q6K]).is_none());
    }
}
