//! A run as people read it: a table for the terminal, a page with figures, files of numbers.
//!
//! It compares nothing and decides nothing: what was got and wanted is in the outcome already.
//! The table for the terminal, the page and the files take the same outcome, so they never differ.

mod files;
mod page;
mod text;

pub use files::{Format, summary as json, write};
pub use page::page;
pub use text::{columns, summary};
