//! Golden data: a folder of files as `golden unpack` lays it out, and tensors of its safetensors files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ::safetensors::{Dtype, SafeTensors};
use anyhow::{Context, Result, bail};

/// The folder given by `--fixtures`.
#[derive(Debug)]
pub struct Fixtures {
    folder: PathBuf,
}

impl Fixtures {
    /// A folder that holds at least a manifest.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.join("manifest.json").is_file() {
            bail!("{} holds no manifest.json; `golden unpack DIR` makes such a folder", folder.display());
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// A file of the folder, if it is there.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.join(name);
        path.is_file().then_some(path)
    }

    /// Where a file that is made from others goes.
    pub fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The golden values of a safetensors file, if it is there.
    pub fn golden(&self, name: &str) -> Result<Option<Golden>> {
        self.path(name).map(|path| Golden::read(&path)).transpose()
    }

    /// A JSON file, if it is there.
    pub fn json(&self, name: &str) -> Result<Option<serde_json::Value>> {
        let Some(path) = self.path(name) else { return Ok(None) };
        let text = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Some(serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))?))
    }

    /// Size and SHA-256 that the manifest gives for an unpacked file.
    pub fn expected(&self, name: &str) -> Result<Option<(u64, String)>> {
        let manifest = self.json("manifest.json")?.unwrap_or_default();
        let entry = &manifest["unpacked"][name];
        Ok(entry["bytes"].as_u64().zip(entry["sha256"].as_str().map(str::to_owned)))
    }
}

/// A tensor of a golden file.
#[derive(Debug)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// All tensors of a golden file.
#[derive(Debug)]
pub struct Golden {
    name: String,
    tensors: BTreeMap<String, Tensor>,
}

impl Golden {
    /// Reads all tensors of a safetensors file.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("{name} cannot be read"))?;
        let file =
            SafeTensors::deserialize(&bytes).with_context(|| format!("{name} is not a safetensors file"))?;
        let own = |(key, view): (String, ::safetensors::tensor::TensorView<'_>)| {
            let tensor =
                Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
            (key, tensor)
        };
        let tensors = file.tensors().into_iter().map(own).collect();
        Ok(Self { name, tensors })
    }

    /// Whether the file has this tensor.
    pub fn has(&self, key: &str) -> bool {
        self.tensors.contains_key(key)
    }

    /// The prompts of the file by their lengths, shortest first: `p1.tokens`, `p7.tokens`, ...
    pub fn prompts(&self) -> Vec<usize> {
        let lengths =
            self.tensors.keys().filter_map(|k| k.strip_prefix('p')?.strip_suffix(".tokens")?.parse().ok());
        let mut lengths: Vec<usize> = lengths.collect();
        lengths.sort_unstable();
        lengths
    }

    fn tensor(&self, key: &str) -> Result<&Tensor> {
        self.tensors.get(key).with_context(|| format!("{} has no tensor {key}", self.name))
    }

    /// Shape of a tensor, slowest axis first.
    pub fn shape(&self, key: &str) -> Result<&[usize]> {
        Ok(&self.tensor(key)?.shape)
    }

    /// Values of a float tensor; F64 values are rounded.
    pub fn f32s(&self, key: &str) -> Result<Vec<f32>> {
        let tensor = self.tensor(key)?;
        match tensor.dtype {
            Dtype::F32 => {
                Ok(tensor.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
            }
            Dtype::F64 => Ok(self.f64s(key)?.into_iter().map(|v| v as f32).collect()),
            other => bail!("{}: tensor {key} is {other:?}, not float", self.name),
        }
    }

    /// Values of a float tensor, widened.
    pub fn f64s(&self, key: &str) -> Result<Vec<f64>> {
        let tensor = self.tensor(key)?;
        match tensor.dtype {
            Dtype::F64 => {
                Ok(tensor.bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
            }
            _ => Ok(self.f32s(key)?.into_iter().map(f64::from).collect()),
        }
    }

    /// Values of an I32 tensor.
    pub fn i32s(&self, key: &str) -> Result<Vec<i32>> {
        let tensor = self.tensor(key)?;
        match tensor.dtype {
            Dtype::I32 => {
                Ok(tensor.bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect())
            }
            other => bail!("{}: tensor {key} is {other:?}, not I32", self.name),
        }
    }

    /// Token ids of an I32 tensor.
    pub fn tokens(&self, key: &str) -> Result<Vec<u32>> {
        let ids = self.i32s(key)?.into_iter().map(u32::try_from).collect::<Result<Vec<u32>, _>>();
        ids.with_context(|| format!("{}: tensor {key} holds a negative token", self.name))
    }

    /// Bytes of a U8 tensor.
    pub fn u8s(&self, key: &str) -> Result<&[u8]> {
        let tensor = self.tensor(key)?;
        if tensor.dtype != Dtype::U8 {
            bail!("{}: tensor {key} is {:?}, not U8", self.name, tensor.dtype);
        }
        Ok(&tensor.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values_are_read_by_type() {
        let Some(path) = golden::file("tiny-a.maya.golden.safetensors") else { return };
        let golden = Golden::read(&path).unwrap();
        assert_eq!(golden.prompts(), [1, 7, 64, 203, 515]);
        assert_eq!(golden.tokens("p7.tokens").unwrap().len(), 7);
        assert_eq!(golden.shape("p7.hidden").unwrap(), [5, 7, 4, 256]);
        assert_eq!(golden.f64s("p7.logits_last_f64").unwrap().len(), 512);
        assert!(golden.tokens("p7.logits").is_err() && golden.f32s("p7.tokens").is_err());
        assert!(golden.f32s("p8.logits").unwrap_err().to_string().contains("p8.logits"));
    }

    #[test]
    fn a_folder_without_a_manifest_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Fixtures::open(folder.path()).unwrap_err().to_string().contains("golden unpack"));
    }
}
