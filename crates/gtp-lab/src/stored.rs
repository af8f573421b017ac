//! Results of real runs that are kept beside the papers' entries.
//!
//! A program that measures writes them, and `gtp-lab repro` judges them. What the rows hold is the
//! measuring program's matter.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The file beside an entry that holds a result.
pub const FILE: &str = "real.json";

/// A stored result.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The words after `gtp-measure`.
    pub command: String,
    /// What it ran on.
    pub machine: String,
    /// The commit that was built.
    pub commit: String,
    /// The day, as year, month and day.
    pub date: String,
    /// What was printed, a row each.
    pub rows: Vec<Value>,
}
