//! A sink against sources that lie: about grants, progress, units and time.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::limits::{PN_AHEAD, RTT_MOST};
use gtp_proto::report::LimitedBy;
use gtp_proto::sink::Received;
use gtp_proto::wire::{Control, DataHead, Header, Hello, Kind, Status, Wanted};
use gtp_proto::{
    Discard, Event, Grant, Law, Link, Phase, Revision, Role, SinkConfig, SinkSession, Weights,
};

const START: Time = Time::from_nanos(1_000_000_000);
const UNIT: u16 = 1_400;

#[test]
fn a_sink_that_gives_up_a_path_sends_nothing_but_hellos() {
    let link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
    let role = Role::Initiator { unit_payloads: vec![UNIT] };
    let (law, weights, max_rate) = (Law::Grant, Weights::ONE, Rate::UNLIMITED);
    let config = SinkConfig { role, link, law, weights, max_rate };
    let mut victim = Victim { sink: SinkSession::new(START, config), now: START, pn: 0 };
    let (mut sent, mut gave_up) = (Vec::new(), false);
    while let Some((at, _)) = victim.sink.poll_timeout().filter(|_| !gave_up) {
        victim.now = at.max(victim.now);
        sent.extend(victim.transmit());
        while let Some(event) = victim.sink.poll_event() {
            gave_up |= event == Event::NoPath;
        }
    }
    victim.sink.close(victim.now);
    sent.extend(victim.transmit());
    assert!(gave_up && sent.len() == 14, "{sent:?}");
    assert!(sent.iter().all(|control| matches!(control, Control::Hello(_))), "{sent:?}");
}

struct Victim {
    sink: SinkSession,
    now: Time,
    pn: u64,
}

impl Victim {
    fn new(units: u64) -> Victim {
        Victim::under(Law::Grant, units)
    }

    fn under(law: Law, units: u64) -> Victim {
        let link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
        let role = Role::Responder;
        let config =
            SinkConfig { role, link, law, weights: Weights::ONE, max_rate: Rate::UNLIMITED };
        let mut sink = SinkSession::new(START, config);
        sink.begin(UNIT);
        sink.assign(0..units);
        let rate = Rate::from_mbps(100);
        sink.handle_grant(Grant {
            number: 1,
            rate,
            offer: rate,
            weight: 1.0,
            interval: Span::from_millis(20),
        });
        let mut victim = Victim { sink, now: START, pn: 0 };
        victim.say(Control::Hello(Hello { sent_at: 0, unit_payload: UNIT })).unwrap();
        victim.transmit();
        victim
    }

    /// All datagrams that the sink sends now.
    fn transmit(&mut self) -> Vec<Control> {
        let mut head = Vec::new();
        let mut out = Vec::new();
        while self.sink.poll_transmit(self.now, &mut head).is_some() {
            let header = Header::decode(&head).unwrap();
            out.extend(Control::decode(header.kind, &head[13..]).unwrap());
        }
        out
    }

    fn say(&mut self, control: Control) -> Result<(), Discard> {
        let mut body = Vec::new();
        control.encode(&mut body);
        let header = Header { kind: control.kind(), session: 9, pn: self.pn };
        self.pn += 1;
        self.sink.handle_datagram(self.now.into(), header, &body).map(|_| ())
    }

    fn data(&mut self, grant: u32, request: u32, unit: u64) -> Result<(), Discard> {
        let mut body = Vec::new();
        DataHead { proof: 0, sent_at: 0, grant, request, unit }.encode(&mut body);
        body.push(0);
        let header = Header { kind: Kind::Data, session: 9, pn: self.pn };
        self.pn += 1;
        match self.sink.handle_datagram(self.now.into(), header, &body)? {
            Received::Unit { number, payload } => assert_eq!((number, payload.len()), (unit, 1)),
            Received::Control => panic!("a unit is not control"),
        }
        Ok(())
    }

    fn status(&mut self, fields: Status) -> Result<(), Discard> {
        self.say(Control::Status(fields))
    }

    fn violated(&mut self) -> bool {
        std::iter::from_fn(|| self.sink.poll_event()).any(|e| matches!(e, Event::Violated(_)))
    }
}

const STATUS: Status = Status {
    proof: 0,
    sent_at: 0,
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
};

#[test]
fn an_echo_of_a_grant_never_made_ends_the_session() {
    for by_status in [true, false] {
        let mut victim = Victim::new(100);
        let outcome = match by_status {
            true => victim.status(Status { grant: 2, ..STATUS }),
            false => victim.data(2, 1, 0),
        };
        assert!(matches!(outcome, Err(Discard::Violation(_))), "{outcome:?}");
        assert!(victim.violated());
        assert!(matches!(victim.sink.report(victim.now).phase, Phase::Closing));
        let _ = victim.data(u32::MAX, 1, 0);
        assert!(!victim.violated(), "it is said once");
    }
}

