//! Routers over real sockets: the key that a router shares with its hosts, the process that is one,
//! and what a host is told of those that it asks.
//!
//! The machines are the core's ([`gtp_proto::router`]). Here are BLAKE3 tags, files and sockets.

mod ask;
mod key;
mod serve;

pub use crate::prefix::{BadPrefix, Prefix};
pub use ask::{LinkSide, RouterOpen};
pub use key::{KeyError, RouterKey};
pub use serve::{LinkShown, RouterServer, Shown};
