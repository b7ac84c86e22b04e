//! Files of the real shape with random weights.

pub mod blocks;
pub mod plan;
pub mod shape;
pub mod trace;
pub mod write;
