//! Sans-IO core of the Group Transport Protocol.
//!
//! One **session** moves units of an object one way between two hosts: [`SourceSession`] at the
//! end that has the bytes, [`SinkSession`] at the end that wants them. One [`Agent`] per host and
//! direction shares that host's capacity among its sessions. A [`Group`] spreads one object over
//! several sessions. Sessions and agents never meet: whoever hosts them copies [`Report`]s one way
//! and [`Grant`]s the other.
//!
//! Everything is a plain value. Inputs are `handle_*(now, …)`, outputs are drained by `poll_*`,
//! and `poll_timeout` is the only scheduler. The crate knows no sockets, files, threads, clock,
//! entropy or keys, and never holds payload: it speaks of unit numbers, and its host moves bytes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod agent;
pub mod claims;
pub mod classes;
mod demand;
pub mod direction;
pub mod ecn;
mod excess;
pub mod group;
pub mod handshake;
pub mod in_step;
pub mod limits;
pub mod meter;
mod owners;
pub mod pacer;
pub mod path;
pub mod proof;
pub mod receipt;
pub mod report;
pub mod requests;
pub mod room;
pub mod router;
pub mod session;
pub mod sink;
pub mod source;
mod weight;
pub mod wire;

pub use agent::{Agent, AgentConfig, Side};
pub use classes::{Class, Classes};
pub use direction::{Activity, Direction};
pub use ecn::Codepoint;
pub use group::Group;
pub use gtp_ranges::RangeSet;
pub use handshake::Role;
pub use path::{PathGroups, PathName};
pub use report::{FlowId, Grant, Law, LimitedBy, Owner, Phase, Report};
pub use requests::Repairs;
pub use session::{Arrival, Discard, Event, Link, Transmit, Unit, Wake};
pub use sink::{SinkConfig, SinkSession};
pub use source::{Kept, PathUse, SourceConfig, SourceSession, Supplied, Supply};
pub use weight::Weights;
pub use wire::Revision;
