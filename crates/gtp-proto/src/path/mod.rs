//! What the path between two hosts lets through: the ramp and the path bound.
//!
//! GTP's rates come from the two ends. The network is normally not the limit, but when it is,
//! nobody tells. So a source explores what lies above what is proven to arrive (`start`) and
//! watches for a queue and for losses. Once it has met one there is a bound. It climbs until a
//! queue shows and steps back (`cruise`). It asks whose queue it is that does not go away (`ask`),
//! and competes as one TCP would with whoever keeps it full (`compete`). It asks whether losses
//! without a queue follow its rate (`probe`), and tests that again (`retry`): random loss alone
//! does not lower the bound. Losses that come with the longest delays are a queue's, however short
//! it is (`drops`). Losses while no more is sent than the path carried for a second are asked about
//! only if they go on (`calm`). A session that gives way leaves the path to rivals instead
//! (`yielding`). A mark of a queue (ECN) counts as a queue (`marks`). When most is lost, next to
//! nothing is sent (`guard`). The module knows rates and delays, not packets.

mod ask;
mod calm;
mod compete;
mod cruise;
mod drops;
mod group;
mod groups;
mod guard;
mod log;
mod marks;
mod measures;
mod member;
mod name;
mod party;
mod probe;
mod proven;
mod retry;
mod sample;
mod standing;
mod start;
mod sum;
mod window;
mod yielding;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{INITIAL_PACKETS, INTERVAL_MIN, RAMP_FACTOR};
use ask::Ask;
use compete::Compete;
use cruise::{Cruise, Shares};
use drops::Drops;
use guard::{Guard, Held};
use measures::{Measures, Verdict};
use probe::{Limit, Probe};
use proven::Proven;
use sample::{Enough, Gathering};
use start::Start;
use yielding::{Patience, Yield};

pub use groups::PathGroups;
pub(crate) use log::SendLog;
pub(crate) use member::{Facts, Keeps, Path, PathShare, Piece, Shows};
pub use name::PathName;
pub(crate) use sample::{Conditions, Receipts, Sample};
pub use standing::{Mode, Queue, Standing};

/// The packets of the first round trip are counted as if they were this long, whatever the unit:
/// before anything is proven, a jumbo path gets no more bytes than an ordinary one.
const INITIAL_PACKET: Bytes = Bytes(1_500);

/// What may be sent in the first round trip, however long that will turn out to be.
pub(crate) const INITIAL: Bytes = Bytes(INITIAL_PACKET.0 * INITIAL_PACKETS);

/// What a source may send at first, before anything is proven, over a path of this round trip.
pub(crate) fn first_rate(rtt: Span) -> Rate {
    INITIAL.per(rtt + INTERVAL_MIN)
}

/// A rate proven over less than this may be a burst's.
const PROOF_MIN: Span = Span::from_millis(2);
/// What is proven is the most of so many round trips, and of half a second at least.
const PROOF_ROUNDS: u64 = 4;
const PROOF_WINDOW: Span = Span::from_millis(500);
/// A session uses a rate of which it sends this part.
const USES: f64 = 0.85;
/// The bound never falls below so many bytes a round trip, four packets: without data there would
/// be no sample to show that the path is free again.
const FLOOR_BYTES: Bytes = Bytes(4 * 1_500);
/// Where a session gives way, a round trip counts as this long at least: four packets in 10 ms
/// would be much of a slow path.
const ROUND_LOW: Span = Span::from_millis(200);
/// The bound is lifted when it is this far above what both ends would give.
const LIFT: f64 = 1.5;

/// What is done about the path.
#[derive(Clone, Copy, Debug)]
enum State {
    /// No bottleneck seen: only what is proven limits.
    Start(Start),
    /// Climbing and stepping back.
    Cruise(Cruise),
    /// Less is sent to see whose queue it is.
    Ask(Ask),
    /// A rival keeps the queue full, or losses begin at some rate.
    Compete(Compete),
    /// Less is sent to see whether losses follow the rate.
    Probe(Probe),
    /// A rival keeps the queue full, and it is left to it.
    Yield(Yield),
    /// Most was lost.
    Held(Held),
}

/// The ramp and the path bound of one session, or of one path group.
#[derive(Debug)]
pub(crate) struct PathBound {
    state: State,
    bound: Rate,
    proven: Proven,
    measures: Measures,
    drops: Drops,
    shares: Shares,
    guard: Guard,
    patience: Patience,
    limit: Option<Limit>,
    gathering: Gathering,
    /// What was proven since the ramp last heard of it.
    proving: Option<Sample>,
    /// Samples that begin before this packet number show the path as it was before the last change.
    changed_pn: u64,
}

impl PathBound {
    /// A path of which nothing is known at `now`.
    pub fn new(now: Time) -> PathBound {
        PathBound {
            state: State::Start(Start::default()),
            bound: Rate::UNLIMITED,
            proven: Proven::new(now, Span::from_secs(1)),
            measures: Measures::new(now),
            drops: Drops::new(now),
            shares: Shares::default(),
            guard: Guard::new(now),
            patience: Patience::new(now),
            limit: None,
            gathering: Gathering::default(),
            proving: None,
            changed_pn: 0,
        }
    }

