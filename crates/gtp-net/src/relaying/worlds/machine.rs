//! A world that runs: a source with its board, sinks with their decisions, and what is between.
//!
//! Messages take the time of their way. Blocks move as a fluid: in each step every session that is
//! asked for something gets its max-min share of what its ends can send and receive. This module
//! must not know what of a world's end is good.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

use std::collections::BTreeMap;
use std::ops::Range;

use gtp_alloc::maxmin::{Network, Session as Share, solve};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::FlowId;
use gtp_store::RangeSet;

use super::plan::{BLOCK_BITS, Nature, Plan};
use super::sink::{From, OWN, Sink};
use crate::messages::RelayHave;
use crate::relaying::{Board, Deed, Failing};

/// In one step capacities are shared once.
const STEP: Span = Span::from_millis(50);
/// The source looks, and a sink tells it what it has, this often. In each step a sink tells others.
const LOOK_STEPS: u64 = 2;
/// The least pause before a session is made anew.
const AGAIN: Span = Span::from_millis(250);
/// How long a connection to a host that does not answer is tried, and until a session with one that
/// has fallen silent is lost; and until the source gives up one that has.
const UNANSWERED: Span = Span::from_secs(10);
const SILENCE: Span = Span::from_secs(30);
/// Time for which the source's rate to a sink is averaged, in steps.
const AVERAGED: f64 = 4.0;

/// What is on its way.
enum Letter {
    /// To the source.
    Have(usize, RelayHave),
    Left(usize),
    /// From the source.
    Peer(usize, u32),
    Values(usize, Range<u64>),
    Give(usize, Vec<Range<u64>>),
    /// Between sinks, of which the first reads.
    Connected(usize, usize, u64),
    Unanswered(usize, usize, u64),
    Open(usize, FlowId),
    Offers(usize, usize, FlowId, Vec<Range<u64>>),
    Lost(usize, FlowId),
}

/// Whom a sink tells what it has.
struct Reader {
    giver: usize,
    reader: usize,
    told: usize,
    /// What a liar has said of it.
    said: u64,
}

pub struct World {
    pub plan: Plan,
    pub now: Time,
    board: Board,
    pub sinks: Vec<Sink>,
    is_dead: Vec<bool>,
    is_here: Vec<bool>,
    /// Which others each sink was told of, and of how many blocks' values.
    told: Vec<(Vec<bool>, usize)>,
    known: Vec<u64>,
    is_known: RangeSet,
    air: BTreeMap<(Time, u64), Letter>,
    letters: u64,
    names: FlowId,
    /// Lines from a sink to another, and which of them is the newest.
    lines: BTreeMap<(usize, usize), u64>,
    readers: BTreeMap<FlowId, Reader>,
    /// Bits that the source has sent to each sink, and at which rate now.
    pub sent: Vec<f64>,
    rates: Vec<f64>,
    steps: u64,
}

impl World {
    pub fn new(plan: Plan) -> World {
        let count = plan.sinks.len();
        let mut world = World {
            now: Time::ZERO,
            board: Board::new(plan.blocks, count),
            sinks: (0..count).map(|place| Sink::new(place, plan.blocks)).collect(),
            is_dead: vec![false; count],
            is_here: vec![false; count],
            told: vec![(vec![false; count], 0); count],
            known: Vec::new(),
            is_known: RangeSet::new(),
            air: BTreeMap::new(),
            letters: 0,
            names: OWN,
            lines: BTreeMap::new(),
            readers: BTreeMap::new(),
            sent: vec![0.0; count],
            rates: vec![0.0; count],
            steps: 0,
            plan,
        };
        for place in 0..count {
            world.board.join(world.now, place);
            world.is_here[place] = true;
        }
        world
    }

    /// Runs until all honest sinks have everything, or for so long. Says whether they have.
    pub fn run(&mut self, longest: Span) -> bool {
        while self.now < Time::ZERO + longest {
            self.deliver();
            self.die();
            self.speak();
            self.move_blocks();
            self.look();
            let left = |(place, sink): (usize, &Sink)| {
                self.plan.sinks[place].nature.is_honest() && sink.done_at.is_none()
            };
            if !self.sinks.iter().enumerate().any(left) {
                return true;
            }
            self.now += STEP;
            self.steps += 1;
        }
        false
    }

    fn post(&mut self, after: Span, letter: Letter) {
        self.letters += 1;
        self.air.insert((self.now + after, self.letters), letter);
    }

