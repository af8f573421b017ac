//! The sending end of the one TCP engine.
//!
//! It opens the connection, sends while the window and the receiver allow, finds losses by
//! duplicates or blocks, repeats what is missing and keeps the timer. How large the window is, is
//! for its [`Law`] to say.
//!
//! | rule | source | where |
//! |---|---|---|
//! | opening costs a round trip | RFC 9293, 3.5 | [`Opening`] |
//! | after a repeated opening: one segment, no measurement | RFC 5681, 3.1; RFC 6298, 3 | `open` |
//! | what may be out | RFC 5681, 3.1; RFC 6675, SetPipe | `room`, `Board::pipe` |
//! | the third duplicate starts fast retransmit | RFC 5681, 3.2 | `recovery.rs` |
//! | recovery without blocks, partial acknowledgments | RFC 5681, RFC 6582 | `recovery.rs` |
//! | recovery with blocks | RFC 6675 | `recovery.rs`, `board.rs` |
//! | the timer | RFC 6298 | `timer.rs` |
//! | the window grows only while it is in use | RFC 5681, 4.1; RFC 7661 | `fullness` |
//! | a closed receiver window is probed | RFC 9293, 3.8.6.1 | `handle_timeout` |
//!
//! Departures: sequence numbers count whole segments; a probe carries no payload; rule 4 of
//! RFC 6675's NextSeg (the rescue of a lost tail) is left to the timer; segments carry no
//! timestamps, since the sender keeps its own.

mod recovery;

use alloc::boxed::Box;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::board::{Board, Repeats};
use super::flight::Flight;
use super::law::{Fullness, Law, Leaving, Phase, Window};
use super::segment::{HEADER, Place, Segment, Tcp};
use super::supply::Supply;
use super::timer::Timer;
use crate::{Body, Endpoint, Note, Packet, Progress};

/// How losses are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Recovery {
    /// The first new acknowledgment ends it (RFC 5681): one loss in a window.
    Reno,
    /// A partial acknowledgment shows the next loss (RFC 6582).
    NewReno,
    /// Blocks show all losses (RFC 6675).
    #[default]
    Sack,
}

/// What an acknowledgment counts for the window's growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Counting {
    /// One, whatever it acknowledges (RFC 5681's least).
    Acks,
    /// The segments that it acknowledges, at most two in slow start (RFC 3465).
    #[default]
    Segments,
}

/// Which round trips are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Timing {
    /// Those of segments that were sent once (Karn).
    #[default]
    Once,
    /// That of the first segment an acknowledgment covers, since it was last sent: what timestamps
    /// give where they do not answer an earlier sending (RFC 7323, 4.3). As in ns-2, that of a
    /// repeated segment does not end the timer's backing off.
    Stamps,
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Opening {
    /// By a segment each way, before any payload.
    #[default]
    Handshake,
    /// It is open from the start.
    Open,
}

/// The parameters of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderConfig {
    /// Payload of a full segment, at least one byte.
    pub mss: Bytes,
    /// Bytes of headers on each segment.
    pub header: Bytes,
    /// Bytes to send; `None` without end.
    pub length: Option<Bytes>,
    /// The window to begin with, in segments (RFC 6928: 10).
    pub initial_window: f64,
    /// The slow-start threshold to begin with, in segments.
    pub initial_threshold: f64,
    /// Slow start is limited above this window (RFC 3742); infinite if it is not.
    pub limited_above: f64,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// Whether the loss of a repeated segment is found before the timer rings.
    pub repeats: Repeats,
    /// What an acknowledgment counts.
    pub counting: Counting,
    /// The least timeout (RFC 6298: one second).
    pub least_timeout: Span,
    /// Which round trips are measured.
    pub timing: Timing,
    /// How it begins.
    pub opening: Opening,
}

impl Default for SenderConfig {
    fn default() -> SenderConfig {
        SenderConfig {
            mss: Bytes(1_460),
            header: HEADER,
            length: None,
            initial_window: 10.0,
            initial_threshold: f64::INFINITY,
            limited_above: f64::INFINITY,
            recovery: Recovery::Sack,
            repeats: Repeats::Unwatched,
            counting: Counting::Segments,
            least_timeout: Span::from_secs(1),
            timing: Timing::Once,
            opening: Opening::Handshake,
        }
    }
}

/// The sending end of a connection.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    connection: u16,
    law: Box<dyn Law>,
    window: Window,
    phase: Phase,
    /// Opening segments sent.
    openings: u64,
    board: Board,
    flight: Flight,
    supply: Supply,
    timer: Timer,
    /// First segment that the receiver has no room for.
    limit: u64,
    /// Duplicates counted as segments that have left the path (without blocks only).
    duplicates: u64,
    /// Losses below this belong to the reduction already made.
    recover: u64,
    /// All segments below this were sent while the window was full.
    full_below: u64,
    /// A round ends when this is acknowledged.
    round_end: u64,
    urgent: Urgent,
    /// Partial acknowledgments in this recovery (RFC 6582).
    partials: u64,
    /// The first outstanding segment at the last timeout.
    timed_out_at: Option<u64>,
    /// When sending may go on by itself.
    wake: Option<Time>,
    /// The earliest time for the next paced segment.
    paced_at: Time,
    last_sent: Time,
    sent: u64,
    repeated: u64,
    timeouts: u64,
    recoveries: u64,
}

