//! Paths that carry, mark, bleach and drop, and sinks that lie.

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A tick of the line, which is also the time between two receipts.
const TICK: Span = Span::from_millis(5);
/// Ticks until a receipt is here.
const LATE: usize = 4;
/// Data packets in a tick, after one status, which is counted as well.
const PACKETS: u64 = 6;

/// A source and an honest sink with a path between them.
struct Line {
    ecn: Validation,
    now: Time,
    next_pn: u64,
    /// Packets from here on are in no receipt yet, and those among them that were lost.
    unsaid: u64,
    lost: RangeSet,
    counts: EcnCounts,
    under_way: VecDeque<(Receipt, EcnCounts)>,
    /// Packets that left as ECT(0), and marks that were to be heeded.
    sent: u64,
    marks: u64,
}

impl Line {
    fn new() -> Line {
        let (ecn, now, counts) = (Validation::new(true), Time::ZERO, EcnCounts::default());
        let (unsaid, lost, under_way) = (0, RangeSet::new(), VecDeque::new());
        Line { ecn, now, next_pn: 0, unsaid, lost, counts, under_way, sent: 0, marks: 0 }
    }

    /// A tick over a path that makes this of a packet's bits; none is a loss. `hears` is what the
    /// source is told of the counts that an honest sink would tell, or that the feedback is lost.
    fn tick(
        &mut self,
        mut path: impl FnMut(Codepoint) -> Option<Codepoint>,
        hears: impl FnOnce(EcnCounts) -> Option<Option<EcnCounts>>,
    ) {
        let (rtt, mut newest) = (TICK * LATE as u64, self.unsaid);
        for number in 0..=PACKETS {
            let pn = self.next_pn;
            self.next_pn += 1;
            let bits = match number {
                0 => self.ecn.send_status(self.now, pn, rtt),
                _ => self.ecn.send(pn),
            };
            assert!(bits == Codepoint::Ect0 || bits == Codepoint::NotEct);
            self.sent += u64::from(bits == Codepoint::Ect0);
            match path(bits) {
                Some(bits) => {
                    self.counts.add(bits);
                    newest = pn + 1;
                }
                None => drop(self.lost.insert(pn..pn + 1)),
            }
        }
        let span = self.unsaid..newest;
        let gaps = self.lost.within(span.clone()).collect();
        self.lost.remove(span.clone());
        self.unsaid = newest;
        self.under_way.push_back((Receipt { span, gaps, ..Receipt::default() }, self.counts));
        self.now += TICK;
        if self.under_way.len() <= LATE {
            return;
        }
        let Some((receipt, counts)) = self.under_way.pop_front() else { return };
        let Some(counts) = hears(counts).filter(|_| !receipt.span.is_empty()) else { return };
        let (now, next_pn) = (self.now, self.next_pn);
        self.marks += self.ecn.hear(&Heard { now, rtt, receipt: &receipt, counts, next_pn });
    }

    /// So many ticks over such a path to an honest sink.
    fn run(&mut self, ticks: usize, mut path: impl FnMut(Codepoint) -> Option<Codepoint>) {
        (0..ticks).for_each(|_| self.tick(&mut path, |counts| Some(Some(counts))));
    }

    fn state(&self) -> EcnState {
        self.ecn.standing().state
    }
}

fn bleaches(_: Codepoint) -> Option<Codepoint> {
    Some(Codepoint::NotEct)
}

/// A path that drops what has bits.
fn drops(bits: Codepoint) -> Option<Codepoint> {
    (bits == Codepoint::NotEct).then_some(bits)
}

/// A path that marks every `nth` packet that has bits.
fn marks(nth: u64) -> impl FnMut(Codepoint) -> Option<Codepoint> {
    let mut number = 0;
    move |bits| {
        number += u64::from(bits == Codepoint::Ect0);
        let marked = bits == Codepoint::Ect0 && number.is_multiple_of(nth);
        Some(if marked { Codepoint::Ce } else { bits })
    }
}

const FAILED: fn(EcnFailure) -> EcnState = EcnState::Failed;

#[test]
fn after_ten_packets_and_a_round_trip_data_carry_the_bits_and_each_mark_is_told_once() {
    let mut line = Line::new();
    line.run(LATE, Some);
    assert_eq!((line.state(), line.sent), (EcnState::Testing, TESTED));
    line.run(2, Some);
    assert_eq!(line.state(), EcnState::On);
    line.run(1_000, marks(50));
    line.run(LATE, Some);
    let told = u64::from(line.counts.ce);
    assert_eq!((line.marks, line.ecn.standing().marks), (told, told));
    assert!((139..=141).contains(&told), "{told}");
    assert_eq!(line.state(), EcnState::On);
}

