//! One direction of a link: a drop-tail queue, a server of fixed rate, and a wire behind it.
//!
//! A packet's departure is settled when it is accepted: it begins when the one before it has left,
//! and takes its size over the rate. So the queue needs no events of its own; how much waits at a
//! time follows from the departures that lie ahead of it. Only a change of rate or delay moves
//! departures that were already settled; [`Link::retime`] tells where to.
//!
//! Loss, duplication, jitter and reordering happen on the wire, behind the queue: a packet that is
//! lost has used the rate like any other.

use gtp_alloc::{Bytes, Span, Time};

use crate::loss::Loss;
use crate::policer::Tokens;
use crate::ring::Ring;
use crate::rng::{Chance, Rng, hashed};
use crate::spec::{Change, LinkSpec, LinkState, Order};
use crate::stats::LinkStats;
use crate::trace::Track;

/// A link in one direction; see the module's head.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    rng: Rng,
    wander_seed: u64,
    loss: Loss,
    /// The policer's bucket.
    tokens: Option<Tokens>,
    /// How far its trace has come.
    track: Option<Track>,
    /// Accepted and not yet left; the first is in service, the others wait.
    ring: Ring<Queued>,
    /// Serial number of the ring's first.
    first: u64,
    /// Bytes in the ring behind the packet in service.
    waiting: Bytes,
    /// The least that waited since this was last asked.
    least: Bytes,
    /// The last packet's size and how long it is in service: most packets are like the last one.
    service: (Bytes, Span),
    /// Whether the wire is a plain one.
    plain: Plain,
    busy_until: Time,
    /// Latest arrival among the packets in turn that have left.
    left_at: Time,
    /// Latest arrival among the packets in turn.
    last_at: Time,
    clock: Time,
    stats: LinkStats,
}

/// What becomes of a packet that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives.
    Deliver {
        /// When.
        transit: Transit,
        /// How many times: one, or two if it was duplicated.
        copies: u32,
    },
    /// It does not.
    Drop(Reason),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The queue was full.
    Queue,
    /// Lost on the wire.
    Loss,
    /// The link was down or went down.
    Down,
    /// Larger than the link carries.
    Mtu,
    /// The policer had too few tokens.
    Policer,
}

/// A packet's passage over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// When its last bit leaves the queue.
    pub leave: Time,
    /// When its last bit is at the far end.
    pub at: Time,
    serial: u64,
}

impl Transit {
    /// Its number among the packets that its link accepted.
    #[inline]
    pub fn serial(self) -> u64 {
        self.serial
    }
}

/// Whether anything beside the delay can happen to a packet behind the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// Nothing can, and nothing is drawn.
    Yes,
    No,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    size: Bytes,
    leave: Time,
    at: Time,
    turn: Turn,
    fate: Fate,
}

/// Whether a packet keeps its place behind the one before it.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Kept,
    /// Out of turn, this much later than the wire alone would bring it.
    Free(Span),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Carried,
    Twice,
    Lost,
}

impl Link {
    /// A link of these parameters whose chances follow from `seed`.
    pub fn new(spec: LinkSpec, seed: u64) -> Link {
        let mut rng = Rng::new(seed);
        let wander_seed = rng.next_u64();
        Link {
            loss: Loss::new(spec.loss, spec.burst),
            tokens: spec.policer.map(Tokens::new),
            track: spec.trace.clone().map(Track::new),
            service: (Bytes::ZERO, Span::ZERO),
            plain: Plain::of(&spec),
            spec,
            rng,
            wander_seed,
            ring: Ring::new(),
            first: 0,
            waiting: Bytes::ZERO,
            least: Bytes::ZERO,
            busy_until: Time::ZERO,
            left_at: Time::ZERO,
            last_at: Time::ZERO,
            clock: Time::ZERO,
            stats: LinkStats::default(),
        }
    }

