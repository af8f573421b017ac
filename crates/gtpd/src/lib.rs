//! The daemon of one host: all its processes share one capacity in each direction.
//!
//! It hosts the same agents as a single process does, and gives them the reports of every process's
//! sessions, each with a weight that does not grow with their number. It moves no data and knows
//! no peer; if it ends, each process keeps to its part of the capacity.
#![forbid(unsafe_code)]

mod by_key;
mod caller;
mod claim;
mod comers;
mod desk;
mod effect;
pub mod fallback;
mod history;
pub mod http;
mod hub;
mod ledger;
mod limits;
pub mod listing;
mod metrics;
mod names;
mod orders;
mod pace;
pub mod process;
mod refusal;
mod right;
mod seats;
mod server;
mod view;
mod web;

pub use claim::{Before, Claim, ClaimError};
pub use gtp_alloc::room::Room;
pub use hub::{
    ClientId, EndNodeSessions, GRACE_MOST, Hub, HubConfig, Right, SESSIONS_MOST, SESSIONS_OF_ONE,
    SetError, Who,
};
pub use orders::{Census, Commander, Order, Orders, orders};
pub use server::{Daemon, DaemonConfig};
