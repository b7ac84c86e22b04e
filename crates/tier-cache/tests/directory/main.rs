//! Corners of the directory, one by one.

mod ahead;
mod budgets;
mod counts;
mod filling;
mod refusals;
#[path = "../scene/mod.rs"]
mod scene;
mod yielding;
