//! GTP 2004: what a receiver's host decides over its flows.
//!
//! Source: Wu and Chien, "GTP: group transport protocol for lambda-grids", CCGrid 2004 (G). The
//! laws are pure functions in [`law`]; [`agent`] is the level of the host, capacity estimation and
//! scheduling; [`Host`] puts it together with the control of each single flow, for a host that
//! knows only counts of packets.

pub mod agent;
mod host;
pub mod law;

pub use host::Host;
