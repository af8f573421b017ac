//! One object whose sinks give its blocks on to each other, at the end that sends it.
//!
//! It brings three things together: which sinks there are, with the tickets by which each may read
//! from the others; what each block is, which is known once it has been read; and which sink is
//! given what, which the board decides. A sink that does not relay gets everything from here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::LimitedBy;
use gtp_store::{BlockRow, BlockSource, Framed, Manifest, RangeSet, SourceError, TRAILER, Value};

use crate::client::order::number;
use crate::client::weigh::wire_bytes;
use crate::client::{Endpoint, Url};
use crate::identity::Fingerprint;
use crate::messages::{
    BlockRanges, Message, RELAY_BLOCKS_MAX, ROOTS_PER_PAGE, RelayGive, RelayHave, RelayId,
    RelayJoin, RelayPeer, RelayValues, Relays, Roots,
};
use crate::relaying::Board;
use crate::ticket::{Allowed, Purpose, TICKET_SECONDS_MOST, Ticket};

/// Time after which a sink gets new tickets: half of what one lasts.
const RENEWAL: Span = Span::from_secs(TICKET_SECONDS_MOST / 2);

/// One object, for all its sinks.
#[derive(Debug)]
pub struct Relay {
    id: RelayId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seats: Vec<Seat>,
    /// Once the first sink's listing is known.
    object: Option<Object>,
    /// IP bytes that were sent to each sink.
    sent: Vec<u64>,
    /// Sinks whose transfers are not over.
    running: usize,
}

/// What is known of a sink.
#[derive(Clone, Debug, Default)]
struct Seat {
    at: Option<(Url, Fingerprint)>,
    /// What it says that it can receive and send, if it relays.
    relays: Option<Relays>,
    /// How often it has come. Others are told of it anew each time.
    times: u32,
    is_here: bool,
}

#[derive(Debug)]
struct Object {
    /// How many blocks it has.
    blocks: u64,
    /// The sizes and times of its files, hashed: sinks may know the files by different names.
    shape: blake3::Hash,
    content: u64,
    board: Board,
    values: Vec<Option<Value>>,
    /// Blocks whose values are known, in the order in which they were read.
    known: Vec<u64>,
}

/// How relaying went.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayReport {
    /// IP bytes that left the source, for all sinks together, what was sent again included.
    pub sent_wire_bytes: u64,
    /// IP bytes that carry the object once, in packets of the ordinary length.
    pub object_wire_bytes: u64,
    /// For each sink, in the order of the addresses, whether it relayed.
    pub relaying: Vec<bool>,
    /// The least time in which all could have everything, by what the hosts say that they can send
    /// and receive; `None` if they say nothing that limits it.
    pub best: Option<Span>,
}

impl Relay {
    /// For so many sinks.
    pub(super) fn new(places: usize) -> Arc<Relay> {
        let seats = vec![Seat::default(); places];
        let state = State { seats, object: None, sent: vec![0; places], running: places };
        Arc::new(Relay { id: number(), state: Mutex::new(state) })
    }

    /// IP bytes that were sent to a sink.
    pub(super) fn note_sent(&self, place: usize, bytes: u64) {
        if let Some(sent) = self.state().sent.get_mut(place) {
            *sent = bytes;
        }
    }

    /// The transfer to one of the sinks is over, well or not.
    pub(super) fn note_end(&self) {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
    }

