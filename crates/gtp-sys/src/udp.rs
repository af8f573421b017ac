//! UDP sockets that move many datagrams with one call.
//!
//! The one idea: handling packets, not bytes, is what costs, so datagrams of one size to one
//! destination leave as one buffer that the kernel (or the NIC) cuts up, and arrive glued together
//! the same way. Sockets never fragment and never block. This module knows bytes and addresses; it
//! does not know what they mean.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use crate::pressure::Pressure;
use gtp_alloc::Span;
pub use quinn_udp::EcnCodepoint;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt;

use crate::address::canonical;
use crate::ancillary;
use crate::clock::{span, unix_time};

/// The most bytes that one call sends: what an IP packet's length field can say, less headers.
pub const MAX_BATCH: usize = 65_000;

/// One receive buffer: what the kernel glues together at most.
const RECEIVE_BUFFER: usize = 65_536;
/// What one call brings, in receive buffers, where the kernel glues datagrams together: it must
/// still lie in a processor's own cache when it is opened, beside what it was copied from.
const RECEIVE_BATCH: usize = 6;
/// Buffers per call where it does not, and each holds one datagram.
const RECEIVE_BATCH_MOST: usize = quinn_udp::BATCH_SIZE;
/// Asked for at first: 32 MB lost nothing at 20 Gbit/s, 8 MB two packets in 10,000.
const BUFFER_WANTED: usize = 32 << 20;
/// With less than this for receiving, bursts are lost at 10 Gbit/s.
const BUFFER_NEEDED: usize = 4 << 20;

/// A bound socket that neither blocks nor fragments.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    receive_buffer: usize,
    send_buffer: usize,
    tells_pressure: bool,
}

/// What to do about buffers of a socket that are smaller than asked for, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BufferAdvice {
    /// It works, and larger ones are better.
    Better(String),
    /// Datagrams are lost at high rates.
    Needed(String),
}

/// What the IP headers of a batch say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The destination.
    pub to: SocketAddr,
    /// The local address, if it is not for the system to choose.
    pub from: Option<IpAddr>,
    /// The ECN bits; none for Not-ECT.
    pub ecn: Option<EcnCodepoint>,
}

impl Header {
    /// The header of datagrams to this destination, from an address that the system chooses and
    /// without ECN bits.
    pub fn to(to: SocketAddr) -> Header {
        Header { to, from: None, ecn: None }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The kernel has it.
    Taken,
    /// No room in the socket's buffer; not sent.
    Full,
    /// Longer than the path's packets; dropped, as the network would.
    TooLong,
    /// Dropped for another reason: no route, unreachable, refused by a firewall.
    Refused,
}

impl UdpSocket {
    /// Binds a socket and gives it large buffers.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
        let socket = std::net::UdpSocket::bind(addr)?;
        UdpSocket::from_std(socket)
    }

    /// Takes over a bound socket.
    ///
    /// # Errors
    /// When it is not a UDP socket, or the kernel lacks what is needed.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?;
        enlarge(&socket);
        // The kernel counts its own bookkeeping too and says twice what it was asked for.
        let receive_buffer = sockopt::socket_recv_buffer_size(&socket)? / 2;
        let send_buffer = sockopt::socket_send_buffer_size(&socket)? / 2;
        let tells_pressure = crate::pressure::of(&socket).is_ok();
        Ok(UdpSocket { socket, state, local, receive_buffer, send_buffer, tells_pressure })
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer that the kernel gave, in bytes.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Whether the kernel says how full the receive buffer is.
    pub fn tells_pressure(&self) -> bool {
        self.tells_pressure
    }

