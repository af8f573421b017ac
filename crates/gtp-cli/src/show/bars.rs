//! For people at a terminal: a bar for the whole, and a line for each source.
//!
//! The screen holds two kinds of lines: what moves is drawn anew, what is said stays above it. The
//! time that remains follows the pace of the last seconds. It knows numbers, not transfers.

use gtp::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::limit::Ends;

use super::fit::{Pace, Whole, source_line, whole_line};

/// The lines on the terminal.
pub struct Bars {
    screen: MultiProgress,
    total: ProgressBar,
    sources: Vec<ProgressBar>,
    /// Bytes at the last looks, for the time that remains.
    recent: Vec<u64>,
}

/// A line that shows what it is told.
fn add_line(screen: &MultiProgress) -> ProgressBar {
    let line = screen.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        line.set_style(style);
    }
    line
}

/// Looks that the remaining time is judged by: five seconds.
const RECENT: usize = 50;

impl Bars {
    pub fn new() -> Bars {
        let screen = MultiProgress::new();
        let total = add_line(&screen);
        Bars { screen, total, sources: Vec::new(), recent: Vec::new() }
    }

    pub fn progress(&mut self, progress: &Progress, ends: Ends) {
        if progress.total == 0 && progress.bytes == 0 {
            return;
        }
        let columns = usize::from(console::Term::stderr().size().1);
        let total = progress.total;
        if super::is_rechecking(progress) {
            let whole = Whole { bytes: progress.rechecked, total, pace: Pace::Rechecking };
            self.total.set_message(whole_line(&whole, columns));
            return;
        }
        let pace = Pace::Moving(progress.rate(), self.seconds_left(progress));
        let whole = Whole { bytes: progress.bytes, total, pace };
        self.total.set_message(whole_line(&whole, columns));
        while self.sources.len() < progress.sources.len() {
            self.sources.push(add_line(&self.screen));
        }
        for (bar, share) in self.sources.iter().zip(&progress.sources) {
            bar.set_message(source_line(share, ends, columns));
        }
    }

    /// Shows one line in place of all others; it knows how it fits so many columns.
    pub fn show(&self, line: impl Fn(usize) -> String) {
        let columns = usize::from(console::Term::stderr().size().1);
        self.total.set_message(line(columns));
    }

    /// Seconds until the end at the pace of the last five.
    fn seconds_left(&mut self, progress: &Progress) -> Option<f64> {
        self.recent.push(progress.bytes);
        if self.recent.len() > RECENT {
            self.recent.remove(0);
        }
        let looks = self.recent.len().checked_sub(1).filter(|&n| n > 0)?;
        let moved = progress.bytes.saturating_sub(self.recent[0]) as f64;
        let pace = moved / (looks as f64 * 0.1);
        let left = progress.total.saturating_sub(progress.bytes) as f64;
        (pace > 0.0 && progress.total > 0).then(|| left / pace)
    }

    /// Prints a line above the bars.
    pub fn say(&self, text: &str) {
        // A terminal that is gone shows nothing.
        let _ = self.screen.println(text);
    }

    /// Takes everything off the screen; the next transfer begins with new bars. A bar that only
    /// vanished would be drawn again when it is dropped.
    pub fn clear(&mut self) {
        for bar in self.sources.iter().chain([&self.total]) {
            bar.finish_and_clear();
        }
        *self = Bars::new();
    }
}
