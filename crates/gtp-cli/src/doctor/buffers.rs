//! Whether the kernel gives a UDP socket the buffers that GTP asks for.
//!
//! A socket is opened as transfers do it, because a limit may be another one for this user or in
//! this container. The words and the line come from where the buffers are asked for.

use std::net::{Ipv4Addr, SocketAddr};

use gtp_sys::udp::{BufferAdvice, UdpSocket};

use super::finding::Finding;

const CHECK: &str = "buffers";

/// Opens a socket as transfers do, and looks at what it got.
pub fn check() -> Finding {
    match UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) {
        Ok(socket) => judge(socket.buffer_advice(), socket.receive_buffer()),
        Err(error) => {
            let found = format!("no UDP socket can be opened: {error}");
            Finding::fault(CHECK, found, "let this process open UDP sockets")
        }
    }
}

fn judge(advice: Option<BufferAdvice>, receive: usize) -> Finding {
    let text = match advice {
        None => return Finding::ok(CHECK, format!("UDP buffers of {} MiB", receive >> 20)),
        Some(BufferAdvice::Better(text) | BufferAdvice::Needed(text)) => text,
    };
    match text.split_once("; to allow more: ") {
        Some((found, line)) => Finding::warning(CHECK, found, line),
        None => Finding::warning(CHECK, text, "sysctl -a | grep net.core"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn small_buffers_are_a_warning_whose_line_is_the_sysctl_alone() {
        let advice = "UDP buffers: receive 208 KiB; datagrams may be lost above 1 Gbit/s; to allow \
                      more: sysctl -w net.core.rmem_max=33554432";
        let found = judge(Some(BufferAdvice::Needed(advice.into())), 208 * 1024);
        assert_eq!(found.verdict, Verdict::Warning);
        assert_eq!(found.mend.as_deref(), Some("sysctl -w net.core.rmem_max=33554432"));
        assert!(found.found.ends_with("above 1 Gbit/s"), "{found:?}");
        assert_eq!(judge(None, 32 << 20), Finding::ok(CHECK, "UDP buffers of 32 MiB"));
    }
}
