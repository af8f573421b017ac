//! One object that several sources bring to one sink.
//!
//! Who is asked for which units is the core's [`Group`]: each session takes as much as its rate
//! will bring soon. Here is what a host does around it, by a real host's rules and times: work is
//! taken back from a source that is gone or silent, and at the end from one that would be busy for
//! long after the others. Blocks are not checked here, so nothing comes that is bad.

use std::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::group::{Member, TAIL_PATIENCE};
use gtp_proto::limits::INTERVAL_MAX;
use gtp_proto::wire::{DATA_OVERHEAD, TAG_LEN};
use gtp_proto::{Group, RangeSet};

use super::ends::{Moment, Phase, Row, SinkEnd, Standing, wire_size};
use super::spec::{BuildError, SessionId, Volume};
use super::world::{End, Role, World};

/// Sessions of one sink that bring one object together.
#[derive(Debug)]
pub(crate) struct Gathering {
    group: Group,
    row: Row,
    members: Vec<Gatherer>,
    /// Units that are at the sink.
    here: RangeSet,
}

/// One of them.
#[derive(Debug)]
struct Gatherer {
    /// The sink's end of the session.
    end: u32,
    state: State,
    /// When it was last asked to let go of its work.
    drop_asked: Time,
    /// How often in a row others got its work, and until when it is asked for nothing.
    strikes: u32,
    pauses_until: Time,
    /// It was asked for something since.
    works: bool,
    /// When it was last given work after it had none.
    began: Time,
}

/// What a session can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It brings what it is asked for.
    Live,
    /// It was asked to let go of its work.
    Dropping,
    /// It was silent, or did not let go of its work, and others have taken that over.
    Silent,
    /// It has ended.
    Gone,
}

/// Units of a block: what is asked of one source together.
const BLOCK: u64 = 188;
/// A session is given more work when it wants this part of what it has.
const REFILL: u64 = 4;
/// Silent for this long while others are not: others get its work.
const PATIENCE: Span = Span::from_secs(2);
/// The same for this long and a round trip, while others have nothing to do.
const TAIL_SILENCE: Span = Span::from_millis(300);
/// The longest round trip that is waited for at the end.
const RTT_AWAITED: Span = Span::from_millis(700);
/// The first pause of one whose work others got; doubled eight times at most.
const PAUSE_FIRST: Span = Span::from_millis(250);
const PAUSE_DOUBLINGS: u32 = 8;

impl World {
    /// Has these sessions bring one object together: each of its units comes from one of them, and
    /// all end when it is there. If one ends before that, the others bring what it did not.
    ///
    /// # Errors
    /// When a session is not there, has begun or is a rival's, or the sessions are not of one sink
    /// and of the same size and unit.
    pub fn add_group(&mut self, members: &[SessionId]) -> Result<(), BuildError> {
        let find = |id: &SessionId| {
            let session = self.sessions.get(id.0 as usize);
            session.ok_or(BuildError::NoSuchSession(*id))
        };
        let Some(first) = members.first() else {
            return Err(BuildError::OutOfRange("a group has one session at least"));
        };
        let first = find(first)?;
        let (row, mut ends) = (Row::new(&first.spec), Vec::new());
        for id in members {
            let session = find(id)?;
            let (spec, first) = (&session.spec, &first.spec);
            if spec.start < self.now {
                return Err(BuildError::Past(spec.start));
            }
            let alike =
                (spec.sink, spec.unit, spec.volume) == (first.sink, first.unit, first.volume);
            if !alike || spec.volume == Volume::Endless || session.peers.is_some() {
                return Err(BuildError::OutOfRange(
                    "the sessions of a group have one sink, one size and one unit",
                ));
            }
            if self.groups.iter().flat_map(|group| &group.members).any(|m| m.end == session.sink) {
                return Err(BuildError::OutOfRange("a session is of one group at most"));
            }
            ends.push(session.sink);
        }
        let host = self.ends[ends[0] as usize].host;
        self.hosts[host as usize].gathers.push(self.groups.len() as u32);
        self.groups.push(Gathering::new(row, ends));
        Ok(())
    }

    /// The group that this sink's end is of.
    pub(super) fn group_of(&self, end: u32) -> Option<u32> {
        let host = &self.hosts[self.ends[end as usize].host as usize];
        let is_of = |group: &&u32| {
            self.groups[**group as usize].members.iter().any(|member| member.end == end)
        };
        host.gathers.iter().find(is_of).copied()
    }

    /// Gives the sessions of a host's groups what they are to bring next.
    #[cold]
    pub(super) fn tend_groups(&mut self, now: Moment, host: u32) {
        let World { groups, hosts, ends, .. } = self;
        let host = &mut hosts[host as usize];
        let interval = host.in_.direction.agent.interval();
        for &group in &host.gathers {
            for end in groups[group as usize].tend(now, interval, ends) {
                ends[end as usize].touch(end, &mut host.touched);
            }
        }
    }

