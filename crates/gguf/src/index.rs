//! Finding an item by name in a list that keeps the file's order.

/// Positions of a list, sorted by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index(Box<[u32]>);

impl Index {
    /// Sorts `n` items by name. Err: the positions of two items of one name, first in the list first.
    pub(crate) fn new<'a>(n: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, (usize, usize)> {
        let n = u32::try_from(n).expect("counts are limited far below 2^32");
        let mut order: Box<[u32]> = (0..n).collect();
        order.sort_unstable_by(|&a, &b| name(a as usize).cmp(name(b as usize)).then(a.cmp(&b)));
        let same = order.windows(2).find(|w| name(w[0] as usize) == name(w[1] as usize));
        match same {
            Some(w) => Err((w[0] as usize, w[1] as usize)),
            None => Ok(Self(order)),
        }
    }

    /// Position of the item called `wanted`.
    pub(crate) fn find<'a>(&self, wanted: &str, name: impl Fn(usize) -> &'a str) -> Option<usize> {
        let at = self.0.binary_search_by(|&i| name(i as usize).cmp(wanted)).ok()?;
        Some(self.0[at] as usize)
    }
}
