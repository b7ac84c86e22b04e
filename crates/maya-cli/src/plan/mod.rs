//! Predicted speed of decoding on a machine: sizes of the model, costs of the lanes, popularity of the experts, where they
//! lie, and two ways of adding it up.

pub mod article;
pub mod bound;
pub mod machine;
pub mod measure;
pub mod named;
pub mod place;
pub mod popularity;
pub mod report;
pub mod sizes;
