//! Each operation's body, compiled for one instruction set at a time.
//!
//! The bodies fix the order of every sum and write every fused multiply-add, and LLVM never reassociates floats, so the
//! instances give equal bits.

use super::kda::Tokens;
use super::{attend, canon, f16, kda, norm, order, rows};
use crate::isa::{Cpu, Isa};

macro_rules! instances {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $body:path;)*) => {
        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            use super::*;
            $(
                #[target_feature(enable = "avx2,fma,f16c")]
                pub(super) fn $name($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
            )*
        }

        #[cfg(target_arch = "x86_64")]
        mod avx512 {
            use super::*;
            $(
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
                pub(super) fn $name($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
            )*
        }

        $(
            #[inline]
            pub(super) fn $name(cpu: Cpu, $($arg: $ty),*) $(-> $ret)? {
                match cpu.isa() {
                    // SAFETY: `Cpu` holds Avx2 only where `Isa::is_available` found avx2, fma and f16c.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { avx2::$name($($arg),*) },
                    // SAFETY: `Cpu` holds Avx512 only where `Isa::is_available` found all of the instance's features.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => unsafe { avx512::$name($($arg),*) },
                    _ => $body($($arg),*),
                }
            }
        )*
    };
}

instances! {
    fn exp(x: &mut [f32]) = canon::exp_slice;
    fn sigmoid(x: &mut [f32]) = canon::sigmoid_slice;
    fn silu(x: &mut [f32]) = canon::silu_slice;
    fn dot(a: &[f32], b: &[f32]) -> f32 = order::dot;
    fn dot_rows(a: &[f32], rows: &[f32], out: &mut [f32]) = rows::dot_rows;
    fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) = rows::axpy;
    fn weighted_rows(p: &[f32], rows: &[f32], out: &mut [f32]) = rows::weighted_rows;
    fn add(x: &[f32], y: &mut [f32]) = rows::add;
    fn scale_add(w: f32, x: &[f32], y: &mut [f32]) = rows::scale_add;
    fn softmax(x: &mut [f32]) = norm::softmax;
    fn swiglu(gate: &mut [f32], up: &[f32], limit: f32) = norm::swiglu;
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = norm::rms_norm;
    fn widen_f16(x: &[u16], out: &mut [f32]) = f16::widen_f16;
    fn narrow_f16(x: &[f32], out: &mut [u16]) = f16::narrow_f16;
    fn kda_recurrence(state: &mut [f32], x: Tokens<'_>, o: &mut [f32]) = kda::recurrence;
    fn attend(q: &[f32], rows: &[f32], width: usize, scale: f32, scores: &mut [f32], out: &mut [f32])
        = attend::attend;
    fn index_scores(iq: &[f32], iw: &[f32], pooled: &[f32], dim: usize, scale: f32, out: &mut [f32])
        = attend::index_scores;
}
