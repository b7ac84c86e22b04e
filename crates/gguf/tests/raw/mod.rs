//! Headers built field by field, so that they can be wrong.

#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// A version 3 header with these counts.
    pub fn new(n_tensors: u64, n_keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(n_tensors).u64(n_keys)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u32(self, it: u32) -> Self {
        self.bytes(&it.to_le_bytes())
    }

    pub fn u64(self, it: u64) -> Self {
        self.bytes(&it.to_le_bytes())
    }

    pub fn str(self, it: &str) -> Self {
        self.u64(it.len() as u64).bytes(it.as_bytes())
    }

    /// A key with a value type and the value's bytes.
    pub fn key(self, key: &str, ty: u32, value: &[u8]) -> Self {
        self.str(key).u32(ty).bytes(value)
    }

    pub fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let mut it = self.str(name).u32(dims.len() as u32);
        for &dim in dims {
            it = it.u64(dim);
        }
        it.u32(ty).u64(offset)
    }

    /// Pads to 32 bytes and appends data.
    pub fn data(mut self, n: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + n, 0);
        self
    }
}
