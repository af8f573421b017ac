//! Sinks of one object that give its blocks on to each other.
//!
//! A client that sends to several servers may ask them to relay. Each then tells the others which
//! blocks it has, as soon as they are written and checked, and reads from the others what it lacks;
//! the client says what each block is, and whom a server may read from and give to. So the client
//! sends each block about once. docs/PROTOCOL.md, chapter 28, has the rules.

mod give;
mod peers;
mod shelf;
mod take;

pub(super) use give::serve;
pub(super) use shelf::Shelves;
pub(super) use take::{Relaying, Turn, relays};
