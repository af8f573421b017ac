//! How many descriptors a process here may have open.
//!
//! Commands raise the soft limit to the hard one themselves, so that only the hard one counts. This
//! does not look at who holds descriptors.

use super::finding::Finding;

const CHECK: &str = "descriptors";

/// Judges the hard limit of this process.
pub fn check() -> Finding {
    judge(gtp_sys::descriptors::limit())
}

fn judge(limit: u64) -> Finding {
    let mend = format!("ulimit -n {WANTED}    # or LimitNOFILE={WANTED} in the unit");
    if limit < gtp_sys::descriptors::LEAST {
        let found = format!("{limit}: too few for any transfer");
        return Finding::fault(CHECK, found, mend);
    }
    if limit < OF_A_CLIENT {
        let found =
            format!("{limit}: a transfer of a directory may have to wait for free descriptors");
        return Finding::warning(CHECK, found, mend);
    }
    if limit < OF_A_SERVER {
        let found = format!("{limit}: a server takes fewer clients than it could");
        return Finding::warning(CHECK, found, mend);
    }
    Finding::ok(CHECK, format!("{limit}"))
}

/// A transfer's own, and a reserve for directories that are walked.
const OF_A_CLIENT: u64 = 128;
/// Five for each of 512 clients, a quarter for files that stay open, and the server's own.
const OF_A_SERVER: u64 = 3_500;
/// What the unit has.
const WANTED: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn few_descriptors_are_a_warning_and_too_few_for_any_transfer_a_fault() {
        let cases = [
            (16, Verdict::Fault),
            (24, Verdict::Warning),
            (1_024, Verdict::Warning),
            (65_536, Verdict::Ok),
        ];
        for (limit, verdict) in cases {
            assert_eq!(judge(limit).verdict, verdict, "{limit}");
        }
    }
}
