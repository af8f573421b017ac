//! The TCP engine over modelled paths: traces, responses to loss, properties, fairness.

mod bbr;
mod bench;
mod delay;
mod properties;
mod responses;
mod several;
mod traces;
