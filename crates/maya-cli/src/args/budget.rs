//! Amounts of memory on the command line.

use std::fmt;
use std::str::FromStr;

/// An amount of memory: bytes, or a part of the routed experts' bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Bytes.
    Bytes(u64),
    /// A part of all routed experts, 0 to 1.
    Share(f64),
}

impl Budget {
    /// Bytes; `whole` is what a share is of.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => (whole as f64 * share).round() as u64,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&crate::output::bytes(*bytes)),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

/// An amount, or what the machine has to spare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// What is free.
    Auto,
    /// So much.
    Budget(Budget),
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Budget).map_err(|why: String| why.replace(" or 20%", ", 20% or auto"))
    }
}

const UNITS: [(&str, f64); 10] = [
    ("", 1.0),
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];

/// A petabyte: more is a slip of the keyboard.
const MOST: f64 = 1e15;

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "it must be an amount such as 1.5GB, 300MiB or 20%".to_owned();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (text[..end].parse::<f64>().map_err(|_| wanted())?, text[end..].trim());
        if unit == "%" {
            return if number <= 100.0 {
                Ok(Self::Share(number / 100.0))
            } else {
                Err("it is more than 100%".to_owned())
            };
        }
        let scale = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)).ok_or_else(wanted)?.1;
        let bytes = number * scale;
        if bytes > MOST {
            Err("it is more than a petabyte".to_owned())
        } else {
            Ok(Self::Bytes(bytes.round() as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_an_amount_and_no_budget() {
        assert_eq!("AUTO".parse(), Ok(Amount::Auto));
        assert_eq!("20%".parse(), Ok(Amount::Budget(Budget::Share(0.2))));
        assert!("lots".parse::<Amount>().unwrap_err().contains("1.5GB, 300MiB, 20% or auto"));
        assert!("auto".parse::<Budget>().is_err());
        assert_eq!((Budget::Share(0.2).of(1000), Budget::Bytes(7).of(1000)), (200, 7));
    }

    #[test]
    fn amounts() {
        for (text, wanted) in [
            ("0", Budget::Bytes(0)),
            ("1.5GB", Budget::Bytes(1_500_000_000)),
            ("300MiB", Budget::Bytes(300 << 20)),
            ("2 gib", Budget::Bytes(2 << 30)),
            ("20%", Budget::Share(0.2)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for text in ["", "GB", "-1GB", "1.2.3GB", "1e3", "nan", "101%", "1XB", "9999999TB", "1GBGB"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
