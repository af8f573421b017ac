//! What client and server have in common when an object is moved.
//!
//! Both ends say the same messages in the same order; who listens and who connects is a matter of
//! [`crate::client`] and [`crate::server`]. Here: manifests as pages, roots on demand, and
//! failures with their exit codes.

mod answer;
mod bundle;
mod failure;
mod pages;
mod questions;
mod session;
mod settling;
pub(crate) mod tree;

pub use crate::engine::{Alone, Law};
pub use bundle::{Bundle, BundleError, Joined, Part};
pub use failure::{Failure, FailureKind};
pub use gtp_proto::limits::WEIGHT_LOW;
pub use gtp_proto::{LimitedBy, PathUse};
pub use pages::BadListing;

pub(crate) use answer::{RootAnswers, hashing_span};
pub(crate) use failure::{reason_of_sink, reason_of_source};
pub(crate) use pages::{
    FileIndex, Gathering, Passing, root_kind, runs, to_messages, to_wire, unnamed_file, wire_root,
};
pub(crate) use questions::Questions;
pub(crate) use session::{keys, known_law, wire_law};
pub(crate) use settling::has_settled;
pub use settling::{When, next_change_shows, read_small};
