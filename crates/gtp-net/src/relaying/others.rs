//! What a sink of a relayed object decides about the other sinks.
//!
//! It reads from those that the client names, what they say they have as far as the client has said
//! what that is, and ends for good with one that sends what is wrong or comes again and again. The
//! caller connects, asks and hears; what it is to do comes out as deeds, what the client is to hear
//! as messages. Time is an argument, and this module must not know the engine, the disk or the
//! network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use gtp_alloc::{Span, Time};
use gtp_proto::FlowId;
use gtp_store::RangeSet;

use crate::messages::{BlockRanges, RelayHave};

/// Bad blocks after which another sink is not read from any more. One may be damage.
const BAD_MOST: u32 = 2;

/// Sessions with another sink after which it is not read from any more: each may waste seconds.
const SESSIONS_MOST: usize = 32;

/// The pause after a connection that could not be, and the longest, which it grows to twofold each
/// time: by then the client has named the other sink anew, with a new ticket.
const PAUSE_FIRST: Span = Span::from_secs(5);
const PAUSE_LONGEST: Span = Span::from_secs(160);

/// What the caller is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Make a line to this sink.
    Connect(u32),
    /// A session may be asked for these blocks.
    Offer(FlowId, Vec<Range<u64>>),
    /// A session is over.
    Remove(FlowId),
    /// The session of the line to this sink is lost: the line is to make another.
    Renew(u32),
    /// The line to this sink is to end, for this reason; there will be no other.
    PutOut(u32, &'static str),
}

/// Whether a line that ended is worth another try before the client names its sink anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// It may work later.
    ForNow,
    /// It cannot work as it was asked for.
    ForGood,
}

/// The other sinks of an object, and what was said of its blocks.
#[derive(Debug)]
pub(crate) struct Others {
    /// The number of this sink.
    own: u32,
    blocks: u64,
    peers: BTreeMap<u32, Peer>,
    /// Blocks of which the client has said what they are.
    valued: RangeSet,
    /// Blocks that the client may be asked for.
    given: RangeSet,
    /// Blocks that are here, of which the client has not heard.
    unsaid: RangeSet,
    /// Blocks that are neither wanted nor given on, of which it has not heard.
    unwanted: RangeSet,
    /// The sinks that are read from, as the client has heard last.
    reached_said: Option<u64>,
    deeds: VecDeque<Deed>,
}

/// Another sink.
#[derive(Debug, Default)]
struct Peer {
    /// Whether a line leads there.
    is_read: bool,
    /// Whether one is to lead there, once `not_before` has come.
    is_wanted: bool,
    not_before: Time,
    /// Lines that ended by themselves, one after the other.
    failures: u32,
    /// Whether it is not read from any more, for good.
    is_out: bool,
    /// Its session, if it has one now.
    flow: Option<FlowId>,
    /// All sessions that it has had: what they brought may turn out to be bad later.
    flows: BTreeSet<FlowId>,
    /// Whether datagrams get through.
    is_reached: bool,
    /// What it says it has.
    has: RangeSet,
    bad: u32,
}

impl Others {
    /// For the sink of this number and an object of so many blocks, of which these are here, and
    /// these are neither wanted nor given on.
    pub fn new(own: u32, blocks: u64, here: RangeSet, unwanted: RangeSet) -> Others {
        Others {
            own,
            blocks,
            peers: BTreeMap::new(),
            valued: RangeSet::new(),
            given: RangeSet::new(),
            unsaid: here,
            unwanted,
            reached_said: None,
            deeds: VecDeque::new(),
        }
    }

    /// Whether this sink is another one that has been named.
    pub fn knows(&self, number: u32) -> bool {
        number == self.own || self.peers.contains_key(&number)
    }

    /// Whether a line leads to this sink.
    pub fn is_read(&self, number: u32) -> bool {
        self.peers.get(&number).is_some_and(|peer| peer.is_read)
    }

