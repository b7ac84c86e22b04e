//! Memory to be registered: cut into pieces that the kernel takes, and found again.

use crate::error::WhyUnregistered;

/// Largest piece that registers: the kernel refuses more in one with `EFAULT`.
const MAX_BUFFER: usize = 1 << 30;
/// Most pieces that register.
const MAX_BUFFERS: usize = 1 << 14;

/// Pieces of memory, numbered.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Address and length.
    pieces: Vec<(usize, usize)>,
    /// Address, length and number, by rising address.
    sorted: Vec<(usize, usize, u16)>,
}

impl Buffers {
    /// Cuts `chunks` (address, length).
    pub fn cut(chunks: &[(usize, usize)]) -> Result<Self, WhyUnregistered> {
        let mut pieces = Vec::new();
        for (address, len) in chunks {
            address.checked_add(*len).ok_or(WhyUnregistered::Wraps)?;
            let count = pieces.len().saturating_add(len.div_ceil(MAX_BUFFER));
            if count > MAX_BUFFERS {
                return Err(WhyUnregistered::TooMany { pieces: count, max: MAX_BUFFERS });
            }
            let froms = (0..*len).step_by(MAX_BUFFER);
            pieces.extend(froms.map(|from| (address + from, MAX_BUFFER.min(len - from))));
        }
        if pieces.is_empty() {
            return Err(WhyUnregistered::NotAsked);
        }
        let mut sorted: Vec<_> = pieces.iter().zip(0..).map(|((a, len), i)| (*a, *len, i)).collect();
        sorted.sort_unstable();
        Ok(Self { pieces, sorted })
    }

    /// Address and length of each, by its number.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + '_ {
        self.pieces.iter().copied()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, len)| *len as u64).sum()
    }

    /// The number of the one that the whole of the range lies in.
    pub fn find(&self, address: usize, len: usize) -> Option<u16> {
        let after = self.sorted.partition_point(|b| b.0 <= address);
        let (start, length, number) = *self.sorted.get(after.checked_sub(1)?)?;
        (address.checked_add(len)? <= start + length).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_at_a_gibibyte_and_found() {
        const G: usize = 1 << 30;
        let buffers = Buffers::cut(&[(8 * G, 2 * G + 4096), (4096, 100), (77, 0)]).unwrap();
        let expected = [(8 * G, G), (9 * G, G), (10 * G, 4096), (4096, 100)];
        assert_eq!(buffers.pieces().collect::<Vec<_>>(), expected);
        assert_eq!(buffers.bytes(), 2 * G as u64 + 4196);
        assert_eq!(buffers.find(4096, 100), Some(3));
        assert_eq!(buffers.find(9 * G - 1, 1), Some(0));
        assert_eq!(buffers.find(10 * G, 4096), Some(2));
        // Over a cut, over an end, before, and behind.
        for (address, len) in [(9 * G - 1, 2), (4096, 101), (4095, 1), (11 * G, 1), (usize::MAX, 2)] {
            assert_eq!(buffers.find(address, len), None);
        }
    }

    #[test]
    fn what_cannot_be_registered_is_said() {
        assert_eq!(Buffers::cut(&[]).unwrap_err(), WhyUnregistered::NotAsked);
        assert_eq!(Buffers::cut(&[(usize::MAX, 2)]).unwrap_err(), WhyUnregistered::Wraps);
        let many = Buffers::cut(&[(0, usize::MAX)]).unwrap_err();
        assert!(matches!(many, WhyUnregistered::TooMany { .. }));
    }
}
