//! A session that receives: the core's sink, and how far it can be relied on.
//!
//! It asks and is brought; what it brings belongs to a transfer, which alone knows the other
//! sessions and the object.

use std::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::group::{Member, TAIL_PATIENCE};
use gtp_proto::limits::INTERVAL_MAX;
use gtp_proto::wire::{DATA_OVERHEAD, TAG_LEN};
use gtp_proto::{FlowId, LimitedBy, Link, RangeSet, SinkConfig, SinkSession};

use super::api::{FlowProgress, SessionOpen, Way};
use super::batch::{Batch, Joins};
use super::command::TransferId;
use super::envelope::Envelope;
use super::law::Law;
use super::source_side::loss_ratio;

/// One session that receives.
pub(super) struct SinkSide {
    pub core: SinkSession,
    pub flow: FlowId,
    pub transfer: TransferId,
    pub state: State,
    /// By which way its datagrams leave.
    pub way: Way,
    idle: Idle,
    /// When it was last asked to let go of its work.
    drop_asked: Time,
    /// When it was last given work after it had none.
    began: Time,
    pace: Pace,
    strikes: Strikes,
    law: Law,
    label: String,
    link: Link,
    head: Vec<u8>,
}

/// What a session that receives can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its path is not open yet.
    Opening,
    /// It brings what it is asked for.
    Live,
    /// It was asked to let go of its work, and is asked for nothing until it has.
    Dropping,
    /// It was silent or did not let go of its work, so others have taken the work over.
    Silent,
    /// It is ending: it wants nothing, but what was granted may still be under way.
    Parting,
}

/// Silent for this long while others are not: others get its work.
pub(super) const PATIENCE: Span = Span::from_secs(2);
/// Silent for this long: lost.
pub(super) const SILENCE_MOST: Span = Span::from_secs(10);

/// While others are idle, they take over the work of a session that is silent for this long and a
/// round trip. A source speaks once in each of its intervals, which is three times in this span.
const TAIL_SILENCE: Span = Span::from_millis(300);
/// The longest round trip that is waited for at the end of a transfer: that of a satellite.
const RTT_AWAITED: Span = Span::from_millis(700);
/// Talking, and bringing nothing that was asked for, for this long: lost, if others are better.
pub(super) const IDLE_MOST: Span = Span::from_secs(10);

/// Talking, and bringing nothing that was asked for, for this long beyond what its path explains:
/// its work is asked of others. A disk that wakes up or a host that swaps may take as long.
const STUCK: Span = Span::from_millis(500);

/// What a source must be allowed to send in that time before it is blamed.
const IDLE_LEAST: Bytes = Bytes(65_536);

/// What a session has brought in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Brought {
    packets: u64,
    /// Units that were wanted.
    useful: u64,
}

/// One packet in so many must be wanted, or a source does not bring what it is asked for. After a
/// drop some are not that were under way.
const WANTED_LEAST: u64 = 8;

impl Brought {
    /// Whether something that counts has come since.
    fn is_more_than(self, before: Brought) -> bool {
        let useful = self.useful - before.useful;
        useful > 0 && useful * WANTED_LEAST >= self.packets - before.packets
    }
}

/// How long a session has owed something and brought nothing that is wanted.
struct Idle {
    brought: Brought,
    /// When it was last looked at.
    looked: Time,
    /// Since it brought something.
    owed: Span,
    /// Since it brought something, or owed nothing.
    stuck: Span,
    /// It was stuck, what it owed was taken back, and it has brought nothing since.
    taken: bool,
}

impl Idle {
    fn new(now: Time) -> Idle {
        Idle {
            brought: Brought::default(),
            looked: now,
            owed: Span::ZERO,
            stuck: Span::ZERO,
            taken: false,
        }
    }

    /// How long it has owed without bringing, when it has `brought` so much in all. Times in
    /// which it owes nothing do not count, but for those after what it owed was taken back.
    fn look(&mut self, now: Time, brought: Brought, owes: bool) -> Span {
        let span = now.since(core::mem::replace(&mut self.looked, now));
        if brought.is_more_than(self.brought) {
            *self = Idle { brought, ..Idle::new(now) };
        } else if owes {
            (self.owed, self.stuck) = (self.owed + span, self.stuck + span);
        } else {
            self.owed += if self.taken { span } else { Span::ZERO };
            self.stuck = Span::ZERO;
        }
        self.owed
    }
}

