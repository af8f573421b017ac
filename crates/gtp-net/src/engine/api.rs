//! What the rest of the process asks of the engine, and what it hears from it.
//!
//! An engine is a thread that owns sockets, sessions and transfers of a [`Host`](super::Host).
//! Everything here is a message to it or from it; nothing here decides anything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gtp_alloc::{Bytes, Rate, Span};
use gtp_proto::path::Standing;
use gtp_proto::{Classes, FlowId, LimitedBy, PathUse, Revision, Role, Weights};
use gtp_store::{
    BlockSink, BlockSource, Finished, Manifest, RelPath, SinkError, SourceError, Value,
};

use super::law::Law;
use crate::crypto::{Suite, TrafficSecret};

/// What one host may use.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Capacity for what this host sends; unlimited if nobody knows it.
    pub capacity_out: Rate,
    /// Capacity for what this host receives; unlimited if nobody knows it.
    pub capacity_in: Rate,
    /// A fixed control interval, or half the median round-trip time.
    pub interval: Option<Span>,
    /// Memory for blocks under way, in each direction.
    pub memory: Bytes,
    /// Engines, each a thread that moves the data of its sessions; zero counts as one. They share
    /// all of the above.
    pub engines: usize,
}

/// By which way datagrams go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By UDP.
    #[default]
    Udp,
    /// By the control connection, over TCP.
    Control,
}

impl Way {
    /// The protocol in machine output: `udp` or `tcp`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Way::Udp => "udp",
            Way::Control => "tcp",
        }
    }
}

/// Names a UDP port of a host: a socket of one engine, or one of each; or a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(pub u32);

/// Keys of one session.
#[derive(Debug)]
pub struct SessionKeys {
    /// The AEAD suite.
    pub suite: Suite,
    /// Seals what this host sends.
    pub seal: TrafficSecret,
    /// Opens what it receives.
    pub open: TrafficSecret,
}

/// What the engine needs to know of a session, either end.
#[derive(Debug)]
pub struct SessionOpen {
    /// The socket that it uses.
    pub socket: SocketId,
    /// For an initiator the peer's UDP address. For a responder the address of the control
    /// channel's peer: only datagrams from that IP address are taken, the port is learnt.
    pub peer: SocketAddr,
    /// Session id that datagrams to this host carry, from [`super::Host::new_session_id`].
    pub local_session: u32,
    /// Session id that datagrams to the peer carry.
    pub peer_session: u32,
    /// Its keys.
    pub keys: SessionKeys,
    /// What the peer understands of datagrams.
    pub revision: Revision,
    /// Which end opens the path.
    pub role: Role,
    /// Who decides its rate.
    pub law: Law,
    /// What each end brings to its weight.
    pub weights: Weights,
    /// How it uses its path, as both ends have agreed.
    pub path: PathUse,
    /// A limit that the user set, whatever the allowance is.
    pub max_rate: Rate,
    /// At a host that serves a client whose key it knows, a number for that key, for sharing by
    /// client; zero where the client's address says who it is, and where this end is the client
    /// and acts for nobody else.
    pub principal: u64,
    /// What that client has here, all its sessions together.
    pub allowance: Allowance,
    /// How people name it: a URL, or the client's address; behind that and a space what a server
    /// moves for it.
    pub label: String,
}

/// What a host that serves gives to all sessions of one client together, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// What multiplies its weight among other clients.
    pub weight: f64,
    /// The most that they may have.
    pub most: Rate,
    /// The most that one of them may have: what is left of all limits where whoever decides does
    /// not know whose sessions these are (a daemon, or a law by which a session decides alone).
    pub single: Rate,
    /// The class that the client is in, of those that the host was told ([`super::Host::allow`]);
    /// zero if it is in none.
    pub class: u32,
}

impl Default for Allowance {
    fn default() -> Allowance {
        let (most, single) = (Rate::UNLIMITED, Rate::UNLIMITED);
        Allowance { weight: 1.0, most, single, class: 0 }
    }
}

/// What a host that serves gives to its clients, as it stands now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowances {
    /// What clients of one class have together.
    pub classes: Classes,
    /// What each client has, by the number of its key ([`SessionOpen::principal`]).
    pub of: BTreeMap<u64, Allowance>,
    /// Who they are, for a daemon to show, by the same numbers.
    pub names: BTreeMap<u64, Named>,
}

/// Who a client is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// What its host calls it.
    pub name: String,
    /// The names of its groups, with commas between them.
    pub groups: String,
}

