//! Measurements and tests that see both worlds at once.
//!
//! The emulator's router joins network namespaces over modelled links; the product's own binaries
//! run inside them. What is measured is read off the emulated links, which know nothing of GTP, so
//! that no end judges itself. This needs root and iproute2. What clients and attackers do to a
//! server is measured over loopback.

pub mod busy_day;
pub mod cases;
pub mod churn;
pub mod compare;
pub mod crowd;
mod equal;
pub mod false_trees;
pub mod frames;
pub mod grid;
pub mod in_step;
pub mod kills;
pub mod lab;
pub mod lives;
mod long_intervals;
pub mod machine;
pub mod neighbours;
pub mod old_server;
pub mod plan;
pub mod plans;
pub mod processes;
pub mod produce;
mod product;
pub mod record;
pub mod relay;
pub mod rivals;
pub mod routed;
mod running;
pub mod sinks;
pub mod sizing;
pub mod sockets;
pub mod startup;
pub mod stored;
pub mod tcp;
mod usage;
