//! Tests of the crate through its public face.
#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod injection;
mod python_json;
mod rendering;
mod reply;
mod splitting;
mod tokenizer;
mod traps;
mod vocabulary;