#[test]
fn a_path_that_clears_the_bits_or_drops_packets_that_have_them_is_found_and_they_are_sent_no_more()
{
    type Road = fn(Codepoint) -> Option<Codepoint>;
    // That all are lost is tested twice.
    let cases: [(Road, EcnFailure, u64); 2] =
        [(bleaches, EcnFailure::Bleached, TESTED), (drops, EcnFailure::Dropped, 2 * TESTED)];
    for (path, why, sent) in cases {
        let mut line = Line::new();
        line.run(100, path);
        assert_eq!((line.state(), line.sent, line.marks), (FAILED(why), sent, 0));
    }
}

#[test]
fn a_path_that_begins_to_clear_the_bits_is_found_by_the_first_receipt() {
    let mut line = Line::new();
    line.run(50, Some);
    line.run(LATE + 1, bleaches);
    assert_eq!(line.state(), FAILED(EcnFailure::Bleached));
}

#[test]
fn a_path_that_begins_to_drop_what_has_bits_is_tested_again_and_an_outage_of_all_is_not() {
    let mut line = Line::new();
    line.run(50, Some);
    line.run(100, drops);
    assert_eq!(line.state(), FAILED(EcnFailure::Dropped));
    let mut line = Line::new();
    line.run(50, Some);
    let before = line.sent;
    line.run(20, |_| None);
    line.run(20, Some);
    assert_eq!((line.state(), line.sent - before), (EcnState::On, 40 * (PACKETS + 1)));
}

#[test]
fn a_path_that_marks_everything_fails_at_once_or_later_and_one_that_marks_much_for_a_moment_not() {
    let marked = |bits| (bits == Codepoint::NotEct).then_some(bits).or(Some(Codepoint::Ce));
    let mut line = Line::new();
    line.run(100, marked);
    assert_eq!((line.state(), line.marks), (FAILED(EcnFailure::AllMarked), 0));
    let mut line = Line::new();
    line.run(50, Some);
    line.run(100, marked);
    line.run(50, Some);
    assert_eq!(line.state(), EcnState::On, "half a second");
    line.run(300, marked);
    assert_eq!(line.state(), FAILED(EcnFailure::AllMarked));
}

#[test]
fn a_sink_that_counts_nothing_shrinks_exceeds_or_tells_of_other_bits_ends_ecn_and_is_not_heeded() {
    type Lie = fn(EcnCounts) -> Option<EcnCounts>;
    let lies: [(Lie, EcnFailure); 5] = [
        (|_| None, EcnFailure::Uncounted),
        (|told| Some(EcnCounts { ect0: told.ect0 + 1, ..told }), EcnFailure::Contradicted),
        (|told| Some(EcnCounts { ect0: 0, ..told }), EcnFailure::Contradicted),
        (|told| Some(EcnCounts { ect0: told.ect0 - 1, ..told }), EcnFailure::Bleached),
        (
            |told| Some(EcnCounts { ect1: told.ect1 + 1, ect0: told.ect0 - 1, ..told }),
            EcnFailure::Contradicted,
        ),
    ];
    for (lie, why) in lies {
        let mut line = Line::new();
        line.run(50, Some);
        line.tick(Some, |told| Some(lie(told)));
        assert_eq!((line.state(), line.marks), (FAILED(why), 0), "{why:?}");
        let before = line.sent;
        line.run(50, marks(2));
        assert_eq!((line.sent, line.marks), (before, 0), "nothing is sent or heeded any more");
    }
}

#[test]
fn feedback_that_is_lost_neither_fails_a_test_nor_hides_a_mark() {
    let mut line = Line::new();
    let mut path = marks(10);
    for tick in 0..200 {
        let lost = tick % 3 > 0;
        line.tick(&mut path, |told| (!lost).then_some(Some(told)));
    }
    line.run(LATE + 1, Some);
    assert_eq!(line.state(), EcnState::On);
    assert_eq!(line.marks, u64::from(line.counts.ce));
}

#[test]
fn if_all_feedback_on_a_test_is_lost_it_is_tested_again() {
    let mut line = Line::new();
    (0..LATE + 10).for_each(|_| line.tick(bleaches, |_| None));
    line.run(1, bleaches);
    assert_eq!(line.state(), EcnState::Testing);
    line.run(LATE + 3, Some);
    assert_eq!((line.state(), line.sent > 2 * TESTED), (EcnState::On, true));
}

