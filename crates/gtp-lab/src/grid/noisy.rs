//! Random losses and jitter, which are no sign of a queue: they slow nothing down.
//!
//! Both happen on the wire behind the bottleneck. What random losses leave is what can be used;
//! beside jitter a path is used as without it.

use gtp_alloc::Span;
use gtp_link::{Chance, Jitter, LinkSpec, Order};

use super::alone::use_of;
use super::claim::{figure, least, most};
use super::{Cell, Claim, Figures, Scene, Seen, Test, Who, named, starts};

/// GTP alone on a path with some noise behind the bottleneck.
struct Noisy {
    name: &'static str,
    about: &'static str,
    noise: Noise,
}

/// What the noise does.
#[derive(Clone, Copy)]
enum Noise {
    /// It loses packets, of a hundred thousand.
    Loses(u32),
    /// It delays packets by up to 5 ms.
    Delays(Order),
}

/// A run lasts this long, in seconds.
const SECONDS: f64 = 30.0;
/// The start has passed after so many seconds, and what follows is judged.
const SETTLED: f64 = 10.0;
/// Jitter adds this much at most.
const JITTER: Span = Span::from_millis(5);

/// Returns the tests of this module.
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

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let mut scene = Scene::alone(cell, start, who, SECONDS, starts::alone(start));
        let wire = LinkSpec::default();
        scene.forth = match self.noise {
            Noise::Loses(of) => LinkSpec { loss: Chance::from_billionths(of * 10_000), ..wire },
            Noise::Delays(order) => LinkSpec { jitter: Jitter { span: JITTER, order }, ..wire },
        };
        scene
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        named([("use", seen.used(SETTLED, SECONDS)), ("loss", seen.loss(SETTLED, SECONDS))])
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let used = |limit| least("use", ours, figure("use"), limit);
        match self.noise {
            Noise::Loses(of) => vec![used(0.95 * (1.0 - f64::from(of) / 1e5))],
            Noise::Delays(_) => {
                vec![used(use_of(cell)), most("loss", ours, figure("loss"), 0.001)]
            }
        }
    }
}
