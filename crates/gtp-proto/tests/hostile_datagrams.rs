//! Any sequence of datagrams, in any order and at any time, into either end of a session.

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::source::SourceConfig;
use gtp_proto::wire::{Control, Header, Hello, Kind};
use gtp_proto::{
    Grant, Law, Link, Revision, Role, SinkConfig, SinkSession, SourceSession, Supplied, Weights,
};
use proptest::prelude::*;

const KINDS: [Kind; 7] = [
    Kind::Data,
    Kind::Hello,
    Kind::HelloAck,
    Kind::Feedback,
    Kind::Request,
    Kind::Status,
    Kind::Close,
];
const LINK: Link = Link { peer_session: 1, ip_overhead: 28, revision: Revision::NEWEST };
const RATE: Rate = Rate::from_mbps(50);

#[derive(Clone, Debug)]
struct Shot {
    kind: Kind,
    pn: u64,
    body: Vec<u8>,
    wait_us: u64,
}

/// Bodies of mostly small numbers, so that many of them are in format.
fn shot() -> impl Strategy<Value = Shot> {
    let byte = prop_oneof![4 => Just(0_u8), 1 => 0..4_u8, 1 => any::<u8>()];
    let len = prop_oneof![Just(39), Just(69), Just(17), 0..100_usize];
    let body = len.prop_flat_map(move |n| proptest::collection::vec(byte.clone(), n));
    let pn = prop_oneof![0..200_u64, any::<u64>()];
    (proptest::sample::select(KINDS.to_vec()), pn, body, 0..50_000_u64)
        .prop_map(|(kind, pn, body, wait_us)| Shot { kind, pn, body, wait_us })
}

fn grant(number: u32) -> Grant {
    Grant { number, rate: RATE, offer: RATE, weight: 1.0, interval: Span::from_millis(10) }
}

proptest! {
    #[test]
    fn no_sequence_of_datagrams_makes_a_session_panic_or_send_without_end(
        shots in proptest::collection::vec(shot(), 1..120),
    ) {
        let mut now = Time::from_nanos(1_000_000_000);
        let (law, weights, max_rate) = (Law::Grant, Weights::ONE, Rate::UNLIMITED);
        let (role, proof_key) = (Role::Responder, [1; 16]);
        let link = LINK;
        let config = SourceConfig { role: role.clone(), link, law, weights, max_rate, proof_key };
        let mut source = SourceSession::new(now, config);
        source.handle_grant(now, grant(0));
        let config_in = SinkConfig { role, link, law, weights, max_rate };
        let mut sink = SinkSession::new(now, config_in);
        sink.begin(1_400);
        sink.assign(0..1_000);
        sink.handle_grant(grant(1));
        let mut head = Vec::new();
        Control::Hello(Hello { sent_at: 0, unit_payload: 9 }).encode(&mut head);
        let hello = Header { kind: Kind::Hello, session: 1, pn: 0 };
        prop_assert!(source.handle_datagram(now.into(), hello, &head).is_ok());
        prop_assert!(sink.handle_datagram(now.into(), hello, &head).is_ok());
        let mut supply = |unit: u64| match unit % 7 {
            0 => Supplied::NotYet,
            1 if unit > 1 << 40 => Supplied::NoSuchUnit,
            _ => Supplied::Ready(100),
        };
        for shot in shots {
            now += Span::from_micros(shot.wait_us);
            let header = Header { kind: shot.kind, session: 1, pn: shot.pn };
            let _ = source.handle_datagram(now.into(), header, &shot.body);
            let _ = sink.handle_datagram(now.into(), header, &shot.body);
            let mut sent = 0;
            while source.poll_transmit(now, &mut supply, &mut head).is_some() {
                sent += 1;
                prop_assert!(sent < 1_000, "the source sends for ever");
            }
            sent = 0;
            while sink.poll_transmit(now, &mut head).is_some() {
                sent += 1;
                prop_assert!(sent < 1_000, "the sink sends for ever");
            }
            let _ = (source.report(now), sink.report(now));
            let _ = (source.poll_timeout(), sink.poll_timeout());
            while source.poll_event().is_some() || sink.poll_event().is_some() {}
        }
    }
}
