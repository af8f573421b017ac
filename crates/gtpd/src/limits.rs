//! Guarantees and caps of users, of transfers and of the clients of servers, and whose sessions
//! they are.
//!
//! A user's are said at the daemon's start, a transfer's while it runs, and are gone with its last
//! session. A server says what its clients and groups of them have. Its groups' guarantees are of
//! what its user has, so they are laid out in a second pass within that; its caps only lower what
//! its user can use. Here is only who has which; what comes of them, [`gtp_alloc::within`] knows.

use std::collections::{BTreeMap, BTreeSet};

use gtp_alloc::Rate;
use gtp_alloc::grant::{Claim, Share, shares};
use gtp_alloc::within::{Class, Group, Limits, divide_part, guaranteed};
use gtp_share::Terms;

use crate::hub::ClientId;

/// A transfer of a process: on whose behalf it runs, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferId {
    pub client: ClientId,
    pub principal: u64,
    pub transfer: u64,
}

/// What one transfer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Served first, as far as it is wanted.
    pub least: Rate,
    /// No more than this.
    pub most: Rate,
}

impl Given {
    /// Nothing.
    pub const NOTHING: Given = Given { least: Rate::ZERO, most: Rate::UNLIMITED };

    fn limits(self) -> Limits {
        // A number, so that sums are.
        let least = self.least.min(Rate::from_bps(u64::MAX - 1)).as_f64();
        Limits { least, most: self.most.as_f64() }
    }
}

/// All limits of a host.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    users: BTreeMap<u32, Given>,
    transfers: BTreeMap<TransferId, (u32, Given)>,
}

impl Bounds {
    /// Users who have no less, and who have no more, than these.
    pub fn new(least: &BTreeMap<u32, Rate>, most: &BTreeMap<u32, Rate>) -> Bounds {
        Bounds { users: given_to_users(least, most), ..Bounds::default() }
    }

    /// Users have these from now on; transfers keep what they have. Returns whether that is a
    /// change.
    pub fn set_users(&mut self, least: &BTreeMap<u32, Rate>, most: &BTreeMap<u32, Rate>) -> bool {
        let users = given_to_users(least, most);
        let is_change = users != self.users;
        self.users = users;
        is_change
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.transfers.is_empty()
    }

    /// Whether a transfer has any.
    pub fn has_transfers(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// What a transfer has.
    pub fn of(&self, id: TransferId) -> Given {
        self.transfers.get(&id).map_or(Given::NOTHING, |(_, given)| *given)
    }

    /// Gives a user's transfer limits.
    pub fn give(&mut self, uid: u32, id: TransferId, given: Given) {
        if given == Given::NOTHING {
            self.transfers.remove(&id);
        } else {
            self.transfers.insert(id, (uid, given));
        }
    }

    /// Forgets transfers that are not among these.
    pub fn keep(&mut self, present: &BTreeSet<TransferId>) {
        self.transfers.retain(|id, _| present.contains(id));
    }

    /// All guarantees of users and transfers together.
    pub fn guaranteed(&self) -> Rate {
        let users: Vec<Class> = self.all_users().into_values().map(User::class).collect();
        Rate::from_f64(guaranteed(&users))
    }

    /// All limits as they are of the sessions in a row. Guarantees of users and transfers that have
    /// none in it count as well.
    pub fn of_row(&self, row: &[Member]) -> RowLimits {
        let mut users = self.all_users();
        for member in row.iter().filter(|member| member.group().is_some()) {
            users.entry(member.uid).or_insert_with(|| self.user(member.uid));
        }
        let mut caps: BTreeMap<Capped, Cap> = BTreeMap::new();
        for (place, member) in row.iter().enumerate() {
            let transfer = self.of(member.transfer);
            for (whose, most) in member.caps(transfer) {
                let cap = caps.entry(whose).or_insert_with(|| Cap::new(most));
                cap.most = cap.most.min(most.as_f64());
                cap.members.push(place);
            }
            if let Some(user) = users.get_mut(&member.uid) {
                user.add(place, member, transfer);
            }
        }
        let parts = users.values().filter_map(User::part).collect();
        let users = users.into_values().map(User::class).collect();
        RowLimits { users, caps: caps.into_values().collect(), parts }
    }

    /// Users with limits, or with transfers that have some, and these.
    fn all_users(&self) -> BTreeMap<u32, User> {
        let mut users: BTreeMap<u32, User> =
            self.users.keys().map(|&uid| (uid, self.user(uid))).collect();
        for (&id, &(uid, given)) in &self.transfers {
            let user = users.entry(uid).or_insert_with(|| self.user(uid));
            user.inner.insert(Inner::Transfer(id), Within::of(given));
        }
        users
    }

    fn user(&self, uid: u32) -> User {
        let given = self.users.get(&uid).copied().unwrap_or(Given::NOTHING);
        User { given, members: Vec::new(), inner: BTreeMap::new() }
    }
}

fn given_to_users(least: &BTreeMap<u32, Rate>, most: &BTreeMap<u32, Rate>) -> BTreeMap<u32, Given> {
    let mut users: BTreeMap<u32, Given> = BTreeMap::new();
    for (&uid, &rate) in least {
        users.entry(uid).or_insert(Given::NOTHING).least = rate;
    }
    for (&uid, &rate) in most {
        users.entry(uid).or_insert(Given::NOTHING).most = rate;
    }
    users
}

/// A server: a process of a user, all of its engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerId {
    uid: u32,
    pid: i32,
    /// Its connection, where its process is not known: each is then a server.
    client: ClientId,
}

