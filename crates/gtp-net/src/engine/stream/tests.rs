//! Streams in virtual time: two hosts' drivers, with sealed datagrams on a path that this file
//! makes up. No sockets, no threads; the same seed gives the same run.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::wire::{Header, Kind};
use gtp_proto::{LimitedBy, PathUse, Revision, Role, Weights};
use gtp_sys::udp::{Came, Origin};
use gtp_sys::wake::Poller;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::pipe::Bell;
use super::*;
use crate::crypto::{Suite, TrafficSecret};
use crate::engine::api::{Drops, HostConfig, SessionKeys, SocketId};
use crate::engine::batch::Batch;
use crate::engine::command::{Notice, Notices};
use crate::engine::driver::Driver;
use crate::engine::intake::{Intake, Junk};
use crate::engine::law::Law;
use crate::engine::run::{Read, take_in};
use crate::engine::timing::Timing;
use crate::messages::Delivery;

const SOCKET: SocketId = SocketId(1);
const PAYLOAD: usize = 1_400;

/// One host: its driver, its socket and its letter box.
struct End {
    driver: Driver,
    timing: Timing,
    /// What the socket holds, with when it came.
    socket: VecDeque<(Time, Vec<u8>)>,
    /// Datagrams for which a read has room.
    room: usize,
    /// What it finds out about itself, and datagrams for which its socket has room.
    intake: Option<(Intake, usize)>,
    inbox: Receiver<Notice>,
    notices: Notices,
    _poller: Poller,
}

impl End {
    fn new(now: Time, capacity: Rate) -> End {
        let (queue, inbox) = channel();
        let poller = Poller::new().unwrap();
        let notices = Notices::new(queue, poller.waker());
        let config = HostConfig {
            capacity_out: capacity,
            capacity_in: capacity,
            interval: None,
            memory: Bytes(1 << 20),
            engines: 1,
        };
        let driver = Driver::new(now, config, notices.clone(), Arc::new(Drops::default()));
        let (timing, socket) = (Timing::new(now), VecDeque::new());
        let (room, intake) = (usize::MAX, None);
        End { driver, timing, socket, room, intake, inbox, notices, _poller: poller }
    }

    /// Reads the socket once.
    fn receive(&mut self, now: Time, from: SocketAddr) {
        let origin = Origin { from, to: None };
        let count = self.socket.len().min(self.room);
        let mut found: Vec<_> = self.socket.drain(..count).collect();
        let read = Read { socket: SOCKET, asked: now, now, emptied: count < self.room };
        let pieces = found.iter_mut().map(|(came, datagram)| {
            let came = Came { origin, waited: now.since(*came), ecn: None };
            (came, std::iter::once(&mut datagram[..]))
        });
        take_in(&mut self.driver, &mut self.timing, &read, pieces);
        let bytes = Bytes(found.iter().map(|(_, datagram)| datagram.len() as u64).sum());
        self.look_at_intake(now, bytes);
    }

    /// As the engine's thread does after a read.
    fn look_at_intake(&mut self, now: Time, bytes: Bytes) {
        let Some((intake, most)) = &mut self.intake else { return };
        intake.handle_read(bytes, Junk::default());
        intake.handle_turn(self.socket.len() as f64 / *most as f64);
        if intake.is_due(now) {
            self.timing.set_watched(intake.guards(Bytes((*most * PAYLOAD) as u64)));
            if let Some(limit) = intake.look(now, self.driver.interval()) {
                self.driver.handle_intake(limit);
            }
        }
    }
}

/// What the path does to a datagram.
enum Fate {
    Lost,
    After(Span),
    Twice(Span, Span),
}

type Path = Box<dyn FnMut(Time, &Header) -> Fate>;

/// A source on host 0, a sink on host 1.
struct World {
    now: Time,
    ends: [End; 2],
    flying: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    /// An end that stands still until then: what comes waits, and it does nothing.
    stands: [Time; 2],
    sent: u64,
    path: Path,
    writer: Option<StreamWriter>,
    reader: Option<StreamReader>,
    pipes: (Arc<OutPipe>, Arc<InPipe>),
    progress: Arc<Mutex<SourceProgress>>,
    said: UnboundedReceiver<StreamEvent>,
    heard: UnboundedReceiver<StreamEvent>,
}

