//! A call beside GTP, which has the path to itself otherwise: a packet of 200 bytes each 10 ms.
//!
//! A call does not send less when packets are lost, and it does not send them again. Its packets
//! meet the queue that GTP keeps, and what GTP's start does to it.

use super::claim::{figure, most};
use super::{Cell, Claim, Figures, Scene, Seen, Test, Who, named, starts};

/// GTP has the path to itself, but for a call.
struct Call;

/// A run lasts this long, in seconds.
const SECONDS: f64 = 40.0;
/// The call has ended so many seconds before the run does, so that all its packets can arrive.
const BEFORE_END: f64 = 5.0;
/// GTP's start has passed after so many seconds.
const SETTLED: f64 = 10.0;

/// Returns the test of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Call)]
}

impl Test for Call {
    fn name(&self) -> &str {
        "call"
    }

    fn about(&self) -> &str {
        "A call of 160 kbit/s goes on while GTP starts and fills the rest of the path for 40 s."
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let scene = Scene::alone(cell, start, who, SECONDS, starts::alone(start));
        Scene { calls: vec![(0.0, SETTLED), (SETTLED, SECONDS - BEFORE_END)], ..scene }
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        named([("start", seen.call_loss(0)), ("loss", seen.call_loss(1))])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            most("loss", ours, figure("loss"), 0.001),
            most("loss while GTP starts", ours, figure("start"), 0.001),
        ]
    }
}
