//! NVIDIA GPUs and their driver, found without loading anything.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::System;

/// The library that CUDA programs load.
pub const LIBRARY: &str = "libcuda.so.1";

/// Folders that loaders search on the usual distributions, WSL and NixOS.
const FOLDERS: [&str; 12] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nvidia {
    /// The loaded driver's line about itself.
    pub driver: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// GPUs that the driver knows.
    pub gpus: Vec<Gpu>,
    /// Graphics devices of this maker on the bus, whether the driver knows them or not.
    pub on_bus: usize,
    /// Device files `/dev/nvidia<number>`.
    pub devices: usize,
    /// The two device files that CUDA needs beside them and that are not there.
    pub no_device: Vec<&'static str>,
    /// Whether Windows lends its GPU (`/dev/dxg`).
    pub through_windows: bool,
    /// Where [`LIBRARY`] is.
    pub library: Option<PathBuf>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its address on the bus.
    pub bus: String,
    /// Its name.
    pub name: Option<String>,
    /// What links it to the machine, at best: `32.0 GT/s PCIe x16`.
    pub link: Option<String>,
    /// The memory node that it is near to.
    pub node: Option<u32>,
}

impl Nvidia {
    /// That of a system. `searched` are folders that the loader looks at first (`LD_LIBRARY_PATH`).
    pub fn of(system: &System, searched: Option<&OsStr>) -> Self {
        let driver = system.text("proc/driver/nvidia/version");
        let driver = driver.and_then(|text| Some(text.lines().next()?.trim().to_owned()));
        let version = driver.as_deref().and_then(version).map(str::to_owned);
        let gpus = system.names("proc/driver/nvidia/gpus");
        let number = |name: &String| name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
        let needed = ["nvidiactl", "nvidia-uvm"];
        Self {
            driver,
            version,
            gpus: gpus.into_iter().map(|bus| gpu(system, bus)).collect(),
            on_bus: on_bus(system),
            devices: system.names("dev").iter().filter(|name| number(name)).count(),
            no_device: needed.into_iter().filter(|name| !system.has(format!("dev/{name}"))).collect(),
            through_windows: system.has("dev/dxg"),
            library: library(system, searched),
        }
    }
}

/// `570.86.10` from `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build`.
fn version(line: &str) -> Option<&str> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty())
    };
    line.split_whitespace().find(is_version)
}

fn gpu(system: &System, bus: String) -> Gpu {
    let text = system.text(format!("proc/driver/nvidia/gpus/{bus}/information")).unwrap_or_default();
    let name = text.lines().find_map(|l| Some(l.strip_prefix("Model:")?.trim().to_owned()));
    let attribute = |file: &str| {
        let text = system.text(format!("sys/bus/pci/devices/{}/{file}", bus.to_ascii_lowercase()))?;
        Some(text.trim().to_owned()).filter(|t| !t.is_empty())
    };
    // The link now is slower while the GPU idles.
    let link = attribute("max_link_speed")
        .zip(attribute("max_link_width"))
        .map(|(speed, width)| format!("{speed} x{width}"));
    let node = attribute("numa_node").and_then(|n| n.parse().ok());
    Gpu { bus, name: name.filter(|n| !n.is_empty()), link, node }
}

fn on_bus(system: &System) -> usize {
    const FOLDER: &str = "sys/bus/pci/devices";
    let is = |name: &String| {
        let attribute = |file: &str| system.text(format!("{FOLDER}/{name}/{file}")).unwrap_or_default();
        // Class 03 is displays; sound and USB ports of a graphics card have others.
        attribute("vendor").trim() == "0x10de" && attribute("class").starts_with("0x03")
    };
    system.names(FOLDER).iter().filter(|name| is(name)).count()
}

fn library(system: &System, searched: Option<&OsStr>) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = searched.map(|s| std::env::split_paths(s).collect()).unwrap_or_default();
    let listed = system.names("etc/ld.so.conf.d").into_iter().map(|name| format!("etc/ld.so.conf.d/{name}"));
    for file in listed.chain(["etc/ld.so.conf".to_owned()]) {
        let text = system.text(file).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from));
    }
    folders.extend(FOLDERS.iter().map(PathBuf::from));
    let absolute = folders.into_iter().filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join(LIBRARY)).find(|path| system.has(path))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::system::made_up::system;
    use super::*;

    const LINE: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (x)  Mon Jan\n\
        GCC version:  gcc version 12.3.0\n";

    #[test]
    fn two_gpus_in_order() {
        let (_folder, system) = system(&[
            ("proc/driver/nvidia/version", LINE),
            ("proc/driver/nvidia/gpus/0000:8A:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 5\n"),
            ("proc/driver/nvidia/gpus/0000:0a:00.0/information", ""),
            ("sys/bus/pci/devices/0000:8a:00.0/max_link_speed", "32.0 GT/s PCIe\n"),
            ("sys/bus/pci/devices/0000:8a:00.0/max_link_width", "16\n"),
            ("sys/bus/pci/devices/0000:8a:00.0/numa_node", "1\n"),
            ("sys/bus/pci/devices/0000:0a:00.0/numa_node", "-1\n"),
            ("sys/bus/pci/devices/0000:8a:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:8a:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:8a:00.1/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:8a:00.1/class", "0x040300\n"),
            ("dev/nvidia0", ""),
            ("dev/nvidia1", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-caps/x", ""),
            ("etc/ld.so.conf.d/cuda.conf", "# here\n/opt/cuda/lib\n"),
            ("opt/cuda/lib/libcuda.so.1", ""),
        ]);
        let found = Nvidia::of(&system, None);
        assert_eq!(found.version.as_deref(), Some("570.86.10"));
        assert_eq!((found.devices, found.on_bus, found.no_device.as_slice()), (2, 1, &["nvidia-uvm"][..]));
        let gpu = |bus: &str| found.gpus.iter().find(|g| g.bus == bus).unwrap().clone();
        assert_eq!(gpu("0000:8A:00.0").name.as_deref(), Some("NVIDIA H200"));
        assert_eq!(gpu("0000:8A:00.0").link.as_deref(), Some("32.0 GT/s PCIe x16"));
        assert_eq!((gpu("0000:8A:00.0").node, gpu("0000:0a:00.0").node), (Some(1), None));
        assert_eq!(found.library.as_deref(), Some(Path::new("/opt/cuda/lib/libcuda.so.1")));
        assert_eq!(gpu("0000:0a:00.0").name, None);
    }

    #[test]
    fn none_of_it() {
        let (_folder, system) = system(&[("dev/nvidia-modeset", ""), ("usr/lib64/libcuda.so.1", "")]);
        let found = Nvidia::of(&system, Some(OsStr::new("relative::/absent")));
        assert_eq!((found.driver, found.version, found.gpus.len(), found.devices), (None, None, 0, 0));
        assert_eq!(found.library.as_deref(), Some(Path::new("/usr/lib64/libcuda.so.1")));
        assert_eq!(found.no_device, ["nvidiactl", "nvidia-uvm"]);
    }

    #[test]
    fn versions() {
        for (line, wanted) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu", Some("550.54.14")),
            ("NVRM version: none", None),
            ("1..2 .", None),
        ] {
            assert_eq!(version(line), wanted);
        }
    }
}
