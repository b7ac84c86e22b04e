//! Taking tensors out of the file's table, each once, with its shape and type checked.

use gguf::{Model as File, TensorInfo};
use quant_kernels::{Quant, dequantize};

use super::{Stack, Tensor};
use crate::error::{Dims, LoadError};

/// How many unknown tensors an error names.
const NAMED: usize = 8;

pub(super) struct Claims<'a> {
    file: &'a File,
    taken: Vec<bool>,
}

impl<'a> Claims<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, taken: vec![false; file.tensors().len()] }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// Errs with the tensors that nothing claimed.
    pub(super) fn finish(self) -> Result<(), LoadError> {
        let unknown: Vec<&str> = self
            .file
            .tensors()
            .iter()
            .zip(&self.taken)
            .filter(|(_, taken)| !**taken)
            .map(|(t, _)| &*t.name)
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let mut names: Vec<String> =
            unknown.iter().take(NAMED).map(|name| gguf::Quoted::new(name).to_string()).collect();
        if unknown.len() > NAMED {
            names.push(format!("and {} more", unknown.len() - NAMED));
        }
        Err(LoadError::UnknownTensors { count: unknown.len(), names: names.join(", ") })
    }

    /// `[rows][cols]`: dims `cols x rows`.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        because: &'static str,
    ) -> Result<Tensor, LoadError> {
        let info = self.take(name)?;
        shape(info, &[cols, rows], because)?;
        tensor(info, rows, cols)
    }

    /// A matrix whose number of rows only the file knows.
    pub(super) fn any_rows(
        &mut self,
        name: &str,
        cols: usize,
        because: &'static str,
    ) -> Result<Tensor, LoadError> {
        let info = self.take(name)?;
        let rows = usize::try_from(info.dims[1]).unwrap_or(usize::MAX);
        shape(info, &[cols, rows], because)?;
        tensor(info, rows, cols)
    }

    /// `n` matrices `[rows][cols]`: dims `cols x rows x n`.
    pub(super) fn stack(
        &mut self,
        name: &str,
        n: usize,
        rows: usize,
        cols: usize,
        because: &'static str,
    ) -> Result<Stack, LoadError> {
        let info = self.take(name)?;
        shape(info, &[cols, rows, n], because)?;
        let mut slice = tensor(info, rows, cols)?;
        slice.extent.len = info.extent.len / n as u64;
        Ok(Stack { slice, n })
    }

    /// A vector, copied.
    pub(super) fn vector(
        &mut self,
        name: &str,
        len: usize,
        because: &'static str,
    ) -> Result<Vec<f32>, LoadError> {
        let info = self.take(name)?;
        shape(info, &[len], because)?;
        self.copy(info, len)
    }

    /// `[rows][cols]`, copied.
    pub(super) fn table(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        because: &'static str,
    ) -> Result<Vec<f32>, LoadError> {
        let info = self.take(name)?;
        shape(info, &[cols, rows], because)?;
        self.copy(info, rows * cols)
    }

    /// Convolution taps `[channels][taps]`, copied: dims `taps x 1 x channels`, with or without a fourth axis of 1.
    pub(super) fn taps(&mut self, name: &str, taps: usize, channels: usize) -> Result<Vec<f32>, LoadError> {
        let info = self.take(name)?;
        shape(info, &[taps, 1, channels], "ssm.conv_kernel, attention.head_count and kda.head_dim")?;
        self.copy(info, taps * channels)
    }

    fn take(&mut self, name: &str) -> Result<&'a TensorInfo, LoadError> {
        let at =
            self.file.tensor_index(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?;
        self.taken[at] = true;
        Ok(&self.file.tensors()[at])
    }

    fn copy(&self, info: &TensorInfo, len: usize) -> Result<Vec<f32>, LoadError> {
        let quant = kernels(info)?;
        let bytes = self.file.bytes(info.extent)?;
        let mut values = vec![0.0; len];
        dequantize(quant, bytes, &mut values).expect("a checked shape's bytes hold its weights");
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => {
                Err(LoadError::NotFinite { name: info.name.to_string(), value: values[index], index })
            }
            None => Ok(values),
        }
    }
}

fn tensor(info: &TensorInfo, rows: usize, cols: usize) -> Result<Tensor, LoadError> {
    Ok(Tensor { name: info.name.clone(), quant: kernels(info)?, rows, cols, extent: info.extent })
}

fn shape(info: &TensorInfo, expected: &[usize], because: &'static str) -> Result<(), LoadError> {
    let wanted = |axis: usize| expected.get(axis).map_or(1, |dim| *dim as u64);
    if (0..4).all(|axis| info.dims[axis] == wanted(axis)) {
        return Ok(());
    }
    Err(LoadError::Shape {
        name: info.name.to_string(),
        found: Dims(info.dims[..usize::from(info.n_dims).clamp(1, 4)].to_vec()),
        expected: Dims(expected.iter().map(|dim| *dim as u64).collect()),
        because,
    })
}

fn kernels(info: &TensorInfo) -> Result<Quant, LoadError> {
    match Quant::from_ggml_id(info.ty.id()).filter(|quant| quant.family().is_some()) {
        Some(quant) => Ok(quant),
        None => Err(LoadError::Type {
            name: info.name.to_string(),
            ty: info.ty.name(),
            instead: "use a file whose tensors are F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ1 to IQ4 or MXFP4",
        }),
    }
}
