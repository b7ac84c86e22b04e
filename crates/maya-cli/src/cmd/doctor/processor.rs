//! The system, the processor and its instructions.

use quant_kernels::{Cpu, Isa};
use serde_json::{Map, Value as Json, json};

use super::{Finding, several};
use crate::machine::{Processor, System};
use crate::output::bytes;

pub(super) fn findings(system: &System) -> Vec<Finding> {
    let cpu = Processor::of(system);
    let mut list = vec![operating_system(system, &cpu), processor(&cpu), instructions(&cpu), threads(&cpu)];
    list.extend(nodes(system, &cpu));
    list
}

fn operating_system(system: &System, cpu: &Processor) -> Finding {
    let release = system.text("proc/sys/kernel/osrelease").map(|t| t.trim().to_owned());
    let container = container(system);
    let name = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "macOS",
        other => other,
    };
    let mut found = match &release {
        Some(release) => format!("{name} {release}"),
        None => name.to_owned(),
    };
    let virtual_machine = cpu.has("hypervisor");
    if virtual_machine {
        found.push_str(", in a virtual machine");
    }
    if let Some(kind) = container {
        found.push_str(&format!(", in a container ({kind})"));
    }
    let facts = json!({
        "name": std::env::consts::OS,
        "release": release,
        "virtual_machine": virtual_machine,
        "container": container,
    });
    Finding::new("system", found, facts)
}

fn container(system: &System) -> Option<&'static str> {
    let groups = system.text("proc/1/cgroup").unwrap_or_default();
    if system.has(".dockerenv") {
        Some("docker")
    } else if system.has("run/.containerenv") {
        Some("podman")
    } else if system.has("var/run/secrets/kubernetes.io") || groups.contains("/kubepods") {
        Some("kubernetes")
    } else {
        None
    }
}

fn processor(cpu: &Processor) -> Finding {
    let mut found = cpu.name.clone().unwrap_or_else(|| "its name is not known".to_owned());
    if let (Some(cores), Some(online)) = (cpu.cores, cpu.online) {
        found.push_str(&format!(": {}, {}", several(cores, "core"), several(online, "thread")));
        if let Some(sockets) = cpu.sockets.filter(|&n| n > 1) {
            found.push_str(&format!(", in {sockets} packages"));
        }
    }
    let facts = json!({
        "name": cpu.name,
        "architecture": std::env::consts::ARCH,
        "packages": cpu.sockets,
        "cores": cpu.cores,
        "threads": cpu.online,
    });
    Finding::new("processor", found, facts)
}

/// Feature words, as /proc/cpuinfo spells them, that each set needs.
fn needs(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Scalar => &[],
        Isa::Avx2 => &["avx2", "fma", "f16c"],
        Isa::Avx512 => &[
            "avx2",
            "fma",
            "f16c",
            "avx512f",
            "avx512bw",
            "avx512vl",
            "avx512dq",
            "avx512_vbmi",
            "avx512_vnni",
        ],
    }
}

fn instructions(cpu: &Processor) -> Finding {
    let used = Cpu::detect().isa();
    let mut found = format!("{used} is used");
    let mut lacking = Map::new();
    for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
        let absent: Vec<&str> = needs(isa).iter().copied().filter(|need| !cpu.has(need)).collect();
        let why = if !cfg!(target_arch = "x86_64") {
            "it belongs to x86-64 processors".to_owned()
        } else if absent.is_empty() {
            "the system does not let programs use it".to_owned()
        } else {
            format!("the processor lacks {}", absent.join(", "))
        };
        found.push_str(&format!("; {isa} is not there: {why}"));
        lacking.insert(isa.to_string(), json!(why));
    }
    Finding::new("instructions", found, json!({"used": used.to_string(), "not_there": lacking}))
}

fn threads(cpu: &Processor) -> Finding {
    let n = cpu.threads;
    let found = match cpu.online.filter(|&online| online > n) {
        Some(online) => format!(
            "{n} of {online} may run at once: a CPU set, a CPU quota or an affinity mask leaves this process no more; that \
             many are used without --threads"
        ),
        None => format!("{n} may run at once; that many are used without --threads"),
    };
    Finding::new("threads", found, json!({"available": n, "online": cpu.online}))
}

/// Only where there is more than one.
fn nodes(system: &System, cpu: &Processor) -> Option<Finding> {
    if cpu.nodes.len() < 2 {
        return None;
    }
    let status = system.text("proc/self/status").unwrap_or_default();
    let allowed =
        status.lines().find_map(|l| l.strip_prefix("Mems_allowed_list:")).map(|l| l.trim().to_owned());
    let each: Vec<String> = cpu
        .nodes
        .iter()
        .map(|node| {
            let memory = node.memory.map_or("memory of unknown size".to_owned(), bytes);
            let free = node.free.map_or(String::new(), |free| format!(" ({} free)", bytes(free)));
            let threads = if node.threads.is_empty() {
                "no threads".to_owned()
            } else {
                format!("threads {}", node.threads)
            };
            format!("{}: {threads}, {memory}{free}", node.id)
        })
        .collect();
    let mut found = format!(
        "{} memory nodes ({}); maya does not bind itself to one, and memory of another node is slower (numactl --cpunodebind \
         --membind keeps a model that fits on one)",
        each.len(),
        each.join("; ")
    );
    if let Some(list) = &allowed {
        found.push_str(&format!("; this process may use the memory of {list}"));
    }
    let facts: Vec<Json> = cpu
        .nodes
        .iter()
        .map(|n| json!({"id": n.id, "threads": n.threads, "bytes": n.memory, "free": n.free}))
        .collect();
    Some(Finding::new("memory nodes", found, json!({"nodes": facts, "allowed": allowed})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Node;

    fn cpu() -> Processor {
        let node = |id| Node { id, threads: "0-3".into(), memory: Some(64_000_000_000), free: None };
        Processor {
            name: Some("X".into()),
            sockets: Some(2),
            cores: Some(8),
            online: Some(16),
            threads: 1,
            features: vec!["hypervisor".into()],
            nodes: vec![node(0), node(1)],
        }
    }

    #[test]
    fn what_a_large_machine_in_a_small_container_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let system = System::at(folder.path());
        std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        std::fs::write(folder.path().join(".dockerenv"), "").unwrap();
        std::fs::write(folder.path().join("proc/self/status"), "Mems_allowed_list:\t1\n").unwrap();
        let cpu = cpu();
        assert_eq!(processor(&cpu).found, "X: 8 cores, 16 threads, in 2 packages");
        assert!(threads(&cpu).found.starts_with("1 of 16 may run at once: a CPU set"), "{:?}", threads(&cpu));
        let nodes = nodes(&system, &cpu).unwrap();
        assert!(
            nodes.found.contains("1: threads 0-3, 64.0 GB;")
                || nodes.found.contains("0: threads 0-3, 64.0 GB;")
        );
        assert!(nodes.found.ends_with("may use the memory of 1"), "{nodes:?}");
        let os = operating_system(&system, &cpu);
        assert_eq!((&os.facts["container"], &os.facts["virtual_machine"]), (&json!("docker"), &json!(true)));
    }
}
