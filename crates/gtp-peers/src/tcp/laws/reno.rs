//! The standard law: RFC 5681, which Reno, NewReno and SACK share.
//!
//! | rule | source | where |
//! |---|---|---|
//! | slow start: one segment for each acknowledged | RFC 5681, 3.1 | `Window::slow_start` |
//! | avoidance: w += 1/w | RFC 5681, equation 3; thesis, II.5.B | `grow` |
//! | loss: w = w/2 | RFC 5681, equation 4; thesis, II.5.B | `shrink` |
//!
//! The law's relation of loss ratio and window is q = 3/(2 w^2), its rate
//! 1.22 s/(RTT sqrt p) (the thesis prints q = sqrt(3/(2w))).

use crate::tcp::law::{AckView, Law, LossView, Window};

/// Additive increase by one segment in a round trip, halving on loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno;

impl Law for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = window.slow_start(ack.credit) {
            window.size += credit / window.size; // RFC 5681, equation 3
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window / 2.0 // RFC 5681, equation 4
    }
}
