//! A session as a process posts it to the daemon, for the tests of this crate.
//!
//! It wants all it can get and has moved nothing. This module must not know the hub.

use gtp_alloc::{Rate, Span};
use gtp_proto::{Law, LimitedBy, Phase, Report};
use gtp_share::{Label, Outstanding, Posted, PostedPath, Side, Terms};

/// Returns what is posted of an open session at a sink, which is limited by nothing else.
pub fn session() -> Posted {
    Posted {
        id: 1,
        side: Side::Sink,
        report: Report {
            weight: 1.0,
            peer_weight: 1.0,
            law: Law::Grant,
            phase: Phase::Open,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::UNLIMITED,
            firm: Rate::UNLIMITED,
            party: 0,
            owner: gtp_proto::Owner::NOBODY,
            measured: Rate::ZERO,
            echoed: 0,
            rtt: Span::from_millis(20),
            counts: Default::default(),
            packet: Default::default(),
        },
        principal: 0,
        transfer: 0,
        held: Outstanding::default(),
        limited_by: LimitedBy::Sink,
        path: PostedPath::default(),
        packets: 0,
        lost: 0,
        wire_bytes: 0,
        label: Label::new("session"),
        terms: Terms::NONE,
    }
}
