//! The packet level: every datagram of every session, over links with queues.
//!
//! A [`World`] is built from hosts, switches, links, sessions and background flows, and then run
//! until a time. Its hosts are the protocol's own sessions and agents, hosted as `gtp-net` hosts
//! them; datagrams are written and read by the protocol's own codec; links are those of `gtp-link`.
//! One thread, integer nanoseconds, events in the order of (time, sequence): the same world with
//! the same seed always takes the same course, and [`World::hash`] proves it.

mod allocators;
mod app;
mod background;
mod clock;
mod ends;
mod fabric;
mod flights;
mod gate;
mod groups;
mod host;
mod managed;
mod parcel;
mod peers;
mod route;
mod run;
mod sample;
mod schedule;
mod spec;
mod world;

pub use ends::Standing;
pub use gate::PeerRouter;
pub use peers::{PeerEnd, PeerEnds};
pub use run::Happening;
pub use spec::{
    Action, AgentState, BackgroundId, BackgroundSpec, BuildError, ClockSpec, Crosses, HostSpec,
    NodeId, Pace, Path, Pattern, RouterChange, SessionId, SessionSpec, Volume,
};
pub use world::{Actor, BackgroundStatus, SessionStatus, World};
