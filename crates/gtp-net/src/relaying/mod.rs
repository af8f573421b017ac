//! What is decided where sinks of one object give its blocks on to each other.
//!
//! The source's board says which sink is given what. At each sink one value decides about the other
//! sinks, and one keeps what may be given on. None of them knows a socket, a disk or a clock: the
//! same values serve real hosts and the drawn worlds of the tests, in virtual time.

mod board;
mod others;
mod stock;

pub(crate) use board::Board;
pub(crate) use others::{Deed, Failing, Others};
pub(crate) use stock::{Noted, Stock};

#[cfg(test)]
mod worlds;
