//! GTP beside GTP of other hosts: strangers come to equal shares, though no agent joins them.
//!
//! They meet only in the bottleneck's queue. With equal round-trip times their shares must be
//! equal soon, with unlike ones within a factor.

use gtp_alloc::Span;
use gtp_alloc::fairness::jain_index;

use super::scene::{Flow, protocol};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, value, worst_of};

/// So many strangers with equal round-trip times.
struct Equal {
    name: &'static str,
    about: &'static str,
    flows: usize,
}

/// Two with unlike ones.
struct Unlike;

/// When the last begins from the first start; the others follow by steps.
const LAST: f64 = 5.0;
const STEP: f64 = 0.7;
/// Seconds that are judged once they are to be equal.
const JUDGED: f64 = 20.0;

pub fn tests() -> Vec<Box<dyn Test>> {
    let two = "A stranger joins one: equal after 50 round trips and from then on.";
    let eight = "Eight strangers, a second apart: equal after 50 round trips and from then on.";
    vec![
        Box::new(Equal { name: "strangers-2", about: two, flows: 2 }),
        Box::new(Equal { name: "strangers-8", about: eight, flows: 8 }),
        Box::new(Unlike),
    ]
}

/// When strangers are to be equal after the last has begun.
fn settles(cell: Cell) -> f64 {
    f64::max(2.0, 50.0 * cell.rtt_s())
}

impl Equal {
    fn last(&self, start: u64) -> f64 {
        LAST + STEP * start as f64
    }
}

impl Test for Equal {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn covers(&self, _: Cell) -> bool {
        true
    }

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let last = self.last(start);
        let begins = |n: usize| last * n as f64 / (self.flows - 1) as f64;
        let flow = |n| Flow::new(protocol(who), n, cell.rtt(), begins(n));
        let flows = (0..self.flows).map(flow).collect();
        Scene::new(cell, start, last + settles(cell) + JUDGED, self.flows, flows)
    }

    fn figures(&self, cell: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let from = self.last(start) + settles(cell);
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
            worst_of(ours.iter().map(|run| Claim::least("Jain first", value(run, "first"), 0.95))),
            worst_of(ours.iter().map(|run| Claim::least("Jain", value(run, "mean"), 0.99))),
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

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let last = LAST + STEP * start as f64;
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
            Claim::most("ratio", near.max(far) / near.min(far), 3.0)
        };
        vec![worst_of(ours.iter().map(ratio))]
    }
}
