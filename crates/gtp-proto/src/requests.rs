//! Requests for units: what a sink asks, and what a source still has to answer.
//!
//! The source keeps no retransmission state. It answers numbered requests, repairs before work
//! and each class in order, so that the sink can tell a lost unit from one that is still to come:
//! whatever was asked before the point that the source has reached and is not here, is lost.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Span, Time};
use gtp_ranges::RangeSet;

use crate::limits::{LOSS_MAP_BYTES, QUEUED_PIECES, RANGES_PER_REQUEST, REQUEST_WINDOW};
use crate::wire::{Request, Wanted, loss_map_ranges};

/// The two classes of requests; a source serves all repairs before any work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Work,
    Repair,
}

/// How often a unit that was lost is asked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repairs {
    /// Until it is here.
    #[default]
    Always,
    /// Once: what is lost twice stays lost.
    Once,
    /// Never: what is lost stays lost.
    Never,
}

/// How far a source has come in one class: everything in requests below `number` is sent, and in
/// request `number` everything below `unit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Progress {
    pub number: u32,
    pub unit: u64,
}

/// One request that is not known to be sent in full.
#[derive(Debug)]
struct Asked {
    number: u32,
    class: Class,
    /// What of it is not known to be sent, in the order asked.
    left: VecDeque<Range<u64>>,
}

/// The sink's side.
#[derive(Debug)]
pub(crate) struct Asker {
    unit_payload: u16,
    /// The first request for units of this length.
    first_number: u32,
    next_number: u32,
    /// Assigned to this session and not here.
    missing: RangeSet,
    work: VecDeque<Range<u64>>,
    repair: RangeSet,
    repairs: Repairs,
    /// Lost, and not asked for again; nobody was told yet.
    given_up: RangeSet,
    drop: bool,
    /// The source must be told that units are of another length than they were.
    begin: bool,
    /// The request from which on nothing asked for earlier can still arrive as wanted.
    dropped_at: Option<u32>,
    /// Not yet accepted by the source, with the time of the last sending.
    unaccepted: VecDeque<(Request, Time)>,
    asked: VecDeque<Asked>,
    /// Where in it the last unit that came was asked for: the next one mostly was as well.
    recent: usize,
    reached: [Progress; 2],
    /// What had been reached one interval ago: old enough that reordering is over.
    settled: [Progress; 2],
    /// What losses have been looked for up to.
    searched: [Progress; 2],
}

impl Asker {
    pub fn new(unit_payload: u16) -> Asker {
        Asker {
            unit_payload,
            first_number: 1,
            next_number: 1,
            missing: RangeSet::new(),
            work: VecDeque::new(),
            repair: RangeSet::new(),
            repairs: Repairs::Always,
            given_up: RangeSet::new(),
            drop: false,
            begin: false,
            dropped_at: None,
            unaccepted: VecDeque::new(),
            asked: VecDeque::new(),
            recent: 0,
            reached: [Progress::default(); 2],
            settled: [Progress::default(); 2],
            searched: [Progress::default(); 2],
        }
    }

    /// One for units of this length, which wants nothing yet. If this one has asked, it says so
    /// first, and its requests are numbered on.
    pub fn begun_anew(&self, unit_payload: u16) -> Asker {
        let next = self.next_number;
        let begin = self.begin || next > 1;
        Asker {
            first_number: next,
            next_number: next,
            begin,
            repairs: self.repairs,
            ..Asker::new(unit_payload)
        }
    }

    /// Whether a request was for units of another length.
    pub fn is_past(&self, number: u32) -> bool {
        number < self.first_number
    }

    /// Lost units are asked for again so often.
    pub fn set_repairs(&mut self, repairs: Repairs) {
        self.repairs = repairs;
    }

    /// Units that were lost and will not come any more; each once, lowest first.
    pub fn poll_given_up(&mut self) -> Option<Range<u64>> {
        let first = self.given_up.iter().next()?;
        self.given_up.remove(first.clone());
        Some(first)
    }

    /// Bytes of a whole unit.
    pub fn unit_payload(&self) -> u16 {
        self.unit_payload
    }

