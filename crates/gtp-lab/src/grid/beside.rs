//! GTP beside TCP: it takes about what a CUBIC in its place would have, and leaves the others what
//! such a CUBIC would leave them.
//!
//! The measure is the same run with a CUBIC in GTP's place. One CUBIC's share is the mean over
//! all CUBICs of these runs; beside others that is the one in GTP's place. Beside a BBR only that
//! share is claimed: what a BBR leaves is its own doing.

use gtp_peers::tcp::Flavour;

use super::claim::{fair_shares, figure, least, mean_of, most, value};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, starts};

/// GTP shares the path with some rivals of one kind.
struct Beside {
    name: String,
    about: String,
    rival: Flavour,
    rivals: usize,
    order: Order,
}

/// The order in which GTP and its rivals begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The rivals are there, and GTP joins them.
    Joins,
    /// GTP is there, and the rivals join it.
    First,
}

/// Whoever comes later begins at this second of the first start.
const JOINS: f64 = 3.0;
/// A run lasts this long, in seconds.
const SECONDS: f64 = 66.0;
/// The last seconds of a run, so many, are judged.
const JUDGED: f64 = 50.0;
/// Rivals begin this many seconds apart.
const APART: f64 = 0.1;

/// Returns the tests of this module: each kind and number of rivals, in both orders.
pub fn tests() -> Vec<Box<dyn Test>> {
    let mut tests: Vec<Box<dyn Test>> = Vec::new();
    let kinds: [(Flavour, &str, &[usize]); 4] = [
        (Flavour::Cubic, "cubic", &[1, 4, 16]),
        (Flavour::Sack, "reno", &[1, 4, 16]),
        (Flavour::Bbr, "bbr", &[1]),
        (Flavour::Bbr3, "bbr3", &[1]),
    ];
    for (rival, word, numbers) in kinds {
        for &rivals in numbers {
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

impl Test for Beside {
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
        let late = starts::stepped(JOINS, start);
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
        let all_there = starts::stepped(JOINS, start) + APART * self.rivals as f64;
        named([
            ("ours", ours),
            ("rival", rivals),
            ("cubics", cubics),
            ("loss", seen.loss(from, to)),
            ("least", least_part(seen, all_there + SPARED)),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim> {
        let one = mean_of(cubic, "cubics");
        let left = mean_of(cubic, "rival");
        let loss = f64::max(2.0 * mean_of(cubic, "loss"), LOSS_LEAST);
        // Where CUBICs starve each other, nobody else need do better.
        let starved = cubic.iter().map(|run| value(run, "least")).fold(STARVED, f64::min);
        let mut claims = fair_shares(ours, one, left);
        if matches!(self.rival, Flavour::Bbr | Flavour::Bbr3) {
            claims.truncate(SHARES);
            return claims;
        }
        claims.push(most("loss", ours, figure("loss"), loss));
        claims.push(least("least of 10 s", ours, figure("least"), starved));
        claims
    }
}

/// The first two of the claims of fair shares are about GTP's own.
const SHARES: usize = 2;
/// A part of lost packets up to this counts as no loss.
const LOSS_LEAST: f64 = 0.001;
/// The part of a fair share that nobody may fall below over ten seconds.
const STARVED: f64 = 0.1;
/// For so many seconds after the last has joined, anybody may.
const SPARED: f64 = 5.0;

/// Returns the least part of a fair share that anybody had over any ten seconds from `from` on.
fn least_part(seen: &Seen<'_>, from: f64) -> f64 {
    let sessions = seen.others().end;
    let fair = seen.rate / sessions as f64;
    let windows = (seen.end() - from - 10.0).max(0.0) as usize;
    let starts = (0..=windows).map(|n| from + n as f64);
    let all = starts.flat_map(|at| (0..sessions).map(move |k| seen.mean(k, at, at + 10.0)));
    all.fold(f64::INFINITY, f64::min) / fair
}
