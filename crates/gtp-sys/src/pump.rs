//! What the library before a program's C library and the pump of `gtp run` must both know.
//!
//! The two are built apart and may be of different ages, so each says the version of its words. The
//! address is how the library tells a socket that leads to the pump from all others.

use std::net::Ipv4Addr;

/// The version of questions and answers: the first word of each question.
pub const VERSION: &str = "v2";

/// The pump's address in the networks of its programs.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 71, 84, 80);
