//! Activation rows: f32, and the 8-bit forms that the fast products read.

use crate::{Cpu, Family, activation};

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
    /// Scales (and narrow sums) between a row and the next: `blocks` rounded up to 8, the rest 0.
    pub(crate) stride: usize,
    /// `[n][blocks][block length]`.
    pub(crate) q: Vec<i8>,
    /// `[n][stride]`.
    pub(crate) scale: Vec<f32>,
    /// Sums of q: of 16 values `[n][blocks][16]` in the wide form, of a block `[n][stride]` in the narrow one.
    pub(crate) sums: Vec<i16>,
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
            Family::Wide => (&mut self.wide, activation::WIDE),
            Family::Narrow => (&mut self.narrow, activation::NARROW),
            Family::Float => return,
        };
        if form.ready {
            return;
        }
        form.reset(self.n, self.cols, block);
        if self.cols > 0 {
            for (t, row) in self.values.chunks_exact(self.cols).enumerate() {
                if cpu.quantize_row(row, form.row_mut(t, block)).is_err() {
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

/// One row's place in a [`Quantized`].
pub(crate) struct RowMut<'a> {
    pub(crate) block: activation::Block,
    pub(crate) q: &'a mut [i8],
    pub(crate) scale: &'a mut [f32],
    pub(crate) sums: &'a mut [i16],
}

impl Quantized {
    fn reset(&mut self, n: usize, cols: usize, block: activation::Block) {
        self.blocks = cols.div_ceil(block.len);
        self.stride = self.blocks.next_multiple_of(8);
        self.q.resize(n * self.blocks * block.len, 0);
        self.scale.resize(n * self.stride, 0.0);
        self.sums.resize(n * self.sums_stride(block), 0);
    }

    fn sums_stride(&self, block: activation::Block) -> usize {
        self.stride * (block.len / block.sum_len)
    }

    fn row_mut(&mut self, t: usize, block: activation::Block) -> RowMut<'_> {
        let (q, scale, sums) = (self.blocks * block.len, self.stride, self.sums_stride(block));
        RowMut {
            block,
            q: &mut self.q[t * q..][..q],
            scale: &mut self.scale[t * scale..][..scale],
            sums: &mut self.sums[t * sums..][..sums],
        }
    }
}
