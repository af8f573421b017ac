//! The path changes under a session: another rate, another way, heavy loss, no feedback.
//!
//! Each happens to a session that is alone and has found its rate, lasts twelve seconds and ends.
//! What is judged is how much is lost or sent meanwhile, and how soon the path is used again.

use gtp_alloc::{Rate, Span};
use gtp_link::{Chance, Change};

use super::claim::{figure, least, most};
use super::scene::{Flow, Place, protocol};
use super::{Cell, Claim, Figures, PACKET, Scene, Seen, Test, Who, named, starts};

/// A session alone on a path that changes.
struct Changes {
    name: &'static str,
    about: &'static str,
    what: What,
}

/// What happens to the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The rate is three tenths for a while.
    Step,
    /// The round-trip time goes from 20 to 80 ms and back.
    Reroute,
    /// The way forth loses so many per cent of all packets.
    Heavy(u32),
    /// All feedback is lost.
    Deaf,
}

/// The path changes at this second of the first start.
const CHANGES: f64 = 10.0;
/// It changes back after so many seconds.
const LASTS: f64 = 12.0;
/// A run goes on for so many seconds after the change back.
const AFTER: f64 = 14.0;

/// This part of the rate is left by a step.
const LEFT: f64 = 0.3;
/// Losses count to a step for so many seconds.
const SETTLES: f64 = 5.0;
/// A new way must be used after so many seconds.
const REROUTED: f64 = 3.0;
/// The guard against heavy loss must stand after so many seconds.
const GUARDED: f64 = 3.0;
/// After so many seconds and a round trip without feedback, hardly anything may be sent.
const SILENT: f64 = 1.0;
/// So many packets in a round trip count as hardly anything.
const PROBES: f64 = 4.0;

/// Returns the tests of this module.
pub fn tests() -> Vec<Box<dyn Test>> {
    let changes = |name, about, what| -> Box<dyn Test> { Box::new(Changes { name, about, what }) };
    vec![
        changes("step", "The rate falls to three tenths and rises again after 12 s.", What::Step),
        changes(
            "reroute",
            "The round-trip time goes from 20 to 80 ms and back after 12 s.",
            What::Reroute,
        ),
        changes("heavy-60", "60 % of all packets are lost for 12 s.", What::Heavy(60)),
        changes("heavy-90", "90 % of all packets are lost for 12 s.", What::Heavy(90)),
        changes("deaf", "All feedback is lost for 12 s.", What::Deaf),
    ]
}

impl Changes {
    fn rtt(&self, cell: Cell) -> Span {
        match self.what {
            What::Reroute => Span::from_millis(20),
            What::Step | What::Heavy(_) | What::Deaf => cell.rtt(),
        }
    }

    /// Returns the link that changes, how it changes, and how it changes back.
    fn change(&self, cell: Cell) -> (Place, Change, Change) {
        let rate = |rate: Rate| Change { rate: Some(rate), ..Change::default() };
        let loss = |loss| Change { loss: Some(loss), ..Change::default() };
        let delay = |ms| Change { delay: Some(Span::from_millis(ms)), ..Change::default() };
        match self.what {
            What::Step => (Place::Core, rate(cell.rate().scale(LEFT)), rate(cell.rate())),
            // One way takes all of the difference.
            What::Reroute => (Place::Forth, delay(70), delay(10)),
            What::Heavy(percent) => {
                (Place::Forth, loss(Chance::from_percent(percent)), loss(Chance::NEVER))
            }
            What::Deaf => (Place::Back, loss(Chance::ALWAYS), loss(Chance::NEVER)),
        }
    }
}

impl Test for Changes {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn covers(&self, cell: Cell) -> bool {
        // A new way has round-trip times of its own.
        self.what != What::Reroute || cell.rtt_ms == 40
    }

    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene {
        let flow = Flow::new(protocol(who), 0, self.rtt(cell), 0.0);
        let at = starts::stepped(CHANGES, start);
        let mut scene = Scene::new(cell, start, at + LASTS + AFTER, 1, vec![flow]);
        let (place, change, back) = self.change(cell);
        scene.core.queue = cell.room_at(self.rtt(cell));
        scene.changes = vec![(at, place, change), (at + LASTS, place, back)];
        scene
    }

    fn figures(&self, cell: Cell, start: u64, seen: &Seen<'_>) -> Figures {
        let from = starts::stepped(CHANGES, start);
        let back = from + LASTS;
        let rtt = self.rtt(cell).as_secs_f64();
        match self.what {
            What::Step => named([
                ("lost", seen.dropped(from, from + SETTLES)),
                ("ninety", seen.reached(0.9, back, f64::max(0.2, rtt))),
            ]),
            What::Reroute => named([
                ("longer", seen.used(from + REROUTED, back)),
                ("back", seen.used(back + REROUTED, seen.end())),
            ]),
            What::Heavy(_) => {
                let trips = (LASTS - GUARDED) / rtt;
                named([("sent", seen.carried(from + GUARDED, back) / trips)])
            }
            What::Deaf => named([("sent", seen.carried(from + SILENT + rtt, back))]),
        }
    }

    fn claims(&self, cell: Cell, ours: &[Figures], _: &[Figures]) -> Vec<Claim> {
        match self.what {
            What::Step => {
                let gap = (1.0 - LEFT) * cell.rate().as_f64() / 8.0 * 2.0 * cell.rtt_s();
                let limit = (cell.room().0 as f64 + gap) / PACKET as f64;
                vec![
                    most("packets lost", ours, figure("lost"), limit),
                    most("rise, s", ours, figure("ninety"), 1.5),
                ]
            }
            What::Reroute => vec![
                least("use of the longer way", ours, figure("longer"), 0.9),
                least("use of the way back", ours, figure("back"), 0.9),
            ],
            What::Heavy(_) => vec![most("packets a round trip", ours, figure("sent"), PROBES)],
            What::Deaf => vec![most("packets sent", ours, figure("sent"), PROBES)],
        }
    }
}
