//! The memory that control groups leave to this process, in both layouts, nested, and seen from inside a container.

use std::fs;
use std::path::{Path, PathBuf};

use super::System;

/// A control-group memory limit, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The folder whose limit it is.
    pub path: PathBuf,
    /// The limit.
    pub limit: u64,
    /// Charged now, without what can be given back (pages of files).
    pub used: u64,
}

impl Cgroup {
    /// What is left under it.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// What the groups of this process allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The limit that leaves the least room.
    pub memory: Option<Cgroup>,
    /// Bytes of swap that may be used beyond it; `None` without a limit on swap.
    pub swap: Option<u64>,
}

/// The old layout says "no limit" with a number near 2^63.
const UNLIMITED: u64 = 1 << 60;

/// Where the memory controller of a layout is mounted: what of the hierarchy is shown there, and where.
struct Mounted {
    shown: PathBuf,
    at: PathBuf,
}

/// Looks at every group from the process's own up to the topmost that can be seen.
pub fn limits(system: &System) -> Limits {
    let mounts = system.text("proc/self/mountinfo").unwrap_or_default();
    let own = system.text("proc/self/cgroup").unwrap_or_default();
    let mut found = Limits::default();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let layout = match controllers {
            "" => Layout::Unified,
            list if list.split(',').any(|c| c == "memory") => Layout::Old,
            _ => continue,
        };
        let mounted = layout.mounted(&mounts);
        // A container sees its own group as the top, whatever the path says: `..` is outside of what is shown.
        let below = Path::new(path).strip_prefix(&mounted.shown).unwrap_or(Path::new(""));
        let below = if below.components().any(|c| c.as_os_str() == "..") { Path::new("") } else { below };
        let top = system.path(&mounted.at);
        let leaf = top.join(below.strip_prefix("/").unwrap_or(below));
        for folder in leaf.ancestors().take_while(|folder| folder.starts_with(&top)) {
            found.take(layout.limit(folder));
            let swap = layout.swap(folder);
            found.swap = [found.swap, swap].into_iter().flatten().min();
        }
    }
    found
}

impl Limits {
    /// Keeps the group that leaves less: a wide limit above that is nearly used up binds before a narrow one below.
    fn take(&mut self, group: Option<Cgroup>) {
        let Some(group) = group else { return };
        let less = |best: &Cgroup| (group.room(), group.limit) < (best.room(), best.limit);
        if self.memory.as_ref().is_none_or(less) {
            self.memory = Some(group);
        }
    }
}

#[derive(Clone, Copy)]
enum Layout {
    Unified,
    Old,
}

