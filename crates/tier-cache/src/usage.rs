//! What is kept of one run for the next: how often each expert was used, and where it was at the end.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `TIERUSE` and a zero byte |
//! | 4 | version, 1 |
//! | 4, 4 | layers, experts of a layer |
//! | 4 | length of the identity, at most 255 |
//! | - | the identity |
//! | 4 each | counts, by layer and then by expert |
//! | 1 each | owners, in the same order |
//! | 8 | FNV-1a of all bytes before |
//!
//! Numbers are little-endian. [`Usage::decode`] is pure and takes any bytes; saving and loading are in `usage_file.rs`.

use std::io;

use crate::id::ExpertId;

/// How a file begins.
pub(crate) const MAGIC: &[u8; 8] = b"TIERUSE\0";
const VERSION: u32 = 1;
/// Everything but the identity, the counts and the owners.
const FIXED_BYTES: usize = 8 + 4 + 4 + 4 + 4 + 8;

/// The most layers, and the most experts of a layer: numbers of both have 16 bits.
const MAX_SIDE: u32 = 1 << 16;
/// The most bytes of a file: four million experts. Larger ones are not read.
pub(crate) const MAX_FILE_BYTES: u64 = 20 << 20;
/// The most bytes of an identity.
pub const MAX_IDENTITY: usize = 255;

/// Where an expert was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nowhere but on the drive.
    #[default]
    Drive,
    /// In host memory.
    Host,
    /// In the near tier: device memory.
    Device,
}

/// Counts and owners of all experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    layers: u32,
    experts: u32,
    /// By layer and then by expert; both have `layers * experts` elements.
    counts: Box<[u32]>,
    owners: Box<[Owner]>,
}

/// Why a file of usage is not used. None of it is an error: a run without one is only slower at first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ignored {
    /// The system does not open or read it.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The path leads to something else.
    #[error("it is not a file")]
    NotAFile,
    /// It is larger than any that is written.
    #[error("it has {bytes} bytes, more than the limit of {MAX_FILE_BYTES}")]
    TooLarge {
        /// Its length in bytes.
        bytes: u64,
    },
    /// Its first bytes are others.
    #[error("it does not begin as a usage file does")]
    Magic,
    /// It was written in another layout.
    #[error("it has version {version}, and this program knows {VERSION}")]
    Version {
        /// The version that it names.
        version: u32,
    },
    /// Its identity is not the one that was asked for.
    #[error("it is of another model")]
    Foreign,
    /// Its sides are none that are written.
    #[error("it claims {layers} layers of {experts} experts; up to {MAX_SIDE} of each are allowed")]
    Shape {
        /// Layers that it claims.
        layers: u32,
        /// Experts of a layer that it claims.
        experts: u32,
    },
    /// Its identity is longer than any that is written.
    #[error("it claims an identity of {bytes} bytes; up to {MAX_IDENTITY} are allowed")]
    Identity {
        /// Bytes of identity that it claims.
        bytes: u32,
    },
    /// It is cut off, or something follows its end.
    #[error("it has {found} bytes and should have {wanted}")]
    Length {
        /// Its length in bytes.
        found: usize,
        /// The length in bytes that its own numbers make.
        wanted: u64,
    },
    /// Its bytes are not those that were written.
    #[error("it is damaged: its checksum is {found:016x} and should be {wanted:016x}")]
    Checksum {
        /// The checksum of its bytes.
        found: u64,
        /// The checksum that stands in it.
        wanted: u64,
    },
    /// An expert's place is none of those that are numbered.
    #[error("the owner at byte {at} is {value}, which means nothing")]
    Owner {
        /// Where in the file, in bytes.
        at: usize,
        /// The byte that stands there.
        value: u8,
    },
}

impl Usage {
    /// Nothing used yet, everything on the drive. None if there are more layers or experts than can be saved.
    pub fn new(layers: u32, experts: u32) -> Option<Self> {
        let n = n_experts(layers, experts).filter(|n| file_bytes(*n, MAX_IDENTITY) <= MAX_FILE_BYTES)?;
        let n = n as usize;
        Some(Self { layers, experts, counts: vec![0; n].into(), owners: vec![Owner::Drive; n].into() })
    }

    /// The number of layers.
    pub fn layers(&self) -> u32 {
        self.layers
    }

    /// The number of experts of each layer.
    pub fn experts(&self) -> u32 {
        self.experts
    }