/// Sends data at so many times the grant of 100 Mbit/s for a time.
fn flood(victim: &mut Victim, times: u64, span: Span) {
    let packet = Span::from_nanos(1_500 * 8 * 10 / times);
    let end = victim.now + span;
    let mut body = Vec::new();
    DataHead { proof: 0, sent_at: 0, grant: 1, request: 1, unit: 0 }.encode(&mut body);
    body.resize(1_459, 0);
    while victim.now < end {
        let header = Header { kind: Kind::Data, session: 9, pn: victim.pn };
        victim.pn += 1;
        victim.now += packet;
        let _ = victim.sink.handle_datagram(victim.now.into(), header, &body);
        victim.transmit();
    }
}

#[test]
fn a_source_far_above_its_grant_for_two_leases_is_closed_and_a_late_burst_is_not() {
    for law in [Law::Grant, Law::EndNode { alpha: 0.1, beta: 0.2 }] {
        let mut late = Victim::under(law, 100);
        flood(&mut late, 1, Span::from_secs(3));
        flood(&mut late, 3, Span::from_millis(500)); // A second's worth, late.
        flood(&mut late, 1, Span::from_secs(3));
        assert!(!late.violated(), "a path that stood still brings what was sent in time");
        flood(&mut late, 3, Span::from_secs(4));
        assert!(late.violated(), "{law:?}");
    }
}

#[test]
fn a_flood_that_rests_now_and_then_is_found_all_the_same() {
    let mut victim = Victim::new(100);
    for _ in 0..10 {
        flood(&mut victim, 5, Span::from_millis(900));
        victim.now += Span::from_millis(100);
        victim.transmit();
    }
    assert!(victim.violated());
}

#[test]
fn units_not_wanted_and_units_twice_are_counted_and_not_placed() {
    let mut victim = Victim::new(100);
    assert_eq!(victim.data(1, 1, 5), Ok(()));
    assert_eq!(victim.data(1, 1, 5), Err(Discard::NotWanted));
    assert_eq!(victim.data(1, 7, (1 << 48) - 1), Err(Discard::NotWanted));
    let counters = victim.sink.counters();
    assert_eq!((counters.duplicates, counters.duplicate_bytes), (2, 2));
    assert_eq!(victim.sink.outstanding(), 99);
}

#[test]
fn replays_and_numbers_too_far_ahead_are_dropped_before_they_count() {
    let mut victim = Victim::new(100);
    victim.data(1, 1, 1).unwrap();
    victim.pn -= 1;
    assert_eq!(victim.data(1, 1, 2), Err(Discard::Replayed));
    victim.pn = PN_AHEAD * 2;
    assert_eq!(victim.data(1, 1, 2), Err(Discard::TooFarAhead));
    assert_eq!(victim.sink.counters().packets, 1);
}

#[test]
fn a_source_that_claims_to_be_done_is_asked_again_and_again_within_bounds() {
    let mut victim = Victim::new(5_000);
    let mut asked = 0;
    for _ in 0..500 {
        victim.now += Span::from_millis(20);
        let done = Status { requests_next: u32::MAX, work_front: u32::MAX, ..STATUS };
        victim.status(Status { repair_front: u32::MAX, ..done }).unwrap();
        asked += victim
            .transmit()
            .iter()
            .filter(|c| matches!(c, Control::Request(q) if q.wanted != Wanted::Drop))
            .count();
    }
    assert_eq!(victim.sink.outstanding(), 5_000);
    assert!((10..=1_000).contains(&asked), "at most two an interval: {asked}");
}

#[test]
fn a_forged_round_trip_time_is_believed_up_to_the_limit() {
    let mut victim = Victim::new(100);
    for _ in 0..100 {
        victim.now += Span::from_secs(1);
        let echo_at = victim.now.as_wire_micros().wrapping_sub(2_000_000_000);
        victim.status(Status { echo_at, ..STATUS }).unwrap();
    }
    assert!(victim.sink.rtt() <= RTT_MOST);
}

#[test]
fn loss_in_batches_of_any_size_never_makes_a_receipt_claim_what_is_missing() {
    // A whole batch is taken in before the sink may send.
    let mut victim = Victim::new(100_000);
    let mut arrived = std::collections::BTreeSet::new();
    let mut covered = 0;
    for batch in 0..40_u64 {
        victim.now += Span::from_millis(1);
        for i in 0..1_000_u64 {
            victim.pn = batch * 1_000 + i + 10;
            if i % 3 != 0 {
                arrived.insert(victim.pn);
                victim.data(1, 1, batch * 1_000 + i).unwrap();
            }
        }
        for control in victim.transmit() {
            let Control::Feedback(feedback) = control else { continue };
            let receipt = feedback.receipt;
            covered += receipt.span.end - receipt.span.start;
            for pn in receipt.span.clone().filter(|pn| *pn >= 10) {
                let missing = receipt.gaps.iter().any(|gap| gap.contains(&pn));
                assert_eq!(missing, !arrived.contains(&pn), "packet {pn}");
            }
        }
    }
    assert!(covered >= 40_000 - 400, "{covered}");
}