    /// The client names another sink, or names it anew.
    pub fn handle_peer(&mut self, now: Time, number: u32) {
        if number == self.own {
            return;
        }
        let peer = self.peers.entry(number).or_default();
        peer.is_wanted = !peer.is_read && !peer.is_out;
        self.handle_time(now);
    }

    /// Time has come.
    pub fn handle_time(&mut self, now: Time) {
        for (&number, peer) in &mut self.peers {
            if peer.is_wanted && now >= peer.not_before {
                (peer.is_wanted, peer.is_read) = (false, true);
                self.deeds.push_back(Deed::Connect(number));
            }
        }
    }

    /// There is no place for a line now.
    pub fn handle_no_place(&mut self, now: Time, number: u32) {
        if let Some(peer) = self.peers.get_mut(&number) {
            (peer.is_wanted, peer.is_read) = (true, false);
            peer.not_before = now + PAUSE_FIRST;
        }
    }

    /// The client may be asked for these blocks, by this session.
    pub fn handle_give(&mut self, own: FlowId, ranges: Vec<Range<u64>>) {
        let news: Vec<_> = ranges
            .into_iter()
            .flat_map(|range| newly(&mut self.given, range, self.blocks))
            .collect();
        self.offer(own, news);
    }

    /// The client has said what these blocks are. Returns whether that is news.
    pub fn handle_values(&mut self, range: Range<u64>) -> bool {
        let news = newly(&mut self.valued, range, self.blocks);
        for peer in self.peers.values() {
            if let Some(flow) = peer.flow {
                let there = news.iter().flat_map(|range| peer.has.within(range.clone()));
                let offered: Vec<_> = there.collect();
                if !offered.is_empty() {
                    self.deeds.push_back(Deed::Offer(flow, offered));
                }
            }
        }
        !news.is_empty()
    }

