//! The group: an object from several sources, no unit asked of two at once.

use std::collections::BTreeMap;
use std::ops::Range;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_proto::group::Member;
use gtp_proto::{FlowId, Group, RangeSet};
use proptest::prelude::*;

const BLOCK: u64 = 16;
const PACKET: Bytes = Bytes(1_477);

fn block_end(unit: u64) -> u64 {
    unit / BLOCK * BLOCK + BLOCK
}

fn member(id: FlowId, outstanding: u64, mbps: u64) -> Member {
    let rate = Rate::from_mbps(mbps);
    Member {
        id,
        outstanding,
        granted: rate,
        received: rate,
        rtt: Span::from_millis(40),
        interval: Span::from_millis(20),
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A source is asked for one more block.
    Take(u32),
    /// All of its oldest block arrives and is good.
    Good(u32),
    /// All of its oldest block arrives and is bad.
    Bad(u32),
    /// It dies, or lets go: what it has not brought goes back.
    GiveBack(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let source = 0..4_u32;
    prop_oneof![
        4 => source.clone().prop_map(Act::Take),
        3 => source.clone().prop_map(Act::Good),
        1 => source.clone().prop_map(Act::Bad),
        1 => source.prop_map(Act::GiveBack),
    ]
}

struct Model {
    group: Group,
    units: u64,
    asked: BTreeMap<u32, Vec<Range<u64>>>,
    here: RangeSet,
    bad: Vec<(u32, Range<u64>)>,
}

impl Model {
    fn new(units: u64) -> Model {
        Model {
            group: Group::new(0..units),
            units,
            asked: BTreeMap::new(),
            here: RangeSet::new(),
            bad: Vec::new(),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Take(source) => {
                let Some(range) = self.group.take(source, self.units, block_end) else { return };
                assert!(range.start < range.end && range.end <= block_end(range.start));
                let twice = self.asked.values().flatten().any(|r| overlap(r, &range));
                assert!(!twice, "{range:?} is asked of two at once");
                assert_eq!(self.here.within(range.clone()).count(), 0, "{range:?} is here");
                let barred = self.bad.iter().any(|(s, r)| *s == source && overlap(r, &range));
                assert!(!barred, "{range:?} was bad from {source}");
                self.asked.entry(source).or_default().push(range);
            }
            Act::Good(source) => {
                if let Some(range) = self.oldest(source) {
                    self.here.insert(range);
                }
            }
            Act::Bad(source) => {
                let Some(range) = self.oldest(source) else { return };
                self.group.refetch(range.clone(), source);
                assert!(self.group.is_barred(source, range.start));
                self.bad.push((source, range));
            }
            Act::GiveBack(source) => {
                let ranges = self.asked.remove(&source).unwrap_or_default();
                self.group.give_back(&ranges.into_iter().collect());
            }
        }
        let asked: u64 = self.asked.values().flatten().map(|r| r.end - r.start).sum();
        let whole = self.here.len() + asked + self.group.unassigned();
        assert_eq!(whole, self.units, "no unit is forgotten or counted twice");
    }

    fn oldest(&mut self, source: u32) -> Option<Range<u64>> {
        let ranges = self.asked.get_mut(&source)?;
        (!ranges.is_empty()).then(|| ranges.remove(0))
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

proptest! {
    #[test]
    fn no_unit_is_asked_of_two_at_once_nor_of_one_that_sent_it_bad(
        units in 1..400_u64,
        acts in proptest::collection::vec(act(), 0..200),
    ) {
        let mut model = Model::new(units);
        for act in acts {
            // The last of all sources is honest, so that the object can be had.
            if !matches!(act, Act::Bad(3)) {
                model.act(act);
            }
        }
        // Whatever has happened, an honest source alone can finish the object.
        for source in 0..3 {
            model.act(Act::GiveBack(source));
        }
        for _ in 0..2 * units {
            model.act(Act::Take(3));
            model.act(Act::Good(3));
        }
        prop_assert_eq!(model.here.len(), units);
        prop_assert_eq!(model.group.first_unassigned(), None);
    }

    #[test]
    fn nothing_beyond_the_limit_is_handed_out(limit in 0..200_u64) {
        let mut group = Group::new(0..400);
        let mut taken = RangeSet::new();
        while let Some(range) = group.take(0, limit, block_end) {
            prop_assert!(range.start < limit);
            taken.insert(range);
        }
        prop_assert!(taken.len() >= limit && taken.len() < limit + BLOCK);
    }

    #[test]
    fn appetite_grows_with_the_rate_and_is_less_what_is_outstanding(
        slow in 1..1_000_u64, more in 0..1_000_u64, outstanding in 0..100_000_u64,
    ) {
        let at = |mbps, outstanding| Group::appetite(&member(0, outstanding, mbps), PACKET);
        prop_assert!(at(slow, 0) <= at(slow + more, 0));
        prop_assert_eq!(at(slow, outstanding), at(slow, 0).saturating_sub(outstanding));
    }
}

#[test]
fn what_is_here_already_is_never_asked_for() {
    let mut group = Group::new(0..64);
    group.have(0..16);
    group.have(20..30);
    assert_eq!(group.take(0, 64, block_end), Some(16..20));
    assert_eq!(group.take(0, 64, block_end), Some(30..32));
    assert_eq!(group.unassigned(), 32);
}

#[test]
fn a_block_that_was_bad_goes_to_another_source_only() {
    let mut group = Group::new(0..32);
    let first = group.take(7, 32, block_end).unwrap();
    group.refetch(first.clone(), 7);
    assert_eq!(group.take(7, 32, block_end), Some(16..32));
    assert_eq!(group.take(7, 32, block_end), None);
    assert_eq!(group.take(8, 32, block_end), Some(first));
}

#[test]
fn work_goes_back_only_while_somebody_is_idle_and_only_from_who_would_be_late() {
    let late = [member(1, 0, 100), member(2, 100_000, 1), member(3, 20_000, 1)];
    assert_eq!(Group::overloaded(&late, PACKET), Some(2), "the latest first");
    let busy = [member(1, 5, 100), member(2, 100_000, 1)];
    assert_eq!(Group::overloaded(&busy, PACKET), None, "nobody is idle");
    let soon = [member(1, 0, 100), member(2, 100, 100)];
    assert_eq!(Group::overloaded(&soon, PACKET), None, "it will be done before anybody else is");
}

#[test]
fn a_source_that_brings_nothing_at_all_is_the_latest() {
    let stuck = Member { received: Rate::ZERO, ..member(9, 1, 1) };
    assert_eq!(Group::overloaded(&[member(1, 0, 1), stuck], PACKET), Some(9));
}

#[test]
fn a_source_with_parts_of_the_object_is_asked_for_these_and_for_nothing_else() {
    let mut group = Group::new(0..8 * BLOCK);
    group.offer(1, 0..0);
    assert!(!group.is_offering(1) && group.is_offering(2));
    assert_eq!(group.take(1, 8 * BLOCK, block_end), None);
    group.offer(1, 2 * BLOCK..3 * BLOCK);
    group.offer(1, 5 * BLOCK..7 * BLOCK);
    assert!(group.may_ask(1, 2 * BLOCK) && !group.may_ask(1, 3 * BLOCK));
    let mut take =
        |source| group.take(source, 8 * BLOCK, block_end).map(|units| units.start / BLOCK);
    assert_eq!(
        [take(1), take(2), take(1), take(1), take(1)],
        [Some(2), Some(0), Some(5), Some(6), None]
    );
    group.settle(2 * BLOCK..3 * BLOCK);
    group.refetch(5 * BLOCK..6 * BLOCK, 1);
    assert!(group.is_offering(1) && !group.may_ask(1, 5 * BLOCK), "it is barred");
    group.settle(5 * BLOCK..7 * BLOCK);
    assert!(!group.is_offering(1));
    group.withdraw(1);
    assert_eq!(group.take(1, 8 * BLOCK, block_end), Some(BLOCK..2 * BLOCK));
}

proptest! {
    #[test]
    fn what_is_offered_in_pieces_is_taken_whole_block_by_whole_block_and_once(
        offers in proptest::collection::vec((1..5_u32, 0..40_u64), 0..120),
    ) {
        let mut group = Group::new(0..40 * BLOCK);
        (1..5).for_each(|source| group.offer(source, 0..0));
        let (mut wanted, mut taken) = (RangeSet::new(), RangeSet::new());
        for (source, block) in offers {
            group.offer(source, block * BLOCK..(block + 1) * BLOCK);
            wanted.insert(block * BLOCK..(block + 1) * BLOCK);
            if let Some(units) = group.take(1 + block as u32 % 4, 40 * BLOCK, block_end) {
                prop_assert_eq!(units.end - units.start, BLOCK);
                prop_assert_eq!(taken.insert(units), BLOCK, "asked of two");
            }
        }
        for source in 1..5 {
            while let Some(units) = group.take(source, 40 * BLOCK, block_end) {
                prop_assert_eq!(taken.insert(units), BLOCK, "asked of two");
            }
        }
        prop_assert_eq!(taken, wanted);
    }
}
