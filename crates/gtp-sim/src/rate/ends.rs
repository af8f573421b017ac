//! The two ends of a session, as far as rates need them.
//!
//! Between two computations of its node an end changes only when a word arrives, so it is brought
//! up to date when somebody looks: it takes in what has arrived since and adds up what the session
//! carried. Thesis, eq. VI.2: a session sends the least of what its source allows, what its sink
//! allowed half a round trip ago, and its demand; its sink sees that half a round trip later. An
//! end knows no law and no other session. A large network is mostly ends, so they are small.

use super::mailbox::{EMPTY, GONE, Mail, Place};

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It has not joined yet.
    Future,
    /// It is there.
    Open,
    /// It has left.
    Gone,
}

/// How one node's load went while nobody looked.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadSteps {
    /// The load at the beginning, in bit/s; then no moment's load is larger.
    pub bound: u64,
    /// Changes: when, by how much.
    pub steps: Vec<(u64, i64)>,
}

impl LoadSteps {
    /// From `load` on.
    pub fn begin(&mut self, load: u64) {
        self.bound = load;
        self.steps.clear();
    }

    /// The load after all steps from `load`.
    pub fn end(&self, load: u64) -> u64 {
        self.steps.iter().fold(load, |load, step| load.wrapping_add_signed(step.1))
    }

    /// The largest load from `load` on, and when it was first reached; at `since` if at once.
    pub fn peak(&mut self, load: u64, since: u64) -> (u64, u64) {
        self.steps.sort_unstable_by_key(|step| step.0);
        let (mut load, mut peak) = (load, (load, since));
        for moment in self.steps.chunk_by(|a, b| a.0 == b.0) {
            load = moment.iter().fold(load, |load, step| load.wrapping_add_signed(step.1));
            if load > peak.0 {
                peak = (load, moment[0].0);
            }
        }
        peak
    }
}

/// A rate over time, and what it has carried since the last reading. Packed, or the wide number
/// would make an end of a sink three cache lines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(8))]
pub(super) struct Flow {
    /// In bit/s.
    pub rate: u64,
    /// In bits times nanoseconds per second.
    carried: u128,
}

impl Flow {
    /// A flow at `rate` that has carried `rate` for `before` nanoseconds already.
    pub fn steady(rate: u64, before: u64) -> Flow {
        Flow { rate, carried: u128::from(rate) * u128::from(before) }
    }

    /// Goes on at its rate for `nanos` nanoseconds.
    #[inline]
    fn carry(&mut self, nanos: u64) {
        self.carried += u128::from(self.rate) * u128::from(nanos);
    }

    /// The mean rate over the `interval` nanoseconds that end now, in whole bit/s.
    #[inline]
    pub fn read(&mut self, interval: u64) -> u64 {
        let carried = self.carried;
        self.carried = 0;
        match u64::try_from(carried) {
            Ok(carried) => carried / interval, // Much the faster division.
            Err(_) => u64::try_from(carried / u128::from(interval)).unwrap_or(u64::MAX),
        }
    }
}

/// A flow on its way through the time that is looked at.
struct Course<'a> {
    flow: &'a mut Flow,
    load: &'a mut LoadSteps,
    since: u64,
    first: u64,
    most: u64,
}

impl<'a> Course<'a> {
    #[inline]
    fn begin(flow: &'a mut Flow, load: &'a mut LoadSteps, since: u64) -> Course<'a> {
        let first = flow.rate;
        Course { flow, load, since, first, most: first }
    }

    #[inline]
    fn step(&mut self, at: u64, rate: u64) {
        let before = self.flow.rate;
        if rate != before {
            self.carry(at);
            self.load.steps.push((at, rate.wrapping_sub(before) as i64));
            self.flow.rate = rate;
            self.most = self.most.max(rate);
        }
    }

    #[inline]
    fn carry(&mut self, at: u64) {
        self.flow.carry(at - self.since);
        self.since = at;
    }

    #[inline]
    fn end(mut self, now: u64) {
        self.carry(now);
        self.load.bound += self.most - self.first;
    }
}

