//! All path groups of one host, by their names.
//!
//! In each round of its agent a source's host shows every session to the groups, has them share
//! out, and shows every session to them again to hear its share, in the same order. A session that
//! is alone with its name keeps its own machine and is told nothing; it costs a comparison.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::Time;

use super::group::Group;
use super::name::PathName;
use crate::report::FlowId;
use crate::source::SourceSession;

/// All path groups of a host; see the module's head.
#[derive(Debug, Default)]
pub struct PathGroups {
    names: BTreeMap<PathName, usize>,
    groups: Vec<Group>,
    /// Groups whose place is free.
    free: Vec<usize>,
    /// The sessions in the order of the last round: mostly it is that of the next.
    seats: Vec<Seat>,
    /// How many of them were visited, or told, in this round.
    visited: usize,
    told: usize,
    due: Option<Time>,
}

/// Where a session's group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    id: FlowId,
    name: PathName,
    group: usize,
}

impl PathGroups {
    /// Begins a round with the session `id`: hears what it has to say of the path of this name.
    pub fn visit(&mut self, now: Time, id: FlowId, name: PathName, source: &mut SourceSession) {
        if !source.may_share_path() {
            return;
        }
        if self.has_moved(id, name) {
            source.handle_new_path();
        }
        let place = self.seat(id, name);
        source.set_path_group(u16::try_from(place + 1).unwrap_or(u16::MAX));
        let group = &mut self.groups[place];
        if group.is_shared() {
            let (facts, pieces) = (source.path_facts(now), source.take_path_pieces());
            group.visit(now, id, facts, pieces);
        } else {
            group.count(source.path_keeps());
        }
    }

    /// All sessions have been visited: what each may have is worked out.
    pub fn share_out(&mut self, now: Time) {
        self.seats.truncate(self.visited);
        (self.visited, self.told, self.due) = (0, 0, None);
        let PathGroups { names, groups, free, due, .. } = self;
        names.retain(|_, &mut place| {
            let group = &mut groups[place];
            let stays = group.share_out(now);
            if !stays {
                *group = Group::default();
                free.push(place);
            }
            *due = [*due, group.poll_timeout(now)].into_iter().flatten().min();
            stays
        });
    }

    /// Ends a round for the session `id`: it hears what it may have.
    pub fn tell(&mut self, now: Time, id: FlowId, name: PathName, source: &mut SourceSession) {
        if !source.may_share_path() {
            return;
        }
        let seated = self.seats.get(self.told).filter(|seat| (seat.id, seat.name) == (id, name));
        self.told += 1;
        let place = seated.map(|seat| seat.group).or_else(|| self.names.get(&name).copied());
        let Some(group) = place.and_then(|place| self.groups.get_mut(place)) else { return };
        if !group.is_shared() {
            return;
        }
        if group.wants_machine(id)
            && let Some(machine) = source.share_machine(now)
        {
            group.take_machine(now, id, machine);
            self.due = Some(now);
        } else if let Some(share) = group.share(id) {
            source.handle_path_share(now, share);
        }
    }

    /// When the next round should be at the latest, if a group needs one.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Whether the session that is seated next had another path in the last round.
    fn has_moved(&self, id: FlowId, name: PathName) -> bool {
        let seat = self.seats.get(self.visited);
        seat.is_some_and(|seat| seat.id == id && seat.name != name)
    }

    /// Seats the next session of this round, and returns the place of its group.
    fn seat(&mut self, id: FlowId, name: PathName) -> usize {
        let at = self.visited;
        self.visited += 1;
        match self.seats.get(at) {
            Some(seat) if (seat.id, seat.name) == (id, name) => seat.group,
            Some(_) | None => {
                // Those after it may be others as well.
                self.seats.truncate(at);
                let group = self.find(name);
                self.seats.push(Seat { id, name, group });
                group
            }
        }
    }

    /// Returns the place of the group of this name.
    fn find(&mut self, name: PathName) -> usize {
        let PathGroups { groups, free, .. } = self;
        *self.names.entry(name).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                groups.push(Group::default());
                groups.len() - 1
            })
        })
    }
}
