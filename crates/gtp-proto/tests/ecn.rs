//! ECN from a source's packets to its rate and back: marks slow it down without a loss, and a path
//! or a sink that does not do for it costs nothing but the test.

mod world;

use std::cell::RefCell;
use std::rc::Rc;

use gtp_alloc::{Rate, Span, Time};
use gtp_link::LinkSpec;
use gtp_proto::ecn::{EcnCounts, EcnFailure, EcnState};
use gtp_proto::wire::{Control, HEADER_LEN, Header};
use gtp_proto::{Codepoint, Kept, Law};
use world::{FlowSpec, Marker, Towards, World};

/// A session between hosts without limit, over 100 Mbit/s with a round trip of 20 ms and a queue of
/// 50 ms, under this law.
fn session(law: Law) -> World {
    let mut world = World::new();
    let rate = Rate::from_mbps(100);
    let (delay, queue) = (Span::from_millis(10), rate.bytes_in(Span::from_millis(50)));
    let there = world.link(LinkSpec { rate, delay, queue, ..LinkSpec::default() });
    let back = world.link(LinkSpec { delay, ..LinkSpec::default() });
    let [source, sink] = [0, 1].map(|_| world.host(Rate::UNLIMITED, Rate::UNLIMITED, None));
    world.flow(FlowSpec {
        source,
        sink,
        down: vec![there],
        up: vec![back],
        law,
        weight: 1.0,
        max_rate: Rate::UNLIMITED,
        units: 1 << 40,
    });
    world
}

/// Counts what a source sends with which bits, and changes nothing.
fn counting(sent: &Rc<RefCell<[u64; 4]>>) -> Marker {
    let sent = Rc::clone(sent);
    Box::new(move |_, bits| {
        sent.borrow_mut()[bits as usize] += 1;
        Some(bits)
    })
}

fn state(world: &World) -> EcnState {
    world.flows[0].source.path_standing().ecn.state
}

#[test]
fn data_leave_as_ect0_after_a_test_and_nothing_ever_as_ect1() {
    let (mut world, sent) = (session(Law::Grant), Rc::default());
    world.flows[0].marker = Some(counting(&sent));
    world.run_for(Span::from_secs(2));
    let [plain, ect0, ect1, ce] = *sent.borrow();
    assert_eq!((state(&world), ect1, ce), (EcnState::On, 0, 0));
    let data = world.flows[0].source.counters().packets;
    assert!(ect0 > data * 9 / 10 && plain < data / 50, "{ect0} of {data}, {plain} without");
}

#[test]
fn a_carried_session_and_one_whose_law_heeds_no_marks_send_none_as_ect() {
    let (mut world, sent) = (session(Law::Grant), Rc::default());
    world.flows[0].source.set_kept(Kept::ByCarrier);
    world.flows[0].marker = Some(counting(&sent));
    world.run_for(Span::from_millis(500));
    assert_eq!((state(&world), sent.borrow()[1]), (EcnState::Off, 0));
    world.flows[0].source.set_kept(Kept::ByPathBound);
    world.run_for(Span::from_millis(500));
    assert_eq!(state(&world), EcnState::On, "it is back on UDP");
    let (mut world, sent) = (session(Law::Grant), Rc::default());
    world.flows[0].source.set_kept(Kept::ByNothing);
    world.flows[0].marker = Some(counting(&sent));
    world.run_for(Span::from_millis(500));
    assert_eq!((state(&world), sent.borrow()[1]), (EcnState::Off, 0));
}

/// Marks every `nth` packet with the bits from this time on.
fn marking(nth: u64, from: Time) -> Marker {
    let mut number = 0;
    Box::new(move |now, bits| {
        number += u64::from(bits == Codepoint::Ect0);
        let marked = bits == Codepoint::Ect0 && now >= from && number.is_multiple_of(nth);
        Some(if marked { Codepoint::Ce } else { bits })
    })
}

#[test]
fn marks_lower_the_rate_of_a_session_that_nothing_else_slows_down_and_count_as_no_loss() {
    let rates = [None, Some(200)].map(|nth| {
        let mut world = session(Law::Grant);
        let from = world.now + Span::from_secs(3);
        world.flows[0].marker = nth.map(|nth| marking(nth, from));
        world.run_for(Span::from_secs(6));
        let standing = world.flows[0].source.path_standing();
        assert_eq!(standing.ecn.state, EcnState::On);
        assert_eq!(standing.ecn.marks > 0, nth.is_some());
        assert_eq!(world.flows[0].sink.counters().lost, 0);
        [world.rate(0, 2.0, 3.0), world.rate(0, 4.0, 6.0)]
    });
    let [[before, on], [marked_before, marked]] = rates;
    assert!(before > 80e6 && on > 80e6 && marked_before > 80e6, "{rates:?}");
    assert!(marked < 0.8 * on, "{rates:?}");
}

#[test]
fn a_path_that_drops_packets_with_the_bits_costs_twenty_packets() {
    let mut world = session(Law::Grant);
    world.flows[0].marker = Some(Box::new(|_, bits| (bits == Codepoint::NotEct).then_some(bits)));
    world.run_for(Span::from_secs(2));
    assert_eq!(state(&world), EcnState::Failed(EcnFailure::Dropped));
    assert_eq!(world.flows[0].sink.counters().lost, 20);
    assert!(world.rate(0, 1.0, 2.0) > 80e6);
}

#[test]
fn a_sink_that_tells_of_marks_that_cannot_be_is_not_heeded() {
    let mut world = session(Law::Grant);
    world.flows[0].lie = Some(Box::new(|_, towards, bytes| {
        let header = Header::decode(bytes).expect("our own header");
        let control = Control::decode(header.kind, &bytes[HEADER_LEN..]);
        if let (Towards::Source, Ok(Some(Control::Feedback(mut said)))) = (towards, control) {
            let told = said.ecn.unwrap_or_default();
            said.ecn = Some(EcnCounts { ce: told.ce + 1_000, ..told });
            bytes.truncate(HEADER_LEN);
            Control::Feedback(said).encode(bytes);
        }
        true
    }));
    world.run_for(Span::from_secs(2));
    assert_eq!(state(&world), EcnState::Failed(EcnFailure::Contradicted));
    assert_eq!(world.flows[0].source.path_standing().ecn.marks, 0);
    assert!(world.rate(0, 1.0, 2.0) > 80e6);
}
