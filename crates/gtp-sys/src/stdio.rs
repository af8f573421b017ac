//! Which of the three standard streams a process was started with.
//!
//! The Rust runtime opens `/dev/null` in place of a standard stream that is closed, so that what is
//! opened later cannot take its number. From then on a closed stream looks like one that the
//! user sent to `/dev/null`, and what is written to it is lost without an error. So this module
//! looks before the runtime begins, when the program is loaded.

use std::sync::atomic::{AtomicU8, Ordering};

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    In,
    /// Standard output.
    Out,
}

/// Whether this process was started with a stream.
pub fn was_given(stream: Stream) -> bool {
    let bit = match stream {
        Stream::In => 1 << libc::STDIN_FILENO,
        Stream::Out => 1 << libc::STDOUT_FILENO,
    };
    CLOSED.load(Ordering::Relaxed) & bit == 0
}

/// A bit for each stream that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

extern "C" fn look() {
    let mut closed = 0;
    for number in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: it takes numbers only, and a closed one is an error that is looked for.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            closed |= 1 << number;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions that the loader calls without meaningful
// arguments, once, before `main`; `look` neither allocates nor needs the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOADING: extern "C" fn() = look;