#[test]
fn datagrams_of_a_sink_are_misdirected_at_a_sink() {
    let mut victim = Victim::new(1);
    let request = gtp_proto::wire::Request { number: 1, unit_payload: 1, wanted: Wanted::Drop };
    assert_eq!(victim.say(Control::Request(request)), Err(Discard::Misdirected));
    assert!(!victim.violated());
}

#[test]
fn gaps_left_by_misdirected_datagrams_never_overfill_a_receipt() {
    let mut victim = Victim::new(100);
    let request = gtp_proto::wire::Request { number: 1, unit_payload: 1, wanted: Wanted::Drop };
    for _ in 0..1_000 {
        victim.pn += 1;
        let said = victim.say(Control::Request(request.clone()));
        assert_eq!(said, Err(Discard::Misdirected));
    }
    victim.pn += 1;
    victim.status(STATUS).unwrap();
    // Every datagram that leaves is decoded here: one too long would not be.
    assert!(victim.transmit().len() >= 1_000 / 128);
}

#[test]
fn an_echo_counts_after_the_guard_time_wherever_the_source_clock_stands() {
    for sent_at in [0, 1, 1 << 31, 3_000_000_000, u32::MAX] {
        let mut victim = Victim::new(100);
        victim.status(Status { grant: 1, sent_at, ..STATUS }).unwrap();
        assert_eq!(victim.sink.report(victim.now).echoed, 0);
        victim.now += Span::from_millis(2);
        assert_eq!(victim.sink.report(victim.now).echoed, 1, "{sent_at}");
    }
}

#[test]
fn a_source_may_lessen_its_sessions_weight_and_never_raise_it() {
    let mut victim = Victim::new(10);
    for (said, counts) in [(Some(0.25), 0.25), (Some(50.0), 1.0), (None, 1.0)] {
        victim.status(Status { weight: said, ..STATUS }).unwrap();
        assert_eq!(victim.sink.report(victim.now).peer_weight, counts);
    }
    let stale = Header { kind: Kind::Status, session: 9, pn: victim.pn };
    victim.pn += 1;
    victim.status(Status { weight: Some(0.5), ..STATUS }).unwrap();
    let mut body = Vec::new();
    Control::Status(Status { weight: Some(0.125), ..STATUS }).encode(&mut body);
    victim.sink.handle_datagram(victim.now.into(), stale, &body).unwrap();
    assert_eq!(victim.sink.report(victim.now).peer_weight, 0.5, "an older status says nothing");
}

#[test]
fn a_sink_whose_factor_of_the_weight_changes_says_so_at_once_and_then_always() {
    let mut victim = Victim::new(10);
    let said = |sent: Vec<Control>| -> Vec<Option<f32>> {
        sent.iter()
            .filter_map(|c| if let Control::Feedback(f) = c { Some(f.weight) } else { None })
            .collect()
    };
    victim.transmit();
    let rate = Rate::from_mbps(100);
    let interval = Span::from_millis(20);
    let grant = Grant { number: 1, rate, offer: rate, weight: 0.5, interval };
    victim.sink.handle_grant(grant);
    assert_eq!(said(victim.transmit()), [Some(0.5)]);
    victim.now += interval;
    assert_eq!(said(victim.transmit()), [Some(0.5)]);
    victim.sink.handle_grant(Grant { weight: 1.0, ..grant });
    assert_eq!(said(victim.transmit()), [None]);
}

/// Asks once more for all that a session has not brought, as its host does at its end.
fn returned(victim: &mut Victim) -> Vec<std::ops::Range<u64>> {
    victim.sink.abandon().iter().collect()
}

#[test]
fn whatever_ends_a_session_all_that_it_has_not_brought_comes_back_to_the_host() {
    type End = fn(&mut Victim);
    let ends: [(&str, End); 5] = [
        ("an echo in data", |victim| assert!(victim.data(2, 1, 5).is_err())),
        ("an echo in a status", |victim| {
            assert!(victim.status(Status { grant: 2, ..STATUS }).is_err());
        }),
        ("too much", |victim| flood(victim, 8, Span::from_secs(4))),
        ("silence", |victim| {
            victim.now += Span::from_secs(31);
            victim.transmit();
        }),
        ("its host", |victim| victim.sink.close(victim.now)),
    ];
    for (name, end) in ends {
        let mut victim = Victim::new(100);
        victim.data(1, 1, 40).unwrap();
        end(&mut victim);
        let more = victim.sink.counters().packets;
        assert!(more >= 1, "{name}");
        victim.sink.assign(100..110); // Its host has not heard yet.
        let back: Vec<_> = returned(&mut victim);
        // A flood brings unit 0 as well.
        let first = if name == "too much" { 1 } else { 0 };
        assert_eq!(back, [first..40, 41..110], "{name}");
        assert!(returned(&mut victim).is_empty(), "{name}: each unit comes back once");
        assert!((0..110).all(|unit| !victim.sink.owes(unit)), "{name}");
    }
}
