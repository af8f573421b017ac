//! VCP's sender: multiplicative, additive or no increase, by the two bits that came back.
//!
//! | load | per acknowledgment | source | where |
//! |---|---|---|---|
//! | low | `w += (1 + xi)^(rtt / t_rho) - 1` | paper; bounded in the code | `multiplied` |
//! | high | `w += alpha * (rtt / 100 ms)^2 / w` | paper; 100 ms, bounds: code | `added` |
//! | over | `w = beta * w` once; nothing for `t_rho` | paper | `answer_overload` |
//! | | then as high for one round-trip time | code | `answer_overload` |
//!
//! The powers make flows of unequal round-trip times grow alike; nothing makes them shrink alike.
//! A flow whose round-trip time is well above `t_rho` is cut once where others are cut twice, and
//! where overload lasts it ends with nearly all. On loss as Reno.

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Load, MEASURED_OVER};
use crate::Note;
use crate::tcp::{AckView, Fullness, Law as Tcp, Leaving, LossView, Phase, Window};

/// Paper: growth in one `t_rho` at low load, `kappa * (1/0.8 - 1)` with `kappa` 0.25.
const XI: f64 = 0.0625;
/// Paper: packets added in one round-trip time, of 100 ms, at high load.
const ALPHA: f64 = 1.0;
/// Paper: what is left of the window when a link is over.
const BETA: f64 = 0.875;
/// Code: the round-trip time at which additive increase is not scaled, seconds.
const TYPICAL: f64 = 0.1;
/// Code: the scaling is a square between these, in units of [`TYPICAL`], and a straight line
/// outside: 20 and 500 ms.
const SQUARE_FROM: f64 = 0.2;
const SQUARE_TO: f64 = 5.0;
/// Code: the most of `rtt / t_rho` in multiplicative increase: 500 ms.
const RATIO_MAX: f64 = 2.5;
/// Code: the largest window, in packets, that is paced.
const PACED_TO: f64 = 64.0;

/// The law; a window over the TCP engine.
#[derive(Clone, Debug, Default)]
pub struct Law {
    load: Option<Load>,
    rtt: Span,
    /// Packets, and bytes on links of a full one.
    window: f64,
    size: Bytes,
    /// Until when the last decrease freezes the window, and until when it adds nevertheless.
    cut: Option<(Time, Time)>,
}

impl Law {
    /// The law of a new connection.
    #[must_use]
    pub fn new() -> Law {
        Law::default()
    }

    fn answer_overload(&mut self, ack: &AckView, window: &mut Window) {
        match self.cut {
            Some((frozen, _)) if ack.now < frozen => {}
            Some((_, adding)) if ack.now < adding => add(ack, window),
            Some(_) | None => {
                let frozen = ack.now + MEASURED_OVER;
                self.cut = Some((frozen, frozen + ack.smoothed_rtt));
                window.size = (window.size * BETA).max(1.0);
            }
        }
    }
}

/// Growth of one acknowledgment at low load, packets.
fn multiplied(rtt: Span) -> f64 {
    let ratio = (rtt.as_secs_f64() / MEASURED_OVER.as_secs_f64()).min(RATIO_MAX);
    libm::pow(1.0 + XI, ratio) - 1.0
}

/// Growth of one round-trip time at high load, packets.
fn added(rtt: Span) -> f64 {
    let ratio = rtt.as_secs_f64() / TYPICAL;
    ALPHA
        * if ratio <= SQUARE_FROM {
            ratio * SQUARE_FROM
        } else if ratio <= SQUARE_TO {
            ratio * ratio
        } else {
            SQUARE_TO * SQUARE_TO + (ratio - SQUARE_TO)
        }
}

fn add(ack: &AckView, window: &mut Window) {
    window.size += ack.credit * added(ack.smoothed_rtt) / window.size;
}

impl Tcp for Law {
    fn name(&self) -> &'static str {
        "vcp"
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        self.rtt = leaving.smoothed_rtt;
        self.window = leaving.window.size;
        self.size = self.size.max(leaving.size);
        Note::Vcp(Load::Low)
    }

    /// A window that goes out in one burst loads one measurement of two, if a round trip takes
    /// longer than `t_rho`, and its packets read the load of the other. Therefore the authors'
    /// sender paces windows of up to 64 packets, until their acknowledgments do.
    fn pacing_rate(&self) -> Option<Rate> {
        let bursts = self.rtt > MEASURED_OVER && self.window <= PACED_TO;
        let bits = 8.0 * self.window * self.size.0 as f64;
        bursts.then(|| Rate::from_f64(bits / self.rtt.as_secs_f64()))
    }

    fn handle_note(&mut self, _now: Time, note: &Note, _window: &mut Window) {
        if let Note::Vcp(load) = note {
            self.load = Some(*load);
        }
    }

    /// Not in `grow`, since a link that is over must be answered by a slack window, too.
    fn observe(&mut self, ack: &AckView, window: &mut Window) {
        let Some(load) = self.load.take() else { return };
        if ack.phase == Phase::Recovery || ack.acked == 0 {
            return;
        }
        match load {
            Load::Over => self.answer_overload(ack, window),
            // A window that the application does not fill does not grow.
            Load::Low | Load::High if ack.fullness == Fullness::Slack => {}
            Load::Low => window.size += ack.credit * multiplied(ack.smoothed_rtt),
            Load::High => add(ack, window),
        }
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_in_a_fixed_time_does_not_depend_on_the_round_trip_time() {
        // At low load: w acknowledgments in each round, a second long.
        for rtt in [20, 50, 100, 200, 500] {
            let rounds = f64::from(1_000 / rtt);
            let span = Span::from_millis(u64::try_from(rtt).unwrap());
            let second = libm::pow(1.0 + multiplied(span), rounds);
            assert!((second / libm::pow(1.0625, 5.0) - 1.0).abs() < 1e-9, "{rtt} ms");
            // At high load the rate, not the window, grows alike: w/rtt by rtt/rtt^2 per second.
            let rate = added(span) * rounds / span.as_secs_f64();
            assert!((rate - 100.0).abs() < 1e-6, "{rtt} ms: {rate}");
        }
    }

    #[test]
    fn scaling_ends_at_20_and_at_500_milliseconds() {
        assert!((added(Span::from_millis(10)) - 0.02).abs() < 1e-12);
        assert!((added(Span::from_millis(600)) - 26.0).abs() < 1e-12);
        assert_eq!(multiplied(Span::from_millis(500)), multiplied(Span::from_secs(9)));
    }
}