/// What both kinds of end have.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub flow: Flow,
    /// What the other end says the session could get there.
    pub peer_offer: u64,
    /// Nanoseconds that words and data travel.
    pub half_rtt: u32,
    /// Index of the other end among those of its kind.
    pub peer: u32,
    /// The other end's node.
    pub peer_node: u32,
    /// Where words arrive.
    pub inbox: Place,
    /// Where the next word is put: into the other end's inbox, or into this one's where words are
    /// posted.
    pub writer: Place,
    pub life: Life,
}

/// What an end needs less often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub weight: f64,
    /// Which of the world's end-node parameters are this session's here.
    pub params: u32,
}

/// A session at its source.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct SourceEnd {
    pub common: Common,
    pub demand: u64,
    /// What the source allows: expected rate or target.
    pub expected: u64,
    /// What the sink allows, as heard.
    pub granted: u64,
    /// What the session could get here, before demand.
    pub offer: u64,
}

impl SourceEnd {
    /// The most that it sends, the sink's word aside.
    #[inline]
    pub fn permitted(&self) -> u64 {
        match self.common.life {
            Life::Open => self.expected.min(self.demand),
            Life::Future | Life::Gone => 0,
        }
    }

    /// What it tells the sink: the most it sends, or that it has left, and its offer.
    #[inline]
    pub fn said(&self) -> (u64, u64) {
        match self.common.life {
            Life::Open => (self.expected.min(self.demand), self.offer.min(self.demand)),
            Life::Future => (0, 0),
            Life::Gone => (GONE, 0),
        }
    }

    /// Its permission has changed at the moment up to which it was advanced; returns the rate
    /// before and now.
    #[inline]
    pub fn obey(&mut self) -> (u64, u64) {
        let rate = self.permitted().min(self.granted);
        (std::mem::replace(&mut self.common.flow.rate, rate), rate)
    }
}

impl End for SourceEnd {
    #[inline]
    fn next(&self, mail: &Mail) -> u64 {
        mail.peek(&self.common.inbox)
    }

    #[inline]
    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    #[inline]
    fn advance(&mut self, since: u64, now: u64, mail: &mut Mail, load: &mut LoadSteps) {
        let permitted = self.permitted();
        let mut course = Course::begin(&mut self.common.flow, load, since);
        while let Some(word) = mail.take(&mut self.common.inbox, now) {
            self.granted = word.rate;
            self.common.peer_offer = word.offer;
            course.step(word.at, word.rate.min(permitted));
        }
        course.end(now);
    }
}

/// A session at its sink.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct SinkEnd {
    pub common: Common,
    /// What the source sends at most, as heard.
    pub permitted: u64,
    /// The newest grant that has gone to the source and come back as an echo.
    pub echoed: u64,
    /// The newest grant.
    pub newest: u64,
    /// The offer last told.
    pub told_offer: u64,
    /// Grants so far.
    pub issued: u32,
    /// Grants on their round trip: where echoes arrive.
    pub echoes: Place,
    /// The slot where the next grant starts.
    pub grants: u32,
}

impl SinkEnd {
    /// The largest grant from the one echoed to the newest.
    pub fn committed(&self, mail: &Mail) -> u64 {
        mail.waiting(&self.echoes).fold(self.echoed, u64::max)
    }

    /// The number of the grant last echoed; zero for none.
    pub fn echoed_number(&self, mail: &Mail) -> u32 {
        self.issued - mail.waiting(&self.echoes).count() as u32
    }

    /// Grants issued that count as outstanding, the one echoed included.
    pub fn outstanding(&self, mail: &Mail) -> usize {
        mail.waiting(&self.echoes).count() + usize::from(self.echoed_number(mail) > 0)
    }
}

impl End for SinkEnd {
    #[inline]
    fn next(&self, mail: &Mail) -> u64 {
        mail.peek(&self.common.inbox).min(mail.peek(&self.echoes))
    }

