//! GTP of low weight: it fills a path that nobody else wants, and leaves a CUBIC what it has alone.
//!
//! What the CUBIC has alone is measured by runs of its own, from the same starts. What GTP gets
//! beside it is not judged: it may be nothing.

use gtp_peers::tcp::Flavour;
use gtp_proto::limits::WEIGHT_LOW;

use super::claim::{figure, least, mean_of, most, scaled};
use super::scene::{Flow, protocol, tcp};
use super::{Cell, Claim, Figures, Measure, Scene, Seen, Test, Who, named, starts};

/// GTP of low weight has the path to itself.
struct LowAlone;

/// GTP of low weight and a CUBIC share the path.
struct LowBeside {
    name: &'static str,
    /// When GTP begins, and when the CUBIC does, in seconds of the first start.
    begins: [f64; 2],
}

/// A run alone lasts this long, in seconds.
const ALONE: f64 = 30.0;
/// The start has passed after so many seconds, and what follows is judged.
const SETTLED: f64 = 10.0;
/// A run beside a CUBIC lasts this long, in seconds.
const SECONDS: f64 = 66.0;
/// The last seconds of it, so many, are judged.
const JUDGED: f64 = 50.0;
/// Whoever comes later begins at this second of the first start.
const JOINS: f64 = 3.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let joins = LowBeside { name: "low-joins-cubic", begins: [JOINS, 0.0] };
    let first = LowBeside { name: "low-first-cubic", begins: [0.0, JOINS] };
    vec![Box::new(LowAlone), Box::new(joins), Box::new(first)]
}

/// Makes the flow of low weight, or the flow of the protocol in its place.
fn low(cell: Cell, who: Who, begins: f64) -> Flow {
    Flow { weight: WEIGHT_LOW, ..Flow::new(protocol(who), 0, cell.rtt(), begins) }
}

impl Test for LowAlone {
    fn name(&self) -> &str {
        "low-alone"
    }

    fn about(&self) -> &str {
        "GTP of low weight alone for 30 s; the last 20 s are judged."
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let flows = vec![low(cell, who, starts::alone(start))];
        Scene::new(cell, start, ALONE, 1, flows)
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        named([("use", seen.used(SETTLED, ALONE)), ("queue", seen.queue_p95(SETTLED, ALONE))])
    }

    fn claims(&self, _: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        vec![
            least("use", ours, figure("use"), 0.9),
            most("queue, ms", ours, scaled("queue", 1e3), 15.0),
        ]
    }
}

impl Test for LowBeside {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        "GTP of low weight beside a CUBIC, which also has runs of its own; 66 s, the last 50 are \
         judged."
    }

    fn measure(&self) -> Measure {
        Measure::Cubic
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let [ours, theirs] = self.begins.map(|at| starts::stepped(at, start));
        let rival = Flow::new(tcp(Flavour::Cubic), 1, cell.rtt(), theirs);
        match who {
            // The CUBIC alone, by which it is judged what it has left.
            Who::Cubic => Scene::new(cell, start, SECONDS, 0, vec![Flow { pair: 0, ..rival }]),
            Who::Gtp | Who::Bbr | Who::Bbr3 => {
                Scene::new(cell, start, SECONDS, 1, vec![low(cell, who, ours), rival])
            }
        }
    }

    fn figures(&self, _: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let (from, to) = (SECONDS - JUDGED, SECONDS);
        named([("rival", seen.sum(seen.others(), from, to)), ("use", seen.used(from, to))])
    }

    fn claims(&self, _: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim> {
        let alone = mean_of(cubic, "rival");
        vec![least("rival keeps", ours, scaled("rival", 1.0 / alone), 0.95)]
    }
}