const FLOW: u32 = 7;

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8], 4_810))
}

fn session(end: usize) -> SessionOpen {
    let secret = |way: u8| TrafficSecret::new([way; 32]);
    SessionOpen {
        socket: SOCKET,
        peer: address(1 - end),
        local_session: end as u32,
        peer_session: 1 - end as u32,
        keys: SessionKeys {
            suite: Suite::ChaCha20Poly1305,
            seal: secret(end as u8),
            open: secret(1 - end as u8),
        },
        revision: Revision::NEWEST,
        role: match end {
            0 => Role::Responder,
            _ => Role::Initiator { unit_payloads: vec![PAYLOAD as u16] },
        },
        law: Law::Grant,
        weights: Weights { own: 1.0, peer: 1.0 },
        path: PathUse::default(),
        max_rate: Rate::UNLIMITED,
        principal: 0,
        allowance: crate::engine::Allowance::default(),
        label: String::new(),
    }
}

impl World {
    fn new(window: u32, capacity: Rate, path: Path) -> World {
        World::of(window, None, capacity, path)
    }

    fn of(window: u32, delivery: Option<Delivery>, capacity: Rate, path: Path) -> World {
        let now = Time::ZERO + Span::from_secs(1);
        let ends = [End::new(now, capacity), End::new(now, capacity)];
        let bell = |end: usize| Bell { notices: ends[end].notices.clone(), flow: FLOW };
        let out_pipe = OutPipe::new(window, delivery, bell(0));
        let in_pipe = InPipe::new(window, delivery, bell(1));
        let progress = Arc::new(Mutex::new(SourceProgress::new("")));
        let (said_in, said) = unbounded_channel();
        let (heard_in, heard) = unbounded_channel();
        ends[0].notices.send(Notice::Stream(StreamNotice::OpenSource(Box::new(NewStreamSource {
            flow: FLOW,
            session: session(0),
            pipe: Arc::clone(&out_pipe),
            events: said_in,
            progress: Arc::clone(&progress),
        }))));
        ends[1].notices.send(Notice::Stream(StreamNotice::OpenSink(Box::new(NewStreamSink {
            flow: FLOW,
            session: session(1),
            repairs: ring::repairs(delivery),
            patience: Span::ZERO,
            pipe: Arc::clone(&in_pipe),
            events: heard_in,
            progress: Arc::default(),
        }))));
        let presence = || oneshot::channel().0;
        let pipes = (Arc::clone(&out_pipe), Arc::clone(&in_pipe));
        let writer = StreamWriter { pipe: out_pipe, _presence: presence() };
        let reader = StreamReader { pipe: in_pipe, _presence: presence() };
        World {
            pipes,
            progress,
            now,
            ends,
            flying: BTreeMap::new(),
            stands: [Time::ZERO; 2],
            sent: 0,
            path,
            writer: Some(writer),
            reader: Some(reader),
            said,
            heard,
        }
    }

    /// Lets time pass, in steps at which the test may write and read.
    fn run(&mut self, span: Span, mut step: impl FnMut(&mut World)) {
        let end = self.now + span;
        while self.now < end {
            step(self);
            self.serve();
            let stands = self.stands;
            let timeout = |(end, stands): (&End, Time)| end.driver.poll_timeout().max(stands);
            let timeouts = self.ends.iter().zip(stands).map(timeout);
            let next = timeouts.min().unwrap_or(Time::MAX);
            let arrival = self.flying.keys().next().map_or(Time::MAX, |(at, _)| *at);
            let next = next.min(arrival).min(self.now + Span::from_millis(1));
            self.now = next.max(self.now + Span::from_micros(1));
        }
    }