impl ServerId {
    pub fn new(uid: u32, pid: i32, client: ClientId) -> ServerId {
        ServerId { uid, pid, client: if pid == 0 { client } else { 0 } }
    }
}

/// A session of a row: whose it is, and what that one has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub uid: u32,
    pub server: ServerId,
    pub transfer: TransferId,
    pub terms: Terms,
}

impl Member {
    /// The group that it is in, if that has anything together.
    fn group(&self) -> Option<Inner> {
        let Terms { group, least, most, .. } = self.terms;
        let has_any = group != 0 && (least > Rate::ZERO || !most.is_unlimited());
        has_any.then_some(Inner::Group(self.server, group))
    }

    /// Limits that lower what it can use: its client's, and its transfer's within a group.
    fn caps(&self, transfer: Given) -> impl Iterator<Item = (Capped, Rate)> {
        let client = (Capped::Client(self.server, self.transfer.principal), self.terms.each);
        let grouped = if self.group().is_some() { transfer.most } else { Rate::UNLIMITED };
        let both = [(Capped::Transfer(self.transfer), grouped), client];
        both.into_iter().filter(|(_, most)| !most.is_unlimited())
    }
}

/// Whose sessions have a limit together that lowers what each can use, the narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Capped {
    Transfer(TransferId),
    Client(ServerId, u64),
}

/// Who has limits within a user's. No session is in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Inner {
    Transfer(TransferId),
    Group(ServerId, u32),
}

/// One user of a row.
struct User {
    given: Given,
    members: Vec<usize>,
    inner: BTreeMap<Inner, Within>,
}

/// Sessions with limits within a user's.
struct Within {
    given: Given,
    members: Vec<usize>,
    /// Guarantees of transfers of a group, and their sessions.
    transfers: BTreeMap<TransferId, (Rate, Vec<usize>)>,
}

impl Within {
    fn of(given: Given) -> Within {
        Within { given, members: Vec::new(), transfers: BTreeMap::new() }
    }
}

impl User {
    fn add(&mut self, place: usize, member: &Member, transfer: Given) {
        self.members.push(place);
        let (id, given) = match member.group() {
            Some(group) => (group, Given { least: member.terms.least, most: member.terms.most }),
            None if transfer != Given::NOTHING => (Inner::Transfer(member.transfer), transfer),
            None => return,
        };
        let within = self.inner.entry(id).or_insert_with(|| Within::of(given));
        // While a server's engines follow a change of its settings, the least counts.
        within.given.least = within.given.least.min(given.least);
        within.given.most = within.given.most.min(given.most);
        within.members.push(place);
        let Inner::Group(..) = id else { return };
        if transfer.least > Rate::ZERO {
            let none = (transfer.least, Vec::new());
            within.transfers.entry(member.transfer).or_insert(none).1.push(place);
        }
        // What it has is of its group's.
        self.inner.remove(&Inner::Transfer(member.transfer));
    }

    /// What counts among users: guarantees of groups do not.
    fn class(self) -> Class {
        let group = |(id, within): (Inner, Within)| {
            let given = match id {
                Inner::Group(..) => Given { least: Rate::ZERO, ..within.given },
                Inner::Transfer(_) => within.given,
            };
            Group { limits: given.limits(), members: within.members }
        };
        let all = Group { limits: self.given.limits(), members: self.members };
        Class { all, inner: self.inner.into_iter().map(group).collect() }
    }

