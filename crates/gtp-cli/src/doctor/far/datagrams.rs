//! Which datagrams get through to the server and back, over one IP version, and how long they may
//! be.
//!
//! The server says over TCP what it has heard, so that the direction is known in which they are
//! lost. Where long ones are lost and short ones are not, the path has a hole.

use std::net::SocketAddr;

use gtp::Url;
use gtp::examine::Datagrams;

use super::super::finding::Finding;
use super::version;

const UDP: &str = "udp";
const PATH_MTU: &str = "path mtu";

/// Judges what came of long datagrams and, where they did not get through, of short ones.
pub fn judge(
    url: &Url,
    address: SocketAddr,
    (long, short): (Datagrams, Option<Datagrams>),
) -> Vec<Finding> {
    let over = version(address);
    match (long, short) {
        (Datagrams::Pass, _) => vec![
            Finding::ok(UDP, format!("{over}: datagrams get through in both directions")),
            Finding::ok(
                PATH_MTU,
                format!("{over}: packets of {} bytes get through", LONG + ip_header(address)),
            ),
        ],
        (_, Some(Datagrams::Pass)) => vec![
            Finding::ok(UDP, format!("{over}: short datagrams get through in both directions")),
            Finding::warning(
                PATH_MTU,
                format!(
                    "{over}: packets of {} bytes are lost silently, packets of {} are not",
                    LONG + ip_header(address),
                    SHORT + ip_header(address)
                ),
                "ip link set dev NAME mtu 1400    # at the tunnel on the way; or let ICMP through",
            ),
        ],
        (long, short) => vec![blocked(url, address, short.unwrap_or(long))],
    }
}

fn blocked(url: &Url, address: SocketAddr, datagrams: Datagrams) -> Finding {
    let (over, port, host) = (version(address), address.port(), url.host());
    let (found, mend) = match datagrams {
        Datagrams::NotThere => (
            format!("no datagram from here reaches {host} (UDP out is blocked); {SLOWER}"),
            format!(
                "nft add rule inet filter input udp dport {port} accept    # there, or between"
            ),
        ),
        Datagrams::NotBack => (
            format!("{host} hears this host and is not heard (UDP in is blocked); {SLOWER}"),
            format!("nft add rule inet filter input udp sport {port} accept    # here, or between"),
        ),
        Datagrams::Unsaid | Datagrams::Pass => (
            format!("no datagram comes, and {host} does not say what it hears: it is slow, or old"),
            "uptime    # there; and try again".to_owned(),
        ),
    };
    Finding::warning(UDP, format!("{over}: {found}"), mend)
}

/// Bytes of long and of short packets without their IP header: 1,400 and 1,180 of payload, 49 of
/// GTP, 8 of UDP.
const LONG: u32 = 1_457;
const SHORT: u32 = 1_237;

/// Bytes of the IP header of packets to an address.
fn ip_header(address: SocketAddr) -> u32 {
    if address.is_ipv4() { 20 } else { 40 }
}

/// What follows where no datagram gets through.
const SLOWER: &str = "TCP carries the data, slower where packets are lost";

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn each_direction_and_a_hole_for_long_packets_are_told_apart() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let address: SocketAddr = "1.1.1.1:4811".parse().unwrap();
        let judged = |long, short| judge(&url, address, (long, short));
        let all = judged(Datagrams::Pass, None);
        assert!(all.iter().all(|finding| finding.verdict == Verdict::Ok), "{all:?}");
        let hole = judged(Datagrams::NotThere, Some(Datagrams::Pass));
        assert_eq!((hole[0].verdict, hole[1].verdict), (Verdict::Ok, Verdict::Warning));
        assert_eq!(hole[1].check, PATH_MTU);
        assert!(hole[1].found.contains("1477 bytes") && hole[1].found.contains("of 1257 are not"));
        for (datagrams, says, mends) in [
            (Datagrams::NotThere, "UDP out is blocked", "dport 4811"),
            (Datagrams::NotBack, "UDP in is blocked", "sport 4811"),
            (Datagrams::Unsaid, "does not say", "uptime"),
        ] {
            let found = judged(datagrams, Some(datagrams)).remove(0);
            assert_eq!(found.verdict, Verdict::Warning);
            assert!(found.found.contains(says) && found.mend.unwrap().contains(mends));
        }
    }
}
