//! After a rival has left: its queue goes, and its part of the path is taken.
//!
//! A session that competes lets a queue stand, as its rival does. That may not outlast the rival,
//! though nobody tells the session that it has left.

use gtp_peers::tcp::Flavour;

use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, value, worst_of};

/// The test.
struct Leaves;

/// When the session joins, when the CUBIC leaves from the first start, and what is judged from
/// how long after that on.
const JOINS: f64 = 3.0;
const LEAVES: f64 = 20.0;
const STEP: f64 = 0.7;
const WITHIN: f64 = 10.0;
const JUDGED: f64 = 5.0;

pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Leaves)]
}

fn left(start: u64) -> f64 {
    LEAVES + STEP * start as f64
}

impl Test for Leaves {
    fn name(&self) -> &str {
        "leaves"
    }

    fn about(&self) -> &str {
        "A CUBIC leaves after 20 s; from 10 to 15 s later there is no queue and full use."
    }

    fn covers(&self, _: Cell) -> bool {
        true
    }

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let rival = Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), 0.0);
        let rival = Flow { stop: Some(left(start)), ..rival };
        let flows = vec![Flow::new(protocol(who), 0, cell.rtt(), JOINS), rival];
        Scene::new(cell, start, left(start) + WITHIN + JUDGED, 1, flows)
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let from = left(start) + WITHIN;
        named([
            ("use", seen.used(from, from + JUDGED)),
            ("queue", seen.queue_mean(from, from + JUDGED)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let queue = |run: &Figures| Claim::most("queue, ms", 1e3 * value(run, "queue"), 15.0);
        vec![
            worst_of(ours.iter().map(queue)),
            worst_of(ours.iter().map(|run| Claim::least("use", value(run, "use"), 0.9))),
        ]
    }
}
