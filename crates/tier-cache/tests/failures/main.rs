//! Failures that other engines with experts on several tiers had, told as tests. The table in the README lists them, with
//! those that this crate has no part in.

mod batches;
mod memory;
mod residence;
mod routes;
#[path = "../scene/mod.rs"]
mod scene;
mod slots;
mod table;
