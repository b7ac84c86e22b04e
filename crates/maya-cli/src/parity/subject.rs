//! The model files that are compared, and executors over them.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use glm_graph::{CpuExecutor, CpuOptions, Kv, Model};
use quant_kernels::Precision;

use super::golden::{Fixtures, Golden};
use super::q8;
use super::table::Table;

/// A model file with golden values.
#[derive(Debug)]
pub struct Subject {
    /// As it is called in the table.
    pub name: &'static str,
    /// The file to open.
    file: &'static str,
    /// Whose golden values are its own.
    golden: &'static str,
    /// F32 weights: no arithmetic rounds activations to 8 bits.
    pub is_f32: bool,
}

/// Every text model of the fixtures; both spellings of the architecture and a split set are among them.
pub const SUBJECTS: [Subject; 8] = [
    subject("tiny-a.f32", "tiny-a.f32.gguf", "tiny-a.f32", true),
    subject("tiny-a.q8_0", "tiny-a.q8_0.gguf", "tiny-a.q8_0", false),
    subject("tiny-a.maya", "tiny-a.maya.gguf", "tiny-a.maya", false),
    subject("tiny-a.glm5next", "tiny-a.glm5next.gguf", "tiny-a.maya", false),
    subject("tiny-b.f32", "tiny-b.f32.gguf", "tiny-b.f32", true),
    subject("tiny-b.q8_0", "tiny-b.q8_0.gguf", "tiny-b.q8_0", false),
    subject("tiny-b.maya", "tiny-b.maya-00001-of-00003.gguf", "tiny-b.maya", false),
    subject("tiny-vision.f32", "tiny-vision.f32.gguf", "tiny-vision.f32", true),
];

const fn subject(name: &'static str, file: &'static str, golden: &'static str, is_f32: bool) -> Subject {
    Subject { name, file, golden, is_f32 }
}

/// A subject whose file and golden values are here.
pub struct Loaded {
    /// What it is.
    pub subject: &'static Subject,
    /// The model.
    pub model: Arc<Model>,
    /// What it must give.
    pub golden: Golden,
}

impl Subject {
    /// Model and golden values; `None` and a skipped row if either is not here.
    pub fn load(
        &'static self,
        level: &'static str,
        fixtures: &Fixtures,
        table: &mut Table,
    ) -> Result<Option<Loaded>> {
        let Some(path) = self.path(fixtures)? else {
            table.skipped(level, self.name, format!("{} is not here", self.file));
            return Ok(None);
        };
        let golden = format!("{}.golden.safetensors", self.golden);
        let Some(golden) = fixtures.golden(&golden)? else {
            table.skipped(level, self.name, format!("{golden} is not here"));
            return Ok(None);
        };
        let model = gguf::Model::open(&path)?;
        let model = Model::load(model).with_context(|| format!("{} cannot be used", path.display()))?;
        Ok(Some(Loaded { subject: self, model: Arc::new(model), golden }))
    }

    /// The family of sizes, which has its own tolerance: `tiny-a`.
    pub fn family(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }

    /// Its name in the yardstick.
    pub fn peer(&self) -> &'static str {
        self.golden
    }

    fn path(&self, fixtures: &Fixtures) -> Result<Option<PathBuf>> {
        if self.file == q8::FILE {
            let Some(source) = fixtures.path(q8::SOURCE) else { return Ok(None) };
            q8::make(fixtures, &source, q8::FILE)?;
        }
        Ok(fixtures.path(self.file))
    }
}

impl Loaded {
    /// An executor over the model.
    pub fn executor(&self, precision: Precision, kv: Kv) -> Result<CpuExecutor> {
        // The longest prompt, its greedy continuation and drafts; more would only cost memory.
        let ctx = 640;
        let options = CpuOptions { precision, kv, threads: None, ctx, isa: None, tiers: None };
        Ok(CpuExecutor::new(Arc::clone(&self.model), options)?)
    }
}
