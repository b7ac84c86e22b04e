//! GPUs, their driver, the library that talks to it, and what maya can compute on.

use serde_json::{Value as Json, json};

use super::{Finding, several};
use crate::machine::{Nvidia, System};
#[cfg(feature = "cuda")]
use crate::output::bytes;

pub(super) fn findings(system: &System) -> Vec<Finding> {
    let nvidia = Nvidia::of(system, std::env::var_os("LD_LIBRARY_PATH").as_deref());
    vec![gpu(&nvidia), library(&nvidia), cuda()]
}

fn gpu(nvidia: &Nvidia) -> Finding {
    let driver = nvidia.version.as_deref().or(nvidia.driver.as_deref());
    let names: Vec<String> = nvidia
        .gpus
        .iter()
        .map(|gpu| {
            let name = gpu.name.as_deref().unwrap_or("a GPU without a name");
            let link = gpu.link.as_ref().map_or(String::new(), |link| format!(", {link}"));
            format!("{name} (bus {}{link})", gpu.bus)
        })
        .collect();
    let what = match driver {
        _ if nvidia.through_windows && nvidia.gpus.is_empty() => {
            "Windows lends its GPU (/dev/dxg); which one cannot be seen from here".to_owned()
        }
        Some(version) if nvidia.gpus.is_empty() => {
            format!("an NVIDIA driver is loaded ({version}), and it shows no GPU")
        }
        Some(version) => {
            format!("{}: {}; NVIDIA driver {version}", several(names.len(), "GPU"), names.join("; "))
        }
        None if nvidia.on_bus > 0 => format!(
            "{} of NVIDIA on the bus, but no driver is loaded for it (modprobe nvidia; in a virtual machine or container the \
             host must hand it over)",
            several(nvidia.on_bus, "graphics device")
        ),
        None => "no NVIDIA driver is loaded and no GPU of NVIDIA is on the bus".to_owned(),
    };
    let mut found = what;
    if driver.is_some() && !nvidia.gpus.is_empty() {
        if nvidia.devices < nvidia.gpus.len() {
            found.push_str(&format!(
                "; {} of {} device files /dev/nvidia<number> are here: the container was not given all GPUs (docker run --gpus \
                 all), or its CDI description is stale",
                nvidia.devices,
                nvidia.gpus.len()
            ));
        }
        if !nvidia.no_device.is_empty() {
            let names: Vec<String> = nvidia.no_device.iter().map(|name| format!("/dev/{name}")).collect();
            found.push_str(&format!("; CUDA would need {}, which is not here", names.join(" and ")));
        }
    }
    let gpus: Vec<Json> = nvidia
        .gpus
        .iter()
        .map(|g| json!({"name": g.name, "bus": g.bus, "link": g.link, "memory_node": g.node}))
        .collect();
    let facts = json!({
        "driver": nvidia.driver,
        "driver_version": nvidia.version,
        "gpus": gpus,
        "on_bus": nvidia.on_bus,
        "device_files": nvidia.devices,
        "cuda_built_in": cfg!(feature = "cuda"),
    });
    Finding::new("gpu", found, facts)
}

fn library(nvidia: &Nvidia) -> Finding {
    let found = match &nvidia.library {
        Some(path) => format!("{} is here", path.display()),
        None if nvidia.driver.is_some() => {
            "libcuda.so.1 is not in any folder that the loader usually searches, though a driver is loaded: a container needs it \
             from the host (NVIDIA container toolkit)"
                .to_owned()
        }
        None => "libcuda.so.1 is not in any folder that the loader usually searches".to_owned(),
    };
    let path = nvidia.library.as_ref().map(|p| p.display().to_string());
    Finding::new("cuda library", found, json!({"path": path}))
}

/// What the driver shows when it is asked.
#[cfg(feature = "cuda")]
fn cuda() -> Finding {
    usable(quant_kernels::cuda::Device::all().map_err(|why| why.to_string()))
}

