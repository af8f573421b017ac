//! What of a server's log can be set, also while the server runs.
//!
//! That is the form of its lines, and which of them are written. How lines are written, and how
//! many of them, is `log`'s to know.

use std::sync::OnceLock;

use crate::log::{LogFormat, SERVER, of_service, read_filter};

/// Changes form and filter.
type Change = Box<dyn Fn(LogFormat, Option<&str>) + Send + Sync>;

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

/// Reads a filter, which is kept as it was written.
///
/// # Errors
/// What is wrong with it.
pub fn filter(text: &str) -> Result<String, String> {
    read_filter(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
