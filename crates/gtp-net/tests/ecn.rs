//! ECN between engines over real sockets: over a path that carries it, and over paths that do not.

mod common;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{World, complete, synthetic};
use gtp_alloc::Span;
use gtp_net::engine::SourceEvent;
use gtp_proto::ecn::{EcnFailure, EcnStanding, EcnState};
use gtp_sys::udp::{EcnCodepoint, Header, ReceiveBatch, UdpSocket};
use gtp_sys::wake::Poller;

const SIZE: u64 = 40 << 20;

/// ECN bits as sockets have them.
type Bits = Option<EcnCodepoint>;
const ECT0: Bits = Some(EcnCodepoint::Ect0);

/// With which bits the `n`th datagram with some goes on; none: it is lost.
type Twist = fn(n: u64, bits: Bits) -> Option<Bits>;

/// A path between a source and a sink that keeps all bits but those that `twist` changes on the way
/// to the sink. It ends with the value.
struct Twisted {
    sink_side: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Twisted {
    fn new(sink: SocketAddr, source: SocketAddr, twist: Twist) -> Twisted {
        let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (to_sink, to_source) = (bind(), bind());
        let (sink_side, ended) = (to_sink.local_addr(), Arc::new(AtomicBool::new(false)));
        let over = ended.clone();
        std::thread::spawn(move || {
            let (poller, mut batch, mut count) = (Poller::new().unwrap(), ReceiveBatch::new(), 0);
            while !over.load(Ordering::Relaxed) {
                let sockets = [to_sink.as_fd(), to_source.as_fd()];
                poller.wait(sockets, &mut [false; 2], Some(Span::from_millis(50))).unwrap();
                forward(&mut batch, &to_sink, (&to_source, source), &mut Some);
                forward(&mut batch, &to_source, (&to_sink, sink), &mut |bits: Bits| {
                    count += u64::from(bits.is_some());
                    if bits.is_some() { twist(count, bits) } else { Some(bits) }
                });
            }
        });
        Twisted { sink_side, ended }
    }
}

impl Drop for Twisted {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Sends on all that one socket has.
fn forward(
    batch: &mut ReceiveBatch,
    from: &UdpSocket,
    (via, to): (&UdpSocket, SocketAddr),
    twist: &mut dyn FnMut(Bits) -> Option<Bits>,
) {
    while from.receive(batch).unwrap_or(false) {
        for (came, datagrams) in batch.pieces() {
            for datagram in datagrams {
                if let Some(ecn) = twist(came.ecn) {
                    via.send(&Header { ecn, ..Header::to(to) }, datagram.len(), datagram);
                }
            }
        }
    }
}

/// How ECN stands once an object has come over such a path, and the part of the packets that was
/// lost.
fn after_transfer(twist: Twist) -> (EcnStanding, f64) {
    let world = World::new();
    let (sink, source) = (world.receives.addr, world.sends.addr);
    let path = Twisted::new(sink, source, twist);
    let mut transfer = world.transfer(SIZE);
    let object = Box::new(synthetic(SIZE));
    let mut sends = world.source_from(&world.sends, sink, path.sink_side, object, &transfer);
    assert_eq!(complete(&transfer.until_end()).bytes_written, SIZE);
    let last = sends.last_event();
    assert!(matches!(last, Some(SourceEvent::Closed)), "{last:?}");
    let progress = sends.handle.progress();
    (progress.path.expect("it has begun").ecn, progress.loss_ratio)
}

#[test]
fn data_leave_as_ect0_between_sockets_and_are_counted() {
    let (ecn, loss) = after_transfer(|_, bits| {
        assert_eq!(bits, ECT0, "nothing else leaves");
        Some(bits)
    });
    assert_eq!(ecn, EcnStanding { state: EcnState::On, marks: 0 });
    assert!(loss < 0.01, "{loss}");
}

#[test]
fn marks_of_a_path_are_heeded_and_are_no_losses() {
    let (ecn, loss) = after_transfer(|n, bits| {
        Some(if n.is_multiple_of(500) { Some(EcnCodepoint::Ce) } else { bits })
    });
    assert_eq!(ecn.state, EcnState::On);
    assert!(ecn.marks >= 20, "{ecn:?}");
    assert!(loss < 0.01, "{loss}");
}

#[test]
fn a_path_that_clears_the_bits_ends_ecn_and_not_the_transfer() {
    let (ecn, _) = after_transfer(|_, _| Some(None));
    let failed = EcnState::Failed(EcnFailure::Bleached);
    assert_eq!(ecn, EcnStanding { state: failed, marks: 0 });
}

#[test]
fn a_path_that_drops_what_has_the_bits_ends_ecn_and_not_the_transfer() {
    let (ecn, _) = after_transfer(|_, _| None);
    let failed = EcnState::Failed(EcnFailure::Dropped);
    assert_eq!(ecn, EcnStanding { state: failed, marks: 0 });
}