    /// A unit of a group has come to its sink, whose turn is next.
    pub(super) fn gather(&mut self, group: u32, unit: u64) {
        self.groups[group as usize].here.insert_one(unit);
    }
}

impl Gathering {
    fn new(row: Row, ends: Vec<u32>) -> Gathering {
        let members = ends.into_iter().map(|end| Gatherer {
            end,
            state: State::Live,
            drop_asked: Time::ZERO,
            strikes: 0,
            pauses_until: Time::ZERO,
            works: false,
            began: Time::ZERO,
        });
        let (group, members) = (Group::new(0..row.units()), members.collect());
        Gathering { group, row, members, here: RangeSet::new() }
    }

    /// Looks at all members. Returns the ends whose sessions have something to say.
    fn tend(&mut self, now: Moment, interval: Span, ends: &mut [End]) -> Vec<u32> {
        if self.here.len() == self.row.units() {
            return self.finish(now, ends);
        }
        let mut touched = Vec::new();
        let anyone = self.members.iter().any(|member| {
            sink_of(ends, member.end).is_some_and(|sink| {
                sink.standing == Standing::Live && sink.core.silence(now.local) < PATIENCE
            })
        });
        for at in 0..self.members.len() {
            if self.look_at(now, at, anyone, ends) {
                touched.push(self.members[at].end);
            }
        }
        let mut starved = false;
        // Who lost its work lately gets what the others leave.
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|&at| self.members[at].strikes > 0);
        for at in order {
            if now.local < self.members[at].pauses_until {
                continue;
            }
            match self.refill(now, at, interval, ends) {
                Got::Work => touched.push(self.members[at].end),
                Got::Nothing => starved = true,
                Got::Enough => {}
            }
        }
        touched.extend(self.wake_one(now, interval, ends));
        if starved && self.group.unassigned() == 0 {
            touched.extend(self.shorten_tail(now, interval, ends));
        }
        touched
    }

    /// All is there: whoever still brings something, or begins to, ends.
    fn finish(&self, now: Moment, ends: &mut [End]) -> Vec<u32> {
        let mut touched = Vec::new();
        for member in &self.members {
            if let Some(sink) = sink_of(ends, member.end)
                && sink.phase == Phase::Serving
            {
                sink.end(now, Standing::Done);
                touched.push(member.end);
            }
        }
        touched
    }

    /// Takes back what will not come of one member. Returns whether it has something to say.
    fn look_at(&mut self, now: Moment, at: usize, anyone: bool, ends: &mut [End]) -> bool {
        let member = &mut self.members[at];
        let Some(sink) = sink_of(ends, member.end) else { return false };
        let silence = sink.core.silence(now.local);
        if sink.phase != Phase::Serving {
            member.state = State::Gone;
            self.group.give_back(&sink.core.abandon());
            return false;
        }
        match member.state {
            State::Live if silence >= PATIENCE && anyone => {
                self.pass_on(now, at, ends);
                true
            }
            State::Dropping => {
                if let Some(back) = sink.core.poll_dropped() {
                    member.state = State::Live;
                    self.group.give_back(&back);
                }
                false
            }
            State::Silent if silence < PATIENCE => {
                let back = match sink.core.is_dropping() {
                    true => sink.core.poll_dropped(),
                    false => Some(RangeSet::new()),
                };
                if let Some(back) = back {
                    member.state = State::Live;
                    self.group.give_back(&back);
                }
                false
            }
            State::Live | State::Silent | State::Gone => false,
        }
    }

    /// Takes a member's work away, until it is heard and has let go of it.
    fn pass_on(&mut self, now: Moment, at: usize, ends: &mut [End]) {
        let member = &mut self.members[at];
        let Some(sink) = sink_of(ends, member.end) else { return };
        sink.core.ask_drop();
        member.strike(now, State::Silent);
        self.group.give_back(&sink.core.abandon());
    }

    /// Gives one member as much work as it wants, if that is enough to ask for.
    fn refill(&mut self, now: Moment, at: usize, interval: Span, ends: &mut [End]) -> Got {
        let member = &mut self.members[at];
        let Some(sink) = sink_of(ends, member.end) else { return Got::Enough };
        if sink.standing != Standing::Live || member.state != State::Live {
            return Got::Enough;
        }
        let owed = sink.core.outstanding();
        if member.works && owed == 0 {
            (member.strikes, member.works) = (0, false);
        }
        let mut wanted = Group::appetite(&as_member(member.end, sink, interval), self.row.packet());
        if wanted == 0 || wanted * REFILL < owed {
            return Got::Enough;
        }
        let mut got = if owed == 0 { Got::Nothing } else { Got::Enough };
        let (units, end) = (self.row.units(), member.end);
        let block = |unit: u64| (unit / BLOCK + 1) * BLOCK;
        while wanted > 0
            && let Some(range) = self.group.take(end, units, |unit| block(unit).min(units))
        {
            wanted = wanted.saturating_sub(range.end - range.start);
            member.assign(now, sink, range);
            got = Got::Work;
        }
        got
    }

    /// If no session works, one that pauses is better than none: the one with the fewest strikes.
    /// Returns its end.
    fn wake_one(&mut self, now: Moment, interval: Span, ends: &mut [End]) -> Option<u32> {
        let works = |member: &Gatherer, ends: &mut [End]| {
            let owes = |sink: &mut SinkEnd| sink.core.outstanding() > 0;
            member.state == State::Live && sink_of(ends, member.end).is_some_and(owes)
        };
        if self.members.iter().any(|member| works(member, ends)) {
            return None;
        }
        let pauses = |at: &usize| now.local < self.members[*at].pauses_until;
        let mut pausing: Vec<usize> = (0..self.members.len()).filter(pauses).collect();
        pausing.sort_by_key(|&at| (self.members[at].strikes, self.members[at].end));
        let woken =
            pausing.into_iter().find(|&at| self.refill(now, at, interval, ends) == Got::Work)?;
        Some(self.members[woken].end)
    }

    /// Somebody has nothing to do because others hold all missing units: takes work back from one
    /// that would be busy for long, and at once from one that keeps the others waiting.
    fn shorten_tail(&mut self, now: Moment, interval: Span, ends: &mut [End]) -> Vec<u32> {
        let mut touched = Vec::new();
        let mut members = Vec::new();
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let Some(sink) = sink_of(ends, member.end) else { continue };
            if member.keeps_waiting(now, sink) {
                self.pass_on(now, at, ends);
                touched.push(self.members[at].end);
            } else if member.state == State::Live
                && sink.standing == Standing::Live
                && (sink.core.outstanding() == 0 || member.has_had_time(now, sink))
            {
                members.push(as_member(member.end, sink, interval));
            }
        }
        let Some(late) = Group::overloaded(&members, self.row.packet()) else { return touched };
        let Some(at) = self.members.iter().position(|member| member.end == late) else {
            return touched;
        };
        let Some(sink) = sink_of(ends, late) else { return touched };
        if sink.core.rtt() <= RTT_AWAITED {
            sink.core.ask_drop();
            self.members[at].strike(now, State::Dropping);
        } else {
            self.pass_on(now, at, ends);
        }
        touched.push(late);
        touched
    }
}

