//! What each session gets where users and transfers have guarantees and caps.
//!
//! One level rises for all, as in [`gtp_alloc::grant`]: a session has `min(b, w L)`. A group whose
//! sessions then have less than its guarantee is ahead of the others, at a level of its own, and
//! one at its cap stays behind. An offer is what a session would get if its own bound were lifted:
//! the most of what its guarantees would give it then, and of what it would get without them. This
//! file knows neither time nor whose sessions these are.

use gtp_alloc::grant::{Claim, Share, shares};

/// The least that a group is served first, as far as it wants it, and the most that it may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Guarantee in bit/s; zero if there is none.
    pub least: f64,
    /// Cap in bit/s; infinite if there is none.
    pub most: f64,
}

/// Sessions that have limits together, by their places among the claims.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Theirs.
    pub limits: Limits,
    /// Who they are.
    pub members: Vec<usize>,
}

/// A user, and those of his transfers that have limits; their members are among his.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// All his sessions.
    pub all: Group,
    /// Some of them.
    pub transfers: Vec<Group>,
}

impl Limits {
    /// No more is guaranteed than allowed.
    fn guarantee(&self) -> f64 {
        self.least.min(self.most)
    }
}

impl User {
    /// What is guaranteed to his transfers together.
    fn promised(&self) -> f64 {
        self.transfers.iter().map(|transfer| transfer.limits.guarantee()).sum()
    }
}

/// The sum of all guarantees: of a user his own, or what his transfers have if that is more.
pub(crate) fn guaranteed(users: &[User]) -> f64 {
    let of = |u: &User| u.all.limits.guarantee().max(u.promised().min(u.all.limits.most));
    users.iter().map(of).sum()
}

/// Shares of `capacity` bit/s among `claims` within the limits of `users`, in the claims' order.
/// Guarantees above the capacity in sum are cut in one proportion, and so are those of transfers
/// above the cap of their user.
pub(crate) fn divide(capacity: f64, claims: &[Claim], users: &[User], out: &mut Vec<Share>) {
    if capacity == f64::INFINITY && users.is_empty() {
        shares(capacity, claims, out);
        return;
    }
    let mut floor = Floor::new(claims);
    let part = (capacity / guaranteed(users)).min(1.0);
    users.iter().for_each(|user| floor.lay(user, part));
    out.clear();
    out.extend(floor.shares(capacity, users));
}

/// One session between what is guaranteed and what is allowed to it, in bit/s.
#[derive(Clone, Copy, Debug)]
struct Place {
    weight: f64,
    /// What it can use within the caps above it...
    bound: f64,
    /// ... and could if its own bound were lifted.
    allowed: f64,
    /// What its transfer's guarantee gives it...
    by_transfer: f64,
    /// ... and its user's with that...
    least: f64,
    /// ... and they would if its own bound were lifted.
    lifted: f64,
}

/// All sessions of a host.
struct Floor {
    places: Vec<Place>,
    /// What counts as guaranteed to each by the node that is asked...
    leasts: Vec<f64>,
    /// ... and what it answered.
    answers: Vec<Share>,
}

impl Floor {
    fn new(claims: &[Claim]) -> Floor {
        let place = |claim: &Claim| Place {
            weight: claim.weight,
            bound: claim.bound,
            allowed: f64::INFINITY,
            by_transfer: 0.0,
            least: 0.0,
            lifted: 0.0,
        };
        Floor {
            places: claims.iter().map(place).collect(),
            leasts: vec![0.0; claims.len()],
            answers: vec![Share::default(); claims.len()],
        }
    }

    /// Lays a user's guarantees, of which this `part` is there, below his sessions, and his caps
    /// above them.
    fn lay(&mut self, user: &User, part: f64) {
        let Limits { most, .. } = user.all.limits;
        let within = part * (most / user.promised()).min(1.0);
        user.transfers.iter().for_each(|transfer| self.lay_below(transfer, within));
        let members = &user.all.members;
        if most < f64::INFINITY {
            self.ask(most, user);
            for &at in members {
                let (place, share) = (&mut self.places[at], self.answers[at]);
                place.bound = share.target;
                place.allowed = place.allowed.min(share.offer);
                place.lifted = place.lifted.min(place.allowed);
            }
        }
        let guarantee = part * user.all.limits.guarantee();
        if guarantee > 0.0 {
            self.ask(guarantee, user);
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
            (place.by_transfer, place.least) = (share.target, share.target);
            place.lifted = share.offer.min(place.allowed);
        }
    }

    /// Asks a user's node of this `amount` for the shares of his sessions above what their
    /// transfers have.
    fn ask(&mut self, amount: f64, user: &User) {
        let members = &user.all.members;
        self.stand(members, |place| place.by_transfer);
        self.answer(amount, members);
        self.lift_transfers(amount, members, user);
    }

    /// What the host of this `capacity` answers all sessions.
    fn shares(mut self, capacity: f64, users: &[User]) -> Vec<Share> {
        if capacity == f64::INFINITY {
            let free = |place: &Place| Share { target: place.bound, offer: place.allowed };
            return self.places.iter().map(free).collect();
        }
        let all: Vec<usize> = (0..self.places.len()).collect();
        self.stand(&all, |place| place.least);
        self.answer(capacity, &all);
        for user in users {
            let members = &user.all.members;
            self.stand(members, |place| place.by_transfer);
            if user.all.limits.least > 0.0 {
                self.lift(capacity, &all, members);
            }
            self.lift_transfers(capacity, &all, user);
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
            let offer = place.weight * ladder.lifted(amount, level, place);
            self.answers[at] = Share { target, offer: offer.min(place.allowed) };
        }
    }

    /// Offers to `some` of a node's members, below whom stands only what is not their own.
    fn lift(&mut self, amount: f64, members: &[usize], some: &[usize]) {
        let ladder = self.ladder(members);
        let level = ladder.level(amount);
        for &at in some {
            let place = &self.places[at];
            let offer = place.weight * ladder.lifted(amount, level, place);
            self.answers[at].offer = offer.max(place.lifted).min(place.allowed);
        }
    }

    /// The same for the sessions of each of a user's transfers that has a guarantee.
    fn lift_transfers(&mut self, amount: f64, members: &[usize], user: &User) {
        for transfer in user.transfers.iter().filter(|t| t.limits.least > 0.0) {
            self.stand(&transfer.members, |_| 0.0);
            self.lift(amount, members, &transfer.members);
            self.stand(&transfer.members, |place| place.by_transfer);
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

/// A sum with one rounding error in all (Neumaier's compensation).
#[derive(Clone, Copy, Default)]
struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let next = self.total + x;
        if next.is_finite() {
            let (large, small) =
                if self.total.abs() >= x.abs() { (self.total, x) } else { (x, self.total) };
            self.lost += (large - next) + small;
        }
        self.total = next;
    }

    fn value(self) -> f64 {
        self.total + self.lost
    }
}

#[cfg(test)]
mod tests;
