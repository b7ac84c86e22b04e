//! Tests of the crate through its public face.

mod injection;
mod python_json;
mod rendering;
mod splitting;
mod tokenizer;
mod traps;
mod vocabulary;
