//! The sockets that a server gets from the process that started it (`LISTEN_FDS`), as from systemd.
//!
//! They must be one of each kind that a server needs, and nothing else. What it does with them is
//! unknown here.

use gtp::{Failure, Sockets};
use listenfd::ListenFd;

/// Sockets that were opened for this process, if there are any.
///
/// # Errors
/// When they are not a TCP listener and a UDP socket, one of each.
pub fn given() -> Result<Option<Sockets>, Failure> {
    let mut given = ListenFd::from_env();
    let (mut tcp, mut udp, mut others) = (None, None, 0);
    for at in 0..given.len() {
        if tcp.is_none()
            && let Ok(Some(listener)) = given.take_tcp_listener(at)
        {
            tcp = Some(listener);
        } else if udp.is_none()
            && let Ok(Some(socket)) = given.take_udp_socket(at)
        {
            udp = Some(socket);
        } else {
            others += 1;
        }
    }
    match (tcp, udp, others) {
        (None, None, 0) => Ok(None),
        (Some(tcp), Some(udp), 0) => Ok(Some(Sockets { tcp, udp })),
        (Some(_) | None, Some(_) | None, _) => Err(crate::verbs::other(
            "the service manager must give one TCP socket that listens and one UDP socket, and no \
             more (LISTEN_FDS)",
        )),
    }
}
