//! What this machine has: processor, memory, control-group limit, the drive below a path. Linux files only; elsewhere
//! the answers are `None`.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory as the kernel counts it, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Physical memory.
    pub total: Option<u64>,
    /// What could be used without swapping (`MemAvailable`).
    pub available: Option<u64>,
    /// In the page cache now.
    pub cached: Option<u64>,
    /// The tightest control-group limit above this process.
    pub cgroup: Option<Cgroup>,
}

/// A control-group memory limit, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The folder whose limit it is.
    pub path: PathBuf,
    /// The limit.
    pub limit: u64,
    /// Charged now, without what can be given back (inactive file pages).
    pub used: u64,
}

impl Memory {
    /// Reads it now.
    pub fn read() -> Self {
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            total: meminfo(&info, "MemTotal"),
            available: meminfo(&info, "MemAvailable"),
            cached: meminfo(&info, "Cached"),
            cgroup: cgroup(
                Path::new("/sys/fs/cgroup"),
                &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
            ),
        }
    }

    /// What a new allocation may take: the smaller of available memory and room under the limit.
    pub fn room(&self) -> Option<u64> {
        let group = self.cgroup.as_ref().map(|g| g.limit.saturating_sub(g.used));
        match (self.available, group) {
            (Some(a), Some(g)) => Some(a.min(g)),
            (a, g) => a.or(g),
        }
    }
}

/// A field of /proc/meminfo in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The tightest limit on the way up from the process's own group; `None` without any. Understands both layouts.
fn cgroup(root: &Path, own: &str) -> Option<Cgroup> {
    let mut best: Option<Cgroup> = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (base, limit_file, used_file) = if controllers.is_empty() {
            (root.to_owned(), "memory.max", "memory.current")
        } else if controllers.split(',').any(|c| c == "memory") {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let leaf = base.join(path.trim_start_matches('/'));
        for folder in leaf.ancestors().take_while(|f| f.starts_with(&base)) {
            let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
            // "max" does not parse; the old layout says no limit with a number near 2^63.
            let Some(limit) = number(limit_file).filter(|&n| n < 1 << 60) else { continue };
            if best.as_ref().is_some_and(|b| b.limit <= limit) {
                continue;
            }
            let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let inactive =
                stat.lines().find_map(|l| l.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
            let used = number(used_file).unwrap_or(0).saturating_sub(inactive.unwrap_or(0));
            best = Some(Cgroup { path: folder.to_owned(), limit, used });
        }
    }
    best
}

/// The processor's name and how many it has for us.
pub struct Processor {
    /// As /proc/cpuinfo calls it.
    pub name: Option<String>,
    /// Threads that this process may run at once.
    pub threads: usize,
    /// Feature words of /proc/cpuinfo.
    pub features: Vec<String>,
}

impl Processor {
    /// Reads it now.
    pub fn read() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            info.lines().find_map(|l| {
                let (key, value) = l.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        Self {
            name: field("model name"),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            features: field("flags").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// The filesystem below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its mount point.
    pub mount: PathBuf,
    /// Its type: ext4, tmpfs, overlay.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Whether the block device below is a spinning disk; `None` where there is none to ask.
    pub rotational: Option<bool>,
}

/// The drive that holds `path`, which exists.
pub fn drive(path: &Path) -> Option<Drive> {
    let path = fs::canonicalize(path).ok()?;
    drive_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

fn drive_in(mountinfo: &str, path: &Path) -> Option<Drive> {
    let mut best: Option<(usize, Drive)> = None;
    for line in mountinfo.lines() {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (Some(device), Some(mount), Some(kind), Some(source)) =
            (left.get(2), left.get(4), right.first(), right.get(1))
        else {
            continue;
        };
        let mount = PathBuf::from(mount.replace("\\040", " "));
        let depth = mount.components().count();
        // Later mounts on the same point hide earlier ones.
        if path.starts_with(&mount) && best.as_ref().is_none_or(|(d, _)| *d <= depth) {
            let queue = |below: &str| {
                let file = format!("/sys/dev/block/{device}/{below}queue/rotational");
                fs::read_to_string(file).ok().map(|s| s.trim() == "1")
            };
            let rotational = queue("").or_else(|| queue("../"));
            best = Some((
                depth,
                Drive { mount, kind: (*kind).to_owned(), source: (*source).to_owned(), rotational },
            ));
        }
    }
    best.map(|(_, drive)| drive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_fields() {
        let text = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   23000000 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(24_000_000 * 1024));
        assert_eq!(meminfo(text, "MemAvailable"), Some(23_000_000 * 1024));
        assert_eq!(meminfo(text, "Mem"), None);
    }

    #[test]
    fn the_tightest_group_limit_wins() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("a/b");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        fs::write(root.path().join("a/memory.current"), "700\n").unwrap();
        fs::write(root.path().join("a/memory.stat"), "anon 1\ninactive_file 300\n").unwrap();
        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        let found = cgroup(root.path(), "0::/a/b\n").unwrap();
        assert_eq!(found, Cgroup { path: root.path().join("a"), limit: 1000, used: 400 });
        let memory = Memory { available: Some(5000), cgroup: Some(found), ..Memory::default() };
        assert_eq!(memory.room(), Some(600));
        fs::write(root.path().join("a/memory.max"), "max\n").unwrap();
        assert_eq!(cgroup(root.path(), "0::/a/b\n"), None);
    }

    #[test]
    fn the_deepest_mount_wins() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /dev/shm rw shared:2 - tmpfs shm rw\n";
        assert_eq!(drive_in(table, Path::new("/dev/shm/x")).unwrap().kind, "tmpfs");
        assert_eq!(drive_in(table, Path::new("/dev/sh")).unwrap().kind, "ext4");
    }
}