    /// How full the receive buffer is.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn pressure(&self) -> io::Result<Pressure> {
        crate::pressure::of(self)
    }

    /// If the kernel gave less than was asked for: the command that allows as much.
    pub fn buffer_advice(&self) -> Option<BufferAdvice> {
        let buffers = [
            ("receive", "net.core.rmem_max", self.receive_buffer),
            ("send", "net.core.wmem_max", self.send_buffer),
        ];
        let short: Vec<_> = buffers.iter().filter(|(_, _, given)| *given < BUFFER_WANTED).collect();
        if short.is_empty() {
            return None;
        }
        let given = short.iter().map(|(name, _, given)| format!("{name} {} KiB", given / 1024));
        let limits = short.iter().map(|(_, limit, _)| format!(" {limit}={BUFFER_WANTED}"));
        let (given, limits) = (given.collect::<Vec<_>>().join(", "), limits.collect::<String>());
        let needed = self.receive_buffer < BUFFER_NEEDED;
        let why = match needed {
            true => "datagrams may be lost above 1 Gbit/s",
            false => "larger ones are better above 10 Gbit/s",
        };
        let text = format!("UDP buffers: {given}; {why}; to allow more: sysctl -w{limits}");
        Some(if needed { BufferAdvice::Needed(text) } else { BufferAdvice::Better(text) })
    }

    /// How many datagrams of one size [`UdpSocket::send`] takes at once; 1 without offload.
    pub fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends `batch`: datagrams of `segment` bytes each, of which the last may be shorter, to one
    /// destination with one kind of header. At most [`MAX_BATCH`] bytes and
    /// [`UdpSocket::max_segments`] datagrams.
    pub fn send(&self, header: &Header, segment: usize, batch: &[u8]) -> Sent {
        let transmit = Transmit {
            destination: self.dialect(header.to),
            ecn: header.ecn,
            contents: batch,
            segment_size: (segment < batch.len()).then_some(segment),
            src_ip: header.from,
        };
        match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
            Ok(()) => Sent::Taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Full,
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::MSGSIZE) => Sent::TooLong,
                Some(_) | None => Sent::Refused,
            },
        }
    }

    /// Sends what [`UdpSocket::send`] would, of any number of datagrams, from byte `begin` on, in
    /// as few calls as the kernel allows; `told` hears what became of each. `Some`: there was no
    /// room from this byte on.
    ///
    /// Where the kernel refuses offload, as it does for some devices and with IPsec, datagrams
    /// leave one by one from then on, and none is lost by that.
    pub fn send_run(
        &self,
        header: &Header,
        segment: usize,
        run: &[u8],
        mut begin: usize,
        mut told: impl FnMut(Sent),
    ) -> Option<usize> {
        while begin < run.len() {
            let segments = self.max_segments().max(1);
            let end = run.len().min(begin + segment * segments);
            let sent = self.send(header, segment, &run[begin..end]);
            let refused_offload = sent == Sent::Refused && self.max_segments() < segments;
            if refused_offload {
                continue; // One by one from here on.
            }
            told(sent);
            if sent == Sent::Full {
                return Some(begin);
            }
            begin = end;
        }
        None
    }

    /// Receives what is there, up to a batch. `false`: nothing was.
    ///
    /// # Errors
    /// When the kernel reports an error of the socket, such as an unreachable destination; the
    /// next call may succeed.
    pub fn receive(&self, into: &mut ReceiveBatch) -> io::Result<bool> {
        (into.filled, into.full) = (0, false);
        let mut chunks = into.bytes.chunks_exact_mut(RECEIVE_BUFFER);
        let mut slices: [IoSliceMut<'_>; RECEIVE_BATCH_MOST] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let slices = &mut slices[..into.room];
        match ancillary::receive(self.as_fd(), slices, &mut into.metas) {
            Ok(filled) => {
                into.take(filled);
                Ok(filled > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A dual-stack socket writes IPv4 addresses as IPv6 ones.
    fn dialect(&self, to: SocketAddr) -> SocketAddr {
        match (self.local, to) {
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            (SocketAddr::V6(_) | SocketAddr::V4(_), _) => to,
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The longest IP packet, in bytes, that this host sends towards `to` in one piece, as far as its
/// own route says; links behind the first may carry less. `None` where the system does not say.
pub fn route_mtu(to: SocketAddr) -> Option<u32> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(to).ok()?; // Sends nothing; it only chooses the route.
    match to {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket).ok(),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket).ok(),
    }
}

/// Asks for large buffers, beyond the system's limit where this process may.
fn enlarge(socket: &std::net::UdpSocket) {
    // What is refused here is seen in the size that comes out.
    if sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_WANTED).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, BUFFER_WANTED);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, BUFFER_WANTED).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, BUFFER_WANTED);
    }
}

/// Room for the datagrams of one [`UdpSocket::receive`], used again and again.
pub struct ReceiveBatch {
    bytes: Vec<u8>,
    metas: [RecvMeta; RECEIVE_BATCH_MOST],
    filled: usize,
    full: bool,
    /// How many buffers the next call may fill.
    room: usize,
    /// The wall clock, by which the kernel notes when a datagram came.
    read_at: Duration,
}

