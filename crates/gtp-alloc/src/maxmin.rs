//! The global max-min oracle: the exact rates that every distributed law here must end at.
//!
//! Thesis, Algorithm 1 (V.2), generalised: sessions have weights and may cross any list of
//! resources. The idea is the water level. All sessions rise together, `weight x level` each; the
//! first node to fill fixes its sessions at that level, the first demand to be met fixes its
//! session alone, and the rest rise on. A node's own level, what is left over the weights that
//! still rise, never falls, so a stale entry in the heap of levels is a lower bound and need only
//! be refreshed when it comes to the top: `O(E log V)` in all, E being the sum of list lengths.
//!
//! `[FIX]` The printed algorithm takes rate zero for "undetermined" and never ends with a demand
//! or capacity of zero. Here settled sessions are marked by a bit. Nothing here knows of time,
//! messages, or what a resource is. `cargo bench -p gtp-alloc --bench laws -- oracle` says how long
//! it takes for up to ten million sessions over 10^5 nodes.

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

mod wanted;

use wanted::{Wanted, Wish};

/// The largest finite capacity, in bit/s; 2^100. Wide enough for any unit, and far enough from
/// the edges of `f64` that no quotient below overflows.
pub const CAPACITY_MAX: f64 = (1u128 << 100) as f64;
/// The smallest capacity other than zero; 2^-100, so that no rate loses precision by underflow.
pub const CAPACITY_MIN: f64 = 1.0 / CAPACITY_MAX;
/// The largest weight; 2^20. With [`WEIGHT_MIN`] it lets sums of weights be exact in 128 bits.
pub const WEIGHT_MAX: f64 = (1u64 << 20) as f64;
/// The smallest weight; 2^-20.
pub const WEIGHT_MIN: f64 = 1.0 / WEIGHT_MAX;

/// Weights are summed as multiples of 2^-72: the last bit of the smallest weight's mantissa.
/// 2^32 sessions of the largest weight then need 72 + 20 + 32 = 124 bits.
const WEIGHT_UNIT: f64 = (1u128 << 72) as f64;

/// One session of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session<'a> {
    /// Indices into the network's capacities of the resources crossed: usually one source node
    /// and one sink node. Empty only if the demand is finite.
    pub uses: &'a [u32],
    /// Share relative to others, in [`WEIGHT_MIN`]`..=`[`WEIGHT_MAX`]; 1 is usual.
    pub weight: f64,
    /// The most it can use, in bit/s; `f64::INFINITY` if there is no such bound.
    pub demand: f64,
}

/// A bandwidth sharing problem: resources with capacities, sessions that cross them.
///
/// Built session by session, checked as it is built, so that every `Network` has a solution.
#[derive(Clone, Debug)]
pub struct Network {
    capacity: Vec<f64>,
    /// The resources of all sessions, one list after the other.
    uses: Vec<u32>,
    /// `uses[start[k]..start[k + 1]]` are the resources of session k. Empty while every session
    /// uses two.
    start: Vec<u32>,
    /// Empty while every weight is 1, which spares a cache miss for each session.
    weight: Vec<f64>,
    /// Empty while every demand is infinite.
    demand: Vec<f64>,
    /// For each resource, one more than the last session that named it.
    named: Vec<u32>,
}

