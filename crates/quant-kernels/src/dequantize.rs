//! Weights as f32, bit-equal to GGML's.

use bytemuck::{Pod, cast_slice};
use half::{bf16, f16};

use crate::narrow::Narrow;
use crate::wide::{Parts, Wide};
use crate::{Quant, ShapeError, block};

/// Runs `$body` with `$block` bound to the block type of a 256-weight format.
macro_rules! with_wide {
    ($quant:expr, $block:ident => $body:expr, _ => $other:expr) => {{
        macro_rules! arm {
            ($name:ident) => {{
                type $block = $crate::block::$name;
                $body
            }};
        }
        match $quant {
            $crate::Quant::Q2K => arm!(Q2K),
            $crate::Quant::Q3K => arm!(Q3K),
            $crate::Quant::Q4K => arm!(Q4K),
            $crate::Quant::Q5K => arm!(Q5K),
            $crate::Quant::Q6K => arm!(Q6K),
            $crate::Quant::Iq1S => arm!(Iq1S),
            $crate::Quant::Iq1M => arm!(Iq1M),
            $crate::Quant::Iq2Xxs => arm!(Iq2Xxs),
            $crate::Quant::Iq2Xs => arm!(Iq2Xs),
            $crate::Quant::Iq2S => arm!(Iq2S),
            $crate::Quant::Iq3Xxs => arm!(Iq3Xxs),
            $crate::Quant::Iq3S => arm!(Iq3S),
            $crate::Quant::Iq4Xs => arm!(Iq4Xs),
            _ => $other,
        }
    }};
}

/// Runs `$body` with `$block` bound to the block type of a 32-weight format.
macro_rules! with_narrow {
    ($quant:expr, $block:ident => $body:expr, _ => $other:expr) => {{
        macro_rules! arm {
            ($name:ident) => {{
                type $block = $crate::block::$name;
                $body
            }};
        }
        match $quant {
            $crate::Quant::Q4_0 => arm!(Q4_0),
            $crate::Quant::Q4_1 => arm!(Q4_1),
            $crate::Quant::Q5_0 => arm!(Q5_0),
            $crate::Quant::Q5_1 => arm!(Q5_1),
            $crate::Quant::Q8_0 => arm!(Q8_0),
            $crate::Quant::Iq4Nl => arm!(Iq4Nl),
            $crate::Quant::Mxfp4 => arm!(Mxfp4),
            _ => $other,
        }
    }};
}

pub(crate) use {with_narrow, with_wide};

/// Dequantises whole blocks: `out[i]` is weight i of `bytes`, with the bits that GGML gives it.
///
/// # Errors
///
/// If `out` is no whole number of blocks, or `bytes` is not exactly their size.
pub fn dequantize(quant: Quant, bytes: &[u8], out: &mut [f32]) -> Result<(), ShapeError> {
    let cols = out.len();
    let expected = quant.row_bytes(cols).ok_or(ShapeError::RowLength { quant, cols })?;
    if bytes.len() != expected {
        return Err(ShapeError::Bytes { quant, rows: 1, cols, expected, found: bytes.len() });
    }
    blocks(quant, bytes, out);
    Ok(())
}

/// [`dequantize`] with sizes that are known to fit.
pub(crate) fn blocks(quant: Quant, bytes: &[u8], out: &mut [f32]) {
    with_wide!(quant, Block => wide::<Block>(bytes, out), _ => {
        with_narrow!(quant, Block => narrow::<Block>(bytes, out), _ => match quant {
            Quant::Tq1_0 => wide::<block::Tq1_0>(bytes, out),
            Quant::Tq2_0 => wide::<block::Tq2_0>(bytes, out),
            Quant::Nvfp4 => each::<block::Nvfp4>(bytes, out, 64, |block, out| block.dequantize(out)),
            Quant::F16 => floats(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Quant::Bf16 => floats(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            _ => floats(bytes, out, f32::from_le_bytes),
        })
    });
}

fn each<B: Pod>(bytes: &[u8], out: &mut [f32], len: usize, mut one: impl FnMut(&B, &mut [f32])) {
    for (block, out) in cast_slice::<u8, B>(bytes).iter().zip(out.chunks_exact_mut(len)) {
        one(block, out);
    }
}

fn wide<B: Wide>(bytes: &[u8], out: &mut [f32]) {
    let mut parts = Parts::new();
    each::<B>(bytes, out, crate::wide::LEN, |block, out| {
        block.unpack(&mut parts);
        parts.dequantize(B::MINIMA, out);
    });
}

fn narrow<B: Narrow>(bytes: &[u8], out: &mut [f32]) {
    each::<B>(bytes, out, crate::narrow::LEN, B::dequantize);
}

fn floats<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (bytes, out) in bytes.as_chunks().0.iter().zip(out) {
        *out = value(*bytes);
    }
}
