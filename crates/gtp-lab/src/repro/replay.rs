//! Thesis, eqs. VI.2 and VI.4, held against a run: does every rate follow from the rates before it?
//!
//! From the recorded sending rates alone, each node's measured rates are worked out again, the law
//! is applied from the print, and the least of what the source allows now, what the sink allowed
//! half a round trip ago and what is desired is compared with what was sent. Nothing of the
//! engine is used. Exact where everything happens at whole milliseconds.

use super::case::Case;
use super::law::printed;
use super::measure::{Steps, at, mean};
use gtp_alloc::endnode::{CapAtTarget, Params};

/// The largest difference between a rate sent and the one that follows, at any whole millisecond,
/// as a part of the capacity. Sessions must be there from the start to the end.
pub fn unexplained(case: &Case, sent: &[Steps]) -> f64 {
    let mut allowed: Vec<[Steps; 2]> = vec![[Steps::new(), Steps::new()]; sent.len()];
    for v in 0..case.nodes.len() {
        expect(case, v, sent, &mut allowed);
    }
    let mut off = 0.0f64;
    for (k, session) in case.sessions.iter().enumerate() {
        for ms in 0..(case.seconds * 1e3) as u64 {
            let t = ms as f64 / 1e3 + EPSILON;
            let [source, sink] = &allowed[k];
            let follows = at(source, t).min(at(sink, t)).min(session.demand);
            off = off.max((at(&sent[k], t) - follows).abs());
        }
    }
    off / case.capacity
}

/// A moment just after, so that what happens at a whole millisecond has happened whatever the
/// rounding of its seconds.
const EPSILON: f64 = 1e-7;

/// Everything that node `v` allows its sessions, from when it holds at their sources.
fn expect(case: &Case, v: usize, sent: &[Steps], allowed: &mut [[Steps; 2]]) {
    let node = case.nodes[v];
    let is_source = v < case.sources;
    let p = Params { alpha: node.alpha, beta: node.beta, cap_at_target: CapAtTarget::No };
    let mut tick = node.phase;
    while tick <= case.seconds {
        // A sink sees everything half a round trip later, the session itself included.
        let lag = |k: usize| if is_source { 0.0 } else { case.sessions[k].rtt / 2.0 };
        let here = |k: &usize| {
            let s = case.sessions[*k];
            (if is_source { s.source } else { s.sink }) == v && s.start + lag(*k) <= tick + EPSILON
        };
        let present: Vec<usize> = (0..sent.len()).filter(here).collect();
        let average = |k: &usize| {
            let end = tick - lag(*k);
            mean(&sent[*k], end - node.interval, end).round()
        };
        let measured: Vec<f64> = present.iter().map(average).collect();
        let (expected, _) = printed(&p, case.capacity, &measured);
        for (&k, rate) in present.iter().zip(expected) {
            allowed[k][usize::from(!is_source)].push((tick + lag(k), rate));
        }
        tick += node.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::case::Scenario;

    #[test]
    fn a_rate_that_does_not_follow_is_seen() {
        let text = "network = { links = [[1]], seconds = 0.4, phase_ms = 50 }";
        let scenario: Scenario = toml::from_str(text).expect("a scenario");
        let case = &scenario.expand().expect("a case")[0];
        // Nothing for both ends' first interval, then alpha C from the source's and sink's tick.
        let first = |rate: f64| vec![vec![(0.0, 0.0), (0.075, rate)]];
        let until = Case { seconds: 0.1, ..case.clone() };
        assert!(unexplained(&until, &first(1.5e8)) < 1e-8);
        assert!((unexplained(&until, &first(2.5e8)) - 0.1).abs() < 1e-8);
    }
}
