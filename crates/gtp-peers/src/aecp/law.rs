//! AECP's sender: once a round-trip time its rate goes a step towards the factor, paper 5.2.
//!
//! `x = x^(1 - 2 tau) * r^(2 tau)` (eq. 48): in the logarithm a step of the continuous law. The
//! sender is a window over TCP's engine, `x * tau` packets, sent at the pace of `x`; the receiver
//! returns the factor of each packet.
//!
//! Silent in the paper: the first rate, here what the engine's initial window is in the first
//! round-trip time; what a loss means to the rate. Here it means nothing, and a timeout neither:
//! both are repaired, and what may be sent is for routers to say. (Rates that begin anew after a
//! timeout never settle: they take three seconds to come back, all at once, and overrun the queue
//! again.)

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Factor, Gains};
use crate::Note;
use crate::tcp::{AckView, Law as Tcp, Leaving, LossView, Window};

/// The rate after one round-trip time `rtt`, eq. 46 and 48.
///
/// `[FIX]` The exponent of the old rate, `1 - alpha*tau`, is negative for a round-trip time above
/// half a second, and the step would go past the factor; it ends at zero here.
#[must_use]
pub fn next_rate(rate: f64, factor: f64, rtt: Span, gains: Gains) -> f64 {
    let weight = (gains.alpha * rtt.as_secs_f64()).min(1.0);
    libm::pow(rate, 1.0 - weight) * libm::pow(factor, weight)
}

/// The law; a paced window over the TCP engine.
#[derive(Clone, Debug)]
pub struct Law {
    gains: Gains,
    /// Packets per second; `None` before the first round trip.
    rate: Option<f64>,
    /// What the last packet brought; unset if no router has spoken.
    factor: Factor,
    /// Bytes on links of a full packet.
    size: Bytes,
}

impl Law {
    /// The law of a new connection.
    #[must_use]
    pub fn new(gains: Gains) -> Law {
        Law { gains, rate: None, factor: Factor::UNSET, size: Bytes::ZERO }
    }

    /// The rate in packets per second, once there is one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }
}

impl Tcp for Law {
    fn name(&self) -> &'static str {
        "aecp"
    }

    fn stamp(&mut self, leaving: &Leaving) -> Note {
        self.size = self.size.max(leaving.size);
        Note::Aecp(Factor::UNSET)
    }

    /// A path without any AECP router leaves the factor unset, and the rate as it is.
    fn handle_note(&mut self, _now: Time, note: &Note, _window: &mut Window) {
        if let Note::Aecp(factor) = note {
            self.factor = *factor;
        }
    }

    fn handle_round(&mut self, ack: &AckView, window: &mut Window) {
        let tau = ack.smoothed_rtt.as_secs_f64();
        if tau <= 0.0 {
            return;
        }
        let rate = match (self.rate, self.factor.packets_per_second()) {
            (None, _) => window.size / tau,
            (Some(rate), None) => rate,
            (Some(rate), Some(factor)) => next_rate(rate, factor, ack.smoothed_rtt, self.gains),
        };
        self.rate = Some(rate);
        window.size = (rate * tau).max(1.0);
    }

    fn grow(&mut self, _ack: &AckView, _window: &mut Window) {}

    fn handle_loss(&mut self, _loss: &LossView, _window: &mut Window) {}

    fn handle_recovered(&mut self, _now: Time, _window: &mut Window) {}

    fn handle_timeout(&mut self, _loss: &LossView, _window: &mut Window) {}

    fn handle_timeout_again(&mut self, _window: &mut Window) {}

    fn handle_idle(&mut self, _now: Time, _window: &mut Window) {}

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let bits = 8.0 * self.size.0 as f64;
        self.rate.map(|rate| Rate::from_f64(rate * bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::tcp::{Opening, Sender, SenderConfig};

    #[test]
    fn however_often_the_timer_rings_the_window_is_for_routers_to_say() {
        let config = SenderConfig { opening: Opening::Open, ..SenderConfig::default() };
        let law = alloc::boxed::Box::new(Law::new(Gains::PAPER));
        let mut sender = Sender::new(Time::ZERO, config, law);
        while sender.poll_transmit(Time::ZERO).is_some() {}
        for rung in 1..=4 {
            let at = sender.poll_timeout().expect("a deadline");
            sender.handle_timeout(at);
            let mut again = 0;
            while sender.poll_transmit(at).is_some() {
                again += 1;
            }
            assert_eq!((sender.timeouts(), again), (rung, 10));
            assert_eq!(sender.window().size, config.initial_window);
        }
    }

    #[test]
    fn a_step_is_the_papers_equation_48() {
        let next = next_rate(100.0, 900.0, Span::from_millis(50), Gains::PAPER);
        assert!((next - libm::pow(100.0, 0.9) * libm::pow(900.0, 0.1)).abs() < 1e-9);
    }

    #[test]
    fn a_step_never_goes_past_the_factor() {
        for rtt in [1, 50, 499, 500, 501, 2_000] {
            for (rate, factor) in [(20.0, 5_000.0), (5_000.0, 20.0)] {
                let next = next_rate(rate, factor, Span::from_millis(rtt), Gains::PAPER);
                let (low, high) = (f64::min(rate, factor), f64::max(rate, factor));
                assert!(next >= low * (1.0 - 1e-12) && next <= high * (1.0 + 1e-12), "{rtt}");
            }
        }
        let all = next_rate(20.0, 5_000.0, Span::from_millis(700), Gains::PAPER);
        assert!((all - 5_000.0).abs() < 1e-6);
    }
}
