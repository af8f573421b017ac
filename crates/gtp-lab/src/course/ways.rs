//! How packets get from each source to its sink and back: links, or a wire of one's own.
//!
//! Stated routes win; otherwise the way of the least delay over links that join nodes is taken,
//! with the fewest links among equals and, among those, the links that come first in the file.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use gtp_alloc::Span;

use crate::refusal::Refusal;
use crate::scenario::model::{Reach, Scenario};

/// The links of one direction; those of a stated route are shared by all who take it.
pub type Links = Arc<[usize]>;

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
        let links = self.forth.iter().chain(self.back.iter());
        links.map(delay).fold(self.wire, |sum, delay| sum + delay)
    }
}

/// The ways of all sessions, and the links of all background flows.
///
/// # Errors
/// If one has none, or there are too many to be worked out.
pub fn find(scenario: &Scenario) -> Result<(Vec<Way>, Vec<Links>), Refusal> {
    let nothing: Links = Arc::from([]);
    let paths: Vec<[Links; 2]> = (scenario.paths.iter())
        .map(|path| [Arc::from(&path.forth[..]), Arc::from(&path.back[..])])
        .collect();
    let mut asked = Vec::new();
    let mut ways = Vec::with_capacity(scenario.sessions.len());
    for (k, session) in scenario.sessions.iter().enumerate() {
        let (forth, back) = (nothing.clone(), nothing.clone());
        let mut way = Way { forth, back, wire: session.wire };
        match session.reach {
            Reach::Wire(rtt) => way.wire = rtt,
            Reach::Path(path) => {
                let [forth, back] = &paths[path];
                (way.forth, way.back) = (forth.clone(), back.clone());
            }
            Reach::Routes => {
                asked.push(Asked { from: session.source, to: session.sink, who: Who::Forth(k) });
                asked.push(Asked { from: session.sink, to: session.source, who: Who::Back(k) });
            }
        }
        ways.push(way);
    }
    let mut flows = vec![nothing; scenario.backgrounds.len()];
    for (k, flow) in scenario.backgrounds.iter().enumerate() {
        match &flow.links {
            Some(links) => flows[k] = Arc::from(&links[..]),
            None => asked.push(Asked { from: flow.source, to: flow.sink, who: Who::Flow(k) }),
        }
    }
    answer(scenario, asked, &mut ways, &mut flows)?;
    let hops = ways.iter().map(|way| way.forth.len() + way.back.len());
    if hops.chain(flows.iter().map(|links| links.len())).sum::<usize>() > HOPS_MAX {
        return Err(too_long());
    }
    Ok((ways, flows))
}

/// Links of all ways together, each counted for each session: ten times what the largest runs have.
const HOPS_MAX: usize = 1 << 25;
/// Nodes and links that all searches may look at together: about a minute.
const SEARCH_MAX: usize = 2_000_000_000;

fn too_long() -> Refusal {
    Refusal::Input(format!(
        "the sessions' ways have more than {HOPS_MAX} links together: make routes shorter or \
         sessions fewer"
    ))
}

/// A way that is to be found.
struct Asked {
    from: usize,
    to: usize,
    who: Who,
}

/// Whose way it is, by number.
#[derive(Clone, Copy)]
enum Who {
    /// A session's from source to sink.
    Forth(usize),
    /// A session's from sink to source.
    Back(usize),
    /// A background flow's.
    Flow(usize),
}

