//! PCG64 (XSL-RR 128/64) seeded by NumPy's `SeedSequence`. Constants are those of O'Neill's PCG and `seed_seq_fe`.

/// Words of the entropy pool.
const POOL: usize = 4;
const SHIFT: u32 = 16;
const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

/// The generator.
#[derive(Clone, Debug)]
pub struct Pcg64 {
    state: u128,
    increment: u128,
}

impl Pcg64 {
    /// As `numpy.random.default_rng(seed)`.
    pub fn new(seed: u64) -> Self {
        let words = SeedSequence::new(seed).words();
        let wide = |at: usize| u128::from(words[at]) << 64 | u128::from(words[at + 1]);
        let mut it = Self { state: 0, increment: wide(2) << 1 | 1 };
        it.step();
        it.state = it.state.wrapping_add(wide(0));
        it.step();
        it
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Spreads a seed over a pool of words, each of which depends on all of it.
struct SeedSequence([u32; POOL]);

impl SeedSequence {
    fn new(seed: u64) -> Self {
        // A seed below 2^32 is one word; the rest of the pool is filled with zeros either way.
        let entropy = [seed as u32, (seed >> 32) as u32, 0, 0];
        let mut hash = Hash { constant: 0x43b0_d7e5, multiplier: 0x931e_8875 };
        let mut pool = entropy.map(|word| hash.of(word));
        for from in 0..POOL {
            for to in (0..POOL).filter(|&to| to != from) {
                pool[to] = mix(pool[to], hash.of(pool[from]));
            }
        }
        Self(pool)
    }

    /// Four words of state, each of two halves, the low one first.
    fn words(&self) -> [u64; 4] {
        let mut hash = Hash { constant: 0x8b51_f9dd, multiplier: 0x58f3_8ded };
        let mut halves = self.0.iter().cycle().map(|&word| u64::from(hash.of(word)));
        std::array::from_fn(|_| {
            let low = halves.next().unwrap_or(0);
            low | halves.next().unwrap_or(0) << 32
        })
    }
}

/// A hash whose constant moves on with every word.
struct Hash {
    constant: u32,
    multiplier: u32,
}

impl Hash {
    fn of(&mut self, word: u32) -> u32 {
        let word = word ^ self.constant;
        self.constant = self.constant.wrapping_mul(self.multiplier);
        let word = word.wrapping_mul(self.constant);
        word ^ word >> SHIFT
    }
}

fn mix(x: u32, y: u32) -> u32 {
    let word = x.wrapping_mul(0xca01_f9dd).wrapping_sub(y.wrapping_mul(0x4973_f715));
    word ^ word >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `default_rng(seed).bit_generator.random_raw(3)` of NumPy 2.
    #[test]
    fn bits_are_numpys() {
        for (seed, wanted) in GOLDEN {
            let mut rng = Pcg64::new(seed);
            assert_eq!([rng.next(), rng.next(), rng.next()], wanted, "seed {seed}");
        }
    }

    const GOLDEN: [(u64, [u64; 3]); 4] = [
        (0, [0xa30f_ebcf_d9c2_825f, 0x4510_bdf8_82d9_d721, 0x0a7d_3da9_4ecd_e8b8]),
        (1, [0x8306_bdf3_7922_e4ff, 0xf351_96bb_c152_a866, 0x24e7_a4f6_08ec_18cd]),
        (4_294_967_295, [0x407f_5fa9_30d8_fd9f, 0x3814_b22e_b968_4802, 0x498b_7dce_e8d8_dc95]),
        (9_223_372_036_854_788_153, [0x7e82_ff06_e5a1_7e1c, 0x9375_de14_7f21_1adb, 0x0aee_1bf0_359c_b9d2]),
    ];
}
