//! Memory that this process holds for itself, watched while it works.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks: short against a token of any model that does not fit a cache, long against a look.
const EVERY: Duration = Duration::from_millis(5);

/// Bytes that no other process and no file can have: anonymous pages, pages locked into memory, pages pinned for a device or
/// a ring. An anonymous page that is locked or pinned counts twice, so this is no less than what is held.
fn held() -> Option<u64> {
    sum(&fs::read_to_string("/proc/self/status").ok()?, &["RssAnon:", "VmLck:", "VmPin:"])
}

/// Anonymous memory of this process now: what a map of weights is not part of.
pub fn anonymous() -> Option<u64> {
    sum(&fs::read_to_string("/proc/self/status").ok()?, &["RssAnon:"])
}

/// The fields of a status file together, in bytes. The first must be there; a kernel without the others has none of it.
fn sum(status: &str, fields: &[&str]) -> Option<u64> {
    let mut bytes = 0_u64;
    for (at, field) in fields.iter().enumerate() {
        let Some(text) = status.lines().find_map(|line| line.strip_prefix(field)) else {
            if at == 0 {
                return None;
            }
            continue;
        };
        let kib = text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
        bytes = bytes.checked_add(kib.checked_mul(1024)?)?;
    }
    Some(bytes)
}

/// The most that was held since it was made, by looking again and again from a thread of its own.
pub struct Peak {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peak {
    /// Begins to look. Where no thread can be started only the first look and the last count.
    pub fn watch() -> Self {
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        look(&most);
        let thread = std::thread::Builder::new().name("maya-memory".to_owned()).spawn({
            let (most, over) = (Arc::clone(&most), Arc::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    look(&most);
                    std::thread::park_timeout(EVERY);
                }
            }
        });
        Self { most, over, thread: thread.ok() }
    }

    /// Looks once more, and says what was the most; `None` where the system does not say.
    pub fn most(&self) -> Option<u64> {
        look(&self.most);
        Some(self.most.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

fn look(most: &AtomicU64) {
    most.fetch_max(held().unwrap_or(0), Ordering::Relaxed);
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A look cannot panic, and if it did there would be nothing to do about it here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_and_only_the_first_must_be_there() {
        let status = "Name:\tmaya\nVmLck:\t       4 kB\nRssAnon:\t     100 kB\nVmPin:\t       0 kB\n";
        assert_eq!(sum(status, &["RssAnon:", "VmLck:", "VmPin:"]), Some(104 * 1024));
        assert_eq!(sum("RssAnon:\t1 kB\n", &["RssAnon:", "VmLck:"]), Some(1024));
        assert_eq!(sum("VmLck:\t1 kB\n", &["RssAnon:", "VmLck:"]), None);
        assert_eq!(sum("RssAnon:\tmany kB\n", &["RssAnon:"]), None);
    }

    /// What was given back before anybody asked is seen all the same.
    #[test]
    fn a_peak_is_seen_between_two_looks() {
        let peak = Peak::watch();
        let Some(before) = peak.most() else { return golden::skipped(format_args!("no RssAnon here")) };
        const BYTES: usize = 64 << 20;
        let memory = vec![1_u8; BYTES];
        std::thread::sleep(20 * EVERY);
        drop(std::hint::black_box(memory));
        let most = peak.most().unwrap_or(0);
        // Other tests of this process give and take meanwhile.
        assert!(most >= before.min(most) && most >= BYTES as u64, "{most} bytes, {before} before");
    }
}
