//! What a host's processes and its daemon share: pages of memory, and the socket that hands them
//! out.
//!
//! A process posts a report for each of its sessions on a page that only it writes, and reads the
//! daemon's grants from a page that it cannot write. No process sees another's pages, and whatever
//! one writes on its own is checked word by word. This crate carries records and decides
//! nothing: who gets what is the agent's affair.

pub mod client;
mod layout;
pub mod limit;
mod map;
mod message;
mod page;
mod place;
mod socket;
pub mod words;

pub use layout::{
    Granted, KEYS, LABEL_BYTES, Label, Outstanding, Posted, PostedPath, SLOTS_MOST, Side, Terms,
    Update, printable, served,
};
pub use map::Mapping;
pub use message::{
    Answer, BELL, Change, ClientView, HISTORY_COLUMNS, HistoryView, HostView, KeyView, LIST_PACKET,
    MESSAGE_MOST, Of, PathView, Policy, Request, SessionView, VERSION,
};
pub use page::{Found, GrantsReader, GrantsWriter, ReportsReader, ReportsWriter};
pub use place::{Places, SERVERS, check_socket_dir, make_user_dir, places, user_dir, user_place};
pub use socket::{Connection, Incoming, Listener};
