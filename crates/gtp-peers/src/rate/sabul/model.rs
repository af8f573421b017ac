//! The paper's deterministic model of SABUL (section III) as an executable.
//!
//! Senders with interfaces of capacity `C` share a bottleneck that serves `mu` bit/s and holds `K`
//! packets. Time goes in ticks, the common measure of the senders' rounds. In a tick each sends at
//! the rate of eq. 5; what neither passes nor fits is lost, and all see the same share of loss
//! (proof of Lemma 8). At the end of its round each takes eqs. 1 to 3. Nothing is random and there
//! is no round trip: the paper finds that it has no effect.
//!
//! Lemmas, each a property test below under the hypotheses under which it is true:
//! - Lemma 1 [FIX] needs `k2 alpha < 1` (printed `> 1`).
//! - Lemma 2 [FIX] the limit in decrease mode is `L/(L/C + c/(k1 alpha))`, not zero; that the
//!   mode does not lock is right, because losses end before.
//! - Lemma 3 [FIX] needs `k2 (1 - alpha - mu/C) > 1`, a little more than printed: else losses may
//!   near the target from below for ever, and no decrease comes.
//! - Lemma 4's bound is [`increase_rounds`], under the same; Lemma 6 as printed.
//! - Lemma 5 [FIX] holds for a first decrease that begins at the interface's rate; any other first
//!   overshoot may be smaller than a later one.
//! - Lemma 7 [FIX] is not true in general, though nearly: its proof lets every decrease end at
//!   `mu` exactly. Eq. 25's middle term is `1 - (C - C k2 a + mu k2 a)/C`, eq. 26 means `>= 2 a`,
//!   and the parities at the proof's end are exchanged.
//! - Lemma 8 [FIX] needs Lemma 3's, because the addend `c`, as Chiu and Jain show, is what makes it
//!   true, and only a decrease adds it.

use alloc::vec::Vec;

use super::law::{self, Parameters};

/// One sender.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Eqs. 1 to 3.
    pub parameters: Parameters,
    /// `C`: its interface, in bit/s.
    pub interface: f64,
    /// `delta`: the gap in force, in seconds.
    pub gap: f64,
    /// Ticks in a round.
    pub round: u64,
    sent: f64,
    lost: f64,
}

impl Connection {
    /// A sender that begins at `rate` bit/s, with rounds of `round` ticks.
    pub fn new(
        parameters: Parameters,
        interface: f64,
        rate: f64,
        length: f64,
        round: u64,
    ) -> Connection {
        let gap = law::gap_of(rate, length, interface);
        Connection { parameters, interface, gap, round: round.max(1), sent: 0.0, lost: 0.0 }
    }

    /// Eq. 5, in bit/s.
    pub fn rate(&self, length: f64) -> f64 {
        law::sending_rate(self.gap, length, self.interface)
    }
}

/// Which equation a round ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Eq. 2: the rate rose.
    Increase,
    /// Eq. 1: it fell.
    Decrease,
    /// Eq. 3: the loss was the target exactly.
    Hold,
}

/// What a round knows of its loss. The paper says "the loss rate in the round" where its rounds
/// are all of one length; with rounds of several ticks it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// All that was lost of all that was sent.
    #[default]
    Round,
    /// The loss of its last tick.
    Last,
}

/// The bottleneck and its senders.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// `mu`: bit/s that the senders are served together.
    pub service: f64,
    /// `K L`: bits that the queue holds.
    pub buffer: f64,
    /// `L`: bits of a packet.
    pub length: f64,
    /// Seconds in a tick.
    pub tick: f64,
    /// How rounds of more than a tick see their loss.
    pub sight: Sight,
    /// The senders.
    pub connections: Vec<Connection>,
    backlog: f64,
    ticks: u64,
}

/// What one connection's round was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Which connection.
    pub connection: usize,
    /// `rho`: its loss rate.
    pub loss: f64,
    /// `lambda`: the rate it had, in bit/s.
    pub rate: f64,
    /// What follows.
    pub mode: Mode,
}