    /// Wants the units of `range`.
    pub fn assign(&mut self, range: Range<u64>) {
        self.missing.insert(range.clone());
        match self.work.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(_) | None => self.work.push_back(range),
        }
    }

    /// Units assigned and not here.
    pub fn outstanding(&self) -> u64 {
        self.missing.len()
    }

    /// Whether `unit` was assigned and is not here.
    pub fn is_missing(&self, unit: u64) -> bool {
        self.missing.contains(unit)
    }

    /// Takes a unit in; false if it was not wanted.
    #[inline]
    pub fn received(&mut self, unit: u64) -> bool {
        let wanted = self.missing.remove_one(unit);
        if wanted && !self.repair.is_empty() {
            self.repair.remove_one(unit);
        }
        wanted
    }

    /// Stops wanting anything, at once; returns what was missing.
    pub fn abandon(&mut self) -> RangeSet {
        self.work.clear();
        self.repair = RangeSet::new();
        self.asked.clear();
        core::mem::take(&mut self.missing)
    }

    /// Asks the source to forget what it has not sent. [`Asker::poll_dropped`] tells when it has;
    /// until then nothing is asked, so that nothing comes that was given back.
    pub fn ask_drop(&mut self) {
        if self.dropped_at.is_none() && !self.missing.is_empty() {
            self.drop = true;
        }
    }

    /// Whether a drop was asked for and [`Asker::poll_dropped`] has not answered.
    pub fn is_dropping(&self) -> bool {
        self.drop || self.dropped_at.is_some()
    }

    /// After an accepted drop: what had not arrived by then.
    pub fn poll_dropped(&mut self) -> Option<RangeSet> {
        let at = self.dropped_at?;
        if self.unaccepted.iter().any(|(q, _)| q.number <= at) {
            return None;
        }
        self.dropped_at = None;
        Some(self.abandon())
    }

    /// The source is sending `unit` of request `number`.
    #[inline]
    pub fn handle_data(&mut self, number: u32, unit: u64) {
        let Some(class) = self.class_of(number) else { return };
        let reached = &mut self.reached[class as usize];
        *reached = (*reached).max(Progress { number, unit });
    }

    /// The class of a request that is not known to be sent in full.
    #[inline]
    fn class_of(&mut self, number: u32) -> Option<Class> {
        let recent = self.asked.get(self.recent);
        if let Some(asked) = recent.filter(|asked| asked.number == number) {
            return Some(asked.class);
        }
        // Numbers only rise, so they lie in order.
        self.recent = self.asked.binary_search_by_key(&number, |asked| asked.number).ok()?;
        Some(self.asked[self.recent].class)
    }

    /// The source's own word on what it has accepted and sent.
    pub fn handle_status(&mut self, requests_next: u32, work_front: u32, repair_front: u32) {
        while self.unaccepted.front().is_some_and(|(q, _)| q.number < requests_next) {
            self.unaccepted.pop_front();
        }
        for (class, front) in [(Class::Work, work_front), (Class::Repair, repair_front)] {
            let front = front.min(self.next_number);
            let reached = &mut self.reached[class as usize];
            *reached = (*reached).max(Progress { number: front, unit: 0 });
        }
    }

    /// The source's word on how far it is in the work request that it has not sent in full.
    pub fn handle_work_unit(&mut self, number: u32, unit: u64) {
        let reached = &mut self.reached[Class::Work as usize];
        *reached = (*reached).max(Progress { number: number.min(self.next_number), unit });
    }

    /// Ends an interval: what the source had passed an interval ago and is not here, is lost.
    pub fn settle(&mut self) {
        let settled = core::mem::replace(&mut self.settled, self.reached);
        self.searched = settled;
        self.find_lost(settled);
    }

    /// How far the source is known to be with work, and with nothing else: where losses show at
    /// once, what is sent for the first time is looked at alone.
    pub fn reached_in_work(&self) -> [Progress; 2] {
        [self.reached[Class::Work as usize], Progress::default()]
    }

    /// What the source had passed by then and is not here, is lost.
    pub fn find_lost(&mut self, passed_by_then: [Progress; 2]) {
        for asked in &mut self.asked {
            let passed = passed_by_then[asked.class as usize];
            if asked.number > passed.number {
                continue;
            }
            let whole = asked.number < passed.number;
            while let Some(front) = asked.left.front_mut() {
                let sent = if whole || front.end <= passed.unit {
                    asked.left.pop_front().unwrap_or(0..0)
                } else if front.start < passed.unit {
                    let sent = front.start..passed.unit;
                    front.start = passed.unit;
                    sent
                } else {
                    break;
                };
                let again = match (self.repairs, asked.class) {
                    (Repairs::Always, _) | (Repairs::Once, Class::Work) => &mut self.repair,
                    (Repairs::Once, Class::Repair) | (Repairs::Never, _) => &mut self.given_up,
                };
                for lost in self.missing.within(sent) {
                    again.insert(lost);
                }
            }
        }
        for lost in self.given_up.iter() {
            self.missing.remove(lost);
        }
        self.asked.retain(|a| !a.left.is_empty());
    }

    /// Whether the source has passed everything it was asked and something is still missing: the
    /// end of an object waits for that, so it should be looked at early.
    pub fn is_tail_open(&self) -> bool {
        !self.missing.is_empty() && self.reached != self.searched && self.work.is_empty()
    }

    /// The next request datagram due at `now`; unaccepted ones are repeated after `patience`.
    pub fn poll_request(&mut self, now: Time, patience: Span) -> Option<Request> {
        for (request, sent_at) in &mut self.unaccepted {
            if now.since(*sent_at) >= patience {
                *sent_at = now;
                return Some(request.clone());
            }
        }
        if self.unaccepted.len() >= REQUEST_WINDOW as usize || self.is_spent() {
            return None;
        }
        let (wanted, class) = self.next_wanted()?;
        let number = self.next_number;
        self.next_number += 1;
        match &wanted {
            Wanted::Work(ranges) | Wanted::Repair(ranges) => {
                self.remember(number, class, ranges.iter().cloned());
            }
            Wanted::LossMap { first, bits } => {
                let ranges: Vec<_> = loss_map_ranges(*first, bits).collect();
                self.remember(number, class, ranges.into_iter());
            }
            Wanted::Drop => self.dropped_at = Some(number),
            Wanted::Begin => {}
        }
        let request = Request { number, unit_payload: self.unit_payload, wanted };
        self.unaccepted.push_back((request.clone(), now));
        Some(request)
    }

    /// Whether all request numbers are used up, which takes days at 100 Gbit/s.
    pub fn is_spent(&self) -> bool {
        self.next_number == u32::MAX
    }

    /// When [`Asker::poll_request`] has something to send.
    pub fn next_due(&self, patience: Span) -> Option<Time> {
        let wanted = !self.repair.is_empty() || !self.work.is_empty();
        let fresh = self.drop || self.begin || wanted && self.dropped_at.is_none();
        if fresh && !self.is_spent() && self.unaccepted.len() < REQUEST_WINDOW as usize {
            return Some(Time::ZERO);
        }
        self.unaccepted.iter().map(|(_, sent)| *sent + patience).min()
    }

    fn remember(&mut self, number: u32, class: Class, ranges: impl Iterator<Item = Range<u64>>) {
        self.asked.push_back(Asked { number, class, left: ranges.collect() });
    }

    fn next_wanted(&mut self) -> Option<(Wanted, Class)> {
        if core::mem::take(&mut self.begin) {
            return Some((Wanted::Begin, Class::Work));
        }
        if core::mem::take(&mut self.drop) {
            return Some((Wanted::Drop, Class::Work));
        }
        if self.dropped_at.is_some() {
            return None;
        }
        if let Some(first) = self.repair.first() {
            return Some((self.next_repair(first), Class::Repair));
        }
        if self.work.is_empty() {
            return None;
        }
        let mut ranges = Vec::new();
        while ranges.len() < RANGES_PER_REQUEST
            && let Some(range) = self.work.front_mut()
        {
            // Within a request units ascend: that is what makes progress comparable.
            if ranges.last().is_some_and(|last: &Range<u64>| last.end > range.start) {
                break;
            }
            let end = range.end.min(range.start + u64::from(u32::MAX));
            ranges.push(range.start..end);
            range.start = end;
            if range.start == range.end {
                self.work.pop_front();
            }
        }
        Some((Wanted::Work(ranges), Class::Work))
    }

    /// Ranges where the losses are few or long, a map where they are many and short.
    fn next_repair(&mut self, first: u64) -> Wanted {
        let window = first..first + 8 * LOSS_MAP_BYTES as u64;
        let in_map = self.repair.within(window.clone()).count();
        let ranges: Vec<_> = self
            .repair
            .iter()
            .take(RANGES_PER_REQUEST)
            .map(|r| r.start..r.end.min(r.start + u64::from(u32::MAX)))
            .collect();
        if in_map <= ranges.len() {
            for range in &ranges {
                self.repair.remove(range.clone());
            }
            return Wanted::Repair(ranges);
        }
        let lost: Vec<_> = self.repair.within(window).collect();
        let last = lost.last().map_or(first, |r| r.end - 1);
        let mut bits = alloc::vec![0xff_u8; ((last - first) / 8 + 1) as usize];
        for range in lost {
            for unit in range.clone() {
                let i = unit - first;
                bits[(i / 8) as usize] &= !(0x80 >> (i % 8));
            }
            self.repair.remove(range);
        }
        Wanted::LossMap { first, bits }
    }
}

