//! Every limit of the core in one place, each with the arithmetic behind it.
//!
//! Whatever a peer can make large (queues, gaps, windows, times) is bounded by something here. A
//! number that bounds nothing a peer does belongs beside its law.

use gtp_alloc::{Bytes, Rate, Span};

/// Bytes of a data packet's unit when the path carries 1,500-byte IP packets: 1,400 of payload,
/// 49 of GTP, 8 of UDP, 20 (IPv4) or 40 (IPv6) of IP make 1,477 or 1,497.
pub const UNIT_ETHERNET: u16 = 1_400;
/// The same for 9,000-byte packets.
pub const UNIT_JUMBO: u16 = 8_900;
/// The same for paths that carry only IPv6's minimum of 1,280 bytes.
pub const UNIT_MINIMUM: u16 = 1_180;
/// Unit numbers are 48 bits wide.
pub const MAX_UNITS: u64 = 1 << 48;

/// Shortest and longest control interval (half the median round-trip time between them).
pub const INTERVAL_MIN: Span = Span::from_millis(10);
/// See [`INTERVAL_MIN`].
pub const INTERVAL_MAX: Span = Span::from_millis(100);
/// A session over which no data passed for so long rests: its ends speak once in the longest
/// interval, which takes no lease away, and at once when there is something to be said.
pub const REST_AFTER: Span = Span::from_millis(1_000);
/// A changed node recomputes at most this often between its intervals.
pub const RECOMPUTE_MIN: Span = Span::from_millis(1);

/// Packets that a session may send in its first round trip, before any goodput is proven.
pub const INITIAL_PACKETS: u64 = 64;
/// Growth per round trip over the goodput proven.
pub const RAMP_FACTOR: f64 = 4.0;
/// Longest burst in bytes: one segmentation batch.
pub const BURST_BYTES: Bytes = Bytes(64 * 1024);
/// Longest burst in time.
pub const BURST_SPAN: Span = Span::from_millis(1);
/// How much of a late wake-up may be caught up at once: 4 ms at 630 Mbit/s are 315 KB, less than a
/// 5 ms queue at 700 Mbit/s holds.
pub const CATCH_UP: Span = Span::from_millis(4);
/// How much of what is later still is made good slowly. Many busy processes on few processors are
/// often that late, and lose their shares with much less.
pub const ARREARS_MOST: Span = Span::from_millis(40);

/// A grant is a lease: with no feedback for this long its rate begins to halve.
pub const LEASE_MIN: Span = Span::from_millis(200);
/// With no feedback for this long nothing is sent.
pub const SILENCE_STOP: Span = Span::from_millis(1_000);
/// With no valid datagram at all for this long the session is over.
pub const SESSION_TIMEOUT: Span = Span::from_secs(30);
/// No answer on UDP within this time: there is no UDP path.
pub const HANDSHAKE_TIMEOUT: Span = Span::from_millis(4_500);

/// Hellos that one end answers in a session's life: six rounds of three sizes, each twice,
/// and two sizes once more are 40; the rest is for copies made on the way.
pub const HELLOS_ANSWERED: u32 = 256;
/// Longest round-trip time believed: what a peer says of it prolongs leases here.
pub const RTT_MOST: Span = Span::from_secs(2);

/// Requests that may be on their way unacknowledged, and that a source holds out of order.
pub const REQUEST_WINDOW: u32 = 64;
/// Ranges in one request datagram: 10 bytes each, so that a request passes wherever the smallest
/// unit does.
pub const RANGES_PER_REQUEST: usize = 110;
/// Bytes of a loss map: 8,000 units.
pub const LOSS_MAP_BYTES: usize = 1_000;
/// Pieces of work a source queues before it stops to accept requests: a peer that asks for every
/// second unit costs 24 bytes a piece, so 1.5 MiB.
pub const QUEUED_PIECES: usize = 65_536;
/// Receipt gaps in one feedback datagram: 8 bytes each.
pub const GAPS_PER_FEEDBACK: usize = 128;
/// How far a packet number may run ahead of the newest one: 2^22, one key epoch, 2.4 s at
/// 20 Gbit/s of 1,500-byte packets.
pub const PN_AHEAD: u64 = 1 << 22;
/// Packet numbers that one receipt may be about: twice as many as one packet may be ahead, so
/// that checking a receipt never costs more than two million short hashes.
pub const RECEIPT_SPAN: u64 = 2 * PN_AHEAD;
/// Full receipts that wait for a datagram of their own; beyond this the oldest is forgotten.
pub const RECEIPTS_WAITING: usize = 64;
/// Gaps remembered in packet numbers, so that a late packet is told from a replayed one. Beyond
/// this the oldest gap is given up: its packets would be discarded as replays.
pub const GAPS_REMEMBERED: usize = 16_384;
/// What an end node believes of the steps alpha and beta that a peer names, least and most. A node
/// runs one pair for all its sessions; steps outside would let one peer freeze their rates (near 0)
/// or make them swing by the whole capacity (near 1). The thesis uses 0.1 to 0.2.
pub const STEP_LEAST: f64 = 0.01;
/// See [`STEP_LEAST`].
pub const STEP_MOST: f64 = 0.5;
/// The least factor of a session's weight that is believed of a peer: a session of low policy at a
/// host with a thousand others.
pub const PEER_WEIGHT_LEAST: f64 = 1e-9;

