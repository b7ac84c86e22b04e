//! Which of the drives that hold the same bytes is asked: the one expected to answer first. Nothing here does I/O.

/// How much one measurement moves an estimate: the mean of about the last 16.
const WEIGHT: f64 = 1.0 / 16.0;
/// What is left of the estimate of an idle drive each time it is passed over. A drive that was slow once is tried again
/// after some hundred pieces, not never.
const FORGET: f64 = 0.99;

/// What is known about one drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drive {
    /// I/Os at it.
    pub at_drive: u32,
    /// Those of them that are look-ahead.
    pub look_ahead: u32,
    /// Estimated seconds for one I/O, its share of the queue taken out; 0 before the first.
    service: f64,
}

impl Drive {
    /// Seconds until one more I/O is done; `unknown` is the service of a drive that was never measured.
    fn expected(&self, unknown: f64) -> f64 {
        f64::from(self.at_drive + 1) * if self.service > 0.0 { self.service } else { unknown }
    }

    /// Counts an I/O that is handed over.
    pub fn begin(&mut self, look_ahead: bool) {
        self.at_drive += 1;
        self.look_ahead += u32::from(look_ahead);
    }

    /// Counts an I/O that came back after `seconds`, with `queue` I/Os at the drive when it was handed over (itself
    /// included). One that failed says nothing about speed: `None`.
    pub fn end(&mut self, look_ahead: bool, seconds: Option<f64>, queue: u32) {
        self.at_drive = self.at_drive.saturating_sub(1);
        self.look_ahead = self.look_ahead.saturating_sub(u32::from(look_ahead));
        if let Some(seconds) = seconds {
            let share = seconds / f64::from(queue.max(1));
            self.service =
                if self.service == 0.0 { share } else { self.service + WEIGHT * (share - self.service) };
        }
    }

    /// Whether it takes one more.
    pub fn has_room(&self, look_ahead: bool, depth: u32, look_ahead_depth: u32) -> bool {
        self.at_drive < depth && (!look_ahead || self.look_ahead < look_ahead_depth)
    }
}

/// Picks among `candidates` (mirror, drive) the one expected to be done first; of equals, the first at or after `turn`.
/// It may have no room: the piece then waits for it, which takes less time than another drive would.
pub fn choose(
    drives: &[Drive],
    candidates: impl Iterator<Item = (usize, usize)> + Clone,
    turn: usize,
) -> Option<(usize, usize)> {
    let n = candidates.clone().map(|(mirror, _)| mirror + 1).max()?;
    let rank = |mirror: usize| (mirror + n - turn % n) % n;
    // A drive that was never measured is as quick as the quickest: quicker, and it would be given everything until its
    // first answer.
    let measured = candidates.clone().map(|(_, drive)| drives[drive].service).filter(|s| *s > 0.0);
    let unknown = measured.min_by(f64::total_cmp).unwrap_or(1.0);
    candidates.min_by(|a, b| {
        let (one, two) = (drives[a.1].expected(unknown), drives[b.1].expected(unknown));
        one.total_cmp(&two).then(rank(a.0).cmp(&rank(b.0)))
    })
}

/// Lets the idle ones among `candidates` that were not `chosen` be tried sooner.
pub fn pass_over(drives: &mut [Drive], candidates: impl Iterator<Item = (usize, usize)>, chosen: usize) {
    for (_, other) in candidates.filter(|c| c.1 != chosen) {
        if drives[other].at_drive == 0 {
            drives[other].service *= FORGET;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `n` pieces on two simulated drives that serve one I/O after the other; gives how many each served.
    fn simulate(n: u32, seconds: impl Fn(usize, u32) -> f64) -> [u32; 2] {
        let mut drives = [Drive::default(); 2];
        let mut busy_until = [0.0_f64; 2];
        let mut running: Vec<(f64, usize, f64, u32)> = Vec::new();
        let mut served = [0; 2];
        let mut now = 0.0_f64;
        for i in 0..n {
            let both = [(0, 0), (1, 1)].into_iter();
            let mut chosen = choose(&drives, both.clone(), i as usize).unwrap().1;
            while !drives[chosen].has_room(false, 16, 0) {
                running.sort_by(|a, b| b.0.total_cmp(&a.0));
                let (end, drive, begun, queue) = running.pop().unwrap();
                now = now.max(end);
                drives[drive].end(false, Some(end - begun), queue);
                chosen = choose(&drives, both.clone(), i as usize).unwrap().1;
            }
            pass_over(&mut drives, both, chosen);
            drives[chosen].begin(false);
            busy_until[chosen] = busy_until[chosen].max(now) + seconds(chosen, i);
            running.push((busy_until[chosen], chosen, now, drives[chosen].at_drive));
            served[chosen] += 1;
        }
        served
    }

    #[test]
    fn equal_drives_share_equally() {
        let [a, b] = simulate(2000, |_, _| 1e-3);
        assert!(a.abs_diff(b) < 100, "{a} {b}");
    }

    #[test]
    fn a_drive_three_times_slower_gets_about_a_quarter() {
        let [a, b] = simulate(4000, |drive, _| if drive == 0 { 1e-3 } else { 3e-3 });
        assert!((2700..3300).contains(&a) && b > 700, "{a} {b}");
    }

    #[test]
    fn a_drive_that_stalled_once_is_used_again() {
        let [_, b] = simulate(8000, |drive, i| if drive == 1 && i < 100 { 0.05 } else { 1e-3 });
        assert!(b > 1000, "{b}");
    }

    #[test]
    fn of_equals_the_turn_decides() {
        let drives = [Drive::default(); 3];
        let all = [(0, 0), (1, 1), (2, 2)];
        let chosen: Vec<_> = (0..6).map(|turn| choose(&drives, all.into_iter(), turn).unwrap().0).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
        assert_eq!(choose(&drives, std::iter::empty(), 0), None);
    }

    #[test]
    fn look_ahead_has_its_own_limit() {
        let mut drive = Drive::default();
        drive.begin(true);
        assert!(!drive.has_room(true, 4, 1) && drive.has_room(false, 4, 1));
        drive.end(true, None, 1);
        assert!(drive.has_room(true, 4, 1));
    }
}