#[test]
fn a_path_that_loses_all_packets_of_a_test_once_is_believed() {
    let mut line = Line::new();
    let mut left = TESTED;
    let mut loses_first = |bits| {
        let lost = bits == Codepoint::Ect0 && left > 0;
        left -= u64::from(lost);
        (!lost).then_some(bits)
    };
    line.run(50, &mut loses_first);
    assert_eq!(line.state(), EcnState::On);
}

#[test]
fn a_new_path_is_tested_whatever_was_found_of_the_old_one_and_whatever_that_still_brings() {
    let mut line = Line::new();
    line.run(50, bleaches);
    assert_eq!(line.state(), FAILED(EcnFailure::Bleached));
    line.ecn.handle_new_path(line.next_pn);
    line.run(10, Some);
    assert_eq!(line.state(), EcnState::On);
    line.ecn.handle_new_path(line.next_pn);
    line.run(50, drops);
    assert_eq!(line.state(), FAILED(EcnFailure::Dropped), "what the old path brought is no proof");
    line.ecn.allow(false, line.next_pn);
    line.run(10, Some);
    assert_eq!(line.state(), EcnState::Off);
    line.ecn.allow(true, line.next_pn);
    line.run(10, Some);
    assert_eq!(line.state(), EcnState::On);
}

#[test]
fn counts_that_pass_their_largest_number_go_on_from_nought() {
    let mut line = Line::new();
    let near = u32::MAX - 50;
    (line.counts.ect0, line.counts.ce) = (near, near);
    line.ecn.counts = line.counts;
    line.run(300, marks(3));
    assert_eq!(line.state(), EcnState::On);
    assert!(line.counts.ect0 < near && line.counts.ce < near);
}

/// What a hostile sink says in place of what an honest one would.
fn lie() -> impl Strategy<Value = Option<Option<[i64; 3]>>> {
    let small = -3..=3_i64;
    let any = prop_oneof![8 => Just(0), 2 => small, 1 => any::<i64>()];
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(None)),
        8 => [any.clone(), any.clone(), any].prop_map(|more| Some(Some(more))),
    ]
}

/// What a path does to the bits in one tick.
fn fate() -> impl Strategy<Value = Vec<Option<Codepoint>>> {
    let bits = prop_oneof![
        6 => Just(Some(Codepoint::Ect0)),
        2 => Just(Some(Codepoint::Ce)),
        1 => Just(Some(Codepoint::Ect1)),
        1 => Just(Some(Codepoint::NotEct)),
        1 => Just(None),
    ];
    prop::collection::vec(bits, PACKETS as usize + 1)
}

proptest! {
    #[test]
    fn whatever_a_sink_says_no_more_marks_are_heeded_than_packets_left_and_a_failure_stays(
        steps in prop::collection::vec((fate(), lie()), 0..200),
        honest in 0..60_usize,
    ) {
        let mut line = Line::new();
        line.run(honest, Some);
        for (fates, lie) in steps {
            let (before, sent) = (line.state(), line.sent);
            let mut fates = fates.into_iter();
            let path = |bits| match (bits, fates.next().flatten()) {
                (Codepoint::NotEct, fate) => fate.map(|_| bits),
                (_, fate) => fate,
            };
            line.tick(path, |told| {
                let add = |count: u32, more: i64| count.wrapping_add(more as u32);
                lie.map(|more| more.map(|[ect0, ect1, ce]| EcnCounts {
                    ect0: add(told.ect0, ect0),
                    ect1: add(told.ect1, ect1),
                    ce: add(told.ce, ce),
                }))
            });
            prop_assert!(line.marks <= line.sent, "{} of {}", line.marks, line.sent);
            if let EcnState::Failed(_) = before {
                prop_assert_eq!((line.state(), line.sent), (before, sent));
            }
        }
    }

    #[test]
    fn an_honest_sink_over_a_path_that_only_loses_and_marks_is_believed(
        seed in any::<u64>(),
        loss in 0.0..0.4_f64,
        marked in 0.0..0.6_f64,
        deaf in 0.0..0.5_f64,
    ) {
        let (mut line, mut dice) = (Line::new(), seed);
        let mut draw = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 11) as f64 / (1_u64 << 53) as f64
        };
        for _ in 0..400 {
            let is_deaf = draw() < deaf;
            let path = |bits| match (draw(), bits) {
                (drawn, _) if drawn < loss => None,
                (_, Codepoint::Ect0) if draw() < marked => Some(Codepoint::Ce),
                (_, bits) => Some(bits),
            };
            line.tick(path, |told| (!is_deaf).then_some(Some(told)));
            prop_assert!(
                !matches!(line.state(), EcnState::Failed(why) if why != EcnFailure::AllMarked),
                "{:?}", line.state()
            );
        }
    }
}
