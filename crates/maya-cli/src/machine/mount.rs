//! The file system below a path, and the drive below that.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::System;

/// The filesystem below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its mount point.
    pub at: PathBuf,
    /// Its type: ext4, tmpfs, overlay.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Whether the block device below is a spinning disk; `None` where there is none to ask.
    pub rotational: Option<bool>,
    /// The drive's name for itself.
    pub model: Option<String>,
}

impl Mount {
    /// That of `path`, which exists.
    pub fn of(system: &System, path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        Self::below(system, &path)
    }

    /// That of an absolute path without links.
    fn below(system: &System, path: &Path) -> Option<Self> {
        let mut best: Option<(usize, String, Self)> = None;
        for line in system.text("proc/self/mountinfo")?.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let (Some(device), Some(at), Some(kind), Some(source)) =
                (left.get(2), left.get(4), right.first(), right.get(1))
            else {
                continue;
            };
            let at = unescaped(at);
            let depth = at.components().count();
            // Later mounts on the same point hide earlier ones.
            if path.starts_with(&at) && best.as_ref().is_none_or(|(d, ..)| *d <= depth) {
                let source = unescaped(source).display().to_string();
                let mount = Self { at, kind: (*kind).to_owned(), source, rotational: None, model: None };
                best = Some((depth, (*device).to_owned(), mount));
            }
        }
        let (_, device, mut mount) = best?;
        let folder = mount.block_device(system, &device);
        mount.rotational =
            folder.as_ref().and_then(|f| system.number(format!("{f}/queue/rotational"))).map(|n| n == 1);
        mount.model = folder.and_then(|f| {
            let model = system.text(format!("{f}/device/model"))?;
            Some(model.trim().to_owned()).filter(|m| !m.is_empty())
        });
        Some(mount)
    }

    /// The folder of the whole drive in /sys: a partition has no queue of its own.
    fn block_device(&self, system: &System, device: &str) -> Option<String> {
        // File systems over several devices (btrfs) have a number of their own; their source names one of the devices.
        let named = self.source.strip_prefix("/dev/").map(|name| format!("sys/class/block/{name}"));
        let folders = [Some(format!("sys/dev/block/{device}")), named];
        let found = folders.into_iter().flatten().flat_map(|f| [f.clone(), format!("{f}/..")]);
        found.into_iter().find(|folder| system.has(format!("{folder}/queue/rotational")))
    }

    /// Whether its files live in memory: there is no drive to read.
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }

    /// Whether the drive is one that a virtual machine makes up: what it says of itself is not that of the drive below.
    pub fn is_virtual(&self) -> bool {
        ["/dev/vd", "/dev/xvd"].iter().any(|prefix| self.source.starts_with(prefix))
    }

    /// Whether its files come over a network.
    pub fn is_network(&self) -> bool {
        let kind = self.kind.as_str();
        ["nfs", "cifs", "smb", "ceph", "lustre", "gluster", "9p", "fuse.sshfs", "fuse.gcsfuse", "fuse.s3fs"]
            .iter()
            .any(|name| kind.starts_with(name))
    }
}

/// A path of /proc/self/mountinfo, where blanks and some others are written as `\040`.
pub fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let octal =
            |d: &[u8]| d.iter().try_fold(0u8, |n, b| n.checked_mul(8)?.checked_add(b.checked_sub(b'0')?));
        let digits = bytes.get(i + 1..i + 4).filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits.filter(|_| bytes[i] == b'\\').and_then(octal) {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[test]
    fn the_deepest_mount_wins() {
        let table = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            broken line\n\
            2 1 0:5 / /dev/shm rw shared:2 - tmpfs shm rw\n\
            3 1 0:40 / /mnt/two\\040words rw - btrfs /dev/nvme0n1p2 rw\n\
            4 1 0:41 / /net rw - nfs4 host:/models rw\n";
        let (_folder, system) = system(&[
            ("proc/self/mountinfo", table),
            ("sys/dev/block/8:1/partition", "1\n"),
            ("sys/dev/block/queue/rotational", "1\n"),
            ("sys/dev/block/device/model", "OLD DISK  \n"),
            ("sys/class/block/nvme0n1p2/queue/rotational", "0\n"),
        ]);
        let at = |path: &str| Mount::below(&system, Path::new(path)).unwrap();
        let root = at("/dev/sh");
        assert_eq!((root.kind.as_str(), root.rotational), ("ext4", Some(true)));
        assert_eq!(root.model.as_deref(), Some("OLD DISK"));
        let shm = at("/dev/shm/x");
        assert_eq!((shm.kind.as_str(), shm.rotational, shm.is_memory()), ("tmpfs", None, true));
        let spaced = at("/mnt/two words/model.gguf");
        assert_eq!((spaced.kind.as_str(), spaced.rotational), ("btrfs", Some(false)));
        assert!(at("/net/a").is_network() && !root.is_network());
    }

    #[test]
    fn no_table_no_mount() {
        let (_folder, empty) = system(&[]);
        assert_eq!(Mount::below(&empty, Path::new("/")), None);
        assert_eq!(Mount::of(&System::here(), Path::new("/nonexistent/file")), None);
    }

    #[test]
    fn escapes() {
        for (text, wanted) in
            [("/a\\040b", "/a b"), ("/a\\134", "/a\\"), ("/a\\04", "/a\\04"), ("\\777x", "\\777x")]
        {
            assert_eq!(unescaped(text), Path::new(wanted), "{text}");
        }
    }
}
