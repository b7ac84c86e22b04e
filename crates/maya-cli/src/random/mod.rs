//! The random numbers of NumPy's `default_rng(seed)`, so that a trace written here and one written by a NumPy script from
//! the same seed are the same file: the seed sequence and generator of [`pcg64`], the distributions of [`draw`].

mod draw;
mod pcg64;

pub use draw::Distributions;
pub use pcg64::Pcg64;