    fn source(&self) -> usize {
        self.sinks.len()
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.air.first_entry()
            && entry.key().0 <= self.now
        {
            let letter = entry.remove();
            self.read(letter);
        }
    }

    fn read(&mut self, letter: Letter) {
        let now = self.now;
        match letter {
            Letter::Have(place, have) if self.is_here[place] => {
                let kept = have.kept.as_ref().map_or(&[][..], |kept| &kept.0);
                let reached = have.reached.unwrap_or(0);
                self.board.note_have(now, place, (&have.blocks.0, kept), reached);
            }
            Letter::Left(place) => {
                self.is_here[place] = false;
                self.board.leave(now, place);
            }
            Letter::Peer(place, number) if self.reads(place) => {
                self.sinks[place].others.handle_peer(now, number);
                self.perform(place);
            }
            Letter::Values(place, range) if !self.is_dead[place] => {
                let sink = &mut self.sinks[place];
                let values = vec![[1; 32]; (range.end - range.start) as usize];
                if sink.others.handle_values(range.clone()) {
                    sink.stock.note_values(range.start, &values);
                }
                self.perform(place);
            }
            Letter::Give(place, ranges) if self.reads(place) => {
                self.sinks[place].others.handle_give(OWN, ranges);
                self.perform(place);
            }
            Letter::Connected(reader, giver, line) => self.connected(reader, giver, line),
            Letter::Unanswered(reader, giver, line) => {
                if self.lines.get(&(reader, giver)) == Some(&line) && self.reads(reader) {
                    self.lines.remove(&(reader, giver));
                    let number = giver as u32;
                    self.sinks[reader].others.handle_end(now, number, Failing::ForNow);
                    self.perform(reader);
                }
            }
            Letter::Open(reader, flow) => self.sinks[reader].others.handle_open(flow),
            Letter::Offers(reader, giver, flow, ranges) => {
                if self.readers.contains_key(&flow) && self.reads(reader) {
                    self.sinks[reader].others.handle_have(giver as u32, ranges);
                    self.perform(reader);
                }
            }
            Letter::Lost(reader, flow) if self.reads(reader) => {
                self.sinks[reader].others.handle_lost(flow);
                self.perform(reader);
            }
            Letter::Have(..)
            | Letter::Peer(..)
            | Letter::Values(..)
            | Letter::Give(..)
            | Letter::Lost(..) => {}
        }
    }

    /// Whether a sink lives and lacks something.
    fn reads(&self, place: usize) -> bool {
        !self.is_dead[place] && self.sinks[place].done_at.is_none()
    }

    /// A sink's line to another has got through, if that one is there.
    fn connected(&mut self, reader: usize, giver: usize, line: u64) {
        if self.lines.get(&(reader, giver)) != Some(&line) || !self.reads(reader) {
            return;
        }
        if self.is_dead[giver] {
            return self.post(UNANSWERED, Letter::Unanswered(reader, giver, line));
        }
        let is_taken = self.sinks[reader].others.handle_ready(giver as u32);
        self.perform(reader);
        if is_taken {
            self.names += 1;
            let flow = self.names;
            self.sinks[reader].open(self.now, flow, From::Sink(giver));
            self.sinks[reader].others.handle_session(giver as u32, flow);
            self.readers.insert(flow, Reader { giver, reader, told: 0, said: 0 });
            self.post(self.plan.delay(reader, giver) * 2, Letter::Open(reader, flow));
        }
    }

    /// Does what a sink has decided.
    fn perform(&mut self, place: usize) {
        for deed in self.sinks[place].deeds() {
            match deed {
                Deed::Connect(other) => {
                    self.letters += 1;
                    self.lines.insert((place, other as usize), self.letters);
                    self.reach(place, other as usize, Span::ZERO);
                }
                Deed::Renew(other) => self.reach(place, other as usize, AGAIN),
                Deed::Offer(flow, ranges) => self.sinks[place].offer(flow, ranges),
                Deed::Remove(flow) => self.part(place, flow),
                Deed::PutOut(other, _) => {
                    self.lines.remove(&(place, other as usize));
                    self.sinks[place].bad.entry(other as usize).or_default().1 = true;
                }
            }
        }
    }

    fn part(&mut self, place: usize, flow: FlowId) {
        self.sinks[place].remove(flow);
        self.readers.remove(&flow);
    }

