//! Amounts of memory as people write them.

use std::fmt;
use std::str::FromStr;

/// `1.5GB`, `300MiB`, `20%`, `auto`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// What the machine has to spare.
    Auto,
    /// Bytes.
    Bytes(u64),
    /// A part of the whole, 0 to 1.
    Share(f64),
}

impl Amount {
    /// Bytes, where they do not depend on the machine. `whole` is what a share is of.
    pub fn of(self, whole: u64) -> Option<u64> {
        match self {
            Self::Auto => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Share(share) => Some((whole as f64 * share).round() as u64),
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str = "write 1.5GB, 300MiB, 20% or auto";
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, unit) = text.split_at(digits);
        let number: f64 =
            number.parse().map_err(|_| format!("{text:?} does not begin with a number; {FORMS}"))?;
        let unit = unit.trim();
        if unit == "%" {
            if number > 100.0 {
                return Err(format!("{text} is more than everything; {FORMS}"));
            }
            return Ok(Self::Share(number / 100.0));
        }
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kb" | "k" => 1e3,
            "mb" | "m" => 1e6,
            "gb" | "g" => 1e9,
            "tb" | "t" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(format!("{unit:?} is no unit of memory; {FORMS}")),
        };
        let bytes = number * factor;
        // Beyond 2^53 a float no longer holds every byte, and no machine has as much.
        if bytes > 9e15 {
            return Err(format!("{text} is more memory than any machine has; {FORMS}"));
        }
        Ok(Self::Bytes(bytes.round() as u64))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => f.write_str(&crate::output::bytes(*bytes)),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        let cases = [
            ("1.5GB", Amount::Bytes(1_500_000_000)),
            ("300MiB", Amount::Bytes(300 << 20)),
            ("300 mib", Amount::Bytes(300 << 20)),
            ("0", Amount::Bytes(0)),
            ("4096", Amount::Bytes(4096)),
            ("20%", Amount::Share(0.2)),
            ("0.5 %", Amount::Share(0.005)),
            ("AUTO", Amount::Auto),
            ("64g", Amount::Bytes(64_000_000_000)),
        ];
        for (text, amount) in cases {
            assert_eq!(text.parse(), Ok(amount), "{text}");
        }
        for text in ["", "GB", "-1GB", "1.5XB", "120%", "1e9", "1.2.3GB", "99999999999TB", "nan", "inf"] {
            let error = text.parse::<Amount>().unwrap_err();
            assert!(error.contains("write 1.5GB"), "{text}: {error}");
        }
    }

    #[test]
    fn a_share_is_of_the_whole() {
        assert_eq!(Amount::Share(0.2).of(1000), Some(200));
        assert_eq!(Amount::Bytes(7).of(1000), Some(7));
        assert_eq!(Amount::Auto.of(1000), None);
    }
}
