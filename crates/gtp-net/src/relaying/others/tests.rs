//! What a sink does about other sinks that repeat themselves, send bad blocks, come again and again
//! or cannot be reached, and what its client hears.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

use super::*;

const OWN: FlowId = 1;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn deeds(others: &mut Others) -> Vec<Deed> {
    std::iter::from_fn(|| others.poll_deed()).collect()
}

/// A sink of ten blocks that reads from sink 1 by session 11, and knows what all blocks are.
fn reading() -> Others {
    let mut others = Others::new(0, 10, RangeSet::new(), RangeSet::new());
    others.handle_peer(at(0), 1);
    assert_eq!(deeds(&mut others), [Deed::Connect(1)]);
    assert!(others.handle_ready(1));
    others.handle_session(1, 11);
    assert!(others.handle_values(0..10));
    others
}

#[test]
fn blocks_that_are_given_twice_are_passed_on_once() {
    let mut others = reading();
    others.handle_give(OWN, vec![2..4, 6..8]);
    assert_eq!(deeds(&mut others), [Deed::Offer(OWN, vec![2..4, 6..8])]);
    others.handle_give(OWN, vec![2..4]);
    assert_eq!(deeds(&mut others), []);
    others.handle_give(OWN, vec![0..9, 9..2_000]);
    assert_eq!(deeds(&mut others), [Deed::Offer(OWN, vec![0..2, 4..6, 8..9, 9..10])]);
    others.handle_give(OWN, vec![0..10, 50..60]);
    assert_eq!(deeds(&mut others), []);
}

#[test]
fn values_that_are_known_are_no_news_and_offer_nothing() {
    let mut others = Others::new(0, 10, RangeSet::new(), RangeSet::new());
    others.handle_peer(at(0), 1);
    others.handle_ready(1);
    others.handle_session(1, 11);
    others.handle_have(1, vec![0..6]);
    assert_eq!(deeds(&mut others), [Deed::Connect(1)], "nobody has said what they are");
    assert!(others.handle_values(0..4));
    assert_eq!(deeds(&mut others), [Deed::Offer(11, vec![0..4])]);
    assert!(!others.handle_values(1..4));
    assert!(others.handle_values(2..8));
    assert_eq!(deeds(&mut others), [Deed::Offer(11, vec![4..6])]);
    assert!(!others.handle_values(10..20), "there is no such block");
    assert_eq!(deeds(&mut others), []);
}

#[test]
fn a_sink_that_says_twice_what_it_has_or_has_what_there_is_not_is_put_out() {
    for said in [vec![3..5, 4..6], vec![8..11], vec![10..11], vec![20..30]] {
        let mut others = reading();
        others.handle_have(1, said.clone());
        let done = deeds(&mut others);
        assert!(matches!(done[..], [Deed::Remove(11), Deed::PutOut(1, _)]), "{said:?}: {done:?}");
        others.handle_peer(at(1_000), 1);
        others.handle_have(1, vec![0..1]);
        assert!(!others.handle_ready(1));
        assert_eq!(deeds(&mut others), [], "it is out for good");
    }
}

#[test]
fn bad_blocks_count_also_when_their_session_has_ended() {
    let mut others = reading();
    others.handle_gone(1);
    assert!(others.handle_ready(1));
    others.handle_session(1, 12);
    assert_eq!(deeds(&mut others), [Deed::Remove(11)]);
    others.handle_bad(99);
    others.handle_bad(11);
    assert_eq!(deeds(&mut others), [], "one may be damage");
    others.handle_bad(11);
    let done = deeds(&mut others);
    assert!(matches!(done[..], [Deed::Remove(12), Deed::PutOut(1, _)]), "{done:?}");
    others.handle_bad(11);
    assert_eq!(deeds(&mut others), [], "it is out once");
}

#[test]
fn a_sink_whose_sessions_end_again_and_again_is_put_out() {
    let mut others = reading();
    for flow in 12..11 + SESSIONS_MOST as FlowId {
        others.handle_lost(flow - 1);
        assert!(others.handle_ready(1));
        others.handle_session(1, flow);
    }
    deeds(&mut others);
    assert!(!others.handle_ready(1));
    let done = deeds(&mut others);
    assert!(matches!(done[..], [Deed::Remove(_), Deed::PutOut(1, _)]), "{done:?}");
}

#[test]
fn a_line_that_has_failed_is_made_anew_after_a_pause_that_grows() {
    let mut others = reading();
    others.handle_end(at(0), 1, Failing::ForNow);
    assert_eq!(deeds(&mut others), [Deed::Remove(11)]);
    others.handle_peer(at(1), 1);
    others.handle_time(at(4));
    assert_eq!(deeds(&mut others), [], "too soon");
    others.handle_time(at(5));
    assert_eq!(deeds(&mut others), [Deed::Connect(1)]);
    others.handle_end(at(5), 1, Failing::ForGood);
    others.handle_time(at(1_000));
    assert_eq!(deeds(&mut others), [], "nobody has named it anew");
    others.handle_peer(at(1_000), 1);
    assert_eq!(deeds(&mut others), [Deed::Connect(1)]);
    others.handle_end(at(1_000), 1, Failing::ForGood);
    others.handle_peer(at(1_001), 1);
    others.handle_time(at(1_019));
    assert_eq!(deeds(&mut others), []);
    others.handle_time(at(1_020));
    assert_eq!(deeds(&mut others), [Deed::Connect(1)]);
    others.handle_no_place(at(1_020), 1);
    others.handle_time(at(1_025));
    assert_eq!(deeds(&mut others), [Deed::Connect(1)], "there may be one later");
}

#[test]
fn the_client_hears_of_files_that_are_given_up_at_any_time_and_each_once() {
    let mut others = Others::new(0, 10, RangeSet::from_iter([0..2]), RangeSet::from_iter([8..9]));
    let words = |others: &mut Others| {
        let ranges = |ranges: Option<BlockRanges>| ranges.map(|ranges| ranges.0);
        let news = others.poll_news().into_iter();
        news.map(|have| (have.blocks.0, ranges(have.kept))).collect::<Vec<_>>()
    };
    assert_eq!(words(&mut others), [(vec![], Some(vec![8..9])), (vec![0..2], None)]);
    assert_eq!(words(&mut others), []);
    others.handle_here(4);
    others.handle_here(5);
    others.handle_unwanted(5..8);
    assert_eq!(words(&mut others), [(vec![], Some(vec![5..8])), (vec![4..5], None)]);
    assert_eq!(words(&mut others), []);
    others.handle_peer(at(0), 3);
    others.handle_ready(3);
    others.handle_session(3, 11);
    others.handle_open(11);
    let reached: Vec<_> = others.poll_news().iter().map(|have| have.reached).collect();
    assert_eq!(reached, [Some(8)], "whom it reads from is news as well");
}
