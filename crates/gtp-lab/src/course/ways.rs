//! How packets get from each source to its sink and back: links, or a wire of one's own.
//!
//! Stated routes win; otherwise the way of the least delay over links that join nodes is taken,
//! with the fewest links among equals and, among those, the links that come first in the file.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use gtp_alloc::Span;

use crate::refusal::Refusal;
use crate::scenario::model::{BackgroundEntry, Reach, Scenario, SessionEntry};

/// The links of one direction.
pub type Links = Vec<usize>;

/// How a session's packets travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Links from source to sink.
    pub forth: Links,
    /// Links from sink to source.
    pub back: Links,
    /// Round-trip time of a wire that nobody else uses, on top.
    pub wire: Span,
}

impl Way {
    /// Propagation there and back, as the links are at the start.
    pub fn rtt(&self, scenario: &Scenario) -> Span {
        let delay = |n: &usize| scenario.links[*n].spec.delay;
        let links = self.forth.iter().chain(&self.back);
        links.map(delay).fold(self.wire, |sum, delay| sum + delay)
    }
}

/// Finds ways in one scenario.
pub struct Ways<'a> {
    scenario: &'a Scenario,
    stated: HashMap<(usize, usize), &'a Links>,
    /// Links that leave each node.
    leaving: HashMap<usize, Vec<usize>>,
    /// From a node to all others, once it was needed.
    trees: HashMap<usize, Tree>,
}

/// The last link of the way to each node.
type Tree = HashMap<usize, usize>;

impl<'a> Ways<'a> {
    /// For this scenario.
    pub fn new(scenario: &'a Scenario) -> Ways<'a> {
        let mut stated = HashMap::new();
        for route in &scenario.routes {
            stated.insert((route.from, route.to), &route.links);
        }
        let mut leaving: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, link) in scenario.links.iter().enumerate() {
            if let Some((from, _)) = link.ends {
                leaving.entry(from).or_default().push(number);
            }
        }
        Ways { scenario, stated, leaving, trees: HashMap::new() }
    }

    /// The way of a session.
    ///
    /// # Errors
    /// If there is none.
    pub fn of_session(&mut self, session: &SessionEntry) -> Result<Way, Refusal> {
        Ok(match session.reach {
            Reach::Wire(rtt) => Way { forth: Links::new(), back: Links::new(), wire: rtt },
            Reach::Path(path) => {
                let path = &self.scenario.paths[path];
                Way { forth: path.forth.clone(), back: path.back.clone(), wire: Span::ZERO }
            }
            Reach::Routes => {
                let who = format!("session {:?}", session.name);
                let forth = self.links(session.source, session.sink, &who)?;
                let back = self.links(session.sink, session.source, &who)?;
                Way { forth, back, wire: Span::ZERO }
            }
        })
    }

    /// The links of a background flow.
    ///
    /// # Errors
    /// If there are none.
    pub fn of_background(&mut self, flow: &BackgroundEntry) -> Result<Links, Refusal> {
        match &flow.links {
            Some(links) => Ok(links.clone()),
            None => {
                let who = format!("background flow {:?}", flow.name);
                self.links(flow.source, flow.sink, &who)
            }
        }
    }

    fn links(&mut self, from: usize, to: usize, who: &str) -> Result<Links, Refusal> {
        if let Some(links) = self.stated.get(&(from, to)) {
            return Ok((*links).clone());
        }
        if !self.trees.contains_key(&from) {
            let tree = self.tree(from);
            self.trees.insert(from, tree);
        }
        let tree = &self.trees[&from];
        let (mut links, mut at) = (Links::new(), to);
        while at != from {
            let Some(&link) = tree.get(&at) else { return Err(self.no_way(from, to, who)) };
            links.push(link);
            at = self.scenario.links[link].ends.map_or(from, |(near, _)| near);
        }
        links.reverse();
        Ok(links)
    }

    /// Least delays from a node to all others (Dijkstra, 1959).
    fn tree(&self, from: usize) -> Tree {
        let mut tree = Tree::new();
        let mut best: HashMap<usize, (u64, usize)> = HashMap::from([(from, (0, 0))]);
        let mut next = BinaryHeap::from([Reverse(((0u64, 0usize), from))]);
        while let Some(Reverse((cost, node))) = next.pop() {
            if best.get(&node).is_some_and(|known| *known < cost) {
                continue;
            }
            for &link in self.leaving.get(&node).map_or(&[][..], Vec::as_slice) {
                let Some((_, to)) = self.scenario.links[link].ends else { continue };
                let delay = self.scenario.links[link].spec.delay.as_nanos();
                let there = (cost.0.saturating_add(delay), cost.1 + 1);
                if best.get(&to).is_none_or(|known| there < *known) {
                    best.insert(to, there);
                    tree.insert(to, link);
                    next.push(Reverse((there, to)));
                }
            }
        }
        tree.remove(&from);
        tree
    }

    fn no_way(&self, from: usize, to: usize, who: &str) -> Refusal {
        let (from, to) = (&self.scenario.nodes[from].name, &self.scenario.nodes[to].name);
        Refusal::Input(format!(
            "{who}: no way from {from:?} to {to:?}: add a [[route]] between them, links with \
             `from` and `to`, or an `rtt` to the session"
        ))
    }
}
