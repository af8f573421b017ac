//! For people at a terminal: a bar for the whole, and a line for each source.
//!
//! The screen holds two kinds of lines: what moves is drawn anew, what is said stays above it. The
//! time that remains follows the pace of the last seconds. It knows numbers, not transfers.

use gtp::{Progress, SourceShare};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::words;

/// The lines on the terminal.
pub struct Bars {
    screen: MultiProgress,
    total: ProgressBar,
    sources: Vec<ProgressBar>,
    /// Bytes at the last looks, for the time that remains.
    recent: Vec<u64>,
}

/// Looks that the remaining time is judged by: five seconds.
const RECENT: usize = 50;

impl Bars {
    pub fn new() -> Bars {
        let screen = MultiProgress::new();
        let total = screen.add(ProgressBar::new(0));
        let style = "{bar:30} {percent:>3} % {bytes} of {total_bytes}  {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            total.set_style(style);
        }
        Bars { screen, total, sources: Vec::new(), recent: Vec::new() }
    }

    pub fn progress(&mut self, progress: &Progress) {
        if progress.total == 0 {
            return;
        }
        self.total.set_length(progress.total);
        if super::is_rechecking(progress) {
            self.total.set_position(progress.rechecked);
            self.total.set_message("reading again what is here");
            return;
        }
        self.total.set_position(progress.bytes);
        let left = match self.seconds_left(progress) {
            Some(seconds) => format!(", {} left", words::say_seconds(seconds)),
            None => String::new(),
        };
        self.total.set_message(format!("{}{left}", words::say_rate(progress.rate())));
        while self.sources.len() < progress.sources.len() {
            let bar = self.screen.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("  {msg}") {
                bar.set_style(style);
            }
            self.sources.push(bar);
        }
        for (bar, share) in self.sources.iter().zip(&progress.sources) {
            bar.set_message(source_line(share));
        }
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
        (pace > 0.0).then(|| left / pace)
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

fn source_line(share: &SourceShare) -> String {
    if !share.alive {
        return format!("{}  not connected", share.url);
    }
    format!(
        "{}  {} of {} granted, limited by {}, loss {:.2} %, {:.0} ms",
        share.url,
        words::say_rate(share.rate),
        words::say_rate(share.granted),
        share.limited_by.as_str(),
        100.0 * share.loss_ratio,
        share.rtt.as_secs_f64() * 1000.0
    )
}
