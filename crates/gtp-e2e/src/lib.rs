//! Measurements and tests that see both worlds at once.
//!
//! The emulator's router joins network namespaces over modelled links; the product's own binaries
//! run inside them. What is measured is read off the emulated links, which know nothing of GTP, so
//! that no end judges itself. This needs root and iproute2. What clients and attackers do to a
//! server is measured over loopback.

pub mod accounts;
pub mod busy_day;
pub mod cases;
pub mod churn;
pub mod compare;
pub mod crowd;
mod emulated;
mod equal;
pub mod false_trees;
mod flows;
pub mod frames;
pub mod gaps;
pub mod grid;
pub mod in_step;
pub mod kills;
pub mod lab;
mod lambdas;
pub mod lives;
mod long_intervals;
pub mod machine;
pub mod neighbours;
mod numbers;
pub mod old_server;
pub mod plan;
pub mod plans;
mod probes;
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
