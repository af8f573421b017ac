//! One object from several sources.
//!
//! Units that nobody was asked for lie in a pool. Each session takes blocks from it whenever it
//! has less outstanding than its rate will bring in a short horizon, so work is split by rate
//! without anybody planning it, and all sources end together. When an idle source finds nothing in
//! the pool and another would still be busy for long, that one is asked to let go of what it has
//! not sent, so that no unit is ever wanted of two sources at once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_ranges::RangeSet;

use crate::report::FlowId;

/// How the host describes one session of the group.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The session.
    pub id: FlowId,
    /// Units assigned and not here.
    pub outstanding: u64,
    /// The rate at which it may send.
    pub granted: Rate,
    /// The rate at which it does.
    pub received: Rate,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// The sink's control interval.
    pub interval: Span,
}

/// The units of one object that are still to be asked for.
#[derive(Debug, Default)]
pub struct Group {
    pool: RangeSet,
    /// Units that must not come from a source again: what it sent was bad.
    barred: BTreeMap<FlowId, RangeSet>,
    /// Of sources that do not have the whole object, the units that they have and that are not
    /// here.
    offers: BTreeMap<FlowId, RangeSet>,
}

/// Work beyond round trip and intervals: covers late wake-ups and the reading ahead at the source.
const SLACK: Span = Span::from_millis(80);
/// No source is asked for less than this much at a time, whatever its rate.
const LEAST_OUTSTANDING: u64 = 256;
/// A source that would be busy for this much longer than others are idle gives its work back.
pub const TAIL_PATIENCE: Span = Span::from_millis(400);

impl Group {
    /// A group that wants `units`.
    pub fn new(units: Range<u64>) -> Group {
        Group {
            pool: RangeSet::from_iter([units]),
            barred: BTreeMap::new(),
            offers: BTreeMap::new(),
        }
    }

    /// The units of `range` are here already, or not wanted.
    pub fn have(&mut self, range: Range<u64>) {
        self.pool.remove(range);
    }

    /// Whether `unit` is wanted and no source is asked for it.
    pub fn is_free(&self, unit: u64) -> bool {
        self.pool.contains(unit)
    }

    /// Units of `range` that are wanted and that no source is asked for.
    pub fn free_in(&self, range: Range<u64>) -> u64 {
        self.pool.within(range).map(|free| free.end - free.start).sum()
    }

    /// Units that nobody is asked for.
    pub fn unassigned(&self) -> u64 {
        self.pool.len()
    }

    /// The lowest unit that nobody is asked for.
    pub fn first_unassigned(&self) -> Option<u64> {
        self.pool.first()
    }

    /// These units will not come from whoever was asked.
    pub fn give_back(&mut self, units: &RangeSet) {
        for range in units.iter() {
            self.pool.insert(range);
        }
    }

    /// What came for `range` from `source` was bad: it is wanted again, but not from there.
    pub fn refetch(&mut self, range: Range<u64>, source: FlowId) {
        self.barred.entry(source).or_default().insert(range.clone());
        self.pool.insert(range);
    }

    /// Whether `source` must not be asked for `unit`.
    pub fn is_barred(&self, source: FlowId, unit: u64) -> bool {
        self.barred.get(&source).is_some_and(|bad| bad.contains(unit))
    }

    /// `source` has only these units so far. More may follow; an empty range says that it has none
    /// yet.
    pub fn offer(&mut self, source: FlowId, units: Range<u64>) {
        self.offers.entry(source).or_default().insert(units);
    }

    /// `source` is gone.
    pub fn withdraw(&mut self, source: FlowId) {
        self.offers.remove(&source);
    }

    /// Nobody need offer these units any more: they are here.
    pub fn settle(&mut self, units: Range<u64>) {
        for offered in self.offers.values_mut() {
            offered.remove(units.clone());
        }
    }

    /// Whether `source` offers something that is not here. A source that has the whole object
    /// always does.
    pub fn is_offering(&self, source: FlowId) -> bool {
        self.offers.get(&source).is_none_or(|offered| !offered.is_empty())
    }

    /// Whether `source` may be asked for `unit` now: it has the unit and is not barred from it.
    pub fn may_ask(&self, source: FlowId, unit: u64) -> bool {
        let offers = self.offers.get(&source).is_none_or(|offered| offered.contains(unit));
        offers && !self.is_barred(source, unit)
    }

    /// Takes the next block for `source`: the lowest one below `limit` that it may be asked for.
    /// `block_end` gives the end of the block that a unit lies in.
    pub fn take(
        &mut self,
        source: FlowId,
        limit: u64,
        block_end: impl Fn(u64) -> u64,
    ) -> Option<Range<u64>> {
        let (barred, offered) = (self.barred.get(&source), self.offers.get(&source));
        let mut at = self.pool.first()?;
        while at < limit {
            let mut free = self.pool.within(at..limit).next()?;
            if let Some(offered) = offered {
                let ahead = offered.within(free.start..limit).next()?;
                if ahead.start > free.start {
                    at = ahead.start;
                    continue;
                }
                free.end = free.end.min(ahead.end);
            }
            let end = block_end(free.start).min(free.end);
            let hit = barred.and_then(|bad| bad.within(free.start..end).next());
            match hit {
                Some(bad) => at = bad.end,
                None => {
                    self.pool.remove(free.start..end);
                    return Some(free.start..end);
                }
            }
        }
        None
    }

    /// How many more units `member` should be asked for now, with units of `packet` bytes on the
    /// wire.
    pub fn appetite(member: &Member, packet: Bytes) -> u64 {
        let horizon = member.rtt + member.interval * 2 + SLACK;
        // A young session grows fourfold a round trip, though never beyond what it is granted.
        let soon = member.granted.min(member.received.scale(8.0));
        let bytes = soon.bytes_in(horizon);
        let wanted = (bytes.0 / packet.0.max(1)).max(LEAST_OUTSTANDING);
        wanted.saturating_sub(member.outstanding)
    }

    /// The source that would be busy longest, if that is long after others are idle. Call this only
    /// when an idle source finds nothing to do: while there is work to hand out, no source is late.
    pub fn overloaded(members: &[Member], packet: Bytes) -> Option<FlowId> {
        if members.iter().all(|m| m.outstanding > 0) {
            return None;
        }
        let busy_for = |m: &Member| Bytes(m.outstanding * packet.0) / m.received;
        let late: Vec<&Member> = members
            .iter()
            .filter(|m| m.outstanding > 0 && busy_for(m) > m.rtt + m.interval * 2 + TAIL_PATIENCE)
            .collect();
        late.into_iter().max_by_key(|m| (busy_for(m), m.id)).map(|m| m.id)
    }
}
