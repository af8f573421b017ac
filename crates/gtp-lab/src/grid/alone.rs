//! GTP alone on a path, once it has started: it fills it, without loss and without a queue.
//!
//! A queue shorter than a bandwidth-delay product cannot always be kept busy without loss, so a
//! little less use is asked for there.

use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, value, worst_of};

/// The test.
struct Alone;

/// Seconds of a run, of which the first are the start's.
const SECONDS: f64 = 30.0;
const SETTLED: f64 = 10.0;

pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Alone)]
}

impl Test for Alone {
    fn name(&self) -> &str {
        "alone"
    }

    fn about(&self) -> &str {
        "Alone for 30 s; the last 20 s are judged."
    }

    fn covers(&self, _: Cell) -> bool {
        true
    }

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let mut scene = Scene::alone(cell, start, who, SECONDS);
        // Nothing is drawn on such a path: what differs is when the session begins.
        scene.flows[0].start = 0.137 * start as f64;
        scene
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        named([
            ("use", seen.used(SETTLED, SECONDS)),
            ("loss", seen.loss(SETTLED, SECONDS)),
            ("queue", seen.queue_p95(SETTLED, SECONDS)),
        ])
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let queue = f64::max(15.0, 0.25 * cell.rtt_ms as f64);
        vec![
            worst_of(ours.iter().map(|run| Claim::least("use", value(run, "use"), use_of(cell)))),
            worst_of(ours.iter().map(|run| Claim::most("loss", value(run, "loss"), 0.001))),
            worst_of(
                ours.iter().map(|run| Claim::most("queue, ms", 1e3 * value(run, "queue"), queue)),
            ),
        ]
    }
}

/// The part of a path that a session alone must use.
pub fn use_of(cell: Cell) -> f64 {
    if cell.is_shallow() { 0.93 } else { 0.96 }
}
