//! Whether the kernel cuts a long buffer into datagrams when it sends (GSO), and hands over many
//! that came together as one (GRO).
//!
//! Without either, each datagram costs a call's time. A batch over the loopback device shows what
//! the kernel does; what a network card does for it is not known here.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use gtp_sys::udp::{Header, ReceiveBatch, Sent, UdpSocket};
use gtp_sys::wake::Poller;

use super::finding::Finding;

const CHECK: &str = "offload";

/// What a batch over the loopback device showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Datagrams that one call sends.
    segments: usize,
    /// Whether the kernel took them in one call.
    is_taken: bool,
    /// Pieces in which they came.
    pieces: usize,
}

/// Sends a batch to itself.
pub fn check() -> Finding {
    match try_out() {
        Ok(seen) => judge(seen),
        Err(error) => {
            let found = format!("no datagram can be sent over the loopback device: {error}");
            Finding::fault(CHECK, found, "ip link set dev lo up")
        }
    }
}

fn try_out() -> io::Result<Seen> {
    let bind = || UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let (from, to) = (bind()?, bind()?);
    let segments = from.max_segments();
    let count = segments.clamp(1, BATCH);
    let header = Header::to(to.local_addr());
    let sent = from.send(&header, SEGMENT, &vec![0; SEGMENT * count]);
    let (poller, mut ready) = (Poller::new()?, [false]);
    let mut pieces = 0;
    let mut batch = ReceiveBatch::new();
    if sent == Sent::Taken {
        use std::os::fd::AsFd;
        poller.wait([to.as_fd()], &mut ready, Some(gtp::Span::from_secs(1)))?;
        while to.receive(&mut batch)? {
            pieces += batch.pieces().count();
        }
    }
    Ok(Seen { segments, is_taken: sent == Sent::Taken, pieces })
}

fn judge(seen: Seen) -> Finding {
    let kernel = "uname -r    # GSO needs Linux 4.18, GRO 5.0; no sandbox may refuse UDP_SEGMENT";
    match seen {
        Seen { segments: 0 | 1, .. } | Seen { is_taken: false, .. } => {
            let found = "the kernel sends datagrams one by one (no GSO): sending costs more";
            Finding::warning(CHECK, found, kernel)
        }
        Seen { pieces: 0, .. } => {
            let found = "datagrams that were sent over the loopback device did not arrive";
            Finding::fault(CHECK, found, "nft list ruleset    # and let the device lo through")
        }
        Seen { pieces: 1, segments, .. } => {
            Finding::ok(CHECK, format!("{segments} datagrams a call are sent, and come, as one"))
        }
        Seen { .. } => {
            let found = "the kernel hands over datagrams one by one (no GRO): receiving costs more";
            Finding::warning(CHECK, found, kernel)
        }
    }
}

/// Datagrams that are tried, and the bytes of each.
const BATCH: usize = 8;
const SEGMENT: usize = 1_200;

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_batch_of_which_nothing_arrives_is_no_matter_of_offload() {
        let found = judge(Seen { segments: 64, is_taken: true, pieces: 0 });
        assert_eq!(found.verdict, Verdict::Fault);
        assert!(found.found.contains("did not arrive") && !found.found.contains("GRO"));
    }

    #[test]
    fn offload_that_is_missing_on_either_way_is_a_warning() {
        let seen = |segments, is_taken, pieces| judge(Seen { segments, is_taken, pieces });
        assert_eq!(seen(64, true, 1).verdict, Verdict::Ok);
        for (segments, is_taken, pieces, says) in
            [(1, true, 1, "GSO"), (64, false, 0, "GSO"), (64, true, 8, "GRO")]
        {
            let found = seen(segments, is_taken, pieces);
            assert_eq!(found.verdict, Verdict::Warning);
            assert!(found.found.contains(says), "{found:?}");
        }
    }
}
