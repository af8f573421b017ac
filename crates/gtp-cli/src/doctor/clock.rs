//! Checks whether this machine's clock can be right.
//!
//! Transfers do not need it, but the times of files that `sync` compares and the records of the
//! audit do. What other machines' clocks say is not known here.

use gtp_sys::clock::{Synchronised, synchronised, unix_seconds};

use super::finding::Finding;

const CHECK: &str = "clock";

/// Asks the kernel for the time and for whether something keeps it right.
pub fn check() -> Finding {
    judge(unix_seconds(), synchronised())
}

/// Judges a time in seconds since 1970.
fn judge(now: u64, synchronised: Synchronised) -> Finding {
    let mend = "timedatectl set-ntp true";
    if !(RELEASED..RELEASED + CENTURY).contains(&now) {
        let found = format!("it cannot be right: it says {now} seconds after 1970");
        return Finding::fault(CHECK, found, mend);
    }
    match synchronised {
        Synchronised::Yes => Finding::ok(CHECK, "synchronised"),
        Synchronised::Unknown => Finding::ok(CHECK, "plausible; the kernel does not say more"),
        Synchronised::No => {
            let found = "nothing keeps it right: times of files and of the audit may be wrong";
            Finding::warning(CHECK, found, mend)
        }
    }
}

/// The first of January 2026 in seconds since 1970. This program was made later, so an earlier
/// time is wrong.
const RELEASED: u64 = 1_767_225_600;
/// A hundred years in seconds; a later time is wrong too.
const CENTURY: u64 = 100 * 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_clock_before_this_program_or_long_after_it_is_wrong_and_a_free_one_doubtful() {
        for (now, synchronised, verdict) in [
            (0, Synchronised::Yes, Verdict::Fault),
            (RELEASED - 1, Synchronised::Yes, Verdict::Fault),
            (RELEASED, Synchronised::Yes, Verdict::Ok),
            (RELEASED, Synchronised::Unknown, Verdict::Ok),
            (RELEASED, Synchronised::No, Verdict::Warning),
            (RELEASED + CENTURY, Synchronised::Yes, Verdict::Fault),
        ] {
            assert_eq!(judge(now, synchronised).verdict, verdict, "{now} {synchronised:?}");
        }
    }
}
