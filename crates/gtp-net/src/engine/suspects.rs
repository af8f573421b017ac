//! Blocks that failed their check although several sessions had brought parts of them.
//!
//! Nobody can tell from such a block who spoilt it, so it is taken out of the common pool and asked
//! of one session alone, as a whole. Only what one session alone has brought proves anything: a bad
//! block its guilt. A good one proves nothing, for it knows that it is being tested; so it clears
//! the block and nobody's name. Doubts are no verdict: they say whom to ask first, and what a
//! doubted session leaves unfinished is not mixed again with what others send. Each bad answer bars
//! one session from the block, and who gives one back comes last, so this ends. It knows neither
//! sockets nor rates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gtp_alloc::{Span, Time};
use gtp_proto::{FlowId, RangeSet};

/// The blocks under suspicion, and what is known of the sessions.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By their first unit.
    blocks: BTreeMap<u64, Suspect>,
    /// Those of them that nobody is asked for.
    unasked: BTreeSet<u64>,
    /// Those of them that each session is asked for. A source that spoils blocks decides how many
    /// there are, so nobody looks through all of them for one block, nor for a session at each
    /// look.
    asked: BTreeMap<FlowId, BTreeSet<u64>>,
    /// Bad blocks that each session had brought a part of.
    doubts: BTreeMap<FlowId, u32>,
    /// Blocks asked of it alone that each session has given back unfinished.
    returned: BTreeMap<FlowId, u32>,
    /// Blocks that a session alone has spoilt and that are still wanted, with the last such one.
    spoilt: BTreeMap<u64, FlowId>,
}

#[derive(Debug)]
struct Suspect {
    units: Range<u64>,
    /// Who is asked for all of it now.
    asked: Option<Asked>,
    /// How often it was asked for and given back.
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    of: FlowId,
    since: Time,
    /// How long it may take before it counts as late. It doubles with each try, so that some try is
    /// long enough for anybody.
    grace: Span,
}

/// Nobody is given longer at the first try: a block at 1 Mbit/s.
pub(super) const GRACE_MOST: Span = Span::from_secs(2);
/// More doublings than this would be longer than any transfer.
const DOUBLINGS_MOST: u32 = 16;

impl Suspects {
    /// A block with these units was bad, and these sessions had brought it.
    pub fn accuse(&mut self, units: Range<u64>, parties: impl Iterator<Item = FlowId>) {
        for flow in parties {
            *self.doubts.entry(flow).or_default() += 1;
        }
        self.ask_alone(units);
    }

    /// This session may spoil blocks, since its source has broken a rule before.
    pub fn doubt(&mut self, flow: FlowId) {
        self.doubts.entry(flow).or_insert(1);
    }

    /// Whether this session was party to a bad block, or may spoil one.
    pub fn is_doubted(&self, flow: FlowId) -> bool {
        self.doubts.contains_key(&flow)
    }

    /// A doubted session has left a block unfinished: somebody is asked for the whole of it, so
    /// that nothing is mixed.
    pub fn put_aside(&mut self, units: Range<u64>, by: FlowId) {
        *self.returned.entry(by).or_default() += 1;
        self.ask_alone(units);
    }

    fn ask_alone(&mut self, units: Range<u64>) {
        self.remove(units.start);
        self.unasked.insert(units.start);
        self.blocks.insert(units.start, Suspect { units, asked: None, tries: 0 });
    }

    fn remove(&mut self, first: u64) {
        self.unasked.remove(&first);
        let asked = self.blocks.remove(&first).and_then(|block| block.asked);
        asked.inspect(|asked| take_out(&mut self.asked, asked.of, first));
    }

    /// The first units of blocks that nobody is asked for.
    pub fn unasked(&self) -> Vec<u64> {
        self.unasked.iter().copied().collect()
    }

    /// Whether nobody is asked for the suspected block of `unit`.
    #[cfg(test)]
    pub fn is_free(&self, unit: u64) -> bool {
        let free = |block: &Suspect| block.asked.is_none() && block.units.contains(&unit);
        self.blocks.values().any(free)
    }

    /// Which of `candidates` is asked for a block: of those that gave the fewest back, and are
    /// asked for the fewest now, whoever is doubted most.
    pub fn choose(&self, candidates: impl Iterator<Item = FlowId>) -> Option<FlowId> {
        let of = |counts: &BTreeMap<FlowId, u32>, flow| counts.get(&flow).copied().unwrap_or(0);
        let doubts = |flow| Reverse(of(&self.doubts, flow));
        candidates
            .min_by_key(|&flow| (of(&self.returned, flow), self.asked_of(flow), doubts(flow), flow))
    }

    /// For how many blocks this session is asked alone.
    fn asked_of(&self, flow: FlowId) -> usize {
        self.asked.get(&flow).map_or(0, BTreeSet::len)
    }

    /// The block that begins with this unit, if it is suspected.
    pub fn units(&self, first: u64) -> Option<Range<u64>> {
        self.blocks.get(&first).map(|block| block.units.clone())
    }