/// Why a resource or session was refused. Indices count from zero in the order of adding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NetworkError {
    /// The capacity is negative, NaN, or finite but outside
    /// [`CAPACITY_MIN`]`..=`[`CAPACITY_MAX`].
    Capacity {
        /// Index of the resource.
        resource: u32,
    },
    /// The weight is outside [`WEIGHT_MIN`]`..=`[`WEIGHT_MAX`].
    Weight {
        /// Index that the session would have had.
        session: u32,
    },
    /// The demand is negative or NaN.
    Demand {
        /// Index that the session would have had.
        session: u32,
    },
    /// A resource is named that does not exist.
    UnknownResource {
        /// Index that the session would have had.
        session: u32,
        /// The index that it names.
        resource: u32,
    },
    /// A resource is named twice by one session.
    DuplicateResource {
        /// Index that the session would have had.
        session: u32,
        /// The index that it repeats.
        resource: u32,
    },
    /// Neither a demand nor a finite capacity limits the session.
    Unbounded {
        /// Index that the session would have had.
        session: u32,
    },
    /// More than 2^32 - 2 resources, sessions, or list entries in all.
    TooLarge,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NetworkError::Capacity { resource } => {
                write!(f, "capacity of resource {resource} is not in 0, 2^-100..=2^100 or infinity")
            }
            NetworkError::Weight { session } => {
                write!(f, "weight of session {session} is not in 2^-20..=2^20")
            }
            NetworkError::Demand { session } => {
                write!(f, "demand of session {session} is negative or not a number")
            }
            NetworkError::UnknownResource { session, resource } => {
                write!(f, "session {session} uses resource {resource}, which does not exist")
            }
            NetworkError::DuplicateResource { session, resource } => {
                write!(f, "session {session} uses resource {resource} twice")
            }
            NetworkError::Unbounded { session } => {
                write!(f, "session {session} has neither a demand nor a finite capacity on its way")
            }
            NetworkError::TooLarge => f.write_str("more than 2^32 - 2 resources or list entries"),
        }
    }
}

impl core::error::Error for NetworkError {}

impl Network {
    /// A network of resources with these capacities in bit/s (infinity: never a bottleneck) and
    /// no sessions yet.
    ///
    /// # Errors
    /// [`NetworkError::Capacity`] and [`NetworkError::TooLarge`].
    pub fn new(capacity: Vec<f64>) -> Result<Network, NetworkError> {
        if capacity.len() >= u32::MAX as usize {
            return Err(NetworkError::TooLarge);
        }
        let good =
            |c: f64| c == 0.0 || c == f64::INFINITY || (CAPACITY_MIN..=CAPACITY_MAX).contains(&c);
        if let Some(bad) = capacity.iter().position(|&c| !good(c)) {
            return Err(NetworkError::Capacity { resource: bad as u32 });
        }
        let named = alloc::vec![0; capacity.len()];
        Ok(Network {
            capacity,
            uses: Vec::new(),
            start: Vec::new(),
            weight: Vec::new(),
            demand: Vec::new(),
            named,
        })
    }

    /// Adds a session and returns its index.
    ///
    /// # Errors
    /// Every [`NetworkError`] but `Capacity`; the network is then unchanged.
    pub fn add(&mut self, session: Session<'_>) -> Result<u32, NetworkError> {
        let k = self.sessions() as u32;
        let before = self.uses.len();
        if k >= u32::MAX - 1 || self.uses.len() + session.uses.len() >= u32::MAX as usize {
            return Err(NetworkError::TooLarge);
        }
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&session.weight) {
            return Err(NetworkError::Weight { session: k });
        }
        if session.demand.is_nan() || session.demand < 0.0 {
            return Err(NetworkError::Demand { session: k });
        }
        if let Err(e) = self.add_uses(k, &session) {
            // Forget what this session named, so that a repaired one may be added.
            for &r in &self.uses[before..] {
                self.named[r as usize] = 0;
            }
            self.uses.truncate(before);
            return Err(e);
        }
        if self.start.is_empty() && session.uses.len() != 2 {
            self.start = (0..=k).map(|k| 2 * k).collect();
        }
        if !self.start.is_empty() {
            self.start.push(self.uses.len() as u32);
        }
        note(&mut self.weight, k as usize, session.weight, 1.0);
        note(&mut self.demand, k as usize, session.demand, f64::INFINITY);
        Ok(k)
    }

    fn add_uses(&mut self, k: u32, session: &Session<'_>) -> Result<(), NetworkError> {
        let mut bounded = session.demand.is_finite();
        for &r in session.uses {
            match self.named.get_mut(r as usize) {
                None => return Err(NetworkError::UnknownResource { session: k, resource: r }),
                Some(last) if *last == k + 1 => {
                    return Err(NetworkError::DuplicateResource { session: k, resource: r });
                }
                Some(last) => *last = k + 1,
            }
            bounded |= self.capacity[r as usize].is_finite();
            self.uses.push(r);
        }
        if bounded { Ok(()) } else { Err(NetworkError::Unbounded { session: k }) }
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        if self.start.is_empty() { self.uses.len() / 2 } else { self.start.len() - 1 }
    }

    /// The capacities in bit/s, by resource.
    pub fn capacities(&self) -> &[f64] {
        &self.capacity
    }

    /// Session `k` as it was added.
    ///
    /// # Panics
    /// If there is no session `k`.
    pub fn session(&self, k: usize) -> Session<'_> {
        Session { uses: self.uses_of(k), weight: self.weight_of(k), demand: self.demand_of(k) }
    }

    fn uses_of(&self, k: usize) -> &[u32] {
        if self.start.is_empty() {
            return &self.uses[2 * k..2 * k + 2];
        }
        &self.uses[self.start[k] as usize..self.start[k + 1] as usize]
    }

    fn weight_of(&self, k: usize) -> f64 {
        if self.weight.is_empty() { 1.0 } else { self.weight[k] }
    }

    fn demand_of(&self, k: usize) -> f64 {
        if self.demand.is_empty() { f64::INFINITY } else { self.demand[k] }
    }
}

