//! The window that BBR comes back to after losses, which both versions keep by one rule.
//!
//! Version 1 has the rule in section 4.2.3.4 of its first draft, version 3 in 5.6.4.4. This module
//! must not know what else either does at a loss.

use crate::tcp::law::{AckView, Phase, Window};

/// The window before losses (BBR.prior_cwnd), and the phase of the last acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    size: f64,
    phase: Phase,
}

impl Prior {
    /// Nothing was kept yet.
    pub const fn new() -> Prior {
        Prior { size: 0.0, phase: Phase::Open }
    }

    /// The phase that the sender is in, as far as the law has heard.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// An acknowledgment: the first after a timeout brings the window back.
    pub fn note(&mut self, ack: &AckView, window: &mut Window) {
        if self.phase == Phase::Timeout && ack.phase == Phase::Open {
            self.restore(window);
        }
        self.phase = ack.phase;
    }

    /// Keeps the window as `next` begins. While losses follow one another, or the round trip is
    /// probed with a small window (`probes`), the largest counts.
    pub fn save(&mut self, next: Phase, probes: bool, window: &Window) {
        let settled = self.phase == Phase::Open && !probes;
        self.size = if settled { window.size } else { self.size.max(window.size) };
        self.phase = next;
    }

    /// Keeps the window as a probe of the round trip begins.
    pub fn save_before_probe(&mut self, probes: bool, window: &Window) {
        self.save(self.phase, probes, window);
    }

    /// The window is at least what it was.
    pub fn restore(&self, window: &mut Window) {
        window.size = window.size.max(self.size);
    }
}
