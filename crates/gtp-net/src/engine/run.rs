//! The engine's thread: the one loop around sockets, core and workers.
//!
//! Take in what is there, do what is due, send all that may leave, wait. Everything that can
//! be decided is decided in [`Driver`]; here bytes only move.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::Arrival;
use gtp_sys::Clock;
use gtp_sys::udp::{Came, Header, ReceiveBatch, Sent, UdpSocket};
use gtp_sys::wake::Poller;

use super::api::{Drops, HostConfig, SocketId};
use super::batch::Batch;
use super::bits;
use super::calls::Counters;
use super::carrier::Outgoing;
use super::command::{CarrierNotice, Notice, Notices};
use super::driver::{Deciders, Driver};
use super::envelope::{Beside, Destination};
use super::host::connected;
use super::intake::Intake;
use super::mates::Place;
use super::naps::Naps;
use super::pending_questions::PendingQuestions;
use super::standing::Shown;
use super::timing::Timing;

struct Engine {
    clock: Clock,
    poller: Poller,
    inbox: Receiver<Notice>,
    driver: Driver,
    sockets: Vec<(SocketId, UdpSocket)>,
    carriers: HashMap<SocketId, Arc<Outgoing>>,
    /// One to each router that is asked.
    routers: Vec<std::net::UdpSocket>,
    ready: Vec<bool>,
    timings: Vec<Timing>,
    intake: Intake,
    received: ReceiveBatch,
    naps: Naps,
    outgoing: Batch,
    /// Room for one datagram to a router.
    asked: Vec<u8>,
    /// Questions whether datagrams of a session have come.
    questions: PendingQuestions,
    /// What of `outgoing` the kernel had no room for.
    stuck: Option<Left>,
    leave_by: Time,
    drops: Arc<Drops>,
    calls: Arc<Counters>,
    shown: Arc<Shown>,
}

/// When so much was received from a socket sending gets its turn: after two full reads of 380 KiB,
/// which take a millisecond, or more shorter ones. A source must hear all that came while it sent,
/// not a read of it: else what it is told waits for many turns.
const RECEIVED_MOST: usize = 384 << 10;
/// A read counts as so much at least: what is empty takes time, too.
const LEAST_COUNTED: usize = 16 << 10;
/// Sending ends after this, though more may be due: a source that cannot send as fast as it may
/// still hears what it is told.
const SENDING_MOST: Span = Span::from_millis(1);
/// A datagram that says nothing, and that every end drops.
const KNOCK: &[u8] = &[0];
/// Notices taken before the sockets get their turn.
const NOTICES: usize = 256;
/// Parcels of carriers among them: about as many bytes as one socket may bring in its turn.
const PARCELS: usize = 4;
/// Answers of a router that are taken in at once, and longer than any of them.
const ANSWERS: usize = 64;
const ANSWER_MOST: usize = 2_048;
/// A full socket is tried again after this: 64 KB at 5 Gbit/s.
const RETRY: Span = Span::from_micros(100);
/// A system that cannot even wait is not asked again at full speed.
const PAUSE: Duration = Duration::from_millis(10);
/// How long an ending host says farewell.
const FAREWELL: Span = Span::from_millis(1_500);

/// What an engine is given.
pub(super) struct Outfit {
    pub config: HostConfig,
    pub poller: Poller,
    pub inbox: Receiver<Notice>,
    pub notices: Notices,
    pub place: Place,
    pub deciders: Deciders,
    pub drops: Arc<Drops>,
    pub calls: Arc<Counters>,
    pub shown: Arc<Shown>,
}

