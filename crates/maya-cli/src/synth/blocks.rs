//! Valid random blocks: every payload bit is random, every super-scale is set so that a weight's standard deviation is
//! near the wanted one.

use gguf::GgmlType;
use half::f16;

/// A small fast generator (splitmix64): good enough for weights that only have to look random.
pub struct Random(u64);

impl Random {
    /// A stream of its own for each `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut it = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        it.next();
        it
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n, n above 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, mean 0, deviation 1: the sum of four uniforms of 16 bits, so within 3.5 deviations. One step of
    /// the generator a value keeps the 350 MB of F32 tensors of a full-size file from costing more than its copy.
    pub fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // Four uniforms over 0..=65535: mean 131070, deviation 65536 / sqrt(3).
        (sum as f32 - 131_070.0) * (3.0f32.sqrt() / 65_536.0)
    }
}

/// Where the f16 super-scales sit in a block, and the root mean square of weight / scale for random payload bits,
/// measured on 5 million weights of each type.
fn scales(ty: GgmlType) -> Option<(&'static [usize], f64)> {
    Some(match ty {
        GgmlType::Q8_0 => (&[0], 74.0),
        GgmlType::Q2K => (&[80, 82], 13.4),
        GgmlType::Q3K => (&[108], 43.3),
        GgmlType::Q4K => (&[0, 2], 299.0),
        GgmlType::Q6K => (&[208], 1366.0),
        GgmlType::Iq2Xxs => (&[0], 53.3),
        GgmlType::Iq2S => (&[0], 56.4),
        GgmlType::Iq3Xxs => (&[0], 142.5),
        _ => return None,
    })
}

/// Whole blocks of at least `want` bytes; `None` for a type that the plan does not use.
pub fn random(ty: GgmlType, std: f64, want: usize, random: &mut Random) -> Option<Vec<u8>> {
    let (offsets, unit) = scales(ty)?;
    let size = ty.block_bytes() as usize;
    let n = want.div_ceil(size).max(1);
    let mut bytes = vec![0u8; n * size];
    for word in bytes.chunks_mut(8) {
        let bits = random.next().to_le_bytes();
        word.copy_from_slice(&bits[..word.len()]);
    }
    for block in bytes.chunks_exact_mut(size) {
        for &offset in offsets {
            let d = f16::from_f64(std / unit * (0.7 + 0.6 * random.unit()));
            block[offset..offset + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use quant_kernels::{Quant, dequantize};

    use super::*;

    #[test]
    fn normal_values_have_mean_0_and_deviation_1() {
        let mut random = Random::new(1, 2);
        let n = 200_000;
        let values: Vec<f64> = (0..n).map(|_| f64::from(random.normal())).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    /// Every block decodes to finite weights whose root mean square is within 4 % of the wanted one.
    #[test]
    fn blocks_are_valid_and_of_the_wanted_size() {
        use GgmlType::{Iq2S, Iq2Xxs, Iq3Xxs, Q2K, Q3K, Q4K, Q6K, Q8_0};
        for ty in [Q8_0, Q2K, Q3K, Q4K, Q6K, Iq2Xxs, Iq2S, Iq3Xxs] {
            let bytes = super::random(ty, 0.02, 1 << 20, &mut Random::new(7, u64::from(ty.id()))).unwrap();
            let n = bytes.len() / ty.block_bytes() as usize * ty.block_len() as usize;
            let mut weights = vec![0.0f32; n];
            dequantize(Quant::from_ggml_id(ty.id()).unwrap(), &bytes, &mut weights).unwrap();
            let square = weights.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>() / n as f64;
            let deviation = square.sqrt();
            assert!((0.0192..0.0208).contains(&deviation), "{}: {deviation}", ty.name());
        }
    }
}