impl SessionOpen {
    /// The limit that its user and its allowance leave to this session.
    pub(super) fn bound(&self) -> Rate {
        self.max_rate.min(self.allowance.single)
    }
}

/// A session that sends an object.
pub struct SourceOpen {
    /// The session.
    pub session: SessionOpen,
    /// The object.
    pub source: Box<dyn BlockSource>,
}

/// What is heard from a session that sends.
#[derive(Debug)]
pub enum SourceEvent {
    /// The path is open.
    PathOpen,
    /// No datagram came in time.
    NoPath,
    /// For some seconds no datagram has come, and none is given a way but UDP. The session goes on.
    Silent,
    /// A file of a tree cannot be given any more, and the sink hears so; or it grew while it was
    /// being sent. The session goes on.
    FileFault {
        /// The file, relative to the object.
        path: RelPath,
        /// What is the matter.
        error: SourceError,
    },
    /// The sink is done with the session; all is well.
    Closed,
    /// Reading failed; the session has ended.
    Fault(SourceError),
    /// The session has ended because of the peer or the network.
    Lost(String),
}

/// When a file is whole, may it be renamed at once?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootPolicy {
    /// A file of one block whose value the source sent is finished at once; longer files wait
    /// for [`super::TransferHandle::finish_files`].
    TrustTrailers,
    /// All files wait.
    AskFirst,
}

/// What a session brings that is asked only for the blocks that it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brings {
    /// The object's own source: what it sends is the object.
    Own,
    /// A host that has received blocks: each must have the value that the source has said.
    Others,
}

/// An object to receive, over one or several sessions.
pub struct TransferOpen {
    /// Where it goes.
    pub sink: Box<dyn BlockSink>,
    /// What it consists of.
    pub manifest: Arc<Manifest>,
    /// When files are finished.
    pub roots: RootPolicy,
}

/// What is heard from a transfer.
#[derive(Debug)]
pub enum TransferEvent {
    /// The path of a session is open.
    PathOpen {
        /// The session.
        flow: FlowId,
    },
    /// No datagram came on a session's path in time. The session is gone.
    NoPath {
        /// The session.
        flow: FlowId,
    },
    /// For some seconds no datagram has come on a session, and none is given a way but UDP. The
    /// session goes on.
    Silent {
        /// The session.
        flow: FlowId,
    },
    /// A session has ended; what it had not delivered is asked of the others.
    Lost {
        /// The session.
        flow: FlowId,
        /// Whether the source itself is to blame.
        blame: Blame,
        /// Why, for people.
        why: String,
    },
    /// A block failed its check. It will be asked of another session, if there is one.
    BadBlock {
        /// The session it came from.
        flow: FlowId,
        /// The file's place in the manifest.
        file: u32,
        /// The block.
        block: u64,
    },
    /// Every session that there is has sent this block wrong, the last of them now, so it cannot
    /// be had. The transfer has ended; what is complete is kept for a resume.
    Unobtainable {
        /// The session it came from last.
        flow: FlowId,
        /// The file's place in the manifest.
        file: u32,
        /// The block.
        block: u64,
    },
    /// A file is whole and checked. It has its name, or gets it together with others.
    FileDone {
        /// The file's place in the manifest.
        file: u32,
        /// Its BLAKE3 hash; `None` when it was there before, complete under its name.
        root: Option<Value>,
    },
    /// A file has its final name.
    FileNamed {
        /// The file's place in the manifest.
        file: u32,
        /// Its BLAKE3 hash; `None` when it was there before, complete under its name.
        root: Option<Value>,
    },
    /// An entry of a tree will not come; the transfer goes on without it.
    GivenUp {
        /// The entry's place in the manifest.
        file: u32,
        /// What the destination has against it; `None` if no source can give it.
        why: Option<SinkError>,
    },
    /// A block is here and good. Said only where a session has parts of the object
    /// ([`super::TransferHandle::add_part_session`]).
    BlockHere {
        /// Its number among all blocks of the object ([`gtp_store::BlockRow`]).
        number: u64,
    },
    /// The blocks of a file are each good and together not the file that was expected. They are
    /// dropped. The handle either begins the file anew ([`super::TransferHandle::begin_anew`]) or
    /// suspends the transfer.
    WrongRoot {
        /// The file's place in the manifest.
        file: u32,
        /// Whether some of its blocks came from an earlier transfer, or from sessions that have
        /// ended: then those that are left may bring the right ones.
        doubtful: bool,
        /// What was expected and what it is.
        error: SinkError,
    },
    /// Every block is here and good; files that wait need [`super::TransferHandle::finish_files`].
    AllBlocks,
    /// The destination failed. The transfer has ended; what is complete is kept for a resume.
    Fault(SinkError),
    /// The destination cannot do something that data do not need, in a sentence.
    Warning(String),
    /// No session is left that could bring what is missing. The transfer goes on when one is
    /// added.
    Stalled,
    /// Everything is in place. Nothing follows.
    Complete(Finished),
    /// Cancelled as asked; what is complete is kept for a resume. Nothing follows.
    Suspended,
}

