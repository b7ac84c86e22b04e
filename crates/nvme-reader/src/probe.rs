//! Whether a file can be read around the page cache, found out by asking and by trying.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::error::WhyBuffered;
use crate::options::Direct;

/// A file opened a second time, for reads around the page cache.
#[derive(Debug)]
pub struct DirectFile {
    /// The file.
    pub fd: OwnedFd,
    /// What offset, length and address must be multiples of; a power of two.
    pub alignment: usize,
}

/// Opens `path`, which is open as `file` and has `len` bytes, for direct reads.
#[cfg(target_os = "linux")]
pub fn direct(path: &Path, file: &OwnedFd, len: u64, choice: Direct) -> Result<DirectFile, WhyBuffered> {
    use rustix::fs::{Mode, OFlags, fstat, open};

    if choice == Direct::Never {
        return Err(WhyBuffered::Asked);
    }
    let alignment = alignment(file)?;
    let failed = |errno: rustix::io::Errno| WhyBuffered::Open(errno.raw_os_error());
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty()).map_err(failed)?;
    // Between the two opens, somebody may have put another file there.
    let (one, two) = (fstat(file).map_err(failed)?, fstat(&fd).map_err(failed)?);
    if (one.st_dev, one.st_ino) != (two.st_dev, two.st_ino) {
        return Err(WhyBuffered::Open(rustix::io::Errno::STALE.raw_os_error()));
    }
    let mut block = crate::Aligned::new(alignment, alignment)
        .ok_or(WhyBuffered::Open(rustix::io::Errno::NOMEM.raw_os_error()))?;
    // The last block is the interesting one: the file ends inside of it.
    let last = len.saturating_sub(1) / alignment as u64 * alignment as u64;
    for offset in [0, last] {
        read(&fd, &mut block, offset).map_err(|errno| WhyBuffered::Probe {
            offset,
            len: alignment,
            errno,
        })?;
    }
    if choice == Direct::IfCold {
        let found = cached(file, len);
        if found > PLACES / 2 {
            return Err(WhyBuffered::Cached { found, of: PLACES });
        }
    }
    Ok(DirectFile { fd, alignment })
}

/// Places of a file that are looked for in the page cache: enough to tell a half from a third, and 64 calls.
#[cfg(target_os = "linux")]
const PLACES: u32 = 64;

/// How many of the places, spread evenly, are in the page cache: a read that must not wait brings bytes only from there. A
/// file system that has no such reads shows none.
#[cfg(target_os = "linux")]
fn cached(file: &OwnedFd, len: u64) -> u32 {
    use rustix::io::{ReadWriteFlags, preadv2, retry_on_intr};

    let step = len / u64::from(2 * PLACES);
    let is_there = |place: &u32| {
        let (offset, mut byte) = (u64::from(2 * place + 1) * step, [0]);
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        retry_on_intr(|| preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT)) == Ok(1)
    };
    (0..PLACES).filter(is_there).count() as u32
}

/// Elsewhere there is no `O_DIRECT`, or one that means something else.
#[cfg(not(target_os = "linux"))]
pub fn direct(_: &Path, _: &OwnedFd, _: u64, choice: Direct) -> Result<DirectFile, WhyBuffered> {
    Err(if choice == Direct::Never { WhyBuffered::Asked } else { WhyBuffered::Platform })
}

/// What the kernel says about the file, or a guess.
#[cfg(target_os = "linux")]
fn alignment(file: &OwnedFd) -> Result<usize, WhyBuffered> {
    use rustix::fs::{AtFlags, StatxFlags, fstatfs, statx};

    /// Blocks of drives are 512 or 4,096 bytes: when the kernel does not say (before 6.1), the larger fits both.
    const GUESS: usize = 4096;
    /// Widening by more would cost more than the cache does.
    const MAX: u32 = 64 << 10;
    /// File systems in memory accept `O_DIRECT` since Linux 6.6 and go through the cache all the same.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

    if fstatfs(file).is_ok_and(|s| IN_MEMORY.contains(&u64::from(s.f_type as u32))) {
        return Err(WhyBuffered::InMemory);
    }
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Ok(GUESS) };
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(GUESS);
    }
    let (offset, memory) = (stat.stx_dio_offset_align, stat.stx_dio_mem_align);
    match offset.max(memory) {
        _ if offset == 0 || memory == 0 => Err(WhyBuffered::Unsupported),
        both if both > MAX || !offset.is_power_of_two() || !memory.is_power_of_two() => {
            Err(WhyBuffered::Alignment(both))
        }
        both => Ok(both as usize),
    }
}

#[cfg(target_os = "linux")]
fn read(fd: &OwnedFd, block: &mut [u8], offset: u64) -> Result<usize, i32> {
    use rustix::io::{Errno, pread, retry_on_intr};
    retry_on_intr(|| pread(fd, &mut *block, offset)).map_err(Errno::raw_os_error)
}