    /// This session is asked for all of a block from `now` on, and may take this long at the first
    /// try; returns its units.
    pub fn ask(
        &mut self,
        now: Time,
        first: u64,
        (flow, grace): (FlowId, Span),
    ) -> Option<Range<u64>> {
        let block = self.blocks.get_mut(&first)?;
        let asked = Asked { of: flow, since: now, grace: grace.min(GRACE_MOST) };
        let before = block.asked.replace(asked);
        before.inspect(|before| take_out(&mut self.asked, before.of, first));
        self.asked.entry(flow).or_default().insert(first);
        self.unasked.remove(&first);
        Some(block.units.clone())
    }

    /// Whether this session must be let finish a block that it was asked for alone: what it has
    /// brought of it would be lost.
    pub fn is_spared(&self, flow: FlowId, now: Time) -> bool {
        let mut blocks = self.asked.get(&flow).into_iter().flatten();
        blocks.any(|first| self.blocks.get(first).is_some_and(|block| !block.is_late(now)))
    }

    /// Takes the units of suspected blocks out of those that come back from `by`, which was asked
    /// for them. Returns the first units of the blocks that must be begun anew.
    pub fn keep_back(&mut self, missing: &mut RangeSet, by: FlowId) -> Vec<u64> {
        let mut anew = Vec::new();
        if missing.is_empty() {
            return anew;
        }
        for (&first, block) in &mut self.blocks {
            if missing.remove(block.units.clone()) > 0 {
                let asked = block.asked.take();
                asked.inspect(|asked| take_out(&mut self.asked, asked.of, first));
                self.unasked.insert(first);
                block.tries = block.tries.saturating_add(1);
                *self.returned.entry(by).or_default() += 1;
                anew.push(first);
            }
        }
        anew
    }

    /// A block is good.
    pub fn clear(&mut self, first: u64) {
        self.remove(first);
        self.spoilt.remove(&first);
    }

    /// A block was bad that `by` alone had brought: its guilt is known.
    pub fn convict(&mut self, first: u64, by: FlowId) {
        self.remove(first);
        self.spoilt.insert(first, by);
    }

    /// The first units of the blocks that some session alone has spoilt and that are still
    /// wanted, each with the last such session.
    pub fn spoilt(&self) -> impl Iterator<Item = (u64, FlowId)> + '_ {
        self.spoilt.iter().map(|(&first, &by)| (first, by))
    }
}

impl Suspect {
    /// Whether the session that is asked for it has had all the time for it.
    fn is_late(&self, now: Time) -> bool {
        let tries = 1 << self.tries.min(DOUBLINGS_MOST);
        self.asked.is_none_or(|asked| now.since(asked.since) >= asked.grace * tries)
    }
}

