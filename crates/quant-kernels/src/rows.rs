//! Activation rows: f32, and the 8-bit forms that the fast products read.

use crate::activation::{Block, NARROW, NonFinite, WIDE};
use crate::{Cpu, Family};

/// `n` activation rows of `cols` values, with quantised forms made on demand.
///
/// The buffers are kept between uses: no call allocates when an earlier one needed as much.
#[derive(Debug, Default)]
pub struct Rows {
    n: usize,
    cols: usize,
    values: Vec<f32>,
    wide: Quantized,
    narrow: Quantized,
}

/// Rows cut into blocks of 256 or 32 values: value i of a block is `scale * q[i]`.
#[derive(Debug, Default)]
pub(crate) struct Quantized {
    ready: bool,
    /// Blocks of a row; the last one may be shorter, its missing values are 0.
    pub(crate) blocks: usize,
    /// From a row's scales to the next row's: `blocks` rounded up to 8, the rest 0.
    pub(crate) stride: usize,
    /// `[blocks][n][block length]`: what one weight block meets lies together.
    pub(crate) q: Vec<i8>,
    /// `[n][stride]`.
    pub(crate) scale: Vec<f32>,
    /// `[blocks][n rounded up to 8]`, the rest 0.
    pub(crate) scale_by_block: Vec<f32>,
    /// Sums of q. Wide: of 16 values, `[blocks][n][16]`. Narrow: of a block, `[n][stride]`, the rest 0.
    pub(crate) sums: Vec<i16>,
    /// Narrow only: `[blocks][n rounded up to 8]`, the rest 0.
    pub(crate) sums_by_block: Vec<i16>,
}

impl Rows {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `n` rows of `cols` values and hands them out to be filled, row after row; what they hold before is
    /// unspecified. The quantised forms of earlier values are dropped.
    pub fn reset(&mut self, n: usize, cols: usize) -> &mut [f32] {
        (self.n, self.cols) = (n, cols);
        self.wide.ready = false;
        self.narrow.ready = false;
        self.values.resize(n * cols, 0.0);
        &mut self.values
    }

    /// Number of rows.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values of a row.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All values, `[n][cols]`.
    #[must_use]
    pub fn f32(&self) -> &[f32] {
        &self.values
    }

    /// The values of row `t`.
    ///
    /// # Panics
    ///
    /// If there is no row `t`.
    #[must_use]
    pub fn row(&self, t: usize) -> &[f32] {
        assert!(t < self.n, "row {t} of {}", self.n);
        &self.values[t * self.cols..(t + 1) * self.cols]
    }

    /// Makes the quantised form that a family's fast product reads (docs/ARITHMETIC.md, "Activations"). Does nothing for
    /// `Family::Float`, or if the form is there already.
    ///
    /// A row that holds a NaN or an infinity is pushed to `bad` by its index and counts as all zero.
    pub fn prepare(&mut self, cpu: Cpu, family: Family, bad: &mut Vec<usize>) {
        let (form, block) = match family {
            Family::Wide => (&mut self.wide, WIDE),
            Family::Narrow => (&mut self.narrow, NARROW),
            Family::Float => return,
        };
        if form.ready {
            return;
        }
        form.reset(self.n, self.cols, block);
        if self.cols > 0 {
            for (t, row) in self.values.chunks_exact(self.cols).enumerate() {
                if form.fill(cpu, t, self.n, row, block).is_err() {
                    form.clear(t, self.n, block);
                    bad.push(t);
                }
            }
        }
        form.ready = true;
    }

    /// The quantised form for a family, if it was made.
    pub(crate) fn quantized(&self, family: Family) -> Option<&Quantized> {
        let form = match family {
            Family::Wide => &self.wide,
            Family::Narrow => &self.narrow,
            Family::Float => return None,
        };
        form.ready.then_some(form)
    }
}

impl Quantized {
    fn reset(&mut self, n: usize, cols: usize, block: Block) {
        self.blocks = cols.div_ceil(block.len);
        self.stride = self.blocks.next_multiple_of(8);
        self.q.resize(n * self.blocks * block.len, 0);
        let by_row = n * self.stride;
        let by_block = self.blocks * n.next_multiple_of(8);
        zeros(&mut self.scale, by_row);
        zeros(&mut self.scale_by_block, by_block);
        match block.sums() {
            1 => {
                zeros(&mut self.sums, by_row);
                zeros(&mut self.sums_by_block, by_block);
            }
            sums => self.sums.resize(self.blocks * n * sums, 0),
        }
    }

    /// Quantises row t of n.
    fn fill(&mut self, cpu: Cpu, t: usize, n: usize, row: &[f32], block: Block) -> Result<(), NonFinite> {
        for (b, x) in row.chunks(block.len).enumerate() {
            let at = b * n + t;
            let q = &mut self.q[at * block.len..][..block.len];
            let (by_row, by_block) = (t * self.stride + b, b * n.next_multiple_of(8) + t);
            let scale = if block.sums() == 1 {
                let sums = &mut self.sums[by_row..=by_row];
                let scale = cpu.quantize_block(x, q, sums)?;
                self.sums_by_block[by_block] = sums[0];
                scale
            } else {
                cpu.quantize_block(x, q, &mut self.sums[at * block.sums()..][..block.sums()])?
            };
            self.scale[by_row] = scale;
            self.scale_by_block[by_block] = scale;
        }
        Ok(())
    }

    /// Makes row t of n all zero.
    fn clear(&mut self, t: usize, n: usize, block: Block) {
        for b in 0..self.blocks {
            let at = b * n + t;
            self.q[at * block.len..][..block.len].fill(0);
            let (by_row, by_block) = (t * self.stride + b, b * n.next_multiple_of(8) + t);
            self.scale[by_row] = 0.0;
            self.scale_by_block[by_block] = 0.0;
            if block.sums() == 1 {
                self.sums[by_row] = 0;
                self.sums_by_block[by_block] = 0;
            } else {
                self.sums[at * block.sums()..][..block.sums()].fill(0);
            }
        }
    }
}

/// `len` zeros.
fn zeros<T: Copy + Default>(values: &mut Vec<T>, len: usize) {
    values.clear();
    values.resize(len, T::default());
}
