//! Where each expert lies in the files, and the memory it takes.

use std::fmt;

use nvme_reader::{Part, Reader};

use super::moe;
use crate::error::ExecError;
use crate::model::Model;

/// Gate, up and down.
pub(super) const PARTS: usize = 3;

/// One layer's experts.
pub(super) struct Layer {
    pub(super) block: usize,
    /// The file, and where expert 0's part begins; how far the next expert's is.
    pub(super) parts: [Stride; PARTS],
    /// Bytes that any expert of the layer needs with its parts widened to what direct reads want.
    pub(super) slot_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stride {
    set: u32,
    offset: u64,
    len: u32,
}

impl Layer {
    /// The ranges of an expert, each with the file it is in: shards may be cut between them.
    pub(super) fn parts_of(&self, expert: u32) -> [(u32, Part); PARTS] {
        self.parts.map(|it| {
            let offset = it.offset + u64::from(expert) * u64::from(it.len);
            (it.set, Part { offset, len: it.len })
        })
    }

    /// Bytes of one expert.
    pub(super) fn expert_bytes(&self) -> u64 {
        self.parts.iter().map(|it| u64::from(it.len)).sum()
    }
}

/// All MoE layers of the trunk.
pub(super) fn layers(model: &Model, reader: &Reader<&'static mut [u8]>) -> Result<Vec<Layer>, ExecError> {
    let experts = model.config().experts as u32;
    let mut layers = Vec::new();
    for block in 0..model.config().trunk {
        let Some(weights) = moe(model, block) else { continue };
        let mut parts = [Stride { set: 0, offset: 0, len: 0 }; PARTS];
        for (stride, stack) in parts.iter_mut().zip([&weights.gate, &weights.up, &weights.down]) {
            let extent = stack.extent(0);
            let len = u32::try_from(extent.len).map_err(|_| {
                ExecError::Tiers(format!(
                    "an expert of {} has {} bytes, which is too much for one read",
                    stack.name(),
                    extent.len
                ))
            })?;
            *stride = Stride { set: u32::from(extent.shard), offset: extent.offset, len };
        }
        let mut layer = Layer { block, parts, slot_bytes: 0 };
        for expert in 0..experts {
            let room = reader.room(0, layer.parts_of(expert)).ok_or_else(|| {
                ExecError::Tiers(format!("expert {expert} of block {block} ends beyond what a file can have"))
            })?;
            layer.slot_bytes = layer.slot_bytes.max(room);
        }
        layers.push(layer);
    }
    if layers.is_empty() {
        return Err(ExecError::Tiers("the model has no routed experts to keep in tiers".to_owned()));
    }
    Ok(layers)
}

/// How memory for routed experts is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierPlan {
    /// Slots of each MoE layer of the trunk.
    pub slots: Vec<u32>,
    /// Bytes of these slots.
    pub slot_bytes: u64,
    /// Transit blobs: twice the experts of a token.
    pub landings: u16,
    /// Bytes of these blobs; memory is taken as they are used.
    pub landing_bytes: u64,
    /// Whether they are counted inside the limit.
    pub landing_inside: bool,
    /// Bytes of slots for every expert.
    pub all_bytes: u64,
}

impl TierPlan {
    /// Bytes that the tiers may take in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.slot_bytes + if self.is_whole() { 0 } else { self.landing_bytes }
    }

    /// Whether every expert has a slot.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.slot_bytes >= self.all_bytes
    }
}

impl fmt::Display for TierPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let slots: u64 = self.slots.iter().map(|n| u64::from(*n)).sum();
        let (least, most) = (self.slots.iter().min().unwrap_or(&0), self.slots.iter().max().unwrap_or(&0));
        write!(f, "{slots} expert slots in {:.1} MB, {least} to {most} a layer", mb(self.slot_bytes))?;
        if self.is_whole() {
            return f.write_str(": every expert has one");
        }
        let place = if self.landing_inside { "inside the limit" } else { "on top of the limit" };
        write!(f, "; landing area of {} blobs, {:.1} MB, {place}", self.landings, mb(self.landing_bytes))
    }
}
