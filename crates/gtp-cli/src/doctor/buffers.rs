//! Whether the kernel gives a UDP socket the buffers that GTP asks for.
//!
//! A socket is opened as transfers do it, because a limit may be another one for this user or in
//! this container. The words and the line come from where the buffers are asked for.

use std::net::{Ipv4Addr, SocketAddr};

use gtp::Rate;
use gtp_sys::udp::{BufferAdvice, UdpSocket};

use super::finding::Finding;

const CHECK: &str = "buffers";

/// Opens a socket as transfers do, and looks at what it got.
pub fn check() -> Finding {
    match UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) {
        Ok(socket) => {
            let card = gtp_sys::nic::default_route_speed();
            judge(socket.buffer_advice(), socket.receive_buffer(), card)
        }
        Err(error) => {
            let found = format!("no UDP socket can be opened: {error}");
            Finding::fault(CHECK, found, "let this process open UDP sockets")
        }
    }
}

/// Buffers that are too small for a fast card alone are no fault of a machine that has none.
fn judge(advice: Option<BufferAdvice>, receive: usize, card: Option<Rate>) -> Finding {
    let (text, is_enough) = match advice {
        None => return Finding::ok(CHECK, format!("UDP buffers of {} MiB", receive >> 20)),
        Some(BufferAdvice::Better(text)) => (text, card.is_none_or(|card| card <= ORDINARY)),
        Some(BufferAdvice::Needed(text)) => (text, false),
    };
    let (found, line) =
        text.split_once("; to allow more: ").unwrap_or((&text, "sysctl -a | grep net.core"));
    match is_enough {
        true => Finding::ok(CHECK, found),
        false => Finding::warning(CHECK, found, line),
    }
}

/// The rate up to which the advice calls buffers of the middle size as good as larger ones.
const ORDINARY: Rate = Rate::from_mbps(10_000);

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn small_buffers_are_a_warning_whose_line_is_the_sysctl_alone() {
        let advice = "UDP buffers: receive 208 KiB; datagrams may be lost above 1 Gbit/s; to allow \
                      more: sysctl -w net.core.rmem_max=33554432";
        let found = judge(Some(BufferAdvice::Needed(advice.into())), 208 * 1024, None);
        assert_eq!(found.verdict, Verdict::Warning);
        assert_eq!(found.mend.as_deref(), Some("sysctl -w net.core.rmem_max=33554432"));
        assert!(found.found.ends_with("above 1 Gbit/s"), "{found:?}");
        // Where they are too small for faster cards only, the card decides.
        let middle = "UDP buffers: receive 4096 KiB; larger ones are better above 10 Gbit/s; to \
                      allow more: sysctl -w net.core.rmem_max=33554432";
        for (gbps, verdict) in
            [(None, Verdict::Ok), (Some(10), Verdict::Ok), (Some(25), Verdict::Warning)]
        {
            let card = gbps.map(|gbps| Rate::from_mbps(gbps * 1_000));
            let found = judge(Some(BufferAdvice::Better(middle.into())), 4 << 20, card);
            assert_eq!(found.verdict, verdict, "{gbps:?}");
            assert!(found.found.ends_with("above 10 Gbit/s"), "{found:?}");
        }
        assert_eq!(judge(None, 32 << 20, None), Finding::ok(CHECK, "UDP buffers of 32 MiB"));
    }
}
