//! How many slots each layer gets of a number of bytes.
//!
//! Slots are given one at a time, in an order that does not depend on the bytes, until the next one does not fit. So
//! more bytes never give any layer less, and what stays unused is less than one slot.
//!
//! First every layer gets the same number, its floor: the experts of one token, the spares, and some more, so that no
//! layer starves however flat its routing is. Then the next slot goes where it catches the most routing. Its bytes do not
//! count: a larger blob costs more memory and saves as much more of the drive's time with each miss that it spares.

use crate::host_layout::MAX_SLOTS;
use crate::shares::Shares;

/// The most experts of a layer: an expert's number has 16 bits.
const MAX_EXPERTS: u32 = 1 << 16;

/// Slots beyond the experts of a token and the spares that every layer gets before shares decide.
const FLOOR_HEADROOM: u32 = 16;

/// A layer with fewer slots keeps none empty: it would hold next to nothing.
const FEWEST_TO_SPARE: u32 = 4;

/// What a budget must know of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNeed {
    /// Bytes of one slot, not 0.
    pub slot_bytes: u64,
    /// Experts of the layer; it never gets more slots than that.
    pub experts: u32,
    /// How its routing is spread. A layer of which nothing is known is taken for the mean of the others.
    pub shares: Shares,
}

/// What is the same for all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRules {
    /// Experts that one token uses in a layer.
    pub experts_per_token: u32,
    /// Slots of a layer that are kept for the next miss.
    pub spares: u32,
    /// Whether a spare goes on holding its expert until it is claimed ([`Geometry::yielding`](crate::Geometry::yielding)).
    pub yielding: bool,
}

impl SlotRules {
    /// The spares among `slots` slots of a layer of `experts` experts: none in a layer with fewer than four slots, none
    /// where every expert has its own slot and nothing can miss, and never the last slot. A
    /// [`Geometry`](crate::Geometry) keeps as many.
    pub fn spares_of(&self, slots: u32, experts: u32) -> u32 {
        spares(self.spares, slots, experts)
    }

    /// The experts that `slots` slots hold at a token's end.
    pub fn residents_of(&self, slots: u32, experts: u32) -> u32 {
        let empty = if self.yielding { 0 } else { self.spares_of(slots, experts) };
        slots.min(experts) - empty.min(slots)
    }

    fn floor(&self, experts: u32) -> u32 {
        self.experts_per_token.saturating_add(self.spares).saturating_add(FLOOR_HEADROOM).min(experts)
    }
}

/// The one rule for spares: what a budget divides by and what a directory keeps free must not differ.
pub(crate) fn spares(wanted: u32, slots: u32, experts: u32) -> u32 {
    if slots < FEWEST_TO_SPARE || slots >= experts { 0 } else { wanted.min(slots - 1) }
}

/// Why there is no partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// A layer's slots would take nothing.
    #[error("layer {layer} has slots of 0 bytes")]
    LayerSlotBytes {
        /// Index of the layer.
        layer: usize,
    },
    /// A size class's slots would take nothing.
    #[error("size class {class} has slots of 0 bytes")]
    ClassSlotBytes {
        /// Index of the class.
        class: usize,
    },
    /// A layer has more experts than have numbers.
    #[error("layer {layer} has {experts} experts, more than the limit of {MAX_EXPERTS}")]
    LayerExperts {
        /// Index of the layer.
        layer: usize,
        /// Experts that it has.
        experts: u32,
    },
    /// A size class has more experts than an arena has slots.
    #[error("size class {class} has {experts} experts, more than the limit of {MAX_SLOTS}")]
    ClassExperts {
        /// Index of the class.
        class: usize,
        /// Experts of that size.
        experts: u32,
    },
}

/// The slots of each layer, or of each size class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Slots of each, in the order of the needs.
    pub slots: Vec<u32>,
    /// Bytes that these slots take; at most what was available.
    pub bytes: u64,
}