impl Layout {
    /// From /proc/self/mountinfo; where it does not say, the usual place.
    fn mounted(self, mountinfo: &str) -> Mounted {
        let find = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split(' ');
            let (kind, _, options) = (right.next()?, right.next()?, right.next()?);
            let is_it = match self {
                Self::Unified => kind == "cgroup2",
                Self::Old => kind == "cgroup" && options.split(',').any(|o| o == "memory"),
            };
            let mut left = left.split(' ').skip(3);
            let (shown, at) = (left.next()?, left.next()?);
            is_it.then(|| Mounted { shown: super::mount::unescaped(shown), at: super::mount::unescaped(at) })
        };
        mountinfo.lines().find_map(find).unwrap_or_else(|| {
            let at = match self {
                Self::Unified => "/sys/fs/cgroup",
                Self::Old => "/sys/fs/cgroup/memory",
            };
            Mounted { shown: "/".into(), at: at.into() }
        })
    }

    fn limit(self, folder: &Path) -> Option<Cgroup> {
        // "max" is no number.
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let counted = |name: &str| {
            stat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
        };
        let (limits, used, file_pages) = match self {
            // Above `high` a group is slowed down until it has given memory back: as good as a limit for us.
            Self::Unified => (
                [number("memory.max"), number("memory.high")],
                number("memory.current"),
                ["inactive_file", "active_file"].map(counted),
            ),
            // Usage counts the groups below; the figures that do so too begin with `total_`. The limit of groups above
            // that cannot be seen is told as well.
            Self::Old => (
                [number("memory.limit_in_bytes"), counted("hierarchical_memory_limit")],
                number("memory.usage_in_bytes"),
                ["inactive_file", "active_file"]
                    .map(|name| counted(&format!("total_{name}")).or_else(|| counted(name))),
            ),
        };
        let limit = limits.into_iter().flatten().filter(|&n| n < UNLIMITED).min()?;
        // Pages of files, mapped weights among them, can be dropped; those of a tmpfs are counted elsewhere and cannot.
        let reclaimable = file_pages.into_iter().flatten().fold(0, u64::saturating_add);
        let used = used.unwrap_or(0).saturating_sub(reclaimable);
        Some(Cgroup { path: folder.to_owned(), limit, used })
    }

    fn swap(self, folder: &Path) -> Option<u64> {
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        match self {
            Self::Unified => number("memory.swap.max"),
            Self::Old => {
                let both = number("memory.memsw.limit_in_bytes").filter(|&n| n < UNLIMITED)?;
                Some(both.saturating_sub(number("memory.limit_in_bytes")?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[track_caller]
    fn check(files: &[(&str, &str)], limit: Option<(&str, u64, u64)>, swap: Option<u64>) {
        let (folder, system) = system(files);
        let found = limits(&system);
        let wanted = limit.map(|(path, limit, used)| Cgroup { path: folder.path().join(path), limit, used });
        assert_eq!(found, Limits { memory: wanted, swap });
    }

    const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

    #[test]
    fn no_files_and_no_limits() {
        check(&[], None, None);
        check(&[("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", V2)], None, None);
        check(&[("proc/self/cgroup", "nonsense\n0:\n\n"), ("proc/self/mountinfo", "x - y\n")], None, None);
        let max = "max\n";
        check(&[("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", max)], None, None);
        let own = ("proc/self/cgroup", "4:memory:/a\n");
        check(&[own, ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n")], None, None);
    }

    #[test]
    fn file_pages_are_not_in_use_and_those_of_a_tmpfs_are() {
        let stat = "anon 1\nshmem 200\ninactive_file 300\nactive_file 50\n";
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "700\n"),
            ("sys/fs/cgroup/a/memory.stat", stat),
            ("sys/fs/cgroup/a/memory.swap.max", "0\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ];
        check(&files, Some(("sys/fs/cgroup/a", 1000, 350)), Some(0));
    }

    #[test]
    fn the_limit_with_the_least_room_wins() {
        let files = |used: &'static str| {
            [
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/memory.max", "1000\n"),
                ("sys/fs/cgroup/a/memory.current", used),
                ("sys/fs/cgroup/a/b/memory.max", "500\n"),
                ("sys/fs/cgroup/a/b/memory.high", "400\n"),
                ("sys/fs/cgroup/a/b/memory.current", "100\n"),
            ]
        };
        check(&files("100\n"), Some(("sys/fs/cgroup/a/b", 400, 100)), None);
        check(&files("950\n"), Some(("sys/fs/cgroup/a", 1000, 950)), None);
    }

    #[test]
    fn the_old_layout_counts_the_groups_below_and_hears_of_those_above() {
        let stat =
            "inactive_file 1\nhierarchical_memory_limit 800\ntotal_inactive_file 100\ntotal_active_file 20\n";
        let files = [
            ("proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes", "1500\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "600\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", stat),
        ];
        check(&files, Some(("sys/fs/cgroup/memory/a", 800, 480)), Some(500));
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_top() {
        // The path names the host's folders, and what is mounted begins at the container's group.
        let mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [
            ("proc/self/cgroup", "4:memory:/docker/abc/inner\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "700\n"),
        ];
        check(&files, Some(("sys/fs/cgroup/memory/inner", 700, 0)), None);
        // A namespace that does not contain the process's group.
        let files = [
            ("proc/self/cgroup", "0::/../../other\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "900\n"),
        ];
        check(&files, Some(("sys/fs/cgroup", 900, 0)), None);
    }
}
