//! A deterministic simulator of GTP in virtual time.
//!
//! [`rate`] moves rates alone, for large networks; the packet level moves every datagram. Both host
//! the protocol's own types. A run follows from its description and its seed: no clock, no
//! entropy, no threads, so that the same description gives the same bytes everywhere.
#![forbid(unsafe_code)]

pub mod rate;
