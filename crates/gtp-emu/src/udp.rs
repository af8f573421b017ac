//! UDP sockets in batches: many datagrams per call, both ways.
//!
//! The kernel hands over runs of equal datagrams as one buffer (GRO) and takes such runs as one
//! (GSO); without that the calls, not the bytes, would be the limit.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use gtp_alloc::{Span, Time};
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt;

use crate::timing::Lateness;

/// Bytes of a shared buffer: what was received together stays together.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    buffer: Rc<[u8]>,
    start: usize,
    len: usize,
}

impl Slice {
    /// `buffer[start..start + len]`.
    pub(crate) fn new(buffer: Rc<[u8]>, start: usize, len: usize) -> Slice {
        Slice { buffer, start, len }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A UDP socket with its offload state.
#[derive(Debug)]
pub(crate) struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl UdpPort {
    /// Binds a socket, with large buffers if the system allows them.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpPort> {
        let socket = UdpSocket::bind(address)?;
        // Beyond the system's limit where this process may; up to it where not.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
        }
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER / 4);
        let state = UdpSocketState::new((&socket).into())?;
        Ok(UdpPort { socket, state })
    }

    /// A socket of its own for one client of `target`.
    pub(crate) fn towards(target: SocketAddr) -> io::Result<UdpPort> {
        let any: SocketAddr = match target {
            SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let port = UdpPort::bind(any)?;
        port.socket.connect(target)?;
        Ok(port)
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Buffers for receiving, used over and over.
pub(crate) struct Inbox {
    buffers: Vec<u8>,
    metas: Vec<RecvMeta>,
}

/// Equal datagrams of one sender that came together.
pub(crate) struct Arrival {
    /// Their sender.
    pub(crate) from: SocketAddr,
    /// The address of ours that they came to.
    pub(crate) to: Option<IpAddr>,
    /// Their congestion marks.
    pub(crate) ecn: Option<EcnCodepoint>,
    /// When the kernel had them, before now.
    pub(crate) age: Span,
    buffer: Rc<[u8]>,
    stride: usize,
}

impl Arrival {
    /// The datagrams, one by one.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = Slice> + '_ {
        let whole = self.buffer.len();
        let count = whole.div_ceil(self.stride).max(1);
        (0..count).map(move |n| {
            let start = n * self.stride;
            Slice::new(self.buffer.clone(), start, self.stride.min(whole - start))
        })
    }
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        let metas = vec![RecvMeta::default(); BATCH_SIZE];
        Inbox { buffers: vec![0; BATCH_SIZE * LARGEST], metas }
    }

    /// Receives what one call gives; empty if nothing waits.
    pub(crate) fn receive(&mut self, port: &UdpPort) -> Vec<Arrival> {
        let mut slices: Vec<_> = self.buffers.chunks_mut(LARGEST).map(IoSliceMut::new).collect();
        // An error is either "nothing there" or an ICMP answer to an earlier datagram, which a
        // real path would not hand to anyone either.
        let socket = port.socket.as_fd();
        let received = gtp_sys::ancillary::receive(socket, &mut slices, &mut self.metas);
        let wall = gtp_sys::clock::unix_time();
        let filled = self.buffers.chunks(LARGEST).zip(&self.metas).take(received.unwrap_or(0));
        let arrivals = filled.map(|(buffer, meta)| Arrival {
            from: meta.addr,
            to: meta.dst_ip,
            ecn: meta.ecn,
            age: age(wall, meta.timestamp),
            buffer: Rc::from(&buffer[..meta.len]),
            stride: meta.stride.max(1),
        });
        arrivals.collect()
    }
}

/// How long ago the kernel's stamp was. Both clocks may be set meanwhile: what looks like more
/// than [`MAX_AGE`] counts as now.
fn age(wall: Duration, stamp: Option<Duration>) -> Span {
    let age = stamp.and_then(|stamp| wall.checked_sub(stamp)).unwrap_or(Duration::ZERO);
    if age > MAX_AGE { Span::ZERO } else { Span::from_nanos(age.as_nanos() as u64) }
}

/// Datagrams to one receiver that leave in one call.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    stride: usize,
    dues: Vec<Time>,
    ecn: Option<EcnCodepoint>,
    /// A shorter datagram ends a batch.
    ended: bool,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.dues.is_empty()
    }

    /// Whether this datagram can still go along.
    pub(crate) fn takes(
        &self,
        datagram: &Slice,
        ecn: Option<EcnCodepoint>,
        port: &UdpPort,
    ) -> bool {
        self.is_empty()
            || !self.ended
                && ecn == self.ecn
                && datagram.len() > 0
                && datagram.len() <= self.stride
                && self.dues.len() < port.state.max_gso_segments()
                && self.bytes.len() + datagram.len() <= LARGEST_RUN
    }

    /// Puts a datagram in.
    pub(crate) fn put(&mut self, datagram: &Slice, ecn: Option<EcnCodepoint>, due: Time) {
        if self.is_empty() {
            self.stride = datagram.len();
            self.ecn = ecn;
            self.ended = datagram.len() == 0;
        }
        self.ended |= datagram.len() < self.stride;
        self.bytes.extend_from_slice(datagram.bytes());
        self.dues.push(due);
    }

    /// Sends everything; returns how many datagrams the system did not take.
    pub(crate) fn send(&mut self, out: &Outlet<'_>, late: &mut Lateness) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let now = gtp_sys::Clock::start().now();
        self.dues.iter().for_each(|due| late.record(now.since(*due)));
        let segment_size = (self.dues.len() > 1).then_some(self.stride);
        let together = out.transmit(&self.bytes, segment_size, self.ecn);
        let failed = match together {
            Ok(()) => 0,
            Err(_) if self.dues.len() == 1 => 1,
            // The device cannot split them: one by one.
            Err(_) => {
                let singles = self.bytes.chunks(self.stride.max(1));
                singles.filter(|one| out.transmit(one, None, self.ecn).is_err()).count() as u64
            }
        };
        self.bytes.clear();
        self.dues.clear();
        failed
    }
}

/// Where a batch goes.
pub(crate) struct Outlet<'a> {
    pub(crate) port: &'a UdpPort,
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

impl Outlet<'_> {
    fn transmit(
        &self,
        contents: &[u8],
        segment_size: Option<usize>,
        ecn: Option<EcnCodepoint>,
    ) -> io::Result<()> {
        let (destination, src_ip) = (self.to, self.from);
        let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
        self.port.state.try_send((&self.port.socket).into(), &transmit)
    }
}

/// Socket buffers: at 1 Gbit/s 16 MiB are 130 ms, longer than a thread here ever waits its turn.
const BUFFER: usize = 16 << 20;
/// The largest run of datagrams that the kernel hands over.
const LARGEST: usize = 65_535;
/// The largest run that it takes, headers aside.
const LARGEST_RUN: usize = 65_000;
/// See [`age`].
const MAX_AGE: Duration = Duration::from_millis(200);
