//! What each session gets where groups of sessions have guarantees and caps.
//!
//! A class is a group that may hold further groups, as a user has transfers. One level rises for
//! all, as in [`crate::grant`]: a session has `min(b, w L)`. A group whose sessions then have less
//! than its guarantee is ahead of the others, at a level of its own, and one at its cap stays
//! behind. An offer is what a session would get if its own bound were lifted: the most of what its
//! guarantees would give it then, and of what it would get without them. This file knows neither
//! time nor whose sessions these are.

use alloc::vec;
use alloc::vec::Vec;

use crate::grant::{Claim, Share, Sum, shares};

/// The least that a group is served first, as far as it wants it, and the most that it may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Guarantee in bit/s; zero if there is none.
    pub least: f64,
    /// Cap in bit/s; infinite if there is none.
    pub most: f64,
}

/// Sessions that have limits together, by their places among the claims.
#[derive(Clone, Debug)]
pub struct Group {
    /// Theirs.
    pub limits: Limits,
    /// Who they are.
    pub members: Vec<usize>,
}

/// A group, and those within it that have limits of their own.
#[derive(Clone, Debug)]
pub struct Class {
    /// All its sessions.
    pub all: Group,
    /// Groups of some of them; no session is in two.
    pub inner: Vec<Group>,
}

impl Limits {
    /// No more is guaranteed than allowed.
    fn guarantee(&self) -> f64 {
        self.least.min(self.most)
    }
}

impl Class {
    /// What is guaranteed within it in sum.
    fn promised(&self) -> f64 {
        self.inner.iter().map(|group| group.limits.guarantee()).sum()
    }
}

/// The sum of all guarantees in bit/s: of a class its own, or those within it if they are more.
pub fn guaranteed(classes: &[Class]) -> f64 {
    let of = |c: &Class| c.all.limits.guarantee().max(c.promised().min(c.all.limits.most));
    classes.iter().map(of).sum()
}

/// Shares of `capacity` bit/s among `claims` within the limits of `classes`, in the claims' order.
/// No session is in two classes. Guarantees above the capacity in sum are cut in one proportion,
/// and so are those within a class above its cap.
pub fn divide(capacity: f64, claims: &[Claim], classes: &[Class], out: &mut Vec<Share>) {
    if capacity == f64::INFINITY && classes.is_empty() {
        shares(capacity, claims, out);
        return;
    }
    out.clear();
    out.extend(Floor::laid(capacity, claims, classes).shares(capacity, classes));
}

/// Shares of a part of the whole as [`divide`] gives them of all of it, where `claims` are of those
/// who have the part: `amount` bit/s together. If a session's own bound were lifted the whole would
/// give them so much `more`, in the claims' order, so that its offer counts with that.
pub fn divide_part(
    amount: f64,
    more: &[f64],
    claims: &[Claim],
    classes: &[Class],
    out: &mut Vec<Share>,
) {
    let mut floor = Floor::laid(amount, claims, classes);
    floor.more.copy_from_slice(more);
    out.clear();
    out.extend(floor.shares(amount, classes));
}

/// One session between what is guaranteed and what is allowed to it, in bit/s.
#[derive(Clone, Copy, Debug)]
struct Place {
    weight: f64,
    /// What it can use within the caps above it and its own bound.
    bound: f64,
    /// What it could use within the caps above it if its own bound were lifted.
    allowed: f64,
    /// What the guarantee of its inner group gives it.
    by_inner: f64,
    /// What the guarantees of its inner group and of its class give it together.
    least: f64,
    /// What both guarantees would give it if its own bound were lifted.
    lifted: f64,
}

/// All sessions of a host.
struct Floor {
    places: Vec<Place>,
    /// What counts as guaranteed to each session by the node that is asked.
    leasts: Vec<f64>,
    /// What that node answered.
    answers: Vec<Share>,
    /// By how much the node's amount would be greater for each session if its bound were lifted.
    more: Vec<f64>,
}

