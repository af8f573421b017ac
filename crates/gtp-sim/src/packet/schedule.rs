//! What happens next: a tournament among all that can want to be woken, each of which has one wish
//! at most.
//!
//! The wishes are the leaves of a tree whose every node is the earliest of the four below it, so
//! that a changed wish costs three comparisons a level, none of them waiting for a guess, and
//! however many packets are under way. Links, which want something at every packet, have a tree of
//! their own; everybody else, a host or an end of a session, is an actor of the other one. The
//! order is that of (time, sequence number): equal times are served in the order in which they were
//! asked for.
//!
//! An actor that puts its wish off, as one with a timer does again and again, keeps its place in
//! the tree, and moves when that place is the first: most wishes are put off many times before.

use gtp_alloc::Time;

/// An actor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ActorId(pub u32);

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// The link of this number.
    Link(u32),
    Actor(ActorId),
}

/// When somebody is to be woken: time first, then the order of asking. One number, because one
/// comparison of it is what everything here costs; its lowest bits are left free for who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

/// Bits of the number of a link or an actor: eight million of each.
const WHO_BITS: u32 = 23;
const WHO: u128 = (1 << WHO_BITS) - 1;
/// Sequence numbers below this fit: more than two days of asking ten million times a second.
const SEQUENCES: u64 = 1 << (64 - WHO_BITS);

impl Key {
    /// Later than every wish.
    pub const NEVER: Key = Key(u128::MAX);

    #[inline]
    pub const fn new(at: Time, sequence: u64) -> Key {
        Key((at.as_nanos() as u128) << 64 | (sequence << WHO_BITS) as u128)
    }

    #[inline]
    pub const fn at(self) -> Time {
        Time::from_nanos((self.0 >> 64) as u64)
    }

    /// The same with the sequence number.
    pub const fn turn(self) -> (Time, u64) {
        (self.at(), self.0 as u64 >> WHO_BITS)
    }
}

/// Two tournaments of wishes; see the module's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    links: Tree,
    actors: Tree,
    /// What each actor wishes; in the tree it may still be earlier.
    wishes: Vec<Key>,
    sequence: u64,
}

/// A tournament.
#[derive(Clone, Debug)]
struct Tree {
    /// Four by four, one of which wins: nodes `4 n` to `4 n + 3` are four `n`, whose winner is node
    /// `n`; the root is node 1, and nodes from `leaves` on are the wishes. A node is a key with the
    /// number of who wishes, or all ones without a wish.
    fours: Vec<[u128; 4]>,
    leaves: usize,
    /// The root.
    first: u128,
    members: u32,
}

impl Schedule {
    /// A new actor, without a wish.
    pub fn add_actor(&mut self) -> ActorId {
        self.wishes.push(Key::NEVER);
        ActorId(self.actors.add())
    }

    /// The next link, without a wish.
    pub fn add_link(&mut self) -> u32 {
        self.links.add()
    }

    /// A sequence number for something that is asked for now.
    #[inline]
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        debug_assert!(self.sequence < SEQUENCES, "no run asks so often");
        self.sequence
    }

    /// The earliest wish.
    #[inline]
    pub fn peek(&mut self) -> Option<(Key, Waker)> {
        loop {
            let (link, actor) = (self.links.first, self.actors.first);
            if link < actor {
                return Some((Key(link & !WHO), Waker::Link((link & WHO) as u32)));
            }
            if actor == Key::NEVER.0 {
                return None;
            }
            let who = ActorId((actor & WHO) as u32);
            let wish = self.wishes[who.0 as usize];
            if wish.0 == actor & !WHO {
                return Some((wish, Waker::Actor(who)));
            }
            self.actors.set(who.0, wish);
        }
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
        self.actors.hasten(actor.0, key);
    }

    /// Replaces the wish of a link.
    #[inline(always)]
    pub fn set_link(&mut self, link: u32, key: Key) {
        self.links.set(link, key);
    }

    /// Replaces the wish of a link by an earlier one.
    #[inline]
    pub fn hasten_link(&mut self, link: u32, key: Key) {
        self.links.hasten(link, key);
    }
}

