//! The crate against golden values, itself and broken files.

mod fixture;
mod parity;
