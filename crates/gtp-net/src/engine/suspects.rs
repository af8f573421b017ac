//! Blocks that failed their check although several sessions had brought parts of them.
//!
//! Nobody can tell from such a block who spoilt it. So it is taken out of the common pool and asked
//! of one session alone, as a whole: if it is bad again that session is guilty; if it is good, one
//! of the others was, and where there is only one other it is named. Each bad answer bars one
//! session from the block, so this ends. It knows neither sockets nor rates.

use std::collections::BTreeMap;
use std::ops::Range;

use gtp_proto::{FlowId, RangeSet};

/// The blocks under suspicion, and how often each session was party to one.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By their first unit.
    blocks: BTreeMap<u64, Suspect>,
    /// Mixed blocks that were bad, by session, less those of which it was acquitted.
    doubts: BTreeMap<FlowId, u32>,
}

#[derive(Debug)]
struct Suspect {
    units: Range<u64>,
    /// Who had brought parts of it when it was bad.
    parties: Vec<FlowId>,
    /// Who is asked for all of it now.
    asked: Option<FlowId>,
}

impl Suspects {
    /// A block with these units was bad, and these sessions had brought it.
    pub fn accuse(&mut self, units: Range<u64>, parties: Vec<FlowId>) {
        for &flow in &parties {
            *self.doubts.entry(flow).or_default() += 1;
        }
        self.blocks.insert(units.start, Suspect { units, parties, asked: None });
    }

    /// The first units of blocks that nobody is asked for.
    pub fn unasked(&self) -> Vec<u64> {
        let unasked = self.blocks.iter().filter(|(_, block)| block.asked.is_none());
        unasked.map(|(&first, _)| first).collect()
    }

    /// Which of `candidates` is asked for a block: whoever is doubted most.
    pub fn choose(&self, candidates: impl Iterator<Item = FlowId>) -> Option<FlowId> {
        let doubt = |flow| self.doubts.get(&flow).copied().unwrap_or(0);
        candidates.max_by_key(|&flow| (doubt(flow), std::cmp::Reverse(flow)))
    }

    /// This session is asked for all of a block; returns its units.
    pub fn ask(&mut self, first: u64, flow: FlowId) -> Option<Range<u64>> {
        let block = self.blocks.get_mut(&first)?;
        block.asked = Some(flow);
        Some(block.units.clone())
    }

    /// Takes the units of suspected blocks out of those that come back from whoever was asked.
    /// Returns the first units of the blocks that must be begun anew, with somebody else.
    pub fn keep_back(&mut self, missing: &mut RangeSet) -> Vec<u64> {
        let mut anew = Vec::new();
        for (&first, block) in &mut self.blocks {
            if missing.remove(block.units.clone()) > 0 {
                block.asked = None;
                anew.push(first);
            }
        }
        anew
    }

    /// A block was checked that `by` alone has brought, and was good: `by` is acquitted. Returns
    /// who must have spoilt it the first time, if only one session can have.
    pub fn clear(&mut self, first: u64, by: FlowId) -> Option<FlowId> {
        let block = self.blocks.remove(&first)?;
        self.doubts.remove(&by);
        let mut others = block.parties.into_iter().filter(|&flow| flow != by);
        let other = others.next()?;
        others.next().is_none().then_some(other)
    }

    /// A block was bad that one session alone had brought: its guilt is known.
    pub fn convict(&mut self, first: u64) {
        self.blocks.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_who_is_party_to_every_bad_block_is_asked_first() {
        let mut suspects = Suspects::default();
        suspects.accuse(0..10, vec![1, 2]);
        suspects.accuse(10..20, vec![2, 3]);
        assert_eq!(suspects.unasked(), [0, 10]);
        assert_eq!(suspects.choose([1, 2, 3].into_iter()), Some(2));
        assert_eq!(suspects.choose([1, 3].into_iter()), Some(1));
        assert_eq!(suspects.choose([].into_iter()), None);
        assert_eq!(suspects.ask(0, 2), Some(0..10));
        assert_eq!(suspects.unasked(), [10]);
    }

    #[test]
    fn a_good_answer_acquits_its_sender_and_names_the_only_other() {
        let mut suspects = Suspects::default();
        suspects.accuse(0..10, vec![1, 2]);
        suspects.ask(0, 2);
        assert_eq!(suspects.clear(0, 2), Some(1));
        assert_eq!(suspects.choose([1, 2].into_iter()), Some(1), "2 is in no doubt any more");
        suspects.accuse(10..20, vec![1, 2, 3]);
        assert_eq!(suspects.clear(10, 3), None, "it may have been 1 or 2");
        assert_eq!(suspects.clear(30, 3), None, "an ordinary block");
    }

    #[test]
    fn what_comes_back_of_a_suspected_block_does_not_go_into_the_pool() {
        let mut suspects = Suspects::default();
        suspects.accuse(10..20, vec![1, 2]);
        suspects.ask(10, 1);
        let mut missing = RangeSet::from_iter([5..13, 18..30]);
        assert_eq!(suspects.keep_back(&mut missing), [10]);
        assert_eq!(missing.iter().collect::<Vec<_>>(), [5..10, 20..30]);
        assert_eq!(suspects.unasked(), [10]);
        let mut others = RangeSet::new();
        others.insert(20..30);
        assert_eq!(suspects.keep_back(&mut others), []);
    }
}
