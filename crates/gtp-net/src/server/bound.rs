//! The sockets of an end that listens: TCP and UDP with one port number.
//!
//! They are bound here, or come from whoever started the process. Who connects, and what becomes of
//! it, is not known here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;

use super::Sockets;
use crate::engine::{Host, SocketId};

/// A TCP listener and a UDP port of all engines, of one number.
pub(crate) async fn bind_both(
    host: &Host,
    listen: SocketAddr,
) -> io::Result<(TcpListener, SocketId, SocketAddr)> {
    let mut tries = 0;
    loop {
        let listener = match TcpListener::bind(listen).await {
            Err(error) => match without_v6(listen, &error) {
                Some(v4) => TcpListener::bind(v4).await?,
                None => return Err(error),
            },
            Ok(bound) => bound,
        };
        let address = listener.local_addr()?;
        match host.bind_udp_everywhere(address) {
            Ok((socket, _)) => return Ok((listener, socket, address)),
            // The port was free for TCP only: another one will do, if any will.
            Err(error) if listen.port() != 0 || tries == PORT_TRIES => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

/// Takes over a TCP listener and a UDP socket, which must have one port number.
pub(super) fn take_both(
    host: &Host,
    sockets: Sockets,
) -> io::Result<(TcpListener, SocketId, SocketAddr)> {
    let Sockets { tcp, udp } = sockets;
    let (address, udp_address) = (tcp.local_addr()?, udp.local_addr()?);
    if address.port() != udp_address.port() {
        let text = format!("TCP is on {address} and UDP on {udp_address}: the ports must be equal");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    tcp.set_nonblocking(true)?;
    let (socket, _) = host.take_udp(udp)?;
    Ok((TcpListener::from_std(tcp)?, socket, address))
}

/// Where to listen in place of `::`, which a machine without IPv6 does not have; `None` if that is
/// not why this error came.
pub(crate) fn without_v6(listen: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let no_v6 =
        matches!(code, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL));
    let any_v6 = listen.is_ipv6() && listen.ip().is_unspecified();
    (any_v6 && no_v6).then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.port()))
}

/// Ports tried when any will do.
const PORT_TRIES: u32 = 16;
