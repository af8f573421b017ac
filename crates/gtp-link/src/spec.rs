//! What a link is: its parameters and the changes they may undergo.
//!
//! Plain values, whose defaults are a perfect wire. Where they come from (a file, a test, a
//! scenario) is not known here.

use gtp_alloc::{Bytes, Rate, Span};

use crate::rng::Chance;
use crate::trace::Trace;

/// The longest delay that a description of a link may state: light takes up to 54 minutes to
/// Jupiter.
pub const DELAY_MOST: Span = Span::from_secs(3_600);
/// The longest queue that a description of a link may state: more than any of today.
pub const QUEUE_MOST: Bytes = Bytes(1 << 40);
/// The last time at which a description may have a link change: a year after the start.
pub const CHANGE_LAST: Span = Span::from_secs(8_760 * 3_600);

/// The parameters of one direction of a link. `Default` is a perfect wire: no limit, no delay, no
/// loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bits per second at which packets leave the queue.
    pub rate: Rate,
    /// Times at which packets leave the queue instead. Where there is one, `rate` is what the link
    /// is taken for by whoever asks for its capacity, and has no other effect.
    pub trace: Option<Trace>,
    /// Propagation delay, from a packet's last bit leaving to its last bit arriving.
    pub delay: Span,
    /// Bytes that may wait behind the packet in service. A packet that would make it more is
    /// dropped; one that finds the link idle never waits and is never dropped for this.
    pub queue: Bytes,
    /// The largest packet carried; larger ones are dropped. `None`: any size.
    pub mtu: Option<Bytes>,
    /// Drops what exceeds a rate and a burst, before the queue. `None`: nothing does.
    pub policer: Option<Policer>,
    /// Delay on top of `delay` that varies.
    pub jitter: Jitter,
    /// Chance that a packet, having crossed the queue, is lost, independently of the others.
    pub loss: Chance,
    /// Losses in bursts, on top of `loss`.
    pub burst: Option<Burst>,
    /// Chance that a packet arrives twice.
    pub duplicate: Chance,
    /// Packets that are held back so that later ones overtake them.
    pub reorder: Reorder,
    /// Whether the link carries anything.
    pub state: LinkState,
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            rate: Rate::UNLIMITED,
            trace: None,
            delay: Span::ZERO,
            queue: Bytes(u64::MAX),
            mtu: None,
            policer: None,
            jitter: Jitter::default(),
            loss: Chance::NEVER,
            burst: None,
            duplicate: Chance::NEVER,
            reorder: Reorder::default(),
            state: LinkState::Up,
        }
    }
}

/// A token bucket in front of a link's queue: a packet for which it lacks tokens is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second that pass for as long as one likes.
    pub rate: Rate,
    /// Bytes that pass at once after a rest. A packet larger than this never passes.
    pub bucket: Bytes,
}

/// Delay that varies between zero and `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Jitter {
    /// The most that is added; the mean is half of it.
    pub span: Span,
    /// Whether packets may overtake each other by it.
    pub order: Order,
}

/// Whether packets keep their order under jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// The added delay wanders slowly, by less than time itself goes on, so that no packet
    /// overtakes another.
    #[default]
    Kept,
    /// Each packet draws its own delay.
    Free,
}

/// Packets held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reorder {
    /// Chance that a packet is held back.
    pub chance: Chance,
    /// For how long.
    pub extra: Span,
}

/// The two-state loss model of Gilbert (1960) and Elliott (1963): before each packet the link may
/// change between a good and a bad state; in the bad one packets are lost with chance `loss`.
/// The share of time spent bad is `enter / (enter + leave)`, a mean bad spell lasts `1 / leave`
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Chance per packet to go from good to bad.
    pub enter: Chance,
    /// Chance per packet to go from bad to good.
    pub leave: Chance,
    /// Chance of loss while bad.
    pub loss: Chance,
}

/// Whether a link carries anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LinkState {
    /// It does.
    #[default]
    Up,
    /// It is cut: what is offered is dropped, what waits in its queue is lost, what has left is
    /// still delivered.
    Down,
}

/// New values for some of a link's parameters; `None` keeps the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Change {
    /// New rate, at once for what waits too; none for a link with a trace.
    pub rate: Option<Rate>,
    /// New delay, for what has not yet left the queue.
    pub delay: Option<Span>,
    /// New queue size; what waits beyond it is kept.
    pub queue: Option<Bytes>,
    /// New random loss, for packets offered from now on.
    pub loss: Option<Chance>,
    /// Cut or mend.
    pub state: Option<LinkState>,
}

impl Change {
    /// The change that cuts a link.
    pub const DOWN: Change = Change::state(LinkState::Down);
    /// The change that mends it.
    pub const UP: Change = Change::state(LinkState::Up);

    const fn state(state: LinkState) -> Change {
        Change { rate: None, delay: None, queue: None, loss: None, state: Some(state) }
    }
}
