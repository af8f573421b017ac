//! A grid of paths that nobody reserved, and the tests that judge GTP on each of them.
//!
//! A cell is a bottleneck: a rate, a round-trip time and a queue. A test plays something on it (GTP
//! alone, beside CUBIC, behind a policer), from five starts, and claims what must hold; the worst
//! of the five counts. The same runs with a CUBIC in GTP's place are the measure where a claim
//! compares; these and those with BBRs of both versions stand beside it in the page. This module
//! knows cells and tests; it reads no files and knows no threads.

mod alone;
mod aqm;
mod beside;
mod call;
mod changes;
mod claim;
mod group;
mod leaves;
mod look;
mod lowly;
pub mod misses;
mod noisy;
pub mod page;
mod policed;
mod scene;
mod short;
mod start;
mod starts;
pub mod store;
mod strangers;
mod traced;

use std::collections::BTreeMap;
use std::fmt;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_peers::tcp::Flavour;

use crate::refusal::Refusal;

pub use claim::Claim;
pub use look::{Curves, Seen, run};
pub use scene::Scene;

/// What speaks in GTP's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// GTP itself.
    Gtp,
    /// TCP with RFC 9438.
    Cubic,
    /// TCP with BBR, version 1.
    Bbr,
    /// TCP with BBR, version 3.
    Bbr3,
}

impl Who {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Who; 4] = [Who::Gtp, Who::Cubic, Who::Bbr, Who::Bbr3];

    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Who::Gtp => "gtp",
            Who::Cubic => "cubic",
            Who::Bbr => "bbr",
            Who::Bbr3 => "bbr3",
        }
    }
}

/// The length of the bottleneck's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    /// Ten packets may wait.
    Ten,
    /// A quarter of the bandwidth-delay product may wait.
    Quarter,
    /// The bandwidth-delay product may wait.
    One,
    /// Four times the bandwidth-delay product may wait.
    Four,
}

impl Queue {
    /// All of them, from the shortest to the longest.
    pub const ALL: [Queue; 4] = [Queue::Ten, Queue::Quarter, Queue::One, Queue::Four];

    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Queue::Ten => "10p",
            Queue::Quarter => "0.25",
            Queue::One => "1",
            Queue::Four => "4",
        }
    }
}

/// A bottleneck, on which tests are played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Its rate in Mbit/s.
    pub mbps: u64,
    /// The round-trip time over it in milliseconds.
    pub rtt_ms: u64,
    /// The length of its queue.
    pub queue: Queue,
}

/// The rates of the grid, in Mbit/s.
pub const RATES: [u64; 4] = [20, 100, 500, 1_000];
/// The round-trip times of the grid, in milliseconds.
pub const RTTS: [u64; 4] = [10, 40, 100, 200];

impl Cell {
    /// Returns all cells, by rate, then round-trip time, then queue.
    pub fn all() -> Vec<Cell> {
        let pairs = RATES.into_iter().flat_map(|mbps| RTTS.map(|rtt_ms| (mbps, rtt_ms)));
        let cell = |(mbps, rtt_ms)| Queue::ALL.map(|queue| Cell { mbps, rtt_ms, queue });
        pairs.flat_map(cell).collect()
    }

    /// Returns its rate.
    pub fn rate(self) -> Rate {
        Rate::from_mbps(self.mbps)
    }

    /// Returns its round-trip time.
    pub fn rtt(self) -> Span {
        Span::from_millis(self.rtt_ms)
    }

    /// Returns its round-trip time in seconds.
    pub fn rtt_s(self) -> f64 {
        self.rtt().as_secs_f64()
    }

    /// Returns how many bytes may wait if the bandwidth-delay product is that of `rtt`.
    pub fn room_at(self, rtt: Span) -> Bytes {
        let product = self.rate().bytes_in(rtt).0;
        let bytes = match self.queue {
            Queue::Ten => 10 * PACKET,
            Queue::Quarter => product / 4,
            Queue::One => product,
            Queue::Four => 4 * product,
        };
        Bytes(bytes.max(2 * PACKET))
    }

    /// Returns how many bytes may wait.
    pub fn room(self) -> Bytes {
        self.room_at(self.rtt())
    }