    /// How what the user has is divided anew, if a group of his servers has a guarantee.
    fn part(&self) -> Option<Part> {
        let promises = |(id, within): (&Inner, &Within)| {
            matches!(id, Inner::Group(..))
                && (within.given.least > Rate::ZERO || !within.transfers.is_empty())
        };
        self.inner.iter().any(promises).then(|| {
            let at = |place: &usize| self.members.binary_search(place).ok();
            let group = |limits, members: &[usize]| Group {
                limits,
                members: members.iter().filter_map(at).collect(),
            };
            let inner = |(least, members): &(Rate, Vec<usize>)| {
                group(Given { least: *least, ..Given::NOTHING }.limits(), members)
            };
            let mut room = LOOKS_MOST / self.members.len().max(1);
            let class = |within: &Within| {
                let promises = usize::from(within.given.least > Rate::ZERO);
                let least = if promises <= room { within.given.least } else { Rate::ZERO };
                room = room.saturating_sub(promises);
                let given = Given { least, ..within.given };
                Class {
                    all: group(given.limits(), &within.members),
                    inner: within.transfers.values().map(inner).collect(),
                }
            };
            let classes = self.inner.values().map(class).collect();
            Part { members: self.members.clone(), classes }
        })
    }
}

/// Each group with a guarantee has all sessions of its user looked at once more in each tick: so
/// many looks are worth as much as reading a user's slots. Further guarantees do not count, whoever
/// makes groups up.
const LOOKS_MOST: usize = 1 << 16;

/// Sessions that may have so much together, by their places in the row.
#[derive(Debug)]
struct Cap {
    most: f64,
    members: Vec<usize>,
}

impl Cap {
    fn new(most: Rate) -> Cap {
        Cap { most: most.as_f64(), members: Vec::new() }
    }
}

/// A user's sessions, by their places in the row, and the limits within what they have together,
/// by their places here.
#[derive(Debug)]
struct Part {
    members: Vec<usize>,
    classes: Vec<Class>,
}

/// All limits of the sessions in a row.
#[derive(Debug, Default)]
pub(crate) struct RowLimits {
    /// Users with limits, or with transfers or groups that have some.
    pub users: Vec<Class>,
    /// What lowers the bounds of some sessions, in the order in which it counts.
    caps: Vec<Cap>,
    parts: Vec<Part>,
}

