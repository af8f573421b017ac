//! Programs that read late: what they say of the path is about the path.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::report::LimitedBy;
use gtp_proto::wire::{Control, Feedback, Header, Hello, Receipt, Status};
use gtp_proto::{
    Arrival, Codepoint, Grant, Law, Link, Revision, Role, SinkConfig, SinkSession, SourceConfig,
    SourceSession, Supplied, Weights,
};

const START: Time = Time::from_nanos(1_000_000_000);
/// Control intervals, and statuses of the source.
const EVERY: Span = Span::from_millis(20);
const ONE_WAY: Span = Span::from_millis(30);

struct Sink {
    session: SinkSession,
    pn: u64,
}

impl Sink {
    fn new() -> Sink {
        let config = SinkConfig {
            role: Role::Responder,
            link: Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST },
            law: Law::Grant,
            weights: Weights::ONE,
            max_rate: Rate::UNLIMITED,
        };
        let mut session = SinkSession::new(START, config);
        session.begin(1_400);
        session.assign(0..100);
        let rate = Rate::from_mbps(100);
        session.handle_grant(Grant { number: 1, rate, offer: rate, weight: 1.0, interval: EVERY });
        let mut sink = Sink { session, pn: 0 };
        let hello = Control::Hello(Hello { sent_at: 0, unit_payload: 1_400 });
        sink.hear(START.into(), &hello);
        let _ = sink.feedback(START);
        sink
    }

    fn hear(&mut self, came: Arrival, control: &Control) {
        let mut body = Vec::new();
        control.encode(&mut body);
        let header = Header { kind: control.kind(), session: 9, pn: self.pn };
        self.pn += 1;
        self.session.handle_datagram(came, header, &body).unwrap();
    }

    /// The last feedback among all that it sends at `now`.
    fn feedback(&mut self, now: Time) -> Option<Feedback> {
        let (mut head, mut last) = (Vec::new(), None);
        while self.session.poll_transmit(now, &mut head).is_some() {
            let header = Header::decode(&head).unwrap();
            if let Ok(Some(Control::Feedback(feedback))) = Control::decode(header.kind, &head[13..])
            {
                last = Some(feedback);
            }
            head.clear();
        }
        last
    }
}

/// The source says something that leaves at `sent` and needs [`ONE_WAY`].
fn status(sent: Time) -> Control {
    Control::Status(Status {
        proof: 0,
        sent_at: sent.as_wire_micros(),
        grant: 0,
        offer: Rate::UNLIMITED,
        requests_next: 1,
        work_front: 1,
        repair_front: 1,
        echo_at: 0,
        echo_hold: 0,
        limited_by: LimitedBy::Source,
        weight: None,
        work_unit: None,
    })
}

#[test]
fn what_waited_to_be_read_shows_as_no_queue_and_its_time_of_arrival_is_the_true_one() {
    let (mut sink, mut told) = (Sink::new(), 0);
    for turn in 1..60 {
        let sent = START + EVERY * turn;
        let came = sent + ONE_WAY;
        // The program is late by 0 to 18 ms, by as much as a queue that builds up would make it.
        let read = came + Span::from_millis(turn % 10 * 2);
        sink.hear(Arrival { at: came, read, ecn: Codepoint::NotEct }, &status(sent));
        let now = read + Span::from_micros(100);
        let Some(feedback) = sink.feedback(now) else { continue };
        told += 1;
        assert_eq!(feedback.delay, 0, "turn {turn}");
        assert_eq!(feedback.receipt.arrived_at, came.as_wire_micros(), "turn {turn}");
        let held = now.since(came).as_micros() as u32;
        assert_eq!((feedback.echo_at, feedback.echo_hold), (sent.as_wire_micros(), held));
    }
    assert!(told > 40, "{told}");
}

#[test]
fn what_comes_of_a_burst_after_a_feedback_shows_the_queue_that_it_showed_before() {
    let mut sink = Sink::new();
    let queue = Span::from_millis(7);
    let sent = [START, START + EVERY * 2, START + EVERY * 2];
    let waits = [Span::ZERO, queue, queue];
    for (number, (sent, waits)) in (2..).zip(sent.into_iter().zip(waits)) {
        let came = sent + ONE_WAY + waits;
        sink.hear(came.into(), &status(sent));
        let rate = Rate::from_mbps(100);
        let grant = Grant { number, rate, offer: rate, weight: 1.0, interval: EVERY };
        sink.session.handle_grant(grant);
        let feedback = sink.feedback(came).expect("a new grant is told at once");
        assert_eq!(Span::from_micros(feedback.delay.into()), waits, "{number}");
    }
}

/// What the source says at `now`, the last of it.
fn said_by(source: &mut SourceSession, now: Time) -> Option<Status> {
    let (mut head, mut last) = (Vec::new(), None);
    while source.poll_transmit(now, &mut |_| Supplied::NotYet, &mut head).is_some() {
        let header = Header::decode(&head).unwrap();
        if let Ok(Some(Control::Status(status))) = Control::decode(header.kind, &head[13..]) {
            last = Some(status);
        }
        head.clear();
    }
    last
}

#[test]
fn a_source_that_reads_late_takes_the_wait_off_the_round_trip_that_its_sink_measures() {
    let config = SourceConfig {
        role: Role::Responder,
        link: Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST },
        law: Law::Grant,
        weights: Weights::ONE,
        max_rate: Rate::UNLIMITED,
        proof_key: [7; 16],
    };
    let mut source = SourceSession::new(START, config);
    let mut pn = 0;
    let mut hear = |source: &mut SourceSession, came: Arrival, control: &Control| {
        let mut body = Vec::new();
        control.encode(&mut body);
        let header = Header { kind: control.kind(), session: 9, pn };
        pn += 1;
        source.handle_datagram(came, header, &body).unwrap();
    };
    let hello = Control::Hello(Hello { sent_at: 0, unit_payload: 1_400 });
    hear(&mut source, START.into(), &hello);
    let sent = START + Span::from_millis(70);
    let came = sent + ONE_WAY;
    let read = came + Span::from_millis(40);
    let feedback = Control::Feedback(Feedback {
        sent_at: sent.as_wire_micros(),
        grant: 1,
        rate: Rate::from_mbps(10),
        offer: Rate::from_mbps(10),
        interval: EVERY.as_micros() as u32,
        echo_at: 0,
        echo_hold: 0,
        delay: 0,
        receipt: Receipt { span: 0..0, gaps: Vec::new(), sum: 0, bytes: 0, arrived_at: 0 },
        weight: None,
        delay_most: None,
        ecn: None,
        router_binds: false,
    });
    hear(&mut source, Arrival { at: came, read, ecn: Codepoint::NotEct }, &feedback);
    let status = said_by(&mut source, read).expect("a new grant is answered at once");
    assert_eq!(status.echo_at, sent.as_wire_micros());
    assert_eq!(status.echo_hold, 40_000);
}