/// Starts the thread.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(outfit: Outfit) -> io::Result<JoinHandle<()>> {
    let Outfit { config, poller, inbox, notices, place, deciders, drops, calls, shown } = outfit;
    let thread = std::thread::Builder::new().name("gtp-engine".into());
    thread.spawn(move || {
        let punctuality = gtp_sys::schedule::prompt();
        tracing::debug!(?punctuality, "running");
        let clock = Clock::start();
        let naps = Naps::new(clock.now());
        let among = (place, deciders);
        let driver = Driver::among(clock.now(), config, among, notices, drops.clone());
        let engine = Engine {
            clock,
            poller,
            inbox,
            driver,
            sockets: Vec::new(),
            carriers: HashMap::new(),
            routers: Vec::new(),
            ready: Vec::new(),
            timings: Vec::new(),
            intake: Intake::new(clock.now()),
            received: ReceiveBatch::new(),
            naps,
            outgoing: Batch::default(),
            asked: Vec::new(),
            questions: PendingQuestions::default(),
            stuck: None,
            leave_by: Time::MAX,
            drops,
            calls,
            shown,
        };
        engine.run();
    })
}

impl Engine {
    fn run(mut self) {
        loop {
            let inbox = self.take_notices();
            if inbox == Inbox::Closed {
                return;
            }
            self.receive();
            self.answer_questions();
            self.hear_routers();
            let now = self.clock.now();
            self.look_at_intake(now);
            self.driver.handle_timeout(now);
            self.ask_routers(now);
            self.shown.set(self.driver.stands(now), self.driver.counts_groups());
            let now = self.send();
            self.driver.flush_events(now);
            self.ask_routers(now);
            if self.driver.has_left() || self.leave_by <= now {
                return;
            }
            if inbox == Inbox::Empty {
                self.wait();
            }
        }
    }

    fn take_notices(&mut self) -> Inbox {
        let now = self.clock.now();
        let mut parcels = 0;
        for _ in 0..NOTICES {
            match self.inbox.try_recv() {
                Ok(Notice::AddSocket(id, socket)) => {
                    let receive_buffer = Bytes(socket.receive_buffer() as u64);
                    self.naps.handle_socket(receive_buffer);
                    self.intake.handle_socket(receive_buffer);
                    self.sockets.push((id, socket));
                    self.ready.push(true);
                    self.timings.push(Timing::new(now));
                }
                Ok(Notice::Arrivals(flow, answer)) => {
                    self.calls.message.count();
                    self.questions.ask(flow, answer, self.fullest());
                    self.ready.fill(true);
                }
                Ok(Notice::AskRouters(routing, sockets)) => {
                    self.routers = sockets;
                    self.driver.ask_routers(*routing);
                }
                // The asking task may have ended.
                Ok(Notice::Beat(answer)) => drop(answer.send(())),
                Ok(notice) => {
                    self.calls.message.count();
                    if let Notice::Carrier(notice) = &notice {
                        self.note_carrier(notice);
                        parcels += usize::from(matches!(notice, CarrierNotice::Carried(_)));
                    }
                    self.driver.handle_notice(now, notice);
                }
                Err(TryRecvError::Empty) => return Inbox::Empty,
                Err(TryRecvError::Disconnected) => return Inbox::Closed,
            }
            if self.driver.is_leaving() && self.leave_by == Time::MAX {
                self.leave_by = now + FAREWELL;
            }
            if parcels == PARCELS {
                break;
            }
        }
        Inbox::MoreToCome
    }

    fn note_carrier(&mut self, notice: &CarrierNotice) {
        match notice {
            CarrierNotice::Carry { carrier, outgoing, .. } => {
                self.carriers.insert(*carrier, outgoing.clone());
            }
            CarrierNotice::Drop(carrier) => drop(self.carriers.remove(carrier)),
            CarrierNotice::Carried(_)
            | CarrierNotice::Room(_)
            | CarrierNotice::Unheard(_)
            | CarrierNotice::GoFirst(..) => {}
        }
    }