    /// The line to another sink has opened a session. Returns whether it is taken; it is to be
    /// named by [`Others::handle_session`] then.
    pub fn handle_ready(&mut self, number: u32) -> bool {
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.is_read) else {
            return false;
        };
        peer.leave(&mut self.deeds);
        if peer.flows.len() < SESSIONS_MOST {
            return true;
        }
        self.put_out(number, "too many sessions with it have ended");
        false
    }

    /// The session of a line has this name.
    pub fn handle_session(&mut self, number: u32, flow: FlowId) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.flows.insert(flow);
            peer.flow = Some(flow);
        }
    }

    /// Another sink has these blocks, beside those that it has said before.
    pub fn handle_have(&mut self, number: u32, ranges: Vec<Range<u64>>) {
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.is_read) else { return };
        let Some(flow) = peer.flow else { return };
        peer.failures = 0;
        let mut offered = Vec::new();
        for range in ranges {
            let cut = range.start..range.end.min(self.blocks);
            // Said twice, or of no block: it would go on for ever.
            if peer.has.insert(cut.clone()) < range.end.saturating_sub(range.start) {
                return self
                    .put_out(number, "it announced a block twice, or one that does not exist");
            }
            offered.extend(self.valued.within(cut));
        }
        self.offer(flow, offered);
    }

    /// The session of a line is lost, and the line makes another.
    pub fn handle_gone(&mut self, number: u32) {
        if let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.is_read) {
            peer.leave(&mut self.deeds);
        }
    }

    /// A line has ended by itself. The next one is not made at once.
    pub fn handle_end(&mut self, now: Time, number: u32, failing: Failing) {
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.is_read) else { return };
        peer.leave(&mut self.deeds);
        peer.is_read = false;
        peer.is_wanted = failing == Failing::ForNow;
        let pause = PAUSE_FIRST * (1_u64 << peer.failures.min(8));
        peer.failures += 1;
        peer.not_before = now + pause.min(PAUSE_LONGEST);
    }

    /// A session's datagrams get through.
    pub fn handle_open(&mut self, flow: FlowId) {
        let of = self.peers.values_mut().find(|peer| peer.flow == Some(flow));
        of.into_iter().for_each(|peer| peer.is_reached = true);
    }

    /// A session of this name is lost.
    pub fn handle_lost(&mut self, flow: FlowId) {
        let of = self.peers.iter_mut().find(|(_, peer)| peer.flow == Some(flow));
        if let Some((&number, peer)) = of {
            peer.leave(&mut self.deeds);
            self.deeds.push_back(Deed::Renew(number));
        }
    }

    /// A block that a session of this name has brought is bad. It may have ended since.
    pub fn handle_bad(&mut self, flow: FlowId) {
        let of = self.peers.iter_mut().find(|(_, peer)| peer.flows.contains(&flow));
        let Some((&number, peer)) = of else { return };
        peer.bad += 1;
        if peer.bad >= BAD_MOST {
            self.put_out(number, "it sends blocks that are wrong");
        }
    }

    /// A block is here and good, and is given on.
    pub fn handle_here(&mut self, number: u64) {
        self.unsaid.insert_one(number);
    }

    /// Blocks are neither wanted nor given on any more.
    pub fn handle_unwanted(&mut self, range: Range<u64>) {
        self.unsaid.remove(range.clone());
        self.unwanted.insert(range);
    }

    /// The next thing to do.
    pub fn poll_deed(&mut self) -> Option<Deed> {
        self.deeds.pop_front()
    }

    /// What the client is to hear now.
    pub fn poll_news(&mut self) -> Vec<RelayHave> {
        let reached = self.peers.iter().filter(|(_, peer)| peer.is_reached);
        let reached = reached.fold(0, |bits, (number, _)| bits | 1_u64 << number);
        let (unsaid, unwanted) =
            (std::mem::take(&mut self.unsaid), std::mem::take(&mut self.unwanted));
        let mut news: Vec<RelayHave> = BlockRanges::pages(unwanted.iter())
            .into_iter()
            .map(|kept| {
                let blocks = BlockRanges::default();
                RelayHave { blocks, reached: Some(reached), kept: Some(kept) }
            })
            .collect();
        let have = |blocks| RelayHave { blocks, reached: Some(reached), kept: None };
        news.extend(BlockRanges::pages(unsaid.iter()).into_iter().map(have));
        if news.is_empty() && self.reached_said != Some(reached) {
            news.push(have(BlockRanges::default()));
        }
        self.reached_said = Some(reached);
        news
    }

    fn offer(&mut self, flow: FlowId, blocks: Vec<Range<u64>>) {
        if !blocks.is_empty() {
            self.deeds.push_back(Deed::Offer(flow, blocks));
        }
    }

    fn put_out(&mut self, number: u32, why: &'static str) {
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| !peer.is_out) else { return };
        peer.leave(&mut self.deeds);
        (peer.is_out, peer.is_read, peer.is_wanted) = (true, false, false);
        self.deeds.push_back(Deed::PutOut(number, why));
    }
}

impl Peer {
    /// Its session is over, or will be another one.
    fn leave(&mut self, deeds: &mut VecDeque<Deed>) {
        if let Some(flow) = self.flow.take() {
            deeds.push_back(Deed::Remove(flow));
        }
        self.is_reached = false;
        self.has = RangeSet::new();
    }
}

/// What of a range below `end` a set did not have; it has it then.
fn newly(set: &mut RangeSet, range: Range<u64>, end: u64) -> Vec<Range<u64>> {
    let range = range.start..range.end.min(end);
    let (mut news, mut at) = (Vec::new(), range.start);
    for known in set.within(range.clone()) {
        if at < known.start {
            news.push(at..known.start);
        }
        at = known.end;
    }
    if at < range.end {
        news.push(at..range.end);
    }
    set.insert(range);
    news
}

#[cfg(test)]
mod tests;
