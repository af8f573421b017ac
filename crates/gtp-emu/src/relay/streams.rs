//! Connections: bytes taken from one side, cut into segments, through the links, and given to the
//! other side in order.
//!
//! The bytes are on loan: the kernel has acknowledged them to their sender, so they may not be
//! lost. What a link drops comes again one round trip later, as a retransmission would. How much
//! is under way follows a plain window (slow start, halved on loss, RFC 5681), so that a
//! connection behaves among datagrams as an ordinary one does; what the window does not admit
//! stays in the client's own socket, and holds it back.
//!
//! The three-way handshake is imitated where it can be seen: the target is called when the opening
//! segment has passed the links, and the client's bytes are taken when the answer has passed back.

mod half;

use std::io;
use std::net::{SocketAddr, TcpStream};

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::Wire;
use socket2::{Domain, SockRef, Socket, Type};

use super::{Lanes, Parcel, Token, Way};
use crate::poller::{EventFlags, Poller};
use crate::udp::Slice;
use half::{Drained, Filled, Half};

/// A segment of a connection.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    slot: u32,
    generation: u32,
    tries: u32,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// Client to target: a connection is wanted.
    Open,
    /// Target to client: it stands.
    Opened,
    /// Bytes from `at` on.
    Bytes { at: u64, bytes: Slice },
    /// The sender has no more after this many bytes.
    End { at: u64 },
    /// The connection broke.
    Reset,
}