    #[inline]
    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    #[inline]
    fn advance(&mut self, since: u64, now: u64, mail: &mut Mail, load: &mut LoadSteps) {
        let (mut said, mut echo) = (mail.peek(&self.common.inbox), mail.peek(&self.echoes));
        let mut course = Course::begin(&mut self.common.flow, load, since);
        loop {
            let at = said.min(echo);
            if at > now {
                return course.end(now);
            }
            if said == at
                && let Some(word) = mail.take(&mut self.common.inbox, at)
            {
                self.common.peer_offer = word.offer;
                (self.permitted, self.common.life) = match word.rate {
                    GONE => (0, Life::Gone),
                    rate => (rate, Life::Open),
                };
                said = mail.peek(&self.common.inbox);
            }
            if echo == at
                && let Some(word) = mail.take(&mut self.echoes, at)
            {
                self.echoed = word.rate;
                echo = mail.peek(&self.echoes);
            }
            course.step(at, self.permitted.min(self.echoed));
        }
    }
}

/// An end of either kind, as its node sees it.
pub(super) trait End {
    /// When the next word arrives; [`EMPTY`] if none is on its way.
    fn next(&self, mail: &Mail) -> u64;
    /// What both kinds have.
    fn common(&self) -> &Common;
    /// The same.
    fn common_mut(&mut self) -> &mut Common;
    /// Takes in what has arrived since `since` until `now`.
    fn advance(&mut self, since: u64, now: u64, mail: &mut Mail, load: &mut LoadSteps);
}

/// Takes in what has arrived at one node's ends; returns when the next word comes, and how many
/// rings to the other ends are full.
pub(super) fn advance_all<E: End>(
    ends: &mut [E],
    since: u64,
    now: u64,
    mail: &mut Mail,
    load: &mut LoadSteps,
) -> (u64, u64) {
    // Words, and the slots of those to be told next, lie far apart. To look at all of them first
    // is to wait for memory once and not for each.
    let (mut soonest, mut full) = (EMPTY, 0);
    for end in ends.iter() {
        soonest = soonest.min(end.next(mail));
        full += u64::from(!mail.has_room(&end.common().writer));
    }
    if soonest > now {
        ends.iter_mut().for_each(|end| end.common_mut().flow.carry(now - since));
        return (soonest, full);
    }
    ends.iter_mut().for_each(|end| end.advance(since, now, mail, load));
    (ends.iter().map(|end| end.next(mail)).min().unwrap_or(EMPTY), full)
}

/// Takes in what has arrived at one node's ends, without a look ahead: where words are posted all
/// of them are near, and nearly every end has one.
pub(super) fn advance_each<E: End>(
    ends: &mut [E],
    since: u64,
    now: u64,
    mail: &mut Mail,
    load: &mut LoadSteps,
) {
    ends.iter_mut().for_each(|end| end.advance(since, now, mail, load));
}

#[cfg(test)]
impl SourceEnd {
    /// An end that nothing was said to.
    pub fn idle(inbox: Place) -> SourceEnd {
        let common = Common {
            flow: Flow::default(),
            peer_offer: 0,
            half_rtt: 0,
            peer: 0,
            peer_node: 0,
            inbox,
            writer: inbox,
            life: Life::Open,
        };
        SourceEnd { common, demand: 0, expected: 0, granted: 0, offer: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_two_cache_lines() {
        assert_eq!(size_of::<SourceEnd>(), 128);
        assert_eq!(size_of::<SinkEnd>(), 128);
    }

    #[test]
    fn a_peak_is_found_between_the_looks_and_not_within_one_moment() {
        let mut load = LoadSteps::default();
        load.begin(10);
        load.steps.extend([(5, 4), (3, -6), (5, -4), (4, 7), (6, -1)]);
        assert_eq!(load.end(10), 10);
        assert_eq!(load.peak(10, 1), (11, 4));
        load.begin(10);
        load.steps.extend([(5, 4), (5, -4)]);
        assert_eq!(load.peak(10, 1), (10, 1));
    }
}
