//! The floating-point mode of a thread, on which every bit of this crate depends.

use std::hint::black_box;

/// Whether this thread rounds f32 to nearest, ties to even, and keeps numbers below the smallest normal one: what a
/// thread starts with, and what another library of the process may have changed before it made our threads.
#[must_use]
pub fn is_default_float_mode() -> bool {
    let (one, half_ulp) = (black_box(1.0_f32), black_box(f32::EPSILON / 2.0));
    // A tie goes to the even neighbour, once below and once above; another mode misses one of the three.
    let to_nearest_even = black_box(one + half_ulp) == 1.0
        && black_box((one + f32::EPSILON) + half_ulp) == 1.0 + 2.0 * f32::EPSILON
        && black_box(-one - half_ulp) == -1.0;
    // A result below the normal numbers, and an operand there.
    let tiny = black_box(black_box(f32::MIN_POSITIVE) * black_box(0.5_f32));
    let keeps_tiny = tiny.to_bits() == 1 << 22 && black_box(tiny * black_box(2.0_f32)) == f32::MIN_POSITIVE;
    to_nearest_even && keeps_tiny
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_starts_in_the_default_mode() {
        assert!(std::thread::spawn(super::is_default_float_mode).join().unwrap());
    }
}
