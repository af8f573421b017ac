//! Scalable TCP: T. Kelly, 2003; thesis, II.5.B.
//!
//! | rule | source | where |
//! |---|---|---|
//! | w += 0.01 for each acknowledgment | Kelly, 2; thesis, II.5.B | `grow` |
//! | w -= 0.125 w on loss | Kelly, 2; thesis, II.5.B | `shrink` |
//! | never slower than the standard law: w += 1/w below 100 | Linux | `grow` |
//!
//! Kelly lets the standard law rule below a legacy window of 16; the system that the papers ran
//! keeps the steeper of the two slopes at every window and the small decrease throughout, which is
//! taken here. The response is q = (a/(b w)) (1 - b/2).

use crate::tcp::law::{AckView, Law, LossView, Window};

/// Multiplicative increase and decrease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalable;

impl Law for Scalable {
    fn name(&self) -> &'static str {
        "scalable"
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = window.slow_start(ack.credit) {
            // Kelly, 2; thesis, II.5.B.
            window.size += credit * INCREASE.max(1.0 / window.size);
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        loss.window * (1.0 - DECREASE) // Kelly, 2; thesis, II.5.B.
    }
}

/// a of the thesis, II.5.B.
const INCREASE: f64 = 0.01;
/// b of the thesis, II.5.B.
const DECREASE: f64 = 0.125;
