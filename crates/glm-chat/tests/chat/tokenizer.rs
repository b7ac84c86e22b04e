//! The tokenizer against golden ids, hostile words and hostile vocabularies.

use crate::vocabulary::{source, tiny_a};
use glm_chat::{ParseSpecial, Tokenizer, TokenizerError, VocabSource};
use proptest::prelude::*;
use serde_json::Value;
use std::time::{Duration, Instant};

fn strings() -> Option<(Vec<String>, Vec<Vec<u32>>)> {
    let path = golden::file("tokenizer/strings.json")?;
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let strings =
        json["strings"].as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect();
    let golden = &json["ids"]["tiny-a"];
    assert_eq!(golden["hf"], golden["llama_cpp"]);
    let ids = serde_json::from_value(golden["hf"].clone()).unwrap();
    Some((strings, ids))
}

#[test]
fn golden_strings_are_exact() {
    let (Some((strings, golden)), Some(tokenizer)) = (strings(), tiny_a()) else { return };
    assert_eq!(strings.len(), 200);
    for (text, expected) in strings.iter().zip(&golden) {
        let ids = tokenizer.encode(text, ParseSpecial::Yes);
        assert_eq!(&ids, expected, "{text:?}");
        assert_eq!(&tokenizer.decode(&ids), text);
        let plain = tokenizer.encode(text, ParseSpecial::No);
        assert!(!plain.iter().any(|&id| tokenizer.is_special(id)), "{text:?}");
        assert_eq!(&tokenizer.decode(&plain), text);
    }
}

#[test]
fn a_word_that_equals_a_special_token_is_a_word() {
    // "/nothink" is one pre-token, so a lookup of the whole pre-token would find the control token.
    let Some(tokenizer) = tiny_a() else { return };
    let special = tokenizer.special("/nothink").unwrap();
    assert_eq!(tokenizer.encode("/nothink", ParseSpecial::Yes), [special]);
    assert!(!tokenizer.encode("/nothink", ParseSpecial::No).contains(&special));
}

#[test]
fn nothing_is_put_before_or_after() {
    let Some(tokenizer) = tiny_a() else { return };
    assert!(tokenizer.encode("", ParseSpecial::Yes).is_empty());
    assert_eq!(tokenizer.encode("a", ParseSpecial::Yes).len(), 1);
}

#[test]
fn stop_tokens_are_the_three_turn_ends() {
    let Some(mut source) = source("tiny-a") else { return };
    source.eot = None;
    source.eom = None;
    let tokenizer = Tokenizer::new(source).unwrap();
    let expected: Vec<u32> = ["<|endoftext|>", "<|user|>", "<|observation|>"]
        .iter()
        .map(|t| tokenizer.special(t).unwrap())
        .collect();
    assert_eq!(tokenizer.stop_tokens(), expected);
    assert!(tokenizer.stop_tokens().iter().all(|&id| tokenizer.is_special(id)));
}

#[test]
fn unused_rows_have_no_text() {
    let Some(tokenizer) = tiny_a() else { return };
    for &id in tokenizer.unused_tokens() {
        assert_eq!(tokenizer.decode(&[id]), "");
        assert!(!tokenizer.is_special(id));
    }
    assert_eq!(tokenizer.decode(&[u32::MAX, tokenizer.vocab_size() as u32]), "");
}

#[test]
fn words_of_a_megabyte_take_seconds_at_most() {
    let Some(tokenizer) = tiny_a() else { return };
    const MEGABYTE: usize = 1 << 20;
    let start = Instant::now();
    for unit in ["a", "7", " ", "字", "\n", "!", "ab", "e\u{301}", " \n", "'s", "\0", "<", "<|user|", "é"] {
        let text = unit.repeat(MEGABYTE / unit.len());
        let ids = tokenizer.encode(&text, ParseSpecial::Yes);
        assert_eq!(tokenizer.decode(&ids), text, "{unit:?}");
    }
    // One second a megabyte is ten times what it takes with optimisation and far below anything quadratic.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_long_word_is_merged_as_a_short_one() {
    // A run of 2^k equal letters merges evenly, so the ids of a long run repeat those of a shorter one: also of one that is
    // encoded in windows.
    let Some(tokenizer) = tiny_a() else { return };
    let short = tokenizer.encode(&"a".repeat(1 << 10), ParseSpecial::No);
    for doubled in [6, 10] {
        let long = tokenizer.encode(&"a".repeat(1 << (10 + doubled)), ParseSpecial::No);
        assert_eq!(long.len(), short.len() << doubled);
        assert!(long.chunks(short.len()).all(|chunk| chunk == short));
    }
}