    fn serve(&mut self) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now)
        {
            let (came, _) = *entry.key();
            let (to, datagram) = entry.remove();
            self.ends[to].socket.push_back((came, datagram));
        }
        let mut batch = Batch::default();
        let awake = [0, 1].map(|end: usize| self.stands[end] <= self.now);
        for from in (0..2).filter(|&end| awake[end]) {
            self.ends[from].receive(self.now, address(1 - from));
        }
        for from in (0..2).filter(|&end| awake[end]) {
            while let Ok(notice) = self.ends[from].inbox.try_recv() {
                self.ends[from].driver.handle_notice(self.now, notice);
            }
            self.ends[from].driver.handle_timeout(self.now);
            while self.ends[from].driver.poll_batch(self.now, &mut batch).is_some() {
                for run in batch.runs() {
                    for datagram in batch.bytes(run).chunks(run.segment) {
                        self.send(1 - from, datagram);
                    }
                }
            }
            self.ends[from].driver.flush_events(self.now);
        }
    }

    fn send(&mut self, to: usize, datagram: &[u8]) {
        let header = Header::decode(datagram).unwrap();
        let mut fly = |span: Span| {
            self.sent += 1;
            self.flying.insert((self.now + span, self.sent), (to, datagram.to_vec()));
        };
        match (self.path)(self.now, &header) {
            Fate::Lost => {}
            Fate::After(span) => fly(span),
            Fate::Twice(first, second) => {
                fly(first);
                fly(second);
            }
        }
    }

    /// Writes what is taken; says how much.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(writer).poll_write(&mut context, bytes) {
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => 0,
        }
    }

    /// Reads what is there: bytes, or the end as `None`.
    fn read(&mut self, most: usize) -> Option<std::io::Result<Vec<u8>>> {
        let reader = self.reader.as_mut()?;
        let mut bytes = vec![0; most];
        let mut buffer = ReadBuf::new(&mut bytes);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(reader).poll_read(&mut context, &mut buffer) {
            Poll::Pending => Some(Ok(Vec::new())),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => None,
            Poll::Ready(Ok(())) => Some(Ok(buffer.filled().to_vec())),
            Poll::Ready(Err(error)) => Some(Err(error)),
        }
    }
}

fn direct(delay: Span) -> Path {
    Box::new(move |_, _| Fate::After(delay))
}

/// Numbers that look random (xorshift64).
fn dice(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % sides
    }
}

/// Of a hundred datagrams some are lost, some are late by up to 5 ms, some come twice.
fn bad(seed: u64, delay: Span, lost: u64, late: u64, twice: u64) -> Path {
    let mut dice = dice(seed);
    Box::new(move |_, _| {
        let after = |extra| delay + Span::from_micros(extra);
        match dice(100) {
            roll if roll < lost => Fate::Lost,
            roll if roll < lost + late => Fate::After(after(dice(5_000))),
            roll if roll < lost + late + twice => Fate::Twice(delay, after(dice(5_000))),
            _ => Fate::After(delay),
        }
    })
}

fn speech(len: usize) -> Vec<u8> {
    let mut dice = dice(99);
    (0..len).map(|_| dice(256) as u8).collect()
}

#[test]
fn every_byte_arrives_once_and_in_order_over_a_path_that_loses_delays_and_copies() {
    for seed in 1..6 {
        let said = speech(3_000_000);
        let path = bad(seed, Span::from_millis(20), 5, 10, 3);
        let mut world = World::new(4_096, Rate::from_mbps(200), path);
        let (mut from, mut heard, mut ended) = (0, Vec::new(), false);
        let mut sizes = dice(seed);
        world.run(Span::from_secs(6), |world| {
            let to = (from + 1 + sizes(40_000) as usize).min(said.len());
            from += world.write(&said[from..to]);
            if from == said.len() {
                world.writer = None;
            }
            match world.read(1 + sizes(200_000) as usize) {
                Some(bytes) => heard.extend(bytes.unwrap()),
                None => ended = true,
            }
        });
        assert!(ended, "seed {seed}: {} of {}", heard.len(), said.len());
        assert!(heard == said, "seed {seed}");
        let events: Vec<_> = std::iter::from_fn(|| world.heard.try_recv().ok()).collect();
        assert_eq!(events, [StreamEvent::PathOpen, StreamEvent::Whole(3_000_000)]);
    }
}

