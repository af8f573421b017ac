//! What `gtp-lab` shows results with, for other programs that measure: curves, figures and tables
//! as plain values, and their pages and files.

pub mod figures;
pub mod series;
