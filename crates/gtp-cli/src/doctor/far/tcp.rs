//! Whether the server takes TCP connections over each IP version for which it has an address.
//!
//! Where one version does not work and the other does, transfers take the other, a little later;
//! where none does, they fail.

use std::net::SocketAddr;

use gtp::Failure;

use super::super::finding::Finding;
use super::version;

const CHECK: &str = "tcp";

/// Judges one address of each version.
pub fn judge(tried: &[(SocketAddr, Result<(), Failure>)]) -> Vec<Finding> {
    let any = tried.iter().any(|(_, taken)| taken.is_ok());
    let row = |(address, taken): &(SocketAddr, Result<(), Failure>)| {
        let (over, port) = (version(*address), address.port());
        match taken {
            Ok(()) => Finding::ok(CHECK, format!("{address} takes connections")),
            Err(failure) if any => {
                let mend =
                    format!("gtp serve … --listen [::]:{port}    # there; or open TCP for {over}");
                Finding::warning(CHECK, format!("{over}: {failure}"), mend)
            }
            Err(failure) => {
                let mend = format!("gtp serve …    # there, and open TCP port {port}");
                Finding::fault(CHECK, format!("{over}: {failure}"), mend)
            }
        }
    };
    tried.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use gtp::FailureKind;

    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn one_broken_ip_version_is_a_warning_and_none_that_works_a_fault() {
        let [v4, v6] = ["1.1.1.1:4810", "[::1]:4810"].map(|text| text.parse().unwrap());
        let broken = || Err(Failure::new(FailureKind::Temporary, "no answer"));
        let verdicts = |tried: &[(SocketAddr, Result<(), Failure>)]| -> Vec<Verdict> {
            judge(tried).iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(verdicts(&[(v6, Ok(())), (v4, Ok(()))]), [Verdict::Ok; 2]);
        assert_eq!(verdicts(&[(v6, broken()), (v4, Ok(()))]), [Verdict::Warning, Verdict::Ok]);
        assert_eq!(verdicts(&[(v6, broken()), (v4, broken())]), [Verdict::Fault; 2]);
        assert!(judge(&[(v6, broken())])[0].found.starts_with("IPv6: "));
    }
}