#[test]
fn a_word_that_is_lost_before_a_silence_is_repaired_in_the_silence() {
    let mut drops = 2;
    let path: Path = Box::new(move |_, header| {
        if header.kind == Kind::Data && drops > 0 {
            drops -= 1;
            return Fate::Lost;
        }
        Fate::After(Span::from_millis(20))
    });
    let mut world = World::new(1_024, Rate::from_mbps(100), path);
    assert_eq!(world.write(b"question?"), 9);
    let (mut heard, mut at) = (Vec::new(), Time::MAX);
    world.run(Span::from_secs(2), |world| {
        heard.extend(world.read(100).unwrap().unwrap());
        if !heard.is_empty() {
            at = at.min(world.now);
        }
    });
    assert_eq!(heard, b"question?");
    // Hello, request and word take two round trips; each loss costs one more and an interval.
    let took = at.since(Time::ZERO + Span::from_secs(1));
    assert!(took < Span::from_millis(400), "{} ms", took.as_nanos() / 1_000_000);
}

#[test]
fn a_reader_that_stops_stops_its_writer_and_nothing_is_lost_when_it_goes_on() {
    const WINDOW: usize = 500;
    let path = bad(3, Span::from_millis(10), 1, 5, 1);
    let mut world = World::new(WINDOW as u32, Rate::from_mbps(400), path);
    let said = speech(8_000_000);
    let mut from = 0;
    world.run(Span::from_secs(2), |world| from += world.write(&said[from..]));
    // What was taken lies in one of the two rings, or waits to be sent.
    let unsent = Spoken::unsent_most(WINDOW as u32) as usize;
    assert!(from <= unsent + 2 * WINDOW * PAYLOAD, "{from} bytes were taken");
    assert!(from >= unsent);
    let mut heard = Vec::new();
    let mut ended = false;
    world.run(Span::from_secs(6), |world| {
        from += world.write(&said[from..]);
        if from == said.len() {
            world.writer = None;
        }
        match world.read(1 << 20) {
            Some(bytes) => heard.extend(bytes.unwrap()),
            None => ended = true,
        }
    });
    assert!(ended && heard == said);
}

#[test]
fn a_stream_fills_a_long_path_that_loses_one_packet_in_a_thousand() {
    let path: Path = {
        let mut dice = dice(5);
        Box::new(move |_, _| match dice(1_000) {
            0 => Fate::Lost,
            _ => Fate::After(Span::from_millis(30)),
        })
    };
    let mut world = World::new(16_384, Rate::from_mbps(630), path);
    let chunk = speech(1 << 20);
    let mut heard = 0;
    let talk = |world: &mut World| {
        while world.write(&chunk) > 0 {}
        let read = std::iter::from_fn(|| world.read(1 << 20)?.ok().filter(|got| !got.is_empty()));
        read.map(|bytes| bytes.len()).sum::<usize>()
    };
    world.run(Span::from_secs(1), |world| heard += talk(world));
    let before = heard;
    world.run(Span::from_secs(2), |world| heard += talk(world));
    let rate = (heard - before) as f64 * 8.0 / 2.0 / 1e6;
    assert!(rate > 0.9 * 630.0 * 1_399.0 / 1_477.0, "{rate} Mbit/s");
}

#[test]
fn a_break_is_not_an_end_and_what_came_before_it_can_be_read() {
    let mut world = World::new(1_024, Rate::from_mbps(100), direct(Span::from_millis(5)));
    assert_eq!(world.write(b"the beginning"), 13);
    world.run(Span::from_millis(200), |_| {});
    let notice = Notice::Stream(StreamNotice::Close(FLOW));
    world.ends[0].notices.send(notice);
    world.run(Span::from_millis(100), |_| {});
    let events: Vec<_> = std::iter::from_fn(|| world.heard.try_recv().ok()).collect();
    assert_eq!(events, [StreamEvent::PathOpen, StreamEvent::Closed]);
    let why = Broken { kind: std::io::ErrorKind::ConnectionReset, text: "gone".into() };
    world.reader.as_ref().unwrap().pipe.fail(why);
    assert_eq!(world.read(100).unwrap().unwrap(), b"the beginning");
    let kind = world.read(100).unwrap().unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
    assert_eq!(world.said.try_recv(), Ok(StreamEvent::PathOpen));
}