/// A vocabulary of the real size: 154,880 tokens and 321,649 merges.
fn real_size() -> VocabSource {
    let base: Vec<String> = (0..=255u8).map(|b| char_of(b).to_string()).collect();
    let mut tokens = base.clone();
    let mut merges = Vec::new();
    // Pairs of byte characters, then pairs with one more character until there are enough tokens.
    let mut seen: std::collections::HashSet<String> = tokens.iter().cloned().collect();
    let mut grow = 0;
    while tokens.len() < 154_820 {
        let left = tokens[grow].clone();
        for right in &base {
            let joined = format!("{left}{right}");
            merges.push(format!("{left} {right}"));
            if seen.insert(joined.clone()) {
                tokens.push(joined);
            }
            if tokens.len() == 154_820 {
                break;
            }
        }
        grow += 1;
    }
    // Tokens have several merges: the same result from another cut.
    let longer: Vec<String> = tokens.iter().filter(|t| t.chars().count() == 3).cloned().collect();
    for token in longer.iter().cycle().take(321_649 - merges.len()) {
        let cut = token.char_indices().nth(1).unwrap().0;
        merges.push(format!("{} {}", &token[..cut], &token[cut..]));
    }
    let mut token_types = vec![1; tokens.len()];
    for special in ["<|endoftext|>", "<|user|>", "<|observation|>", "<think>", "</think>"] {
        tokens.push(special.to_owned());
        token_types.push(3);
    }
    while tokens.len() < 154_880 {
        tokens.push(format!("[PAD{}]", tokens.len()));
        token_types.push(5);
    }
    VocabSource {
        model: "gpt2".into(),
        pre: "glm4".into(),
        tokens,
        token_types,
        merges,
        ..VocabSource::default()
    }
}

fn char_of(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        char::from(byte)
    } else {
        let before = (0..byte).filter(|&b| !printable(b)).count();
        char::from_u32(0x100 + before as u32).unwrap()
    }
}

#[test]
fn a_vocabulary_of_the_real_size_is_ready_quickly() {
    let source = real_size();
    assert_eq!((source.tokens.len(), source.merges.len()), (154_880, 321_649));
    let start = Instant::now();
    let tokenizer = Tokenizer::new(source).unwrap();
    let built = start.elapsed();
    let text = "The quick brown fox jumps over 13 lazy dogs; 日本語テキスト, naïve café!\n".repeat(1300);
    let start = Instant::now();
    let ids = tokenizer.encode(&text, ParseSpecial::Yes);
    let encoded = start.elapsed();
    eprintln!(
        "vocabulary of 154,880 tokens and 321,649 merges in {built:?}; {} bytes in {encoded:?}",
        text.len()
    );
    assert_eq!(tokenizer.decode(&ids), text);
    // Bounds against something quadratic, with room for a busy machine.
    assert!(built < Duration::from_secs(15), "{built:?}");
    assert!(encoded < Duration::from_secs(10), "{encoded:?}");
}

#[test]
fn broken_vocabularies_are_refused_by_name() {
    let Some(good) = source("tiny-a") else { return };
    let refused = |change: &dyn Fn(&mut VocabSource)| {
        let mut source = good.clone();
        change(&mut source);
        Tokenizer::new(source).map(|_| ()).unwrap_err().to_string()
    };
    for (change, words) in [
        (
            &(|s: &mut VocabSource| s.model = "llama".into()) as &dyn Fn(&mut VocabSource),
            "tokenizer.ggml.model is \"llama\"",
        ),
        (&|s| s.pre = "default".into(), "tokenizer.ggml.pre is \"default\""),
        (&|s| s.tokens.clear(), "tokenizer.ggml.tokens has 0 entries"),
        (&|s| s.token_types.truncate(3), "tokenizer.ggml.token_type has 3 entries for 512 tokens"),
        (&|s| s.tokens[300] = s.tokens[299].clone(), "twice, as 299 and as 300"),
        (&|s| s.tokens[64] = "never".into(), "no token for the byte 0x61"),
        (&|s| s.merges[5] = "ab".into(), "tokenizer.ggml.merges[5] is \"ab\": two tokens and a space"),
        (&|s| s.merges[5] = "zzz a".into(), "a part of it is not a token"),
        (&|s| s.merges[5] = "a b c".into(), "tokenizer.ggml.merges[5]"),
        (&|s| s.merges[5] = "! \u{e9}".into(), "its result is not a token"),
        (
            &|s| s.merges[5] = format!("{0} {0}", "\u{120}\u{120}\u{120}\u{120}\u{120}\u{120}\u{120}"),
            "its result is not a token",
        ),
        (&|s| s.eot = Some(512), "tokenizer.ggml.eot_token_id is 512, but there are 512 tokens"),
    ] {
        let message = refused(change);
        assert!(message.contains(words), "{message}");
    }
    assert!(matches!(
        Tokenizer::new(VocabSource { pre: "qwen2".into(), ..good.clone() }),
        Err(TokenizerError::Pre(pre)) if pre == "qwen2"
    ));
    for pre in ["glm5", "chatglm-bpe"] {
        Tokenizer::new(VocabSource { pre: pre.into(), ..good.clone() }).unwrap();
    }
}

