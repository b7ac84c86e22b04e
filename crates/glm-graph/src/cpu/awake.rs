//! Keeping the pool's threads awake while one token is computed.
//!
//! A decoded token of a small model forks about thirty times in a millisecond. A rayon thread that finds nothing to do goes
//! to sleep after some 20 us, and waking it costs both sides more than the work between two forks; so during a pass the
//! other threads look for work without sleeping, until one has found none for longer than a pass goes without forking: the
//! thread that works then most likely waits for the drive.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, Yield};

/// Looks for work before the processor is offered to other processes: some 15 to 50 us.
const LOOKS: u32 = 64;
/// Pauses between two looks, so that the looking does not slow down the thread that is looked at.
const PAUSES: u32 = 16;
/// Without work for this long, a thread goes to sleep as rayon has it. Two forks of the demo's token lie some 30 us apart.
const PATIENCE: Duration = Duration::from_micros(500);

/// Whether there are processors for all of the pool's threads: if not, one that looks for work takes the time of one that
/// works.
fn fits(pool: &ThreadPool) -> bool {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors = PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    pool.current_num_threads() <= *processors
}

/// Sets the flag however the work ends.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `work` in the pool, whose other threads stay awake until it is done.
pub(crate) fn install<R: Send>(pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    if pool.current_num_threads() == 1 || !fits(pool) {
        return pool.install(work);
    }
    pool.install(|| {
        let done = AtomicBool::new(false);
        rayon::scope(|scope| {
            let (done, mine) = (&done, rayon::current_thread_index());
            // One task a thread, run by that thread only: a plain spawn could be picked up by the thread that works, while
            // it waits for a fork, and would never let it go.
            scope.spawn_broadcast(move |_, context| {
                if Some(context.index()) != mine {
                    look_for_work(done);
                }
            });
            let _done = OnDrop(done);
            work()
        })
    })
}

fn look_for_work(done: &AtomicBool) {
    let (mut idle, mut since) = (0_u32, Instant::now());
    while !done.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            (idle, since) = (0, Instant::now());
            continue;
        }
        idle += 1;
        if idle % LOOKS == 0 {
            if since.elapsed() > PATIENCE {
                return;
            }
            std::thread::yield_now();
        }
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    fn pool(threads: usize) -> ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn work_and_its_forks_are_done() {
        for threads in [1, 2, 5] {
            let pool = pool(threads);
            for _ in 0..50 {
                let sum = install(&pool, || {
                    let (a, b) = rayon::join(|| rayon::join(|| 1, || 2), || rayon::join(|| 3, || 4));
                    a.0 + a.1 + b.0 + b.1
                });
                assert_eq!(sum, 10);
            }
        }
    }

    /// A thread that waits for the drive is not watched by others at full speed.
    #[test]
    fn looking_has_an_end() {
        let begin = Instant::now();
        look_for_work(&AtomicBool::new(false));
        assert!(begin.elapsed() >= PATIENCE);
    }

    #[test]
    fn a_panic_ends_the_looking() {
        let pool = pool(3);
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| install(&pool, || panic!("on purpose"))));
        assert!(result.is_err());
        assert_eq!(install(&pool, || 7), 7);
    }
}