/// The rate of wanted units, over the last quarter of a second or more.
struct Pace {
    since: Time,
    useful: u64,
    rate: Option<Rate>,
}

const PACE_SPAN: Span = Span::from_millis(250);

impl Pace {
    fn look(&mut self, now: Time, useful: u64, packet: Bytes) {
        let span = now.since(self.since);
        if span >= PACE_SPAN {
            let bits = (useful.saturating_sub(self.useful) * packet.0 * 8) as f64;
            let rate = Some(Rate::from_f64(bits / span.as_secs_f64()));
            *self = Pace { since: now, useful, rate };
        }
    }
}

/// How often in a row others took over a session's work. The session then pauses, twice as long
/// each time, while there is a better one. Otherwise it could take the last units again and again.
#[derive(Debug, Default)]
struct Strikes {
    in_a_row: u32,
    until: Time,
    /// It was asked for something since.
    works: bool,
}

/// The first pause; doubled eight times at most, to a minute.
const PAUSE_FIRST: Span = Span::from_millis(250);
const PAUSE_DOUBLINGS: u32 = 8;

impl Strikes {
    fn add(&mut self, now: Time) {
        self.until = now + PAUSE_FIRST * (1 << self.in_a_row.min(PAUSE_DOUBLINGS));
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.works = false;
    }
}