    /// A line gets through after two round trips.
    fn reach(&mut self, reader: usize, giver: usize, pause: Span) {
        if let Some(&line) = self.lines.get(&(reader, giver)) {
            let after = pause + self.plan.delay(reader, giver) * 4;
            self.post(after, Letter::Connected(reader, giver, line));
        }
    }

    /// Sinks whose time has come end.
    fn die(&mut self) {
        for place in 0..self.sinks.len() {
            let Nature::Dies { at, silently } = self.plan.sinks[place].nature else { continue };
            if at > self.now || self.is_dead[place] {
                continue;
            }
            self.is_dead[place] = true;
            let hears = |delay| if silently { UNANSWERED } else { delay };
            let away = if silently { SILENCE } else { self.plan.delay(place, self.source()) };
            self.post(away, Letter::Left(place));
            let readers: Vec<_> = self
                .readers
                .iter()
                .filter(|(_, reader)| reader.giver == place)
                .map(|(&flow, reader)| (flow, reader.reader))
                .collect();
            for (flow, reader) in readers {
                let after = hears(self.plan.delay(place, reader));
                self.post(after, Letter::Lost(reader, flow));
            }
            self.sinks[place].sessions.clear();
            self.readers.retain(|_, reader| reader.reader != place);
        }
    }

    /// Everybody says what is due.
    fn speak(&mut self) {
        let flows: Vec<FlowId> = self.readers.keys().copied().collect();
        for flow in flows {
            self.offer(flow);
        }
        if self.steps.is_multiple_of(LOOK_STEPS) {
            for place in 0..self.sinks.len() {
                self.tell_source(place);
                self.tell_sink(place);
            }
        }
    }

    /// A sink tells one that reads from it what it has.
    fn offer(&mut self, flow: FlowId) {
        let Some(reader) = self.readers.get_mut(&flow) else { return };
        let giver = reader.giver;
        if self.is_dead[giver] {
            return;
        }
        let blocks = self.plan.blocks;
        let news: Vec<Range<u64>> = match self.plan.sinks[giver].nature {
            Nature::Honest | Nature::Slow | Nature::Dies { .. } | Nature::Withholds => {
                self.sinks[giver].stock.news(&mut reader.told).iter().collect()
            }
            Nature::Lies { twice } => {
                reader.said += 1;
                match reader.said {
                    1 => vec![0..blocks / 2],
                    2 => vec![blocks / 2..blocks],
                    3 if twice => vec![0..1],
                    _ => Vec::new(),
                }
            }
        };
        if !news.is_empty() {
            let to = reader.reader;
            let delay = self.plan.delay(giver, to);
            self.post(delay, Letter::Offers(to, giver, flow, news));
        }
    }

    fn tell_source(&mut self, place: usize) {
        if self.is_dead[place] {
            return;
        }
        self.sinks[place].others.handle_time(self.now);
        self.perform(place);
        let mut news = self.sinks[place].others.poll_news();
        if let Nature::Lies { .. } = self.plan.sinks[place].nature
            && let Some(first) = news.first_mut()
        {
            // All at once, and again.
            first.blocks.0 = vec![0..self.plan.blocks];
        }
        let delay = self.plan.delay(place, self.source());
        for have in news {
            self.post(delay, Letter::Have(place, have));
        }
    }

    /// The source tells a sink what it is to know, as its look does.
    fn tell_sink(&mut self, place: usize) {
        if !self.is_here[place] {
            return;
        }
        let delay = self.plan.delay(place, self.source());
        for other in 0..self.sinks.len() {
            let is_news = self.is_here[other] && !self.told[place].0[other] && other != place;
            if is_news {
                self.told[place].0[other] = true;
                self.post(delay, Letter::Peer(place, other as u32));
            }
        }
        let news = &self.known[self.told[place].1..];
        let news: RangeSet = news.iter().map(|&block| block..block + 1).collect();
        self.told[place].1 = self.known.len();
        for range in news.iter() {
            self.post(delay, Letter::Values(place, range));
        }
        let rate = Rate::from_f64(self.rates[place]);
        let given: Vec<_> = self.board.give(self.now, place, rate).iter().collect();
        if !given.is_empty() {
            self.post(delay, Letter::Give(place, given));
        }
    }