/// The bytes alone.
fn bytes_only() -> VocabSource {
    let tokens: Vec<String> = (0..=255u8).map(|b| char_of(b).to_string()).collect();
    let token_types = vec![1; tokens.len()];
    VocabSource { model: "gpt2".into(), pre: "glm4".into(), tokens, token_types, ..VocabSource::default() }
}

#[test]
fn special_tokens_beyond_reason_are_refused_by_id() {
    let with = |specials: Vec<String>| {
        let mut source = bytes_only();
        source.token_types.extend(vec![3; specials.len()]);
        source.tokens.extend(specials);
        Tokenizer::new(source)
    };
    assert!(with(vec!["x".repeat(512)]).is_ok());
    let message = with(vec!["<a>".into(), "x".repeat(513)]).unwrap_err().to_string();
    assert_eq!(message, "tokenizer.ggml.tokens[257] is a special token of 513 bytes; at most 512 are taken");
    // One of a megabyte made a table of a terabyte.
    assert!(with(vec!["<|long|>".repeat(1 << 17)]).is_err());
    let names = |count: usize, bytes: usize| (0..count).map(|i| format!("<{i:0>0$}>", bytes - 2)).collect();
    assert!(with(names(4096, 64)).is_ok());
    let message = with(names(4097, 10)).unwrap_err().to_string();
    assert!(message.starts_with("tokenizer.ggml.tokens[4352] is special token number 4097"), "{message}");
    let message = with(names(513, 512)).unwrap_err().to_string();
    assert!(message.contains("[768] is special token number 513, and they have 262656 bytes"), "{message}");
}

#[test]
fn the_longest_token_bounds_how_few_a_text_has() {
    let mut source = bytes_only();
    source.tokens.push("<|special|>".into());
    source.token_types.push(3);
    let tokenizer = Tokenizer::new(source).unwrap();
    assert_eq!([0, 1, 11, 12, 1100].map(|n| tokenizer.fewest_tokens(n)), [0, 1, 1, 2, 100]);
}

#[test]
fn a5_a_character_over_two_tokens_is_held_back() {
    let Some(tokenizer) = tiny_a() else { return };
    let ids = tokenizer.encode("😀", ParseSpecial::No);
    assert!(ids.len() > 1, "the fixture vocabulary has no token for it");
    let mut decoder = tokenizer.detokenizer();
    let (last, first) = ids.split_last().unwrap();
    for &id in first {
        assert_eq!(decoder.push(id), "");
    }
    assert_eq!(decoder.push(*last), "😀");
    assert_eq!(decoder.finish(), "");
    // Cut in the middle: one mark, and only at the end.
    for &id in first {
        assert_eq!(decoder.push(id), "");
    }
    assert_eq!(decoder.finish(), "\u{FFFD}");
    assert_eq!(decoder.finish(), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn text_survives(text in "\\PC{0,60}", lines in "[a-c \\n\\t😀é<|user>/nothik]{0,60}") {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        for text in [text, lines] {
            for special in [ParseSpecial::Yes, ParseSpecial::No] {
                prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, special)), text.as_str());
            }
        }
    }

    #[test]
    fn a_stream_decodes_as_the_whole(ids in prop::collection::vec(0u32..520, 0..60)) {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        let mut decoder = tokenizer.detokenizer();
        let mut streamed: String = ids.iter().map(|&id| decoder.push(id)).collect();
        streamed.push_str(&decoder.finish());
        prop_assert_eq!(streamed, tokenizer.decode(&ids));
    }

    #[test]
    fn text_between_special_tokens_is_one_run(left in "[a-d 1!\\n]{0,20}", right in "[a-d 1!\\n]{0,20}") {
        let Some(tokenizer) = tiny_a() else { return Ok(()) };
        let user = tokenizer.special("<|user|>").unwrap();
        let mut expected = tokenizer.encode(&left, ParseSpecial::No);
        expected.push(user);
        expected.extend(tokenizer.encode(&right, ParseSpecial::No));
        prop_assert_eq!(tokenizer.encode(&format!("{left}<|user|>{right}"), ParseSpecial::Yes), expected);
    }
}
