//! Behind a policer, which drops what exceeds its rate and lets nothing wait.
//!
//! No delay ever warns of it, and loss goes on for as long as one sends more. There is no queue, so
//! a policer is played once for each rate and round-trip time.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{LinkSpec, Policer};

use super::{Cell, Claim, Figures, Measure, Queue, Scene, Seen, Test, Who, named, value, worst_of};

/// A policer with a bucket of a length.
struct Policed {
    name: String,
    about: String,
    bucket: Span,
}

/// Seconds of a run; from when on a session must have found the rate.
const SECONDS: f64 = 20.0;
const FOUND: f64 = 3.0;

pub fn tests() -> Vec<Box<dyn Test>> {
    let policed = |ms: u64| -> Box<dyn Test> {
        Box::new(Policed {
            name: format!("policer-{ms}ms"),
            about: format!("Alone behind a policer with a bucket of {ms} ms, without a queue."),
            bucket: Span::from_millis(ms),
        })
    };
    [10, 100, 1_000].map(policed).into()
}

impl Test for Policed {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn covers(&self, cell: Cell) -> bool {
        cell.queue == Queue::One
    }

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let mut scene = Scene::alone(cell, start, who, SECONDS + begins(start));
        let policer = Policer { rate: cell.rate(), bucket: cell.rate().bytes_in(self.bucket) };
        let (rate, queue) = (Rate::UNLIMITED, Bytes(u64::MAX));
        scene.core = LinkSpec { rate, queue, policer: Some(policer), ..scene.core };
        scene.flows[0].start = begins(start);
        scene
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let (begins, found) = (begins(start), begins(start) + FOUND);
        named([
            ("first", seen.loss(begins, found)),
            ("loss", seen.loss(found, seen.end())),
            ("use", seen.used(found, seen.end())),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            worst_of(ours.iter().map(|run| Claim::most("loss first", value(run, "first"), 0.05))),
            worst_of(ours.iter().map(|run| Claim::most("loss", value(run, "loss"), 0.01))),
            worst_of(ours.iter().map(|run| Claim::least("use", value(run, "use"), 0.9))),
        ]
    }
}

fn begins(start: u64) -> f64 {
    0.137 * start as f64
}
