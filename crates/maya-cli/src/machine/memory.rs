//! Memory as the kernel counts it, and what of it this process may take.

use super::{Cgroup, System, cgroup};

/// Memory as the kernel counts it, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Physical memory.
    pub total: Option<u64>,
    /// What could be used without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// In the page cache now.
    pub cached: Option<u64>,
    /// Of that, files that live in memory only (tmpfs): they cannot be given back.
    pub in_memory_files: Option<u64>,
    /// Swap, used or not.
    pub swap_total: Option<u64>,
    /// Swap that is not used.
    pub swap_free: Option<u64>,
    /// The control-group limit that leaves this process the least room.
    pub cgroup: Option<Cgroup>,
    /// Bytes of swap that control groups allow; `None` without such a limit.
    pub swap_limit: Option<u64>,
}

impl Memory {
    /// Reads it now.
    pub fn read() -> Self {
        Self::of(&System::here())
    }

    /// That of a system.
    pub fn of(system: &System) -> Self {
        let info = system.text("proc/meminfo").unwrap_or_default();
        let field = |name| meminfo(&info, name);
        let (cached, in_memory_files) = (field("Cached"), field("Shmem"));
        // Kernels before 3.14 and some sandboxes do not say what is available: free, and file pages that can be dropped.
        let guess = || {
            let files = cached.unwrap_or(0).saturating_sub(in_memory_files.unwrap_or(0));
            Some(field("MemFree")?.saturating_add(files))
        };
        let groups = cgroup::limits(system);
        Self {
            total: field("MemTotal"),
            available: field("MemAvailable").or_else(guess),
            cached,
            in_memory_files,
            swap_total: field("SwapTotal"),
            swap_free: field("SwapFree"),
            cgroup: groups.memory,
            swap_limit: groups.swap,
        }
    }

    /// What a new allocation may take: the smaller of available memory and room under the limit.
    pub fn room(&self) -> Option<u64> {
        let group = self.cgroup.as_ref().map(Cgroup::room);
        match (self.available, group) {
            (Some(a), Some(g)) => Some(a.min(g)),
            (a, g) => a.or(g),
        }
    }

    /// Swap that this process could be moved to.
    pub fn swap(&self) -> u64 {
        self.swap_total.unwrap_or(0).min(self.swap_limit.unwrap_or(u64::MAX))
    }
}

/// A field of /proc/meminfo in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[test]
    fn meminfo_fields() {
        let text =
            "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   23000000 kB\nBad: x kB\nNone:\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(24_000_000 * 1024));
        assert_eq!(meminfo(text, "MemAvailable"), Some(23_000_000 * 1024));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo(text, "Bad"), None);
        assert_eq!(meminfo(text, "None"), None);
    }

    #[test]
    fn room_is_what_both_the_machine_and_the_group_leave() {
        let group = |limit: &'static str| {
            [
                ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapTotal: 8 kB\nSwapFree: 7 kB\n"),
                ("proc/self/cgroup", "0::/a\n"),
                ("sys/fs/cgroup/a/memory.max", limit),
                ("sys/fs/cgroup/a/memory.current", "1000\n"),
                ("sys/fs/cgroup/a/memory.swap.max", "5\n"),
            ]
        };
        for (limit, room) in [("max", 4096), ("3000", 2000), ("100000", 4096), ("500", 0)] {
            let (_folder, system) = system(&group(limit));
            let memory = Memory::of(&system);
            assert_eq!((memory.room(), memory.swap()), (Some(room), 5), "{limit}");
        }
    }

    #[test]
    fn an_old_kernel_and_no_kernel() {
        let (_folder, system) = system(&[("proc/meminfo", "MemFree: 10 kB\nCached: 6 kB\nShmem: 2 kB\n")]);
        assert_eq!(Memory::of(&system).room(), Some(14 * 1024));
        let (_folder, system) = super::super::system::made_up::system(&[]);
        let memory = Memory::of(&system);
        assert_eq!((memory.total, memory.room(), memory.swap()), (None, None, 0));
    }
}
