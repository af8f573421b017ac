//! TUN devices: whole IP packets in and out of a network namespace.
