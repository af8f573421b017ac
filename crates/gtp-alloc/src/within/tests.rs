//! Shares within guarantees and caps, held against a twin that knows only the definition.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A session with its user and its transfer, if those have limits.
#[derive(Clone, Debug)]
struct Drawn {
    claim: Claim,
    user: usize,
    transfer: usize,
}

/// Limits of users, and of the transfers of each.
#[derive(Clone, Debug)]
struct World {
    capacity: f64,
    sessions: Vec<Drawn>,
    users: Vec<Limits>,
    transfers: Vec<Vec<Limits>>,
}

impl World {
    fn groups(&self) -> Vec<Class> {
        let members = |of: &dyn Fn(&Drawn) -> bool| {
            (0..self.sessions.len()).filter(|&at| of(&self.sessions[at])).collect::<Vec<usize>>()
        };
        let user = |u: usize| Class {
            all: Group { limits: self.users[u], members: members(&|s| s.user == u) },
            inner: (0..self.transfers[u].len())
                .map(|t| Group {
                    limits: self.transfers[u][t],
                    members: members(&|s| s.user == u && s.transfer == t),
                })
                .collect(),
        };
        (0..self.users.len()).map(user).collect()
    }

    fn divided(&self) -> Vec<Share> {
        let claims: Vec<Claim> = self.sessions.iter().map(|s| s.claim).collect();
        let mut out = Vec::new();
        divide(self.capacity, &claims, &self.groups(), &mut out);
        out
    }

    /// By the definition: a level for the host, one for each user, one for each transfer, each
    /// found by halving.
    fn twin(&self) -> Vec<f64> {
        let part = (self.capacity / guaranteed(&self.groups())).min(1.0);
        let users: Vec<Twin> = (0..self.users.len()).map(|u| self.twin_of(u, part)).collect();
        let host = Twin { least: 0.0, most: self.capacity, below: users, leaf: None };
        let mut out = vec![0.0; self.sessions.len()];
        host.give(host.amount(f64::MAX), &mut out);
        out
    }

    fn twin_of(&self, user: usize, part: f64) -> Twin {
        let limits = self.users[user];
        let promised: f64 = self.transfers[user].iter().map(Limits::guarantee).sum();
        let within = part * (limits.most / promised).min(1.0);
        let transfer = |t: usize| {
            let Limits { most, .. } = self.transfers[user][t];
            let least = within * self.transfers[user][t].guarantee();
            let mine = (0..self.sessions.len()).filter(|&at| {
                let session = &self.sessions[at];
                session.user == user && session.transfer == t
            });
            let leaf = |at: usize| Twin {
                least: 0.0,
                most: self.sessions[at].claim.bound,
                below: Vec::new(),
                leaf: Some((at, self.sessions[at].claim.weight)),
            };
            Twin { least, most, below: mine.map(leaf).collect(), leaf: None }
        };
        Twin {
            least: part * limits.guarantee(),
            most: limits.most,
            below: (0..self.transfers[user].len()).map(transfer).collect(),
            leaf: None,
        }
    }
}

/// A node that has between `least`, as far as it can use it, and `most`.
struct Twin {
    least: f64,
    most: f64,
    below: Vec<Twin>,
    leaf: Option<(usize, f64)>,
}

impl Twin {
    fn raw(&self, level: f64) -> f64 {
        match self.leaf {
            Some((_, weight)) => weight * level,
            None => self.below.iter().map(|twin| twin.amount(level)).sum(),
        }
    }

    /// What it has at a level.
    fn amount(&self, level: f64) -> f64 {
        let usable = if self.leaf.is_some() { self.most } else { self.raw(HIGH) };
        self.raw(level).max(self.least.min(usable)).min(self.most)
    }

    /// Gives this amount to what is below.
    fn give(&self, amount: f64, out: &mut [f64]) {
        if let Some((at, _)) = self.leaf {
            out[at] = amount;
            return;
        }
        let (mut low, mut high) = (0.0, HIGH);
        for _ in 0..200 {
            let level = 0.5 * (low + high);
            if self.raw(level) < amount { low = level } else { high = level }
        }
        self.below.iter().for_each(|twin| twin.give(twin.amount(high), out));
    }
}

/// A level at which all have what they want.
const HIGH: f64 = 1e9;
/// A bound that is never reached.
const LIFTED: f64 = 1e8;

fn limits() -> impl Strategy<Value = Limits> {
    let least = prop_oneof![2 => Just(0.0), 1 => 1.0..150.0];
    let most = prop_oneof![2 => Just(f64::INFINITY), 1 => 1.0..150.0];
    (least, most).prop_map(|(least, most)| Limits { least, most })
}

fn world() -> impl Strategy<Value = World> {
    let bound = prop_oneof![1 => Just(LIFTED), 1 => Just(0.0), 3 => 0.5..100.0];
    let session = (0.1..4.0, bound, 0_usize..3, 0_usize..3).prop_map(|(weight, bound, user, t)| {
        Drawn { claim: Claim { weight, bound }, user, transfer: t }
    });
    let users = proptest::collection::vec(limits(), 3);
    let transfers = proptest::collection::vec(proptest::collection::vec(limits(), 3), 3);
    (20.0..200.0, proptest::collection::vec(session, 1..12), users, transfers).prop_map(
        |(capacity, sessions, users, transfers)| World { capacity, sessions, users, transfers },
    )
}