/// Appends `value` as entry `k` of `column`, which stays empty while all values are `usual`.
fn note(column: &mut Vec<f64>, k: usize, value: f64, usual: f64) {
    if column.is_empty() && value != usual {
        column.resize(k, usual);
    }
    if value != usual || !column.is_empty() {
        column.push(value);
    }
}

/// The max-min fair rates in bit/s, by session.
///
/// Exact up to rounding: no resource is overloaded by more than some 10^-15 of its capacity.
/// Unique (thesis, Proposition 1), so the order of sessions and resources does not matter.
pub fn solve(network: &Network) -> Vec<f64> {
    let mut filling = Filling::new(network);
    let mut wanted = Wanted::new(filling.settle_the_modest());
    filling.list_members();
    let mut levels = filling.levels();
    loop {
        let wish = wanted.lowest(&filling);
        let Some(mut lowest) = levels.peek_mut() else {
            // No node limits anybody any more: the rest get what they ask for.
            match wish {
                Some(wish) => filling.grant(wish),
                None => break,
            }
            continue;
        };
        let Reverse((stale, node)) = *lowest;
        if let Some(wish) = wish.filter(|wish| wish.ratio <= f64::from_bits(stale)) {
            filling.grant(wish);
            continue;
        }
        match filling.nodes[node as usize].level() {
            None => {
                PeekMut::pop(lowest);
            }
            Some(level) if level.to_bits() > stale => *lowest = Reverse((level.to_bits(), node)),
            Some(level) => {
                PeekMut::pop(lowest);
                filling.settle_node(node, level);
            }
        }
    }
    filling.rates()
}

/// What a resource still has for the sessions that still rise.
#[derive(Clone, Copy)]
struct Node {
    /// What is left, in bit/s, as an unevaluated sum of two floats: the error of a million
    /// subtractions stays far below one part in 10^20 of the capacity.
    left: (f64, f64),
    /// Sum of the weights still rising, in units of 2^-72: exact, so it ends at zero.
    weight: u128,
}

impl Node {
    /// Thesis, eq. V.2: the average rate of the undetermined sessions; `None` without any.
    fn level(&self) -> Option<f64> {
        let left = self.left.0 + self.left.1;
        let level = left / self.weight as f64 * WEIGHT_UNIT;
        // What is left may be negative by a rounding error; -0.0 has other bits than 0.0.
        (self.weight != 0).then_some(if level > 0.0 { level } else { 0.0 })
    }

    fn take(&mut self, rate: f64, weight: u128) {
        let (high, low) = self.left;
        let next = high - rate;
        let gone = high - next;
        let lost = (high - (next + gone)) + (gone - rate);
        self.left = (next, low + lost);
        self.weight -= weight;
    }
}

/// One entry of a node's list of sessions: the session and, if its own list has just two
/// resources, the other one. Otherwise [`MANY`]. The usual session then never needs its list
/// looked up, which at ten million sessions is a cache and a page miss each.
type Member = (u32, u32);

