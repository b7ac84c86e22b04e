//! The sizes that a directory is made for.

use crate::error::ConfigError;

/// How many slots there are, of what, and how they are reached. Fixed for the life of a directory; how many of the slots
/// may be used is [`Limits`], which changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Experts of each layer.
    pub experts: u16,
    /// Slots of the near tier that exist, by layer. Their number is the number of layers.
    pub near: Vec<u32>,
    /// The size class in the host arena of each layer's experts.
    pub class: Vec<u8>,
    /// Slots of the host arena that exist, by size class. Empty without a host tier.
    pub host: Vec<u32>,
    /// Near slots that a layer keeps empty for the next misses, as far as [`spares_of`](Self::spares_of) lets it.
    pub spares: u32,
    /// Near slots of a layer that the claimer may know of as spares at once.
    pub offers: u16,
    /// Whether a spare may still hold an expert, which is evicted by the claim itself. Every slot is then of use until the
    /// miss that needs it; a victim whose bytes must be copied to the host first leaves its slot empty all the same.
    pub yielding: bool,
    /// Host slots of each class kept free, or holding shadows, for reads and demotions.
    pub host_spares: u32,
    /// Transit blobs beside the near tier: a miss that is not promoted is computed from one.
    pub scratch: u16,
    /// Transit blobs beside the host tier, for drive reads that find no free host slot.
    pub landings: u16,
    /// Whether the drive reaches near memory by itself (the near tier is RAM) or by way of the host.
    pub direct: bool,
    /// Tokens for which the host tier keeps what was used.
    pub window: u64,
    /// Routed experts of a layer after which its counts are halved; 0 for never.
    pub half_life: u64,
}

impl Geometry {
    /// Two tiers: near memory that the drive reaches by itself, with `slots` slots a layer.
    #[must_use]
    pub fn two_tiers(experts: u16, slots: Vec<u32>, k: u16) -> Self {
        let class = vec![0; slots.len()];
        Self {
            experts,
            near: slots,
            class,
            host: Vec::new(),
            spares: 3,
            offers: 16,
            yielding: true,
            host_spares: 0,
            scratch: k.saturating_mul(2),
            landings: 0,
            direct: true,
            window: 0,
            half_life: half_life(195, k),
        }
    }

    /// Layers.
    #[must_use]
    pub fn layers(&self) -> u16 {
        self.near.len() as u16
    }

    /// Slots that a layer with `slots` of them keeps empty: the rule of
    /// [`SlotRules::spares_of`](crate::SlotRules::spares_of).
    #[must_use]
    pub fn spares_of(&self, slots: u32) -> u32 {
        crate::budget::spares(self.spares, slots, u32::from(self.experts))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.near.is_empty() || self.near.len() > usize::from(u16::MAX) {
            return Err(ConfigError::Layers(self.near.len()));
        }
        if self.experts == 0 {
            return Err(ConfigError::NoExperts);
        }
        if self.class.len() != self.near.len() {
            return Err(ConfigError::Classes { found: self.class.len(), layers: self.near.len() });
        }
        let classes = self.host.len();
        if let Some(layer) = self.class.iter().position(|c| classes > 0 && usize::from(*c) >= classes) {
            return Err(ConfigError::Class { layer, class: self.class[layer], classes });
        }
        if self.direct && !self.host.is_empty() {
            return Err(ConfigError::DirectHost);
        }
        let total = |slots: &[u32]| slots.iter().map(|n| u64::from(*n)).sum::<u64>();
        let experts = self.near.len() as u64 * u64::from(self.experts);
        if [experts, total(&self.near), total(&self.host)].iter().any(|n| *n > MOST) {
            return Err(ConfigError::TooMany);
        }
        if self.scratch == 0 {
            return Err(ConfigError::NoScratch);
        }
        if !self.direct && self.landings == 0 {
            return Err(ConfigError::NoLandings);
        }
        if self.offers == 0 {
            return Err(ConfigError::NoOffers);
        }
        Ok(())
    }
}

/// Experts, near slots and host slots at most: a hundred times what the largest models have. More is a wrong number, which
/// is to be a sentence and not memory that runs out.
const MOST: u64 = 1 << 22;

/// Events of a layer in `tokens` tokens of `k` experts each.
#[must_use]
pub fn half_life(tokens: u64, k: u16) -> u64 {
    tokens.saturating_mul(u64::from(k))
}

/// How many of the slots may hold experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Near slots, by layer.
    pub near: Vec<u32>,
    /// Host slots, by class.
    pub host: Vec<u32>,
}

impl Limits {
    /// All slots there are.
    #[must_use]
    pub fn all(geometry: &Geometry) -> Self {
        Self { near: geometry.near.clone(), host: geometry.host.clone() }
    }

    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let fits = |limits: &[u32], slots: &[u32]| {
            limits.len() == slots.len() && limits.iter().zip(slots).all(|(limit, slots)| limit <= slots)
        };
        if fits(&self.near, &geometry.near) && fits(&self.host, &geometry.host) {
            return Ok(());
        }
        Err(ConfigError::Limits)
    }
}
