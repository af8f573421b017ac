//! What `gtp-lab` shows results with, for other programs that measure.
//!
//! Curves, figures and tables are plain values; their pages and files are made from them. Nothing
//! here knows scenarios or engines: those are the command's.

pub mod figures;
pub mod output;
pub mod series;
pub mod stored;
