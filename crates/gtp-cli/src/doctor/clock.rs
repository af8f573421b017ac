//! Checks whether this machine's clock can be right.
//!
//! Transfers do not need it, but the times of files that `sync` compares and the records of the
//! audit do, and so do hours in which keys may come. A server tells its time; whose clock is wrong
//! then is not known here.

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
        Synchronised::Unknown => Finding::unknown(CHECK, "plausible; the kernel does not say more"),
        Synchronised::No => {
            let found = "nothing keeps it right: times of files and of the audit may be wrong";
            Finding::warning(CHECK, found, mend)
        }
    }
}

/// Judges how many seconds the clock of a server is ahead of this one.
pub fn judge_far(ahead_s: i64) -> Finding {
    let (away, mend) = (ahead_s.unsigned_abs(), "timedatectl set-ntp true    # here and there");
    let (amount, unit) = match away {
        0..120 => return Finding::ok(FAR, "as this one, but for less than two minutes"),
        120..7_200 => (away / 60, "minutes"),
        7_200..172_800 => (away / 3_600, "hours"),
        172_800.. => (away / 86_400, "days"),
    };
    let side = if ahead_s > 0 { "ahead of" } else { "behind" };
    let found = format!(
        "{amount} {unit} {side} this one: what sync takes for newer may be older, and tickets and \
         hours of keys end at another time than it seems"
    );
    Finding::warning(FAR, found, mend)
}

const FAR: &str = "server clock";

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
            (RELEASED, Synchronised::Unknown, Verdict::Unknown),
            (RELEASED, Synchronised::No, Verdict::Warning),
            (RELEASED + CENTURY, Synchronised::Yes, Verdict::Fault),
        ] {
            assert_eq!(judge(now, synchronised).verdict, verdict, "{now} {synchronised:?}");
        }
    }

    #[test]
    fn a_servers_clock_that_is_minutes_off_is_named_with_which_way_and_how_much() {
        for (ahead_s, verdict, says) in [
            (0, Verdict::Ok, "as this one"),
            (-119, Verdict::Ok, "as this one"),
            (120, Verdict::Warning, "2 minutes ahead of"),
            (-840, Verdict::Warning, "14 minutes behind"),
            (7_200, Verdict::Warning, "2 hours ahead of"),
            (i64::MIN, Verdict::Warning, "days behind"),
        ] {
            let finding = judge_far(ahead_s);
            assert_eq!(finding.verdict, verdict, "{ahead_s}");
            assert!(finding.found.contains(says), "{}", finding.found);
        }
    }
}
