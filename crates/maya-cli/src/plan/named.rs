//! Machines with a name: what somebody measured and published, and what is assumed where nobody did.

use clap::ValueEnum;

use super::machine::{Cost, Given, Room, Said};

/// A machine with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Named {
    /// Two V100 of 32 GB and 30 GB of RAM, as Project Maya's launch article counts them
    MayaLaunch,
    /// One V100 of 32 GB, a 6-core i5, 64 GB of RAM, a PCIe 4 drive
    #[value(name = "v100-64")]
    V100,
    /// One RTX 3090, 24 cores, four drives, RAM capped at 16 GB
    #[value(name = "rtx3090-16")]
    Rtx3090,
    /// One RTX 4090 of 24 GB, 8 cores, 90 GB of RAM, one drive
    #[value(name = "rtx4090-90")]
    Rtx4090,
    /// One RTX 4090 with 48 GB, 6 cores, 128 GB of RAM
    #[value(name = "rtx4090-48-128")]
    Rtx4090Big,
}

const ARTICLE: &str = "given: Project Maya's launch article";
const MAYA_LOG: &str = "given: Project Maya, progress log of the one-V100 machine";
const OFFLOAD: &str = "given: glm53-flash-offload, README and logs of the RTX 3090 machine";
const STRATA: &str = "given: Strata-GLM, notes of the RTX 4090 machine";

impl Named {
    /// Its numbers.
    pub fn given(self) -> Given {
        let name = self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
        let ms = |value: f64, source: &str| Some(Said::new(Cost::Ms(value), source));
        let gbps = |value: f64, source: &str| Some(Said::new(Cost::Gbps(value), source));
        let gb = |value: f64, source: &str| Some(Said::new(Room::Bytes(value * 1e9), source));
        let slots = |value: usize, source: &str| Some(Said::new(Room::Slots(value), source));
        // The cards of one family differ in memory only.
        let rtx4090 = Given {
            gpu: ms(
                23.8,
                "derived from Strata-GLM's anatomy: 16.4 ms of kernels with 142 hits of 0.038 ms, brought to 336",
            ),
            hit: ms(0.038, "given: Strata-GLM, 5.4 ms of hit kernels for 142 hits"),
            pull: ms(0.37, STRATA),
            ..Given::default()
        };
        match self {
            // 54 and 22 GB are slots; the article's machine had no CPU lane yet.
            Self::MayaLaunch => Given {
                name,
                gpu: ms(22.0, ARTICLE),
                hit: ms(0.016, "given: Project Maya, an expert in VRAM at 48 % of a V100's bandwidth"),
                pull: ms(0.62, ARTICLE),
                drive: ms(3.1, ARTICLE),
                vram: gb(54.0, ARTICLE),
                ram: gb(22.0, ARTICLE),
                ..Given::default()
            },
            Self::V100 => Given {
                name,
                gpu: ms(22.0, MAYA_LOG),
                hit: ms(0.016, "given: Project Maya, an expert in VRAM at 48 % of a V100's bandwidth"),
                pull: ms(0.62, MAYA_LOG),
                cpu: ms(0.36, MAYA_LOG),
                drive: ms(1.2, MAYA_LOG),
                vram: slots(3738, "given: Project Maya, slots of one V100 in its hit-rate table"),
                ram: gb(55.0, MAYA_LOG),
                ..Given::default()
            },
            // Their experts are of 9.44 MB, ours of 7.11: rates carry over, times do not.
            Self::Rtx3090 => Given {
                name,
                gpu: ms(
                    18.8,
                    "derived from glm53-flash-offload: 11.1 ms without experts and 336 hits of 0.023 ms",
                ),
                hit: ms(0.023, OFFLOAD),
                pull: gbps(15.5, "given: glm53-flash-offload, gather by the GPU while the CPU reads RAM too"),
                cpu: gbps(48.0, "derived from glm53-flash-offload: 9.44 MB in 0.196 ms"),
                drive: gbps(20.0, "given: glm53-flash-offload, four drives striped, under load"),
                vram: gb(
                    16.1,
                    "assumed: 24 GiB less 7.1 GB of other weights and 2.5 GB of state, caches and reserve",
                ),
                ram: gb(9.1, "derived from glm53-flash-offload: 965 slots of 9.44 MB under a cap of 16 GiB"),
                ..Given::default()
            },
            Self::Rtx4090 => Given {
                name,
                cpu: ms(0.36, STRATA),
                drive: gbps(2.5, "given: Strata-GLM, measured with dd"),
                vram: slots(1489, "given: Strata-GLM, slots at 300,000 tokens of context"),
                ram: gb(77.3, "given: Strata-GLM, an arena of 72 GiB"),
                ..rtx4090
            },
            Self::Rtx4090Big => Given {
                name,
                cpu: ms(0.5, "assumed: a 6-core Zen 2 is slower than the 8-core Zen 3 at 0.36 ms"),
                drive: gbps(2.5, "assumed: as the drive of rtx4090-90"),
                vram: gb(
                    41.9,
                    "assumed: 48 GiB less 7.1 GB of other weights and 2.5 GB of state, caches and reserve",
                ),
                ram: gb(100.0, "assumed: 128 GB less what the system and buffers take"),
                ..rtx4090
            },
        }
    }
}