/// How datagrams came that came at one time from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Where from, and to which of our addresses.
    pub origin: Origin,
    /// How long they had waited here to be read. It is by the wall clock, so a caller bounds it by
    /// what else it knows.
    pub waited: Span,
    /// The ECN bits of all of them; none for Not-ECT. The kernel glues together no datagrams whose
    /// bits differ.
    pub ecn: Option<EcnCodepoint>,
}

/// Where datagrams came from, and to which of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The sender.
    pub from: SocketAddr,
    /// The local address that it sent to, if the kernel says so.
    pub to: Option<IpAddr>,
}

impl ReceiveBatch {
    /// An empty batch.
    pub fn new() -> ReceiveBatch {
        ReceiveBatch {
            bytes: vec![0; RECEIVE_BUFFER * RECEIVE_BATCH_MOST],
            metas: [RecvMeta::default(); RECEIVE_BATCH_MOST],
            filled: 0,
            full: false,
            room: RECEIVE_BATCH,
            read_at: Duration::ZERO,
        }
    }

    /// Whether it had no room for more, so that more may be there.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// A call filled so many buffers. The next one mostly finds the like, and then takes in as many
    /// bytes at most; where the kernel begins to glue together, one call may bring more.
    fn take(&mut self, filled: usize) {
        (self.filled, self.full) = (filled, filled == self.room);
        self.read_at = unix_time();
        if let Some(longest) = self.metas[..filled].iter().map(|meta| meta.len).max() {
            let fit = RECEIVE_BUFFER * RECEIVE_BATCH / longest.max(1);
            self.room = fit.clamp(RECEIVE_BATCH, RECEIVE_BATCH_MOST);
        }
    }

    /// Bytes of all datagrams in it.
    pub fn bytes(&self) -> usize {
        self.metas[..self.filled].iter().map(|meta| meta.len).sum()
    }

    /// Each datagram with its origin, in the order of arrival, and how long it had waited here to
    /// be read, as [`ReceiveBatch::pieces`] says it.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (Origin, Span, &mut [u8])> {
        self.pieces().flat_map(|(came, datagrams)| {
            datagrams.map(move |datagram| (came.origin, came.waited, datagram))
        })
    }

    /// What came at one time from one sender, in the order of arrival: how it came, and its
    /// datagrams. IPv4 addresses look like IPv4 addresses on dual-stack sockets too.
    pub fn pieces(&mut self) -> impl Iterator<Item = (Came, impl Iterator<Item = &mut [u8]>)> {
        let metas = self.metas[..self.filled].iter();
        let read_at = self.read_at;
        self.bytes.chunks_exact_mut(RECEIVE_BUFFER).zip(metas).map(move |(bytes, meta)| {
            let origin = Origin { from: canonical(meta.addr), to: meta.dst_ip };
            let len = meta.len.min(bytes.len());
            let waited =
                meta.timestamp.map_or(Span::ZERO, |came| span(read_at.saturating_sub(came)));
            let empty: Option<&mut [u8]> = (len == 0).then_some(&mut []);
            let came = Came { origin, waited, ecn: meta.ecn };
            (came, bytes[..len].chunks_mut(meta.stride.max(1)).chain(empty))
        })
    }
}

impl Default for ReceiveBatch {
    fn default() -> ReceiveBatch {
        ReceiveBatch::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wake::Poller;
    use std::os::fd::AsRawFd;

    fn loopback() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Receives `count` datagrams.
    fn drain(socket: &UdpSocket, count: usize) -> Vec<(Origin, Vec<u8>)> {
        let poller = Poller::new().unwrap();
        let (mut batch, mut got) = (ReceiveBatch::new(), Vec::new());
        while got.len() < count {
            poller.wait([socket.as_fd()], &mut [false], None).unwrap();
            while socket.receive(&mut batch).unwrap() {
                got.extend(batch.datagrams().map(|(origin, _, bytes)| (origin, bytes.to_vec())));
            }
        }
        got
    }

    /// A socket without checksums of its own, for which the kernel refuses segmentation.
    fn without_offload() -> UdpSocket {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let on: libc::c_int = 1;
        // SAFETY: the option is an int, which `on` is, and the socket is open.
        let set = unsafe {
            let (at, len) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, at, len)
        };
        assert_eq!(set, 0);
        UdpSocket::from_std(socket).unwrap()
    }

