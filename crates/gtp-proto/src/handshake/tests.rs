//! Hellos that arrive, get lost, or are too long for the path.

use std::vec;
use std::vec::Vec;

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);
const RTT: Span = Span::from_millis(40);

/// Runs both ends; `carries` says which hellos get through, by their number and size.
fn meet(
    unit_payloads: &[u16],
    mut carries: impl FnMut(usize, u16) -> bool,
) -> (Option<Outcome>, Option<Outcome>, Time, usize) {
    let role = Role::Initiator { unit_payloads: unit_payloads.to_vec() };
    let mut near = Handshake::new(START, role);
    let mut far = Handshake::new(START, Role::Responder);
    let (mut now, mut hellos) = (START, 0);
    let mut on_the_way: Vec<(Time, bool, Hello)> = Vec::new();
    let (mut opened, mut heard) = (None, None);
    while now.since(START) < Span::from_secs(6) && opened.is_none() {
        while let Some(out) = near.poll_hello(now) {
            let HelloOut::Hello(hello) = out else { panic!("an answer to nothing") };
            hellos += 1;
            if carries(hellos, hello.unit_payload) {
                on_the_way.push((now + RTT / 2, true, hello));
            }
        }
        while let Some(out) = far.poll_hello(now) {
            let HelloOut::Ack(hello) = out else { panic!("the responder asks nothing") };
            on_the_way.push((now + RTT / 2, false, hello));
        }
        let (due, later) = on_the_way.into_iter().partition(|(at, ..)| *at <= now);
        on_the_way = later;
        let due: Vec<(Time, bool, Hello)> = due;
        for (_, to_far, hello) in due {
            if to_far {
                far.handle_hello(hello);
            } else {
                near.handle_ack(now, hello, RTT);
            }
        }
        opened = opened.or(near.poll_outcome());
        heard = heard.or(far.poll_outcome());
        now += Span::from_millis(1);
    }
    (opened, heard, now, hellos)
}

const SIZES: [u16; 3] = [8_900, 1_400, 1_180];

fn open(unit_payload: u16) -> Option<Outcome> {
    Some(Outcome::Open { unit_payload })
}

#[test]
fn the_longest_size_that_the_path_carries_is_chosen() {
    for carried in SIZES {
        let (near, far, at, _) = meet(&SIZES, |_, size| size <= carried);
        assert_eq!(near, open(carried));
        assert!(matches!(far, Some(Outcome::Open { .. })));
        // The shortest is settled for after the longer ones were asked for once more.
        let trips = if carried == 1_180 { RTT * 2 } else { RTT };
        assert!(at.since(START) <= trips + RTT / 2, "{:?}", at.since(START));
    }
}

#[test]
fn hellos_that_came_before_the_responder_knew_of_the_session_do_not_shorten_the_units() {
    // Of two sizes, each twice, the first ones are lost.
    for lost in 0..4 {
        let (near, _, at, hellos) = meet(&[1_400, 1_180], |n, _| n > lost);
        assert_eq!(near, open(1_400), "{lost} hellos lost");
        let trips = if lost < 2 { 1 } else { 2 };
        assert!(at.since(START) <= RTT * trips + Span::from_millis(5), "{lost}: {at:?}");
        assert_eq!(hellos, if lost < 2 { 4 } else { 6 }, "{lost} hellos lost");
    }
}

#[test]
fn the_loss_of_one_hello_of_each_size_changes_nothing() {
    let (near, _, at, _) = meet(&SIZES, |n, size| n % 2 == 0 && size <= 1_400);
    assert_eq!(near, open(1_400));
    assert!(at.since(START) <= RTT + RTT / 2);
}

#[test]
fn hellos_are_repeated_until_one_comes_through() {
    for lost_rounds in 1..7_usize {
        let (near, _, _, hellos) = meet(&[1_400], |n, _| n > 2 * lost_rounds);
        assert_eq!(near, open(1_400), "{lost_rounds} rounds lost");
        assert_eq!(hellos, 2 * lost_rounds + 2);
    }
}

#[test]
fn an_initiator_gives_up_a_path_that_carries_nothing_at_the_limit() {
    let (near, _, at, hellos) = meet(&SIZES, |_, _| false);
    assert_eq!(near, Some(Outcome::NoPath));
    assert!(at.since(START).as_millis().abs_diff(HANDSHAKE_TIMEOUT.as_millis()) <= 2);
    assert!(hellos <= 7 * 6);
}