/// Whether a source has something left to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    More,
    Nothing,
}

/// A piece of a request, at the source.
#[derive(Debug)]
struct Piece {
    number: u32,
    units: Range<u64>,
}

/// The source's side.
#[derive(Debug, Default)]
pub(crate) struct Answerer {
    /// All requests numbered up to this are accepted.
    accepted: u32,
    early: BTreeMap<u32, Request>,
    queues: [VecDeque<Piece>; 2],
    /// End of the furthest work that was accepted.
    furthest: u64,
}

impl Answerer {
    /// Takes in a request; out-of-order ones wait, those beyond the window or beyond what can be
    /// queued are ignored and will be repeated. Says whether anything was accepted.
    pub fn handle_request(&mut self, request: Request) -> bool {
        let ahead = request.number.wrapping_sub(self.accepted);
        if request.number <= self.accepted || ahead > REQUEST_WINDOW {
            return false;
        }
        self.early.insert(request.number, request);
        let mut any = false;
        while let Some(request) = self.early.get(&(self.accepted + 1)) {
            let queued = self.queues[0].len() + self.queues[1].len();
            let room = QUEUED_PIECES.saturating_sub(queued);
            if room < RANGES_PER_REQUEST + 4 * LOSS_MAP_BYTES
                && !matches!(request.wanted, Wanted::Drop)
            {
                break;
            }
            if let Some(request) = self.early.remove(&(self.accepted + 1)) {
                self.accepted += 1;
                self.queue(request);
                any = true;
            }
        }
        any
    }