impl Segment {
    /// The size of its IP packet.
    pub(super) fn size_towards(&self, target: &SocketAddr) -> Bytes {
        let headers = if target.is_ipv4() { IPV4_TCP } else { IPV6_TCP };
        match &self.body {
            Body::Bytes { bytes, .. } => Bytes(headers + bytes.len() as u64),
            Body::Open | Body::Opened | Body::End { .. } | Body::Reset => Bytes(headers),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The opening segment is under way.
    Opening,
    /// The target has been called and has not yet answered.
    Calling,
    /// The answer is under way to the client.
    Answering,
    /// Bytes pass both ways.
    Open,
}

struct Stream {
    lane: usize,
    generation: u32,
    phase: Phase,
    client: TcpStream,
    upstream: Option<TcpStream>,
    up: Half,
    down: Half,
}

impl Stream {
    fn half(&mut self, way: Way) -> &mut Half {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// The half of a direction with the socket at which it begins.
    fn sending_side(&mut self, way: Way) -> (&mut Half, Option<&TcpStream>) {
        match way {
            Way::Up => (&mut self.up, Some(&self.client)),
            Way::Down => (&mut self.down, self.upstream.as_ref()),
        }
    }

    /// The half of a direction with the socket at which it ends.
    fn receiving_side(&mut self, way: Way) -> (&mut Half, Option<&TcpStream>) {
        match way {
            Way::Up => (&mut self.up, self.upstream.as_ref()),
            Way::Down => (&mut self.down, Some(&self.client)),
        }
    }

    /// Whether bytes of this direction may be taken in.
    fn admits(&self, way: Way) -> bool {
        match (way, self.phase) {
            (Way::Up, Phase::Open) | (Way::Down, Phase::Open | Phase::Answering) => true,
            (Way::Up, Phase::Opening | Phase::Calling | Phase::Answering)
            | (Way::Down, Phase::Opening | Phase::Calling) => false,
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Both sides have said all.
    Complete,
    /// One of them is gone.
    Broken,
}

/// What is to happen to a connection at a time.
enum Alarm {
    Resend { lane: usize, way: Way, segment: Segment },
    Acked { slot: u32, generation: u32, way: Way, bytes: u64 },
}

/// All connections of all paths.
#[derive(Default)]
pub(super) struct Streams {
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    generation: u32,
    alarms: Wire<Alarm>,
}

impl Streams {
    /// Connections of a path now.
    pub(super) fn count(&self, lane: usize) -> u64 {
        self.slots.iter().flatten().filter(|stream| stream.lane == lane).count() as u64
    }

    /// When the next retransmission or acknowledgement is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.alarms.next_at()
    }

    /// Takes new connections in.
    pub(super) fn handle_arrivals(
        &mut self,
        poller: &Poller,
        lanes: &mut Lanes,
        lane: usize,
        now: Time,
    ) {
        while let Ok((client, _)) = lanes.lanes[lane].listener.accept() {
            if self.slots.len() - self.free.len() >= MAX_STREAMS {
                abort(&client);
                continue;
            }
            let slot = self.free.last().map_or(self.slots.len() as u32, |slot| *slot);
            if prepare(poller, &client, Token::Stream(slot, Way::Up)).is_err() {
                abort(&client);
                continue;
            }
            self.free.pop();
            self.generation = self.generation.wrapping_add(1);
            let generation = self.generation;
            let (up, down) = (Half::default(), Half::default());
            let phase = Phase::Opening;
            if slot as usize == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[slot as usize] =
                Some(Stream { lane, generation, phase, client, upstream: None, up, down });
            self.post(lanes, slot, Way::Up, Body::Open, now);
        }
    }

    /// A socket became readable or writable.
    pub(super) fn handle_ready(
        &mut self,
        lanes: &mut Lanes,
        slot: u32,
        side: Way,
        flags: EventFlags,
        now: Time,
    ) {
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        let hang_up = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
        if flags.intersects(EventFlags::IN | hang_up) {
            stream.half(side).readable = true;
        }
        if flags.intersects(EventFlags::OUT | hang_up) {
            stream.half(side.back()).writable = true;
        }
        if side == Way::Down && stream.phase == Phase::Calling {
            self.finish_call(lanes, slot, now);
        }
        self.pump(lanes, slot, side, now);
        self.drain(lanes, slot, side.back(), now);
    }

    /// What alarms are due.
    pub(super) fn handle_timeouts(&mut self, lanes: &mut Lanes, now: Time) {
        while let Some((at, alarm)) = self.alarms.pop(now) {
            match alarm {
                Alarm::Resend { lane, way, segment } => {
                    if self.is_current(&segment) {
                        self.launch(lanes, (lane, way), segment, at);
                    }
                }
                Alarm::Acked { slot, generation, way, bytes } => {
                    if let Some(Some(stream)) = self.slots.get_mut(slot as usize)
                        && stream.generation == generation
                    {
                        stream.half(way).acknowledge(bytes);
                        self.pump(lanes, slot, way, at);
                    }
                }
            }
        }
    }

    /// A segment is through.
    pub(super) fn handle_delivery(
        &mut self,
        poller: &Poller,
        lanes: &mut Lanes,
        (lane, way): (usize, Way),
        segment: Segment,
        due: Time,
    ) {
        let size = segment.size_towards(&lanes.lanes[lane].target);
        lanes.lanes[lane].way(way).count_out(size);
        if !self.is_current(&segment) {
            return;
        }
        let slot = segment.slot;
        match segment.body {
            Body::Open => self.call(poller, lanes, slot, due),
            Body::Opened => {
                if let Some(Some(stream)) = self.slots.get_mut(slot as usize) {
                    stream.phase = Phase::Open;
                }
                self.pump(lanes, slot, Way::Up, due);
            }
            Body::Bytes { at, bytes } => {
                if let Some(Some(stream)) = self.slots.get_mut(slot as usize) {
                    stream.half(way).accept(at, bytes);
                }
                self.drain(lanes, slot, way, due);
            }
            Body::End { at } => {
                if let Some(Some(stream)) = self.slots.get_mut(slot as usize) {
                    stream.half(way).end_at = Some(at);
                }
                self.drain(lanes, slot, way, due);
            }
            Body::Reset => self.close(slot, Ending::Broken),
        }
    }

    /// A segment was dropped on a link: it comes again a round trip later, twice that after the
    /// next time, and so on.
    pub(super) fn handle_loss(
        &mut self,
        lanes: &Lanes,
        (lane, way): (usize, Way),
        mut segment: Segment,
        at: Time,
    ) {
        if !self.is_current(&segment) {
            return;
        }
        if segment.tries >= MAX_TRIES {
            self.close(segment.slot, Ending::Broken);
            return;
        }
        let trip = lanes.delay(lane, Way::Up) + lanes.delay(lane, Way::Down);
        let trip = trip.max(LEAST_ROUND_TRIP);
        if let (Body::Bytes { .. }, Some(Some(stream))) =
            (&segment.body, self.slots.get_mut(segment.slot as usize))
        {
            stream.half(way).back_off(at, trip);
        }
        let wait = trip * (1 << segment.tries.min(MAX_BACKOFF));
        segment.tries += 1;
        self.alarms.push(at + wait.min(MAX_WAIT), Alarm::Resend { lane, way, segment });
    }

    fn is_current(&self, segment: &Segment) -> bool {
        let stream = self.slots.get(segment.slot as usize).and_then(Option::as_ref);
        stream.is_some_and(|stream| stream.generation == segment.generation)
    }

    fn post(&mut self, lanes: &mut Lanes, slot: u32, way: Way, body: Body, now: Time) {
        let Some(Some(stream)) = self.slots.get(slot as usize) else { return };
        let (lane, generation) = (stream.lane, stream.generation);
        self.launch(lanes, (lane, way), Segment { slot, generation, tries: 0, body }, now);
    }

    fn launch(&mut self, lanes: &mut Lanes, place: (usize, Way), segment: Segment, at: Time) {
        match lanes.send(at, place.0, place.1, Parcel::Segment(segment)) {
            Ok(()) | Err(Parcel::Datagram(_)) => {}
            Err(Parcel::Segment(segment)) => self.handle_loss(lanes, place, segment, at),
        }
    }

    /// Calls the target.
    fn call(&mut self, poller: &Poller, lanes: &mut Lanes, slot: u32, now: Time) {
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        if stream.phase != Phase::Opening {
            return;
        }
        let target = lanes.lanes[stream.lane].target;
        let called = connect(target).and_then(|upstream| {
            prepare(poller, &upstream, Token::Stream(slot, Way::Down))?;
            Ok(upstream)
        });
        match called {
            Ok(upstream) => {
                stream.phase = Phase::Calling;
                stream.upstream = Some(upstream);
            }
            Err(_) => self.post(lanes, slot, Way::Down, Body::Reset, now),
        }
    }

    /// The call to the target has ended, well or not.
    fn finish_call(&mut self, lanes: &mut Lanes, slot: u32, now: Time) {
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        let Some(upstream) = &stream.upstream else { return };
        match (upstream.take_error(), upstream.peer_addr()) {
            (Ok(None), Ok(_)) => {
                stream.phase = Phase::Answering;
                self.post(lanes, slot, Way::Down, Body::Opened, now);
            }
            // Not yet: a later event tells.
            (Ok(None), Err(_)) => {}
            (Ok(Some(_)) | Err(_), _) => self.post(lanes, slot, Way::Down, Body::Reset, now),
        }
    }

    /// Takes in what the window admits of a direction.
    fn pump(&mut self, lanes: &mut Lanes, slot: u32, way: Way, now: Time) {
        loop {
            let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
            if !stream.admits(way) {
                return;
            }
            let (half, Some(socket)) = stream.sending_side(way) else { return };
            match half.fill(socket) {
                Filled::Nothing => return,
                Filled::Bytes { at, buffer } => {
                    for start in (0..buffer.len()).step_by(SEGMENT) {
                        let len = SEGMENT.min(buffer.len() - start);
                        let bytes = Slice::new(buffer.clone(), start, len);
                        let body = Body::Bytes { at: at + start as u64, bytes };
                        self.post(lanes, slot, way, body, now);
                    }
                }
                Filled::End { at } => self.post(lanes, slot, way, Body::End { at }, now),
                Filled::Broken => {
                    self.post(lanes, slot, way, Body::Reset, now);
                    return;
                }
            }
        }
    }

    /// Gives to the receiving side what has arrived in order.
    fn drain(&mut self, lanes: &mut Lanes, slot: u32, way: Way, now: Time) {
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        let (lane, generation) = (stream.lane, stream.generation);
        let (half, Some(socket)) = stream.receiving_side(way) else { return };
        match half.drain(socket) {
            Drained::Bytes(0) => {}
            Drained::Bytes(bytes) => {
                let at = now + lanes.delay(lane, way.back());
                self.alarms.push(at, Alarm::Acked { slot, generation, way, bytes });
            }
            Drained::Broken => self.post(lanes, slot, way.back(), Body::Reset, now),
        }
        let Some(Some(stream)) = self.slots.get_mut(slot as usize) else { return };
        if stream.up.is_over() && stream.down.is_over() {
            self.close(slot, Ending::Complete);
        }
    }

    /// Lets go of a connection; with a reset to both sides if it broke.
    fn close(&mut self, slot: u32, ending: Ending) {
        let Some(stream) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.free.push(slot);
        if ending == Ending::Broken {
            abort(&stream.client);
            stream.upstream.iter().for_each(abort);
        }
    }
}

/// A socket for edge-triggered work.
fn prepare(poller: &Poller, socket: &TcpStream, token: Token) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    poller.add(socket, token.pack(), flags)
}

/// Begins a connection to `target`.
fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&target.into()) {
        Ok(()) => Ok(socket.into()),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Ok(socket.into())
        }
        Err(e) => Err(e),
    }
}

/// Lets the coming close of a socket be a reset.
fn abort(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Bytes per segment: an Ethernet frame's, with time stamps.
const SEGMENT: usize = 1_448;
/// IPv4 and TCP headers with time stamps.
const IPV4_TCP: u64 = 52;
/// IPv6 and TCP headers with time stamps.
const IPV6_TCP: u64 = 72;
/// Connections of all paths together; each costs two sockets.
const MAX_STREAMS: usize = 1_024;
/// Floor of the wait for a retransmission, for paths without delay.
const LEAST_ROUND_TRIP: Span = Span::from_millis(1);
/// A segment that was lost this often breaks its connection, after about two minutes.
const MAX_TRIES: u32 = 32;
/// Doublings of that wait at most.
const MAX_BACKOFF: u32 = 10;
/// Longest such wait.
const MAX_WAIT: Span = Span::from_secs(5);
