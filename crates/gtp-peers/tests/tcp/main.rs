//! The TCP engine over modelled paths: traces, responses to loss, properties, fairness.

#[path = "../path/mod.rs"]
mod path;

mod bench;
mod properties;
mod responses;
mod several;
mod traces;
