//! What the demo does: five sessions from five sources to one sink, one after another.
//!
//! The layout is that of the thesis (IX.4.B): round-trip times of 1, 1, 60, 60 and 140 ms, an
//! access link of 700 Mbit/s at the sink. A session starts every step. The files are as long as
//! the oracle says that each session needs to live for five steps, so they also end one by one,
//! each by being complete. Nothing here knows sockets, files or clocks.

use gtp_alloc::maxmin::{self, Network, Session};
use gtp_alloc::{Rate, Span};

/// Sessions, sources and paths.
pub const SESSIONS: usize = 5;

/// Round-trip times of the paths in milliseconds (thesis, IX.4.B).
pub const RTT_MS: [u64; SESSIONS] = [1, 1, 60, 60, 140];

/// What the sessions are called.
pub const NAMES: [&str; SESSIONS] = ["A", "B", "C", "D", "E"];

/// The sink's access link (thesis, IX.3).
pub const ACCESS: Rate = Rate::from_mbps(700);

/// The queue before the access link.
pub const QUEUE: Span = Span::from_millis(100);

/// The capacity that the sink states: nine tenths of its access link.
pub const SINK: Rate = Rate::from_mbps(630);

/// The capacity that each source states: a network card of its time.
pub const SOURCE: Rate = Rate::from_mbps(1_000);

/// One value for each session.
pub type Each<T> = [T; SESSIONS];

/// The demo's timetable.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time from one start to the next.
    pub step: Span,
}

impl Plan {
    /// When this session starts, from the first one's start.
    pub fn start(&self, session: usize) -> Span {
        self.step * session as u64
    }

    /// How long all of it takes if every session has its share.
    pub fn length(&self) -> Span {
        self.step * (2 * SESSIONS as u64 - 1)
    }

    /// Length in bytes of the file that keeps this session busy for five steps.
    pub fn file_bytes(&self, session: usize) -> u64 {
        let rate = (0..SESSIONS).map(|step| wanted(&active_in(session + step))[session]);
        let wire_bits = rate.sum::<f64>() * self.step.as_secs_f64();
        // Not a multiple of anything, so that last blocks and last units are short ones.
        (wire_bits / 8.0 * CONTENT_SHARE) as u64 | 1
    }

    /// Length of the file that comes from all sources at once.
    pub fn large_bytes(&self) -> u64 {
        self.file_bytes(0)
    }

    /// The most bytes on disk at a time: what is served, and what has arrived and is not yet
    /// looked at.
    pub fn disk_bytes(&self) -> u64 {
        let served: u64 = (0..=SESSIONS / 2).map(|session| self.file_bytes(session)).sum();
        let arrived: u64 = (0..SESSIONS).map(|session| self.file_bytes(session)).sum();
        served + arrived + DISK_RESERVE
    }
}

/// The sessions that are active in a step, if each lives for as many steps as there are sessions.
fn active_in(step: usize) -> Each<bool> {
    std::array::from_fn(|session| (session..session + SESSIONS).contains(&step))
}

/// The max-min fair rates of these sessions in bit/s; zero for the others. Every session crosses
/// its source, the access link and the sink.
pub fn wanted(active: &Each<bool>) -> Each<f64> {
    let mut capacity = vec![SOURCE.as_f64(); SESSIONS];
    let (access, sink) = (SESSIONS as u32, SESSIONS as u32 + 1);
    capacity.extend([ACCESS.as_f64(), SINK.as_f64()]);
    let mut network = Network::new(capacity).expect("the capacities are proper numbers");
    for source in 0..SESSIONS as u32 {
        let uses = [source, access, sink];
        // One that is not active demands nothing.
        let demand = if active[source as usize] { f64::INFINITY } else { 0.0 };
        network
            .add(Session { uses: &uses, weight: 1.0, demand })
            .expect("the sessions name resources that exist");
    }
    let rates = maxmin::solve(&network);
    std::array::from_fn(|session| rates[session])
}

/// The share of content in the bytes on the wire: 8,900 of 8,977 in each packet, which the loopback
/// interface carries.
const CONTENT_SHARE: f64 = 0.99;

/// Room for keys, journals and the page.
const DISK_RESERVE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_gives_equal_parts_of_the_sinks_capacity() {
        let rates = wanted(&[true, false, true, true, false]);
        assert!((rates[0] - 210e6).abs() < 1.0 && (rates[3] - 210e6).abs() < 1.0, "{rates:?}");
        assert_eq!((rates[1], rates[4]), (0.0, 0.0));
        assert!((wanted(&[false, true, false, false, false])[1] - 630e6).abs() < 1.0);
    }

    #[test]
    fn files_last_five_steps_each_and_fit_the_disk() {
        let plan = Plan { step: Span::from_secs(3) };
        let all: u64 = (0..SESSIONS).map(|k| plan.file_bytes(k)).sum();
        let carried = 630e6 / 8.0 * plan.length().as_secs_f64() * CONTENT_SHARE;
        assert!((all as f64 / carried - 1.0).abs() < 1e-6, "{all} {carried}");
        assert_eq!(plan.file_bytes(0), plan.file_bytes(4));
        assert_eq!(plan.file_bytes(1), plan.file_bytes(3));
        assert!(plan.disk_bytes() < 4_000_000_000, "{}", plan.disk_bytes());
    }
}