    /// Forgets all requests up to this one, which it has accepted.
    pub fn begin_anew(&mut self, number: u32) {
        *self = Answerer { accepted: number, ..Answerer::default() };
    }

    /// First request number not yet accepted.
    pub fn requests_next(&self) -> u32 {
        self.accepted + 1
    }

    /// All requests of `class` below this number are sent.
    pub fn front(&self, class: Class) -> u32 {
        self.queues[class as usize].front().map_or(self.accepted + 1, |p| p.number)
    }

    /// The next unit to send and the request it answers.
    #[inline]
    pub fn peek(&self) -> Option<(u32, u64)> {
        self.front_piece().map(|p| (p.number, p.units.start))
    }

    /// No unit from this one on has been asked for as work.
    pub fn furthest(&self) -> u64 {
        self.furthest
    }

    /// The first unit of `class` that is not sent, of those accepted.
    pub fn next_unit(&self, class: Class) -> Option<u64> {
        self.queues[class as usize].front().map(|p| p.units.start)
    }

    /// Units that will be sent next, in order, for reading ahead.
    pub fn upcoming(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let [work, repair] = &self.queues;
        repair.iter().chain(work).map(|p| p.units.clone())
    }

    /// The unit from [`Answerer::peek`] was sent. Says whether there is another.
    #[inline]
    pub fn advance(&mut self) -> Left {
        let [work, repair] = &mut self.queues;
        let queue = if repair.is_empty() { work } else { repair };
        if let Some(piece) = queue.front_mut() {
            piece.units.start += 1;
            if !piece.units.is_empty() {
                return Left::More;
            }
            queue.pop_front();
        }
        if self.front_piece().is_some() { Left::More } else { Left::Nothing }
    }

    fn front_piece(&self) -> Option<&Piece> {
        let [work, repair] = &self.queues;
        repair.front().or_else(|| work.front())
    }

    fn queue(&mut self, request: Request) {
        let number = request.number;
        let [work, repair] = &mut self.queues;
        let piece = |units| Piece { number, units };
        match request.wanted {
            Wanted::Work(ranges) => {
                let end = ranges.iter().map(|range| range.end).max().unwrap_or(0);
                self.furthest = self.furthest.max(end);
                work.extend(ranges.into_iter().map(piece));
            }
            Wanted::Repair(ranges) => repair.extend(ranges.into_iter().map(piece)),
            Wanted::LossMap { first, bits } => {
                repair.extend(loss_map_ranges(first, &bits).map(piece));
            }
            Wanted::Drop => {
                work.clear();
                repair.clear();
            }
            Wanted::Begin => {} // Nothing else than what it is, its session knows.
        }
    }
}

#[cfg(test)]
mod tests;
