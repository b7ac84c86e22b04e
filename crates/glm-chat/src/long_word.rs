//! Words of any length in bounded memory.
//!
//! The BPE library takes some 80 bytes of memory a byte of a word, so that a word of 64 MiB (a run of letters) would take
//! gigabytes. A long word is encoded in overlapping windows instead, with the same ids.
//!
//! Why they are the same. Merging takes the pair of best rank, leftmost first. Call two tokens compatible if the encoding
//! of their joined bytes is the two tokens again. If all neighbours of a sequence are compatible, the sequence is the
//! encoding of its bytes: up to the first merge across one of its borders, what happens between the two tokens beside that
//! border is what happens when they are encoded alone, and there no merge crosses it. By the same argument neighbours in
//! an encoding are compatible. So two windows may be joined at a border that both have, if the tokens beside it are
//! compatible; where no such border is found, the whole word is encoded at once.

use crate::byte_level;
use crate::detokenizer::Pieces;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

/// Bytes of a window, unless tokens are very long.
const WINDOW: usize = 32 << 10;

/// Windows overlap by this part of their length.
const OVERLAP: usize = 8;

/// Borders that are tried in one overlap.
const BORDERS: usize = 64;

/// Appends the ids of one pre-token.
pub(crate) fn encode(bpe: &BPE, pieces: &Pieces, word: &[u8], ids: &mut Vec<u32>) {
    // A window is never itself a token (which `ignore_merges` would look up), and an overlap holds a few.
    let window = WINDOW.max(pieces.longest().saturating_mul(2 * OVERLAP));
    if word.len() > window.saturating_mul(2) && windows(bpe, pieces, word, window, ids).is_some() {
        return;
    }
    ids.extend(merged(bpe, word));
}

/// Appends the ids of `word`, which is longer than a window. `None` and no ids if two windows have no border in common.
fn windows(bpe: &BPE, pieces: &Pieces, word: &[u8], window: usize, ids: &mut Vec<u32>) -> Option<()> {
    let length = |id: u32| pieces.get(id).len();
    let before = ids.len();
    // The window that was read last: where its first token begins, and its ids.
    let (mut start, mut left) = (0, merged(bpe, &word[..window]));
    loop {
        let end = start + left.iter().map(|&id| length(id)).sum::<usize>();
        if end == word.len() {
            ids.append(&mut left);
            return Some(());
        }
        // The next one begins at the last border that is an overlap away from the end.
        let (mut from, mut kept) = (start, 0);
        while kept < left.len() && from + length(left[kept]) + window / OVERLAP <= end {
            from += length(left[kept]);
            kept += 1;
        }
        // The last window is longer, not shorter.
        let to = if word.len() - from < 2 * window { word.len() } else { from + window };
        let right = merged(bpe, &word[from..to]);
        let Some((of_left, of_right, at)) = join(bpe, pieces, (&left, kept), &right, (from, end)) else {
            ids.truncate(before);
            return None;
        };
        ids.extend(&left[..of_left]);
        start = at;
        left = right[of_right..].to_vec();
    }
}

/// A border that both windows have, with compatible tokens beside it: how many ids of the left one stand before it, how
/// many of the right one, and where it is. The right one begins at byte `from`, after `kept` ids of the left one, which
/// ends at byte `end`.
fn join(
    bpe: &BPE,
    pieces: &Pieces,
    (left, kept): (&[u32], usize),
    right: &[u32],
    (from, end): (usize, usize),
) -> Option<(usize, usize, usize)> {
    let length = |id: u32| pieces.get(id).len();
    let (mut l, mut left_at) = (kept, from);
    let (mut r, mut right_at) = (0, from);
    let mut tries = 0;
    while left_at < end && tries < BORDERS {
        if left_at == right_at
            && let Some(&before) = l.checked_sub(1).and_then(|i| left.get(i))
            && let Some(&after) = right.get(r)
        {
            if compatible(bpe, pieces, before, after) {
                return Some((l, r, left_at));
            }
            tries += 1;
        }
        if left_at <= right_at {
            left_at += length(*left.get(l)?);
            l += 1;
        } else {
            right_at += length(*right.get(r)?);
            r += 1;
        }
    }
    None
}