#[test]
fn a_host_that_gets_to_nothing_for_long_sends_as_many_rounds_before_it_gives_up() {
    let rounds = |late: &[u64]| {
        let mut near = Handshake::new(START, Role::Initiator { unit_payloads: vec![1_400] });
        let (mut hellos, mut looks) = (0, 0);
        while let Some(at) = near.poll_timeout() {
            let now = at + Span::from_millis(late.get(looks).copied().unwrap_or(0));
            looks += 1;
            while near.poll_hello(now).is_some() {
                hellos += 1;
            }
        }
        assert_eq!(near.poll_outcome(), Some(Outcome::NoPath));
        hellos / COPIES
    };
    let prompt = rounds(&[]);
    assert_eq!(prompt, 7);
    for late in [&[6_000][..], &[0, 0, 5_000], &[900; 7], &[5_000; 7]] {
        assert_eq!(rounds(late), prompt, "{late:?} ms late");
    }
}

#[test]
fn a_path_that_comes_back_is_found_within_a_second() {
    // Twice two sizes a round, and never more than a second until the next.
    let mut hellos = Vec::new();
    let mut near = Handshake::new(START, Role::Initiator { unit_payloads: vec![1_400, 1_180] });
    while let Some(at) = near.poll_timeout() {
        while near.poll_hello(at).is_some() {
            hellos.push(at);
        }
    }
    let gaps = hellos.windows(2).map(|pair| pair[1].since(pair[0]));
    assert_eq!(gaps.max(), Some(RETRY_MOST));
    let last = hellos.last().map(|at| at.since(START) + RETRY_MOST);
    assert!(last.is_some_and(|end| end > HANDSHAKE_TIMEOUT));
}

#[test]
fn a_responder_waits_as_long_as_the_initiator_prepares() {
    let mut far = Handshake::new(START, Role::Responder);
    let late = START + Span::from_secs(600);
    assert_eq!((far.poll_timeout(), far.poll_hello(late), far.poll_outcome()), (None, None, None));
    let hello = Hello { sent_at: 7, unit_payload: 1_400 };
    far.handle_hello(hello);
    assert_eq!(far.poll_hello(late), Some(HelloOut::Ack(hello)));
    assert_eq!(far.poll_outcome(), open(1_400));
}

#[test]
fn the_responder_is_silent_until_it_has_heard_a_hello() {
    let mut far = Handshake::new(START, Role::Responder);
    assert_eq!(far.poll_hello(START), None);
    let hello = Hello { sent_at: 7, unit_payload: 1_400 };
    far.handle_hello(hello);
    assert_eq!(far.poll_hello(START), Some(HelloOut::Ack(hello)));
    assert_eq!(far.poll_hello(START), None, "one answer for one hello");
    assert!(far.is_open());
}

#[test]
fn an_answer_to_a_size_never_tried_is_ignored() {
    let mut near = Handshake::new(START, Role::Initiator { unit_payloads: vec![1_400] });
    near.handle_ack(START, Hello { sent_at: 0, unit_payload: 9_000 }, RTT);
    assert!(!near.is_open() && near.poll_outcome().is_none());
}

#[test]
fn a_longer_answer_that_comes_late_still_wins() {
    let mut near = Handshake::new(START, Role::Initiator { unit_payloads: SIZES.to_vec() });
    let ack = |unit_payload| Hello { sent_at: 0, unit_payload };
    near.handle_ack(START, ack(1_180), RTT);
    near.handle_ack(START + Span::from_millis(3), ack(1_400), RTT);
    near.handle_ack(START + Span::from_millis(4), ack(1_180), RTT);
    assert_eq!(near.poll_outcome(), None, "a longer one may follow");
    near.poll_hello(START + Span::from_millis(3) + RTT / 4);
    while near.poll_hello(START + Span::from_millis(3) + RTT / 4).is_some() {}
    assert_eq!(near.poll_outcome(), open(1_400));
}

#[test]
fn a_flood_of_hellos_is_answered_a_bounded_number_of_times() {
    let mut far = Handshake::new(START, Role::Responder);
    let mut answers = 0;
    for sent_at in 0..10_000 {
        far.handle_hello(Hello { sent_at, unit_payload: 1_400 });
        while far.poll_hello(START).is_some() {
            answers += 1;
        }
    }
    assert_eq!(answers, HELLOS_ANSWERED);
    assert!(far.poll_timeout().is_none());
}
