//! A deterministic simulator of GTP in virtual time.
//!
//! [`packet`] moves every datagram, [`rate`] rates alone, for large networks. Both host the
//! protocol's own types. A run follows from its description and its seed: no clock, no entropy, no
//! threads, so that the same description gives the same bytes everywhere.
//!
//! ```
//! use gtp_alloc::{Rate, Span, Time};
//! use gtp_link::LinkSpec;
//! use gtp_sim::packet::{HostSpec, SessionSpec, World};
//!
//! # fn main() -> Result<(), gtp_sim::packet::BuildError> {
//! let mut world = World::new(1);
//! // A sink that takes 90 Mbit/s, and two sources, one of which has only 20.
//! let sink = world.add_host(HostSpec { in_: Rate::from_mbps(90), ..HostSpec::default() });
//! let slow = world.add_host(HostSpec { out: Rate::from_mbps(20), ..HostSpec::default() });
//! let fast = world.add_host(HostSpec { out: Rate::from_mbps(800), ..HostSpec::default() });
//!
//! // Gigabit links through one switch: 2 ms one way from the slow source, 30 ms from the fast.
//! let gigabit = LinkSpec { rate: Rate::from_mbps(1_000), ..LinkSpec::default() };
//! let far = |ms| LinkSpec { delay: Span::from_millis(ms), ..gigabit.clone() };
//! let switch = world.add_switch();
//! world.connect_both(switch, sink, gigabit.clone())?;
//! world.connect_both(slow, switch, far(2))?;
//! world.connect_both(fast, switch, far(30))?;
//!
//! let a = world.add_session(SessionSpec::new(slow, sink))?;
//! let b = world.add_session(SessionSpec::new(fast, sink))?;
//! world.trace_every(Span::from_millis(100))?; // rates, queues and drops in bins
//! world.trace_packets(1 << 20); // every step of every packet, for the verifier
//! world.run_until(Time::ZERO + Span::from_secs(3));
//!
//! // Max-min: 20 is all that the first can; the second gets what is left.
//! for (session, fair) in [(a, 20.0), (b, 70.0)] {
//!     let rate = world.trace().mean_rate(session.0 as usize, 20, 30).as_f64() / 1e6;
//!     assert!((rate - fair).abs() < 0.01 * fair, "{rate} instead of {fair} Mbit/s");
//! }
//! assert_eq!(world.session(b).map(|status| status.lost), Some(0));
//! assert!(world.verify().is_ok(), "the trace keeps the laws of physics");
//! println!("hash of this run: {:016x}", world.hash());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod diverge;
pub mod hash;
pub mod packet;
pub mod rate;
pub mod trace;
pub mod verify;
