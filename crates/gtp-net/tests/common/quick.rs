//! A host that loopback does not slow down, with little memory for each session.

use gtp_alloc::{Bytes, Rate};
use gtp_net::engine::{Host, HostConfig};

pub fn host() -> Host {
    Host::start(HostConfig {
        capacity_out: Rate::from_mbps(2_000),
        capacity_in: Rate::from_mbps(2_000),
        interval: None,
        memory: Bytes(8 << 20),
        engines: 1,
    })
    .unwrap()
}
