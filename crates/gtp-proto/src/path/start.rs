//! The start: what lies above what is proven is explored by short trains.
//!
//! Between trains a session sends little more than what is proven to arrive. Once a round trip, and
//! only while there is no queue, a train of a few milliseconds goes out at several times that. A
//! train that brings no more, and meets a queue or a loss, has found what the path carries, at the
//! price of a few packets in a queue instead of a round trip's worth.

use gtp_alloc::{Rate, Span, Time};

use super::cruise::Cruise;
use super::measures::Verdict;
use super::sample::{Conditions, Sample};
use super::{PathBound, State, first_rate};
use crate::limits::RAMP_FACTOR;

/// Between trains this part of what is proven is sent.
const BASE: f64 = 1.15;
/// The same while a queue is seen.
const BASE_QUEUED: f64 = 0.9;
/// Where both ends allow no more than this times what is proven, what they allow is sent at once.
const NEAR_GRANT: f64 = 1.5;
/// A train takes a little longer to leave than receipts are apart, but no longer than the most: a
/// shorter one would be lost in the mean that a receipt gives.
const TRAIN_MORE: Span = Span::from_millis(2);
const TRAIN_MOST: Span = Span::from_millis(30);
/// So many receipts in a row with a queue: a train's own is gone before that if the path carries
/// more.
const HEAVY: u32 = 2;
/// So many packets lost since a train left are more than late ones.
const LOST: u64 = 4;
/// A train that brings less than this times more has met the path's end. At a share s of the path a
/// train of four times the rate brings 4 / (3 s + 1) times more.
const GROWS: f64 = 1.6;
/// Where both ends allow a train no more than [`GROWS`] times more, but this much, it is to bring
/// half of what they allow more. Only a queue that it met then shows the path's end.
const ALLOWS: f64 = 1.1;
/// A train that fell into an outage, so that less than this part of what was proven before it is
/// still known, does not show that the path carries less than before.
const FORGOTTEN: f64 = 0.5;
/// If more than this part of a train is lost, and next to nothing was proven before it, an outage
/// is more likely than a path that is so slow.
const OUTAGE: f64 = 0.5;
/// Trains that meet an outage do not end a start for so long.
const OUTAGE_LASTS: Span = Span::from_secs(2);
/// A queue that lasts for so many round trips ends the start too.
const HEAVY_ROUNDS: u32 = 8;
/// A start that met the path's end leaves this part of what it proved.
const FOUND: f64 = 0.85;
/// So many samples in a row convince: a host that stands still for some tens of milliseconds looks
/// like a full path for that long.
const CONVINCED: u32 = 3;

/// Where a start has got to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    train: Train,
    /// What was proven before the last train.
    before: Rate,
    /// Whether the last train met a queue or a loss, and whether it met a queue.
    met: bool,
    queued: bool,
    /// Packets heard of since it left, and how many of them are lost.
    packets: u64,
    lost: u64,
    /// Receipts in a row that showed a queue, and round trips in a row.
    heavy: u32,
    heavy_rounds: u32,
    /// The next round trip is over when this packet is heard of.
    round_pn: u64,
    /// Samples in a row that showed a queue and of which too little arrived.
    outrun: u32,
    /// When the first of the last trains in a row that met an outage was judged.
    outage: Option<Time>,
}

/// The train of this round trip.
#[derive(Clone, Copy, Debug, Default)]
enum Train {
    /// None was sent yet.
    #[default]
    None,
    /// It leaves until then.
    Leaves(Time),
    /// It has left: all packets are below this number.
    Flies(u64),
}

impl PathBound {
    /// What may be sent at most now, if both ends allow `granted` and packet `next_pn` is next.
    pub fn pace(&mut self, now: Time, rtt: Span, granted: Rate, next_pn: u64) -> Rate {
        let ramp = self.ramp(now, rtt);
        let State::Start(mut start) = self.state else { return ramp };
        if let Train::Leaves(until) = start.train {
            if now < until {
                return ramp;
            }
            start.train = Train::Flies(next_pn);
            self.state = State::Start(start);
        }
        let sends = self.proven.max(now).scale(1.0 / self.measures.usual());
        // One receipt with a queue is enough to send less only while the start explores: where the
        // ends allow no more than is proven, it is seldom a queue of this session's.
        let rests = granted <= sends.scale(BASE);
        if start.heavy >= if rests { HEAVY } else { 1 } {
            return self.floored(sends.scale(BASE_QUEUED), rtt);
        }
        let near = !start.met && granted <= sends.scale(NEAR_GRANT);
        if near { granted } else { first_rate(rtt).max(sends.scale(BASE)) }
    }

    /// When the train that leaves now, if one does, has left.
    pub(super) fn train_ends(&self) -> Option<Time> {
        match self.state {
            State::Start(Start { train: Train::Leaves(until), .. }) => Some(until),
            State::Start(_) | State::Cruise(_) | State::Ask(_) => None,
            State::Compete(_) | State::Probe(_) | State::Yield(_) | State::Held(_) => None,
        }
    }