/// In place of the other resource: there is not exactly one.
const MANY: u32 = u32::MAX;

/// A filling under way.
struct Filling<'a> {
    network: &'a Network,
    nodes: Vec<Node>,
    /// `members[first[v]..first[v + 1]]` are the sessions of node v, once they are listed.
    first: Vec<u32>,
    members: Vec<Member>,
    /// One bit for each session: few enough to stay in the nearest caches.
    settled: Vec<u64>,
    /// The level reached so far.
    level: f64,
    /// The level at which each node filled; infinite if it has not.
    full: Vec<f64>,
    /// Room for the sessions that one node settles, and their weights.
    rising: Vec<(Member, f64)>,
}

impl<'a> Filling<'a> {
    fn new(network: &'a Network) -> Filling<'a> {
        // In place of infinity, for which differences would not be numbers.
        let node = |&c: &f64| Node { left: (c.min(f64::MAX), 0.0), weight: 0 };
        let mut nodes: Vec<Node> = network.capacity.iter().map(node).collect();
        for k in 0..network.sessions() {
            let weight = exact(network.weight_of(k));
            network.uses_of(k).iter().for_each(|&r| nodes[r as usize].weight += weight);
        }
        let settled = alloc::vec![0; network.sessions().div_ceil(64)];
        let full = alloc::vec![f64::INFINITY; nodes.len()];
        let (first, members, rising) = (Vec::new(), Vec::new(), Vec::new());
        Filling { network, nodes, first, members, settled, level: 0.0, full, rising }
    }

    /// Lists for each node its sessions that still rise.
    fn list_members(&mut self) {
        let network = self.network;
        let rising = |k: &usize| !self.is_settled(*k);
        let mut first = alloc::vec![0u32; self.nodes.len() + 1];
        for k in (0..network.sessions()).filter(rising) {
            network.uses_of(k).iter().for_each(|&r| first[r as usize + 1] += 1);
        }
        for v in 0..self.nodes.len() {
            first[v + 1] += first[v];
        }
        let mut place = first.clone();
        let mut members = alloc::vec![(0, 0); first[self.nodes.len()] as usize];
        let mut enter = |r: u32, member: Member| {
            let place = &mut place[r as usize];
            members[*place as usize] = member;
            *place += 1;
        };
        for k in (0..network.sessions()).filter(rising) {
            match *network.uses_of(k) {
                [a, b] => {
                    enter(a, (k as u32, b));
                    enter(b, (k as u32, a));
                }
                ref many => many.iter().for_each(|&r| enter(r, (k as u32, MANY))),
            }
        }
        (self.first, self.members) = (first, members);
    }

    /// The levels of all nodes that can ever be a bottleneck, lowest first.
    fn levels(&self) -> BinaryHeap<Reverse<(u64, u32)>> {
        let finite = |v: &usize| self.network.capacity[*v].is_finite();
        let entry = |v: usize| Some(Reverse((self.nodes[v].level()?.to_bits(), v as u32)));
        (0..self.nodes.len()).filter(finite).filter_map(entry).collect()
    }

    fn is_settled(&self, k: usize) -> bool {
        self.settled[k / 64] >> (k % 64) & 1 == 1
    }

    fn mark_settled(&mut self, k: usize) {
        self.settled[k / 64] |= 1 << (k % 64);
    }

    /// Settles sessions that want no more than the level of each of their nodes; returns those
    /// of finite demand that remain, each with its ratio as [`Wanted`] wants them.
    ///
    /// Levels never fall, so the order of such settlements is free: this one needs no sorting
    /// and visits the sessions as they lie. It is repeated while it halves what remains.
    fn settle_the_modest(&mut self) -> Vec<u64> {
        let network = self.network;
        let finite = |&k: &usize| network.demand[k] != f64::INFINITY;
        let levels = self.all_levels();
        let mut wanted = Vec::with_capacity(network.demand.len());
        let mut before = 0;
        for k in (0..network.demand.len()).filter(finite) {
            wanted.extend(self.try_modest(k, &levels));
            before += 1;
        }
        while wanted.len() <= before / 2 && !wanted.is_empty() {
            before = wanted.len();
            let levels = self.all_levels();
            wanted.retain(|&packed| self.try_modest(packed as u32 as usize, &levels).is_some());
        }
        wanted
    }

    /// Settles session `k` if it wants no more than the level of each of its nodes; otherwise
    /// returns it with its ratio.
    fn try_modest(&mut self, k: usize, levels: &[f64]) -> Option<u64> {
        let level = |&r: &u32| levels[r as usize];
        let lowest = match self.network.uses_of(k) {
            [a, b] => level(a).min(level(b)),
            many => many.iter().map(level).fold(f64::INFINITY, f64::min),
        };
        let wish = Wish::of(self.network, k);
        if wish.ratio > lowest {
            return Some(wanted::packed(wish.ratio, wish.session));
        }
        self.grant(&wish);
        None
    }

    /// The level of each node; infinite if nobody rises there.
    fn all_levels(&self) -> Vec<f64> {
        self.nodes.iter().map(|node| node.level().unwrap_or(f64::INFINITY)).collect()
    }

    /// Algorithm 1, lines 7 and 8.
    fn grant(&mut self, wish: &Wish) {
        self.mark_settled(wish.session as usize);
        match wish.uses {
            (MANY, _) => self.take(wish.session as usize, wish.demand, MANY),
            (a, b) => {
                let weight = exact(wish.weight);
                self.nodes[a as usize].take(wish.demand, weight);
                self.nodes[b as usize].take(wish.demand, weight);
            }
        }
    }

    /// Algorithm 1, lines 4 and 5. The node itself needs no more account.
    fn settle_node(&mut self, node: u32, level: f64) {
        // Among equal levels rounding may show this one lower than one settled before; the
        // difference is a rounding error of this node's capacity.
        self.level = self.level.max(level);
        self.full[node as usize] = self.level;
        let members = self.first[node as usize] as usize..self.first[node as usize + 1] as usize;
        let mut rising = core::mem::take(&mut self.rising);
        rising.resize(rising.len().max(members.len()), ((0, 0), 0.0));
        // Without a branch: which sessions still rise is as good as random.
        let mut n = 0;
        for &member in &self.members[members] {
            rising[n].0 = member;
            n += usize::from(!self.is_settled(member.0 as usize));
        }
        // The weights lie all over memory: looked up by themselves, they come side by side.
        for (member, weight) in &mut rising[..n] {
            *weight = self.network.weight_of(member.0 as usize);
        }
        for &((k, other), weight) in &rising[..n] {
            self.mark_settled(k as usize);
            match other {
                MANY => self.take(k as usize, weight * self.level, node),
                other => self.nodes[other as usize].take(weight * self.level, exact(weight)),
            }
        }
        self.rising = rising;
    }

    /// Takes `rate` from every resource of session `k` but `except`.
    fn take(&mut self, k: usize, rate: f64, except: u32) {
        let weight = exact(self.network.weight_of(k));
        for &r in self.network.uses_of(k).iter().filter(|&&r| r != except) {
            self.nodes[r as usize].take(rate, weight);
        }
    }

    /// What each session was settled at: its demand, or the lowest level at which a node on its
    /// way filled. In one pass at the end, because it visits the sessions in their order.
    fn rates(&self) -> Vec<f64> {
        let full = |&r: &u32| self.full[r as usize];
        let level = |k| self.network.uses_of(k).iter().map(full).fold(f64::INFINITY, f64::min);
        let rate = |k| self.network.demand_of(k).min(self.network.weight_of(k) * level(k));
        (0..self.network.sessions()).map(rate).collect()
    }
}

/// A weight in units of 2^-72, without rounding.
///
/// The conversion of floats to 128 bits takes a call and several branches, which weights, being
/// neither tiny nor large, do not need: the least exponent puts the last bit of the mantissa at
/// 2^-72.
fn exact(weight: f64) -> u128 {
    let bits = weight.to_bits();
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    u128::from(mantissa) << ((bits >> 52) - (WEIGHT_MIN.to_bits() >> 52))
}