    /// Offers a packet of `size` at `now`; a time before the last one seen counts as that one.
    #[inline(always)] // What it returns is large, and whoever calls it takes it apart at once.
    pub fn enqueue(&mut self, now: Time, size: Bytes) -> Verdict {
        let now = self.advance(now);
        // A queue only falls between two packets: just before one it is least.
        self.least = self.least.min(self.waiting);
        self.stats.offered.add(size);
        if let Some(reason) = self.refusal(now, size) {
            return self.turn_away(reason, size);
        }
        let start = self.busy_until.max(now);
        let leave = self.departure(start, size);
        self.busy_until = leave;
        self.count_service(now, start, leave, size);

        let (fate, turn, at) = match self.plain {
            Plain::Yes => {
                self.stats.carried.add(size);
                self.last_at = self.last_at.max(leave + self.spec.delay);
                (Fate::Carried, Turn::Kept, self.last_at)
            }
            Plain::No => self.draw(leave, size),
        };
        let serial = self.first + self.ring.len() as u64;
        if !self.ring.is_empty() {
            self.waiting += size;
            self.stats.queue_max = self.stats.queue_max.max(self.waiting);
        }
        self.ring.push_back(Queued { size, leave, at, turn, fate });

        let transit = Transit { leave, at, serial };
        match fate {
            Fate::Carried => Verdict::Deliver { transit, copies: 1 },
            Fate::Twice => Verdict::Deliver { transit, copies: 2 },
            Fate::Lost => Verdict::Drop(Reason::Loss),
        }
    }

    /// Bytes that wait at `now`, without the packet in service.
    pub fn queued(&mut self, now: Time) -> Bytes {
        self.advance(now);
        self.waiting
    }

    /// The least that waited, without the packet in service, since this was last asked and until
    /// `now`: what stands in the queue, whenever in between bursts come.
    pub fn take_least_queued(&mut self, now: Time) -> Bytes {
        self.advance(now);
        let least = self.least.min(self.waiting);
        self.least = self.waiting;
        least
    }

    /// Applies a change at `now`. Whoever holds transits of this link must then ask
    /// [`Link::retime`] for each of them, before the next packet is offered.
    pub fn change(&mut self, now: Time, change: Change) {
        let now = self.advance(now);
        let old_rate = self.spec.rate;
        if self.track.is_none() {
            self.spec.rate = change.rate.unwrap_or(old_rate);
        }
        self.spec.delay = change.delay.unwrap_or(self.spec.delay);
        self.spec.queue = change.queue.unwrap_or(self.spec.queue);
        self.spec.state = change.state.unwrap_or(self.spec.state);
        if let Some(loss) = change.loss {
            self.spec.loss = loss;
            self.loss.set_random(loss);
        }
        self.service = (Bytes::ZERO, Span::ZERO);
        self.plain = Plain::of(&self.spec);
        match self.spec.state {
            LinkState::Down => self.cut(now),
            LinkState::Up => {
                if old_rate != self.spec.rate {
                    self.settle_departures(now, old_rate);
                }
                self.settle_arrivals();
            }
        }
    }

    /// Where a passage stands after the last [`Link::change`]: unchanged if the packet had left,
    /// moved if it waited, `None` if it was cut off.
    pub fn retime(&self, transit: Transit) -> Option<Transit> {
        if transit.leave <= self.clock {
            return Some(transit);
        }
        let place = transit.serial.checked_sub(self.first)?;
        let queued = self.ring.get(usize::try_from(place).ok()?)?;
        Some(Transit { leave: queued.leave, at: queued.at, serial: transit.serial })
    }

    /// The passage of the packet accepted last, one that the wire will lose included, unless it has
    /// left.
    pub fn newest(&self) -> Option<Transit> {
        let place = self.ring.len().checked_sub(1)?;
        let Queued { leave, at, .. } = *self.ring.get(place)?;
        Some(Transit { leave, at, serial: self.first + place as u64 })
    }

