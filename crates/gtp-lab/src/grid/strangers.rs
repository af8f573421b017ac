//! GTP beside GTP of other hosts: strangers come to equal shares, though no agent joins them.
//!
//! They meet only in the bottleneck's queue. With equal round-trip times their shares must be
//! equal soon, with unlike ones within a factor.

use gtp_alloc::Span;
use gtp_alloc::fairness::jain_index;

use super::claim::{figure, least, most, value};
use super::scene::{Flow, protocol};
use super::{Cell, Claim, Figures, Scene, Seen, Test, Who, named, starts};

/// A number of strangers with equal round-trip times share the path.
struct Equal {
    name: &'static str,
    about: &'static str,
    flows: usize,
}

/// Two strangers with unlike round-trip times share the path.
struct Unlike;

/// The last stranger begins at this second of the first start.
const LAST: f64 = 5.0;
/// So many seconds are judged once shares must be right.
const JUDGED: f64 = 20.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let two = "A stranger joins one: equal after 50 round trips and from then on.";
    let eight = "Eight strangers, a second apart: equal after 50 round trips and from then on.";
    vec![
        Box::new(Equal { name: "strangers-2", about: two, flows: 2 }),
        Box::new(Equal { name: "strangers-8", about: eight, flows: 8 }),
        Box::new(Unlike),
    ]
}

/// Returns how many seconds after the last has begun strangers must be equal.
fn settles(cell: Cell) -> f64 {
    f64::max(2.0, 50.0 * cell.rtt_s())
}

impl Test for Equal {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let last = starts::stepped(LAST, start);
        let begins = |n: usize| last * n as f64 / (self.flows - 1) as f64;
        let flow = |n| Flow::new(protocol(who), n, cell.rtt(), begins(n));
        let flows = (0..self.flows).map(flow).collect();
        Scene::new(cell, start, last + settles(cell) + JUDGED, self.flows, flows)
    }

    fn figures(&self, cell: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let from = starts::stepped(LAST, start) + settles(cell);
        // Long enough that no single round trip counts.
        let at_first = from + f64::max(1.0, 10.0 * cell.rtt_s());
        let jain = |to: f64| {
            let rates: Vec<f64> = seen.ours().map(|k| seen.mean(k, from, to)).collect();
            jain_index(&rates)
        };
        named([("first", jain(at_first)), ("mean", jain(seen.end()))])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            least("Jain first", ours, figure("first"), 0.95),
            least("Jain", ours, figure("mean"), 0.99),
        ]
    }
}

impl Test for Unlike {
    fn name(&self) -> &str {
        "strangers-rtt"
    }

    fn about(&self) -> &str {
        "Strangers with round-trip times of 10 and 100 ms, whoever is first: within 1:3."
    }

    fn covers(&self, cell: Cell) -> bool {
        // The queue is that of 40 ms; the flows have their own round-trip times.
        cell.rtt_ms == 40
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let last = starts::stepped(LAST, start);
        let rtts = [10, 100].map(Span::from_millis);
        let begins = if start.is_multiple_of(2) { [0.0, last] } else { [last, 0.0] };
        let flow = |n: usize| Flow::new(protocol(who), n, rtts[n], begins[n]);
        Scene::new(cell, start, last + 10.0 + JUDGED, 2, vec![flow(0), flow(1)])
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let from = seen.end() - JUDGED;
        named([("near", seen.mean(0, from, seen.end())), ("far", seen.mean(1, from, seen.end()))])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let ratio = |run: &Figures| {
            let (near, far) = (value(run, "near"), value(run, "far"));
            near.max(far) / near.min(far)
        };
        vec![most("ratio", ours, ratio, 3.0)]
    }
}