impl Floor {
    fn new(claims: &[Claim]) -> Floor {
        let place = |claim: &Claim| Place {
            weight: claim.weight,
            bound: claim.bound,
            allowed: f64::INFINITY,
            by_inner: 0.0,
            least: 0.0,
            lifted: 0.0,
        };
        Floor {
            places: claims.iter().map(place).collect(),
            leasts: vec![0.0; claims.len()],
            answers: vec![Share::default(); claims.len()],
            more: vec![0.0; claims.len()],
        }
    }

    /// The floor of all sessions of a node of this `capacity`.
    fn laid(capacity: f64, claims: &[Claim], classes: &[Class]) -> Floor {
        let mut floor = Floor::new(claims);
        let part = (capacity / guaranteed(classes)).min(1.0);
        classes.iter().for_each(|class| floor.lay(class, part));
        floor
    }

    /// Lays a class's guarantees, of which this `part` is there, below its sessions, and its caps
    /// above them.
    fn lay(&mut self, class: &Class, part: f64) {
        let Limits { most, .. } = class.all.limits;
        let within = part * (most / class.promised()).min(1.0);
        class.inner.iter().for_each(|group| self.lay_below(group, within));
        let members = &class.all.members;
        if most < f64::INFINITY {
            self.ask(most, class);
            for &at in members {
                let (place, share) = (&mut self.places[at], self.answers[at]);
                place.bound = share.target;
                place.allowed = place.allowed.min(share.offer);
                place.lifted = place.lifted.min(place.allowed);
            }
        }
        let guarantee = part * class.all.limits.guarantee();
        if guarantee > 0.0 {
            self.ask(guarantee, class);
            for &at in members {
                let (place, share) = (&mut self.places[at], self.answers[at]);
                place.least = share.target;
                place.lifted = share.offer.min(place.allowed);
            }
        }
    }

    /// The same for a group below which there are no others.
    fn lay_below(&mut self, group: &Group, part: f64) {
        let mut answers = Vec::new();
        let claims = |floor: &Floor| {
            let claim = |&at: &usize| floor.places[at];
            let claims = group.members.iter().map(claim);
            claims.map(|p| Claim { weight: p.weight, bound: p.bound }).collect::<Vec<Claim>>()
        };
        shares(group.limits.most, &claims(self), &mut answers);
        for (&at, share) in group.members.iter().zip(&answers) {
            self.places[at].bound = share.target;
            self.places[at].allowed = share.offer;
        }
        shares(part * group.limits.guarantee(), &claims(self), &mut answers);
        for (&at, share) in group.members.iter().zip(&answers) {
            let place = &mut self.places[at];
            (place.by_inner, place.least) = (share.target, share.target);
            place.lifted = share.offer.min(place.allowed);
        }
    }

    /// Asks a class's node of this `amount` for the shares of its sessions above what their inner
    /// groups have.
    fn ask(&mut self, amount: f64, class: &Class) {
        let members = &class.all.members;
        self.stand(members, |place| place.by_inner);
        self.answer(amount, members);
        self.lift_inner(amount, members, class);
    }

    /// What the host of this `capacity` answers all sessions.
    fn shares(mut self, capacity: f64, classes: &[Class]) -> Vec<Share> {
        if capacity == f64::INFINITY {
            let free = |place: &Place| Share { target: place.bound, offer: place.allowed };
            return self.places.iter().map(free).collect();
        }
        let all: Vec<usize> = (0..self.places.len()).collect();
        self.stand(&all, |place| place.least);
        self.answer(capacity, &all);
        for class in classes {
            let members = &class.all.members;
            self.stand(members, |place| place.by_inner);
            if class.all.limits.least > 0.0 {
                self.lift(capacity, &all, members);
            }
            self.lift_inner(capacity, &all, class);
            self.stand(members, |place| place.least);
        }
        self.answers
    }

    /// From now on this counts as what is below these sessions.
    fn stand(&mut self, members: &[usize], least: impl Fn(&Place) -> f64) {
        members.iter().for_each(|&at| self.leasts[at] = least(&self.places[at]));
    }

    fn ladder(&self, members: &[usize]) -> Ladder {
        let rung = |&at: &usize| {
            let Place { weight, bound, .. } = self.places[at];
            Rung { weight, bound, least: self.leasts[at] }
        };
        Ladder::new(members.iter().map(rung))
    }