/// A build without devices.
#[cfg(not(feature = "cuda"))]
fn cuda() -> Finding {
    let why = "this build computes on the CPU only, since feature `cuda` was left out";
    Finding::new("cuda", why, json!({"devices": [], "driver_version": null, "why_not": why}))
}

#[cfg(feature = "cuda")]
fn usable(devices: Result<Vec<quant_kernels::cuda::Device>, String>) -> Finding {
    let devices = match devices {
        Ok(devices) => devices,
        Err(why) => {
            let facts = json!({"devices": [], "driver_version": null, "why_not": why});
            return Finding::new("cuda", format!("maya computes on the CPU: {why}"), facts);
        }
    };
    let names: Vec<String> = devices
        .iter()
        .map(|d| format!("cuda:{} {} (sm_{}, {})", d.ordinal, d.name, d.arch(), bytes(d.memory_bytes as u64)))
        .collect();
    let driver = devices.first().map(|d| format!("{}.{}", d.driver_version.0, d.driver_version.1));
    let found = format!(
        "maya can compute on {}; driver for CUDA {}",
        names.join(", "),
        driver.as_deref().unwrap_or("of an unknown version")
    );
    let rows: Vec<Json> = devices
        .iter()
        .map(|d| {
            json!({
                "ordinal": d.ordinal,
                "name": d.name,
                "architecture": format!("sm_{}", d.arch()),
                "memory": d.memory_bytes,
                "multiprocessors": d.n_multiprocessors,
                "bus": d.pci_id,
            })
        })
        .collect();
    Finding::new("cuda", found, json!({"devices": rows, "driver_version": driver, "why_not": null}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Gpu, Nvidia};

    #[test]
    fn what_is_said_of_a_gpu() {
        let none = Nvidia::default();
        let card = Gpu {
            bus: "0000:01:00.0".into(),
            name: Some("NVIDIA X".into()),
            link: Some("32.0 GT/s PCIe x16".into()),
            node: None,
        };
        let driver = Nvidia { driver: Some("NVRM 1.2".into()), version: Some("1.2".into()), ..none.clone() };
        let with = Nvidia {
            gpus: vec![card.clone(), Gpu { name: None, link: None, ..card }],
            on_bus: 2,
            devices: 1,
            ..driver.clone()
        };
        for (nvidia, says) in [
            (&none, &["no NVIDIA driver is loaded"][..]),
            (&Nvidia { on_bus: 1, ..none.clone() }, &["1 graphics device of NVIDIA on the bus"]),
            (&Nvidia { through_windows: true, ..none.clone() }, &["/dev/dxg"]),
            (&driver, &["it shows no GPU"]),
            (
                &with,
                &[
                    "2 GPUs: NVIDIA X (bus 0000:01:00.0, 32.0 GT/s PCIe x16)",
                    "driver 1.2",
                    "1 of 2 device files",
                    "a GPU without",
                ],
            ),
            (
                &Nvidia { no_device: vec!["nvidia-uvm"], ..with.clone() },
                &["/dev/nvidia-uvm, which is not here"],
            ),
        ] {
            let found = gpu(nvidia).found;
            for part in says {
                assert!(found.contains(part), "{part}: {found}");
            }
        }
        assert!(library(&driver).found.contains("container toolkit"));
        assert!(!library(&none).found.contains("container toolkit"));
        let here = Nvidia { library: Some("/usr/lib/libcuda.so.1".into()), ..none };
        assert_eq!(library(&here).facts["path"], "/usr/lib/libcuda.so.1");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn why_no_device_is_used() {
        let finding = usable(Err("there is no NVIDIA driver".to_owned()));
        assert_eq!(finding.found, "maya computes on the CPU: there is no NVIDIA driver");
        assert_eq!(finding.facts["why_not"], "there is no NVIDIA driver");
    }
}
