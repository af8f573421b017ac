//! The first four seconds: how much a session loses while it finds out what the path carries.
//!
//! Its hosts could do far more than the path, so nothing but the path tells it. Beside a CUBIC its
//! own losses count, not the CUBIC's.

use gtp_alloc::Rate;
use gtp_peers::tcp::Flavour;

use super::claim::{value, worst_of};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, PACKET, Scene, Seen, Test, Who, named, starts};

/// GTP starts between hosts of a capacity.
struct Start {
    name: &'static str,
    about: &'static str,
    ends: Rate,
    company: Company,
}

/// Who is on the path before GTP starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// GTP is alone.
    Nobody,
    /// A CUBIC is there.
    Cubic,
}

/// So many seconds from GTP's start on are judged.
const JUDGED: f64 = 4.0;
/// Beside a CUBIC, GTP begins at this second of the first start.
const JOINS: f64 = 6.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let (ten, one) = (Rate::from_mbps(10_000), Rate::from_mbps(1_000));
    let start = |name, about, ends, company| -> Box<dyn Test> {
        Box::new(Start { name, about, ends, company })
    };
    vec![
        start("start-10g", "The start between hosts of 10 Gbit/s.", ten, Company::Nobody),
        start("start-1g", "The start between hosts of 1 Gbit/s.", one, Company::Nobody),
        start(
            "start-10g-cubic",
            "The start between hosts of 10 Gbit/s beside a CUBIC.",
            ten,
            Company::Cubic,
        ),
        start(
            "start-1g-cubic",
            "The start between hosts of 1 Gbit/s beside a CUBIC.",
            one,
            Company::Cubic,
        ),
    ]
}

impl Start {
    fn begins(&self, start: u64) -> f64 {
        match self.company {
            Company::Nobody => starts::alone(start),
            Company::Cubic => starts::stepped(JOINS, start),
        }
    }
}

impl Test for Start {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let begins = self.begins(start);
        let mut flows = vec![Flow::new(protocol(who), 0, cell.rtt(), begins)];
        if self.company == Company::Cubic {
            flows.push(Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), 0.0));
        }
        let scene = Scene::new(cell, start, begins + JUDGED, 1, flows);
        Scene { ends: self.ends, ..scene }
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let begins = self.begins(start);
        let (lost, arrived) = match self.company {
            Company::Nobody => (seen.dropped(begins, seen.end()), seen.carried(begins, seen.end())),
            Company::Cubic => seen.packets_of(0),
        };
        named([
            ("lost", lost),
            ("sent", lost + arrived),
            ("ninety", seen.reached(0.9, begins, 0.2)),
        ])
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let queue = cell.room().0 as f64 / PACKET as f64;
        let claim = |run: &Figures| {
            let limit = f64::max(0.01 * value(run, "sent"), queue);
            Claim::most("packets lost", value(run, "lost"), limit)
        };
        vec![worst_of(ours.iter().map(claim))]
    }
}
