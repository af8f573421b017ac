//! Hierarchical max-min: a host's capacity among users, theirs among transfers, theirs among
//! sessions.
//!
//! Shares are settled from the top: a user has what the user's weight gives, however many sessions
//! there are, and what some of them cannot use goes to the user's others first, then to all. The
//! same tree flattens into one weight for each session, which does not depend on rates; with those
//! weights the flat law of [`crate::grant`] gives each user its share whenever all want more.
//! Nothing here knows what a user or a transfer is: a tree is any depth of nodes.

use alloc::vec::Vec;

/// When a node gets something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// With all others.
    #[default]
    Normal,
    /// Only what all normal nodes of the whole tree leave.
    Low,
}

/// One node: a user, a transfer, or a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Its place in the list is before its own; `None` at the top.
    pub parent: Option<usize>,
    /// Positive weight among its siblings; clamped into `1e-3..=1e3`, NaN to the lower end.
    pub weight: f64,
    /// What it is given before levels count, in bit/s, as far as it can use it. Guarantees of
    /// low nodes do not count.
    pub guarantee: f64,
    /// The most that it may have or, for a leaf, can use, in bit/s; infinite if there is none.
    pub cap: f64,
    /// When it gets something.
    pub policy: Policy,
}

impl Node {
    /// A node of weight one without any limit below `parent`.
    pub const fn below(parent: Option<usize>) -> Node {
        Node { parent, weight: 1.0, guarantee: 0.0, cap: f64::INFINITY, policy: Policy::Normal }
    }
}

/// Weights of siblings lie within this factor of one.
pub const WEIGHT_MOST: f64 = 1e3;
/// The flattened weight of what is low, against what is normal: beside normal sessions that want
/// more it gets one part in a million, and what they leave it gets whole.
pub const LOW_WEIGHT: f64 = 1e-6;

/// The weight of each node among all leaves, written to `out` in order.
///
/// The weights of a node's normal children sum to its own, and so do those of its low children
/// before [`LOW_WEIGHT`] is applied. So they depend on who is there and on weights, never on rates.
pub fn weights(nodes: &[Node], out: &mut Vec<f64>) {
    out.clear();
    let tree = Tree::new(nodes);
    out.resize(nodes.len(), 0.0);
    for &group in &tree.groups() {
        let whole = group.map_or(1.0, |parent| out[parent]);
        for policy in [Policy::Normal, Policy::Low] {
            let of_kind = || tree.children(group).iter().filter(|&&n| tree.policy[n] == policy);
            let sum: f64 = of_kind().map(|&n| weight(&nodes[n])).sum();
            for &n in of_kind() {
                let part = match group {
                    // Users do not share a weight: each has its own.
                    None => weight(&nodes[n]),
                    Some(_) => weight(&nodes[n]) / sum,
                };
                let low_begins_here =
                    policy == Policy::Low && tree.parent_policy(group) == Policy::Normal;
                out[n] = whole * part * if low_begins_here { LOW_WEIGHT } else { 1.0 };
            }
        }
    }
}

/// What each node gets of `capacity` bit/s (may be infinite), written to `out` in order: for a
/// node with children the sum of theirs.
///
/// Normal nodes first: at every node the part of each child is `min(b, max(g, w L))` with one
/// level `L` for all of them, where `b` is the most that it and all below it may have, and `g`
/// what is guaranteed to it or, in sum, below it. Guarantees that do not fit together are cut in
/// one proportion. Low nodes share the rest in the same manner. NaN and negative numbers count as
/// zero.
pub fn allocate(capacity: f64, nodes: &[Node], out: &mut Vec<f64>) {
    let tree = Tree::new(nodes);
    out.clear();
    out.resize(nodes.len(), 0.0);
    let mut rest = positive(capacity);
    for policy in [Policy::Normal, Policy::Low] {
        let mut ranges = tree.ranges(policy, out);
        let mut given = Vec::new();
        given.resize(nodes.len(), 0.0);
        for group in tree.groups() {
            let amount = group.map_or(rest, |parent| given[parent]);
            let children = tree.children(group);
            split(amount, children, nodes, &mut ranges, &mut given);
        }
        let tops = tree.children(None);
        rest = positive(rest - tops.iter().map(|&n| given[n]).sum::<f64>());
        for (all, now) in out.iter_mut().zip(&given) {
            *all += now;
        }
    }
}

/// The least and the most that a node may be given in one pass.
#[derive(Clone, Copy, Default)]
struct Range {
    least: f64,
    most: f64,
}

