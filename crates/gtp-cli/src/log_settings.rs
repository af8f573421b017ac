//! What of a server's log can be set, also while the server runs.
//!
//! That is the form of its lines, and which of them are written. How lines are written, and how
//! many of them, is `log`'s to know.

use std::sync::OnceLock;

use crate::log::{Change, LogFormat, SERVER, of_service};

static CHANGE: OnceLock<Change> = OnceLock::new();

/// Diagnostics of this process are a server's from now on.
pub fn set(format: LogFormat, wanted: Option<&str>) {
    // A second call finds it set.
    let _ = CHANGE.set(Box::new(of_service(SERVER, format, wanted)));
}

/// From now on lines are written in this form, and chosen by this filter.
pub fn change(format: LogFormat, wanted: Option<&str>) {
    if let Some(change) = CHANGE.get() {
        change(format, wanted);
    }
}
