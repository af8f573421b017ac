//! A small network for the simulator's cases.
//!
//! It is the dumbbell that other simulators are measured with, so that a count can be held beside
//! their packets per second.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Chance, LinkSpec};
use gtp_peers::tcp::{AckDelay, Flavour, ReceiverConfig, SenderConfig};
use gtp_sim::packet::{BuildError, HostSpec, PeerEnds, SessionId, SessionSpec, World};

/// Who sends.
#[derive(Clone, Copy)]
pub(crate) enum Ends {
    /// This project's sessions.
    Gtp,
    /// TCP with selective acknowledgments.
    Tcp,
}

const FLOWS: u64 = 10;

/// Ten flows over 1 Gbit/s and 50 ms round trip, with this part of the packets lost at random.
pub(crate) fn dumbbell(ends: Ends, loss: Chance) -> Result<(World, Vec<SessionId>), BuildError> {
    let mut world = World::new(1);
    let rate = Rate::from_mbps(1_000);
    let (left, right) = (world.add_switch(), world.add_switch());
    let link = |millis, loss| LinkSpec {
        rate,
        delay: Span::from_millis(millis),
        queue: Bytes(6_250_000),
        loss,
        ..LinkSpec::default()
    };
    world.connect_both(left, right, link(23, loss))?;
    let mut ids = Vec::new();
    for _ in 0..FLOWS {
        let share = Rate::from_f64(0.99e9 / FLOWS as f64);
        let source = world.add_host(HostSpec::default());
        let sink = world.add_host(HostSpec { in_: share, ..HostSpec::default() });
        world.connect_both(source, left, link(1, Chance::NEVER))?;
        world.connect_both(right, sink, link(1, Chance::NEVER))?;
        let spec = SessionSpec::new(source, sink);
        ids.push(match ends {
            // 923 bytes and 77 of headers make 1,000.
            Ends::Gtp => world.add_session(SessionSpec { unit: 923, ..spec })?,
            Ends::Tcp => world.add_peer_session(spec, tcp())?,
        });
    }
    Ok((world, ids))
}

fn tcp() -> PeerEnds {
    let (mss, header) = (Bytes(960), Bytes(40));
    let sender = SenderConfig { mss, header, ..SenderConfig::default() };
    let buffer = Bytes(20_000 * mss.0);
    let delay = AckDelay::None;
    let receiver = ReceiverConfig { mss, header, delay, buffer, ..ReceiverConfig::default() };
    PeerEnds {
        sender: Box::new(Flavour::Sack.sender(Time::ZERO, sender, 1)),
        receiver: Box::new(Flavour::Sack.receiver(receiver)),
    }
}
