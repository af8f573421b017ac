//! GTP alone on a path, once it has started: it fills it, without loss and without a queue.
//!
//! A queue shorter than a bandwidth-delay product cannot always be kept busy without loss, so a
//! little less use is asked for there.

use super::claim::{figure, least, most, scaled};
use super::{Cell, Claim, Figures, Scene, Seen, Test, Who, named, starts};

/// GTP has the path to itself.
struct Alone;

/// A run lasts this long, in seconds.
const SECONDS: f64 = 30.0;
/// The start has passed after so many seconds, and what follows is judged.
const SETTLED: f64 = 10.0;

/// Returns the test of this module.
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

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        Scene::alone(cell, start, who, SECONDS, starts::alone(start))
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
            least("use", ours, figure("use"), use_of(cell)),
            most("loss", ours, figure("loss"), 0.001),
            most("queue, ms", ours, scaled("queue", 1e3), queue),
        ]
    }
}

/// Returns the part of a path's rate that a session alone must use.
pub fn use_of(cell: Cell) -> f64 {
    if cell.is_shallow() { 0.93 } else { 0.96 }
}
