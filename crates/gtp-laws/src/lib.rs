//! The rate laws of the protocols that send over UDP at a rate that one end decides.
//!
//! Each law is one file that reads beside its paper: an index of its rules at the head, equations
//! cited at the line, departures marked. A law is told what was counted and answers with a rate,
//! in bits on links; it knows no packets, blocks or repairs. `gtp-peers` runs these laws in ends of
//! the rivals' own, in the simulator; `gtp-net` runs the same ones over GTP's data path.
//!
//! | law | paper | who decides | file |
//! |---|---|---|---|
//! | RBUDP | He 2002; GTP 2004 5.3 | source | `rbudp.rs` |
//! | SABUL, and release 2.x | SABUL II | source | `sabul.rs` |
//! | Tsunami | SABUL I; its release | source | `tsunami.rs` |
//! | GTP 2004 | GTP 2004 4 | sink's host | `gtp2004/` |
//! | LambdaStream | LambdaStream 2 to 4 | sink | `lambdastream.rs` |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod frames;
pub mod gtp2004;
pub mod lambdastream;
pub mod rbudp;
pub mod sabul;
pub mod tsunami;

pub use gtp_alloc::led::{Arriving, Counts, SinkLaw, SourceLaw};