impl Budget {
    /// Divides `bytes` bytes among layers. With room for all, every layer gets exactly a slot for each expert.
    ///
    /// # Errors
    /// A layer whose slots have no bytes, or with more experts than can be numbered.
    pub fn for_layers(bytes: u64, layers: &[LayerNeed], rules: SlotRules) -> Result<Self, BudgetError> {
        if let Some(layer) = layers.iter().position(|need| need.slot_bytes == 0) {
            return Err(BudgetError::LayerSlotBytes { layer });
        }
        if let Some(layer) = layers.iter().position(|need| need.experts > MAX_EXPERTS) {
            return Err(BudgetError::LayerExperts { layer, experts: layers[layer].experts });
        }
        let shares = known_shares(layers);
        let mut given = Self { slots: vec![0; layers.len()], bytes: 0 };

        let floors: Vec<u32> = layers.iter().map(|need| rules.floor(need.experts)).collect();
        for level in 0..floors.iter().copied().max().unwrap_or(0) {
            for (layer, need) in layers.iter().enumerate().filter(|(layer, _)| level < floors[*layer]) {
                if !given.give(layer, need.slot_bytes, bytes) {
                    return Ok(given);
                }
            }
        }
        let value = |layer: usize, slots: u32| {
            let need = &layers[layer];
            let held = |slots| rules.residents_of(slots, need.experts);
            // The slot that completes a layer frees its spares too, so it can be worth several experts.
            let caught: f64 = (held(slots)..held(slots + 1)).map(|rank| shares[layer].at(rank)).sum();
            caught
        };
        let open = |layer: usize, slots: u32| slots < layers[layer].experts;
        let mut values: Vec<f64> = (0..layers.len())
            .map(|l| if open(l, given.slots[l]) { value(l, given.slots[l]) } else { 0.0 })
            .collect();
        loop {
            // Among equals the layer with the fewest slots, then the first: layers of which nothing sets one apart from
            // the other stay level.
            let best = (0..layers.len()).filter(|layer| open(*layer, given.slots[*layer])).min_by(|a, b| {
                let more = values[*b].total_cmp(&values[*a]);
                more.then(given.slots[*a].cmp(&given.slots[*b])).then(a.cmp(b))
            });
            let Some(layer) = best.filter(|layer| given.give(*layer, layers[*layer].slot_bytes, bytes))
            else {
                return Ok(given);
            };
            if open(layer, given.slots[layer]) {
                values[layer] = value(layer, given.slots[layer]);
            }
        }
    }

    /// Divides `bytes` bytes among size classes, each given as the bytes of a slot and the number of experts of that
    /// size, so that the same part of each has a slot. With room for all, every class gets exactly its experts.
    ///
    /// # Errors
    /// A class whose slots have no bytes, or with more experts than an arena can have slots.
    pub fn for_classes(bytes: u64, classes: &[(u64, u32)]) -> Result<Self, BudgetError> {
        if let Some(class) = classes.iter().position(|(slot_bytes, _)| *slot_bytes == 0) {
            return Err(BudgetError::ClassSlotBytes { class });
        }
        if let Some(class) = classes.iter().position(|(_, experts)| *experts > MAX_SLOTS) {
            return Err(BudgetError::ClassExperts { class, experts: classes[class].1 });
        }
        let mut given = Self { slots: vec![0; classes.len()], bytes: 0 };
        loop {
            let open = (0..classes.len()).filter(|class| given.slots[*class] < classes[*class].1);
            let emptiest = open.min_by(|a, b| {
                // slots / experts of a against that of b, without a division.
                let filled = |of: usize, by: usize| u64::from(given.slots[of]) * u64::from(classes[by].1);
                filled(*a, *b).cmp(&filled(*b, *a)).then(a.cmp(b))
            });
            if !emptiest.is_some_and(|class| given.give(class, classes[class].0, bytes)) {
                return Ok(given);
            }
        }
    }

    /// The number of slots of all.
    pub fn total(&self) -> u64 {
        self.slots.iter().map(|slots| u64::from(*slots)).sum()
    }

    /// Adds a slot, if it fits into `limit` bytes.
    fn give(&mut self, to: usize, slot_bytes: u64, limit: u64) -> bool {
        match self.bytes.checked_add(slot_bytes).filter(|bytes| *bytes <= limit) {
            Some(bytes) => {
                self.bytes = bytes;
                self.slots[to] += 1;
                true
            }
            None => false,
        }
    }
}

/// The shares of each layer, with something in the place of nothing.
fn known_shares(layers: &[LayerNeed]) -> Vec<Shares> {
    let mean = Shares::mean(layers.iter().map(|need| &need.shares));
    let of = |need: &LayerNeed| match () {
        () if need.shares.is_known() => need.shares.clone(),
        () if mean.is_known() => mean.clone(),
        () => Shares::uniform(need.experts),
    };
    layers.iter().map(of).collect()
}
