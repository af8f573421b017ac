//! Short flows beside GTP: pages and answers must not wait for a transfer.
//!
//! They move 100 kB each and begin at even times. What counts is how long they take on average,
//! beside how long they take where a CUBIC has GTP's place.

use gtp_alloc::Bytes;
use gtp_peers::tcp::Flavour;

use super::claim::{mean_of, most, scaled};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named};

/// Short CUBICs begin one after another beside GTP.
struct Short;

/// The first short flow begins at this second of the first start.
const FIRST: f64 = 10.0;
/// It begins so many seconds later at each further start: starts lie between two short flows.
const STEP: f64 = 0.07;
/// So many short flows begin.
const FLOWS: usize = 100;
/// Short flows begin this many seconds apart.
const APART: f64 = 0.2;
/// Each short flow moves so many bytes.
const SIZE: Bytes = Bytes(100_000);
/// A run lasts this long, in seconds.
const SECONDS: f64 = 36.0;

/// Returns the test of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Short)]
}

impl Test for Short {
    fn name(&self) -> &str {
        "short"
    }

    fn about(&self) -> &str {
        "CUBICs of 100 kB begin each 200 ms: how long they take, on average."
    }

    fn measure(&self) -> Measure {
        Measure::Cubic
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let mut flows = vec![Flow::new(protocol(who), 0, cell.rtt(), 0.0)];
        let begins = |n: usize| FIRST + STEP * start as f64 + APART * n as f64;
        flows.extend((0..FLOWS).map(|n| {
            let flow = Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), begins(n));
            Flow { size: Some(SIZE), ..flow }
        }));
        Scene::new(cell, start, SECONDS, 1, flows)
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let completions = seen.completions();
        named([("mean", completions.iter().sum::<f64>() / completions.len() as f64)])
    }

    fn claims(&self, _: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim> {
        let beside = mean_of(cubic, "mean");
        vec![most("completion", ours, scaled("mean", 1.0 / beside), 1.3)]
    }
}
