//! NETBLT: buffers moved in bursts at a negotiated rate, each acknowledged or mended as a whole.
//!
//! Source: Clark, Lambert and Zhang, RFC 998 (1987), as GTP 2004 (6) and the thesis name it. The
//! receiver permits buffers and asks for what they lack; the sender's rate has nothing to do with
//! what comes back. It knows nothing of windows or round trips but for its timers.
//!
//! Rules:
//! - N1 a transfer is cut into buffers of equal size, a buffer into packets; the last packet of a
//!   buffer, or of a list sent again, says so (LDATA).
//! - N2 the receiver permits a buffer by GO, which names the burst size and the burst interval for
//!   it; several buffers may be open. This is the flow control: no room, no GO.
//! - N3 the sender sends one burst of packets back to back each burst interval.
//! - N4 when the last packet of a buffer has come, or its time has passed, the receiver answers OK
//!   or RESEND with the packets that lack; these go first.
//! - N5 the receiver's messages are numbered and sent again each control timer until the sender has
//!   said, in its data or in a NULL-ACK, up to which number it has heard them.
//!
//! Departures:
//! - D1 RFC 998 leaves the choice of rates to experiments: burst size and interval stay as set.
//! - D2 The data timer: a buffer is mended also when a later one has begun (packets keep order on
//!   our paths), and when nothing came for two round trips, two burst intervals and the time of a
//!   buffer; before a round trip is known, 1 s.
//! - D3 Set-up, checksums, keep-alive and quitting are not simulated.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::message::{self, Data, FIELDS, Message, Stamp};
use super::pacer::{self, Pacer};
use super::transfer::{Arrivals, Pick, Transfer, Turn};
use crate::{Body, Endpoint, Packet, Progress};

/// N3: how a sender spaces its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Packets that leave back to back.
    pub size: u64,
    /// From one burst's beginning to the next one's.
    pub interval: Span,
}

impl Burst {
    /// Bursts of `size` packets that make up `rate`, counted in bytes on links.
    pub fn at(rate: Rate, size: u64, transfer: &Transfer) -> Burst {
        let size = size.max(1);
        let interval = Bytes(transfer.packet().0.saturating_mul(size)) / rate;
        Burst { size, interval }
    }
}

/// What both ends agree on at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// N1: packets in a buffer, at least one.
    pub buffer: u64,
    /// N2: buffers that may be open at a time, at least one.
    pub open: u64,
    /// N3.
    pub burst: Burst,
}

/// A message of the receiver.
#[derive(Clone, Debug, PartialEq)]
pub enum Say {
    /// N2: this buffer may be sent, like this.
    Go(u64, Burst),
    /// N4: this buffer is complete.
    Ok(u64),
    /// N4: these blocks of this buffer lack.
    Resend(u64, Vec<Range<u64>>),
}

/// N5: what NETBLT's control packets hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// The receiver's messages, numbered from `first` on.
    Says {
        /// Number of the first.
        first: u64,
        /// In order.
        says: Vec<Say>,
    },
    /// The sender has heard all messages below this number.
    NullAck(u64),
}

/// Blocks of a buffer.
fn blocks_of(buffer: u64, terms: &Terms, transfer: &Transfer) -> Range<u64> {
    let start = buffer.saturating_mul(terms.buffer);
    start..start.saturating_add(terms.buffer).min(transfer.blocks())
}

fn buffers(terms: &Terms, transfer: &Transfer) -> u64 {
    transfer.blocks().div_ceil(terms.buffer)
}

/// NETBLT's sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    transfer: Transfer,
    terms: Terms,
    burst: Burst,
    demand: Option<Rate>,
    pacer: Pacer,
    /// N3: packets left of the burst that has begun.
    left: u64,
    stamp: Stamp,
    /// What may be sent: lists of blocks, what was lost before what is new.
    jobs: VecDeque<Job>,
    /// N5: messages heard, and whether the receiver is to be told without data.
    heard: u64,
    owes: bool,
    complete: u64,
}

#[derive(Clone, Debug)]
struct Job {
    blocks: Range<u64>,
    turn: Turn,
    /// N1: whether the list ends here.
    last: bool,
}

impl Sender {
    /// A sender of `transfer`.
    pub fn new(transfer: Transfer, terms: Terms) -> Sender {
        let terms = Terms { buffer: terms.buffer.max(1), ..terms };
        Sender {
            transfer,
            terms,
            burst: terms.burst,
            demand: None,
            pacer: Pacer::new(),
            left: 0,
            stamp: Stamp::default(),
            jobs: VecDeque::new(),
            heard: 0,
            owes: false,
            complete: 0,
        }
    }

