//! GTP beside a CUBIC behind a queue that is actively managed: CoDel, FQ-CoDel, PIE, DualPI2.
//!
//! Such a queue drops before it is full, and so early that a session which takes each drop for
//! overload, or none of them, cannot share it. The queue's room is a bandwidth-delay product,
//! within which its RFC's values decide.

use gtp_link::managed::Kind;
use gtp_peers::tcp::Flavour;

use super::claim::{figure, least, most, value};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Queue, Scene, Seen, Test, Who, named, starts};
use crate::scenario::protocol::RouterEntry;

/// GTP joins a CUBIC behind a managed queue.
struct Aqm {
    name: &'static str,
    about: &'static str,
    queue: RouterEntry,
}

/// GTP begins at this second of the first start.
const JOINS: f64 = 3.0;
/// A run lasts this long, in seconds.
const SECONDS: f64 = 46.0;
/// The last seconds of a run, so many, are judged.
const JUDGED: f64 = 30.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let aqm = |name, about, queue| -> Box<dyn Test> { Box::new(Aqm { name, about, queue }) };
    let managed = RouterEntry::Managed;
    vec![
        aqm("aqm-codel", "GTP joins a CUBIC behind CoDel; 46 s.", managed(Kind::Codel)),
        aqm("aqm-fq-codel", "GTP joins a CUBIC behind FQ-CoDel; 46 s.", managed(Kind::FqCodel)),
        aqm("aqm-pie", "GTP joins a CUBIC behind PIE; 46 s.", RouterEntry::Pie),
        aqm("aqm-dualpi2", "GTP joins a CUBIC behind DualPI2; 46 s.", managed(Kind::DualPi2)),
    ]
}

impl Test for Aqm {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn covers(&self, cell: Cell) -> bool {
        cell.queue == Queue::One
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let joins = starts::stepped(JOINS, start);
        let ours = Flow::new(protocol(who), 0, cell.rtt(), joins);
        let rival = Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), 0.0);
        let scene = Scene::new(cell, start, SECONDS, 1, vec![ours, rival]);
        Scene { router: Some(self.queue), ..scene }
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let from = SECONDS - JUDGED;
        named([
            ("use", seen.used(from, SECONDS)),
            ("ours", seen.mean(0, from, SECONDS)),
            ("rival", seen.mean(1, from, SECONDS)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let ratio = |run: &Figures| value(run, "ours") / value(run, "rival");
        vec![
            least("use", ours, figure("use"), 0.9),
            least("ours to rival's", ours, ratio, 0.5),
            most("ours to rival's, most", ours, ratio, 2.0),
        ]
    }
}