/// Whether the two tokens stay apart when their bytes are encoded together.
fn compatible(bpe: &BPE, pieces: &Pieces, left: u32, right: u32) -> bool {
    merged(bpe, &[pieces.get(left), pieces.get(right)].concat()) == [left, right]
}

fn merged(bpe: &BPE, word: &[u8]) -> Vec<u32> {
    let word: String = word.iter().map(|&byte| byte_level::char_of(byte)).collect();
    let tokens = bpe.tokenize(&word).expect("every byte is a token, so no unknown token is needed");
    tokens.into_iter().map(|token| token.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::models::bpe::Vocab;

    /// The 256 bytes and, for each pair of numbers, a token made of two earlier ones; merges ranked by `order`.
    fn vocabulary(pairs: &[(usize, usize)], order: &[usize]) -> (BPE, Pieces) {
        let mut tokens: Vec<String> = "abc".chars().map(String::from).collect();
        tokens.extend((0..=255).map(byte_level::char_of).filter(|c| !"abc".contains(*c)).map(String::from));
        let mut made: Vec<usize> = vec![0, 1, 2];
        let mut merges = Vec::new();
        for &(left, right) in pairs {
            let (left, right) =
                (tokens[made[left % made.len()]].clone(), tokens[made[right % made.len()]].clone());
            let token = format!("{left}{right}");
            if token.len() > 12 {
                continue;
            }
            if !tokens.contains(&token) {
                made.push(tokens.len());
                tokens.push(token);
            }
            if !merges.contains(&(left.clone(), right.clone())) {
                merges.push((left, right));
            }
        }
        let mut ranked: Vec<_> = merges.into_iter().zip(order.iter().cycle()).collect();
        ranked.sort_by_key(|(_, rank)| **rank);
        let merges = ranked.into_iter().map(|(merge, _)| merge).collect();
        let mut pieces = Pieces::with_capacity(tokens.len());
        tokens.iter().for_each(|token| pieces.push_encoded(token));
        let vocab: Vocab = tokens.into_iter().zip(0..).collect();
        let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(true).build().unwrap();
        (bpe, pieces)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn windows_give_the_ids_of_the_whole(
            pairs in prop::collection::vec((0usize..40, 0usize..40), 1..30),
            order in prop::collection::vec(0usize..30, 1..30),
            text in prop_oneof!["[abc]{120,400}", "a{120,400}", "(ab){60,200}", "(aab){60,150}c(aab){20,90}"],
        ) {
            let (bpe, pieces) = vocabulary(&pairs, &order);
            let whole = merged(&bpe, text.as_bytes());
            for window in [13, 16, 31, 48] {
                let mut ids = vec![7];
                match windows(&bpe, &pieces, text.as_bytes(), window, &mut ids) {
                    Some(()) => prop_assert_eq!(&ids[1..], &whole[..]),
                    None => prop_assert_eq!(ids, [7]),
                }
            }
        }
    }

    #[test]
    fn runs_and_mixtures_need_no_whole() {
        let pairs: Vec<(usize, usize)> = (0..60).map(|i| (i * 7 % 31, i * 5 % 17)).collect();
        let (bpe, pieces) = vocabulary(&pairs, &[3, 1, 2]);
        for unit in ["a", "ab", "abc", "aacb", "bcabcaab"] {
            let text = unit.repeat(3000 / unit.len());
            let mut ids = Vec::new();
            assert!(windows(&bpe, &pieces, text.as_bytes(), 200, &mut ids).is_some(), "{unit}");
            assert_eq!(ids, merged(&bpe, text.as_bytes()), "{unit}");
        }
    }
}