#[test]
fn a_stream_that_is_over_leaves_nothing_in_the_engine() {
    let mut world = World::new(1_024, Rate::from_mbps(100), direct(Span::from_millis(5)));
    assert_eq!(world.write(b"all there is"), 12);
    world.writer = None;
    world.run(Span::from_millis(200), |_| {});
    assert_eq!(world.read(100).unwrap().unwrap(), b"all there is");
    assert!(world.read(100).is_none());
    for end in &world.ends {
        end.notices.send(Notice::Stream(StreamNotice::Close(FLOW)));
        end.notices.send(Notice::Shutdown);
    }
    world.run(Span::from_secs(2), |_| {});
    assert!(world.ends.iter().all(|end| end.driver.has_left()));
}

/// What is read in each tenth of a second, in Mbit/s, of a writer that is never at a loss, over a
/// path of 60 ms that loses one in a thousand and carries a ninth more than the capacity. Each end
/// stands still for `still` at times.
fn carried(still: Span, capacity: Rate, seconds: u64) -> Vec<u64> {
    let delay = Span::from_millis(30);
    let mut lost = dice(11);
    let each = Bytes(PAYLOAD as u64 + 60) / capacity.scale(10.0 / 9.0);
    let mut free = Time::ZERO;
    let path = Box::new(move |now: Time, header: &Header| {
        if header.kind == Kind::Data {
            free = free.max(now) + each;
        }
        match lost(1_000) {
            0 => Fate::Lost,
            _ => Fate::After(delay + free.since(now)),
        }
    });
    let mut world = World::new(crate::stream::WINDOW, capacity, path);
    let chunk = vec![7; 256 << 10];
    let mut rest = dice(5);
    let mut again = [world.now + Span::from_millis(700); 2];
    let mut tenths = Vec::new();
    for _ in 0..10 * seconds {
        let mut count = 0;
        world.run(Span::from_millis(100), |world| {
            for (end, again) in again.iter_mut().enumerate() {
                if world.now >= *again && still > Span::ZERO {
                    world.stands[end] = world.now + still;
                    *again = world.now + still + Span::from_millis(50 + rest(200));
                }
            }
            while world.write(&chunk) > 0 {}
            while let Some(Ok(heard)) = world.read(256 << 10)
                && !heard.is_empty()
            {
                count += heard.len() as u64;
            }
        });
        tenths.push(count * 8 / 100_000);
    }
    tenths
}

#[test]
fn a_stream_fills_a_lossy_path_and_loses_no_more_than_the_time_that_its_hosts_stand_still() {
    let mean = |still| {
        let tenths = carried(Span::from_millis(still), Rate::from_mbps(100), 3);
        let settled = &tenths[10..];
        settled.iter().sum::<u64>() / settled.len() as u64
    };
    // Of the capacity a twentieth is heads of packets.
    assert!(mean(0) >= 90, "{}", mean(0));
    // Each stands still for a fifth of the time, and both together for more than a third of it.
    assert!(mean(40) >= 70, "{}", mean(40));
}

/// What a source sees of a path of 40 ms whose sink's thread takes turns.
struct Seen {
    /// The longest round trip, smoothed.
    rtt: Span,
    /// Ever limited by the path.
    path: bool,
    /// Datagrams in the sink's socket at the end.
    left: usize,
}

/// A stream of 100 Mbit/s, in packets of 1,477 bytes. The sink rests after each of its turns, as
/// often as `rests` says so, and in a turn it reads `room` datagrams. If its socket holds so many
/// datagrams as `watched`, it sees that fill.
fn taken_in_turns(room: usize, watched: Option<usize>, mut rests: impl FnMut() -> Span) -> Seen {
    let mut world = World::new(8_192, Rate::from_mbps(100), direct(Span::from_millis(20)));
    let chunk = vec![7; 256 << 10];
    let mut seen = Seen { rtt: Span::ZERO, path: false, left: 0 };
    world.run(Span::from_secs(1), |world| while world.write(&chunk) > 0 {});
    world.ends[1].room = room;
    world.ends[1].intake = watched.map(|most| (Intake::new(world.now), most));
    let mut turn = world.now;
    world.run(Span::from_secs(4), |world| {
        if turn <= world.now {
            turn = world.now + rests();
            world.stands[1] = world.now;
        } else {
            world.stands[1] = turn;
        }
        while world.write(&chunk) > 0 {}
        while world.read(256 << 10).is_some_and(|heard| !heard.unwrap().is_empty()) {}
        let progress = world.progress.lock().unwrap();
        seen.rtt = seen.rtt.max(progress.rtt);
        seen.path |= progress.limited_by == LimitedBy::Path;
    });
    Seen { left: world.ends[1].socket.len(), ..seen }
}

