//! A line of text in a place of its own.
//!
//! A program may connect in a signal handler or in a child of `fork`, where another thread's locks
//! stay taken for ever. So nothing here asks for memory or takes a lock, and what does not fit into
//! a line is cut off.

use std::fmt::{self, Write};

/// Longest line in bytes: an answer of the pump's, and a few words about it.
const MOST: usize = 1_280;

/// Text of at most [`MOST`] bytes.
pub struct Line {
    bytes: [u8; MOST],
    length: usize,
}

impl Line {
    /// What these arguments say.
    pub fn of(arguments: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; MOST], length: 0 };
        // Writing never fails: what does not fit is cut off.
        let _ = line.write_fmt(arguments);
        line
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST - self.length;
        let mut fits = text.len().min(room);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.bytes[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
