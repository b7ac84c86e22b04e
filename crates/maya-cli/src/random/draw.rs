//! Normal and Gumbel values from the bits of [`Pcg64`], in NumPy's way: how many bits a value takes and which of them is
//! part of the contract.

use super::Pcg64;

/// Layers of the ziggurat.
const LAYERS: usize = 256;
/// Where its lowest layer turns into the tail, and one over it.
const R: f64 = 3.654_152_885_361_009;
const R_INVERSE: f64 = 0.273_661_237_329_758_3;
/// Area of a layer: `R exp(-R^2/2)` and the tail beyond it, `sqrt(pi/2) erfc(R/sqrt 2)`.
const AREA: f64 = 0.004_928_673_233_974_655;
/// Bits of a position within a layer.
const SCALE: f64 = (1u64 << 52) as f64;

/// The bits and the ziggurat's tables.
pub struct Distributions {
    bits: Pcg64,
    /// Width of a layer over 2^52.
    width: [f64; LAYERS],
    /// Positions below this lie under the curve without a look at it.
    inside: [u64; LAYERS],
    /// The curve at a layer's edge.
    height: [f64; LAYERS],
}

impl Distributions {
    /// As `numpy.random.default_rng(seed)`.
    pub fn new(seed: u64) -> Self {
        let curve = |x: f64| (-0.5 * x * x).exp();
        let mut it =
            Self { bits: Pcg64::new(seed), width: [0.0; LAYERS], inside: [0; LAYERS], height: [1.0; LAYERS] };
        // From the lowest layer up: each is as much narrower as makes its area the same. Layer 0 is a rectangle as wide as
        // the lowest layer would be with its tail squared off.
        let bottom = AREA / curve(R);
        it.width[0] = bottom / SCALE;
        it.inside[0] = (R / bottom * SCALE) as u64;
        let mut edge = R;
        for layer in (1..LAYERS).rev() {
            it.width[layer] = edge / SCALE;
            it.height[layer] = curve(edge);
            let above = (-2.0 * (AREA / edge + curve(edge)).ln()).max(0.0).sqrt();
            // The top layer has nothing that lies inside whatever the height.
            it.inside[layer] = if layer == 1 { 0 } else { (above / edge * SCALE) as u64 };
            edge = above;
        }
        it
    }

    /// Mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        loop {
            let bits = self.bits.next();
            let layer = (bits & 0xff) as usize;
            let position = bits >> 9 & ((1 << 52) - 1);
            let x = position as f64 * self.width[layer];
            let x = if bits >> 8 & 1 == 1 { -x } else { x };
            if position < self.inside[layer] {
                return x;
            }
            if layer == 0 {
                return self.tail(position >> 8 & 1 == 1);
            }
            let (low, high) = (self.height[layer], self.height[layer - 1]);
            if (high - low) * self.bits.unit() + low < (-0.5 * x * x).exp() {
                return x;
            }
        }
    }

    fn tail(&mut self, negative: bool) -> f64 {
        loop {
            let beyond = -R_INVERSE * (-self.bits.unit()).ln_1p();
            let y = -(-self.bits.unit()).ln_1p();
            if y + y > beyond * beyond {
                return if negative { -(R + beyond) } else { R + beyond };
            }
        }
    }

    /// Standard Gumbel: `-ln(-ln u)` for u in (0, 1).
    pub fn gumbel(&mut self) -> f64 {
        loop {
            let u = 1.0 - self.bits.unit();
            if u < 1.0 {
                return -(-u.ln()).ln();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extremes and last ones of a million normal and 100,000 Gumbel values of NumPy 2, and the bits after them: enough that layers, tail and rejections all occur.
    #[test]
    fn values_are_numpys() {
        let close = |found: f64, wanted: f64| {
            assert!((found - wanted).abs() < 1e-14 * wanted.abs(), "{found} {wanted}")
        };
        let mut numbers = Distributions::new(7);
        let normal: Vec<f64> = (0..1_000_000).map(|_| numbers.normal()).collect();
        close(normal.iter().copied().fold(f64::MIN, f64::max), 4.947871460149176);
        close(normal.iter().copied().fold(f64::MAX, f64::min), -4.586801064244291);
        close(normal[999_999], 1.617001458485082);
        let gumbel: Vec<f64> = (0..100_000).map(|_| numbers.gumbel()).collect();
        close(gumbel.iter().copied().fold(f64::MIN, f64::max), 11.468268132495792);
        close(gumbel[99_999], -0.3887075564526324);
        assert_eq!(numbers.bits.next(), 657_850_872_265_878_894);
    }
}