impl RowLimits {
    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.caps.is_empty()
    }

    /// Lowers the bounds of claims to what limits of clients leave them.
    pub fn lower(&self, claims: &mut [Claim]) {
        let mut answers = Vec::new();
        for cap in &self.caps {
            let together: Vec<Claim> = cap.members.iter().map(|&at| claims[at]).collect();
            shares(cap.most, &together, &mut answers);
            for (&at, share) in cap.members.iter().zip(&answers) {
                claims[at].bound = claims[at].bound.min(share.target);
            }
        }
    }

    /// Divides anew among the groups of his servers what each user has.
    pub fn divide_parts(&self, claims: &[Claim], shares: &mut [Share]) {
        let mut again = Vec::new();
        for Part { members, classes } in &self.parts {
            let had: Vec<Share> = members.iter().map(|&at| shares[at]).collect();
            let amount: f64 = had.iter().map(|share| share.target).sum();
            if amount == f64::INFINITY {
                continue; // Nothing is short.
            }
            let more: Vec<f64> =
                had.iter().map(|share| (share.offer - share.target).max(0.0)).collect();
            let claims: Vec<Claim> = members.iter().map(|&at| claims[at]).collect();
            divide_part(amount, &more, &claims, classes, &mut again);
            for (&at, share) in members.iter().zip(&again) {
                shares[at] = *share;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gtp_alloc::within::divide;
    use proptest::prelude::*;

    use super::*;

    /// A session: its user, its group with what that is guaranteed and has at most, its client's
    /// limit, its weight and what it can use; rates in Mbit/s.
    type Drawn = (u32, u32, [u64; 2], u64, f64, u64);

    fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
        let limits = [0_u64..60, 1_u64..90];
        prop::collection::vec(
            (0_u32..3, 0_u32..3, limits, 1_u64..40, 0.1_f64..9.0, 0_u64..60),
            1..24,
        )
    }

    fn member(place: usize, drawn: &Drawn) -> Member {
        let &(uid, group, [least, most], each, ..) = drawn;
        let transfer = TransferId { client: 1, principal: each + 1, transfer: place as u64 };
        let (least, most) = (Rate::from_mbps(least.min(most)), Rate::from_mbps(most));
        let terms = Terms { weight: 1.0, each: Rate::from_mbps(each), group, least, most };
        Member { uid, server: ServerId::new(uid, 1, 1), transfer, terms }
    }

    #[test]
    fn guarantees_of_groups_that_somebody_makes_up_take_a_bounded_time() {
        let row: Vec<Member> =
            (0..4_000_u32).map(|n| member(n as usize, &(1, n + 1, [5, 9], 39, 1.0, 1))).collect();
        let limits = Bounds::default().of_row(&row);
        let classes = &limits.parts[0].classes;
        let promised = classes.iter().filter(|class| class.all.limits.least > 0.0).count();
        assert_eq!((classes.len(), promised), (4_000, LOOKS_MOST / 4_000));
    }

    #[test]
    fn a_group_has_what_it_is_guaranteed_where_only_its_user_is_short() {
        let row = [(1, 1, [60, 90], 90, 1.0, 90), (1, 2, [0, 90], 90, 9.0, 90)];
        let row: Vec<Member> =
            row.iter().enumerate().map(|(place, one)| member(place, one)).collect();
        let most = BTreeMap::from([(1, Rate::from_mbps(100))]);
        let limits = Bounds::new(&BTreeMap::new(), &most).of_row(&row);
        let claims = [1.0, 9.0].map(|weight| Claim { weight, bound: 90e6 });
        let mut shares = Vec::new();
        divide(f64::INFINITY, &claims, &limits.users, &mut shares);
        limits.divide_parts(&claims, &mut shares);
        assert!(near(shares[0].target, 60e6) && near(shares[1].target, 40e6), "{shares:?}");
        assert!(shares.iter().all(|share| share.offer >= share.target), "{shares:?}");
    }

    fn near(x: f64, y: f64) -> bool {
        (x - y).abs() <= 1e-6 * y.abs().max(1.0)
    }

    proptest! {
        #[test]
        fn groups_divide_what_their_servers_user_has_and_no_user_has_more_or_less_for_it(
            drawn in drawn(),
            capacity in 1_u64..200,
        ) {
            let row: Vec<Member> =
                drawn.iter().enumerate().map(|(place, one)| member(place, one)).collect();
            let limits = Bounds::default().of_row(&row);
            let claim = |one: &Drawn| Claim { weight: one.4, bound: one.5 as f64 * 1e6 };
            let mut claims: Vec<Claim> = drawn.iter().map(claim).collect();
            limits.lower(&mut claims);
            let capacity = capacity as f64 * 1e6;
            let mut shares = Vec::new();
            divide(capacity, &claims, &limits.users, &mut shares);
            let sum = |shares: &[Share], is: &dyn Fn(&Member) -> bool| -> f64 {
                let of = row.iter().zip(shares).filter(|(member, _)| is(member));
                of.map(|(_, share)| share.target).sum()
            };
            let users = |shares: &[Share]| [0, 1, 2].map(|uid| sum(shares, &|m| m.uid == uid));
            let before = users(&shares);
            limits.divide_parts(&claims, &mut shares);
            let after = users(&shares);
            let same = before.iter().zip(&after).all(|(x, y)| near(*x, *y));
            prop_assert!(same, "{before:?} {after:?}");
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(share.target <= claim.bound + 1.0);
                prop_assert!(share.offer + 1.0 >= share.target);
            }
            for user in 0..3_u32 {
                let groups = [1_u32, 2].map(|group| {
                    let is = move |m: &Member| m.uid == user && m.terms.group == group;
                    let terms = row.iter().filter(|m| is(m)).map(|m| m.terms);
                    let least = terms.clone().map(|terms| terms.least.as_f64());
                    let least = least.fold(f64::MAX, f64::min);
                    let most = terms.map(|terms| terms.most.as_f64()).fold(f64::MAX, f64::min);
                    let of = row.iter().zip(&claims).filter(|(m, _)| is(m));
                    let usable: f64 = of.map(|(_, claim)| claim.bound).sum();
                    (sum(&shares, &is), least.min(most), most, usable)
                });
                let leasts = groups.iter().map(|(_, least, ..)| *least);
                let promised: f64 = leasts.filter(|least| *least < 1e12).sum();
                for (has, least, most, usable) in groups {
                    prop_assert!(has <= most * (1.0 + 1e-9) + 1.0);
                    let due = least.min(usable);
                    let fits = promised <= after[user as usize];
                    prop_assert!(!fits || has + 1.0 >= due, "{has} of {due}");
                }
            }
        }
    }
}