    fn hear(&mut self, say: &Say) {
        match say {
            Say::Go(buffer, burst) => {
                self.burst = Burst { size: burst.size.max(1), ..*burst };
                let blocks = blocks_of(*buffer, &self.terms, &self.transfer);
                self.jobs.push_back(Job { blocks, turn: Turn::First, last: true });
            }
            Say::Ok(_) => self.complete += 1,
            Say::Resend(buffer, lists) => {
                let whole = blocks_of(*buffer, &self.terms, &self.transfer);
                for (i, list) in lists.iter().enumerate().rev() {
                    let blocks = list.start.max(whole.start)..list.end.min(whole.end);
                    let last = i + 1 == lists.len();
                    self.jobs.push_front(Job { blocks, turn: Turn::Again, last });
                }
            }
        }
    }

    fn next_block(&mut self) -> Option<(Pick, u64)> {
        loop {
            let job = self.jobs.front_mut()?;
            let Some(block) = job.blocks.next() else {
                self.jobs.pop_front();
                continue;
            };
            let last = job.last && job.blocks.is_empty();
            return Some((Pick { block, turn: job.turn }, u64::from(last)));
        }
    }

    fn has_block(&self) -> bool {
        self.jobs.iter().any(|job| !job.blocks.is_empty())
    }

