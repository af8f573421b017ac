//! The two ends of a session, as far as rates need them.
//!
//! Between two computations of its node an end changes only when a word arrives, so it is brought
//! up to date when somebody looks: it takes in what has arrived since and adds up what the session
//! carried. Thesis, eq. VI.2: a session sends the least of what its source allows, what its sink
//! allowed half a round trip ago, and its demand; its sink sees that half a round trip later. An
//! end knows no law and no other session.

use super::mailbox::{EMPTY, Life, Mail, Place};

/// What one node's sessions carried since it was last looked at, as steps of its load.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadSteps {
    /// The sum of rates at the beginning, in bit/s.
    pub first: u128,
    /// No moment's sum is larger.
    pub bound: u128,
    /// Changes: when, by how much.
    pub steps: Vec<(u64, i128)>,
}

impl LoadSteps {
    pub fn clear(&mut self) {
        (self.first, self.bound) = (0, 0);
        self.steps.clear();
    }

    /// The largest load, and when it was first reached; `since` stands for the beginning.
    pub fn peak(&mut self, since: u64) -> (u128, u64) {
        self.steps.sort_unstable_by_key(|step| step.0);
        let (mut load, mut peak) = (self.first as i128, (self.first, since));
        for moment in self.steps.chunk_by(|a, b| a.0 == b.0) {
            load += moment.iter().map(|step| step.1).sum::<i128>();
            if load > peak.0 as i128 {
                peak = (load as u128, moment[0].0);
            }
        }
        peak
    }
}

/// A rate over time, and what it has carried since the last reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// In bit/s.
    pub rate: u64,
    /// In bits times nanoseconds per second.
    carried: u128,
    since: u64,
}

impl Flow {
    /// A flow at `rate` that has carried `rate` for `before` nanoseconds already.
    pub fn steady(rate: u64, before: u64) -> Flow {
        Flow { rate, carried: u128::from(rate) * u128::from(before), since: 0 }
    }

    #[inline]
    fn until(&mut self, now: u64) {
        self.carried += u128::from(self.rate) * u128::from(now - self.since);
        self.since = now;
    }

    /// The mean rate over the `interval` nanoseconds that end now, in whole bit/s.
    #[inline]
    pub fn read(&mut self, interval: u64) -> u64 {
        let carried = std::mem::take(&mut self.carried);
        match u64::try_from(carried) {
            Ok(carried) => carried / interval, // Much the faster division.
            Err(_) => u64::try_from(carried / u128::from(interval)).unwrap_or(u64::MAX),
        }
    }

    #[inline]
    fn step(&mut self, at: u64, rate: u64, most: &mut u64, load: &mut LoadSteps) {
        if rate != self.rate {
            self.until(at);
            load.steps.push((at, i128::from(rate) - i128::from(self.rate)));
            self.rate = rate;
            *most = (*most).max(rate);
        }
    }

    fn begin(&self, load: &mut LoadSteps) -> u64 {
        load.first += u128::from(self.rate);
        self.rate
    }

    fn end(&mut self, now: u64, most: u64, load: &mut LoadSteps) {
        self.until(now);
        load.bound += u128::from(most);
    }
}

/// What both kinds of end have.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub session: u32,
    /// Index of the other end among those of its kind.
    pub peer: u32,
    /// The other end's node.
    pub peer_node: u32,
    /// Nanoseconds that words and data travel.
    pub half_rtt: u64,
    pub weight: f64,
    /// Where words arrive.
    pub inbox: Place,
    /// Where words to the other end are put.
    pub outbox: Place,
    pub life: Life,
    pub flow: Flow,
    /// What the other end says the session could get there.
    pub peer_offer: u64,
    /// What this end last told the other.
    pub told: (u64, u64, Life),
    /// The claim, or measured rate, that this node last computed with.
    pub input: u64,
    /// Which of the world's parameters are this session's here.
    pub params: u32,
}

/// A session at its source.
#[derive(Clone, Debug)]
pub(super) struct SourceEnd {
    pub common: Common,
    pub demand: u64,
    /// What the source allows: expected rate or target.
    pub expected: u64,
    /// What the sink allows, as heard.
    pub granted: u64,
    /// What it tells the sink it could get here, before demand.
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

    /// Takes in what has arrived until `now`. Returns whether anything has.
    #[inline]
    pub fn advance(&mut self, now: u64, mail: &mut Mail, load: &mut LoadSteps) -> News {
        let permitted = self.permitted();
        let mut most = self.common.flow.begin(load);
        let mut news = News::None;
        while let Some(word) = mail.take(&mut self.common.inbox, now) {
            news = News::Some;
            self.granted = word.rate;
            self.common.peer_offer = word.offer;
            self.common.flow.step(word.at, word.rate.min(permitted), &mut most, load);
        }
        self.common.flow.end(now, most, load);
        news
    }

    /// Its permission has changed at `now`, up to which it was advanced.
    pub fn obey(&mut self) {
        self.common.flow.rate = self.permitted().min(self.granted);
    }
}

/// A session at its sink.
#[derive(Clone, Debug)]
pub(super) struct SinkEnd {
    pub common: Common,
    /// What the source sends at most, as heard.
    pub permitted: u64,
    /// The newest grant that has gone to the source and come back as an echo.
    pub echoed: u64,
    /// Its number; zero for none.
    pub echoed_number: u32,
    /// The newest grant.
    pub newest: u64,
    /// Its number.
    pub newest_number: u32,
    /// Grants on their round trip: where echoes arrive, and where grants start.
    pub echoes: Place,
    /// See `echoes`.
    pub grants: Place,
}

impl SinkEnd {
    /// Takes in what has arrived until `now`. Returns whether anything has.
    #[inline]
    pub fn advance(&mut self, now: u64, mail: &mut Mail, load: &mut LoadSteps) -> News {
        let mut most = self.common.flow.begin(load);
        let mut news = News::None;
        loop {
            let (said, echo) = (mail.peek(&self.common.inbox), mail.peek(&self.echoes));
            let at = said.min(echo);
            if at > now || at == EMPTY {
                break;
            }
            news = News::Some;
            if said == at
                && let Some(word) = mail.take(&mut self.common.inbox, at)
            {
                self.permitted = word.rate;
                self.common.peer_offer = word.offer;
                self.common.life = word.life;
            }
            if echo == at
                && let Some(word) = mail.take(&mut self.echoes, at)
            {
                (self.echoed, self.echoed_number) = (word.rate, word.number);
            }
            self.common.flow.step(at, self.permitted.min(self.echoed), &mut most, load);
        }
        self.common.flow.end(now, most, load);
        news
    }

    /// The largest grant from the one echoed to the newest.
    pub fn committed(&self, mail: &Mail) -> u64 {
        let waiting = mail.waiting(&self.echoes, &self.grants).map(|word| word.rate);
        waiting.fold(self.echoed.max(self.newest), u64::max)
    }

    /// Grants issued that count as outstanding, the one echoed included.
    pub fn outstanding(&self, mail: &Mail) -> usize {
        let echoed = usize::from(self.echoed_number > 0);
        echoed + mail.waiting(&self.echoes, &self.grants).count()
    }
}

/// Whether an end heard anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It did.
    Some,
    /// It did not.
    None,
}
