//! Sequences of datagrams into both ends of a session.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::source::SourceConfig;
use gtp_proto::wire::{HEADER_LEN, Header, Kind};
use gtp_proto::{
    Arrival, Codepoint, Event, Grant, Law, Link, Revision, Role, SinkConfig, SinkSession,
    SourceSession, Supplied, Weights,
};

const LINK: Link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
const RATE: Rate = Rate::from_mbps(20);
const KINDS: [Kind; 7] = [
    Kind::Data,
    Kind::Hello,
    Kind::HelloAck,
    Kind::Feedback,
    Kind::Request,
    Kind::Status,
    Kind::Close,
];

/// One end that is spoken to, and what it answers: the source's answers go to the sink and the
/// other way round whenever the input says so, so that sessions get far.
struct Pair {
    now: Time,
    source: SourceSession,
    sink: SinkSession,
    numbers: [u64; 2],
    packets: u64,
}

/// Reads steps from the bytes: to let time pass, to carry what both ends send, or to put in a
/// datagram of the fuzzer's own.
pub fn session_sequence(bytes: &[u8]) {
    let mut pair = Pair::new();
    let mut rest = bytes;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        match step % 4 {
            0 => pair.now += Span::from_micros(u64::from(step) * 100),
            1 => pair.carry(step),
            2 | 3 => {
                let Some((&len, tail)) = rest.split_first() else { break };
                let (body, tail) = tail.split_at(usize::from(len).min(tail.len()));
                rest = tail;
                pair.forge(step, body);
            }
            _ => unreachable!("a remainder of four"),
        }
        if pair.packets > 20_000 {
            break; // Long enough.
        }
    }
}

impl Pair {
    fn new() -> Pair {
        let now = Time::from_nanos(1_000_000_000);
        let (law, weights, max_rate) = (Law::Grant, Weights::ONE, Rate::UNLIMITED);
        let (role, proof_key) = (Role::Responder, [1; 16]);
        let source = SourceConfig { role, link: LINK, law, weights, max_rate, proof_key };
        let mut source = SourceSession::new(now, source);
        let role = Role::Initiator { unit_payloads: vec![1_400, 1_180] };
        let sink = SinkConfig { role, link: LINK, law, weights, max_rate };
        let mut sink = SinkSession::new(now, sink);
        sink.begin(1_400);
        sink.assign(0..5_000);
        let interval = Span::from_millis(10);
        let grant = Grant { number: 0, rate: RATE, offer: RATE, weight: 1.0, interval };
        source.handle_grant(now, grant);
        sink.handle_grant(Grant { number: 1, ..grant });
        Pair { now, source, sink, numbers: [0; 2], packets: 0 }
    }

    /// Everything that is due is sent; bits of `step` say what is lost.
    fn carry(&mut self, step: u8) {
        let mut head = Vec::new();
        let mut supply = |unit: u64| match unit {
            0..5_000 => Supplied::Ready(1_400),
            _ => Supplied::NoSuchUnit,
        };
        let mut sent = 0_u32;
        while let Some(sent_now) = self.source.poll_transmit(self.now, &mut supply, &mut head) {
            sent += 1;
            assert!(sent < 10_000, "a source sends for ever");
            head.resize(head.len() + 8, 0);
            if step & 8 == 0 || !sent.is_multiple_of(3) {
                self.deliver(true, sent_now.ecn, &head);
            }
        }
        sent = 0;
        while self.sink.poll_transmit(self.now, &mut head).is_some() {
            sent += 1;
            assert!(sent < 10_000, "a sink sends for ever");
            if step & 16 == 0 || !sent.is_multiple_of(2) {
                self.deliver(false, Codepoint::NotEct, &head);
            }
        }
        self.packets += u64::from(sent) + 1;
        self.drain();
    }

    fn deliver(&mut self, to_sink: bool, ecn: Codepoint, datagram: &[u8]) {
        self.packets += 1;
        let Ok(header) = Header::decode(datagram) else { return };
        let number = &mut self.numbers[usize::from(to_sink)];
        *number = (*number).max(header.pn);
        let trailing = if to_sink && header.kind != Kind::Data { 8 } else { 0 };
        let body = &datagram[HEADER_LEN..datagram.len() - trailing];
        let came = Arrival { ecn, ..self.now.into() };
        if to_sink {
            let _ = self.sink.handle_datagram(came, header, body);
        } else {
            let _ = self.source.handle_datagram(came, header, body);
        }
    }

    fn forge(&mut self, step: u8, body: &[u8]) {
        let kind = KINDS[usize::from(step >> 3) % KINDS.len()];
        let to_sink = step & 4 == 0;
        let pn = self.numbers[usize::from(to_sink)] + 1 + u64::from(step >> 6);
        let mut datagram = Vec::new();
        Header { kind, session: 1, pn }.encode(&mut datagram);
        datagram.extend_from_slice(body);
        if to_sink && kind != Kind::Data {
            datagram.resize(datagram.len() + 8, 0);
        }
        let ecn = [Codepoint::NotEct, Codepoint::Ect0, Codepoint::Ect1, Codepoint::Ce];
        self.deliver(to_sink, ecn[usize::from(step >> 5 & 3)], &datagram);
        self.drain();
    }

    fn drain(&mut self) {
        let _ = (self.source.report(self.now), self.sink.report(self.now));
        let _ = (self.source.poll_timeout(), self.sink.poll_timeout());
        let _: Vec<Event> = std::iter::from_fn(|| self.source.poll_event()).collect();
        let _: Vec<Event> = std::iter::from_fn(|| self.sink.poll_event()).collect();
        assert!(self.sink.outstanding() <= 5_000);
        assert!(self.source.upcoming().count() <= 70_000, "the queue of wants is bounded");
    }
}