    fn interval(&self) -> f64 {
        let size = Bytes(self.transfer.packet().0 * self.burst.size);
        let limit = self.demand.map_or(0.0, |rate| pacer::gap(size, rate));
        self.burst.interval.as_secs_f64().max(limit)
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, _now: Time, packet: &Packet) {
        let Body::Rate(Message::Netblt(Control::Says { first, says })) = &packet.body else {
            return;
        };
        self.owes = true;
        for (number, say) in (*first..).zip(says) {
            if number == self.heard {
                self.heard += 1;
                self.hear(say);
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        let interval = self.interval();
        if self.has_block() && (self.left > 0 || self.pacer.is_ready(now, interval)) {
            if self.left == 0 {
                self.left = self.burst.size;
                self.pacer.note_sent(now, interval);
            }
            self.left -= 1;
            self.owes = false;
            let (pick, last) = self.next_block()?;
            let gap = interval / self.burst.size as f64;
            let header = self.stamp.next(now, pick, gap);
            let mark = self.heard << 1 | last;
            return Some(message::data(&self.transfer, Data { mark, ..header }));
        }
        if self.owes && !self.has_block() {
            self.owes = false;
            let ack = Message::Netblt(Control::NullAck(self.heard));
            return Some(message::control(&self.transfer, FIELDS.0, ack));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.has_block().then(|| self.pacer.due(self.interval()))
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        let packets = Bytes(self.transfer.packet().0 * self.burst.size);
        let blocks = self.complete.saturating_mul(self.terms.buffer);
        Progress {
            delivered: self.transfer.prefix(blocks.min(self.transfer.blocks())),
            sent: self.stamp.sent,
            repeated: self.stamp.repeated,
            rate: packets.per(self.burst.interval),
            done: self.complete >= buffers(&self.terms, &self.transfer),
            ..Progress::default()
        }
    }
}

/// NETBLT's receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    transfer: Transfer,
    terms: Terms,
    arrivals: Arrivals,
    /// N2: buffers that were permitted and are not complete, with the time of the last RESEND.
    open: BTreeMap<u64, Option<Time>>,
    next_buffer: u64,
    /// N2: when room for one more buffer comes, while the application reads no faster.
    room: VecDeque<Time>,
    demand: Option<Rate>,
    read: Time,
    /// N5: messages not yet heard, the number of the first, and when they were last sent.
    unheard: VecDeque<Say>,
    first: u64,
    fresh: u64,
    said: Option<Time>,
    /// N5: when a message was first sent, for the round trip.
    sample: Option<(u64, Time)>,
    rtt: Option<Span>,
    quiet_since: Time,
    started: bool,
}

impl Receiver {
    /// A receiver of `transfer`.
    pub fn new(transfer: Transfer, terms: Terms) -> Receiver {
        let (buffer, open) = (terms.buffer.max(1), terms.open.max(1));
        let terms = Terms { buffer, open, ..terms };
        Receiver {
            transfer,
            terms,
            arrivals: Arrivals::new(transfer),
            open: BTreeMap::new(),
            next_buffer: 0,
            room: VecDeque::new(),
            demand: None,
            read: Time::ZERO,
            unheard: VecDeque::new(),
            first: 0,
            fresh: 0,
            said: None,
            sample: None,
            rtt: None,
            quiet_since: Time::ZERO,
            started: false,
        }
    }

    /// D2: how long to wait for what was asked for.
    fn patience(&self) -> Span {
        let bursts = self.terms.buffer.div_ceil(self.terms.burst.size.max(1)) + 2;
        self.rtt.map_or(FIRST_PATIENCE, |rtt| rtt * 2 + self.terms.burst.interval * bursts)
    }

    fn permit(&mut self) {
        if self.next_buffer < buffers(&self.terms, &self.transfer) {
            self.open.insert(self.next_buffer, None);
            self.unheard.push_back(Say::Go(self.next_buffer, self.terms.burst));
            self.next_buffer += 1;
        }
    }

    /// N4: asks for what a buffer lacks, unless it was just asked for.
    fn mend(&mut self, now: Time, buffer: u64) {
        let patience = self.patience();
        let Some(asked) = self.open.get_mut(&buffer) else { return };
        if asked.is_some_and(|at| now < at + patience) {
            return;
        }
        *asked = Some(now);
        let lacks = self.arrivals.missing(blocks_of(buffer, &self.terms, &self.transfer));
        for page in message::pages(lacks) {
            self.unheard.push_back(Say::Resend(buffer, page));
        }
    }

    /// N4: what a packet of `buffer` tells.
    fn judge(&mut self, now: Time, buffer: u64, is_last: bool) {
        let whole = blocks_of(buffer, &self.terms, &self.transfer);
        if self.arrivals.missing(whole.clone()).is_empty() {
            if self.open.remove(&buffer).is_some() {
                self.unheard.push_back(Say::Ok(buffer));
                let bytes = self.transfer.prefix(whole.end) - self.transfer.prefix(whole.start);
                self.read = self.demand.map_or(now, |rate| self.read.max(now) + bytes / rate);
                self.room.push_back(self.read);
            }
        } else if is_last {
            // The list that was asked for has come to its end: what lacks still is lost again.
            if let Some(asked) = self.open.get_mut(&buffer) {
                *asked = None;
            }
            self.mend(now, buffer);
        }
        let earlier: Vec<u64> = self.open.range(..buffer).map(|(n, _)| *n).collect();
        for n in earlier {
            self.mend(now, n);
        }
    }

    fn note_heard(&mut self, now: Time, heard: u64) {
        if let Some((number, at)) = self.sample
            && heard > number
        {
            self.rtt = Some(now.since(at));
            self.sample = None;
        }
        while self.first < heard && self.unheard.pop_front().is_some() {
            self.first += 1;
            self.fresh = self.fresh.saturating_sub(1);
        }
    }

    fn resend_at(&self) -> Option<Time> {
        let said = self.said.filter(|_| !self.unheard.is_empty())?;
        Some(said + self.rtt.map_or(FIRST_PATIENCE, |rtt| rtt * 2 + self.terms.burst.interval * 2))
    }
}

impl Endpoint for Receiver {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Rate(message) = &packet.body else { return };
        if let Message::Data(Data { block, mark, .. }) = message {
            self.quiet_since = now;
            self.note_heard(now, mark >> 1);
            self.arrivals.insert(*block);
            self.judge(now, block / self.terms.buffer, mark & 1 == 1);
        }
        if let Message::Netblt(Control::NullAck(heard)) = message {
            self.note_heard(now, *heard);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.room.front().is_some_and(|at| *at <= now) {
            self.room.pop_front();
            self.permit();
        }
        // D2: nothing came.
        if !self.open.is_empty() && now >= self.quiet_since + self.patience() {
            self.quiet_since = now;
            let open: Vec<u64> = self.open.keys().copied().collect();
            for buffer in open {
                self.mend(now, buffer);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if !self.started {
            self.started = true;
            self.quiet_since = now;
            (0..self.terms.open).for_each(|_| self.permit());
        }
        self.handle_timeout(now);
        // N5: new messages at once, old ones when their time has come.
        let again = self.resend_at().is_some_and(|at| now >= at);
        let (skip, first) =
            if again { (0, self.first) } else { (self.fresh, self.first + self.fresh) };
        let says: Vec<Say> = self.unheard.iter().skip(skip as usize).take(SAYS).cloned().collect();
        if says.is_empty() {
            return None;
        }
        self.fresh = self.fresh.max(skip + says.len() as u64);
        self.said = Some(now);
        self.sample = if again { None } else { self.sample.or(Some((first, now))) };
        let bytes = says.iter().map(bytes_of).sum();
        Some(message::control(
            &self.transfer,
            bytes,
            Message::Netblt(Control::Says { first, says }),
        ))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let quiet = (!self.open.is_empty()).then(|| self.quiet_since + self.patience());
        let times = [quiet, self.room.front().copied(), self.resend_at()];
        times.into_iter().flatten().min()
    }

    fn set_demand(&mut self, _now: Time, rate: Option<Rate>) {
        self.demand = rate;
    }

    fn progress(&self) -> Progress {
        self.arrivals.progress()
    }
}

fn bytes_of(say: &Say) -> u64 {
    match say {
        Say::Go(..) | Say::Ok(_) => FIELDS.0,
        Say::Resend(_, lists) => FIELDS.0 + message::bytes_of(lists),
    }
}

/// D2.
const FIRST_PATIENCE: Span = Span::from_secs(1);
/// Messages in a control packet.
const SAYS: usize = 8;