/// What a session got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Work,
    /// Nothing, for it has enough, or may have nothing now.
    Enough,
    /// Nothing is left that nobody is asked for, and it has nothing to do.
    Nothing,
}

impl Gatherer {
    fn strike(&mut self, now: Moment, state: State) {
        self.state = state;
        self.drop_asked = now.local;
        self.pauses_until = now.local + PAUSE_FIRST * (1 << self.strikes.min(PAUSE_DOUBLINGS));
        self.strikes = self.strikes.saturating_add(1);
        self.works = false;
    }

    fn assign(&mut self, now: Moment, sink: &mut SinkEnd, range: Range<u64>) {
        if sink.core.outstanding() == 0 {
            self.began = now.local;
        }
        sink.core.assign(range);
        self.works = true;
    }

    /// Whether it keeps others waiting: it owes units, and is silent or does not let go of them.
    fn keeps_waiting(&self, now: Moment, sink: &SinkEnd) -> bool {
        let rtt = sink.core.rtt().min(RTT_AWAITED);
        let mute = sink.core.silence(now.local) >= rtt + TAIL_SILENCE;
        match self.state {
            State::Live => mute && sink.core.outstanding() > 0,
            State::Dropping => {
                mute || now.local.since(self.drop_asked) >= rtt * 2 + INTERVAL_MAX * 2
            }
            State::Silent | State::Gone => false,
        }
    }

    /// Whether it has had work for long enough for its rate to show.
    fn has_had_time(&self, now: Moment, sink: &SinkEnd) -> bool {
        let rtt = sink.core.rtt().min(RTT_AWAITED);
        let patience = rtt * 2 + INTERVAL_MAX * 2 + TAIL_PATIENCE;
        now.local.since(self.began) >= patience
    }
}

/// The sink's end of this number, if its session has begun.
fn sink_of(ends: &mut [End], end: u32) -> Option<&mut SinkEnd> {
    match &mut ends[end as usize].role {
        Role::Sink(sink) => Some(sink),
        Role::Source(_) | Role::Waiting | Role::Background(_) | Role::Peer(_) | Role::Talk => None,
    }
}

/// How the group sees a session. One that is asked before a round trip is known is asked for what
/// it may send in the first.
fn as_member(id: u32, sink: &SinkEnd, interval: Span) -> Member {
    let core = &sink.core;
    let (granted, rtt) = (core.granted(), core.rtt());
    let first = if rtt == Span::ZERO { granted } else { Rate::ZERO };
    let received = core.received_rate().max(first);
    Member { id, outstanding: core.outstanding(), granted, received, rtt, interval }
}

impl Row {
    /// Bytes on links of a packet with a whole unit.
    fn packet(&self) -> Bytes {
        wire_size(DATA_OVERHEAD - TAG_LEN, self.unit())
    }
}