    #[test]
    fn where_the_kernel_refuses_offload_every_datagram_leaves_by_itself() {
        let (a, b) = (without_offload(), loopback());
        let run: Vec<u8> = (0..20_050).map(|i| (i / 1000) as u8).collect();
        let mut told = Vec::new();
        let full = a.send_run(&Header::to(b.local_addr()), 1000, &run, 0, |sent| told.push(sent));
        assert_eq!((full, a.max_segments()), (None, 1));
        assert_eq!(told, [Sent::Taken; 21]);
        assert_eq!(drain(&b, 21).concat_bytes(), run);
    }

    #[test]
    fn a_run_goes_on_from_where_it_stopped() {
        let (a, b) = (loopback(), loopback());
        let run: Vec<u8> = (0..3_000).map(|i| (i / 1000) as u8).collect();
        assert_eq!(a.send_run(&Header::to(b.local_addr()), 1000, &run, 1000, |_| {}), None);
        assert_eq!(drain(&b, 2).concat_bytes(), run[1000..]);
    }

    #[test]
    fn a_batch_arrives_as_its_datagrams_the_last_one_shorter() {
        let (a, b) = (loopback(), loopback());
        let batch: Vec<u8> = (0..10_050).map(|i| (i / 1000) as u8).collect();
        let segments = if a.max_segments() > 10 { 1000 } else { batch.len() };
        assert_eq!(a.send(&Header::to(b.local_addr()), segments, &batch), Sent::Taken);
        let count = batch.len().div_ceil(segments);
        let got = drain(&b, count);
        assert_eq!(got.len(), count);
        assert!(got.iter().all(|(origin, _)| origin.from == a.local_addr()));
        assert_eq!(got.concat_bytes(), batch);
    }

    trait Concat {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl Concat for Vec<(Origin, Vec<u8>)> {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
        }
    }

    #[test]
    fn short_datagrams_come_many_at_a_time_and_long_ones_few() {
        let (a, b) = (loopback(), loopback());
        let mut batch = ReceiveBatch::new();
        let mut reads = |length: usize, count: usize| -> Vec<(usize, bool)> {
            for _ in 0..count {
                assert_eq!(
                    a.send(&Header::to(b.local_addr()), length, &vec![0; length]),
                    Sent::Taken
                );
            }
            let mut reads = Vec::new();
            while b.receive(&mut batch).unwrap() {
                reads.push((batch.datagrams().count(), batch.is_full()));
            }
            reads
        };
        let short = [(6, true), (32, true), (2, false)];
        assert_eq!(reads(100, 40), short);
        assert_eq!(reads(60_000, 3), [(3, false)]);
        assert_eq!(reads(100, 40), short, "a few long ones are as much as one call is to bring");
    }

    #[test]
    fn an_empty_datagram_is_shown_and_an_empty_socket_is_no_error() {
        let (a, b) = (loopback(), loopback());
        let mut batch = ReceiveBatch::new();
        assert!(!b.receive(&mut batch).unwrap());
        assert_eq!(a.send(&Header::to(b.local_addr()), 1, &[]), Sent::Taken);
        assert_eq!(a.send(&Header::to(b.local_addr()), 3, b"abc"), Sent::Taken);
        let came: Vec<_> = drain(&b, 2).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(came, [&b""[..], b"abc"]);
    }

    #[test]
    fn what_is_too_long_for_a_datagram_is_said_and_not_split() {
        let (a, b) = (loopback(), loopback());
        assert_eq!(a.send(&Header::to(b.local_addr()), 70_000, &vec![0; 70_000]), Sent::TooLong);
    }

    #[test]
    fn a_dual_stack_socket_talks_to_ipv4_and_names_it_so() {
        let Ok(dual) = UdpSocket::bind("[::]:0".parse().unwrap()) else { return };
        let v4 = loopback();
        assert_eq!(dual.send(&Header::to(v4.local_addr()), 3, b"abc"), Sent::Taken);
        let (origin, _) = drain(&v4, 1)[0].clone();
        assert_eq!(v4.send(&Header::to(origin.from), 3, b"def"), Sent::Taken);
        let (origin, bytes) = drain(&dual, 1)[0].clone();
        assert_eq!((origin.from, &bytes[..]), (v4.local_addr(), &b"def"[..]));
    }

