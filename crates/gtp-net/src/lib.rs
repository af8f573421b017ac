//! The Group Transport Protocol over real sockets.
//!
//! Two halves that meet in [`engine`]: the control channel (TCP, TLS 1.3, identities, messages)
//! which decides who may move what, and the data path (one thread, UDP, AEAD, the sans-IO core's
//! sessions and agents) which moves it.

pub mod client;
pub mod control;
pub mod crypto;
pub mod engine;
pub mod flows;
pub mod identity;
pub mod in_step;
pub mod messages;
mod prefix;
pub mod probe;
mod relaying;
pub mod router;
pub mod server;
pub mod stream;
pub mod ticket;
pub mod tls;
pub mod trust;