    /// Tells whether its queue is too short to fill the path without loss.
    pub fn is_shallow(self) -> bool {
        matches!(self.queue, Queue::Ten | Queue::Quarter)
    }

    /// Reads a cell as `Display` writes it, such as `100/40/0.25`. `None`: there is no such cell.
    pub fn read(text: &str) -> Option<Cell> {
        Cell::all().into_iter().find(|cell| cell.to_string() == text)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.mbps, self.rtt_ms, self.queue.name())
    }
}

/// The size of a full packet on a link, in bytes.
pub const PACKET: u64 = 1_500;

/// The figures that were read off one run, by name.
pub type Figures = BTreeMap<String, f64>;

/// How many starts of a rival a test needs to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Its claims are about GTP alone. A rival is shown once.
    Absolute,
    /// Its claims compare GTP with a CUBIC in its place, which is played from all starts.
    Cubic,
}

/// A test, which is played on cells and judged.
pub trait Test: Send + Sync {
    /// Returns its name on the command line.
    fn name(&self) -> &str;
    /// Returns a sentence that says what it plays.
    fn about(&self) -> &str;
    /// Tells whether it is played on a cell. Without it, it is played on all.
    fn covers(&self, _cell: Cell) -> bool {
        true
    }
    /// Returns what its claims are held against. Without it, they are about GTP alone.
    fn measure(&self) -> Measure {
        Measure::Absolute
    }
    /// Returns what is played on a cell from the start of this number, counted from 0.
    fn scene(&self, cell: Cell, start: u64, who: Who) -> Scene;
    /// Reads the figures off a run of such a scene.
    fn figures(&self, cell: Cell, start: u64, seen: &Seen<'_>) -> Figures;
    /// Returns what must hold, by the runs of all starts and those of a CUBIC in GTP's place.
    fn claims(&self, cell: Cell, ours: &[Figures], cubic: &[Figures]) -> Vec<Claim>;
}

/// Returns all tests, in the order in which they are shown.
pub fn tests() -> Vec<Box<dyn Test>> {
    let mut tests: Vec<Box<dyn Test>> = Vec::new();
    tests.extend(alone::tests());
    tests.extend(start::tests());
    tests.extend(beside::tests());
    tests.extend(aqm::tests());
    tests.extend(policed::tests());
    tests.extend(leaves::tests());
    tests.extend(lowly::tests());
    tests.extend(strangers::tests());
    tests.extend(group::tests());
    tests.extend(noisy::tests());
    tests.extend(changes::tests());
    tests.extend(traced::tests());
    tests.extend(short::tests());
    tests.extend(call::tests());
    tests
}

/// Returns the hash of a short run of each rival. It changes when the rivals' laws or the links do.
///
/// # Errors
/// If that cannot be run.
pub fn rivals() -> Result<u64, Refusal> {
    let cell = Cell { mbps: 20, rtt_ms: 40, queue: Queue::Quarter };
    let mut flows = Vec::new();
    let flavours = [Flavour::Cubic, Flavour::Sack, Flavour::Bbr, Flavour::Bbr3];
    for (n, flavour) in flavours.into_iter().enumerate() {
        flows.push(scene::Flow::new(scene::tcp(flavour), n, cell.rtt(), 0.1 * n as f64));
    }
    let scene = Scene::new(cell, 0, 5.0, 0, flows);
    Ok(run(&scene, "rivals".to_owned(), &mut |_| {})?.hash)
}

/// Puts figures together by their names.
fn named<const N: usize>(figures: [(&str, f64); N]) -> Figures {
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn the_grid_has_sixty_four_cells_whose_names_read_back() {
        let cells = Cell::all();
        assert_eq!(cells.len(), 64);
        assert!(cells.iter().all(|&cell| Cell::read(&cell.to_string()) == Some(cell)));
        let cell = Cell::read("100/40/0.25").expect("a cell");
        assert_eq!(cell.room(), Bytes(125_000));
        assert_eq!(Cell::read("100/40/10p").map(Cell::room), Some(Bytes(15_000)));
        assert_eq!(Cell::read("100/40/3"), None);
    }

    #[test]
    fn tests_have_names_of_their_own() {
        let tests = tests();
        let names: std::collections::BTreeSet<_> = tests.iter().map(|test| test.name()).collect();
        assert_eq!(names.len(), tests.len());
    }
}