    /// The parameters as they are now.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// When all that was accepted so far will have left the queue.
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// The counters.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Moves the clock on and lets go of what has left. Returns the time that counts.
    #[inline]
    fn advance(&mut self, now: Time) -> Time {
        self.clock = self.clock.max(now);
        let mut in_service = self.ring.front();
        while let Some(front) = in_service
            && front.leave <= self.clock
        {
            if let Turn::Kept = front.turn {
                self.left_at = self.left_at.max(front.at);
            }
            self.first += 1;
            self.ring.drop_front();
            in_service = self.ring.front();
            self.waiting -= in_service.map_or(Bytes::ZERO, |next| next.size);
        }
        self.clock
    }

    /// When a packet of `size` leaves that is in service from `start` on.
    #[inline]
    fn departure(&mut self, start: Time, size: Bytes) -> Time {
        if self.track.is_some() {
            return self.opportunity(start, size);
        }
        start + self.service_time(size)
    }

    #[inline(never)]
    fn opportunity(&mut self, start: Time, size: Bytes) -> Time {
        let leave = self.track.as_mut().map_or(start, |track| track.serve(start, size));
        self.service = (size, leave.since(start));
        leave
    }

    /// How long a packet of `size` is in service.
    #[inline]
    fn service_time(&mut self, size: Bytes) -> Span {
        if self.service.0 != size {
            self.service = (size, size / self.spec.rate);
        }
        self.service.1
    }

    /// The queue's discipline: whether a packet is turned away. (Drop-tail; an active discipline
    /// such as RED would decide here.)
    #[inline]
    fn refusal(&mut self, now: Time, size: Bytes) -> Option<Reason> {
        if self.spec.state == LinkState::Down {
            return Some(Reason::Down);
        }
        if self.spec.mtu.is_some_and(|mtu| size > mtu) {
            return Some(Reason::Mtu);
        }
        if let Some(tokens) = &mut self.tokens
            && !tokens.pass(now, size)
        {
            return Some(Reason::Policer);
        }
        let full = !self.ring.is_empty() && self.waiting + size > self.spec.queue;
        full.then_some(Reason::Queue)
    }

    /// What happens on a wire that is not a plain one, and when the packet arrives.
    #[inline(never)]
    fn draw(&mut self, leave: Time, size: Bytes) -> (Fate, Turn, Time) {
        let (fate, turn) = (self.draw_fate(size), self.draw_turn(leave));
        (fate, turn, self.arrival(leave, turn))
    }

    fn draw_fate(&mut self, size: Bytes) -> Fate {
        if self.loss.strikes(&mut self.rng) {
            self.stats.drops.loss.add(size);
            return Fate::Lost;
        }
        self.stats.carried.add(size);
        if self.rng.happens(self.spec.duplicate) {
            self.stats.duplicated.add(size);
            return Fate::Twice;
        }
        Fate::Carried
    }

    fn draw_turn(&mut self, leave: Time) -> Turn {
        let jitter = self.spec.jitter;
        let held_back = self.rng.happens(self.spec.reorder.chance);
        let extra = if held_back { self.spec.reorder.extra } else { Span::ZERO };
        match jitter.order {
            Order::Free if jitter.span > Span::ZERO => {
                let drawn = self.rng.below(jitter.span.as_nanos().saturating_add(1));
                Turn::Free(extra + Span::from_nanos(drawn))
            }
            Order::Kept if held_back => Turn::Free(extra + self.wander(leave)),
            Order::Free if held_back => Turn::Free(extra),
            Order::Kept | Order::Free => Turn::Kept,
        }
    }

    fn arrival(&mut self, leave: Time, turn: Turn) -> Time {
        let base = leave + self.spec.delay;
        match turn {
            Turn::Free(extra) => base + extra,
            Turn::Kept => {
                self.last_at = self.last_at.max(base + self.wander(leave));
                self.last_at
            }
        }
    }

