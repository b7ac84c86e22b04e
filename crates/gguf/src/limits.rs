//! What a header may hold at most. Each limit is several times what the largest known file of this model needs, and
//! keeps every single allocation of the parser below 64 MB whatever the file says.

/// Bytes of a whole header; the real model's, with vocabulary and merges, has about 12 MB.
pub const HEADER_BYTES: u64 = 128 << 20;
/// Metadata keys; real files have about 75.
pub const KEYS: u64 = 1 << 16;
/// Bytes of a key (the format's own limit).
pub const KEY_BYTES: u64 = (1 << 16) - 1;
/// Bytes of a string value; a chat template has some 10 KB, a padded recipe a few hundred.
pub const STRING_BYTES: u64 = 32 << 20;
/// Elements of an array; the merges of the real vocabulary are 318 thousand. As strings (16 bytes each) 34 MB.
pub const ARRAY_LEN: u64 = 1 << 21;
/// Tensors of a file; the real model has 1,412.
pub const TENSORS: u64 = 1 << 18;
/// Bytes of a tensor's name (ggml itself stops at 63).
pub const NAME_BYTES: u64 = 256;
/// Dimensions of a tensor.
pub const DIMS: u32 = 4;
/// `general.alignment` is a power of two in this range: the format asks for multiples of 8, and the upper end keeps a
/// header of a few bytes from claiming gigabytes of padding.
pub const ALIGNMENT: std::ops::RangeInclusive<u64> = 8..=1 << 20;
/// Shards of a split set.
pub const SHARDS: u64 = 4096;
