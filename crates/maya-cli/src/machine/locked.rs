//! How much memory this process may lock, which is what `io_uring` counts registered buffers against.

use super::System;

/// `RLIMIT_MEMLOCK`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The limit now (`ulimit -l`); `None` for none.
    pub limit: Option<u64>,
    /// What it may be raised to without more rights; `None` for no limit.
    pub ceiling: Option<u64>,
    /// Whether the process may lock more all the same (`CAP_IPC_LOCK`, counted on the host only).
    pub exempt: bool,
}

impl Locked {
    /// That of this process, on this system.
    pub fn of(system: &System) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
        Self { limit: limit.current, ceiling: limit.maximum, exempt: is_exempt(system) }
    }
}

fn is_exempt(system: &System) -> bool {
    /// Bit of `CAP_IPC_LOCK`.
    const IPC_LOCK: u32 = 14;
    let status = system.text("proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    // The kernel asks for the right on the host: the root of a container that maps its users has it inside only.
    let map = system.text("proc/self/uid_map").unwrap_or_default();
    let on_host = map.split_whitespace().eq(["0", "0", "4294967295"]);
    on_host && capabilities & (1 << IPC_LOCK) != 0
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[test]
    fn who_may_lock_more() {
        let host = "         0          0 4294967295\n";
        for (status, map, exempt) in [
            ("Name: x\nCapEff:\t000001ffffffffff\n", host, true),
            ("CapEff:\t0000000000004000\n", host, true),
            ("CapEff:\t0000000000000000\n", host, false),
            ("CapEff:\t000001ffffffffff\n", "0 100000 65536\n", false),
            ("CapEff:\tzz\n", host, false),
            ("", "", false),
        ] {
            let (_folder, system) = system(&[("proc/self/status", status), ("proc/self/uid_map", map)]);
            assert_eq!(is_exempt(&system), exempt, "{status} {map}");
        }
    }
}
