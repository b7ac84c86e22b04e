//! The order in which a row's block partials are added.

/// Adds partials as if they were padded with +0.0 to the next power of two and adjacent pairs were added level by
/// level. Level l holds the sum of a complete run of 2^l partials whose right neighbour has not come yet.
#[derive(Clone)]
pub(crate) struct Tree {
    level: [f32; 48],
    n: u64,
}

impl Tree {
    pub(crate) const fn new() -> Self {
        Self { level: [0.0; 48], n: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, partial: f32) {
        let mut sum = partial;
        let waiting = self.n.trailing_ones() as usize;
        for left in &self.level[..waiting] {
            sum += left;
        }
        self.level[waiting] = sum;
        self.n += 1;
    }

    /// The sum of all partials; +0.0 if there were none. The tree is empty again.
    #[inline(always)]
    pub(crate) fn finish(&mut self) -> f32 {
        let n = std::mem::take(&mut self.n);
        let top = n.next_power_of_two().trailing_zeros() as usize;
        if n.is_power_of_two() {
            return self.level[top];
        }
        // The first sum without a right neighbour meets the padding; so does every later one up to the top.
        let mut sum = None;
        for l in 0..top {
            sum = match (n >> l & 1 == 1, sum) {
                (true, right) => Some(self.level[l] + right.unwrap_or(0.0)),
                (false, Some(left)) => Some(left + 0.0),
                (false, None) => None,
            };
        }
        sum.unwrap_or(0.0)
    }
}

/// Adjacent pairs of 32 lanes, level by level.
#[inline(always)]
pub(crate) fn lanes(lanes: &[f32; 32]) -> f32 {
    let mut sums = *lanes;
    for width in [16, 8, 4, 2, 1] {
        for i in 0..width {
            sums[i] = sums[2 * i] + sums[2 * i + 1];
        }
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, literally.
    fn naive(partials: &[f32]) -> f32 {
        let mut level = partials.to_vec();
        level.resize(partials.len().next_power_of_two(), 0.0);
        while level.len() > 1 {
            level = level.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        }
        level[0]
    }

    proptest! {
        #[test]
        fn streaming_is_the_definition(
            partials in prop::collection::vec(prop_oneof![Just(-0.0f32), Just(0.0), -1e3f32..1e3], 0..300),
        ) {
            let mut tree = Tree::new();
            for _ in 0..2 {
                partials.iter().for_each(|&p| tree.push(p));
                prop_assert_eq!(tree.finish().to_bits(), naive(&partials).to_bits());
            }
        }
    }

    #[test]
    fn a_lone_negative_zero_stays_and_a_padded_one_does_not() {
        let sum = |partials: &[f32]| {
            let mut tree = Tree::new();
            partials.iter().for_each(|&p| tree.push(p));
            tree.finish().to_bits()
        };
        assert_eq!(sum(&[-0.0]), (-0.0f32).to_bits());
        assert_eq!(sum(&[-0.0, -0.0]), (-0.0f32).to_bits());
        assert_eq!(sum(&[-0.0, -0.0, -0.0]), 0.0f32.to_bits());
    }

    #[test]
    fn lanes_add_adjacent_pairs() {
        let values: [f32; 32] = std::array::from_fn(|i| (i as f32 * 0.37).sin() * 1e4);
        assert_eq!(lanes(&values).to_bits(), naive(&values).to_bits());
    }
}
