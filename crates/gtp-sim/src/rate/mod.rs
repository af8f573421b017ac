//! The rate level: agents and laws without packets, for large networks.