    /// How it went, from a source that can send `out`. The least possible time is that of the sinks
    /// that are `done`.
    pub fn report(&self, out: Rate, done: &[bool]) -> RelayReport {
        let state = self.state();
        let content = state.object.as_ref().map_or(0, |object| object.content);
        let object_wire_bytes = wire_bytes(content);
        let relays: Vec<Option<Relays>> = state.seats.iter().map(|seat| seat.relays).collect();
        RelayReport {
            sent_wire_bytes: state.sent.iter().sum(),
            object_wire_bytes,
            relaying: relays.iter().map(Option::is_some).collect(),
            best: best_time(object_wire_bytes, out, &of_those(&relays, done)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_those(relays: &[Option<Relays>], done: &[bool]) -> Vec<Option<Relays>> {
    relays.iter().zip(done).filter(|(_, done)| **done).map(|(relays, _)| *relays).collect()
}

/// The least time in which sinks could have an object of so many bytes in packets, from a source
/// that can send `out`: each sink must receive all of it, the source must send all of it once and
/// once more to each sink that does not relay, and all together must send as much as all receive.
fn best_time(bytes: u64, out: Rate, sinks: &[Option<Relays>]) -> Option<Span> {
    let rate =
        |bps: Option<u64>| bps.filter(|&bps| bps > 0).map_or(f64::INFINITY, |bps| bps as f64);
    let source = if out.is_unlimited() { f64::INFINITY } else { out.as_f64() };
    let (bits, count) = (bytes as f64 * 8.0, sinks.len() as f64);
    let relaying = sinks.iter().flatten();
    let slowest = relaying.clone().map(|sink| rate(sink.in_bps)).fold(f64::INFINITY, f64::min);
    let others: f64 = relaying.clone().map(|sink| rate(sink.out_bps)).sum();
    let plain = sinks.iter().filter(|sink| sink.is_none()).count() as f64;
    let once = if relaying.count() > 0 { 1.0 } else { 0.0 };
    let bounds = [bits / slowest, bits * (plain + once) / source, bits * count / (source + others)];
    let best = bounds.into_iter().fold(0.0, f64::max);
    (best > 0.0).then(|| Span::from_secs_f64(best))
}

/// A sink that an attempt has reached and that relays. Dropped, the others do without it.
pub(super) struct Seated {
    relay: Arc<Relay>,
    endpoint: Arc<Endpoint>,
    place: usize,
    /// The sink's key.
    holder: Fingerprint,
    /// Of each other sink: how often it had come, and when this one was told of it last.
    told: Vec<Option<(u32, Time)>>,
    /// Of how many values this one was told.
    told_values: usize,
    /// Whether it takes part in the object of the others.
    is_joined: bool,
    /// Other sinks that it does not reach, of which the user knows.
    said: RangeSet,
    pace: Pace,
}

/// At which rate a sink gets content, from whomever.
#[derive(Debug, Default)]
struct Pace {
    /// How much there was when it was looked at last.
    last: Option<(Time, u64)>,
    rate: Rate,
}

/// The part of the newest look in a rate that is shown; there are ten a second.
const NEWEST: f64 = 0.1;

/// A sink that takes this part of what it says it can receive takes all it can: the rest is what
/// packets add to content, and time between two words.
const AS_GOOD_AS: f64 = 0.85;

impl Relay {
    /// A sink has been reached at this address, has proved this key, and relays.
    pub(super) fn seat(
        self: &Arc<Relay>,
        place: usize,
        endpoint: &Arc<Endpoint>,
        (url, key): (&Url, Fingerprint),
        relays: Relays,
    ) -> Seated {
        let mut state = self.state();
        let count = state.seats.len();
        if let Some(seat) = state.seats.get_mut(place) {
            seat.at = Some((url.clone(), key));
            seat.relays = Some(relays);
        }
        drop(state);
        Seated {
            relay: Arc::clone(self),
            endpoint: Arc::clone(endpoint),
            place,
            holder: key,
            told: vec![None; count],
            told_values: 0,
            is_joined: false,
            said: RangeSet::new(),
            pace: Pace::default(),
        }
    }
}

impl Seated {
    /// What is sent to the sink is this; returns what it is told before it hears so. Nothing if the
    /// object is another one than that of the other sinks, or too long: it is sent all then.
    pub fn join(&mut self, manifest: &Manifest) -> Option<Message> {
        let mut state = self.relay.state();
        let State { seats, object, .. } = &mut *state;
        let shape = shape(manifest);
        let blocks = BlockRow::of(manifest).len();
        if blocks > RELAY_BLOCKS_MAX || object.as_ref().is_some_and(|known| known.shape != shape) {
            seats[self.place].relays = None;
            return None;
        }
        object.get_or_insert_with(|| Object {
            shape,
            content: manifest.content_bytes(),
            board: Board::new(blocks, seats.len()),
            values: vec![None; blocks as usize],
            known: Vec::new(),
            blocks,
        });
        self.is_joined = true;
        let number = u32::try_from(self.place).ok()?;
        Some(Message::RelayJoin(RelayJoin { transfer: self.relay.id, number }))
    }

    /// The sink is ready: the others may read from it, and it may be given blocks.
    pub fn ready(&self, now: Time) {
        let mut state = self.relay.state();
        let State { seats, object, .. } = &mut *state;
        if let (Some(object), Some(seat)) = (object, seats.get_mut(self.place)) {
            object.board.join(now, self.place);
            (seat.times, seat.is_here) = (seat.times + 1, true);
        }
    }

    /// The source of the object, which learns what its blocks are as it is read.
    pub fn tap(&self, source: Box<dyn BlockSource>) -> Box<dyn BlockSource> {
        match self.is_joined {
            true => {
                let (blocks, relay) = (BlockRow::of(source.manifest()), Arc::clone(&self.relay));
                Box::new(Tapped { source, blocks, relay })
            }
            false => source,
        }
    }

    /// Whether nobody lacks anything any more, or what somebody lacks cannot be had.
    pub fn is_over(&self) -> bool {
        self.relay.state().running == 0
    }

    /// The sink says what it has, and from whom it reads. Returns whether it has got something.
    pub fn hear(&self, now: Time, have: &RelayHave) -> bool {
        let mut state = self.relay.state();
        let Some(object) = &mut state.object else { return false };
        let kept = have.kept.as_ref().map_or(&[][..], |kept| &kept.0);
        let reached = have.reached.unwrap_or(0);
        object.board.note_have(now, self.place, (&have.blocks.0, kept), reached)
    }

    /// Content bytes that the sink has, to the nearest block.
    pub fn there(&self) -> u64 {
        let state = self.relay.state();
        let Some(object) = &state.object else { return 0 };
        let count = object.board.count(self.place);
        // Files end in short blocks: the last word is the sink's own.
        let part = count as f64 / object.blocks.max(1) as f64;
        (object.content as f64 * part) as u64
    }

    /// At which rate the sink gets content now, and what limits that: the session from here says
    /// what it is `said` by, which is nothing about the other sinks.
    pub fn pace(&mut self, now: Time, said: LimitedBy) -> (Rate, LimitedBy) {
        let there = self.there();
        if let Some((at, before)) = self.pace.last
            && now.since(at) > Span::ZERO
        {
            let bits = there.saturating_sub(before) as f64 * 8.0;
            let newest = bits / now.since(at).as_secs_f64();
            let rate = self.pace.rate.as_f64() * (1.0 - NEWEST) + newest * NEWEST;
            self.pace.rate = Rate::from_f64(rate);
        }
        self.pace.last = Some((now, there));
        let in_bps = self.relay.state().seats[self.place].relays.and_then(|relays| relays.in_bps);
        let takes_all =
            in_bps.is_some_and(|most| self.pace.rate.as_f64() >= most as f64 * AS_GOOD_AS);
        let limited_by = match said {
            _ if takes_all => LimitedBy::Sink,
            // The session from here is idle.
            LimitedBy::Disk | LimitedBy::Demand => LimitedBy::Demand,
            LimitedBy::Source | LimitedBy::Sink | LimitedBy::Path | LimitedBy::Router => said,
        };
        (self.pace.rate, limited_by)
    }

    /// What the sink is to be told now, which takes from here at this rate.
    pub fn due(&mut self, now: Time, rate: Rate) -> Vec<Message> {
        if !self.is_joined {
            return Vec::new();
        }
        let relay = Arc::clone(&self.relay);
        let mut state = relay.state();
        let mut due = self.peers(now, &state.seats);
        let Some(object) = &mut state.object else { return due };
        let news: RangeSet = object.known[self.told_values..].iter().map(|&n| n..n + 1).collect();
        self.told_values = object.known.len();
        due.extend(values(&news, &object.values));
        let given = object.board.give(now, self.place, rate);
        let pages = BlockRanges::pages(given.iter()).into_iter();
        due.extend(pages.map(|blocks| Message::RelayGive(RelayGive { blocks })));
        due
    }

    /// What the user is to know of sinks that this one does not reach.
    pub fn remarks(&mut self, now: Time) -> Vec<String> {
        let state = self.relay.state();
        let Some(object) = &state.object else { return Vec::new() };
        let mut unreached = object.board.unreached(now, self.place);
        unreached.retain(|&other| self.said.insert_one(other as u64));
        let words = |other: usize| {
            let (url, _) = state.seats.get(other)?.at.as_ref()?;
            Some(format!("it does not reach {url}: what only that one has is sent from here"))
        };
        unreached.into_iter().filter_map(words).collect()
    }

    /// The other sinks, of which this one is to hear, or to get new tickets.
    fn peers(&mut self, now: Time, seats: &[Seat]) -> Vec<Message> {
        let mut due = Vec::new();
        for (other, seat) in seats.iter().enumerate().filter(|(_, seat)| seat.is_here) {
            let Some((url, key)) = seat.at.as_ref().filter(|_| other != self.place) else {
                continue;
            };
            let is_known =
                |&(times, at): &(u32, Time)| times == seat.times && now.since(at) < RENEWAL;
            if self.told[other].as_ref().is_some_and(is_known) {
                continue;
            }
            self.told[other] = Some((seat.times, now));
            let Ok(number) = u32::try_from(other) else { continue };
            let (host, ticket) = (url.host().to_string(), self.ticket(url, *key));
            due.push(Message::RelayPeer(RelayPeer { number, host, ticket }));
        }
        due
    }

    /// By this the sink may read blocks at another one, for some minutes.
    fn ticket(&self, url: &Url, server: Fingerprint) -> Vec<u8> {
        let (holder, path) = (self.holder, url.path().to_vec());
        let begins_s = gtp_sys::clock::unix_seconds();
        let ends_s = begins_s.saturating_add(TICKET_SECONDS_MOST);
        let allowed = Allowed { server, holder, path, begins_s, ends_s };
        Ticket::sign_for(Purpose::Relay, self.endpoint.identity(), &allowed, number())
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut state = self.relay.state();
        let State { seats, object, .. } = &mut *state;
        if let Some(seat) = seats.get_mut(self.place) {
            seat.is_here = false;
        }
        if let Some(object) = object {
            object.board.leave(self.endpoint.host().clock().now(), self.place);
        }
    }
}

/// What these blocks are, in messages.
fn values(which: &RangeSet, all: &[Option<Value>]) -> Vec<Message> {
    let mut messages = Vec::new();
    for range in which.iter() {
        let known = all.get(range.start as usize..range.end as usize).unwrap_or_default();
        let known: Vec<Value> = known.iter().flatten().copied().collect();
        let mut first = range.start;
        for page in known.chunks(ROOTS_PER_PAGE) {
            let values = Roots(page.to_vec());
            messages.push(Message::RelayValues(RelayValues { first, values }));
            first += page.len() as u64;
        }
    }
    messages
}

/// What an object consists of, without names. A file that changes has another time.
fn shape(manifest: &Manifest) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for entry in manifest.entries.iter().filter(|entry| entry.size > 0) {
        hasher.update(&entry.size.to_be_bytes());
        hasher.update(&entry.mtime.secs().to_be_bytes());
        hasher.update(&entry.mtime.nanos().to_be_bytes());
    }
    hasher.finalize()
}

/// A source of which the relay learns what its blocks are.
struct Tapped {
    source: Box<dyn BlockSource>,
    /// The numbers of its blocks: entries of this sink's listing may have other places than in
    /// another sink's, while the blocks are the same.
    blocks: BlockRow,
    relay: Arc<Relay>,
}

impl BlockSource for Tapped {
    fn manifest(&self) -> &Arc<Manifest> {
        self.source.manifest()
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.source.load_block(file, block, out)?;
        let value = out.last_chunk::<TRAILER>();
        let mut state = self.relay.state();
        if let (Some(value), Some(object)) = (value, &mut state.object)
            && let Some(number) = self.blocks.number(file, block)
            && let Some(slot) = object.values.get_mut(number as usize)
            && *value != gtp_store::LOST
            && slot.replace(*value).is_none()
        {
            object.known.push(number);
            object.board.note_known(number);
        }
        Ok(())
    }

    fn device(&self) -> Option<u64> {
        self.source.device()
    }

    fn take_remarks(&mut self) -> Vec<(u32, SourceError)> {
        self.source.take_remarks()
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        self.source.file_root_while(file, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_time_is_that_of_the_slowest_sink_the_source_or_all_together() {
        let sink = |mbps: u64| {
            let bps = Some(mbps * 1_000_000);
            Some(Relays { in_bps: bps, out_bps: bps })
        };
        let best = |bytes, out: u64, sinks: &[Option<Relays>]| {
            best_time(bytes, Rate::from_mbps(out), sinks).map(|span| span.as_millis())
        };
        let five = [sink(100), sink(200), sink(300), sink(300), sink(300)];
        assert_eq!(best(125_000_000, 600, &five), Some(10_000), "the slowest sink");
        assert_eq!(best(125_000_000, 50, &five), Some(20_000), "the source");
        let weak = Some(Relays { in_bps: None, out_bps: Some(1_000_000) });
        assert_eq!(best(125_000_000, 98, &[weak, weak]), Some(20_000), "all together");
        assert_eq!(best(125_000_000, 100, &[weak, None]), Some(20_000), "one that does not relay");
        let unknown = Some(Relays { in_bps: None, out_bps: None });
        assert_eq!(best_time(1, Rate::UNLIMITED, &[unknown]), None);
    }
}
