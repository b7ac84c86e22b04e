//! Huge pages: the wish for them, and what came of it.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::host_map;

/// What became of the wish for huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// None were asked for, or there are no slots.
    NotAsked,
    /// The system took the advice. It gives huge pages where it finds free ones, not necessarily everywhere.
    Advised,
    /// The system took the advice, but is set never to give any (`transparent_hugepage/enabled`).
    SwitchedOff,
    /// The system did not take the advice.
    Refused(io::ErrorKind),
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("huge pages were not asked for"),
            Self::Advised => f.write_str("huge pages were asked for and are given where there are free ones"),
            Self::SwitchedOff => f.write_str("huge pages are switched off on this system"),
            Self::Refused(why) => write!(f, "the system refused huge pages: {why}"),
        }
    }
}

/// Asks for huge pages behind `memory`.
pub(crate) fn ask(memory: &mut [u8]) -> HugePages {
    match host_map::advise_huge(memory) {
        Err(error) => HugePages::Refused(error.kind()),
        // The advice is accepted there too; only the file tells. Unreadable means we do not know better.
        Ok(()) => match std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled") {
            Ok(text) if text.contains("[never]") => HugePages::SwitchedOff,
            _ => HugePages::Advised,
        },
    }
}

/// Bytes behind huge pages in the mappings that a range of addresses touches.
pub(crate) fn bytes_in(range: Range<usize>) -> Option<u64> {
    sum(&std::fs::read_to_string("/proc/self/smaps").ok()?, &range)
}

/// From the system's text: a line `from-to ...` for each mapping, and below it lines `Name: number kB`.
fn sum(text: &str, range: &Range<usize>) -> Option<u64> {
    let (mut touched, mut kib) = (false, None);
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("AnonHugePages:").filter(|_| touched) {
            let number: u64 = number.trim().strip_suffix(" kB")?.parse().ok()?;
            kib = Some(kib.unwrap_or(0) + number);
        } else if let Some(mapping) = addresses(line) {
            touched = mapping.start < range.end && range.start < mapping.end;
        }
    }
    kib?.checked_mul(1024)
}

fn addresses(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_the_range_count() {
        let text = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nAnonHugePages:      2048 kB\n\
                    3000-5000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:      4096 kB\n\
                    5000-6000 ---p 00000000 00:00 0\nAnonHugePages:         0 kB\n";
        assert_eq!(sum(text, &(0x1000..0x2000)), Some(2 << 20));
        assert_eq!(sum(text, &(0x2fff..0x3001)), Some(6 << 20));
        assert_eq!(sum(text, &(0x5000..0x5001)), Some(0));
        assert_eq!(sum(text, &(0x6000..0x7000)), None);
        assert_eq!(sum("1000-3000 rw-p\nAnonHugePages: many kB\n", &(0x1000..0x2000)), None);
    }
}