    /// A node of this `amount` answers its members.
    fn answer(&mut self, amount: f64, members: &[usize]) {
        let ladder = self.ladder(members);
        let level = ladder.level(amount);
        for &at in members {
            let (place, least) = (&self.places[at], self.leasts[at]);
            let target = place.bound.min(least.max(place.weight * level)).min(amount.max(least));
            let offer = place.weight * ladder.lifted(amount + self.more[at], level, place);
            self.answers[at] = Share { target, offer: offer.min(place.allowed) };
        }
    }

    /// Offers to `some` of a node's members, below whom stands only what is not their own.
    fn lift(&mut self, amount: f64, members: &[usize], some: &[usize]) {
        let ladder = self.ladder(members);
        let level = ladder.level(amount);
        for &at in some {
            let place = &self.places[at];
            let offer = place.weight * ladder.lifted(amount + self.more[at], level, place);
            self.answers[at].offer = offer.max(place.lifted).min(place.allowed);
        }
    }

    /// The same for the sessions of each of a class's inner groups that has a guarantee.
    fn lift_inner(&mut self, amount: f64, members: &[usize], class: &Class) {
        for group in class.inner.iter().filter(|group| group.limits.least > 0.0) {
            self.stand(&group.members, |_| 0.0);
            self.lift(amount, members, &group.members);
            self.stand(&group.members, |place| place.by_inner);
        }
    }
}

/// One session on a ladder: `min(bound, max(least, weight L))` at level `L`.
struct Rung {
    weight: f64,
    bound: f64,
    least: f64,
}

/// What all sessions of a node have together, by the level: a line between any two steps.
struct Ladder {
    /// The level at which a line begins, its value at level zero, and its slope.
    lines: Vec<(f64, f64, f64)>,
    /// What they have when all have what they want.
    all: f64,
}

impl Ladder {
    fn new(rungs: impl Iterator<Item = Rung>) -> Ladder {
        let (mut value, mut slope, mut all) = (Sum::default(), Sum::default(), Sum::default());
        let mut steps: Vec<(f64, f64, f64)> = Vec::new();
        for Rung { weight, bound, least } in rungs {
            all.add(bound);
            value.add(least.min(bound));
            if least >= bound {
                continue;
            }
            steps.push((least / weight, -least, weight));
            if bound < f64::INFINITY {
                steps.push((bound / weight, bound, -weight));
            }
        }
        steps.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut lines = Vec::with_capacity(steps.len() + 1);
        lines.push((0.0, value.value(), 0.0));
        for (at, more, steeper) in steps {
            value.add(more);
            slope.add(steeper);
            lines.push((at, value.value(), slope.value()));
        }
        Ladder { lines, all: all.value() }
    }

    /// The level at which they have this amount; infinite if all can have what they want.
    fn level(&self, amount: f64) -> f64 {
        if self.all <= amount {
            return f64::INFINITY;
        }
        let reaches = |&(at, value, slope): &(f64, f64, f64)| value + slope * at < amount;
        self.at(self.lines.partition_point(reaches), amount, 0.0)
    }

    /// The level of a session without a least if its bound were lifted, where it is `level` now.
    fn lifted(&self, amount: f64, level: f64, place: &Place) -> f64 {
        let &Place { weight, bound, .. } = place;
        if bound >= weight * level {
            return level;
        }
        let wanted = amount + bound;
        let reaches = |&(at, value, slope): &(f64, f64, f64)| {
            at * weight <= bound || value + (slope + weight) * at < wanted
        };
        self.at(self.lines.partition_point(reaches), wanted, weight)
    }

    /// The level on the line before this one, made steeper, at which it has this value. A flat line
    /// has it from its start on: only rounding says that it does not.
    fn at(&self, next: usize, wanted: f64, steeper: f64) -> f64 {
        let (begins, value, slope) = self.lines[next.saturating_sub(1)];
        let ends = self.lines.get(next).map_or(f64::INFINITY, |line| line.0);
        if slope + steeper > 0.0 {
            ((wanted - value) / (slope + steeper)).clamp(begins, ends.max(begins))
        } else {
            begins
        }
    }
}

#[cfg(test)]
mod tests;