    /// Decayed number of uses of each expert, by layer and then by expert.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The same, to be filled in.
    pub fn counts_mut(&mut self) -> &mut [u32] {
        &mut self.counts
    }

    /// Owners in the same order.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// The same, to be filled in.
    pub fn owners_mut(&mut self) -> &mut [Owner] {
        &mut self.owners
    }

    /// The place of an expert in [`counts`](Self::counts) and [`owners`](Self::owners).
    pub fn index(&self, id: ExpertId) -> Option<usize> {
        let inside = u32::from(id.layer) < self.layers && u32::from(id.expert) < self.experts;
        inside.then(|| id.layer as usize * self.experts as usize + id.expert as usize)
    }

    /// The counts of a layer; empty if there is no such layer.
    pub fn layer_counts(&self, layer: u16) -> &[u32] {
        let start = layer as usize * self.experts as usize;
        self.counts.get(start..start + self.experts as usize).unwrap_or(&[])
    }

    /// The bytes of a file. `identity` names the model; a longer one than [`MAX_IDENTITY`] is cut, here and when it is
    /// compared.
    pub fn encode(&self, identity: &[u8]) -> Vec<u8> {
        let identity = cut(identity);
        let mut bytes = Vec::with_capacity(FIXED_BYTES + identity.len() + self.counts.len() * 5);
        bytes.extend_from_slice(MAGIC);
        for number in [VERSION, self.layers, self.experts, identity.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(identity);
        for count in &self.counts {
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.extend(self.owners.iter().map(|owner| match owner {
            Owner::Drive => 0,
            Owner::Host => 1,
            Owner::Device => 2_u8,
        }));
        bytes.extend_from_slice(&fnv1a(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the bytes of a file of the model that `identity` names.
    ///
    /// # Errors
    /// Whatever is wrong with them. Nothing is allocated before their length was found to be right.
    pub fn decode(bytes: &[u8], identity: &[u8]) -> Result<Self, Ignored> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(Ignored::Magic);
        }
        let short = Ignored::Length { found: bytes.len(), wanted: FIXED_BYTES as u64 };
        let version = u32_at(bytes, 8).ok_or(short)?;
        if version != VERSION {
            return Err(Ignored::Version { version });
        }
        let number = |at| u32_at(bytes, at).filter(|_| bytes.len() >= FIXED_BYTES);
        let (Some(layers), Some(experts), Some(id_bytes)) = (number(12), number(16), number(20)) else {
            return Err(Ignored::Length { found: bytes.len(), wanted: FIXED_BYTES as u64 });
        };
        let n = n_experts(layers, experts).ok_or(Ignored::Shape { layers, experts })?;
        if id_bytes as usize > MAX_IDENTITY {
            return Err(Ignored::Identity { bytes: id_bytes });
        }
        let wanted = file_bytes(n, id_bytes as usize);
        if bytes.len() as u64 != wanted {
            return Err(Ignored::Length { found: bytes.len(), wanted });
        }
        let (body, sum) = bytes.split_at(bytes.len() - 8);
        let wanted = sum.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let found = fnv1a(body);
        if found != wanted {
            return Err(Ignored::Checksum { found, wanted });
        }
        // Only a file that is whole can be said to be of another model.
        let (file_identity, rest) = body[24..].split_at(id_bytes as usize);
        if file_identity != cut(identity) {
            return Err(Ignored::Foreign);
        }
        let (counts, owners) = rest.split_at(n as usize * 4);
        let owner = |(i, value): (usize, &u8)| match value {
            0 => Ok(Owner::Drive),
            1 => Ok(Owner::Host),
            2 => Ok(Owner::Device),
            value => Err(Ignored::Owner { at: body.len() - owners.len() + i, value: *value }),
        };
        Ok(Self {
            layers,
            experts,
            counts: counts.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect(),
            owners: owners.iter().enumerate().map(owner).collect::<Result<_, _>>()?,
        })
    }
}

fn n_experts(layers: u32, experts: u32) -> Option<u64> {
    (layers <= MAX_SIDE && experts <= MAX_SIDE).then(|| u64::from(layers) * u64::from(experts))
}

/// Cannot overflow: at most 2^32 experts.
fn file_bytes(experts: u64, identity: usize) -> u64 {
    (FIXED_BYTES + identity) as u64 + experts * 5
}

fn cut(identity: &[u8]) -> &[u8] {
    &identity[..identity.len().min(MAX_IDENTITY)]
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// FNV-1a with 64 bits: each step is invertible, so a change of one byte always changes the sum.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
