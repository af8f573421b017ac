//! When what a test plays begins, from each of its starts.
//!
//! Nothing is drawn on most paths, so that starts differ by a moment alone. Whoever is alone begins
//! at another phase of the sampling; whoever meets others meets them at another phase of theirs.

/// A moment of the path comes so many seconds later at each further start.
const STEP: f64 = 0.7;
/// A session that is alone begins so many seconds later at each further start.
const ALONE: f64 = 0.137;

/// Returns the second of a moment that comes at `first` seconds of the first start, whose number
/// is 0.
pub fn stepped(first: f64, start: u64) -> f64 {
    first + STEP * start as f64
}

/// Returns the second at which a session that is alone begins.
pub fn alone(start: u64) -> f64 {
    ALONE * start as f64
}
