//! A deterministic simulator of GTP in virtual time.
//!
//! [`packet`] moves every datagram, [`rate`] rates alone, for large networks. Both host the
//! protocol's own types. A run follows from its description and its seed: no clock, no entropy, no
//! threads, so that the same description gives the same bytes everywhere.
#![forbid(unsafe_code)]

pub mod hash;
pub mod packet;
pub mod rate;
pub mod trace;