#[test]
fn a_sink_that_reads_late_after_a_rest_shows_its_source_no_queue() {
    let mut dice = dice(9);
    let seen = taken_in_turns(64, None, || match dice(200) {
        0 => Span::from_millis(40 + dice(20)),
        _ => Span::from_micros(500),
    });
    assert!(seen.rtt < Span::from_millis(41), "{:?}", seen.rtt);
    // What comes in the longest rest, 9 a millisecond, and a turn's.
    assert!(!seen.path && seen.left <= 64 + 59 * 9, "seed 9: {}", seen.left);
}

#[test]
fn a_sink_that_never_empties_its_socket_shows_its_source_a_queue_that_is_then_kept_short() {
    // Seven a millisecond are 83 Mbit/s.
    let seen = taken_in_turns(7, None, || Span::from_millis(1));
    assert!(seen.rtt > Span::from_millis(60), "{:?}", seen.rtt);
    assert!(seen.path && seen.left < 1_000, "{}", seen.left);
}

#[test]
fn a_sink_that_sees_its_socket_fill_shares_out_less_and_its_source_sees_no_queue() {
    let seen = taken_in_turns(7, Some(1_000), || Span::from_millis(1));
    assert!(seen.rtt < Span::from_millis(42), "{:?}", seen.rtt);
    assert!(!seen.path && seen.left < 700, "{}", seen.left);
    let seen = taken_in_turns(7, Some(100_000), || Span::from_millis(1));
    assert!(seen.path && seen.left < 1_000, "that much shows too late: {}", seen.left);
}

/// Frames of ten units each but the last, whole frames by their numbers, and those that are told to
/// be lost.
struct Course {
    whole: BTreeMap<u64, Vec<u8>>,
    lost: Vec<u64>,
    /// Data packets that left, and which of them were lost.
    sent: u64,
    dropped: Vec<u64>,
}

fn picture(number: u64) -> Vec<u8> {
    let length = if number % 7 == 6 { 0 } else { 9 * 1_395 + 1 + number as usize % 1_395 };
    vec![number as u8; length]
}

/// Sends so many frames over a path that loses one data packet in `one_in`, and reads what comes.
fn course(delivery: Delivery, frames: u64, one_in: u64) -> Course {
    let record = Arc::new(Mutex::new((0, Vec::new())));
    let (mut dice, notes) = (dice(21), Arc::clone(&record));
    let path: Path = Box::new(move |_, header| {
        let mut notes = notes.lock().unwrap();
        if header.kind == Kind::Data {
            notes.0 += 1;
            if dice(one_in) == 0 {
                let unit = notes.0 - 1;
                notes.1.push(unit);
                return Fate::Lost;
            }
        }
        Fate::After(Span::from_millis(20))
    });
    let mut world = World::of(4_096, Some(delivery), Rate::from_mbps(200), path);
    let (out, inside) = world.pipes.clone();
    let presence = || oneshot::channel().0;
    let mut writer = Some(FrameWriter { pipe: out, _presence: presence() });
    let reader = FrameReader { pipe: inside, _presence: presence() };
    let (mut next, mut ended, mut heard) = (0, false, Vec::new());
    world.run(Span::from_secs(3), |world| {
        while next < frames
            && let Some(writer) = &writer
            && writer.offer(&picture(next)).unwrap()
        {
            next += 1;
        }
        if next == frames {
            writer = None;
        }
        while let Ok(event) = world.said.try_recv() {
            if let StreamEvent::Ended(ended) = event {
                let notice = Notice::Stream(StreamNotice::Ended(FLOW, ended));
                world.ends[1].notices.send(notice);
            }
        }
        let mut context = Context::from_waker(Waker::noop());
        while !ended && let Poll::Ready(frame) = reader.poll_read(&mut context) {
            match frame.unwrap() {
                Some(frame) => heard.push(frame),
                None => ended = true,
            }
        }
    });
    assert!(ended, "{} heard", heard.len());
    let (mut whole, mut lost, mut expected) = (BTreeMap::new(), Vec::new(), 0);
    for frame in heard {
        match frame {
            Frame::Whole { number, bytes, came: _ } => {
                assert_eq!(number, expected, "each is told of in its place");
                expected += 1;
                whole.insert(number, bytes);
            }
            Frame::Lost { first, count } => {
                assert_eq!(first, expected);
                expected += count;
                lost.extend(first..first + count);
            }
        }
    }
    assert_eq!(expected, frames);
    let (sent, dropped) = record.lock().unwrap().clone();
    Course { whole, lost, sent, dropped }
}