/// What goes out before and beside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgent {
    Nothing,
    /// The first lost segment, at once (RFC 5681, 3.2, step 3; RFC 6675, 5, step 4.3).
    Repeat,
    /// A probe of a closed window.
    Probe,
}

impl Sender {
    /// A sender under this law, which starts at `now`.
    ///
    /// # Panics
    /// If the segment size is zero.
    pub fn new(now: Time, config: SenderConfig, law: Box<dyn Law>) -> Sender {
        assert!(config.mss > Bytes::ZERO, "a segment has payload");
        let phase = match config.opening {
            Opening::Handshake => Phase::Opening,
            Opening::Open => Phase::Open,
        };
        Sender {
            connection: 0,
            law,
            window: Window::new(
                config.initial_window.max(1.0),
                config.initial_threshold,
                config.limited_above,
            ),
            phase,
            openings: 0,
            board: Board::new(config.repeats),
            flight: Flight::new(now),
            supply: Supply::new(config.mss, config.length),
            timer: Timer::new(config.least_timeout),
            // Of an open connection the first acknowledgment tells it; until then the initial
            // window is all that goes out.
            limit: config.initial_window.max(1.0) as u64,
            duplicates: 0,
            recover: 0,
            full_below: 0,
            round_end: 0,
            urgent: Urgent::Nothing,
            partials: 0,
            timed_out_at: None,
            // The opening segment leaves at the first poll.
            wake: Some(now),
            paced_at: now,
            last_sent: now,
            sent: 0,
            repeated: 0,
            timeouts: 0,
            recoveries: 0,
            config,
        }
    }

    /// The same as one of several connections that share a transfer: its number, and no segment
    /// until it is allotted one.
    pub(crate) fn share(mut self, connection: u16) -> Sender {
        self.connection = connection;
        self.supply.ration();
        self
    }

    /// The congestion window and its threshold.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Where the connection stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The law.
    pub fn law(&self) -> &dyn Law {
        &*self.law
    }

    /// Segments thought to be on the path.
    pub fn pipe(&self) -> u64 {
        self.board.pipe().saturating_sub(self.duplicates)
    }

    /// Segments sent and not acknowledged in order.
    pub fn outstanding(&self) -> u64 {
        self.board.outstanding()
    }

    /// How often the timer has rung for lost segments.
    pub fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// How often fast recovery has begun.
    pub fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// Whether a new segment would go out, pacing aside, if one were allotted.
    pub(crate) fn wants_new(&mut self, now: Time) -> bool {
        self.phase != Phase::Opening
            && self.board.next() < self.limit
            && self.board.next() >= self.supply.limit(now)
            && self.choose(now).is_none()
            && self.room()
    }

    /// Allots one more segment of a shared transfer.
    pub(crate) fn allot(&mut self) {
        self.supply.allot();
    }

    /// Allots segments up to the first `n`.
    pub(crate) fn supply_to(&mut self, n: u64) {
        self.supply.allot_to(n);
    }

