//! Any bytes as a header: no panic, no memory out of proportion, promises kept, and what is accepted survives writing.

#![no_main]

#[path = "../../examples/hammer/exercise.rs"]
mod exercise;
#[path = "../../examples/hammer/limited.rs"]
mod limited;

#[global_allocator]
static ALLOCATOR: limited::Limited = limited::Limited;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exercise::exercise(bytes));
