//! Names for replies and tool calls, and seeds for requests without one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Unique ids: a counter under a keyed hash whose key is random for each process. Not a secret, only a name.
#[derive(Debug)]
pub(crate) struct Ids {
    key: RandomState,
    next: AtomicU64,
}

impl Ids {
    pub fn new() -> Self {
        Self { key: RandomState::new(), next: AtomicU64::new(0) }
    }

    /// `prefix` and 24 hexadecimal digits.
    pub fn name(&self, prefix: &str) -> String {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (self.key.hash_one((n, 0_u8)), self.key.hash_one((n, 1_u8)));
        format!("{prefix}{high:016x}{:08x}", low >> 32)
    }

    /// A seed for a request that names none: 53 bits, so that every reader of JSON gives it back as it is.
    pub fn seed(&self) -> u64 {
        self.key.hash_one((self.next.fetch_add(1, Ordering::Relaxed), 2_u8)) >> 11
    }
}

/// Seconds since 1970, for `created`.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::Ids;

    #[test]
    fn names_differ_and_keep_their_form() {
        let ids = Ids::new();
        let names: std::collections::HashSet<String> = (0..1000).map(|_| ids.name("call_")).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|n| n.len() == 29 && n.starts_with("call_")));
    }
}