    fn receive(&mut self) {
        let mut fullest = 0.0_f64;
        let states = self.ready.iter_mut().zip(&mut self.timings);
        for ((id, socket), (ready, timing)) in self.sockets.iter().zip(states) {
            let mut received = 0;
            while *ready && received < RECEIVED_MOST {
                self.calls.receive.count();
                let asked = self.clock.now();
                match socket.receive(&mut self.received) {
                    Ok(true) => {
                        let now = self.clock.now();
                        *ready = self.received.is_full();
                        let bytes = self.received.bytes();
                        received += bytes.max(LEAST_COUNTED);
                        let bytes = Bytes(bytes as u64);
                        self.naps.handle_received(bytes);
                        let junk = self.driver.junk();
                        let read = Read { socket: *id, asked, now, emptied: !*ready };
                        take_in(&mut self.driver, timing, &read, self.received.pieces());
                        self.intake.handle_read(bytes, self.driver.junk().since(junk));
                    }
                    Ok(false) => {
                        *ready = false;
                        timing.handle_read(asked, asked, true);
                    }
                    // An answer of the network to what was sent; what follows may be a datagram,
                    // of which the next wait will say so.
                    Err(_) => *ready = false,
                }
            }
            if *ready {
                self.calls.look.count();
                fullest = fullest.max(socket.pressure().map_or(0.0, |pressure| pressure.filled()));
            }
        }
        self.intake.handle_turn(fullest);
    }

    /// Takes in what routers have answered.
    fn hear_routers(&mut self) {
        let mut datagram = [0; ANSWER_MOST];
        for (router, socket) in self.routers.iter().enumerate() {
            // A router that is not there may be refused by its host, again and again.
            for _ in 0..ANSWERS {
                let Ok(len) = socket.recv(&mut datagram) else { break };
                self.driver.handle_router(self.clock.now(), router, &datagram[..len]);
            }
        }
    }

    /// Sends what is to be asked of routers. What cannot be sent is repeated soon.
    fn ask_routers(&mut self, now: Time) {
        while let Some((router, address)) = self.driver.poll_router_in_vain() {
            // A connected socket keeps the address that this host had then.
            if let (Some(old), Ok(new)) = (self.routers.get_mut(router), connected(address)) {
                *old = new;
            }
        }
        for (router, socket) in self.routers.iter().enumerate() {
            while self.driver.poll_router(now, router, &mut self.asked) {
                let _ = socket.send(&self.asked);
            }
        }
    }

    /// How full the fullest receive buffer is, from 0 to about 1.
    fn fullest(&self) -> f64 {
        let filled = |socket: &UdpSocket| socket.pressure().map_or(0.0, |now| now.filled());
        self.sockets.iter().map(|(_, socket)| filled(socket)).fold(0.0, f64::max)
    }

    /// Answers questions once everything that had arrived before them is read.
    fn answer_questions(&mut self) {
        if !self.questions.is_empty() && !self.ready.iter().any(|&ready| ready) {
            self.questions.answer(|flow| self.driver.has_heard(flow));
        }
    }

    /// Tells the driver what this thread keeps up with, if that is news.
    fn look_at_intake(&mut self, now: Time) {
        if !self.intake.is_due(now) {
            return;
        }
        let heeded = self.driver.heeds_intake();
        for ((_, socket), timing) in self.sockets.iter().zip(&mut self.timings) {
            let guards = || self.intake.guards(Bytes(socket.receive_buffer() as u64));
            timing.set_watched(heeded && socket.tells_pressure() && guards());
        }
        if let Some(limit) = self.intake.look(now, self.driver.interval()) {
            self.driver.handle_intake(limit);
        }
    }

    /// Sends what is due, for a turn, and says when that ended. Each batch is stamped when it is
    /// made: what waits for this thread is no delay of the path.
    fn send(&mut self) -> Time {
        if let Some(left) = self.stuck.take() {
            self.send_batch(left);
        }
        let begun = self.clock.now();
        let mut now = begun;
        while self.stuck.is_none() && now.since(begun) < SENDING_MOST {
            match self.driver.poll_batch(now, &mut self.outgoing) {
                Some((destination, beside)) => {
                    self.send_beside(beside);
                    self.send_batch(Left { destination, run: 0, byte: 0 });
                }
                None => break,
            }
            now = self.clock.now();
        }
        now
    }

    /// Sends what goes by UDP beside a batch. It is lost where there is no room.
    fn send_beside(&mut self, beside: Beside) {
        let (Destination { socket, to, from }, datagram) = match beside {
            Beside::Nothing => return,
            Beside::Copy(to) => (to, self.outgoing.longest_datagram()),
            Beside::Knock(to) => (to, KNOCK),
        };
        if let Some((_, socket)) = self.sockets.iter().find(|(id, _)| *id == socket) {
            let header = Header { to, from, ecn: None };
            let told = |_| self.calls.send.count();
            socket.send_run(&header, datagram.len(), datagram, 0, told);
        }
    }