/// Finds what is asked, in the order of where ways begin, so that one tree at a time is kept.
fn answer(
    scenario: &Scenario,
    mut asked: Vec<Asked>,
    ways: &mut [Way],
    flows: &mut [Links],
) -> Result<(), Refusal> {
    asked.sort_by_key(|asked| asked.from);
    let search = Search::new(scenario);
    let (mut trees, mut hops) = (0usize, 0usize);
    let mut tree: Option<(usize, Tree)> = None;
    for Asked { from, to, who } in asked {
        let found = match search.stated.get(&(from, to)) {
            Some(links) => (*links).clone(),
            None => {
                if tree.as_ref().is_none_or(|(root, _)| *root != from) {
                    trees += 1;
                    let size = scenario.nodes.len() + scenario.links.len();
                    if trees.saturating_mul(size) > SEARCH_MAX {
                        return Err(Refusal::Input(format!(
                            "ways from {trees} hosts and more in a network of {size} nodes and \
                             links take too long to find: state them with [[route]], or give \
                             sessions an `rtt`"
                        )));
                    }
                    tree = Some((from, search.tree(from)));
                }
                let nearest = tree.as_ref().map_or(&[][..], |(_, tree)| tree);
                let links = walk(scenario, nearest, from, to)
                    .ok_or_else(|| no_way(scenario, from, to, &name(scenario, who)))?;
                hops += links.len();
                if hops > HOPS_MAX {
                    return Err(too_long());
                }
                links.into()
            }
        };
        match who {
            Who::Forth(k) => ways[k].forth = found,
            Who::Back(k) => ways[k].back = found,
            Who::Flow(k) => flows[k] = found,
        }
    }
    Ok(())
}

fn name(scenario: &Scenario, who: Who) -> String {
    match who {
        Who::Forth(k) | Who::Back(k) => format!("session {:?}", scenario.sessions[k].name),
        Who::Flow(k) => format!("background flow {:?}", scenario.backgrounds[k].name),
    }
}

/// The last link of the way to each node; [`NONE`] where there is none.
type Tree = Vec<usize>;
const NONE: usize = usize::MAX;

/// The links from one node to another by a tree from the first.
fn walk(scenario: &Scenario, tree: &[usize], from: usize, to: usize) -> Option<Vec<usize>> {
    let (mut links, mut at) = (Vec::new(), to);
    while at != from {
        let link = *tree.get(at).filter(|link| **link != NONE)?;
        links.push(link);
        at = scenario.links[link].ends.map_or(from, |(near, _)| near);
    }
    links.reverse();
    Some(links)
}

/// What searches in one scenario need.
pub struct Search<'a> {
    scenario: &'a Scenario,
    stated: HashMap<(usize, usize), &'a Links>,
    /// Links that leave each node.
    leaving: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    /// Searches in this scenario.
    pub fn new(scenario: &'a Scenario) -> Search<'a> {
        let mut stated = HashMap::new();
        for route in &scenario.routes {
            stated.insert((route.from, route.to), &route.links);
        }
        let mut leaving = vec![Vec::new(); scenario.nodes.len()];
        for (number, link) in scenario.links.iter().enumerate() {
            if let Some((from, _)) = link.ends {
                leaving[from].push(number);
            }
        }
        Search { scenario, stated, leaving }
    }

    /// The links from one host to another.
    ///
    /// # Errors
    /// If there is no way for `who`.
    pub fn between(&self, from: usize, to: usize, who: &str) -> Result<Links, Refusal> {
        if let Some(links) = self.stated.get(&(from, to)) {
            return Ok((*links).clone());
        }
        let links = walk(self.scenario, &self.tree(from), from, to);
        links.map(Arc::from).ok_or_else(|| no_way(self.scenario, from, to, who))
    }

    /// Least delays from a node to all others (Dijkstra, 1959).
    fn tree(&self, from: usize) -> Tree {
        let nodes = self.scenario.nodes.len();
        let (mut tree, mut best) = (vec![NONE; nodes], vec![(u64::MAX, usize::MAX); nodes]);
        best[from] = (0, 0);
        let mut next = BinaryHeap::from([Reverse(((0u64, 0usize), from))]);
        while let Some(Reverse((cost, node))) = next.pop() {
            if best[node] < cost {
                continue;
            }
            for &link in &self.leaving[node] {
                let Some((_, to)) = self.scenario.links[link].ends else { continue };
                let delay = self.scenario.links[link].spec.delay.as_nanos();
                let there = (cost.0.saturating_add(delay), cost.1 + 1);
                if there < best[to] {
                    best[to] = there;
                    tree[to] = link;
                    next.push(Reverse((there, to)));
                }
            }
        }
        tree
    }
}

fn no_way(scenario: &Scenario, from: usize, to: usize, who: &str) -> Refusal {
    let (from, to) = (&scenario.nodes[from].name, &scenario.nodes[to].name);
    Refusal::Input(format!(
        "{who}: no way from {from:?} to {to:?}: add a [[route]] between them, links with `from` \
         and `to`, or an `rtt` to the session"
    ))
}
