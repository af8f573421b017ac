//! Whether the file system of the working directory can receive files.
//!
//! A small object is received into it by the code that receives all objects, and removed. `gtp
//! bench disk` measures how fast the disk is.

use std::path::Path;

use gtp::Failure;

use super::finding::Finding;

const CHECK: &str = "disk";

/// Tries the working directory.
pub fn check() -> Finding {
    let here = Path::new(".");
    let free = rustix::fs::statvfs(here).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize)).ok();
    judge(free, gtp_bench::try_disk(here))
}

/// Judges by the bytes that are free and by what came of the object: what the file system lacks, in
/// a sentence.
fn judge(free: Option<u64>, tried: Result<Option<String>, Failure>) -> Finding {
    let mib = free.map_or(u64::MAX, |bytes| bytes >> 20);
    match tried {
        Err(failure) if mib == 0 => {
            Finding::fault(CHECK, format!("it is full: {failure}"), "df -h .    # and free some")
        }
        Err(failure) => {
            let found = format!("nothing can be received here: {failure}");
            Finding::fault(CHECK, found, "cd    # to a directory that this user may write")
        }
        Ok(Some(lacks)) => {
            Finding::warning(CHECK, lacks, "df -T .    # and receive into another file system")
        }
        Ok(None) if mib < SCARCE_MIB => {
            Finding::warning(CHECK, format!("{mib} MiB are free"), "df -h .    # and free some")
        }
        Ok(None) => Finding::ok(CHECK, format!("{mib} MiB are free; times and locks are kept")),
    }
}

/// A file system with less than this free gets a warning.
const SCARCE_MIB: u64 = 256;

#[cfg(test)]
mod tests {
    use gtp::FailureKind;

    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_full_disk_one_that_cannot_be_written_and_one_that_lacks_something_are_told_apart() {
        let full = || Failure::new(FailureKind::Destination, "no space left on device");
        let lacks = || Some("the destination keeps no times".to_owned());
        for (free, tried, verdict, says) in [
            (0, Err(full()), Verdict::Fault, "full"),
            (1 << 40, Err(full()), Verdict::Fault, "nothing can be received"),
            (1 << 40, Ok(lacks()), Verdict::Warning, "keeps no times"),
            (1 << 20, Ok(None), Verdict::Warning, "1 MiB"),
            (1 << 40, Ok(None), Verdict::Ok, "are free"),
        ] {
            let found = judge(Some(free), tried);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
    }
}
