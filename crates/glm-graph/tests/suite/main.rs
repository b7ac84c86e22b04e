//! The crate against golden values, itself and broken files.

#![allow(clippy::unwrap_used)] // A test may panic.

mod ahead;
mod broken;
mod edit;
mod fast;
mod fixture;
mod invariance;
mod parity;
mod sequences;
mod tiers;