impl Model {
    /// A bottleneck with no senders and an empty queue of `packets` packets of 12,000 bits.
    pub fn new(service: f64, packets: f64, tick: f64) -> Model {
        let buffer = packets * LENGTH;
        let (length, sight, connections) = (LENGTH, Sight::Round, Vec::new());
        Model { service, buffer, length, tick, sight, connections, backlog: 0.0, ticks: 0 }
    }

    /// One tick; the rounds that ended with it.
    pub fn step(&mut self) -> Vec<Round> {
        self.ticks += 1;
        let length = self.length;
        let offered: f64 = self.connections.iter().map(|c| c.rate(length) * self.tick).sum();
        let filled = (self.backlog + offered - self.service * self.tick).max(0.0);
        self.backlog = filled.min(self.buffer);
        let share = if offered > 0.0 { (filled - self.backlog) / offered } else { 0.0 };
        let mut rounds = Vec::new();
        for (connection, c) in self.connections.iter_mut().enumerate() {
            let rate = c.rate(length);
            c.sent += rate * self.tick;
            c.lost += rate * self.tick * share;
            if !self.ticks.is_multiple_of(c.round) {
                continue;
            }
            let loss = match self.sight {
                Sight::Round => c.lost / c.sent,
                Sight::Last => share,
            };
            (c.sent, c.lost) = (0.0, 0.0);
            c.gap = law::next_gap(c.gap, loss, &c.parameters);
            rounds.push(Round { connection, loss, rate, mode: mode(loss, &c.parameters) });
        }
        rounds
    }

    /// Mean rates in bit/s over `ticks` ticks.
    pub fn mean_rates(&mut self, ticks: u64) -> Vec<f64> {
        let mut sums = alloc::vec![0.0; self.connections.len()];
        for _ in 0..ticks {
            for (sum, c) in sums.iter_mut().zip(&self.connections) {
                *sum += c.rate(self.length);
            }
            self.step();
        }
        sums.iter().map(|sum| sum / ticks as f64).collect()
    }

    /// Fig. 2: the path of two senders' gaps, in seconds, over `ticks` ticks.
    ///
    /// # Panics
    /// If there are not two connections.
    pub fn phase_plane(&mut self, ticks: u64) -> Vec<(f64, f64)> {
        assert_eq!(self.connections.len(), 2, "Fig. 2 is a plane");
        let point = |m: &Model| (m.connections[0].gap, m.connections[1].gap);
        let mut path = alloc::vec![point(self)];
        for _ in 0..ticks {
            self.step();
            path.push(point(self));
        }
        path
    }
}

fn mode(loss: f64, p: &Parameters) -> Mode {
    if loss > p.target {
        Mode::Decrease
    } else if loss < p.target {
        Mode::Increase
    } else {
        Mode::Hold
    }
}

/// Eq. 15 and what follows it: the most rounds that an increase from gap `gap` (seconds) takes
/// until losses exceed the target, for a queue that holds `buffer` bits and rounds of `round`
/// seconds.
///
/// The first part is eq. 15. The second is the number of rounds in which the excess over `mu`, at
/// least that of the first round above it, fills the queue; one more sees the loss.
pub fn increase_rounds(
    gap: f64,
    p: &Parameters,
    interface: f64,
    service: f64,
    buffer: f64,
    round: f64,
) -> u64 {
    let critical = LENGTH / service - LENGTH / interface;
    let shrink = 1.0 - p.k2 * p.target;
    let rising = libm::ceil(libm::log(critical / gap) / libm::log(shrink)).max(0.0);
    let next = law::sending_rate(critical * shrink, LENGTH, interface);
    let filling = libm::ceil(buffer / (round * (next - service)));
    (rising + filling + 1.0) as u64
}

/// The conditions of Lemma 7 for a bottleneck `service` and an interface, both in bit/s.
pub fn satisfies_lemma_7(p: &Parameters, interface: f64, service: f64) -> bool {
    let room = LENGTH / service - LENGTH / interface;
    let step = (1.0 + p.k1) * p.k2 * p.target;
    p.c <= step * room - p.k1 * room
        && step > p.k1
        && p.k2 * p.target < 1.0
        && p.k2 > 2.0
        && p.k2 * (1.0 - service / interface) >= 2.0
}

/// `L`: 1,500 bytes. The paper does not say.
pub const LENGTH: f64 = 12_000.0;

#[cfg(test)]
mod tests;
