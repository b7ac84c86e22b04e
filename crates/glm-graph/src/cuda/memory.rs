//! What lies where in device memory: every buffer is planned first, and all of them are one allocation.

use std::fmt;

use quant_kernels::cuda::{Buffer, Context};

use crate::error::ExecError;

/// Where a buffer may begin: what the driver aligns an allocation to.
const ALIGNMENT: u64 = 256;

/// What a buffer is for, as a refusal names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Dense,
    Experts,
    Vectors,
    States,
    Caches,
    Drawing,
    Scratch,
}

impl Part {
    const ALL: [Self; 7] =
        [Self::Dense, Self::Experts, Self::Vectors, Self::States, Self::Caches, Self::Drawing, Self::Scratch];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dense => "dense weights",
            Self::Experts => "routed experts",
            Self::Vectors => "vectors and tables",
            Self::States => "recurrent states",
            Self::Caches => "latents and pooled keys",
            Self::Drawing => "tokens and their counts",
            Self::Scratch => "buffers of a pass",
        })
    }
}

/// A buffer's beginning, relative to the allocation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) u64);

/// Bytes of everything on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePlan {
    bytes: [u64; 7],
    end: u64,
}

impl DevicePlan {
    /// A buffer of `bytes` bytes, with sixteen more behind it that copies of whole sixteens may read.
    pub(super) fn place(&mut self, part: Part, bytes: u64) -> Place {
        let begin = self.end;
        let whole = (bytes + 16).next_multiple_of(ALIGNMENT);
        self.bytes[part as usize] += whole;
        self.end += whole;
        Place(begin)
    }

    /// A buffer of `len` values of four bytes.
    pub(super) fn words(&mut self, part: Part, len: usize) -> Place {
        self.place(part, 4 * len as u64)
    }

    /// All bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.end
    }

    /// Bytes of what has to be brought there: weights, vectors and tables.
    #[must_use]
    pub fn weights(&self) -> u64 {
        [Part::Dense, Part::Experts, Part::Vectors].map(|part| self.bytes[part as usize]).iter().sum()
    }

    /// Bytes of routed experts.
    #[must_use]
    pub fn experts(&self) -> u64 {
        self.bytes[Part::Experts as usize]
    }
}

impl fmt::Display for DevicePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for part in Part::ALL {
            let bytes = self.bytes[part as usize];
            if bytes > 0 {
                let comma = if first { "" } else { ", " };
                write!(f, "{comma}{:.1} MB of {part}", bytes as f64 / 1e6)?;
                first = false;
            }
        }
        Ok(())
    }
}

/// Bytes that may be taken: what is free, and no more than `limit`.
pub(super) fn room(context: &Context, limit: Option<u64>) -> Result<u64, ExecError> {
    let (free, _) = context.memory()?;
    Ok(limit.unwrap_or(u64::MAX).min(free as u64))
}

/// The allocation of a plan.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) buffer: Buffer,
}

impl Memory {
    /// Takes what the plan asks for, if `limit` and the device have it. Everything but the weights is zero.
    pub(super) fn take(context: &Context, plan: &DevicePlan, limit: Option<u64>) -> Result<Self, ExecError> {
        let (free, _) = context.memory()?;
        let room = room(context, limit)?;
        if plan.total() > room {
            return Err(ExecError::DeviceMemory {
                needed: plan.total(),
                room,
                limited: limit.is_some_and(|limit| limit <= free as u64),
                parts: plan.to_string(),
            });
        }
        let mut buffer = Buffer::new(context, plan.total() as usize)?;
        buffer.fill_zero()?;
        Ok(Self { buffer })
    }

    pub(super) fn at(&self, place: Place) -> u64 {
        self.buffer.address() + place.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_have_room_behind_them() {
        let mut plan = DevicePlan::default();
        let places: Vec<Place> =
            [0, 1, 240, 241, 4096].map(|bytes| plan.place(Part::Scratch, bytes)).into_iter().collect();
        assert_eq!(places, [0, 256, 512, 768, 1280].map(Place).to_vec());
        assert_eq!(plan.total(), 1280 + 4096 + 256);
    }

    #[test]
    fn a_plan_names_its_parts() {
        let mut plan = DevicePlan::default();
        plan.place(Part::Dense, 2_000_000);
        plan.words(Part::States, 1_000_000);
        assert_eq!(plan.to_string(), "2.0 MB of dense weights, 4.0 MB of recurrent states");
        assert_eq!(plan.experts(), 0);
    }
}
