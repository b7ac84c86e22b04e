//! The router (model-spec 5.3): which experts a row takes, and how much of each.

use quant_kernels::Cpu;

use crate::choice::rank_of;

/// Guards the division that normalises the weights.
const DENOMINATOR_EPS: f32 = 1e-20;

/// Chooses experts for one row.
///
/// `logits` (one an expert) becomes the sigmoid scores. The choice goes by score plus `bias`; the weights come from the
/// scores alone, divided by their sum (plus 1e-20, summed in rank order) and multiplied by `scale`. `ids` and `weights`
/// have one place a rank; **rank order** is descending choice, ties to the lower expert, and is the order in which
/// results are added.
///
/// # Panics
/// If there are fewer experts than ranks.
pub fn route(cpu: Cpu, logits: &mut [f32], bias: &[f32], scale: f32, ids: &mut [u32], weights: &mut [f32]) {
    cpu.sigmoid(logits);
    let scores = &*logits;
    let k = ids.len();
    assert!(k <= scores.len(), "{k} ranks of {} experts", scores.len());
    let choice = |expert: usize| rank_of(scores[expert] + bias[expert]);
    let mut filled = 0;
    for expert in 0..scores.len() {
        let mine = choice(expert);
        if filled == k && mine <= choice(ids[k - 1] as usize) {
            continue;
        }
        // Strictly larger goes before: an equal, earlier expert keeps its rank.
        let place = ids[..filled].iter().position(|other| mine > choice(*other as usize)).unwrap_or(filled);
        filled = (filled + 1).min(k);
        ids.copy_within(place..filled - 1, place + 1);
        ids[place] = expert as u32;
    }
    let mut sum = 0.0;
    for (weight, id) in weights.iter_mut().zip(&*ids) {
        *weight = scores[*id as usize];
        sum += *weight;
    }
    sum += DENOMINATOR_EPS;
    weights.iter_mut().for_each(|weight| *weight = *weight / sum * scale);
}

#[cfg(test)]
#[allow(clippy::excessive_precision)] // The specification's digits.
mod tests {
    use super::*;

    fn run(logits: &[f32], bias: &[f32], scale: f32, k: usize) -> (Vec<u32>, Vec<f32>) {
        let (mut ids, mut weights) = (vec![0; k], vec![0.0; k]);
        route(Cpu::scalar(), &mut logits.to_vec(), bias, scale, &mut ids, &mut weights);
        (ids, weights)
    }

    /// Appendix A.5; traps 48, 49, 52.
    #[test]
    fn appendix_a5_is_met() {
        let logits = [0.2, -1.0, 3.0, 0.5, 2.0, -0.3];
        let (ids, weights) = run(&logits, &[0.0, 0.9, -0.5, 0.0, 0.0, 0.4], 2.5, 3);
        let mut by_id: Vec<_> = ids.iter().zip(&weights).collect();
        by_id.sort_by_key(|(id, _)| **id);
        for ((id, weight), (expected_id, expected)) in
            by_id.into_iter().zip([(1, 0.426_810_94), (4, 1.397_827_9), (5, 0.675_361_15)])
        {
            assert_eq!(*id, expected_id);
            assert!((weight - expected).abs() < 1e-6);
        }
        assert!((weights.iter().sum::<f32>() - 2.5).abs() < 1e-6);
    }

    /// Ranks descend by choice: expert 1 (0.269 + 0.9) before 4 (0.881) before 5 (0.426 + 0.4).
    #[test]
    fn rank_order_is_descending_choice() {
        let logits = [0.2, -1.0, 3.0, 0.5, 2.0, -0.3];
        assert_eq!(run(&logits, &[0.0, 0.9, -0.5, 0.0, 0.0, 0.4], 2.5, 3).0, [1, 4, 5]);
        assert_eq!(run(&[1.0, 4.0, 2.0, 3.0], &[0.0; 4], 1.0, 3).0, [1, 3, 2]);
    }

    #[test]
    fn ties_go_to_the_lower_expert() {
        assert_eq!(run(&[0.5; 6], &[0.0; 6], 1.0, 4).0, [0, 1, 2, 3]);
        assert_eq!(run(&[0.0, 1.0, 1.0, 0.0, 1.0], &[0.0; 5], 1.0, 4).0, [1, 2, 4, 0]);
    }

    /// Trap 53: a difference of 1e-4 between logits decides.
    #[test]
    fn near_ties_are_seen() {
        assert_eq!(run(&[0.3, 0.3001, -2.0], &[0.0; 3], 1.0, 1).0, [1]);
        assert_eq!(run(&[0.3001, 0.3, -2.0], &[0.0; 3], 1.0, 1).0, [0]);
    }

    #[test]
    fn a_nan_logit_still_gives_valid_ids() {
        let (ids, _) = run(&[f32::NAN; 5], &[0.0; 5], 1.0, 3);
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(run(&[f32::NAN, 1.0, f32::NAN], &[0.0; 3], 1.0, 2).0, [1, 0]);
    }
}
