//! What people see while the demo runs.
//!
//! On a terminal it is one line that changes, elsewhere one line for each part. Everything goes to
//! standard error, because standard output belongs to the result.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::aside;

/// The line.
#[derive(Debug)]
pub struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    /// A line on the terminal, if standard error is one.
    pub fn new() -> Screen {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {elapsed:>3}  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Screen { bar }
    }

    /// Another part begins.
    pub fn part(&self, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(0);
                bar.set_message(text.to_owned());
            }
            None => aside(text),
        }
    }

    /// How far this part is, from 0 to 1, and how it stands.
    pub fn at(&self, part: f64, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_message(text());
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const STEPS: u64 = 1_000;
