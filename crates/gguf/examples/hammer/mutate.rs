//! Random changes to headers, without knowledge of the format but for the numbers that break parsers.

/// A xorshift generator: what it draws follows from its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to `n - 1`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() >> 16) as usize % n }
    }
}

/// Counts, sizes and offsets at the edges.
const NUMBERS: [u64; 16] = [
    0,
    1,
    4,
    5,
    9,
    31,
    32,
    33,
    1 << 16,
    1 << 21,
    1 << 31,
    u32::MAX as u64,
    1 << 46,
    i64::MAX as u64,
    u64::MAX - 31,
    u64::MAX,
];

/// Makes one to eight changes to `bytes`; `other` is what pieces are spliced from.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len());
        match random.below(9) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 => put(bytes, at, &NUMBERS[random.below(NUMBERS.len())].to_le_bytes()),
            3 => put(bytes, at, &(NUMBERS[random.below(NUMBERS.len())] as u32).to_le_bytes()),
            4 => put(bytes, at, &(random.below(64) as u64).to_le_bytes()),
            5 => bytes.truncate(at),
            6 => {
                let end = at + random.below((bytes.len() - at).min(64));
                bytes.drain(at..end);
            }
            7 => {
                let from = random.below(other.len());
                let piece = &other[from..from + random.below((other.len() - from).min(128))];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => {
                let piece = bytes[at..at + random.below((bytes.len() - at).min(128))].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
}

/// Overwrites what is there.
fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (old, &new) in bytes[at..].iter_mut().zip(new) {
        *old = new;
    }
}