    /// Sends twenty datagrams with each kind of ECN bits, so many in a batch, and returns the bits
    /// with which they came, in order.
    fn carried(
        from: &UdpSocket,
        (to, address): (&UdpSocket, SocketAddr),
        segments: usize,
    ) -> Vec<Option<EcnCodepoint>> {
        let segments = from.max_segments().min(segments);
        for ecn in [None, Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ect1)] {
            for _ in 0..20 / segments {
                let header = Header { ecn, ..Header::to(address) };
                assert_eq!(from.send(&header, 500, &vec![0; 500 * segments]), Sent::Taken);
            }
        }
        let poller = Poller::new().unwrap();
        let (mut batch, mut came) = (ReceiveBatch::new(), Vec::new());
        while came.len() < 60 {
            poller.wait([to.as_fd()], &mut [false], None).unwrap();
            while to.receive(&mut batch).unwrap() {
                came.extend(batch.pieces().flat_map(|(came, datagrams)| {
                    std::iter::repeat_n(came.ecn, datagrams.count())
                }));
            }
        }
        came
    }

    #[test]
    fn ecn_bits_are_sent_and_received_over_ipv4_ipv6_and_mapped_addresses_one_by_one_and_glued() {
        let (ect0, ect1) = (Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ect1));
        let all: Vec<_> = [None, ect0, ect1].into_iter().flat_map(|ecn| [ecn; 20]).collect();
        let (a, b) = (loopback(), loopback());
        for segments in [1, 10] {
            assert_eq!(carried(&a, (&b, b.local_addr()), segments), all, "IPv4, {segments}");
            let Ok(dual) = UdpSocket::bind("[::]:0".parse().unwrap()) else { continue };
            let came = carried(&dual, (&b, b.local_addr()), segments);
            assert_eq!(came, all, "from a dual-stack socket, {segments}");
            let mapped = SocketAddr::from(([127, 0, 0, 1], dual.local_addr().port()));
            let came = carried(&a, (&dual, mapped), segments);
            assert_eq!(came, all, "to a dual-stack socket, {segments}");
            let Ok(six) = UdpSocket::bind("[::1]:0".parse().unwrap()) else { continue };
            assert_eq!(carried(&dual, (&six, six.local_addr()), segments), all, "IPv6, {segments}");
        }
    }

    #[test]
    fn a_datagram_knows_how_long_it_waited_to_be_read() {
        let (a, b) = (loopback(), loopback());
        let mut batch = ReceiveBatch::new();
        let mut passes = || {
            let before = unix_time();
            assert_eq!(a.send(&Header::to(b.local_addr()), 3, b"abc"), Sent::Taken);
            let sent = unix_time();
            while unix_time() < sent + Duration::from_millis(2) {}
            let read = unix_time();
            assert!(b.receive(&mut batch).unwrap());
            let most = span(unix_time().saturating_sub(before));
            let (_, waited, _) = batch.datagrams().next().unwrap();
            assert!(waited <= most, "{waited:?}, not {most:?} at most");
            waited >= span(read.saturating_sub(sent))
        };
        // The kernel begins to note times a while after it is first asked to.
        assert!((0..1_000).any(|_| passes()));
    }

    #[test]
    fn a_route_says_how_long_its_packets_may_be() {
        let mtu = route_mtu("127.0.0.1:9".parse().unwrap()).unwrap();
        assert!(mtu >= 1_280, "{mtu}");
    }

    #[test]
    fn small_buffers_come_with_the_line_that_mends_them_and_a_warning_where_datagrams_are_lost() {
        let mut socket = loopback();
        let mut advice = |receive_buffer, send_buffer| {
            (socket.receive_buffer, socket.send_buffer) = (receive_buffer, send_buffer);
            let line = |text: String| text.split_once("sysctl").unwrap().1.to_owned();
            match socket.buffer_advice() {
                Some(BufferAdvice::Needed(text)) => ("needed", line(text)),
                Some(BufferAdvice::Better(text)) => ("better", line(text)),
                None => ("none", String::new()),
            }
        };
        let (small, some, wanted) = (208 * 1024, BUFFER_NEEDED, BUFFER_WANTED);
        let [receive, send] = ["rmem", "wmem"].map(|name| format!(" net.core.{name}_max=33554432"));
        assert_eq!(advice(small, small), ("needed", format!(" -w{receive}{send}")));
        assert_eq!(advice(small, wanted), ("needed", format!(" -w{receive}")));
        assert_eq!(advice(some, wanted), ("better", format!(" -w{receive}")));
        assert_eq!(advice(wanted, small), ("better", format!(" -w{send}")));
        assert_eq!(advice(wanted, wanted).0, "none");
    }

    #[test]
    fn what_the_kernel_gave_for_sending_is_known() {
        let std = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::from_std(std.try_clone().unwrap()).unwrap();
        assert_eq!(socket.send_buffer, sockopt::socket_send_buffer_size(&std).unwrap() / 2);
    }
}
