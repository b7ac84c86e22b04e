//! Golden models and values.

use std::path::Path;
use std::sync::Arc;

use glm_graph::{CpuExecutor, CpuOptions, Kv, Model};
use quant_kernels::Precision;
use safetensors::{Dtype, SafeTensors};

/// A model file and its golden values.
pub struct Fixture {
    pub model: Arc<Model>,
    golden: Vec<u8>,
}

/// One golden tensor as f32 or integers.
pub struct Values {
    pub shape: Vec<usize>,
    pub floats: Vec<f32>,
    pub ints: Vec<i64>,
}

pub fn open(path: &Path) -> Arc<Model> {
    let file = gguf::Model::open(path).expect("the fixture opens");
    Arc::new(Model::load(file).expect("the fixture loads"))
}

/// `tiny-a.maya` or the like; `None` (after a line on stderr) where the data is not here.
pub fn fixture(name: &str) -> Option<Fixture> {
    let file = if name == "tiny-b.maya" { "tiny-b.maya-00001-of-00003".to_owned() } else { name.to_owned() };
    let path = golden::gguf(&format!("{file}.gguf"))?;
    let golden = golden::file(&format!("{}.golden.safetensors", name.replace("glm5next", "maya")))?;
    Some(Fixture {
        model: open(&path),
        golden: std::fs::read(golden).expect("the golden values are readable"),
    })
}

pub fn options(precision: Precision, kv: Kv, threads: usize) -> CpuOptions {
    CpuOptions { precision, kv, threads: Some(threads), ctx: 4096, isa: None, tiers: None }
}

pub fn exact(model: &Arc<Model>) -> CpuExecutor {
    executor(model, Precision::Exact, Kv::F32, 2)
}

pub fn executor(model: &Arc<Model>, precision: Precision, kv: Kv, threads: usize) -> CpuExecutor {
    CpuExecutor::new(Arc::clone(model), options(precision, kv, threads)).expect("two threads start")
}

impl Fixture {
    pub fn values(&self, key: &str) -> Option<Values> {
        let tensors = SafeTensors::deserialize(&self.golden).expect("golden files are safetensors");
        let tensor = tensors.tensor(key).ok()?;
        let data = tensor.data();
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        match tensor.dtype() {
            Dtype::F32 => {
                floats.extend(data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())))
            }
            Dtype::F64 => {
                floats.extend(data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32));
            }
            Dtype::I32 => {
                ints.extend(
                    data.chunks_exact(4).map(|b| i64::from(i32::from_le_bytes(b.try_into().unwrap()))),
                );
            }
            Dtype::I16 => {
                ints.extend(
                    data.chunks_exact(2).map(|b| i64::from(i16::from_le_bytes(b.try_into().unwrap()))),
                );
            }
            other => panic!("golden tensors of type {other:?} are not read"),
        }
        Some(Values { shape: tensor.shape().to_vec(), floats, ints })
    }

    pub fn get(&self, prompt: &str, key: &str) -> Values {
        self.values(&format!("{prompt}.{key}")).unwrap_or_else(|| panic!("{prompt}.{key} is golden"))
    }

    pub fn tokens(&self, prompt: &str) -> Vec<u32> {
        self.get(prompt, "tokens").ints.iter().map(|id| *id as u32).collect()
    }
}

/// Largest absolute difference.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() }).fold(0.0, f32::max)
}

pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).reduce(|best, id| if logits[id] > logits[best] { id } else { best }).unwrap() as u32
}
