//! What the machine itself did while something was measured.
//!
//! On a virtual machine the hypervisor may give the processors to others for tens of milliseconds
//! at a time. Emulator, sources and sink all stand still then, and what is measured is the
//! neighbour. So each row says how much was stolen, and a run in which it was much can be repeated.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Processor time of the whole machine since it started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Wanted by this machine and given to others by its hypervisor.
    stolen: u64,
    /// Of every kind, idle included.
    all: u64,
}

impl Ticks {
    /// As they are now, from `/proc/stat`.
    ///
    /// # Errors
    /// If the file cannot be read, or says something else than proc(5).
    pub fn read() -> Result<Ticks> {
        Ticks::parse(&std::fs::read_to_string("/proc/stat").context("/proc/stat")?)
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal; what follows is in
    /// user already (proc(5)).
    fn parse(text: &str) -> Result<Ticks> {
        let line = text.lines().find_map(|l| l.strip_prefix("cpu ")).context("no line of cpu")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map(|word| word.parse().with_context(|| format!("{word:?} is not a number of ticks")))
            .collect::<Result<_>>()?;
        let stolen = *ticks.get(7).context("a kernel that does not count stolen time")?;
        Ok(Ticks { stolen, all: ticks.iter().sum() })
    }

    /// The part of the machine's time since `earlier` that was stolen, 0 to 1.
    pub fn stolen_since(self, earlier: Ticks) -> f64 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64
    }
}

/// Where the kernel keeps how large a buffer a socket may ask for. Not of a network namespace.
const BUFFERS: &str = "/proc/sys/net/core";

/// While it lives, any socket may ask for this much of buffer.
pub struct LargeBuffers {
    before: Vec<(PathBuf, String)>,
}

impl LargeBuffers {
    /// Raises both limits to so many bytes; one that is higher already stays.
    ///
    /// # Errors
    /// If a limit cannot be read or written.
    pub fn of(bytes: u64) -> Result<LargeBuffers> {
        LargeBuffers::within(Path::new(BUFFERS), bytes)
    }

    fn within(directory: &Path, bytes: u64) -> Result<LargeBuffers> {
        let mut raised = LargeBuffers { before: Vec::new() };
        for name in ["rmem_max", "wmem_max"] {
            let limit = directory.join(name);
            let named = || limit.display().to_string();
            let before = std::fs::read_to_string(&limit).with_context(named)?;
            if before.trim().parse::<u64>().with_context(named)? < bytes {
                std::fs::write(&limit, bytes.to_string()).with_context(named)?;
                raised.before.push((limit, before));
            }
        }
        Ok(raised)
    }
}

impl Drop for LargeBuffers {
    fn drop(&mut self) {
        for (limit, before) in &self.before {
            // It could be written a moment ago.
            let _ = std::fs::write(limit, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_raised_for_a_while_and_never_lowered() {
        let limits = tempfile::tempdir().unwrap();
        let limit = |name: &str| limits.path().join(name);
        let read = |name| std::fs::read_to_string(limit(name)).unwrap();
        std::fs::write(limit("rmem_max"), "1000\n").unwrap();
        std::fs::write(limit("wmem_max"), "9000\n").unwrap();
        let raised = LargeBuffers::within(limits.path(), 5000).unwrap();
        assert_eq!((read("rmem_max").trim(), read("wmem_max").trim()), ("5000", "9000"));
        drop(raised);
        assert_eq!((read("rmem_max").trim(), read("wmem_max").trim()), ("1000", "9000"));
        std::fs::write(limit("wmem_max"), "many").unwrap();
        assert!(LargeBuffers::within(limits.path(), 5000).is_err());
        assert_eq!(read("rmem_max").trim(), "1000", "a failure changes nothing");
    }

    #[test]
    fn the_stolen_part_is_of_all_time_and_guests_are_not_counted_twice() {
        let before = Ticks::parse("cpu  100 0 50 800 0 0 0 10 70 0\ncpu0 1 2\n").unwrap();
        let after = Ticks::parse("cpu  130 0 70 840 0 0 0 20 99 0\n").unwrap();
        assert!((after.stolen_since(before) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_file_without_stolen_time_is_an_error() {
        assert!(Ticks::parse("cpu  1 2 3 4\n").is_err());
        assert!(Ticks::parse("intr 7\n").is_err());
        assert!(Ticks::parse("cpu  1 2 3 4 x 6 7 8\n").is_err());
    }
}