    /// The jitter of a packet that leaves at `leave`, if order is kept: between random values at
    /// multiples of twice the jitter's span, in straight lines. They fall by half of the time that
    /// passes at most, so that what leaves later arrives later.
    fn wander(&self, leave: Time) -> Span {
        let jitter = self.spec.jitter;
        let span = u128::from(jitter.span.as_nanos());
        if span == 0 || jitter.order == Order::Free {
            return Span::ZERO;
        }
        let period = 2 * span;
        let (knot, into) =
            (u128::from(leave.as_nanos()) / period, u128::from(leave.as_nanos()) % period);
        let value =
            |knot: u128| (u128::from(hashed(self.wander_seed, knot as u64)) * (span + 1)) >> 64;
        let between = (value(knot) * (period - into) + value(knot + 1) * into) / period;
        Span::from_nanos(between as u64)
    }

    fn cut(&mut self, now: Time) {
        for queued in self.ring.iter() {
            let size = queued.size;
            match queued.fate {
                Fate::Lost => continue,
                Fate::Carried => {}
                Fate::Twice => self.stats.duplicated.remove(size),
            }
            self.stats.carried.remove(size);
            self.stats.drops.down.add(size);
        }
        self.first += self.ring.len() as u64;
        self.ring.clear();
        self.waiting = Bytes::ZERO;
        self.busy_until = now;
        self.last_at = self.left_at;
        if let Some(track) = &mut self.track {
            track.cut();
        }
    }

    /// Departures of what is in the ring, from `now` on at the new rate. Of the packet in service
    /// only the rest is still to be sent.
    fn settle_departures(&mut self, now: Time, old_rate: gtp_alloc::Rate) {
        let mut done = now;
        let mut in_service = true;
        for place in 0..self.ring.len() {
            let Some(queued) = self.ring.get_mut(place) else { break };
            let mut rest = queued.size;
            if in_service && queued.leave < Time::MAX {
                rest = rest.min(old_rate.bytes_in(queued.leave.since(now)) + Bytes(1));
            }
            in_service = false;
            done += rest / self.spec.rate;
            queued.leave = done;
        }
        self.busy_until = if self.ring.is_empty() { now } else { done };
    }

    fn settle_arrivals(&mut self) {
        self.last_at = self.left_at;
        for place in 0..self.ring.len() {
            let Some(&Queued { leave, turn, .. }) = self.ring.get(place) else { break };
            let at = self.arrival(leave, turn);
            if let Some(queued) = self.ring.get_mut(place) {
                queued.at = at;
            }
        }
    }

    #[inline]
    fn count_service(&mut self, now: Time, start: Time, leave: Time, size: Bytes) {
        if leave == Time::MAX {
            return;
        }
        self.stats.busy += self.service.1;
        let wait = start.since(now);
        if wait > Span::ZERO {
            self.stats.wait_max = self.stats.wait_max.max(wait);
            self.stats.byte_nanos += u128::from(size.0) * u128::from(wait.as_nanos());
        }
    }

    #[cold]
    fn turn_away(&mut self, reason: Reason, size: Bytes) -> Verdict {
        let drops = &mut self.stats.drops;
        match reason {
            Reason::Queue => drops.queue.add(size),
            Reason::Loss => drops.loss.add(size),
            Reason::Down => drops.down.add(size),
            Reason::Mtu => drops.mtu.add(size),
            Reason::Policer => drops.policer.add(size),
        }
        Verdict::Drop(reason)
    }
}

impl Plain {
    fn of(spec: &LinkSpec) -> Plain {
        let never = [spec.loss, spec.duplicate, spec.reorder.chance] == [Chance::NEVER; 3];
        if never && spec.burst.is_none() && spec.jitter.span == Span::ZERO {
            Plain::Yes
        } else {
            Plain::No
        }
    }
}