/// Who is to blame for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Nobody, as far as is known: it failed, or the network did.
    Nobody,
    /// Nobody: the source has closed the session in order, and says on its control connection why.
    Parted,
    /// The source broke a rule that an honest one keeps.
    Source,
}

/// How one session of a transfer is doing.
#[derive(Clone, Debug)]
pub struct FlowProgress {
    /// The session.
    pub flow: FlowId,
    /// How people name it.
    pub label: String,
    /// Content bytes that it brought and that verified.
    pub bytes: u64,
    /// Received IP bytes per time, from burst to burst over the last interval.
    pub rate: Rate,
    /// What it is granted.
    pub granted: Rate,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// Data packets lost of those sent, since the start.
    pub loss_ratio: f64,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// IP bytes received, data packets only.
    pub wire_bytes: u64,
    /// Payload bytes received that were here already.
    pub duplicate_bytes: u64,
    /// By which way its datagrams go.
    pub way: Way,
    /// Whether it still runs.
    pub alive: bool,
}

/// How a transfer is doing.
#[derive(Clone, Debug, Default)]
pub struct TransferProgress {
    /// Content bytes here and verified, resumed ones included.
    pub bytes: u64,
    /// Of them, those that were here before this transfer.
    pub resumed_bytes: u64,
    /// Content bytes in all.
    pub total: u64,
    /// Each session, in the order added.
    pub flows: Vec<FlowProgress>,
}

/// How one session that sends is doing.
#[derive(Clone, Debug)]
pub struct SourceProgress {
    /// How people name it.
    pub label: String,
    /// IP bytes sent.
    pub wire_bytes: u64,
    /// Payload bytes that the sink has proved to have received, a short unit counted as a whole.
    pub proved_bytes: u64,
    /// Bytes of payload in a unit; 0 before that is known.
    pub unit_payload: u16,
    /// Rate over the last interval.
    pub rate: Rate,
    /// What the sink grants.
    pub granted: Rate,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// How its path stands, once the session has begun.
    pub path: Option<Standing>,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// Data packets that receipts called missing, of all that they covered.
    pub loss_ratio: f64,
    /// By which way its datagrams go.
    pub way: Way,
}

impl SourceProgress {
    /// A session that has not begun.
    pub(crate) fn new(label: &str) -> SourceProgress {
        SourceProgress {
            label: label.to_owned(),
            wire_bytes: 0,
            proved_bytes: 0,
            unit_payload: 0,
            rate: Rate::ZERO,
            granted: Rate::ZERO,
            limited_by: LimitedBy::Demand,
            path: None,
            rtt: Span::ZERO,
            loss_ratio: 0.0,
            way: Way::Udp,
        }
    }
}

/// Datagrams that came to nothing since the host's start. All are normal on an open network; they
/// are counted so that an attack, or a wrong address, can be seen.
#[derive(Debug, Default)]
pub struct Drops {
    /// Not in the protocol's format.
    pub malformed: AtomicU64,
    /// Of no session here, or not from where the session's peer may be.
    pub unknown: AtomicU64,
    /// They did not open under the session's key.
    pub forged: AtomicU64,
    /// Authentic, but seen before, too late, or not wanted any more.
    pub discarded: AtomicU64,
    /// Not sent, because the network or the kernel refused them.
    pub unsent: AtomicU64,
}

impl Drops {
    /// Each count with the word for it.
    pub fn all(&self) -> [(&'static str, u64); 5] {
        let Drops { malformed, unknown, forged, discarded, unsent } = self;
        let all = [
            ("malformed", malformed),
            ("unknown", unknown),
            ("forged", forged),
            ("discarded", discarded),
            ("unsent", unsent),
        ];
        all.map(|(why, count)| (why, count.load(Ordering::Relaxed)))
    }

    /// The kernel refused what was to be sent.
    pub(super) fn count_unsent(&self) {
        self.unsent.fetch_add(1, Ordering::Relaxed);
    }
}
