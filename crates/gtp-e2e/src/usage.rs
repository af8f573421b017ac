//! What a process uses, as the kernel counts it.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use gtp_lab::series::median;
use serde_json::{Value, json};

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Resident bytes.
    pub memory: u64,
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: u64,
}

impl Usage {
    /// What the process `id` uses now.
    ///
    /// # Errors
    /// If the process has ended or `/proc` says something else than proc(5).
    pub fn of(id: u32) -> Result<Usage> {
        let place = PathBuf::from(format!("/proc/{id}"));
        let status = std::fs::read_to_string(place.join("status")).context("no such process")?;
        let descriptors = std::fs::read_dir(place.join("fd"))?.count();
        let memory = 1024 * field(&status, "VmRSS:")?;
        Ok(Usage { memory, descriptors, threads: field(&status, "Threads:")? })
    }

    /// Whether it has no more descriptors and threads than `other`.
    pub fn holds_no_more_than(&self, other: &Usage) -> bool {
        self.descriptors <= other.descriptors && self.threads <= other.threads
    }

    /// The median of each field, rounded; `None` of no readings.
    pub fn median(readings: &[Usage]) -> Option<Usage> {
        let middle = |field: fn(&Usage) -> u64| {
            let mut values: Vec<f64> = readings.iter().map(|usage| field(usage) as f64).collect();
            values.sort_by(f64::total_cmp);
            median(&values).map(|middle| middle.round() as u64)
        };
        Some(Usage {
            memory: middle(|usage| usage.memory)?,
            descriptors: middle(|usage| usage.descriptors as u64)? as usize,
            threads: middle(|usage| usage.threads)?,
        })
    }

    pub fn to_json(self) -> Value {
        json!({"memory_bytes": self.memory, "descriptors": self.descriptors,
            "threads": self.threads})
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.memory as f64 / f64::from(1 << 20);
        write!(f, "{mib:.1} MiB, {} descriptors, {} threads", self.descriptors, self.threads)
    }
}

/// The processor time that a process has taken with all its threads, in seconds.
///
/// # Errors
/// If the process has ended or `/proc` says something else than proc(5).
pub(crate) fn processor_seconds(id: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).context("no such process")?;
    // The name, in parentheses, may have spaces. User and system time are words 14 and 15.
    let (_, rest) = text.rsplit_once(')').context("/proc/ID/stat")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
    let ticks = ticks(11).zip(ticks(12)).context("no times")?;
    Ok((ticks.0 + ticks.1) / TICKS)
}

/// Ticks of a second, as Linux counts them for programs on every machine (proc(5), `USER_HZ`).
const TICKS: f64 = 100.0;

/// The number behind a name in a process's status.
fn field(status: &str, name: &str) -> Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
    let number = value.split_whitespace().next().context("an empty field")?;
    number.parse().with_context(|| format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_readings_lies_between_them() {
        let of = |memory| Usage { memory, descriptors: 3, threads: 1 };
        assert_eq!(Usage::median(&[of(9), of(5)]), Some(of(7)));
        assert_eq!(Usage::median(&[]), None);
    }

    #[test]
    fn a_process_that_works_takes_processor_time() {
        let own = std::process::id();
        let before = processor_seconds(own).unwrap();
        let mut sum = 0_u64;
        while processor_seconds(own).unwrap() <= before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_seconds(u32::MAX).is_err());
    }

    #[test]
    fn this_process_has_memory_descriptors_and_threads_and_one_that_ended_has_none() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.memory > 0 && usage.descriptors > 0 && usage.threads > 0, "{usage}");
        assert!(Usage::of(u32::MAX).is_err());
    }
}