impl SinkSide {
    pub fn new(
        now: Time,
        transfer: TransferId,
        flow: FlowId,
        open: SessionOpen,
        envelope: &Envelope,
    ) -> SinkSide {
        let config = SinkConfig {
            max_rate: open.bound(),
            role: open.role,
            link: envelope.link(),
            law: open.law.core(),
            weights: open.weights,
        };
        SinkSide {
            core: SinkSession::new(now, config),
            flow,
            transfer,
            state: State::Opening,
            way: Way::Udp,
            idle: Idle::new(now),
            drop_asked: now,
            began: now,
            pace: Pace { since: now, useful: 0, rate: None },
            strikes: Strikes::default(),
            law: open.law,
            label: open.label,
            link: envelope.link(),
            head: Vec::new(),
        }
    }

    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, envelope: &mut Envelope, batch: &mut Batch) -> bool {
        while batch.has_room() {
            let Some(transmit) = self.core.poll_transmit(now, &mut self.head) else {
                return false;
            };
            let bytes = batch.begin();
            let start = bytes.len();
            bytes.extend_from_slice(&self.head);
            envelope.seal(transmit.pn, bytes, start);
            batch.end(start, Joins::Nobody);
        }
        true
    }

    /// How people name it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How the group sees it.
    pub fn member(&self, interval: Span) -> Member {
        Member {
            id: self.flow,
            outstanding: self.core.outstanding(),
            granted: self.core.granted(),
            received: self.core.received_rate(),
            rtt: self.core.rtt(),
            interval,
        }
    }

    /// The same for estimating when it will be done: unwanted units do not count.
    pub fn debtor(&self, interval: Span) -> Member {
        let member = self.member(interval);
        let rtt = member.rtt.min(RTT_AWAITED);
        Member { received: self.useful_rate(), rtt, ..member }
    }

    /// Whether the answer to a drop is worth waiting for.
    pub fn answers_soon(&self) -> bool {
        self.core.rtt() <= RTT_AWAITED
    }

    /// The same for who gives it work: a source that begins at a known rate is asked for as much,
    /// and one that is asked before a round trip is known, for what it may send in the first.
    pub fn worker(&self, interval: Span) -> Member {
        let member = self.member(interval);
        let first = match (self.law, member.rtt) {
            (Law::Grant | Law::EndNode { .. }, Span::ZERO) => member.granted,
            (law, _) => law.first_rate(member.granted),
        };
        Member { received: member.received.max(first), ..member }
    }

    /// Bytes on the wire of a packet with a unit of `payload` bytes.
    pub fn packet(&self, payload: u16) -> Bytes {
        let clear = DATA_OVERHEAD - TAG_LEN + usize::from(payload);
        self.link.wire_bytes(clear)
    }

    /// Ends it, and returns what it will not bring.
    pub fn part(&mut self, now: Time) -> RangeSet {
        let missing = self.core.abandon();
        self.core.close(now);
        self.state = State::Parting;
        missing
    }

    /// Whether its work was taken because it was stuck, and it has brought nothing since.
    pub fn is_given_up(&self) -> bool {
        self.idle.taken
    }

    /// It is stuck: others get its work.
    pub fn give_up(&mut self, now: Time) {
        self.idle.taken = true;
        self.ask_drop(now);
    }

    /// Asks it to let go of its work; it gets no more until it has.
    pub fn ask_drop(&mut self, now: Time) {
        self.core.ask_drop();
        self.state = State::Dropping;
        self.drop_asked = now;
        self.strikes.add(now);
    }

    /// Takes its work away, until it is heard and has let go of the work. Returns the units that it
    /// has not brought: others may be asked for them at once, and what it still sends is discarded.
    pub fn fall_silent(&mut self, now: Time) -> RangeSet {
        self.core.ask_drop();
        self.state = State::Silent;
        self.strikes.add(now);
        self.core.abandon()
    }

    /// Whether it keeps idle sessions waiting: it owes units, and is silent or does not let go of
    /// them.
    pub fn keeps_waiting(&self, now: Time) -> bool {
        let mute = self.core.silence(now) >= self.tail_silence();
        match self.state {
            State::Live => mute && self.core.outstanding() > 0,
            // A status answers at once.
            State::Dropping => {
                let patience = self.core.rtt().min(RTT_AWAITED) * 2 + INTERVAL_MAX * 2;
                mute || now.since(self.drop_asked) >= patience
            }
            State::Opening | State::Silent | State::Parting => false,
        }
    }

    /// Whether it was heard so lately that it can help others out.
    pub fn is_at_hand(&self, now: Time) -> bool {
        self.state == State::Live && self.core.silence(now) < self.tail_silence()
    }

    fn tail_silence(&self) -> Span {
        self.core.rtt().min(RTT_AWAITED) + TAIL_SILENCE
    }

    /// Wants these units from it.
    pub fn assign(&mut self, now: Time, range: Range<u64>) {
        if self.core.outstanding() == 0 {
            self.began = now;
            self.pace = Pace { since: now, useful: self.useful(), rate: None };
        }
        self.core.assign(range);
        self.strikes.works = true;
    }

    /// Whether it has had work for long enough for its rate to show.
    pub fn has_had_time(&self, now: Time) -> bool {
        now.since(self.began) >= self.patience()
    }

    /// How long it may take to do what it was asked to, beyond what its rate explains.
    pub fn patience(&self) -> Span {
        self.core.rtt().min(RTT_AWAITED) * 2 + INTERVAL_MAX * 2 + TAIL_PATIENCE
    }

    /// How often in a row others got its work before it was done.
    pub fn strikes(&self) -> u32 {
        self.strikes.in_a_row
    }

    /// Whether it is asked for nothing now because others got its work.
    pub fn pauses(&self, now: Time) -> bool {
        now < self.strikes.until
    }

    /// It is about to be asked for more.
    pub fn note_done(&mut self) {
        if self.strikes.works && self.core.outstanding() == 0 {
            self.strikes = Strikes::default();
        }
    }

    /// Once it has let go of its work: what will not come any more. It can be asked again then.
    pub fn poll_dropped(&mut self, now: Time) -> Option<RangeSet> {
        let back = match self.state {
            State::Dropping => self.core.poll_dropped(),
            State::Silent if self.core.silence(now) >= PATIENCE => None,
            State::Silent if self.core.is_dropping() => self.core.poll_dropped(),
            State::Silent => Some(RangeSet::new()),
            State::Opening | State::Live | State::Parting => None,
        }?;
        self.state = State::Live;
        Some(back)
    }

    /// How long it has owed something, and could have sent it, without bringing any of it.
    pub fn idle(&mut self, now: Time) -> Span {
        let owes = match self.state {
            State::Live => self.core.outstanding() > 0,
            State::Dropping => true,
            // It talks, and does not let go.
            State::Silent => self.core.silence(now) < PATIENCE,
            State::Opening | State::Parting => false,
        };
        // A few units must be possible at the rate that this host grants.
        let possible = self.core.granted().bytes_in(IDLE_MOST) >= IDLE_LEAST;
        let (packets, useful) = (self.core.counters().packets, self.useful());
        self.idle.look(now, Brought { packets, useful }, owes && possible)
    }

    /// Whether it talks, owes units, and has brought none of them for longer than its path and a
    /// busy host explain.
    pub fn is_stuck(&self, now: Time) -> bool {
        self.state == State::Live
            && self.has_had_time(now)
            && self.idle.stuck >= STUCK + self.patience()
    }

    /// The rate of what it brings that is wanted.
    pub fn useful_rate(&self) -> Rate {
        self.core.received_rate().min(self.pace.rate.unwrap_or(Rate::UNLIMITED))
    }

    /// How long it may take for so many units, asked for alone: twice what they take at its grant.
    pub fn grace(&self, units: u64, payload: u16) -> Span {
        let bytes = Bytes(self.packet(payload).0.saturating_mul(units));
        bytes / self.core.granted() * 2 + self.patience()
    }

    /// Units that were wanted and came.
    fn useful(&self) -> u64 {
        let counters = self.core.counters();
        counters.packets.saturating_sub(counters.duplicates)
    }

    /// Measures the rate of wanted units.
    pub fn look_at_pace(&mut self, now: Time, packet: Bytes) {
        self.pace.look(now, self.useful(), packet);
    }

    /// How it is doing: `bytes` of what it brought verified, and `limit` limits it, if that is
    /// not for the core to say.
    pub fn progress(&self, bytes: u64, limit: Option<LimitedBy>) -> FlowProgress {
        let counters = self.core.counters();
        FlowProgress {
            flow: self.flow,
            label: self.label.clone(),
            bytes,
            rate: self.core.measured_rate(),
            granted: self.core.granted(),
            limited_by: limit.unwrap_or_else(|| self.core.limited_by()),
            loss_ratio: loss_ratio(counters.lost, counters.packets),
            rtt: self.core.rtt(),
            wire_bytes: counters.bytes,
            duplicate_bytes: counters.duplicate_bytes,
            way: self.way,
            alive: self.state != State::Parting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_its_work_taken_again_and_again_pauses_longer_each_time_up_to_a_minute() {
        let mut strikes = Strikes::default();
        let mut pause = || {
            strikes.add(Time::ZERO);
            strikes.until.since(Time::ZERO).as_millis()
        };
        assert_eq!([pause(), pause(), pause()], [250, 500, 1_000]);
        assert_eq!((0..20).map(|_| pause()).last(), Some(64_000));
    }

    #[test]
    fn only_wanted_units_end_idleness_and_it_grows_while_units_are_owed_or_were_taken_back() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let units = |useful| Brought { packets: useful, useful };
        let mut idle = Idle::new(at(0));
        assert_eq!(idle.look(at(4), units(0), true), Span::from_secs(4));
        assert_eq!(idle.look(at(10), units(0), true), IDLE_MOST);
        assert_eq!(idle.look(at(11), units(1), true), Span::ZERO);
        assert_eq!(idle.look(at(15), units(1), true), Span::from_secs(4));
        assert_eq!(idle.look(at(16), units(1), false), Span::from_secs(4));
        assert_eq!(idle.stuck, Span::ZERO);
        assert_eq!(idle.look(at(18), units(1), true), Span::from_secs(6));
        assert_eq!(idle.stuck, Span::from_secs(2));
        idle.taken = true;
        assert_eq!(idle.look(at(20), units(1), false), Span::from_secs(8));
        assert_eq!(idle.look(at(21), units(2), false), Span::ZERO);
        assert_eq!(idle.look(at(30), units(2), false), Span::ZERO);
        // A few of many packets are no answer to what was asked.
        let few = Brought { packets: 102, useful: 4 };
        assert_eq!(idle.look(at(32), few, true), Span::from_secs(2));
        let more = Brought { packets: 110, useful: 16 };
        assert_eq!(idle.look(at(33), more, true), Span::ZERO);
    }
}
