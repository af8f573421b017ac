//! Behind a policer, which drops what exceeds its rate and lets nothing wait.
//!
//! No delay ever warns of it, and loss goes on for as long as one sends more. There is no queue, so
//! a policer is played once for each rate and round-trip time.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{LinkSpec, Policer};

use super::claim::{figure, least, most};
use super::{Cell, Claim, Figures, Queue, Scene, Seen, Test, Who, named, starts};

/// GTP alone behind a policer, whose bucket its rate fills in a given time.
struct Policed {
    name: String,
    about: String,
    bucket: Span,
}

/// A run lasts this long after the session's start, in seconds.
const SECONDS: f64 = 20.0;
/// A session must have found the rate so many seconds after its start.
const FOUND: f64 = 3.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let policed = |ms: u64| -> Box<dyn Test> {
        Box::new(Policed {
            name: format!("policer-{ms}ms"),
            about: format!("Alone behind a policer with a bucket of {ms} ms, without a queue."),
            bucket: Span::from_millis(ms),
        })
    };
    [10, 100, 1_000].map(policed).into()
}

impl Test for Policed {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn covers(&self, cell: Cell) -> bool {
        cell.queue == Queue::One
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let begins = starts::alone(start);
        let mut scene = Scene::alone(cell, start, who, SECONDS + begins, begins);
        let policer = Policer { rate: cell.rate(), bucket: cell.rate().bytes_in(self.bucket) };
        let (rate, queue) = (Rate::UNLIMITED, Bytes(u64::MAX));
        scene.core = LinkSpec { rate, queue, policer: Some(policer), ..scene.core };
        scene
    }

    fn figures(&self, _: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let begins = starts::alone(start);
        let found = begins + FOUND;
        named([
            ("first", seen.loss(begins, found)),
            ("loss", seen.loss(found, seen.end())),
            ("use", seen.used(found, seen.end())),
        ])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            most("loss first", ours, figure("first"), 0.05),
            most("loss", ours, figure("loss"), 0.01),
            least("use", ours, figure("use"), 0.9),
        ]
    }
}
