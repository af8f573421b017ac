//! What happens next: a tournament among actors, each of which has one wish at most.
//!
//! An actor is whatever can want to be woken: a link whose first packet arrives, a host, one end of
//! a session. Their wishes are the leaves of a binary tree whose every node names the earlier of
//! its two sides, so that a changed wish costs one comparison a level, none of them waiting for
//! a guess of the one before, and however many packets are under way. The order is that of (time,
//! sequence number): equal times are served in the order in which they were asked for.

use gtp_alloc::Time;

/// An actor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ActorId(pub u32);

/// When an actor is to be woken: time first, then the order of asking. One number, because one
/// comparison of it is what everything here costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// Later than every wish.
    pub const NEVER: Key = Key(u128::MAX);

    #[inline]
    pub const fn new(at: Time, sequence: u64) -> Key {
        Key((at.as_nanos() as u128) << 64 | sequence as u128)
    }

    #[inline]
    pub const fn at(self) -> Time {
        Time::from_nanos((self.0 >> 64) as u64)
    }
}

/// A tournament of wishes; see the module's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// Each actor's wish; as many as the tree has leaves, a power of two, or none.
    wishes: Vec<Key>,
    /// The earliest actor below each inner node: the root is 1, below `n` are `2 n` and `2 n + 1`.
    winners: Vec<u32>,
    actors: u32,
    sequence: u64,
}

/// Leaves of the smallest tree.
const LEAVES_LEAST: usize = 16;

impl Schedule {
    /// A new actor, without a wish.
    pub fn add_actor(&mut self) -> ActorId {
        let actor = self.actors;
        self.actors += 1;
        if actor as usize >= self.wishes.len() {
            self.grow();
        }
        ActorId(actor)
    }

    /// A sequence number for something that is asked for now.
    #[inline]
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The earliest wish.
    #[inline]
    pub fn peek(&self) -> Option<(Key, ActorId)> {
        let winner = *self.winners.get(1)?;
        let key = self.wishes[winner as usize];
        (key != Key::NEVER).then_some((key, ActorId(winner)))
    }

    /// The wish of an actor, [`Key::NEVER`] if it has none.
    #[cfg(test)]
    pub fn key(&self, actor: ActorId) -> Key {
        self.wishes[actor.0 as usize]
    }

    /// Wakes `actor` at `at`, after all that was asked for that time before; [`Time::MAX`] is
    /// never.
    pub fn wake(&mut self, actor: ActorId, at: Time) {
        if at == Time::MAX {
            self.clear(actor);
        } else {
            let sequence = self.next_sequence();
            self.set(actor, Key::new(at, sequence));
        }
    }

    /// The actor wants nothing.
    pub fn clear(&mut self, actor: ActorId) {
        self.set(actor, Key::NEVER);
    }

    /// Replaces the wish of `actor`.
    #[inline]
    pub fn set(&mut self, actor: ActorId, key: Key) {
        self.wishes[actor.0 as usize] = key;
        let (mut best, mut earliest) = (actor.0, key);
        let mut other = actor.0 ^ 1;
        let mut node = (self.wishes.len() + actor.0 as usize) / 2;
        loop {
            let rival = self.wishes[other as usize];
            best = if rival < earliest { other } else { best };
            earliest = earliest.min(rival);
            self.winners[node] = best;
            if node == 1 {
                return;
            }
            other = self.winners[node ^ 1];
            node /= 2;
        }
    }

    /// Twice as many leaves, and all matches anew.
    fn grow(&mut self) {
        let leaves = (2 * self.wishes.len()).max(LEAVES_LEAST);
        self.wishes.resize(leaves, Key::NEVER);
        self.winners = vec![0; leaves];
        for node in (1..leaves).rev() {
            let below = |child: usize| match child.checked_sub(leaves) {
                Some(leaf) => leaf as u32,
                None => self.winners[child],
            };
            let (left, right) = (below(2 * node), below(2 * node + 1));
            let later = self.wishes[right as usize] < self.wishes[left as usize];
            self.winners[node] = if later { right } else { left };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wishes_are_served_as_a_sorted_list_would_serve_them_while_actors_come(
            steps in prop::collection::vec((0u32..96, 0u64..50, 0u8..5), 1..400)
        ) {
            let mut schedule = Schedule::default();
            let mut actors = 0;
            let mut naive: BTreeMap<u32, Key> = BTreeMap::new();
            prop_assert_eq!(schedule.peek(), None);
            for (choice, at, what) in steps {
                if what == 4 || actors == 0 {
                    prop_assert_eq!(schedule.add_actor(), ActorId(actors));
                    actors += 1;
                }
                let actor = choice % actors;
                match what {
                    0 => {
                        schedule.clear(ActorId(actor));
                        naive.remove(&actor);
                    }
                    1 => {
                        let first = naive.iter().map(|(a, k)| (*k, ActorId(*a))).min();
                        prop_assert_eq!(schedule.peek(), first);
                        if let Some((_, first)) = first {
                            schedule.clear(first);
                            naive.remove(&first.0);
                        }
                    }
                    2 | 3 => {
                        schedule.wake(ActorId(actor), Time::from_nanos(at));
                        let key = Key::new(Time::from_nanos(at), schedule.sequence);
                        naive.insert(actor, key);
                    }
                    // An actor has come; nothing else is to change.
                    _ => {}
                }
                let key = naive.get(&actor).copied().unwrap_or(Key::NEVER);
                prop_assert_eq!(schedule.key(ActorId(actor)), key);
                let first = naive.iter().map(|(a, k)| (*k, ActorId(*a))).min();
                prop_assert_eq!(schedule.peek(), first);
            }
        }
    }
}