/// The shape of a tree: every node's children, and whether anything above it is low.
struct Tree<'a> {
    nodes: &'a [Node],
    tops: Vec<usize>,
    /// Children of node `i`, at `i`.
    below: Vec<Vec<usize>>,
    policy: Vec<Policy>,
}

impl<'a> Tree<'a> {
    /// # Panics
    /// If a node's parent does not come before it.
    fn new(nodes: &'a [Node]) -> Tree<'a> {
        let mut below: Vec<Vec<usize>> = nodes.iter().map(|_| Vec::new()).collect();
        let mut tops = Vec::new();
        let mut policy: Vec<Policy> = Vec::with_capacity(nodes.len());
        for (i, node) in nodes.iter().enumerate() {
            let above = match node.parent {
                None => {
                    tops.push(i);
                    Policy::Normal
                }
                Some(parent) => {
                    assert!(parent < i, "a parent comes before its children");
                    below[parent].push(i);
                    policy[parent]
                }
            };
            policy.push(if above == Policy::Low { above } else { node.policy });
        }
        Tree { nodes, tops, below, policy }
    }

    fn children(&self, group: Option<usize>) -> &[usize] {
        group.map_or(&self.tops, |parent| &self.below[parent])
    }

    /// The top, then all nodes with children, each after its parent.
    fn groups(&self) -> Vec<Option<usize>> {
        let inner = (0..self.nodes.len()).filter(|&n| !self.below[n].is_empty());
        core::iter::once(None).chain(inner.map(Some)).collect()
    }

    fn parent_policy(&self, group: Option<usize>) -> Policy {
        group.map_or(Policy::Normal, |parent| self.policy[parent])
    }

    /// What each node may be given in the pass of `policy`, after `had` in an earlier one.
    fn ranges(&self, policy: Policy, had: &[f64]) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        ranges.resize(self.nodes.len(), Range::default());
        for (i, node) in self.nodes.iter().enumerate().rev() {
            let guaranteed = match policy {
                Policy::Normal => positive(node.guarantee),
                Policy::Low => 0.0,
            };
            let most = positive(positive(node.cap) - had[i]);
            let sums = if self.below[i].is_empty() {
                let most = if self.policy[i] == policy { most } else { 0.0 };
                Range { least: 0.0, most }
            } else {
                let add = |sum: Range, &n: &usize| Range {
                    least: sum.least + ranges[n].least,
                    most: sum.most + ranges[n].most,
                };
                self.below[i].iter().fold(Range::default(), add)
            };
            let most = most.min(sums.most);
            ranges[i] = Range { least: guaranteed.max(sums.least).min(most), most };
        }
        ranges
    }
}

/// Gives `amount` to the children of one node.
fn split(amount: f64, children: &[usize], nodes: &[Node], ranges: &mut [Range], given: &mut [f64]) {
    let least: f64 = children.iter().map(|&n| ranges[n].least).sum();
    if least >= amount && least > 0.0 {
        for &n in children {
            let whole = ranges[n].least;
            given[n] = if least.is_finite() { whole * (amount / least) } else { amount };
        }
        return;
    }
    let level = level(amount, children, nodes, ranges);
    for &n in children {
        let Range { least, most } = ranges[n];
        given[n] = (weight(&nodes[n]) * level).max(least).min(most).min(amount);
    }
}

/// The level at which `amount` is used up; infinite if all can have their most.
fn level(amount: f64, children: &[usize], nodes: &[Node], ranges: &[Range]) -> f64 {
    // Below `least/w` a child has its least, beyond `most/w` its most, between them it rises.
    let mut turns: Vec<(f64, f64, f64)> = Vec::with_capacity(2 * children.len());
    let mut fixed = 0.0;
    for &n in children {
        let (w, Range { least, most }) = (weight(&nodes[n]), ranges[n]);
        fixed += least;
        turns.push((least / w, w, -least));
        turns.push((most / w, -w, most));
    }
    turns.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut rising = 0.0;
    for (at, w, change) in turns {
        if at == f64::INFINITY || (rising > 0.0 && fixed + rising * at >= amount) {
            break;
        }
        rising += w;
        fixed += change;
    }
    let slight = 1e-9 / WEIGHT_MOST; // What rounding leaves of weights that cancel.
    if rising > slight { positive(amount - fixed) / rising } else { f64::INFINITY }
}

fn weight(node: &Node) -> f64 {
    positive(node.weight).clamp(1.0 / WEIGHT_MOST, WEIGHT_MOST)
}

/// `x`, or zero where it is negative or NaN.
fn positive(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.0 }
}
