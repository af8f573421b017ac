//! After a rival has left: its queue goes, and its part of the path is taken.
//!
//! A session that competes lets a queue stand, as its rival does. That may not outlast the rival,
//! though nobody tells the session that it has left.

use gtp_peers::tcp::Flavour;

use super::claim::{figure, least, most, scaled};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Scene, Seen, Test, Who, named, starts};

/// A CUBIC leaves, and GTP stays.
struct Leaves;

/// GTP joins the CUBIC at this second.
const JOINS: f64 = 3.0;
/// The CUBIC leaves at this second of the first start.
const LEAVES: f64 = 20.0;
/// So many seconds after that, its queue must be gone and its part taken.
const WITHIN: f64 = 10.0;
/// So many seconds from then on are judged.
const JUDGED: f64 = 5.0;

/// Returns the test of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Leaves)]
}

impl Test for Leaves {
    fn name(&self) -> &str {
        "leaves"
    }

    fn about(&self) -> &str {
        "A CUBIC leaves after 20 s; from 10 to 15 s later there is no queue and full use."
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let rival = Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), 0.0);
        let left = starts::stepped(LEAVES, start);
        let rival = Flow { stop: Some(left), ..rival };
        let flows = vec![Flow::new(protocol(who), 0, cell.rtt(), JOINS), rival];
        Scene::new(cell, start, left + WITHIN + JUDGED, 1, flows)
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let from = starts::stepped(LEAVES, start) + WITHIN;
        named([
            ("use", seen.used(from, from + JUDGED)),
            ("queue", seen.queue_mean(from, from + JUDGED)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            most("queue, ms", ours, scaled("queue", 1e3), 15.0),
            least("use", ours, figure("use"), 0.9),
        ]
    }
}
