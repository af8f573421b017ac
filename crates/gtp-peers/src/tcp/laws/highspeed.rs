//! HighSpeed TCP: RFC 3649; thesis, II.5.B.
//!
//! | rule | source | where |
//! |---|---|---|
//! | the standard law up to `Low_Window` | RFC 3649, 5 | `grow`, `shrink` |
//! | w += a(w)/w for each acknowledgment | RFC 3649, 5 | `grow` |
//! | w = (1 - b(w)) w on loss | RFC 3649, 5; the thesis prints w - b(w)/w | `shrink` |
//! | b(w) falls from 0.5 to `High_Decrease`, linear in log w | RFC 3649, 5 | [`decrease`] |
//! | p(w), linear in log-log between the two given points | RFC 3649, 5 | [`loss_ratio`] |
//! | a(w) = 2 w^2 b(w) p(w) / (2 - b(w)) | RFC 3649, 5 | [`increase`] |
//!
//! The RFC's own table is a(w) in steps of b; here a(w) is the formula that the table was made of.
//! The response through the two points is p = 0.07805/w^1.19786; the RFC rounds it to 0.078/w^1.2
//! and to w = 0.12/p^0.835. `High_Window` is a constant of the RFC, not the window that fills the
//! path, as the thesis has it.
//!
//! [`HighSpeed::as_in_ns2`] is ns-2's: it puts the loss ratio of the standard law, 1.5/w^2, at
//! `Low_Window` where the RFC has 1e-3, and so grows some 3.6 % faster at 60 segments.

use crate::tcp::law::{AckView, Law, LossView, Window};

/// Increase that grows with the window, decrease that falls with it.
#[derive(Clone, Copy, Debug)]
pub struct HighSpeed {
    /// The loss ratio at `Low_Window`.
    low_p: f64,
}

impl Default for HighSpeed {
    fn default() -> HighSpeed {
        HighSpeed { low_p: LOW_P }
    }
}

impl HighSpeed {
    /// The law with ns-2's loss ratio at `Low_Window`.
    pub fn as_in_ns2() -> HighSpeed {
        HighSpeed { low_p: 1.5 / (LOW_WINDOW * LOW_WINDOW) }
    }
}

impl Law for HighSpeed {
    fn name(&self) -> &'static str {
        "highspeed"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = window.slow_start(ack.credit) {
            window.size += credit * increase_from(self.low_p, window.size) / window.size;
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        (1.0 - decrease(loss.window)) * loss.window
    }
}

/// a(w): segments added in a round trip at window `w`.
pub fn increase(w: f64) -> f64 {
    increase_from(LOW_P, w)
}

/// a(w), with another loss ratio at `Low_Window`.
fn increase_from(low_p: f64, w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return 1.0;
    }
    let b = decrease(w);
    // RFC 3649, 5: a(w), for the response p(w).
    (w * w * loss_ratio_from(low_p, w) * 2.0 * b / (2.0 - b)).max(1.0)
}

/// b(w): share of the window taken away on loss.
pub fn decrease(w: f64) -> f64 {
    if w <= LOW_WINDOW {
        return 0.5;
    }
    let way = libm::log(w / LOW_WINDOW) / libm::log(HIGH_WINDOW / LOW_WINDOW);
    // RFC 3649, 5: b(w).
    ((HIGH_DECREASE - 0.5) * way + 0.5).max(HIGH_DECREASE)
}

/// p(w): the loss ratio at which the mean window is `w`.
pub fn loss_ratio(w: f64) -> f64 {
    loss_ratio_from(LOW_P, w)
}

/// p(w), with another loss ratio at `Low_Window`.
fn loss_ratio_from(low_p: f64, w: f64) -> f64 {
    let way = libm::log(w / LOW_WINDOW) / libm::log(HIGH_WINDOW / LOW_WINDOW);
    // RFC 3649, 5: p(w), a line in log-log.
    libm::exp(way * libm::log(HIGH_P / low_p)) * low_p
}

/// RFC 3649, 5: up to here, and down to this loss ratio, the standard law holds.
const LOW_WINDOW: f64 = 38.0;
const LOW_P: f64 = 1e-3;
/// RFC 3649, 5: 10 Gbit/s, 100 ms, 1,500-byte packets, at one loss in ten million.
const HIGH_WINDOW: f64 = 83_000.0;
const HIGH_P: f64 = 1e-7;
/// RFC 3649, 5.
const HIGH_DECREASE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increase_and_decrease_are_those_of_the_rfcs_table() {
        // RFC 3649, appendix B: w, a(w), b(w).
        for (w, a, b) in [
            (38.0, 1.0, 0.50),
            (118.0, 2.0, 0.44),
            (221.0, 3.0, 0.41),
            (1_058.0, 8.0, 0.33),
            (5_036.0, 20.0, 0.25),
            (10_661.0, 30.0, 0.21),
            (84_035.0, 71.0, 0.10),
        ] {
            assert!((increase(w) / a - 1.0).abs() < 0.06, "a({w}) = {}", increase(w));
            assert!((decrease(w) - b).abs() < 0.006, "b({w}) = {}", decrease(w));
        }
    }

    #[test]
    fn ns2s_increase_is_the_standards_at_the_low_window_and_the_rfcs_at_the_high_one() {
        let ns2 = |w| increase_from(HighSpeed::as_in_ns2().low_p, w);
        assert!((ns2(38.001) - 1.0).abs() < 1e-4, "{}", ns2(38.001));
        // (1.5/38^2 / 1e-3)^(1 - ln(60/38)/ln(83000/38))
        assert!((ns2(60.0) / increase(60.0) - 1.036_5).abs() < 1e-3, "{}", ns2(60.0));
        assert!((ns2(83_000.0) / increase(83_000.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn response_is_the_power_law_through_the_two_points() {
        assert!((loss_ratio(38.0) / 1e-3 - 1.0).abs() < 1e-9);
        assert!((loss_ratio(83_000.0) / 1e-7 - 1.0).abs() < 1e-9);
        for w in [100.0, 1_000.0, 10_000.0] {
            let power = 0.078_047 / libm::pow(w, 1.197_858);
            assert!((loss_ratio(w) / power - 1.0).abs() < 1e-4, "{w}: {}", loss_ratio(w));
            // The RFC's form for the window has two digits: 0.115 to 0.125 over p^0.835.
            let factor = w * libm::pow(loss_ratio(w), 0.835);
            assert!((0.115..0.125).contains(&factor), "{w}: {factor}");
        }
    }
}
