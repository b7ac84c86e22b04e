//! Memory, and what limits it.

use serde_json::{Value as Json, json};

use super::Finding;
use crate::machine::{HugePages, Locked, Memory, System, Transparent};
use crate::output::bytes;

pub(super) fn findings(system: &System, memory: &Memory) -> Vec<Finding> {
    vec![
        total(memory),
        swap(memory),
        limit(memory),
        locked(Locked::of(system)),
        huge_pages(&HugePages::of(system)),
    ]
}

fn total(memory: &Memory) -> Finding {
    let mut found = match (memory.total, memory.available) {
        (Some(total), Some(available)) => format!(
            "{}, {} available, {} of files in the page cache",
            bytes(total),
            bytes(available),
            bytes(memory.cached.unwrap_or(0))
        ),
        _ => "how much there is is not known: /proc/meminfo cannot be read".to_owned(),
    };
    // Less is what every desktop has.
    let kept = memory.in_memory_files.filter(|&b| b > 1 << 30);
    if let Some(kept) = kept {
        found.push_str(&format!("; {} of them are files of a tmpfs (/dev/shm), which stay", bytes(kept)));
    }
    let facts = json!({
        "total": memory.total,
        "available": memory.available,
        "page_cache": memory.cached,
        "tmpfs": memory.in_memory_files,
        "room": memory.room(),
    });
    Finding::new("memory", found, facts)
}

fn swap(memory: &Memory) -> Finding {
    let (total, usable) = (memory.swap_total, memory.swap());
    let found = match total {
        None => "not known".to_owned(),
        Some(0) => "none, which is good: what does not fit is refused and not moved to a drive".to_owned(),
        Some(total) if usable == 0 => {
            format!(
                "{} on this machine, none of it for this process's control group, which is good",
                bytes(total)
            )
        }
        Some(_) => format!(
            "{} may be used: memory that holds experts can be moved to a drive, and fetching it from there takes longer than \
             reading the model again; sudo swapoff -a, or memory.swap.max = 0 in maya's control group, prevents it",
            bytes(usable)
        ),
    };
    let facts = json!({"total": total, "free": memory.swap_free, "group_limit": memory.swap_limit});
    Finding::new("swap", found, facts)
}

fn limit(memory: &Memory) -> Finding {
    match &memory.cgroup {
        Some(group) => {
            let path = group.path.display();
            let (limit, used, room) = (bytes(group.limit), bytes(group.used), bytes(group.room()));
            let mut found = format!(
                "{limit} set by {path}, {used} of it in use (pages of files not counted), {room} left"
            );
            if memory.available.is_some_and(|a| a < group.room()) {
                found.push_str("; the machine itself has less than that");
            }
            let facts = json!({
                "limit": group.limit,
                "used": group.used,
                "room": group.room(),
                "path": path.to_string(),
            });
            Finding::new("memory limit", found, facts)
        }
        None => Finding::new(
            "memory limit",
            "none: no control group limits this process",
            json!({"limit": null, "used": null, "room": null, "path": null}),
        ),
    }
}

fn locked(locked: Locked) -> Finding {
    let found = match locked.limit {
        None => "no limit: memory that experts are read into can be registered with io_uring".to_owned(),
        Some(limit) if locked.exempt => format!(
            "{} (ulimit -l), but this process has the right to lock more (CAP_IPC_LOCK): memory that experts are read into \
             can be registered with io_uring",
            bytes(limit)
        ),
        Some(limit) => {
            let how = match locked.ceiling {
                None => "ulimit -l unlimited raises it".to_owned(),
                Some(ceiling) if ceiling > limit => {
                    format!("ulimit -l {} raises it to the most that is allowed here, {}", ceiling / 1024, bytes(ceiling))
                }
                Some(_) => "memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit or docker run \
                    --ulimit memlock=-1 raises it"
                    .to_owned(),
            };
            format!(
                "{} (ulimit -l): io_uring refuses to register more, and reads experts without, which costs the kernel a \
                 look-up of every page; {how}",
                bytes(limit)
            )
        }
    };
    let facts = json!({"limit": locked.limit, "ceiling": locked.ceiling, "exempt": locked.exempt});
    Finding::new("locked memory", found, facts)
}

fn huge_pages(pages: &HugePages) -> Finding {
    let mut found = match pages.transparent {
        Some(Transparent::Always) => "given wherever there are free ones (always)".to_owned(),
        Some(Transparent::Asked) => "given where they are asked for (madvise), as expert slots do".to_owned(),
        Some(Transparent::Never) => {
            "switched off (never), so expert slots have small ones: echo madvise | sudo tee \
            /sys/kernel/mm/transparent_hugepage/enabled allows them"
                .to_owned()
        }
        None => "whether there are any is not known".to_owned(),
    };
    if pages.idle() > 0 {
        found.push_str(&format!(
            "; {} are set aside in huge pages that nobody uses, and maya cannot use them (vm.nr_hugepages = 0 gives them back)",
            bytes(pages.idle())
        ));
    }
    let reserved: Vec<Json> = pages
        .reserved
        .iter()
        .map(|(size, all, free)| json!({"page_bytes": size, "pages": all, "free": free}))
        .collect();
    let facts = json!({"transparent": pages.transparent.map(Transparent::name), "reserved": reserved});
    Finding::new("huge pages", found, facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cgroup;

    #[test]
    fn swap_is_told_by_whom_it_threatens() {
        let memory = |total, limit| Memory { swap_total: total, swap_limit: limit, ..Memory::default() };
        for (memory, says) in [
            (memory(None, None), "not known"),
            (memory(Some(0), None), "none, which is good"),
            (memory(Some(8_000_000_000), Some(0)), "8.00 GB on this machine, none of it"),
            (memory(Some(8_000_000_000), Some(1_000_000_000)), "1.00 GB may be used"),
            (memory(Some(8_000_000_000), None), "8.00 GB may be used"),
        ] {
            let found = swap(&memory).found;
            assert!(found.starts_with(says), "{found}");
        }
    }

    #[test]
    fn what_a_higher_limit_on_locked_memory_would_buy() {
        let case = |limit, ceiling, exempt| locked(Locked { limit, ceiling, exempt }).found;
        assert!(case(None, None, false).starts_with("no limit"));
        assert!(case(Some(8 << 20), Some(8 << 20), true).contains("CAP_IPC_LOCK"));
        assert!(case(Some(8 << 20), Some(8 << 20), false).contains("limits.conf"));
        assert!(case(Some(8 << 20), Some(1 << 30), false).contains("ulimit -l 1048576 raises it"));
        assert!(case(Some(8 << 20), None, false).contains("ulimit -l unlimited raises it"));
    }

    #[test]
    fn pages_and_limits() {
        let pages = HugePages { transparent: Some(Transparent::Never), reserved: vec![(2 << 20, 512, 512)] };
        let found = huge_pages(&pages).found;
        assert!(found.contains("switched off") && found.contains("1.07 GB are set aside"), "{found}");
        let group = Cgroup { path: "/g".into(), limit: 2000, used: 500 };
        let memory = Memory { available: Some(1000), cgroup: Some(group), ..Memory::default() };
        assert_eq!(
            limit(&memory).found,
            "2.00 kB set by /g, 500 B of it in use (pages of files not counted), 1.50 kB left; the machine itself has less than \
             that"
        );
        let memory = Memory { total: Some(9), available: Some(8), in_memory_files: Some(2 << 30), ..memory };
        assert!(total(&memory).found.ends_with("files of a tmpfs (/dev/shm), which stay"));
        assert_eq!(total(&memory).facts["room"], 8);
    }
}