    /// Puts the batch into a carrier's queue.
    fn carry_batch(&self, outgoing: &Outgoing) {
        let now = self.clock.now();
        for run in self.outgoing.runs() {
            let dropped = outgoing.offer(now, self.outgoing.bytes(run), run.segment);
            (0..dropped).for_each(|_| self.drops.count_unsent());
        }
    }

    fn send_batch(&mut self, left: Left) {
        let destination = left.destination;
        if let Some(outgoing) = self.carriers.get(&destination.socket) {
            return self.carry_batch(outgoing);
        }
        let socket = self.sockets.iter().find(|(id, _)| *id == destination.socket);
        let Some((_, socket)) = socket else { return };
        let Destination { to, from: local, .. } = destination;
        let mut begin = left.byte;
        for (index, run) in self.outgoing.runs().iter().enumerate().skip(left.run) {
            let bytes = self.outgoing.bytes(run);
            let header = Header { to, from: local, ecn: bits::said(run.ecn) };
            let full = socket.send_run(&header, run.segment, bytes, begin, |sent| {
                self.calls.send.count();
                if matches!(sent, Sent::TooLong | Sent::Refused) {
                    self.drops.count_unsent();
                }
            });
            if let Some(byte) = full {
                self.stuck = Some(Left { destination, run: index, byte });
                return;
            }
            begin = 0;
        }
    }

    fn wait(&mut self) {
        let more = self.ready.iter().any(|&ready| ready);
        let now = self.clock.now();
        let until = self.driver.poll_timeout().min(self.leave_by);
        let timeout = if more {
            Some(Span::ZERO)
        } else if self.stuck.is_some() {
            Some(RETRY)
        } else if until == Time::MAX {
            None
        } else {
            Some(until.since(now))
        };
        let rest = if more { None } else { self.naps.rest(now) };
        self.calls.wait.count();
        let waited = match rest {
            Some(rest) => {
                self.ready.fill(true);
                self.poller.wait([], &mut [], Some(timeout.map_or(rest, |span| span.min(rest))))
            }
            None => {
                let routers = self.routers.iter().map(|socket| socket.as_fd());
                let fds = self.sockets.iter().map(|(_, socket)| socket.as_fd()).chain(routers);
                self.poller.wait(fds, &mut self.ready, timeout)
            }
        };
        // Only a read that finds nothing shows that a full one had taken all.
        for (ready, timing) in self.ready.iter_mut().zip(&self.timings) {
            *ready |= timing.is_behind();
        }
        if let Err(error) = waited {
            tracing::error!("waiting failed: {error}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// What of the outgoing batch is still to be sent: all from this byte of this run on.
struct Left {
    destination: Destination,
    run: usize,
    byte: usize,
}

/// One read of a socket.
pub(super) struct Read {
    pub socket: SocketId,
    /// When it was asked for.
    pub asked: Time,
    /// When it had ended.
    pub now: Time,
    /// It found less than it had room for.
    pub emptied: bool,
}

/// Hands the driver what a read has found, in order: what came at one time from one sender, with
/// how long it had waited by the kernel's word.
pub(super) fn take_in<'d, D: Iterator<Item = &'d mut [u8]>>(
    driver: &mut Driver,
    timing: &mut Timing,
    read: &Read,
    pieces: impl Iterator<Item = (Came, D)>,
) {
    for (Came { origin, waited, ecn }, datagrams) in pieces {
        let came = Arrival { ecn: bits::heard(ecn), ..timing.arrival(read.now, waited) };
        for datagram in datagrams {
            driver.handle_datagram(came, read.socket, &origin, datagram);
        }
    }
    timing.handle_read(read.asked, read.now, read.emptied);
}

/// How the inbox was left.
#[derive(PartialEq, Eq)]
enum Inbox {
    Empty,
    MoreToCome,
    Closed,
}
