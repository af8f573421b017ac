//! Whether the server's name has addresses.
//!
//! A name that does not exist and a resolver that does not answer are mended in different places,
//! so they have lines of their own.

use std::net::SocketAddr;

use gtp::{Failure, FailureKind, Url};

use super::super::finding::Finding;

const CHECK: &str = "name";

/// Says how many addresses the name of `url` has, by IP version; or, from why it has none, where to
/// mend that.
pub fn judge(url: &Url, found: Result<&[SocketAddr], &Failure>) -> Finding {
    match found {
        Ok(addresses) => {
            let v4 = addresses.iter().filter(|one| one.is_ipv4()).count() as u64;
            let v6 = addresses.len() as u64 - v4;
            let each = format!("{v4} of IPv4, {v6} of IPv6");
            let all = gtp_text::count(v4 + v6, "address");
            Finding::ok(CHECK, format!("{} has {all}: {each}", url.host()))
        }
        Err(failure) if failure.kind == FailureKind::Usage => {
            let mend = "correct the name    # or add it to /etc/hosts, or to DNS";
            Finding::fault(CHECK, failure.to_string(), mend)
        }
        Err(failure) => {
            Finding::fault(CHECK, failure.to_string(), "resolvectl status    # or /etc/resolv.conf")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_name_without_addresses_and_a_silent_resolver_have_lines_of_their_own() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let both = ["1.1.1.1:4810", "[::1]:4810"].map(|text| text.parse().unwrap());
        let found = judge(&url, Ok(&both));
        assert_eq!(found.verdict, Verdict::Ok);
        assert!(found.found.ends_with("has 2 addresses: 1 of IPv4, 1 of IPv6"), "{found:?}");
        for (kind, says) in [(FailureKind::Usage, "/etc/hosts"), (FailureKind::Temporary, "resolv")]
        {
            let found = judge(&url, Err(&Failure::new(kind, "no")));
            assert_eq!(found.verdict, Verdict::Fault);
            assert!(found.mend.unwrap().contains(says));
        }
    }
}
