//! A source against sinks that lie: about what they may have, what arrived and how fast.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::source::SourceConfig;
use gtp_proto::wire::{
    Control, DataHead, Feedback, HEADER_LEN, Header, Hello, Kind, Receipt, Request, TAG_LEN, Wanted,
};
use gtp_proto::{
    Discard, Event, Grant, Law, Link, Revision, Role, SourceSession, Supplied, Weights,
};

const START: Time = Time::from_nanos(1_000_000_000);
const UNIT: u16 = 1_400;
const PACKET: u64 = 1_400 + 49 + 28;

/// What a sink says about its receipts.
#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// Nothing about any packet.
    Nothing,
    /// The truth, but that all of it arrived within two milliseconds and without delay.
    Fast,
    /// That everything arrived.
    Everything,
}

/// A source, and a sink whose link carries `carries` bits a second and drops the rest.
struct Attack {
    source: SourceSession,
    now: Time,
    pn: u64,
    lie: Lie,
    carries: u64,
    credit: u64,
    /// Packets of the receipt in the making: number, proof, IP bytes, whether they arrived.
    span: Vec<(u64, u16, u64, bool)>,
    arrived_at: u32,
    sent: u64,
    grant: u32,
}

impl Attack {
    fn new(lie: Lie, carries: u64) -> Attack {
        let link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
        let (law, max_rate) = (Law::Grant, Rate::UNLIMITED);
        let (role, proof_key) = (Role::Responder, [5; 16]);
        let config = SourceConfig { role, link, law, weights: Weights::ONE, max_rate, proof_key };
        let mut attack = Attack {
            source: SourceSession::new(START, config),
            now: START,
            pn: 0,
            lie,
            carries,
            credit: 0,
            span: Vec::new(),
            arrived_at: 0,
            sent: 0,
            grant: 1,
        };
        let all = Rate::UNLIMITED;
        let interval = Span::from_millis(10);
        attack
            .source
            .handle_grant(START, Grant { number: 0, rate: all, offer: all, weight: 1.0, interval });
        attack.say(Control::Hello(Hello { sent_at: 0, unit_payload: UNIT })).unwrap();
        attack.ask(1, UNIT, Wanted::Work(std::iter::once(0..1 << 31).collect())).unwrap();
        attack
    }

    fn say(&mut self, control: Control) -> Result<(), Discard> {
        let mut body = Vec::new();
        control.encode(&mut body);
        let header = Header { kind: control.kind(), session: 9, pn: self.pn };
        self.pn += 1;
        self.source.handle_datagram(self.now.into(), header, &body)
    }

    fn ask(&mut self, number: u32, unit_payload: u16, wanted: Wanted) -> Result<(), Discard> {
        self.say(Control::Request(Request { number, unit_payload, wanted }))
    }

    fn receipt(&mut self) -> Receipt {
        let span = std::mem::take(&mut self.span);
        let (Some(first), Some(last)) = (span.first(), span.last()) else {
            return Receipt::default();
        };
        let arrived = |p: &&(u64, u16, u64, bool)| p.3 || self.lie == Lie::Everything;
        let mut gaps: Vec<std::ops::Range<u64>> = Vec::new();
        for (pn, ..) in span.iter().filter(|p| !arrived(p)) {
            match gaps.last_mut() {
                Some(gap) if gap.end == *pn => gap.end += 1,
                Some(_) | None => gaps.push(*pn..pn + 1),
            }
        }
        gaps.truncate(128);
        self.arrived_at += 2_000;
        Receipt {
            span: first.0..last.0 + 1,
            gaps,
            // Of a packet that it has not seen it does not know the proof.
            sum: span.iter().filter(|p| p.3).fold(0, |sum, p| sum.wrapping_add(p.1.into())),
            bytes: span.iter().filter(arrived).map(|p| p.2).sum(),
            arrived_at: self.arrived_at,
        }
    }

    fn feedback(&mut self) -> Result<(), Discard> {
        let receipt = match self.lie {
            Lie::Nothing => Receipt::default(),
            Lie::Fast | Lie::Everything => self.receipt(),
        };
        self.feedback_with(receipt)
    }

    fn feedback_with(&mut self, receipt: Receipt) -> Result<(), Discard> {
        self.say(Control::Feedback(Feedback {
            sent_at: 0,
            grant: self.grant,
            rate: Rate::UNLIMITED,
            offer: Rate::UNLIMITED,
            interval: 10_000,
            echo_at: 0,
            echo_hold: 0,
            delay: 0,
            receipt,
            weight: None,
            delay_most: None,
            ecn: None,
            router_binds: false,
        }))
    }

