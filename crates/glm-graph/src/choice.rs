//! A total order of scores for every choice of the model: larger first, ties to the lower index, NaN last.

/// A key that orders scores: `rank_of(a) > rank_of(b)` where a > b, equal for -0 and +0, and least for NaN.
#[must_use]
pub(crate) fn rank_of(score: f32) -> i32 {
    if score.is_nan() {
        return i32::MIN;
    }
    // Adding +0 turns -0 into +0. Flipping the low bits of negative numbers orders them as integers.
    let bits = (score + 0.0).to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_numbers() {
        let ascending = [f32::NAN, f32::NEG_INFINITY, -3.0, -1e-30, 0.0, 1e-30, 0.5, 7.0, f32::INFINITY];
        assert!(ascending.is_sorted_by(|a, b| rank_of(*a) < rank_of(*b)));
        assert_eq!(rank_of(-0.0), rank_of(0.0));
        assert_eq!(rank_of(-f32::NAN), rank_of(f32::NAN));
    }
}