    /// A receipt in a start: judges the last train, and sends the next one off.
    pub(super) fn explore(&mut self, now: Time, sample: &Sample, given: &Conditions) {
        let State::Start(mut start) = self.state else { return };
        let proven = self.proven.max(now);
        self.note_queue(&mut start, sample, given);
        let stands = start.heavy_rounds > HEAVY_ROUNDS || sample.marked > 0;
        let ramping = proven.scale(BASE) < given.aim;
        if proven == Rate::ZERO || !ramping && !stands {
            let Start { heavy, heavy_rounds, round_pn, outrun, outage, .. } = start;
            let (train, rest) = (Train::Flies(0), Start::default());
            let rest = Start { train, heavy, heavy_rounds, round_pn, outrun, outage, ..rest };
            self.state = State::Start(rest);
            return;
        }
        let found = stands || start.is_judged(sample) && start.met_end(proven, given);
        if found && !stands && start.met_outage(now, proven, first_rate(given.rtt)) {
            let outage = start.outage.or(Some(now));
            self.state = State::Start(Start { outage, ..Start::default() });
            return;
        }
        if found {
            let forgotten = !stands && proven < start.before.scale(FORGOTTEN);
            self.leave_start(now, if forgotten { start.before } else { proven }, given);
            return;
        }
        start.go_on(now, sample, proven, given);
        self.state = State::Start(start);
    }

    /// The start has met the path's end at the rate `proven`.
    fn leave_start(&mut self, now: Time, proven: Rate, given: &Conditions) {
        self.shares.met_at(now, proven);
        self.patience.note_end(now, proven);
        self.state = State::Cruise(Cruise { cuts: 1, ..Cruise::default() });
        self.set_bound(proven.scale(FOUND / self.measures.usual()), given);
    }

    /// A sample in a start: asks whose queue it is when one lasts and too little arrives.
    pub(super) fn watch(&mut self, start: Start, now: Time, v: &Verdict, given: &Conditions) {
        if self.answer_drops(now, v, given) || self.answer_odd_loss(now, v, given) {
            return;
        }
        let outrun = if self.measures.falls_behind(v) { start.outrun + 1 } else { 0 };
        self.state = State::Start(Start { outrun, ..start });
        if outrun >= CONVINCED {
            self.shares.unsettle();
            self.ask(now, v, None, given);
        }
    }

    /// Notes whether a receipt shows a queue, or a loss that chance does not explain.
    fn note_queue(&self, start: &mut Start, sample: &Sample, given: &Conditions) {
        let threshold = self.measures.threshold_of(given.yields);
        let queued = sample.delay > threshold && sample.arrived.0 > 0;
        start.heavy = if queued { start.heavy + 1 } else { 0 };
        (start.packets, start.lost) = (start.packets + sample.packets(), start.lost + sample.lost);
        let loses = start.lost >= LOST && self.measures.is_excess(start.packets, start.lost);
        start.queued |= start.heavy >= HEAVY;
        start.met |= start.queued || loses;
        if start.heavy == 0 {
            start.heavy_rounds = 0;
        } else if start.heavy >= HEAVY && sample.first_pn >= start.round_pn {
            (start.heavy_rounds, start.round_pn) = (start.heavy_rounds + 1, given.next_pn);
        }
    }
}

impl Start {
    /// Whether the last train has brought less than it could, and met what shows why. What hosts do
    /// not allow to grow, or have no more of, says nothing of the path.
    fn met_end(&self, proven: Rate, given: &Conditions) -> bool {
        let allowed = given.granted.as_f64() / self.before.as_f64().max(1.0);
        let (grows, met) = match allowed >= GROWS {
            true => (GROWS, self.met),
            false => ((1.0 + allowed) / 2.0, self.queued && allowed >= ALLOWS),
        };
        met && !given.idles && proven < self.before.scale(grows)
    }

    /// Whether the last train met an outage before anything much was proven. An outage that lasts
    /// for too long is believed to be none.
    fn met_outage(&self, now: Time, proven: Rate, first: Rate) -> bool {
        let little_known = proven.max(self.before).scale(RAMP_FACTOR) <= first;
        let most_lost = self.lost as f64 > OUTAGE * self.packets as f64;
        let lasts = self.outage.map(|since| now.since(since));
        little_known && most_lost && lasts.is_none_or(|lasts| lasts < OUTAGE_LASTS)
    }

    /// Whether the last train has been heard of, and a queue that it met as well.
    fn is_judged(&self, sample: &Sample) -> bool {
        match self.train {
            Train::None => false,
            Train::Leaves(_) => false,
            Train::Flies(pn) => sample.end_pn > pn && !(1..HEAVY).contains(&self.heavy),
        }
    }

    /// Sends a train off if there is no queue and the last one was heard of, or has brought enough
    /// already.
    fn go_on(&mut self, now: Time, sample: &Sample, proven: Rate, given: &Conditions) {
        match self.train {
            Train::Leaves(until) if now < until => {}
            Train::Leaves(_) => self.train = Train::Flies(given.next_pn),
            Train::Flies(pn) if sample.end_pn <= pn && proven < self.before.scale(GROWS) => {}
            Train::None | Train::Flies(_) if self.heavy == 0 => {
                if matches!(self.train, Train::Flies(_)) && !self.met {
                    self.outage = None;
                }
                let long = (given.interval + TRAIN_MORE).min(TRAIN_MOST);
                self.train = Train::Leaves(now + long);
                (self.before, self.met, self.queued) = (proven, false, false);
                (self.packets, self.lost) = (0, 0);
            }
            Train::None | Train::Flies(_) => {}
        }
    }
}