    /// Takes what the source sends for `ms`, with feedback every 10 ms; IP bytes of data sent.
    fn run(&mut self, ms: u64) -> u64 {
        let before = self.sent;
        for step in 0..ms * 10 {
            self.now += Span::from_micros(100);
            // The queue of the link holds 16 packets.
            self.credit = (self.credit + self.carries / 10_000 / 8).min(16 * PACKET);
            self.take();
            if step % 100 == 0 {
                let _ = self.feedback();
            }
        }
        self.sent - before
    }

    fn take(&mut self) {
        let mut head = Vec::new();
        let mut supply = |_unit: u64| Supplied::Ready(UNIT);
        while let Some(out) = self.source.poll_transmit(self.now, &mut supply, &mut head) {
            let unit = out.unit.map_or(0, |u| u64::from(u.len));
            let bytes = (head.len() + TAG_LEN) as u64 + unit + 28;
            let header = Header::decode(&head).unwrap();
            let body = &head[HEADER_LEN..];
            let arrives = self.credit >= bytes;
            match header.kind {
                Kind::Data => {
                    let padded = [body, &[0]].concat();
                    let proof = DataHead::decode(&padded).unwrap().0.proof;
                    self.sent += bytes;
                    self.credit -= if arrives { bytes } else { 0 };
                    self.span.push((header.pn, proof, bytes, arrives));
                }
                Kind::Status => {
                    let status = Control::decode(header.kind, body).unwrap().unwrap();
                    let Control::Status(status) = status else { panic!() };
                    self.span.push((header.pn, status.proof, 0, true));
                }
                _ => self.span.push((header.pn, 0, 0, true)),
            }
        }
    }

    fn violated(&mut self) -> bool {
        std::iter::from_fn(|| self.source.poll_event()).any(|e| matches!(e, Event::Violated(_)))
    }
}

#[test]
fn an_absurd_grant_without_an_echo_brings_64_packets_in_all() {
    let mut attack = Attack::new(Lie::Nothing, 1_000_000_000);
    let sent = attack.run(1_000);
    // 64 of 1,500 bytes, as many shorter ones as they are.
    assert!((96_000..96_000 + PACKET).contains(&sent), "{sent}");
}

#[test]
fn a_sink_that_claims_faster_arrival_gets_little_more_than_its_link_carries() {
    let mut attack = Attack::new(Lie::Fast, 10_000_000);
    attack.run(4_000);
    let sent = attack.run(2_000) * 8 / 2;
    assert!(!attack.violated());
    assert!(sent <= 20_000_000, "{sent} bit/s into a link of 10 Mbit/s");
}

#[test]
fn a_sink_that_claims_what_was_lost_is_found_out_at_once() {
    let mut attack = Attack::new(Lie::Everything, 10_000_000);
    attack.run(500);
    assert!(attack.violated());
    assert_eq!(attack.run(1_000), 0, "nothing more is sent to it");
    assert!(!attack.violated(), "it is said once");
    assert!(matches!(attack.feedback(), Err(Discard::Violation(_))));
}

#[test]
fn requests_by_another_length_or_a_begin_far_ahead_are_ignored() {
    let mut attack = Attack::new(Lie::Nothing, 1_000_000_000);
    let work = || Wanted::Work(std::iter::once(0..10).collect());
    let ignored: [(u32, u16, Wanted); 5] = [
        (2, UNIT - 1, work()),
        (2, UNIT + 1, work()),
        (2, UNIT + 1, Wanted::Begin),
        (100, UNIT - 1, Wanted::Begin),
        (u32::MAX, UNIT - 1, Wanted::Begin),
    ];
    for (number, unit, wanted) in ignored {
        let said = format!("{number} {unit} {wanted:?}");
        assert_eq!(attack.ask(number, unit, wanted), Err(Discard::Early), "{said}");
    }
    assert!(!attack.violated());
    attack.ask(2, UNIT, work()).unwrap();
    attack.ask(3 + 64, UNIT - 1, Wanted::Begin).unwrap();
    attack.ask(3 + 65, UNIT - 1, work()).unwrap();
    assert!(!attack.violated());
}

type Case = fn(&mut Attack) -> Result<(), Discard>;

