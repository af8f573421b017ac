//! A link whose capacity is a trace that steps by four, down and up, again and again.
//!
//! The trace is generated: the cell's rate and a quarter of it, in turn. Its opportunities come in
//! whole milliseconds, so that beside the steps it has the grain of a measured one. Who is alone on
//! it must not lose more at a fall than what was under way in excess, and must be back soon after
//! a rise.

use gtp_alloc::Rate;
use gtp_link::{Trace, TraceError};

use super::claim::{figure, most};
use super::scene::span;
use super::{Cell, Claim, Figures, PACKET, Scene, Seen, Test, Who, named, starts};

/// A session alone on a trace of two rates.
struct Traced;

/// What is left of the rate by a fall.
const LEFT: f64 = 0.25;
/// Each of the two rates lasts so many seconds.
const EACH: f64 = 8.0;
/// So many times the rate falls and rises again.
const TIMES: u32 = 2;
/// Losses count to a fall for so many seconds.
const SETTLES: f64 = 5.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    vec![Box::new(Traced)]
}

/// Returns a trace that has this rate and a quarter of it in turn.
///
/// # Errors
/// If the rate makes no trace.
fn steps(rate: Rate) -> Result<Trace, TraceError> {
    Trace::of_rates(&[(rate, span(EACH)), (rate.scale(LEFT), span(EACH))])
}

/// Returns the seconds at which the rate falls.
fn falls() -> impl Iterator<Item = f64> {
    (0..TIMES).map(|n| EACH * f64::from(2 * n + 1))
}

impl Test for Traced {
    fn name(&self) -> &str {
        "trace-4"
    }

    fn about(&self) -> &str {
        "The link's capacity is a trace: the rate for 8 s, a quarter of it for 8 s, and again."
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let seconds = EACH * f64::from(2 * TIMES + 1);
        let mut scene = Scene::alone(cell, start, who, seconds, starts::alone(start));
        scene.core.trace = steps(cell.rate()).ok();
        scene
    }

    fn figures(&self, cell: Cell, _: u64, seen: &Seen<'_>) -> Figures {
        let lost = |at: f64| seen.dropped(at, at + SETTLES);
        let ninety = |at: f64| seen.reached(0.9, at + EACH, f64::max(0.2, cell.rtt_s()));
        // A rise after which the rate never came back is the worst of all.
        let slowest = |worst: f64, one: f64| match worst.is_nan() || one.is_nan() {
            true => f64::NAN,
            false => worst.max(one),
        };
        named([
            ("lost", falls().map(lost).fold(0.0, f64::max)),
            ("ninety", falls().map(ninety).fold(0.0, slowest)),
        ])
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        let gap = (1.0 - LEFT) * cell.rate().as_f64() / 8.0 * 2.0 * cell.rtt_s();
        let limit = (cell.room().0 as f64 + gap) / PACKET as f64;
        vec![
            most("packets lost", ours, figure("lost"), limit),
            most("rise, s", ours, figure("ninety"), 1.5),
        ]
    }
}

#[cfg(test)]
mod tests_of_the_trace {
    use super::*;

    #[test]
    fn every_cell_has_a_trace_of_its_rate_and_a_quarter_of_it() {
        for cell in Cell::all() {
            let trace = steps(cell.rate()).expect("a trace");
            let mean = trace.mean_rate().as_f64() / cell.rate().as_f64();
            assert!((mean - 0.625).abs() < 1e-3, "{cell}: {mean}");
            assert_eq!(trace.period(), span(2.0 * EACH));
        }
    }
}
