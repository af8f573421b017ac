//! Random losses and jitter, which are no sign of a queue: they slow nothing down.
//!
//! Both happen on the wire behind the bottleneck. What random losses leave is what can be used;
//! beside jitter a path is used as without it.

use gtp_alloc::Span;
use gtp_link::{Chance, Jitter, LinkSpec, Order};

use super::alone::use_of;
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, value, worst_of};

/// A path with some noise behind the bottleneck.
struct Noisy {
    name: &'static str,
    about: &'static str,
    noise: Noise,
}

/// What it does.
#[derive(Clone, Copy)]
enum Noise {
    /// It loses packets, of a hundred thousand.
    Loses(u32),
    /// It delays packets by up to 5 ms.
    Delays(Order),
}

/// Seconds of a run, of which the first are the start's.
const SECONDS: f64 = 30.0;
const SETTLED: f64 = 10.0;
/// What jitter adds at most.
const JITTER: Span = Span::from_millis(5);

pub fn tests() -> Vec<Box<dyn Test>> {
    let noisy = |name, about, noise| -> Box<dyn Test> { Box::new(Noisy { name, about, noise }) };
    vec![
        noisy("loss-0.1", "0.1 % of all packets are lost at random.", Noise::Loses(100)),
        noisy("loss-1", "1 % of all packets are lost at random.", Noise::Loses(1_000)),
        noisy("loss-2", "2 % of all packets are lost at random.", Noise::Loses(2_000)),
        noisy("loss-5", "5 % of all packets are lost at random.", Noise::Loses(5_000)),
        noisy(
            "jitter-kept",
            "Packets are delayed by up to 5 ms and keep their order.",
            Noise::Delays(Order::Kept),
        ),
        noisy(
            "jitter-free",
            "Packets are delayed by up to 5 ms each and overtake each other.",
            Noise::Delays(Order::Free),
        ),
    ]
}

impl Test for Noisy {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn covers(&self, _: Cell) -> bool {
        true
    }

    fn measure(&self) -> Measure {
        Measure::Absolute
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let mut scene = Scene::alone(cell, start, who, SECONDS);
        let wire = LinkSpec::default();
        scene.forth = match self.noise {
            Noise::Loses(of) => LinkSpec { loss: Chance::from_billionths(of * 10_000), ..wire },
            Noise::Delays(order) => LinkSpec { jitter: Jitter { span: JITTER, order }, ..wire },
        };
        scene.flows[0].start = 0.137 * start as f64;
        scene
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        named([("use", seen.used(SETTLED, SECONDS)), ("loss", seen.loss(SETTLED, SECONDS))])
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let least = match self.noise {
            Noise::Loses(of) => 0.95 * (1.0 - f64::from(of) / 1e5),
            Noise::Delays(_) => use_of(cell),
        };
        let used = worst_of(ours.iter().map(|run| Claim::least("use", value(run, "use"), least)));
        let loss =
            || worst_of(ours.iter().map(|run| Claim::most("loss", value(run, "loss"), 0.001)));
        match self.noise {
            Noise::Loses(_) => vec![used],
            Noise::Delays(_) => vec![used, loss()],
        }
    }
}
