//! The steps in which a file system keeps times.
//!
//! FAT counts seconds in twos, SFTP counts whole seconds, NTFS counts hundreds of nanoseconds. A
//! file that was given its source's time comes back with an earlier one and would be taken for
//! another version. So a time is compared with what the destination makes of the listed one. Which
//! steps it takes shows when a time with many digits is set and read back.
//!
//! This is arithmetic: it sets no time and reads none.

use crate::manifest::Mtime;

/// The coarsest steps that count as keeping times at all, in seconds: those of FAT.
pub(crate) const COARSEST_S: u64 = 2;

/// Steps that are known, in nanoseconds, the finest first. FAT, SFTP, FAT's creation times and
/// exFAT, milliseconds and microseconds of various protocols, NTFS and SMB, and all others.
const STEPS: [u64; 7] = [1, 100, 1_000, 1_000_000, 10_000_000, NANOS, COARSEST_S * NANOS];

const NANOS: u64 = 1_000_000_000;

/// The steps in which a file system keeps times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeStep(u64);

impl Default for TimeStep {
    fn default() -> TimeStep {
        TimeStep::EXACT
    }
}

impl TimeStep {
    /// Every time is kept as it is set.
    pub const EXACT: TimeStep = TimeStep(1);

    /// Returns the steps that are known, the finest first, which is exact.
    pub fn known() -> impl Iterator<Item = TimeStep> {
        STEPS.into_iter().map(TimeStep)
    }

    /// Returns a time of which each step makes another one.
    pub fn probe() -> Option<Mtime> {
        Mtime::new(1_234_567_891, 987_654_321).ok()
    }

    /// Returns the finest step that makes `kept` of the probe that was `set`. A file system that
    /// rounds in another way counts as exact: then files are fetched again, and none is missed.
    pub fn between(set: Mtime, kept: Mtime) -> TimeStep {
        TimeStep::known().find(|step| step.of(set) == kept).unwrap_or(TimeStep::EXACT)
    }

    /// Returns what becomes of a time.
    pub fn of(self, time: Mtime) -> Mtime {
        let coarse = i64::try_from(self.0 / NANOS).unwrap_or(1).max(1);
        let secs = time.secs().div_euclid(coarse) * coarse;
        let nanos = match self.0 {
            ..NANOS => u64::from(time.nanos()) / self.0 * self.0,
            NANOS.. => 0,
        };
        let nanos = u32::try_from(nanos).unwrap_or(0);
        Mtime::new(secs, nanos).unwrap_or(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(secs: i64, nanos: u32) -> Mtime {
        Mtime::new(secs, nanos).unwrap()
    }

    #[test]
    fn each_step_is_known_by_what_it_makes_of_the_probe() {
        let probe = TimeStep::probe().unwrap();
        for step in STEPS.map(TimeStep) {
            assert_eq!(TimeStep::between(probe, step.of(probe)), step);
        }
        let rounded_up = time(1_234_567_892, 0);
        assert_eq!(TimeStep::between(probe, rounded_up), TimeStep::EXACT);
    }

    #[test]
    fn times_are_cut_towards_the_past_also_before_1970() {
        assert_eq!(TimeStep(2 * NANOS).of(time(7, 9)), time(6, 0));
        assert_eq!(TimeStep(2 * NANOS).of(time(-7, 9)), time(-8, 0));
        assert_eq!(TimeStep(NANOS).of(time(-7, 9)), time(-7, 0));
        assert_eq!(TimeStep(100).of(time(7, 123_456_789)), time(7, 123_456_700));
        assert_eq!(TimeStep::EXACT.of(time(7, 123_456_789)), time(7, 123_456_789));
    }
}