    /// Blocks move for one step.
    fn move_blocks(&mut self) {
        let mut active = Vec::new();
        for place in 0..self.sinks.len() {
            let flows: Vec<FlowId> = self.sinks[place].sessions.keys().copied().collect();
            for flow in flows {
                if self.ask(place, flow)
                    && let Some(sender) = self.sender(place, flow)
                {
                    active.push((place, flow, sender));
                }
            }
        }
        let shares = self.shares(&active);
        let mut came = vec![0.0; self.sinks.len()];
        for ((place, flow, sender), rate) in active.into_iter().zip(shares) {
            let bits = rate * STEP.as_secs_f64();
            let moved = self.bring(place, flow, bits);
            if sender == self.source() {
                self.sent[place] += moved;
                came[place] += moved;
            }
        }
        for (rate, bits) in self.rates.iter_mut().zip(came) {
            *rate += (bits / STEP.as_secs_f64() - *rate) / AVERAGED;
        }
        for place in 0..self.sinks.len() {
            if self.sinks[place].is_done() && self.sinks[place].done_at.is_none() {
                self.finish(place);
            }
        }
    }

    /// Asks a session for its next block. Says whether there is one.
    fn ask(&mut self, place: usize, flow: FlowId) -> bool {
        let Some(block) = self.sinks[place].ask(self.now, flow) else { return false };
        if flow == OWN && self.is_known.insert_one(block) {
            // It is read now.
            self.known.push(block);
            self.board.note_known(block);
        }
        true
    }

    /// Who sends in a session, if anybody does.
    fn sender(&self, place: usize, flow: FlowId) -> Option<usize> {
        match self.sinks[place].sessions.get(&flow)?.from {
            From::Source => Some(self.source()),
            From::Sink(other) => {
                let withholds = self.plan.sinks[other].nature == Nature::Withholds;
                (!self.is_dead[other] && !withholds).then_some(other)
            }
        }
    }

    fn shares(&self, active: &[(usize, FlowId, usize)]) -> Vec<f64> {
        let sinks = &self.plan.sinks;
        let mut capacities: Vec<f64> = sinks.iter().map(|sink| sink.capacity_out).collect();
        capacities.push(self.plan.source_out);
        capacities.extend(sinks.iter().map(|sink| sink.capacity_in));
        let first_in = self.source() + 1;
        let mut network = Network::new(capacities).expect("capacities");
        for &(place, _, sender) in active {
            let uses = [sender as u32, (first_in + place) as u32];
            let share = Share { uses: &uses, weight: 1.0, demand: f64::INFINITY };
            network.add(share).expect("a session");
        }
        solve(&network)
    }

    /// Brings bits of a session's blocks, the next block behind the last; returns how many moved.
    fn bring(&mut self, place: usize, flow: FlowId, mut bits: f64) -> f64 {
        let mut moved = 0.0;
        loop {
            let (whole, left) = self.sinks[place].bring(self.now, flow, bits);
            moved += bits - left;
            let Some(block) = whole else { return moved };
            let from = self.sinks[place].sessions.get(&flow).map(|session| session.from);
            let is_good = match from {
                Some(From::Sink(other)) => self.is_given(other, block),
                Some(From::Source) | None => true,
            };
            self.sinks[place].take(flow, block, is_good);
            self.perform(place);
            bits = left;
            if !self.ask(place, flow) {
                return moved;
            }
        }
    }

    /// Whether what a sink gives is what it should be. An honest one gives only what it has.
    fn is_given(&self, giver: usize, block: u64) -> bool {
        if let Nature::Lies { .. } = self.plan.sinks[giver].nature {
            return false;
        }
        assert!(self.sinks[giver].here.contains(block), "{giver} gives what it has not");
        true
    }

    /// A sink has everything: it reads no more, and goes on giving.
    fn finish(&mut self, place: usize) {
        self.sinks[place].done_at = Some(self.now);
        self.sinks[place].sessions.clear();
        self.readers.retain(|_, reader| reader.reader != place);
        self.lines.retain(|(reader, _), _| *reader != place);
    }

    /// Sinks take back what does not come.
    fn look(&mut self) {
        for place in (0..self.sinks.len()).filter(|&place| self.reads(place)).collect::<Vec<_>>() {
            for flow in self.sinks[place].look(self.now) {
                self.sinks[place].others.handle_lost(flow);
            }
            self.perform(place);
        }
    }

    /// Blocks that the source has sent to sinks of which this is so, as parts of the object.
    pub fn times_sent(&self, is_so: impl Fn(Nature) -> bool) -> f64 {
        let of = self.sent.iter().zip(&self.plan.sinks).filter(|(_, sink)| is_so(sink.nature));
        of.map(|(bits, _)| bits).sum::<f64>() / BLOCK_BITS / self.plan.blocks as f64
    }
}