/// This session is no longer asked for a block.
fn take_out(asked: &mut BTreeMap<FlowId, BTreeSet<u64>>, of: FlowId, first: u64) {
    if let Some(blocks) = asked.get_mut(&of) {
        blocks.remove(&first);
        if blocks.is_empty() {
            asked.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each step is a verb, a block, and a session.
    fn apply(suspects: &mut Suspects, (verb, block, flow): (u8, u64, FlowId)) {
        let units = 10 * block..10 * block + 10;
        let first = units.start;
        match verb {
            0 => suspects.accuse(units, [flow, flow + 1].into_iter()),
            1 => suspects.put_aside(units, flow),
            2 | 3 => drop(suspects.ask(Time::ZERO, first, (flow, GRACE_MOST))),
            4 => drop(suspects.keep_back(&mut only(first + 5..first + 15), flow)),
            5 => suspects.clear(first),
            _ => suspects.convict(first, flow),
        }
    }

    proptest! {
        #[test]
        fn each_session_s_blocks_are_those_that_a_look_through_all_of_them_finds(
            steps in prop::collection::vec((0u8..7, 0u64..8, 1u32..5), 0..100),
        ) {
            let mut suspects = Suspects::default();
            for step in steps {
                apply(&mut suspects, step);
                for flow in 0..7 {
                    let of = |block: &Suspect| block.asked.is_some_and(|asked| asked.of == flow);
                    let all = suspects.blocks.iter().filter(|(_, block)| of(block));
                    let found: BTreeSet<u64> = all.map(|(&first, _)| first).collect();
                    let kept = suspects.asked.get(&flow).cloned();
                    prop_assert_eq!(kept.unwrap_or_default(), found, "session {}", flow);
                }
                let unasked = suspects.blocks.iter().filter(|(_, block)| block.asked.is_none());
                let unasked: Vec<u64> = unasked.map(|(&first, _)| first).collect();
                prop_assert_eq!(suspects.unasked(), unasked);
                let is_empty = suspects.asked.values().any(BTreeSet::is_empty);
                prop_assert!(!is_empty, "nothing is kept of sessions that are asked for nothing");
            }
        }
    }

    fn accused(blocks: &[(Range<u64>, &[FlowId])]) -> Suspects {
        let mut suspects = Suspects::default();
        for (units, parties) in blocks {
            suspects.accuse(units.clone(), parties.iter().copied());
        }
        suspects
    }

    fn only(range: Range<u64>) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(range);
        set
    }

    #[test]
    fn the_one_who_is_party_to_every_bad_block_is_asked_first() {
        let mut suspects = accused(&[(0..10, &[1, 2]), (10..20, &[2, 3])]);
        assert_eq!(suspects.unasked(), [0, 10]);
        assert_eq!(suspects.choose([1, 2, 3].into_iter()), Some(2));
        assert_eq!(suspects.choose([1, 3].into_iter()), Some(1));
        assert_eq!(suspects.choose([].into_iter()), None);
        assert_eq!(suspects.ask(Time::ZERO, 0, (2, GRACE_MOST)), Some(0..10));
        assert_eq!(suspects.unasked(), [10]);
    }

    #[test]
    fn a_session_is_doubted_that_was_party_to_a_bad_block_or_may_spoil_one() {
        let mut suspects = accused(&[(0..10, &[1, 1, 2])]);
        [2, 3].into_iter().for_each(|flow| suspects.doubt(flow));
        assert_eq!([1, 2, 3, 4].map(|flow| suspects.is_doubted(flow)), [true, true, true, false]);
        assert_eq!(suspects.choose([3, 2, 1].into_iter()), Some(1), "nothing is forgotten");
    }

    #[test]
    fn several_blocks_are_asked_of_several_sessions_so_that_none_waits_for_another() {
        let mut suspects = accused(&[(0..10, &[1, 2]), (10..20, &[1, 2]), (20..30, &[1, 3])]);
        let mut ask = |first| {
            let flow = suspects.choose([1, 2, 3].into_iter()).unwrap();
            suspects.ask(Time::ZERO, first, (flow, GRACE_MOST));
            flow
        };
        assert_eq!([ask(0), ask(10), ask(20)], [1, 2, 3], "the most doubted one first");
    }

    #[test]
    fn a_good_answer_of_one_who_knows_that_it_is_tested_changes_no_doubt() {
        let mut suspects = accused(&[(0..10, &[1, 2]), (10..20, &[2, 3])]);
        suspects.ask(Time::ZERO, 0, (2, GRACE_MOST));
        suspects.clear(0);
        assert_eq!(suspects.choose([1, 2, 3].into_iter()), Some(2));
        assert!([1, 2, 3].into_iter().all(|flow| suspects.is_doubted(flow)));
        assert_eq!(suspects.spoilt().count(), 0);
        assert_eq!(suspects.unasked(), [10]);
    }

    #[test]
    fn a_spoilt_block_is_remembered_until_it_is_good() {
        let mut suspects = accused(&[(0..10, &[1, 2])]);
        suspects.ask(Time::ZERO, 0, (2, GRACE_MOST));
        suspects.convict(0, 2);
        assert_eq!(suspects.spoilt().collect::<Vec<_>>(), [(0, 2)]);
        assert!(suspects.unasked().is_empty());
        suspects.clear(0);
        assert_eq!(suspects.spoilt().count(), 0);
    }

    #[test]
    fn what_comes_back_of_a_suspected_block_does_not_go_into_the_pool() {
        let mut suspects = accused(&[(10..20, &[1, 2])]);
        suspects.ask(Time::ZERO, 10, (1, GRACE_MOST));
        let mut missing = RangeSet::from_iter([5..13, 18..30]);
        assert_eq!(suspects.keep_back(&mut missing, 1), [10]);
        assert_eq!(missing.iter().collect::<Vec<_>>(), [5..10, 20..30]);
        assert_eq!(suspects.unasked(), [10]);
        assert!(suspects.keep_back(&mut only(20..30), 1).is_empty());
    }

    #[test]
    fn who_gave_a_suspected_block_back_is_asked_last() {
        let mut suspects = accused(&[(0..10, &[1, 2]), (10..20, &[1, 2])]);
        suspects.ask(Time::ZERO, 0, (1, GRACE_MOST));
        suspects.keep_back(&mut only(4..10), 1);
        assert_eq!(suspects.choose([1, 2, 3].into_iter()), Some(2));
        suspects.put_aside(20..30, 2);
        assert_eq!(suspects.choose([1, 2, 3].into_iter()), Some(3), "not doubted, but reliable");
        assert_eq!(suspects.choose([1, 2].into_iter()), Some(1));
        assert_eq!(suspects.unasked(), [0, 10, 20]);
    }

    #[test]
    fn whoever_is_asked_alone_is_spared_for_a_while_and_for_longer_the_next_time() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut suspects = accused(&[(0..10, &[1, 2])]);
        assert!(!suspects.is_spared(1, at(0)));
        suspects.ask(at(0), 0, (1, GRACE_MOST));
        assert!(suspects.is_spared(1, at(1)) && !suspects.is_spared(2, at(1)));
        assert!(!suspects.is_spared(1, at(2)));
        suspects.keep_back(&mut only(4..10), 1);
        assert!(!suspects.is_spared(1, at(2)), "nobody is asked");
        suspects.ask(at(10), 0, (2, GRACE_MOST));
        assert!(suspects.is_spared(2, at(13)) && !suspects.is_spared(2, at(14)));
    }
}
