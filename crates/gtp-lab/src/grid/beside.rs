//! GTP beside TCP: it takes about what a CUBIC in its place would have, and leaves the others what
//! such a CUBIC would leave them.
//!
//! The measure is the same run with a CUBIC in GTP's place. One CUBIC's share is the mean over
//! all CUBICs of these runs; beside Reno that is the one in GTP's place.

use gtp_peers::tcp::Flavour;

use super::scene::{Flow, protocol, tcp};
use super::{
    Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, mean_of, named, value, worst_of,
};

/// Beside some rivals.
struct Beside {
    name: String,
    about: String,
    rival: Flavour,
    rivals: usize,
    order: Order,
}

/// Who is first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Joins,
    First,
}

/// When those who come later come, from the first start; the other starts follow by steps.
const JOINS: f64 = 3.0;
const STEP: f64 = 0.7;
/// Seconds of a run, of which the last are judged.
const SECONDS: f64 = 66.0;
const JUDGED: f64 = 50.0;
/// Rivals begin this much apart.
const APART: f64 = 0.1;

pub fn tests() -> Vec<Box<dyn Test>> {
    let mut tests: Vec<Box<dyn Test>> = Vec::new();
    for (rival, word) in [(Flavour::Cubic, "cubic"), (Flavour::Sack, "reno")] {
        for rivals in [1, 4, 16] {
            for (order, short, long) in
                [(Order::Joins, "joins", "joins"), (Order::First, "first", "is there before")]
            {
                let name = format!("{short}-{word}-{rivals}");
                let about = format!("GTP {long} {rivals} × {word}; 66 s, the last 50 are judged.");
                tests.push(Box::new(Beside { name, about, rival, rivals, order }));
            }
        }
    }
    tests
}

impl Beside {
    fn late(start: u64) -> f64 {
        JOINS + STEP * start as f64
    }
}

impl Test for Beside {
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
        let late = Beside::late(start);
        let (ours, theirs) = match self.order {
            Order::Joins => (late, 0.0),
            Order::First => (0.0, late),
        };
        let mut flows = vec![Flow::new(protocol(who), 0, cell.rtt(), ours)];
        flows.extend(
            (0..self.rivals)
                .map(|n| Flow::new(tcp(self.rival), 1 + n, cell.rtt(), theirs + APART * n as f64)),
        );
        Scene::new(cell, start, SECONDS, 1, flows)
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let (from, to) = (SECONDS - JUDGED, SECONDS);
        let rivals = seen.sum(seen.others(), from, to) / self.rivals as f64;
        let ours = seen.mean(0, from, to);
        let all = (ours + rivals * self.rivals as f64) / (1 + self.rivals) as f64;
        let cubics = if self.rival == Flavour::Cubic { all } else { ours };
        let all_there = Beside::late(start) + APART * self.rivals as f64;
        named([
            ("ours", ours),
            ("rival", rivals),
            ("cubics", cubics),
            ("loss", seen.loss(from, to)),
            ("least", least(seen, all_there + SPARED)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim> {
        let one = mean_of(cubic, "cubics");
        let left = mean_of(cubic, "rival");
        let loss = f64::max(2.0 * mean_of(cubic, "loss"), LOSS_LEAST);
        // Where CUBICs starve each other, nobody else need do better.
        let least = cubic.iter().map(|run| value(run, "least")).fold(STARVED, f64::min);
        vec![
            worst_of(ours.iter().map(|run| Claim::least("share", value(run, "ours") / one, 0.5))),
            worst_of(
                ours.iter().map(|run| Claim::most("share taken", value(run, "ours") / one, 2.0)),
            ),
            worst_of(
                ours.iter().map(|run| Claim::least("rival keeps", value(run, "rival") / left, 0.5)),
            ),
            worst_of(ours.iter().map(|run| Claim::most("loss", value(run, "loss"), loss))),
            worst_of(
                ours.iter().map(|run| Claim::least("least of 10 s", value(run, "least"), least)),
            ),
        ]
    }
}

/// Losses that count as none.
const LOSS_LEAST: f64 = 0.001;
/// The part of a fair share that nobody may fall below over ten seconds.
const STARVED: f64 = 0.1;
/// Seconds after the last has joined in which that is not asked for.
const SPARED: f64 = 5.0;

/// The least part of a fair share that anybody had over ten seconds, from a time on.
fn least(seen: &Seen<'_>, from: f64) -> f64 {
    let sessions = seen.others().end;
    let fair = seen.rate / sessions as f64;
    let windows = (seen.end() - from - 10.0).max(0.0) as usize;
    let starts = (0..=windows).map(|n| from + n as f64);
    let all = starts.flat_map(|at| (0..sessions).map(move |k| seen.mean(k, at, at + 10.0)));
    all.fold(f64::INFINITY, f64::min) / fair
}