    /// Segments acknowledged in order.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.board.first()
    }

    fn room(&self) -> bool {
        (self.pipe() as f64) + 1.0 <= self.window.size
    }

    fn has_new(&self, now: Time) -> bool {
        self.board.next() < self.limit.min(self.supply.limit(now))
    }

    /// What goes out next, pacing aside.
    fn choose(&mut self, now: Time) -> Option<Choice> {
        match self.phase {
            Phase::Opening => return None,
            Phase::Open => {}
            Phase::Recovery | Phase::Timeout => {
                if (self.urgent == Urgent::Repeat || self.room())
                    && let Some(n) = self.board.next_lost()
                {
                    return Some(Choice::Again(n));
                }
            }
        }
        if !self.room() {
            return None;
        }
        if self.has_new(now) {
            return Some(Choice::New);
        }
        if self.phase == Phase::Recovery && self.config.recovery == Recovery::Sack {
            return self.board.next_doubtful().map(Choice::Again);
        }
        None
    }

    /// Nothing goes out now: notes why, and when that may change by itself.
    fn rest(&mut self, now: Time) {
        self.wake = None;
        if !self.room() {
            self.full_below = self.board.next();
        } else if self.board.next() >= self.supply.limit(now) {
            self.flight.slacken(self.pipe());
            // Never in the past: a rounding may make the segment due and not yet whole.
            let soon = now + Span::from_micros(1);
            self.wake = self.supply.due(self.board.next()).map(|due| due.max(soon));
        } else if self.board.outstanding() == 0 {
            // The receiver's window is closed: the timer will probe it.
            self.timer.start(now);
        }
    }

    fn poll_opening(&mut self, now: Time) -> Option<Packet> {
        if self.timer.deadline().is_some() {
            return None;
        }
        self.timer.start(now);
        self.last_sent = now;
        self.openings += 1;
        Some(self.packet(Segment::Open, Note::None))
    }

    /// The far end has answered and has room below `limit`.
    fn open(&mut self, now: Time, limit: u64) {
        self.phase = Phase::Open;
        self.limit = limit;
        self.paced_at = now;
        if self.openings > 1 {
            // Which of them was answered is not known, and one was lost or very late.
            self.window.size = self.window.size.min(1.0);
            self.timer.begin_late();
        } else {
            self.timer.measure(now.since(self.last_sent), 1);
            self.timer.relax();
        }
        self.timer.stop();
    }

    fn send(&mut self, now: Time, choice: Choice) -> Packet {
        if self.board.outstanding() == 0
            && self.sent > 0
            && now.since(self.last_sent) > self.timer.timeout()
        {
            self.law.handle_idle(now, &mut self.window);
        }
        let pipe = self.pipe();
        let number = match choice {
            Choice::New => self.board.send_new(),
            Choice::Again(n) => {
                self.board.send_again(n);
                self.repeated += 1;
                n
            }
        };
        self.flight.send(now, number, pipe);
        self.sent += 1;
        self.last_sent = now;
        self.urgent = Urgent::Nothing;
        // A repeated first segment has a whole timeout to arrive; the impatient variant of
        // RFC 6582, 4, grants that to the first one of a recovery only.
        if choice == Choice::Again(self.board.first()) && self.partials == 0 {
            self.timer.restart(now);
        }
        self.timer.start(now);
        let last = number + 1 >= self.supply.segments();
        let place = if last { Place::Last } else { Place::Inner };
        let payload = self.supply.payload(number).0 as u32;
        let segment = Segment::Data { number, payload, place };
        let size = segment.size(self.config.header);
        let note = self.law.stamp(&Leaving {
            now,
            window: self.window,
            smoothed_rtt: self.timer.smoothed(),
            size,
            fullness: self.fullness(),
            duplicates: if self.phase == Phase::Recovery { self.duplicates } else { 0 },
        });
        if let Some(rate) = self.law.pacing_rate() {
            self.paced_at = self.paced_at.max(now) + size / rate;
        }
        self.packet(segment, note)
    }

    /// Whether the window limited sending when the first outstanding segment was sent.
    fn fullness(&self) -> Fullness {
        if self.board.first() <= self.full_below { Fullness::Full } else { Fullness::Slack }
    }

    fn packet(&self, segment: Segment, note: Note) -> Packet {
        let size = segment.size(self.config.header);
        Packet { size, body: Body::Tcp(Tcp { connection: self.connection, segment }), note }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        let Body::Tcp(tcp) = &packet.body else { return };
        if tcp.connection != self.connection {
            return;
        }
        match &tcp.segment {
            Segment::Opened { limit } => {
                if self.phase == Phase::Opening {
                    self.open(now, *limit);
                }
            }
            Segment::Ack(ack) => self.take_ack(now, ack),
            Segment::Open | Segment::Data { .. } | Segment::Probe => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.timer.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        self.timer.back_off();
        if self.phase == Phase::Opening {
            return;
        }
        if self.board.outstanding() == 0 {
            self.urgent = Urgent::Probe;
            return;
        }
        self.time_out(now);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if self.phase == Phase::Opening {
            self.wake = None;
            return self.poll_opening(now);
        }
        if self.urgent == Urgent::Probe {
            self.urgent = Urgent::Nothing;
            self.timer.restart(now);
            return Some(self.packet(Segment::Probe, Note::None));
        }
        let Some(choice) = self.choose(now) else {
            self.rest(now);
            return None;
        };
        if now < self.paced_at {
            self.wake = Some(self.paced_at);
            return None;
        }
        Some(self.send(now, choice))
    }

    fn poll_timeout(&self) -> Option<Time> {
        match (self.wake, self.timer.deadline()) {
            (Some(wake), Some(deadline)) => Some(wake.min(deadline)),
            (wake, deadline) => wake.or(deadline),
        }
    }

    fn set_demand(&mut self, now: Time, rate: Option<Rate>) {
        self.supply.set_demand(now, rate, self.board.next());
    }

    fn progress(&self) -> Progress {
        let pace = self.law.pacing_rate().unwrap_or_else(|| {
            let bytes = self.window.size * (self.config.mss + self.config.header).0 as f64;
            Bytes(bytes as u64).per(self.timer.smoothed())
        });
        Progress {
            delivered: self.supply.bytes(self.board.first()),
            sent: self.sent,
            repeated: self.repeated,
            window: self.window.size,
            rate: pace,
            rtt: self.timer.smoothed(),
            done: self.is_done(),
        }
    }

    fn timeouts(&self) -> u64 {
        self.timeouts
    }

    fn is_done(&self) -> bool {
        self.board.first() >= self.supply.segments()
    }
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    New,
    Again(u64),
}
