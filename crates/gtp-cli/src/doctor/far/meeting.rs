//! Whether this end believes the server's key, both have a version in common, and the server gives
//! what the URL names.
//!
//! What a server of an earlier release lacks is said, because it explains what fails later.

use gtp::examine::{Met, Revision};
use gtp::{Failure, FailureKind, Url};

use super::super::finding::Finding;

const IDENTITY: &str = "identity";
const VERSION: &str = "release";

/// Judges what came of the first meeting.
pub fn judge(url: &Url, met: &Result<Met, Failure>) -> Vec<Finding> {
    let failure = match met {
        Ok(met) => {
            let known = Finding::ok(IDENTITY, format!("{} is believed", met.fingerprint));
            return vec![known, release(met.revision)];
        }
        Err(failure) => failure,
    };
    let at_length = || format!("gtp get {url} /tmp/    # says the same at length");
    let mend = match failure.kind {
        FailureKind::Authentication => LETS_IN.to_owned(),
        FailureKind::Missing => format!("gtp ls gtp://{}/", url.host()),
        FailureKind::Other
        | FailureKind::Usage
        | FailureKind::Destination
        | FailureKind::Temporary
        | FailureKind::Unreachable
        | FailureKind::Integrity
        | FailureKind::TimeLimit
        | FailureKind::NoUdpPath
        | FailureKind::Partial
        | FailureKind::Interrupted => at_length(),
    };
    vec![Finding::fault(IDENTITY, failure.to_string(), mend)]
}

/// How each end comes to know the other's key.
const LETS_IN: &str = "gtp id    # there, for --fingerprint here; and here, for gtp keys add there";

fn release(revision: Revision) -> Finding {
    let (has, newest) = (revision.number(), Revision::NEWEST.number());
    if revision == Revision::NEWEST {
        return Finding::ok(VERSION, format!("both speak revision {has} of the messages"));
    }
    let lacks = match revision {
        Revision::First | Revision::Second => "it cannot tell a blocked path from a slow host",
        Revision::Third => "where UDP is blocked, transfers fail",
        Revision::Fourth | Revision::Fifth => "gtp sync does not work with it",
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

    #[test]
    fn a_server_of_an_older_release_is_met_with_a_warning_that_says_what_it_lacks() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let fingerprint = Identity::generate().fingerprint();
        for (revision, verdict) in [
            (Revision::NEWEST, Verdict::Ok),
            (Revision::Third, Verdict::Warning),
            (Revision::First, Verdict::Warning),
        ] {
            let found = judge(&url, &Ok(Met { fingerprint, revision, datagrams: Datagrams::Pass }));
            assert_eq!((found[0].verdict, found[1].verdict), (Verdict::Ok, verdict), "{found:?}");
        }
        let failed = |kind| judge(&url, &Err(Failure::new(kind, "no"))).remove(0).mend.unwrap();
        assert!(failed(FailureKind::Authentication).contains("gtp keys add"));
        assert!(failed(FailureKind::Missing).starts_with("gtp ls gtp://a.example"));
    }
}
