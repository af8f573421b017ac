//! For people at a terminal: a bar for the whole, and a line for each source.
//!
//! The screen holds two kinds of lines: what moves is drawn anew, what is said stays above it. The
//! time that remains is judged elsewhere. It knows numbers, not transfers.

use gtp::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::eta::Eta;
use super::fit::{Files, Pace, Whole, source_line, whole_line};
use crate::limit::Ends;

/// The lines on the terminal. They are one text, so that no frame has lines of different looks: a
/// bar that moves beside a source that was not connected a moment ago.
pub struct Bars {
    screen: MultiProgress,
    lines: ProgressBar,
    /// The time that remains.
    eta: Eta,
}

/// Lines that show what they are told.
fn add_lines(screen: &MultiProgress) -> ProgressBar {
    let lines = screen.add(ProgressBar::new_spinner());
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        lines.set_style(style);
    }
    lines
}

impl Bars {
    pub fn new() -> Bars {
        let screen = MultiProgress::new();
        let lines = add_lines(&screen);
        Bars { screen, lines, eta: Eta::default() }
    }

    pub fn progress(&mut self, progress: &Progress, ends: Ends) {
        if progress.total == 0 && progress.bytes == 0 {
            return;
        }
        let left = self.seconds_left(progress);
        let columns = usize::from(console::Term::stderr().size().1);
        self.lines.set_message(lines_of(progress, ends, left, columns).join("\n"));
    }

    /// Shows one line in place of all others; it knows how it fits so many columns.
    pub fn show(&self, line: impl Fn(usize) -> String) {
        let columns = usize::from(console::Term::stderr().size().1);
        self.lines.set_message(line(columns));
    }

    /// Seconds until the end; nobody knows those of a stream.
    fn seconds_left(&mut self, progress: &Progress) -> Option<f64> {
        let moved = progress.bytes.saturating_sub(progress.resumed_bytes);
        let left = progress.total.saturating_sub(progress.bytes);
        let left = self.eta.sample(progress.elapsed.as_secs_f64(), moved, left);
        left.filter(|_| progress.total > 0)
    }

    /// Prints a line above the bars.
    pub fn say(&self, text: &str) {
        // A terminal that is gone shows nothing.
        let _ = self.screen.println(text);
    }

    /// Takes everything off the screen; the next transfer begins with new bars. A bar that only
    /// vanished would be drawn again when it is dropped.
    pub fn clear(&mut self) {
        self.lines.finish_and_clear();
        *self = Bars::new();
    }
}

/// The line of the whole, and one for each source, with so many seconds left.
fn lines_of(progress: &Progress, ends: Ends, left: Option<f64>, columns: usize) -> Vec<String> {
    let is_rechecking = super::is_rechecking(progress);
    let (bytes, pace) = match is_rechecking {
        true => (progress.rechecked, Pace::Rechecking),
        false => (progress.bytes, Pace::Moving(progress.rate(), left)),
    };
    let whole = Whole { bytes, total: progress.total, files: Files::of(progress), pace };
    let sources = progress.sources.iter().filter(|_| !is_rechecking);
    let sources = sources.map(|share| source_line(share, ends, columns));
    std::iter::once(whole_line(&whole, columns)).chain(sources).collect()
}

#[cfg(test)]
mod tests {
    use gtp::{Rate, SourceShare, Span};

    use super::*;

    fn share(alive: bool) -> SourceShare {
        SourceShare {
            url: "gtp://a:4810/pub".into(),
            bytes: 1,
            wire_bytes: 1,
            duplicate_bytes: 0,
            rate: if alive { Rate::from_mbps(65) } else { Rate::ZERO },
            granted: Rate::from_mbps(100),
            limited_by: gtp::LimitedBy::Path,
            path: None,
            loss_ratio: 0.0,
            rtt: Span::from_millis(20),
            way: gtp::Way::Udp,
            alive,
        }
    }

    fn look(ms: u64, bytes: u64, alive: bool) -> Progress {
        let elapsed = Span::from_millis(ms);
        let sources = vec![share(alive)];
        Progress { elapsed, bytes, total: 50_000_000, sources, ..Progress::default() }
    }

    #[test]
    fn a_source_that_moves_data_is_never_shown_as_not_connected() {
        let lines = lines_of(&look(900, 3_000_000, true), Ends::GET, None, 100);
        assert!(lines[0].contains("6 %") && lines[0].contains("65.0 Mbit/s"), "{lines:?}");
        assert!(lines[1].contains("65.0 Mbit/s"), "{lines:?}");
        assert!(!lines.concat().contains("not connected"), "{lines:?}");
        let lines = lines_of(&look(900, 3_000_000, false), Ends::GET, None, 100);
        assert!(!lines[0].contains("65.0") && lines[1].contains("not connected"), "{lines:?}");
    }

    #[test]
    fn no_time_is_shown_before_two_seconds_of_data_nor_for_a_stream() {
        let mut bars = Bars::new();
        for look_number in 1..=40_u64 {
            let progress = look(look_number * 100, look_number * 100_000, true);
            let left = bars.seconds_left(&progress);
            assert_eq!(left.is_some(), look_number >= 21, "{look_number}: {left:?}");
        }
        let endless = Progress { total: 0, ..look(4_100, 4_100_000, true) };
        assert_eq!(bars.seconds_left(&endless), None);
    }

    #[test]
    fn what_is_read_again_has_one_line() {
        let progress = Progress { rechecked: 25_000_000, ..look(500, 0, false) };
        let lines = lines_of(&progress, Ends::GET, None, 80);
        assert!(matches!(&lines[..], [line] if line.contains("50 %")), "{lines:?}");
    }
}
