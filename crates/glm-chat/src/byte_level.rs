//! The byte alphabet of byte-level BPE: each byte is written as one printable character.

/// The character that stands for `byte` in vocabulary and merges.
///
/// Printable Latin-1 bytes stand for themselves; the other 68 take U+0100 upwards in byte order, so that no token
/// contains a space or a control character.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0x00..=0x20 => shifted(u32::from(byte)),
        0x7F..=0xA0 => shifted(u32::from(byte) - 0x7F + 0x21),
        0xAD => shifted(0x43),
    }
}

fn shifted(offset: u32) -> char {
    char::from_u32(0x100 + offset).expect("U+0100 to U+0143 are characters")
}

/// The byte that `c` stands for, if it is one of the 256 characters of the alphabet.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_printable_character() {
        let mut seen = std::collections::BTreeSet::new();
        for byte in 0..=255u8 {
            let c = char_of(byte);
            assert!(!c.is_whitespace() && !c.is_control(), "{byte:#04x} became {c:?}");
            assert_eq!(byte_of(c), Some(byte));
            assert!(seen.insert(c));
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0)), ('Ġ', 'Ċ', 'Ā'));
        assert_eq!(byte_of(' '), None);
    }
}