#[test]
fn rules_that_an_honest_sink_keeps_end_the_session_when_broken() {
    let cases: [Case; 4] = [
        |a| {
            a.feedback()?;
            a.grant = 0;
            a.feedback()
        },
        |a| a.feedback_with(Receipt { span: 0..1_000_000, ..Receipt::default() }),
        |a| {
            a.ask(2, UNIT - 1, Wanted::Begin)?;
            a.ask(3, UNIT - 2, Wanted::Begin)
        },
        |a| {
            a.run(50);
            let receipt = a.receipt();
            a.feedback_with(Receipt { sum: receipt.sum ^ 1, ..receipt })
        },
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let mut attack = Attack::new(Lie::Nothing, 1_000_000_000);
        let outcome = case(&mut attack);
        assert!(matches!(outcome, Err(Discard::Violation(_))), "case {i}: {outcome:?}");
        assert!(attack.violated(), "case {i}");
        assert_eq!(attack.run(100), 0, "case {i}");
    }
}

#[test]
fn a_unit_beyond_the_row_ends_the_session() {
    let mut attack = Attack::new(Lie::Nothing, 0);
    attack.feedback().unwrap();
    attack.now += Span::from_millis(5);
    let mut head = Vec::new();
    let mut supply = |_unit: u64| Supplied::NoSuchUnit;
    while attack.source.poll_transmit(attack.now, &mut supply, &mut head).is_some() {}
    assert!(attack.violated());
}

#[test]
fn datagrams_of_a_source_are_misdirected_at_a_source() {
    let mut attack = Attack::new(Lie::Nothing, 0);
    let header = Header { kind: Kind::Data, session: 9, pn: 100 };
    let outcome = attack.source.handle_datagram(attack.now.into(), header, &[0; 40]);
    assert_eq!(outcome, Err(Discard::Misdirected));
    assert!(!attack.violated());
}

#[test]
fn replayed_and_reordered_feedback_changes_nothing() {
    let mut attack = Attack::new(Lie::Nothing, 0);
    attack.pn = 50;
    attack.feedback().unwrap();
    attack.pn = 50;
    assert_eq!(attack.feedback(), Err(Discard::Replayed));
    attack.pn = 40;
    (attack.grant, attack.pn) = (0, 40);
    assert_eq!(attack.feedback(), Err(Discard::Stale));
    assert!(!attack.violated());
}

#[test]
fn a_flood_of_hellos_is_answered_with_no_more_bytes_than_it_brings() {
    let mut attack = Attack::new(Lie::Nothing, 0);
    let mut answers = 0;
    for _ in 0..10_000 {
        attack.say(Control::Hello(Hello { sent_at: 0, unit_payload: UNIT })).unwrap();
        let mut head = Vec::new();
        let mut supply = |_unit: u64| Supplied::NotYet;
        while attack.source.poll_transmit(attack.now, &mut supply, &mut head).is_some() {
            answers += usize::from(Header::decode(&head).unwrap().kind == Kind::HelloAck);
        }
    }
    assert_eq!(answers, gtp_proto::limits::HELLOS_ANSWERED as usize);
}

#[test]
fn units_longer_than_the_path_was_opened_for_end_the_session() {
    let link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
    let (law, role) = (Law::Grant, Role::Responder);
    for (probed, asked, passes) in [
        (1_400, 1_400, true),
        (1_400, 1_180, true),
        (1_180, 1_400, false),
        (u16::MAX, 9_000, false),
    ] {
        let config = SourceConfig {
            role: role.clone(),
            link,
            law,
            weights: Weights::ONE,
            max_rate: Rate::UNLIMITED,
            proof_key: [5; 16],
        };
        let mut attack = Attack::new(Lie::Nothing, 0);
        (attack.source, attack.pn) = (SourceSession::new(START, config), 0);
        attack.say(Control::Hello(Hello { sent_at: 0, unit_payload: probed })).unwrap();
        let answer = attack.ask(1, asked, Wanted::Drop);
        assert_eq!(answer.is_ok(), passes, "{probed} {asked}: {answer:?}");
    }
}

#[test]
fn a_source_whose_factor_of_the_weight_changes_says_so_at_once() {
    let mut attack = Attack::new(Lie::Nothing, 0);
    let rate = Rate::UNLIMITED;
    let interval = Span::from_millis(10);
    let grant = Grant { number: 0, rate, offer: rate, weight: 0.5, interval };
    attack.source.handle_grant(START, grant);
    let mut head = Vec::new();
    let said = std::iter::from_fn(|| {
        attack.source.poll_transmit(START, &mut |_: u64| Supplied::NotYet, &mut head)?;
        let header = Header::decode(&head).unwrap();
        Some(Control::decode(header.kind, &head[13..]).unwrap())
    });
    let status = said.flatten().find_map(|control| match control {
        Control::Status(status) => Some(status.weight),
        Control::Hello(_)
        | Control::HelloAck(_)
        | Control::Feedback(_)
        | Control::Request(_)
        | Control::Close => None,
    });
    assert_eq!(status, Some(Some(0.5)));
}