#[test]
fn a_frame_offered_at_once_to_a_stream_that_broke_fails_even_if_others_wait() {
    let path: Path = Box::new(|_, _| Fate::Lost);
    let world = World::of(64, Some(Delivery::Frames), Rate::from_mbps(1), path);
    let pipe = Arc::clone(&world.pipes.0);
    let writer = FrameWriter { pipe: Arc::clone(&pipe), _presence: oneshot::channel().0 };
    assert!(writer.offer_at_once(&[1; 5_000], 0).unwrap());
    assert!(!writer.offer_at_once(&[2; 5_000], 0).unwrap(), "the first one waits");
    pipe.fail(Broken { kind: std::io::ErrorKind::ConnectionReset, text: "cut".into() });
    assert!(writer.offer_at_once(&[3; 5_000], 0).is_err());
}

#[test]
fn a_frame_is_lost_exactly_if_one_of_its_packets_is_and_nothing_is_sent_again() {
    let found = course(Delivery::Frames, 300, 50);
    // No repairs, so the packets are the units in their order.
    let (mut unit, mut lost) = (0, Vec::new());
    for number in 0..300 {
        let units = picture(number).len().div_ceil(1_395).max(1) as u64;
        if found.dropped.iter().any(|&dropped| (unit..unit + units).contains(&dropped)) {
            lost.push(number);
        }
        unit += units;
    }
    assert_eq!(found.sent, unit);
    assert!(lost.len() > 20, "{lost:?}");
    assert_eq!(found.lost, lost);
    assert!(found.whole.iter().all(|(&number, bytes)| *bytes == picture(number)));
}

#[test]
fn a_frame_that_may_be_repaired_once_is_seldom_lost() {
    let found = course(Delivery::FramesOnce, 300, 20);
    let (sent, dropped) = (found.sent as usize, found.dropped.len());
    let units: usize = (0..300).map(|n| picture(n).len().div_ceil(1_395).max(1)).sum();
    assert!(dropped > 100 && sent > units && sent <= units + dropped, "{sent} of {units}");
    // A unit is lost twice once in four hundred times.
    assert!(!found.lost.is_empty() && found.lost.len() < 20, "{:?}", found.lost);
    assert!(found.whole.iter().all(|(&number, bytes)| *bytes == picture(number)));
}

#[test]
fn a_stream_of_no_frames_ends() {
    let found = course(Delivery::Frames, 0, 1_000);
    assert!(found.whole.is_empty() && found.lost.is_empty());
}

#[test]
fn a_loss_in_the_midst_costs_a_round_trip_and_not_the_interval_in_which_it_showed() {
    let mut count = 0_u64;
    let path: Path = Box::new(move |_, header| {
        if header.kind == Kind::Data {
            count += 1;
            // Once in more than two round trips, and never a repair.
            if count.is_multiple_of(2_003) {
                return Fate::Lost;
            }
        }
        Fate::After(Span::from_millis(50))
    });
    let mut world = World::new(8_192, Rate::from_mbps(100), path);
    let chunk = vec![7; 256 << 10];
    let (mut at, mut longest) = (Time::MAX, Span::ZERO);
    world.run(Span::from_secs(4), |world| {
        while world.write(&chunk) > 0 {}
        let mut any = false;
        while let Some(Ok(heard)) = world.read(256 << 10)
            && !heard.is_empty()
        {
            any = true;
        }
        if any {
            if world.now > Time::ZERO + Span::from_secs(2) {
                longest = longest.max(world.now.since(at));
            }
            at = world.now;
        }
    });
    // 100 ms there and back, one for the reordering that might have been, and steps of one.
    assert!(longest >= Span::from_millis(100) && longest < Span::from_millis(108), "{longest:?}");
}
