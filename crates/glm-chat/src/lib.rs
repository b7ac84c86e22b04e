//! See the README of this crate.