/// A session of which one end opens with this weight or less gives way on its path as well.
pub const WEIGHT_LOW: f64 = 0.001;
/// Grants issued and not yet echoed that a sink remembers per session.
pub const GRANTS_OUTSTANDING: usize = 64;
/// Checkpoints of what was sent when, one a millisecond: four seconds.
pub const CHECKPOINTS: usize = 4_096;

/// What an application-limited session may claim above its measured rate, at least.
pub const DEMAND_FLOOR: Rate = Rate::from_bps(1_000_000);
/// How far above its measured rate an application-limited session may claim.
pub const DEMAND_ALPHA: f64 = 0.1;
/// How long an application-limited session keeps its best recent claim (on-off applications).
pub const DEMAND_HOLD: Span = Span::from_millis(500);
/// A session over which one end decides alone may claim so many times what it moves where nobody
/// says what it wants.
pub const ALONE_GROWS: f64 = 2.0;
/// A session over which one end decides alone may claim this part of the capacity in any case.
pub const ALONE_LEAST: f64 = 1.0 / 16.0;

/// One-way links that a router allocates: eight links, both ways of each.
pub const ROUTER_LINKS: usize = 16;
/// Engines of hosts that a router knows at a time: at 200 bytes each, 200 KiB. A process has one
/// engine, a server up to eight.
pub const ROUTER_HOSTS: usize = 1_024;
/// Engines of them that ask from one address: a quarter, so that a single host leaves room.
pub const ROUTER_HOSTS_OF_ADDRESS: usize = 256;
/// Sessions that a router allocates for, over all its links: with [`GRANTS_OUTSTANDING`] grants of
/// 24 bytes remembered of each, 30 MiB at most.
pub const ROUTER_SESSIONS: usize = 16_384;
/// Sessions of them that are asked for from one address: a quarter, as of engines.
pub const ROUTER_SESSIONS_OF_ADDRESS: usize = 4_096;
/// Weights that a router believes: the range that a host may choose for a transfer.
pub const ROUTER_WEIGHT_LEAST: f64 = 0.001;
/// The other end of that range.
pub const ROUTER_WEIGHT_MOST: f64 = 1_000.0;
/// Sessions in one datagram to a router or from it: 38 bytes each, with 78 bytes around them and
/// 48 of UDP and IPv6 are 1,190, which every IPv6 path carries.
pub const ROUTER_ENTRIES: usize = 28;
/// Datagrams from a host to a router, or back, in [`ROUTER_PAUSE`]: enough for 448 sessions, and
/// below 100 Mbit/s.
pub const ROUTER_BURST: u32 = 16;
/// A burst of datagrams to a router, or back, begins no sooner than this after the last one began.
pub const ROUTER_PAUSE: Span = Span::from_millis(2);
/// A host repeats what it asks of a router this often.
pub const ROUTER_REPEATS: Span = Span::from_millis(100);
/// A router that has not answered for this long is ignored, and a session of which it has not heard
/// for this long is forgotten: ten repetitions.
pub const ROUTER_SILENCE: Span = Span::from_millis(1_000);
/// A router cannot hold a session below this rate.
pub const ROUTER_LEAST: Rate = Rate::from_bps(64_000);
/// A pass opens a router's table for this long.
pub const ROUTER_PASS: Span = Span::from_millis(5_000);
