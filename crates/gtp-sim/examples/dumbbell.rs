//! How fast the packet level is: ten long sessions over one bottleneck, no traces.
//!
//! `dumbbell [SECONDS [SESSIONS [PROTOCOL]]]` prints data packets delivered per second of wall
//! time, the peak of resident memory, and the hash. The scenario is the one that other simulators
//! are measured with: 1 Gbit/s, 50 ms round trip, 1,000-byte packets, a queue of one
//! bandwidth-delay product. PROTOCOL is `gtp` or `tcp`: SACK, an acknowledgment for each packet,
//! and the window of 20,000 packets that others have there.

use std::time::Instant;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_peers::tcp::{AckDelay, Flavour, ReceiverConfig, SenderConfig};
use gtp_sim::packet::{HostSpec, PeerEnds, SessionSpec, World};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().map_or(Ok(30), |s| s.parse())?;
    let sessions: u64 = args.next().map_or(Ok(10), |s| s.parse())?;
    let protocol = match args.next().as_deref() {
        None | Some("gtp") => Protocol::Gtp,
        Some("tcp") => Protocol::Tcp,
        Some(other) => return Err(format!("`{other}` is no protocol: gtp or tcp").into()),
    };
    let (mut world, ids) = dumbbell(sessions, protocol)?;

    let begun = Instant::now();
    world.run_until(Time::ZERO + Span::from_secs(seconds));
    let wall = begun.elapsed().as_secs_f64();

    let mut packets = 0;
    let mut rates = Vec::new();
    for id in ids {
        let Some(status) = world.session(id) else { continue };
        packets += status.received_packets;
        rates.push(status.received_bytes.per(Span::from_secs(seconds)).as_f64() / 1e6);
    }
    println!("simulator       gtp-sim {protocol:?}");
    println!("wall_s          {wall:.3}");
    println!("data_packets    {packets}");
    println!("packets_per_s   {:.0}", packets as f64 / wall);
    println!("events_per_s    {:.0}", world.events() as f64 / wall);
    println!("under_way_most  {}", world.packets_under_way().1);
    println!("peak_rss_kib    {}", peak_rss_kib());
    println!("hash            {:016x}", world.hash());
    println!("mbit_per_s      {rates:.2?}");
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Gtp,
    Tcp,
}

type Built = (World, Vec<gtp_sim::packet::SessionId>);

fn dumbbell(sessions: u64, protocol: Protocol) -> Result<Built, gtp_sim::packet::BuildError> {
    let mut world = World::new(1);
    let gigabit = Rate::from_mbps(1_000);
    let (left, right) = (world.add_switch(), world.add_switch());
    let delay = Span::from_millis(23);
    let queue = Bytes(6_250_000);
    world.connect_both(left, right, LinkSpec { rate: gigabit, delay, queue, ..wire() })?;
    let access = LinkSpec { rate: gigabit, delay: Span::from_millis(1), queue, ..wire() };
    let mut ids = Vec::new();
    for _ in 0..sessions {
        let share = Rate::from_f64(0.99e9 / sessions as f64);
        let [source, sink] = [world.add_host(HostSpec::default()), {
            world.add_host(HostSpec { in_: share, ..HostSpec::default() })
        }];
        world.connect_both(source, left, access.clone())?;
        world.connect_both(right, sink, access.clone())?;
        let spec = SessionSpec::new(source, sink);
        ids.push(match protocol {
            // 923 bytes and 77 of headers make 1,000.
            Protocol::Gtp => world.add_session(SessionSpec { unit: 923, ..spec })?,
            Protocol::Tcp => world.add_peer_session(spec, tcp())?,
        });
    }
    Ok((world, ids))
}

fn tcp() -> PeerEnds {
    let (mss, header) = (Bytes(960), Bytes(40));
    let sender = SenderConfig { mss, header, ..SenderConfig::default() };
    let delay = AckDelay::None;
    let buffer = Bytes(20_000 * mss.0);
    let receiver = ReceiverConfig { mss, header, delay, buffer, ..ReceiverConfig::default() };
    PeerEnds {
        sender: Box::new(Flavour::Sack.sender(Time::ZERO, sender, 1)),
        receiver: Box::new(Flavour::Sack.receiver(receiver)),
    }
}

fn wire() -> LinkSpec {
    LinkSpec::default()
}

/// The most memory that this process ever had resident, in KiB; zero where the system does not say.
fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.parse().ok()).unwrap_or(0)
}