fn near(x: f64, y: f64) -> bool {
    (x - y).abs() <= 1e-6 * y.abs().max(1.0)
}

proptest! {
    #[test]
    fn shares_are_those_of_the_definition_and_offers_those_without_a_sessions_own_bound(
        world in world(),
    ) {
        let shares = world.divided();
        let twin = world.twin();
        let sum: f64 = shares.iter().map(|share| share.target).sum();
        prop_assert!(sum <= world.capacity * (1.0 + 1e-12), "{sum} of {}", world.capacity);
        for (at, share) in shares.iter().enumerate() {
            prop_assert!(near(share.target, twin[at]), "{at}: {share:?} and {}", twin[at]);
            let mut lifted = world.clone();
            lifted.sessions[at].claim.bound = LIFTED;
            let offer = lifted.twin()[at];
            prop_assert!(near(share.offer, offer), "{at}: {share:?} and {offer} lifted");
        }
    }
}

const NONE: Limits = Limits { least: 0.0, most: f64::INFINITY };

const fn least(least: f64) -> Limits {
    Limits { least, ..NONE }
}

/// Targets of users with one transfer and one session each that want so much.
fn alone(capacity: f64, users: &[(Limits, f64)]) -> Vec<f64> {
    let claims: Vec<Claim> = users.iter().map(|&(_, bound)| Claim { weight: 1.0, bound }).collect();
    let user = |(at, &(limits, _)): (usize, &(Limits, f64))| Class {
        all: Group { limits, members: vec![at] },
        inner: Vec::new(),
    };
    let users: Vec<Class> = users.iter().enumerate().map(user).collect();
    let mut out = Vec::new();
    divide(capacity, &claims, &users, &mut out);
    out.iter().map(|share| share.target).collect()
}

#[test]
fn a_guarantee_is_served_first_and_the_rest_is_shared() {
    let inf = f64::INFINITY;
    assert_eq!(alone(100.0, &[(least(60.0), inf), (NONE, inf)]), [60.0, 40.0]);
    assert_eq!(alone(100.0, &[(least(40.0), inf), (NONE, inf)]), [50.0, 50.0]);
}

#[test]
fn what_is_guaranteed_and_not_wanted_goes_to_others() {
    let inf = f64::INFINITY;
    assert_eq!(alone(100.0, &[(least(60.0), 10.0), (NONE, inf)]), [10.0, 90.0]);
}

#[test]
fn guarantees_above_the_capacity_are_cut_in_one_proportion() {
    let inf = f64::INFINITY;
    let all = [(least(150.0), inf), (least(50.0), inf), (NONE, inf)];
    assert_eq!(alone(100.0, &all), [75.0, 25.0, 0.0]);
}

#[test]
fn without_limits_shares_are_those_of_the_grant_law() {
    let claims: Vec<Claim> = [(1.0, 5.0), (2.0, f64::INFINITY), (0.5, 90.0)]
        .map(|(weight, bound)| Claim { weight, bound })
        .into();
    let (mut ours, mut law) = (Vec::new(), Vec::new());
    divide(100.0, &claims, &[], &mut ours);
    shares(100.0, &claims, &mut law);
    for (ours, law) in ours.iter().zip(&law) {
        assert!(near(ours.target, law.target) && near(ours.offer, law.offer));
    }
}

#[test]
fn a_guarantee_and_a_cap_that_are_the_capacity_together_leave_nobody_without() {
    for (guaranteed, count) in [(600e6, 3), (600e6, 5), (750e6, 7), (900e6, 11)] {
        let capped = 1e9 - guaranteed;
        let weight = f64::from(1.0 / count as f32);
        let greedy = |weight| Claim { weight, bound: f64::INFINITY };
        let mut claims = vec![greedy(weight); count];
        claims.push(greedy(1.0));
        let user = |limits, members: Vec<usize>| Class {
            all: Group { limits, members },
            inner: Vec::new(),
        };
        let users = [
            user(Limits { least: guaranteed, most: f64::INFINITY }, (0..count).collect()),
            user(Limits { least: 0.0, most: capped }, vec![count]),
        ];
        let mut shares = Vec::new();
        divide(1e9, &claims, &users, &mut shares);
        assert!((shares[count].target - capped).abs() < 1.0, "{count}: {:?}", shares[count]);
    }
}

#[test]
fn a_part_divided_anew_serves_its_guarantees_first_and_an_offer_counts_what_the_whole_would_add() {
    let claim = |weight, bound| Claim { weight, bound };
    let claims = [claim(3.0, f64::INFINITY), claim(1.0, f64::INFINITY), claim(1.0, 2.0)];
    let limits = Limits { least: 40.0, most: f64::INFINITY };
    let class = Class { all: Group { limits, members: vec![1] }, inner: Vec::new() };
    let divided = |more: f64| {
        let mut out = Vec::new();
        divide_part(50.0, &[0.0, 0.0, more], &claims, core::slice::from_ref(&class), &mut out);
        out
    };
    let shares = divided(5.0);
    let targets: Vec<f64> = shares.iter().map(|share| share.target).collect();
    assert!([8.0, 40.0, 2.0].iter().zip(&targets).all(|(x, y)| near(*x, *y)), "{targets:?}");
    // With its bound lifted the third shares 15 with the first by weight, or 10 if the whole adds
    // nothing.
    assert!(near(shares[2].offer, 15.0 / 4.0), "{shares:?}");
    assert!(near(divided(0.0)[2].offer, 10.0 / 4.0));
}
