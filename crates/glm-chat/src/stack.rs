//! Work on a stack of a given size.
//!
//! The template engine recurses over long expressions when it compiles, and over nested values when it prints, compares or
//! drops them. A template comes from a file that may be hostile, and a stack that overflows ends the process. So both run
//! on a thread whose stack is larger than the source, or the fuel, can use up. Only pages that are touched cost memory.

use std::thread;

/// Runs `work` on a fresh stack of `bytes` and returns what it returns.
///
/// # Errors
/// A sentence, if there is no such thread or `work` panicked.
pub(crate) fn run<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(bytes)
            .spawn_scoped(scope, work)
            .map_err(|error| format!("there is no thread with a stack of {bytes} bytes: {error}"))?;
        thread.join().map_err(|_| "the template engine panicked".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_as_large_as_asked() {
        fn deep(levels: usize) -> usize {
            let frame = std::hint::black_box([levels; 64]);
            if levels == 0 { 0 } else { 1 + deep(frame[63] - 1) }
        }
        // More than the 2 MiB that threads have by default.
        assert_eq!(run(64 << 20, || deep(20_000)), Ok(20_000));
        assert!(run(1 << 16, || -> () { panic!("as a test") }).is_err());
    }
}
