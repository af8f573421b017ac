//! Several sessions between two hosts beside a CUBIC: together they are as one.
//!
//! In their place one CUBIC is played, since that is what they are to be like: whoever opens more
//! sessions gains nothing on a path that others share.

use gtp_peers::tcp::Flavour;

use super::scene::{Flow, protocol, tcp};
use super::{
    Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, mean_of, named, value, worst_of,
};

/// So many sessions of one pair of hosts.
struct Group {
    name: String,
    about: String,
    sessions: usize,
}

/// When the first joins from the first start, how far apart they are, and what is judged.
const JOINS: f64 = 3.0;
const STEP: f64 = 0.7;
const APART: f64 = 0.05;
const SECONDS: f64 = 46.0;
const JUDGED: f64 = 30.0;

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

    fn covers(&self, _: Cell) -> bool {
        true
    }

    fn measure(&self) -> Measure {
        Measure::Cubic
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let sessions = match who {
            Who::Gtp => self.sessions,
            Who::Cubic | Who::Bbr => 1,
        };
        let begins = |n: usize| JOINS + STEP * start as f64 + APART * n as f64;
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
        vec![
            worst_of(ours.iter().map(|run| Claim::least("share", value(run, "ours") / one, 0.5))),
            worst_of(
                ours.iter().map(|run| Claim::most("share taken", value(run, "ours") / one, 2.0)),
            ),
            worst_of(
                ours.iter().map(|run| Claim::least("rival keeps", value(run, "rival") / left, 0.5)),
            ),
        ]
    }
}
