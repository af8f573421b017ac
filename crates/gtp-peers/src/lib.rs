//! The rivals that the papers name, as plain values: every end and every router of them.
//!
//! Each protocol is one file that reads beside its paper: an index of its rules at the head,
//! equations cited at the line, departures marked. An end is an [`Endpoint`], a queue that takes
//! part in control is a [`Router`]; what travels between them is a [`Packet`]. None of them knows
//! a clock, a socket or a random source: `now` is an argument, and so is every seed, so that the
//! same calls give the same course on every machine.
//!
//! Nothing here is for real traffic: payload is a length and headers are fields. The simulator
//! hosts these types beside the project's own protocol on the same links.
//!
//! | protocol | paper | file | figures |
//! |---|---|---|---|
//! | Reno, NewReno, SACK | RFC 5681, 6582, 6675 | `tcp/sender/` | thesis VIII.1, 3 to 9 |
//! | their timer and blocks | RFC 6298, 2018 | `tcp/timer.rs`, `board.rs` | the same |
//! | HighSpeed | RFC 3649, 3742 | `tcp/laws/highspeed.rs` | thesis VIII.8, VIII.9 |
//! | Scalable, BIC, H-TCP | thesis II.5.B | `tcp/laws/` | thesis II.5.B's relations |
//! | Vegas, FAST | Brakmo 1995; Jin 2004; thesis II.5.C | `tcp/laws/` | none: named |
//! | CUBIC, BBR | RFC 9438, 9406; draft-cardwell 00 | `tcp/laws/` | none: today's |
//! | BBR, version 3 | draft-ietf-ccwg-bbr-06 | `tcp/laws/bbr3/` | none: today's |
//! | LEDBAT++ | draft-irtf-iccrg-ledbat-plus-plus | `tcp/laws/ledbat.rs` | none: today's |
//! | Copa | Arun 2018 | `tcp/laws/copa.rs` | none: today's |
//! | parallel TCP, split proxy | thesis II.5.B | `tcp/parallel.rs`, `proxy.rs` | thesis II.5.B |
//! | XCP | Katabi 2002; thesis II.5.E | `xcp/queue.rs`, `xcp/law.rs` | AECP 6 to 8, 10, table 1 |
//! | endpointXCP | thesis VIII.2.A | `xcp/node.rs` | thesis VIII.8 to 11, 13, table VIII.3 |
//! | VCP | Xia 2005 | `vcp/queue.rs`, `vcp/law.rs` | AECP 6, 7, 10, table 1 |
//! | AECP | AECP 3, 5 | `aecp/queue.rs`, `law.rs`, `factor.rs` | AECP 4, 6 to 8, 10, table 1 |
//! | AECP, continuous | AECP 3, 4 | `aecp/fluid.rs`, `theory.rs` | AECP theorems, eq. 16, 43 |
//! | common advertised rate | thesis II.5.E | `advertised.rs` | thesis table II.2 |
//! | RED | Floyd and Jacobson 1993 | `red.rs` | none: beside drop-tail |
//! | PIE | RFC 8033 | `pie.rs` | none: beside drop-tail |
//! | web and CBR traffic | AECP 6.2 | `background.rs` | AECP 8, table 1 |
//! | rate meter, slices, central max-min | EyeQ 2013; none | `anchors.rs` | none: anchors |
//! | explicit grants by links | PERC 2015 | `anchors/perc.rs` | none: an anchor |
//! | pacing | thesis, eq. II.13 | `rate/pacer.rs` | all of those below |
//! | a slow reader | LambdaStream, Fig. 1 | `rate/slow.rs` | LambdaStream 1 |
//! | RBUDP | He 2002; GTP 2004 5.3 | `rate/rbudp.rs` | GTP 2004 tables 2 to 5 |
//! | SABUL, its laws | SABUL II | `rate/sabul/mod.rs`, `gtp-laws` | SABUL 5 to 17, tables I, II |
//! | SABUL, the model | SABUL III | `rate/sabul/model.rs` | SABUL 2, lemmas 1 to 8 |
//! | UDT 1.x and 4 | thesis II.5.D | `rate/udt/` | GTP 2004 tables 2 to 5, as "SABUL" |
//! | NETBLT | RFC 998 | `rate/netblt.rs` | none: named by GTP 2004 and the thesis |
//! | Tsunami | SABUL I; its release | `rate/tsunami.rs` | none: named by SABUL |
//! | LambdaStream | LambdaStream 2 to 4 | `rate/lambdastream/` | LambdaStream 3, 8 to 10, 12 |
//! | GTP 2004 | GTP 2004 3, 4 | `rate/gtp2004/` | GTP 2004 7, 9 to 12, tables 2 to 5 |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod advertised;
pub mod aecp;
pub mod anchors;
pub mod background;
mod draw;
mod endpoint;
mod packet;
pub mod pie;
pub mod red;
mod routed;
mod router;

pub mod rate;
pub mod tcp;
pub mod vcp;
pub mod xcp;

pub use endpoint::{Endpoint, Progress};
pub use packet::{Body, Note, Packet};
pub use routed::Routed;
pub use router::{Admission, Router};
