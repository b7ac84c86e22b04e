//! How much of a layer's routing each of its experts takes.

/// The parts of a layer's routing that its experts take, the most used first. They add up to 1, or there are none: a
/// layer of which nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(Vec<f64>);

impl Shares {
    /// Nothing is known of the layer.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// From how often each expert was routed to, in any order. All zero means nothing is known.
    pub fn from_counts(counts: &[u32]) -> Self {
        Self::from_weights(counts.iter().map(|count| f64::from(*count)))
    }

    /// From a popularity profile: the place of each expert of the layer in one ranking over all layers, from 0. A rank
    /// weighs `1 / (1 + rank)`, as word and expert frequencies roughly do.
    pub fn from_ranks(ranks: &[u32]) -> Self {
        Self::from_weights(ranks.iter().map(|rank| 1.0 / (1.0 + f64::from(*rank))))
    }

    /// From any weights, in any order. Negative, infinite and undefined ones count as 0: a wrong share costs speed, and
    /// nothing is gained by refusing.
    pub fn from_weights(weights: impl IntoIterator<Item = f64>) -> Self {
        let mut shares: Vec<f64> = weights
            .into_iter()
            .map(|weight| if weight.is_finite() { weight.max(0.0) } else { 0.0 })
            .collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        // Scaled first, so that the sum of any finite weights is finite.
        let most = shares.first().copied().unwrap_or(0.0);
        if most <= 0.0 {
            return Self::unknown();
        }
        shares.iter_mut().for_each(|share| *share /= most);
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self(shares)
    }

    /// Every one of `experts` experts takes the same part.
    pub fn uniform(experts: u32) -> Self {
        Self(vec![1.0 / f64::from(experts.max(1)); experts as usize])
    }

    /// The mean of those of which something is known, rank by rank. Unknown if there are none.
    pub fn mean<'a>(layers: impl IntoIterator<Item = &'a Self>) -> Self {
        let known: Vec<&[f64]> =
            layers.into_iter().map(|s| s.0.as_slice()).filter(|s| !s.is_empty()).collect();
        let longest = known.iter().map(|shares| shares.len()).max().unwrap_or(0);
        let at = |rank: usize| known.iter().filter_map(|shares| shares.get(rank)).sum::<f64>();
        Self((0..longest).map(|rank| at(rank) / known.len() as f64).collect())
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// The part that the expert of this rank takes; 0 past the end.
    pub fn at(&self, rank: u32) -> f64 {
        self.0.get(rank as usize).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_sorted_parts_of_one() {
        let shares = Shares::from_counts(&[1, 0, 3]);
        assert_eq!((shares.at(0), shares.at(1), shares.at(2), shares.at(3)), (0.75, 0.25, 0.0, 0.0));
        assert!(!Shares::from_counts(&[0, 0]).is_known() && !Shares::from_counts(&[]).is_known());
    }

    #[test]
    fn ranks_weigh_less_the_later_they_come() {
        let shares = Shares::from_ranks(&[1, 0]);
        assert!((shares.at(0) - 2.0 / 3.0).abs() < 1e-12 && (shares.at(1) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn weights_that_are_not_numbers_count_as_nothing() {
        let shares = Shares::from_weights([f64::NAN, f64::INFINITY, -1.0, f64::MAX, f64::MAX]);
        assert_eq!((shares.at(0), shares.at(1), shares.at(2)), (0.5, 0.5, 0.0));
        assert!(!Shares::from_weights([f64::NAN, -1.0]).is_known());
    }

    #[test]
    fn the_mean_passes_over_what_is_unknown() {
        let mean =
            Shares::mean(&[Shares::from_counts(&[1]), Shares::unknown(), Shares::from_counts(&[1, 1])]);
        assert_eq!((mean.at(0), mean.at(1)), (0.75, 0.25));
        assert!(!Shares::mean(&[Shares::unknown()]).is_known());
    }
}