    /// A path of which only this bound is known.
    fn bounded(now: Time, bound: Rate) -> PathBound {
        let new = PathBound::new(now);
        if bound.is_unlimited() {
            return new;
        }
        PathBound { state: State::Cruise(Cruise::default()), bound, ..new }
    }

    /// The rate that the path is believed to carry; unlimited while no bottleneck was seen.
    pub fn bound(&self) -> Rate {
        self.bound
    }

    /// Four times the goodput proven, or 64 packets a round trip.
    pub fn ramp(&mut self, now: Time, rtt: Span) -> Rate {
        first_rate(rtt).max(self.proven.max(now).scale(RAMP_FACTOR))
    }

    /// What a receipt says counts for the ramp, with those right before it that were too short to
    /// count: both ends may have had so much to tell each other that none is long. A sink that
    /// leaves receipts out must not make what was sent meanwhile seem sent in no time.
    pub fn note_proven(&mut self, now: Time, sample: &Sample, given: &Conditions) {
        let whole = match self.proving.take().filter(|begun| begun.end_pn == sample.first_pn) {
            Some(begun) => begun.join(*sample).within_what_was_sent(),
            None => *sample,
        };
        if whole.arrived_in < PROOF_MIN {
            self.proving = Some(whole);
            return;
        }
        self.proven.set_window((given.rtt * PROOF_ROUNDS).max(PROOF_WINDOW));
        let known = self.proven.max(now);
        // What hosts withhold says nothing of the path: what was proven stands.
        let sent = whole.sent.per(whole.sent_in);
        let withheld = sent < known.scale(USES) && sent >= given.granted.scale(USES);
        self.proven.add(now, if withheld { known } else { whole.proven() });
        self.explore(now, &whole, given);
    }

    /// Takes in what a receipt says, and bounds the path by it.
    pub fn handle_sample(&mut self, now: Time, sample: Sample, given: &Conditions) {
        let bound = self.bound;
        self.take_sample(now, sample, given);
        if sample.marked > 0 {
            self.keep_below(bound);
        }
    }

    fn take_sample(&mut self, now: Time, sample: Sample, given: &Conditions) {
        self.drops.note(now, &sample, self.measures.threshold() * 2);
        self.clock_window(now, &sample, given);
        let enough = self.enough(given.rtt);
        let Some(whole) = self.gathering.add(sample, self.changed_pn, enough) else { return };
        let learns = matches!(self.state, State::Start(_) | State::Cruise(_));
        let dropped = self.drops.explain(now, &whole);
        let v = self.measures.weigh(now, &whole, given, learns, dropped);
        if self.watch_losses(now, &v, given) {
            return;
        }
        if whole.end_pn <= self.changed_pn && self.ends_outage(&v, given) {
            return;
        }
        let fresh = whole.first_pn >= self.changed_pn;
        match v.marked {
            true => self.hear_marked(now, &v, fresh, given),
            false => self.hear(now, &v, fresh, given),
        }
    }

    /// A whole sample; `fresh` if it shows the present rate.
    fn hear(&mut self, now: Time, v: &Verdict, fresh: bool, given: &Conditions) {
        if fresh && self.retest(now, v, given) {
            return;
        }
        match self.state {
            State::Start(start) => self.watch(start, now, v, given),
            State::Compete(compete) => self.compete(compete, now, v, fresh, given),
            State::Cruise(cruise) if fresh => self.cruise(cruise, now, v, given),
            State::Cruise(_) if self.measures.loses_much(v) => self.step_down(now, v, given),
            State::Ask(ask) => self.hear_answer(ask, now, v, fresh, given),
            State::Probe(probe) if fresh => self.hear_probe(probe, now, v, given),
            State::Held(held) if fresh => self.hold(held, now, v, given),
            State::Yield(since) if fresh => self.wait_for_rivals(since, now, v, given),
            State::Cruise(_) | State::Probe(_) | State::Held(_) | State::Yield(_) => {}
        }
    }

    /// What makes a sample whole in the present state, over a path of this round trip.
    fn enough(&self, rtt: Span) -> Enough {
        match self.state {
            State::Compete(_) | State::Ask(_) => Enough::quick(rtt),
            State::Start(_) | State::Cruise(_) => Enough::round(rtt),
            State::Probe(_) | State::Held(_) | State::Yield(_) => Enough::many(),
        }
    }

    fn set_bound(&mut self, bound: Rate, given: &Conditions) {
        let round = if given.yields { given.rtt.max(ROUND_LOW) } else { given.rtt };
        self.bound = self.floored(bound, round);
        self.changed_pn = given.next_pn;
    }

    /// A rate, but no less than the least.
    fn floored(&self, rate: Rate, rtt: Span) -> Rate {
        rate.max(FLOOR_BYTES.per(rtt + INTERVAL_MIN))
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
