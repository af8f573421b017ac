//! What `gtp run` puts before a program's C library: `connect` and `listen`, and the two calls
//! that say where a socket is.
//!
//! A program that connects a stream socket to another host shows it to the pump, which connects it
//! to itself and speaks GTP for it; asked for its peer, the program hears of the other host. One
//! that listens goes on to listen, and the pump is told, so that callers over GTP are passed on to
//! it. Whatever goes wrong between program and pump, the program gets what it would have got
//! without, unless it was said that only GTP will do. No key and no session is ever in the
//! program's memory.
//!
//! `border` holds all that touches the C library; `ask` is what is said to the pump. Both are
//! called where a signal or a fork has stopped everything else: once a program has begun, they
//! take no lock and no memory.
#![deny(unsafe_code)]

mod ask;
#[allow(unsafe_code)]
mod border;
mod line;
mod peers;
