//! What the source gives to whom where sinks are slow, lost, out of reach, or keep what they get.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

use proptest::prelude::*;

use super::*;

const SLOW: Rate = Rate::ZERO;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn ranges(set: &RangeSet) -> Vec<Range<u64>> {
    set.iter().collect()
}

#[test]
fn each_block_is_given_to_one_sink_and_again_only_when_that_one_is_lost() {
    let mut board = Board::new(20, 3);
    (0..3).for_each(|place| board.join(at(0), place));
    assert_eq!(ranges(&board.give(at(0), 0, SLOW)), [0..8]);
    assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [8..16]);
    assert_eq!(ranges(&board.give(at(0), 2, SLOW)), [16..20]);
    assert!(board.give(at(0), 0, SLOW).is_empty(), "it has not got what it was given");
    (0..4).for_each(|block| board.note_known(block));
    board.note_have(at(100), 0, (&[0..4], &[]), 0b110);
    assert!(board.give(at(100), 1, SLOW).is_empty() && board.give(at(100), 2, SLOW).is_empty());
    board.note_have(at(100), 2, (&[16..20], &[]), 0b011);
    assert!(board.give(at(100), 2, SLOW).is_empty(), "all of it comes from others");
    board.leave(at(100), 0);
    let given = ranges(&board.give(at(200), 2, SLOW));
    assert_eq!(given, [0..4], "so far nobody has got the four that it has");
}

#[test]
fn a_sink_that_does_not_reach_another_is_given_what_that_one_has_and_not_at_once() {
    let mut board = Board::new(8, 2);
    (0..2).for_each(|place| board.join(at(0), place));
    board.give(at(0), 0, SLOW);
    (0..8).for_each(|block| board.note_known(block));
    board.note_have(at(100), 0, (&[0..8], &[]), 0);
    board.note_have(at(100), 1, (&[], &[]), 0);
    assert!(board.give(at(2_900), 1, SLOW).is_empty(), "they may reach each other yet");
    assert!(board.unreached(at(2_900), 1).is_empty());
    assert_eq!(board.unreached(at(3_000), 1), [0]);
    assert_eq!(ranges(&board.give(at(3_000), 1, SLOW)), [0..8]);
}

#[test]
fn what_a_sink_keeps_to_itself_comes_from_the_source() {
    let mut board = Board::new(8, 2);
    (0..2).for_each(|place| board.join(at(0), place));
    board.note_have(at(0), 0, (&[2..4], &[0..2]), 0b10);
    assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [0..8], "nobody is told what they are");
    board.leave(at(0), 1);
    board.join(at(0), 1);
    (0..8).for_each(|block| board.note_known(block));
    assert_eq!(ranges(&board.give(at(0), 1, SLOW)), [0..2, 4..8]);
    board.note_have(at(100), 1, (&[2..4], &[]), 0b01);
    assert!(board.give(at(100), 0, SLOW).is_empty(), "the other one was given the rest");
    assert_eq!(ranges(&board.give(at(3_100), 0, SLOW)), [4..8], "and gets nothing of it");
}

#[test]
fn a_sink_is_given_as_much_as_it_takes_and_of_what_others_lack_as_much_as_it_passes_on() {
    let mut board = Board::new(10_000, 2);
    (0..2).for_each(|place| board.join(at(0), place));
    (0..10_000).for_each(|block| board.note_known(block));
    let fast = Rate::from_mbps(1_000);
    assert_eq!(ranges(&board.give(at(0), 0, fast)), [0..8], "nobody has got anything from it");
    board.note_have(at(100), 0, (&[0..8], &[]), 0b10);
    assert!(board.give(at(100), 0, fast).is_empty(), "only it has them");
    board.note_have(at(300), 1, (&[0..8], &[]), 0b01);
    assert_eq!(ranges(&board.give(at(300), 0, fast)), [8..24], "as much again, and a little");
    board.leave(at(400), 1);
    assert_eq!(board.give(at(400), 0, fast).len(), 238 - 16, "nobody else lacks anything");
}

