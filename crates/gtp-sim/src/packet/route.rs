//! Static routes: the least delay, and among equals the fewest links.
//!
//! Dijkstra's algorithm over links that join nodes, with link numbers as the last resort, so that
//! the same graph always gives the same route. Links count with the delay they have at that time,
//! whether they are up or down: nobody here knows the future.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gtp_link::LinkId;

/// A link that joins two nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub from: u32,
    pub to: u32,
    pub link: LinkId,
}

/// The links from node `from` to node `to`, if there is a way; `delay` is in nanoseconds.
pub(crate) fn shortest(
    nodes: usize,
    edges: &[Edge],
    delay: impl Fn(LinkId) -> u64,
    from: u32,
    to: u32,
) -> Option<Vec<LinkId>> {
    let mut leaving: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (i, edge) in edges.iter().enumerate() {
        leaving[edge.from as usize].push(i);
    }
    let mut best = vec![(u64::MAX, u32::MAX); nodes];
    let mut by: Vec<Option<usize>> = vec![None; nodes];
    let mut open = BinaryHeap::from([Reverse((0, 0, from))]);
    best[from as usize] = (0, 0);
    while let Some(Reverse((far, links, node))) = open.pop() {
        if (far, links) != best[node as usize] {
            continue;
        }
        if node == to {
            break;
        }
        for &i in &leaving[node as usize] {
            let next = edges[i].to as usize;
            let cost = (far.saturating_add(delay(edges[i].link)), links + 1);
            if cost < best[next] {
                best[next] = cost;
                by[next] = Some(i);
                open.push(Reverse((cost.0, cost.1, next as u32)));
            }
        }
    }
    let mut path = Vec::new();
    let mut node = to;
    while node != from {
        let edge = edges[by[node as usize]?];
        path.push(edge.link);
        node = edge.from;
    }
    path.reverse();
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: u32, to: u32, link: usize) -> Edge {
        Edge { from, to, link: LinkId(link) }
    }

    #[test]
    fn the_way_of_least_delay_is_taken_and_of_fewest_links_among_equals() {
        let edges = [edge(0, 1, 0), edge(1, 3, 1), edge(0, 2, 2), edge(2, 3, 3), edge(0, 3, 4)];
        let delays = [5, 5, 1, 1, 9];
        let to = |delays: [u64; 5]| shortest(4, &edges, |l| delays[l.0], 0, 3);
        assert_eq!(to(delays), Some(vec![LinkId(2), LinkId(3)]));
        assert_eq!(to([5, 5, 4, 5, 9]), Some(vec![LinkId(4)]));
        assert_eq!(shortest(4, &edges, |_| 1, 3, 0), None, "links have one direction");
        assert_eq!(shortest(4, &edges, |_| 1, 2, 2), Some(vec![]));
    }
}
