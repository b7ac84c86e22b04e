//! Copies of a small model with something changed.

use std::path::{Path, PathBuf};

use gguf::{GgmlType, Layout, Model as File, TensorInfo, Value};

/// A model to be: metadata and tensors, in memory.
pub struct Edit {
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

pub struct Tensor {
    pub name: String,
    pub ty: GgmlType,
    pub dims: Vec<u64>,
    pub bytes: Vec<u8>,
}

impl Edit {
    /// Everything of tiny-a.maya; `None` where it is not here.
    pub fn tiny_a() -> Option<Self> {
        let file = File::open(&golden::gguf("tiny-a.maya.gguf")?).expect("the fixture opens");
        let keys = file.metadata().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let tensor = |info: &TensorInfo| Tensor {
            name: info.name.to_string(),
            ty: info.ty,
            dims: info.dims[..usize::from(info.n_dims)].to_vec(),
            bytes: file.bytes(info.extent).expect("extents lie in their file").to_vec(),
        };
        let tensors = file.tensors().iter().map(tensor).collect();
        Some(Self { keys, tensors })
    }

    /// The metadata alone, under `arch.` as `key`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let key = self.key(key);
        self.keys.retain(|(other, _)| *other != key);
        self.keys.push((key, value.into()));
        self
    }

    pub fn remove(mut self, key: &str) -> Self {
        let key = self.key(key);
        self.keys.retain(|(other, _)| *other != key);
        self
    }

    fn key(&self, key: &str) -> String {
        if key.starts_with("general.") { key.to_owned() } else { format!("glm5-next.{key}") }
    }

    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("tiny-a has this tensor")
    }

    pub fn drop_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    /// The file in memory, for ever: tests end.
    pub fn file(&self) -> File {
        let mut layout = Layout::new();
        for (key, value) in self.keys.iter().filter(|(key, _)| !key.starts_with("split.")) {
            layout.set(key, value.clone());
        }
        for tensor in &self.tensors {
            layout.tensor(&tensor.name, tensor.ty, &tensor.dims).expect("tensors of the edit are sound");
        }
        let mut writer = layout.write_to(Vec::new()).expect("memory takes everything");
        for tensor in &self.tensors {
            writer.tensor(&tensor.name, &tensor.bytes).expect("bytes fit their tensor");
        }
        let bytes = writer.finish().expect("every tensor was written");
        File::from_static("edited", Box::leak(bytes.into_boxed_slice())).expect("the edit is a file")
    }

    /// Written into `folder` as `n` shards, one tensor after the other into each in turn: no two neighbours share a file.
    /// Gives the first shard's path.
    pub fn shards(&self, folder: &Path, n: usize) -> PathBuf {
        let path = |no: usize| folder.join(format!("edit-{:05}-of-{n:05}.gguf", no + 1));
        for no in 0..n {
            let mut layout = Layout::new();
            if no == 0 {
                for (key, value) in self.keys.iter().filter(|(key, _)| !key.starts_with("split.")) {
                    layout.set(key, value.clone());
                }
            }
            layout.set("split.no", no as u16);
            layout.set("split.count", n as u16);
            layout.set("split.tensors.count", self.tensors.len() as i32);
            let mine = || self.tensors.iter().skip(no).step_by(n);
            for tensor in mine() {
                layout.tensor(&tensor.name, tensor.ty, &tensor.dims).expect("tensors of the edit are sound");
            }
            let mut writer = layout.write_to(Vec::new()).expect("memory takes everything");
            for tensor in mine() {
                writer.tensor(&tensor.name, &tensor.bytes).expect("bytes fit their tensor");
            }
            let bytes = writer.finish().expect("every tensor was written");
            std::fs::write(path(no), bytes).expect("the folder takes the shard");
        }
        path(0)
    }

    /// The sentence with which it is refused.
    pub fn refused(&self) -> String {
        match glm_graph::Model::load(self.file()) {
            Ok(_) => panic!("the edit was loaded"),
            Err(error) => error.to_string(),
        }
    }
}

impl Tensor {
    /// The values of an F32 tensor.
    pub fn floats(&mut self, change: impl FnOnce(&mut [f32])) {
        assert_eq!(self.ty, GgmlType::F32);
        let mut values: Vec<f32> =
            self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        change(&mut values);
        self.bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    }

    /// The same values as F32.
    pub fn widen(&mut self) {
        let quant = quant_kernels::Quant::from_ggml_id(self.ty.id()).expect("fixtures have kernels");
        let mut values = vec![0.0; self.dims.iter().product::<u64>() as usize];
        quant_kernels::dequantize(quant, &self.bytes, &mut values).unwrap();
        self.ty = GgmlType::F32;
        self.bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    }
}
