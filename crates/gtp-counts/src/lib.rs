//! What the hot paths cost, in instructions.
//!
//! The one idea: on a shared machine a time says as much of its neighbours as of the code, but the
//! number of instructions of a run that reads no clock is the same each time. So each case is run
//! under callgrind, which also hides the processor's newest extensions and so fixes the path that
//! code chooses by them, and held against a committed baseline. The baseline belongs to one version
//! of the compiler and to the profile `counts`; [`baseline`] says when it does not apply.
//!
//! This crate knows what is measured and how; what a number means is in docs/BENCH.md.

pub mod baseline;
pub mod callgrind;
pub mod cases;
mod daemon;
mod path;
mod worlds;