impl Tree {
    fn add(&mut self) -> u32 {
        let member = self.members;
        assert!(u128::from(member) < WHO, "a world has fewer than eight million links and actors");
        self.members += 1;
        if member as usize >= self.leaves {
            self.grow();
        }
        member
    }

    #[inline(always)]
    fn set(&mut self, member: u32, key: Key) {
        let mut first = key.0 | u128::from(member);
        let mut node = self.leaves + member as usize;
        while node > 1 {
            let four = &mut self.fours[node / 4];
            four[node % 4] = first;
            let [a, b, c, d] = *four;
            first = a.min(b).min(c.min(d));
            node /= 4;
        }
        self.first = first;
    }

    /// Gives `member` a wish if that is earlier than the one it has here. A wish that is not the
    /// first of its four changes nothing above them.
    #[inline]
    fn hasten(&mut self, member: u32, key: Key) {
        let wish = key.0 | u128::from(member);
        let mut node = self.leaves + member as usize;
        while node > 1 {
            let place = &mut self.fours[node / 4][node % 4];
            if *place <= wish {
                return;
            }
            *place = wish;
            node /= 4;
        }
        self.first = self.first.min(wish);
    }

    /// Four times as many leaves; the tree so far becomes the first of the root's four.
    fn grow(&mut self) {
        let leaves = 4 * self.leaves;
        let mut fours = vec![[Key::NEVER.0; 4]; leaves / 2];
        let mut level = 1;
        while level < leaves / 4 {
            fours[4 * level..5 * level].copy_from_slice(&self.fours[level..2 * level]);
            level *= 4;
        }
        fours[1][0] = self.first;
        (self.fours, self.leaves) = (fours, leaves);
    }
}

impl Default for Tree {
    fn default() -> Tree {
        let leaves = 4;
        let fours = vec![[Key::NEVER.0; 4]; leaves / 2];
        Tree { fours, leaves, first: Key::NEVER.0, members: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The earliest of a sorted list's wishes.
    fn first(naive: &BTreeMap<Key, Waker>) -> Option<(Key, Waker)> {
        naive.first_key_value().map(|(key, who)| (*key, *who))
    }

    proptest! {
        #[test]
        fn wishes_are_served_as_a_sorted_list_would_serve_them_while_links_and_actors_come(
            steps in prop::collection::vec((0u32..96, 0u64..50, 0u8..5, any::<bool>()), 1..400)
        ) {
            let mut schedule = Schedule::default();
            let mut members = [0, 0];
            let mut naive: BTreeMap<Key, Waker> = BTreeMap::new();
            prop_assert_eq!(schedule.peek(), None);
            for (choice, at, what, is_link) in steps {
                let members = &mut members[usize::from(is_link)];
                if what == 4 || *members == 0 {
                    let new = match is_link {
                        true => schedule.add_link(),
                        false => schedule.add_actor().0,
                    };
                    prop_assert_eq!(new, *members);
                    *members += 1;
                }
                let member = choice % *members;
                let who = match is_link {
                    true => Waker::Link(member),
                    false => Waker::Actor(ActorId(member)),
                };
                let key = match what {
                    0 => Key::NEVER,
                    2 | 3 => Key::new(Time::from_nanos(at), schedule.next_sequence()),
                    1 => match first(&naive) {
                        Some((_, first)) if first == who => Key::NEVER,
                        Some(_) | None => continue,
                    },
                    // Somebody has come; nothing else is to change.
                    _ => continue,
                };
                naive.retain(|_, other| *other != who);
                if key != Key::NEVER {
                    naive.insert(key, who);
                }
                match who {
                    Waker::Link(link) => schedule.set_link(link, key),
                    Waker::Actor(actor) => schedule.set(actor, key),
                }
                prop_assert_eq!(schedule.peek(), first(&naive));
            }
            // To the end, one after another.
            while let Some((key, who)) = naive.pop_first() {
                prop_assert_eq!(schedule.peek(), Some((key, who)));
                match who {
                    Waker::Link(link) => schedule.set_link(link, Key::NEVER),
                    Waker::Actor(actor) => schedule.clear(actor),
                }
            }
            prop_assert_eq!(schedule.peek(), None);
        }
    }
}
