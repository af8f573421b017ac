//! What this process takes of its machine: processor, memory, descriptors, threads.
//!
//! The numbers come from `/proc`, except the processor's time, which `/proc` counts in hundredths
//! of a second. If the kernel leaves one of them out, there are none. Nothing here depends on them.

use gtp_alloc::{Bytes, Span};
use procfs::process::{LimitValue, Process};
use rustix::time::{ClockId, clock_gettime};

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Processor time of all its threads, in user space and in the kernel.
    pub cpu: Span,
    /// Memory that it has in RAM.
    pub resident: Bytes,
    /// Addresses that it has mapped.
    pub mapped: Bytes,
    /// Descriptors that are open.
    pub descriptors: u64,
    /// Descriptors that may be open; `None` if there is no limit.
    pub descriptors_most: Option<u64>,
    /// Its threads.
    pub threads: u64,
    /// When it began, in seconds since 1970.
    pub began_unix_s: f64,
}

/// The number of the calling thread, for [`is_running`].
pub fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Whether a thread of this process runs, or waits for nothing but a processor. One that waits for
/// a disk, or for anything else, does not, nor one of which `/proc` says nothing.
pub fn is_running(thread: i32) -> bool {
    let stat = Process::myself().and_then(|own| own.task_from_tid(thread)?.stat());
    stat.is_ok_and(|stat| stat.state == 'R')
}

/// What this process takes now; `None` if `/proc` does not say.
pub fn usage() -> Option<Usage> {
    let process = Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let ticks = procfs::ticks_per_second().max(1);
    let seconds = |of: u64| of as f64 / ticks as f64;
    let most = process.limits().ok()?.max_open_files.soft_limit;
    Some(Usage {
        cpu: cpu_time(),
        resident: Bytes(stat.rss * procfs::page_size()),
        mapped: Bytes(stat.vsize),
        descriptors: process.fd_count().ok()? as u64,
        descriptors_most: match most {
            LimitValue::Unlimited => None,
            LimitValue::Value(most) => Some(most),
        },
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        began_unix_s: procfs::boot_time_secs().ok()? as f64 + seconds(stat.starttime),
    })
}

fn cpu_time() -> Span {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let part = |count: i64| u64::try_from(count).unwrap_or(0);
    Span::from_secs(part(used.tv_sec)) + Span::from_nanos(part(used.tv_nsec))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_process_that_has_hardly_run_has_taken_some_time_of_its_processor() {
        assert!(usage().unwrap().cpu > Span::ZERO);
    }

    #[test]
    fn what_this_process_takes_is_counted_as_it_takes_it() {
        let before = usage().unwrap();
        let held: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
        let memory = vec![1_u8; 64 << 20];
        let mut sum = 0_u64;
        let after = loop {
            sum = memory.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
            let now = usage().unwrap();
            if now.cpu >= before.cpu + Span::from_millis(50) {
                break now;
            }
        };
        assert!(sum > 0 && after.descriptors >= before.descriptors + held.len() as u64 - 5);
        assert!(after.resident.0 >= before.resident.0 + (32 << 20), "{before:?} {after:?}");
        assert!(after.mapped >= after.resident && after.threads >= 1);
        assert_eq!(after.descriptors_most, Some(crate::descriptors::limit()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - after.began_unix_s;
        assert!((-2.0..600.0).contains(&age), "it began {age} s ago");
    }
}
