//! The processor: its name, its cores, and which of them have which memory.

use std::collections::BTreeSet;

use super::System;

/// The processor's name and how many it has for us.
#[derive(Clone, Debug)]
pub struct Processor {
    /// As /proc/cpuinfo calls it.
    pub name: Option<String>,
    /// Packages; `None` where the kernel does not say.
    pub sockets: Option<usize>,
    /// Cores of all packages that are online.
    pub cores: Option<usize>,
    /// Threads that are online.
    pub online: Option<usize>,
    /// Threads that this process may run at once.
    pub threads: usize,
    /// Feature words of /proc/cpuinfo.
    pub features: Vec<String>,
    /// Memory nodes, if the kernel tells them apart.
    pub nodes: Vec<Node>,
}

/// A memory node: processors, and the memory that is near to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its threads, in the kernel's form: `0-15,32-47`. Empty for memory without processors.
    pub threads: String,
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// Of that, what is free.
    pub free: Option<u64>,
}

impl Processor {
    /// That of a system. How many threads may run is always this process's.
    pub fn of(system: &System) -> Self {
        let info = system.text("proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            info.lines().find_map(|l| {
                let (key, value) = l.split_once(':')?;
                (key.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_owned())
            })
        };
        let (sockets, cores, online) = topology(system);
        Self {
            // Arm boards name the whole board, and Arm servers nothing: the device tree's or the firmware's word is next.
            name: field("model name")
                .or_else(|| field("Model"))
                .or_else(|| field("Hardware"))
                .or_else(|| field("cpu model")),
            sockets,
            cores,
            online,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            features: field("flags")
                .or_else(|| field("Features"))
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            nodes: nodes(system),
        }
    }

    /// Whether it says so.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|have| have == feature)
    }
}

fn topology(system: &System) -> (Option<usize>, Option<usize>, Option<usize>) {
    const FOLDER: &str = "sys/devices/system/cpu";
    let (mut sockets, mut cores, mut online) = (BTreeSet::new(), BTreeSet::new(), 0);
    for name in system.names(FOLDER) {
        let is_thread = name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
        // A thread that is offline has no topology.
        if !is_thread || !system.has(format!("{FOLDER}/{name}/topology")) {
            continue;
        }
        online += 1;
        // Small Arm machines answer -1.
        let id =
            |file: &str| system.text(format!("{FOLDER}/{name}/topology/{file}"))?.trim().parse::<i64>().ok();
        if let (Some(package), Some(core)) = (id("physical_package_id"), id("core_id")) {
            sockets.insert(package);
            cores.insert((package, id("die_id"), core));
        }
    }
    let count = |n: usize| (n > 0).then_some(n);
    (count(sockets.len()), count(cores.len()), count(online))
}

fn nodes(system: &System) -> Vec<Node> {
    const FOLDER: &str = "sys/devices/system/node";
    let node = |name: String| {
        let id = name.strip_prefix("node")?.parse().ok()?;
        let info = system.text(format!("{FOLDER}/{name}/meminfo")).unwrap_or_default();
        // A line is `Node 0 MemTotal:       24684096 kB`.
        let field = |field: &str| {
            let kib: u64 = info.lines().find_map(|l| {
                let value = l.split_once(field)?.1.strip_prefix(':')?;
                value.trim().strip_suffix("kB")?.trim().parse().ok()
            })?;
            kib.checked_mul(1024)
        };
        let threads = system.text(format!("{FOLDER}/{name}/cpulist")).unwrap_or_default();
        Some(Node {
            id,
            threads: threads.trim().to_owned(),
            memory: field(" MemTotal"),
            free: field(" MemFree"),
        })
    };
    let mut nodes: Vec<Node> = system.names(FOLDER).into_iter().filter_map(node).collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

#[cfg(test)]
mod tests {
    use super::super::system::made_up::system;
    use super::*;

    #[test]
    fn two_sockets_with_two_threads_a_core() {
        let mut files =
            vec![("proc/cpuinfo".to_owned(), "model name\t: X 9000\nflags : fma avx2\n".to_owned())];
        for thread in 0..8 {
            let folder = format!("sys/devices/system/cpu/cpu{thread}/topology");
            files.push((format!("{folder}/physical_package_id"), format!("{}\n", thread % 2)));
            files.push((format!("{folder}/core_id"), format!("{}\n", thread / 2 % 2)));
        }
        files.push(("sys/devices/system/cpu/cpu9/online".to_owned(), "0\n".to_owned()));
        files.push(("sys/devices/system/cpu/cpufreq/x".to_owned(), String::new()));
        for node in [10, 2] {
            let folder = format!("sys/devices/system/node/node{node}");
            files.push((format!("{folder}/cpulist"), "0-3\n".to_owned()));
            let memory = format!("Node {node} MemTotal: 8 kB\nNode {node} MemFree: 3 kB\n");
            files.push((format!("{folder}/meminfo"), memory));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let (_folder, system) = system(&files);
        let cpu = Processor::of(&system);
        assert_eq!((cpu.sockets, cpu.cores, cpu.online), (Some(2), Some(4), Some(8)));
        assert_eq!(cpu.name.as_deref(), Some("X 9000"));
        assert!(cpu.has("avx2") && !cpu.has("avx"));
        let node = |id| Node { id, threads: "0-3".to_owned(), memory: Some(8192), free: Some(3072) };
        assert_eq!(cpu.nodes, [node(2), node(10)]);
    }

    #[test]
    fn machines_that_say_little() {
        for (info, name) in [
            ("", None),
            ("processor : 0\nFeatures : asimd fp\nCPU implementer : 0x41\n", None),
            ("Hardware : BCM2835\nModel : Raspberry Pi 5\n", Some("Raspberry Pi 5")),
            ("model name :\n", None),
        ] {
            let (_folder, system) = system(&[("proc/cpuinfo", info)]);
            let cpu = Processor::of(&system);
            assert_eq!(cpu.name.as_deref(), name, "{info}");
            assert_eq!((cpu.sockets, cpu.cores, cpu.online, cpu.nodes.len()), (None, None, None, 0));
            assert_eq!(cpu.has("asimd"), info.contains("asimd"));
            assert!(cpu.threads >= 1);
        }
    }
}
