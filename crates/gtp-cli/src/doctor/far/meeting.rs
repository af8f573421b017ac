//! Whether this end believes the server's key, both have a version in common, and the server gives
//! what the URL names.
//!
//! What a server of an earlier release lacks is said, because it explains what fails later.

use gtp::examine::{Met, Revision};
use gtp::{Failure, FailureKind, Url};

use super::super::clock;
use super::super::finding::Finding;
use super::measure::at_length;
use crate::shell;

const IDENTITY: &str = "identity";
const VERSION: &str = "release";
const HOURS: &str = "hours";
const OBJECT: &str = "object";
const SESSION: &str = "session";

/// Judges what came of the first meeting of this host, whose key is `own`, with a server.
pub fn judge(own: &str, url: &Url, met: &Result<Met, Failure>) -> Vec<Finding> {
    match met {
        Ok(met) => {
            let known = Finding::ok(IDENTITY, format!("{} is trusted", met.fingerprint));
            let clock = met.ahead_s.map(clock::judge_far);
            [known, release(met.revision)].into_iter().chain(clock).collect()
        }
        Err(failure) => {
            let (check, mend) = blame(own, url, failure);
            vec![Finding::fault(check, failure.to_string(), mend)]
        }
    }
}

/// Judges a failed meeting over an IP version where the other one works.
pub fn judge_other(own: &str, url: &Url, over: &str, failure: &Failure) -> Finding {
    let (check, mend) = blame(own, url, failure);
    Finding::warning(check, format!("{over}: {failure}"), mend)
}

/// What a failed meeting is the fault of, and the line that helps.
fn blame(own: &str, url: &Url, failure: &Failure) -> (&'static str, String) {
    match failure.kind {
        FailureKind::Authentication | FailureKind::Revoked => (IDENTITY, lets_in(own)),
        FailureKind::OutsideHours => (HOURS, which_hours(own)),
        FailureKind::Missing => {
            let root = shell::quoted(&format!("gtp://{}/", url.host()));
            (OBJECT, format!("gtp ls {root}"))
        }
        FailureKind::Other
        | FailureKind::Usage
        | FailureKind::Destination
        | FailureKind::Quota
        | FailureKind::Temporary
        | FailureKind::Unreachable
        | FailureKind::Integrity
        | FailureKind::TimeLimit
        | FailureKind::NoUdpPath
        | FailureKind::Partial
        | FailureKind::Interrupted => (SESSION, at_length(url)),
    }
}

/// How each end comes to know the other's key.
fn lets_in(own: &str) -> String {
    format!(
        "gtp keys test {own}    # there; if it is not listed, gtp keys add {own} --rights read; \
         and here --fingerprint with the key that the server prints at start"
    )
}

/// What shows whose hours these are, and what changes them.
fn which_hours(own: &str) -> String {
    format!(
        "gtp keys test {own}    # there: which hours these are; gtp keys add {own} --window \
         changes those of the key"
    )
}

fn release(revision: Revision) -> Finding {
    let (has, newest) = (revision.number(), Revision::NEWEST.number());
    if revision == Revision::NEWEST {
        return Finding::ok(VERSION, format!("both speak revision {has} of the messages"));
    }
    let lacks = match revision {
        Revision::First | Revision::Second => "it cannot tell a blocked path from a slow host",
        Revision::Third => "where UDP is blocked, transfers fail",
        Revision::Fourth => "gtp sync does not work with it",
        Revision::Fifth | Revision::Sixth => "where UDP is blocked, streams fail",
    };
    let found = format!("the server speaks revision {has}, this program {newest}: {lacks}");
    Finding::warning(VERSION, found, "install this release there")
}

#[cfg(test)]
mod tests {
    use gtp::Identity;
    use gtp::examine::Datagrams;

    use super::super::super::finding::Verdict;
    use super::*;

    const OWN: &str = "SHA256:own";

    #[test]
    fn a_server_of_an_older_release_is_met_with_a_warning_that_says_what_it_lacks() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let fingerprint = Identity::generate().fingerprint();
        for (revision, verdict) in [
            (Revision::NEWEST, Verdict::Ok),
            (Revision::Third, Verdict::Warning),
            (Revision::First, Verdict::Warning),
        ] {
            let found = judge(
                OWN,
                &url,
                &Ok(Met { fingerprint, revision, datagrams: Datagrams::Pass, ahead_s: None }),
            );
            assert_eq!((found[0].verdict, found[1].verdict), (Verdict::Ok, verdict), "{found:?}");
        }
    }

    #[test]
    fn a_failed_meeting_is_a_row_of_what_failed() {
        let url: Url = "gtp://a.example/$(x)".parse().unwrap();
        for (kind, check, mends) in [
            (FailureKind::Authentication, "identity", "gtp keys test SHA256:own"),
            (FailureKind::OutsideHours, "hours", "gtp keys test SHA256:own"),
            (FailureKind::Missing, "object", "gtp ls gtp://a.example:4810/"),
            (FailureKind::Temporary, "session", "gtp get gtp://a.example:4810/%24%28x%29 /tmp/"),
        ] {
            let failure = Failure::new(kind, "no");
            let row = judge(OWN, &url, &Err(failure.clone())).remove(0);
            assert_eq!((row.check, row.verdict), (check, Verdict::Fault));
            assert!(row.mend.as_deref().unwrap().contains(mends), "{row:?}");
            let other = judge_other(OWN, &url, "IPv6", &failure);
            assert_eq!((other.check, other.verdict), (check, Verdict::Warning));
            assert_eq!((&*other.found, other.mend), ("IPv6: no", row.mend));
        }
    }
}