#[test]
fn what_a_sink_passes_on_to_nobody_is_sent_again_and_it_gets_nothing_first_for_a_while() {
    let mut board = Board::new(1_000, 3);
    (0..3).for_each(|place| board.join(at(0), place));
    (0..1_000).for_each(|block| board.note_known(block));
    for place in 0..3 {
        board.give(at(0), place, SLOW);
    }
    board.note_have(at(100), 0, (&[0..8], &[]), 0b110);
    board.note_have(at(200), 1, (&[8..16], &[]), 0b101);
    board.note_have(at(200), 2, (&[8..24], &[]), 0b011);
    board.note_have(at(300), 1, (&[16..24], &[]), 0b101);
    assert_eq!(board.give(at(3_000), 1, SLOW).first(), Some(24), "not yet");
    board.note_have(at(3_200), 1, (&[24..32], &[]), 0b101);
    board.note_have(at(3_300), 2, (&[24..32], &[]), 0b011);
    assert_eq!(ranges(&board.give(at(3_300), 1, SLOW)), [0..8], "the first one keeps them");
    board.note_have(at(3_400), 1, (&[0..8], &[]), 0b101);
    board.note_have(at(3_400), 0, (&[8..32], &[]), 0b110);
    assert_eq!(ranges(&board.give(at(3_500), 0, SLOW)), [], "the others get what all lack");
    assert_eq!(board.give(at(3_500), 2, SLOW).first(), Some(32));
    board.note_have(at(20_000), 2, (&[32..40], &[]), 0b011);
    board.note_have(at(20_100), 1, (&[32..40], &[]), 0b101);
    assert_eq!(board.give(at(20_100), 0, SLOW).len(), 8, "it has another try");
}

#[test]
fn who_claims_what_it_cannot_have_got_hides_from_nobody_how_slow_another_one_is() {
    let mut board = Board::new(1_000, 3);
    (0..3).for_each(|place| board.join(at(0), place));
    (0..1_000).for_each(|block| board.note_known(block));
    board.give(at(0), 0, SLOW);
    board.note_have(at(100), 0, (&[0..8], &[]), 0b110);
    board.note_have(at(200), 2, (&[0..1_000], &[]), 0b011);
    assert!(board.give(at(200), 0, SLOW).is_empty(), "nobody has got anything from it yet");
    board.note_have(at(300), 1, (&[0..8], &[]), 0b101);
    assert!(board.give(at(300), 0, SLOW).is_empty(), "the one that claims may have the rest");
    assert_eq!(board.give(at(3_300), 0, SLOW).len(), 8, "and gives nothing of it");
}

proptest! {
    /// Sinks that take what they are given at once, from the source and from each other, all
    /// get all of it; the source gives each block once if nobody is lost, and a twentieth again
    /// of what goes on slowly; whoever is lost costs no more than what it had.
    #[test]
    fn all_get_all_and_nothing_is_given_twice_unless_somebody_is_lost(
        blocks in 1..300_u64,
        lost_at in 0..40_u64,
        takes in proptest::collection::vec(1..20_u64, 4),
    ) {
        let mut board = Board::new(blocks, 4);
        let mut has = vec![RangeSet::new(); 4];
        let mut given = 0;
        (0..4).for_each(|place| board.join(at(0), place));
        for step in 0..2_000 {
            let now = at(100 * step);
            let alive = if step < lost_at { 4 } else { 3 };
            if step == lost_at {
                board.leave(now, 3);
            }
            for place in 0..alive {
                let gives = board.give(now, place, SLOW);
                given += gives.len();
                let mut news = Vec::new();
                for range in gives.iter().chain(others(&has, place, alive, takes[place])) {
                    range.clone().for_each(|block| board.note_known(block));
                    has[place].insert(range.clone());
                    news.push(range);
                }
                board.note_have(now, place, (&news, &[]), 0b1111);
            }
        }
        for of in &has[..3] {
            prop_assert_eq!(of.len(), blocks);
        }
        let most = blocks + blocks / AGAIN + has[3].len();
        prop_assert!(given <= most, "{} of {}", given, blocks);
    }
}

/// What a sink lacks and others have, a few blocks of each of them: every session is asked.
fn others(
    has: &[RangeSet],
    place: usize,
    alive: usize,
    most: u64,
) -> impl Iterator<Item = Range<u64>> + use<> {
    let mut here = has[place].clone();
    let mut taken = Vec::new();
    for of in has[..alive].iter() {
        let lacks: Vec<u64> = of.iter().flatten().filter(|&block| !here.contains(block)).collect();
        for block in lacks.into_iter().take(most as usize) {
            here.insert_one(block);
            taken.push(block..block + 1);
        }
    }
    taken.into_iter()
}
