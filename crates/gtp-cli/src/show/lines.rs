//! For people without a terminal: a line every five seconds.
//!
//! They end up in logs, so each stands alone: how much, how fast, and what limits it. Nothing is
//! written before the size of the object is known, or the first bytes of a stream have left.

use gtp::Progress;

use super::fit::Files;
use crate::limit::Ends;
use crate::output::aside;
use crate::words;

/// Writes the lines of one transfer.
#[derive(Default)]
pub struct Lines {
    looks: u32,
}

/// Looks come ten times a second.
const LOOKS_PER_LINE: u32 = 50;

impl Lines {
    pub fn begin(&mut self) {
        self.looks = 0;
    }

    /// Whether it is time for a line, at one of ten looks in a second.
    pub fn is_due(&mut self) -> bool {
        self.looks += 1;
        self.looks.is_multiple_of(LOOKS_PER_LINE)
    }

    pub fn progress(&mut self, progress: &Progress, ends: Ends) {
        let is_due = self.is_due();
        let is_unknown = progress.total == 0 && progress.bytes == 0;
        if is_unknown || !is_due {
            return;
        }
        if super::is_rechecking(progress) {
            let read = words::say_bytes(progress.rechecked);
            return aside(format_args!("reading again what is here: {read}"));
        }
        let so_far = match progress.total {
            0 => format!("{} so far", words::say_bytes(progress.bytes)),
            total => format!(
                "{} of {} ({:.0} %)",
                words::say_bytes(progress.bytes),
                words::say_bytes(total),
                100.0 * progress.bytes as f64 / total as f64,
            ),
        };
        let files = Files::of(progress).words().map_or_else(String::new, |f| format!(", {f}"));
        aside(format_args!(
            "{so_far}{files}, {} of {} granted, limited by {}, loss {:.2} %",
            words::say_rate(progress.rate()),
            words::say_rate(progress.granted()),
            ends.limit(progress.limited_by()),
            100.0 * progress.loss_ratio(),
        ));
    }
}
