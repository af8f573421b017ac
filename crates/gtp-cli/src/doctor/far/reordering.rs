//! Whether datagrams from the server overtake each other on the way.
//!
//! While the path is measured, the server sends small datagrams at a constant, low rate beside the
//! transfer, as `gtp probe --down` has it, and this end counts which ones a later one had
//! overtaken. What that is worth is decided on plain numbers.

use std::time::Duration;

use gtp::probe::{FRAME_BYTES, Probe};
use gtp::{Failure, Host, Rate, Url};
use tokio::time::timeout;

use super::super::DoctorArgs;
use super::super::finding::Finding;

const CHECK: &str = "reordering";

/// Counts for some seconds what is overtaken.
pub async fn check(args: &DoctorArgs, url: &Url, host: &Host) -> Finding {
    match timeout(LONGEST, probe(args, url, host)).await {
        Ok(Ok((came, overtaken))) => judge(came, overtaken),
        Ok(Err(failure)) => Finding::unknown(CHECK, format!("not measured: {failure}")),
        Err(_) => Finding::unknown(CHECK, "not measured: the datagrams took too long"),
    }
}

/// Returns how many datagrams came, and how many of them a later one had overtaken.
async fn probe(args: &DoctorArgs, url: &Url, host: &Host) -> Result<(u64, u64), Failure> {
    let probe = Probe::new(url.clone()).down(RATE).frame(*FRAME_BYTES.start()).span(SPAN);
    let mut probe = args.trust.fingerprint.iter().fold(probe, |probe, key| probe.fingerprint(*key));
    if args.trust.accept_new {
        probe = probe.accept_new();
    }
    let seen = probe.start(host).await?.down.map(|way| way.seen);
    Ok(seen.map_or((0, 0), |seen| (seen.frames, seen.overtaken)))
}

fn judge(came: u64, overtaken: u64) -> Finding {
    let part = overtaken as f64 / came.max(1) as f64;
    let found = format!("{overtaken} of {came} datagrams were overtaken ({:.2} %)", part * 100.0);
    if came < LEAST {
        return Finding::unknown(CHECK, format!("too few came to judge by: {found}"));
    }
    if part <= SEEN {
        return Finding::ok(CHECK, found);
    }
    let found = format!("{found}: each is waited for before it counts as lost, and TCP slows down");
    Finding::warning(CHECK, found, MEND)
}

/// What shows who balances packets and not flows.
const MEND: &str = "grep -H Mode /proc/net/bonding/*    # here and there: not balance-rr; let \
                    routers on the way balance by flow, not by packet";
/// Rate of the datagrams: less than a hundredth of most paths, and some 1,000 a second.
const RATE: Rate = Rate::from_mbps(1);
/// How long they count.
const SPAN: Duration = Duration::from_secs(3);
/// When they are given up: with the measurement of the path.
const LONGEST: Duration = Duration::from_secs(10);
/// Datagrams without which nothing can be said.
const LEAST: u64 = 100;
/// Less is overtaken on paths where a route changed, or a link is slow for once.
const SEEN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_path_where_many_datagrams_are_overtaken_is_a_warning_that_says_whom_to_ask() {
        for (came, overtaken, verdict, says) in [
            (3_000, 0, Verdict::Ok, "0 of 3000 datagrams were overtaken (0.00 %)"),
            (3_000, 30, Verdict::Ok, "(1.00 %)"),
            (3_000, 31, Verdict::Warning, "(1.03 %): each is waited for"),
            (3_000, 1_500, Verdict::Warning, "(50.00 %)"),
            (99, 50, Verdict::Unknown, "too few came to judge by: 50 of 99"),
            (0, 0, Verdict::Unknown, "too few"),
        ] {
            let found = judge(came, overtaken);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
        assert!(judge(3_000, 500).mend.unwrap().contains("balance-rr"));
    }
}
