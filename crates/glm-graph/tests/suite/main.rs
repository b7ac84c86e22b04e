//! The crate against golden values, itself and broken files.

mod fast;
mod fixture;
mod invariance;
mod parity;
