//! Several sessions between two hosts beside a CUBIC: together they are as one.
//!
//! In their place one CUBIC is played, since that is what they are to be like: whoever opens more
//! sessions gains nothing on a path that others share.

use gtp_peers::tcp::Flavour;

use super::claim::{fair_shares, mean_of};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, starts};

/// A number of sessions of one pair of hosts share the path with a CUBIC.
struct Group {
    name: String,
    about: String,
    sessions: usize,
}

/// The first session begins at this second of the first start.
const JOINS: f64 = 3.0;
/// Sessions begin this many seconds apart.
const APART: f64 = 0.05;
/// A run lasts this long, in seconds.
const SECONDS: f64 = 46.0;
/// The last seconds of a run, so many, are judged.
const JUDGED: f64 = 30.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let group = |sessions: usize| -> Box<dyn Test> {
        Box::new(Group {
            name: format!("sessions-{sessions}"),
            about: format!("{sessions} sessions of one pair of hosts join a CUBIC; 46 s."),
            sessions,
        })
    };
    [2, 8, 64].map(group).into()
}

impl Test for Group {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn measure(&self) -> Measure {
        Measure::Cubic
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let sessions = match who {
            Who::Gtp => self.sessions,
            Who::Cubic | Who::Bbr | Who::Bbr3 => 1,
        };
        let begins = |n: usize| starts::stepped(JOINS, start) + APART * n as f64;
        let flow = |n| Flow::new(protocol(who), 0, cell.rtt(), begins(n));
        let mut flows: Vec<Flow> = (0..sessions).map(flow).collect();
        flows.push(Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), 0.0));
        Scene::new(cell, start, SECONDS, sessions, flows)
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let from = SECONDS - JUDGED;
        named([
            ("ours", seen.sum(seen.ours(), from, SECONDS)),
            ("rival", seen.sum(seen.others(), from, SECONDS)),
            ("loss", seen.loss(from, SECONDS)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim> {
        let left = mean_of(cubic, "rival");
        let one = (mean_of(cubic, "ours") + left) / 2.0;
        fair_shares(ours, one, left)
    }
}
