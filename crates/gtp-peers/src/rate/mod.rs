//! Rate-based protocols over UDP: an end sends one packet each gap, and control decides the gap.
//!
//! Shared by all: what is moved and what is missing ([`transfer`]), the clockwork that spaces
//! packets ([`pacer`]), what packets say ([`message`]), and a host that reads slowly ([`slow`]).
//! Each protocol's own file holds its laws and its two ends beside its paper. Set-up and tear-down
//! are not simulated: both ends know the [`Transfer`](transfer::Transfer).

pub mod gtp2004;
pub mod lambdastream;
pub mod message;
pub mod netblt;
pub mod pacer;
pub mod rbudp;
pub mod sabul;
pub mod slow;
pub mod transfer;
pub mod tsunami;
pub mod udt;
pub mod wanted;

pub use message::{Data, Message};
pub use slow::Slow;
pub use transfer::{Transfer, Turn};
