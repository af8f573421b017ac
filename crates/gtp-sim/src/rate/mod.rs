//! The rate level: networks of thousands of hosts, without packets.
//!
//! Sources and sinks have capacities; sessions join them at a distance. Each node runs its
//! allocation law at the ends of its own control intervals, unsynchronised, and what one end
//! decides reaches the other half a round trip later (thesis VI.2.A, VII). Rates are piecewise
//! constant, so everything between two computations is added up exactly and nothing is sampled:
//! measured rates are means over an interval, overloads are found wherever they are.
//!
//! The laws are the product's: [`gtp_proto::Agent`] itself, or, where a hundred thousand agents
//! are too many, the pure functions of `gtp_alloc` that agents call; both give the same words at
//! the same times. There is no loss, no queue and no path here: that is the packet level's.
//!
//! ```
//! use gtp_alloc::endnode::Params;
//! use gtp_alloc::{Rate, Span, Time};
//! use gtp_proto::Side;
//! use gtp_sim::rate::{Builder, Config, NodeSpec, Record, SessionSpec};
//!
//! let mut builder = Builder::new(Config::GRANT);
//! let mut node = |side, phase_ms| {
//!     builder.node(NodeSpec {
//!         side,
//!         capacity: Rate::from_mbps(1_000),
//!         interval: Span::from_millis(20),
//!         phase: Span::from_millis(phase_ms),
//!         params: Params::TABLE_VII_1,
//!     })
//! };
//! let (a, b, sink) = (node(Side::Source, 7), node(Side::Source, 11), node(Side::Sink, 3));
//! let near = builder.session(SessionSpec::new(a, sink, Span::from_millis(10)));
//! let far = builder.session(SessionSpec {
//!     demand: Rate::from_mbps(300),
//!     ..SessionSpec::new(b, sink, Span::from_millis(80))
//! });
//! let mut world = builder.build()?;
//! let end = Time::ZERO + Span::from_secs(1);
//! let record = Record::take(&mut world, end, Span::from_millis(1), &[far]);
//! assert_eq!(world.sending_rate(near), Rate::from_mbps(700));
//! assert_eq!(world.sending_rate(far), Rate::from_mbps(300));
//! assert!(record.settled(0.01).unwrap() < Time::ZERO + Span::from_millis(300));
//! assert!(world.worst_load(Side::Sink).part <= 1.0);
//! # Ok::<(), gtp_sim::rate::BuildError>(())
//! ```

mod build;
mod ends;
mod laws;
mod mailbox;
mod measure;
pub mod networks;
mod post;
mod schedule;
mod tick;
mod world;

pub use build::{
    BuildError, Builder, COUNT_MOST, Change, Config, Hosting, INTERVAL_LEAST, INTERVAL_MOST, Law,
    NodeId, NodeSpec, Pace, RATE_MOST, RTT_MOST, SessionId, SessionSpec, Telling,
};
pub use measure::{Record, STEPS_MOST};
pub use world::{World, WorstLoad};
