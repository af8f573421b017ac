//! What reaches the engine thread from other threads: commands of handles, answers of workers.
//!
//! All of it comes through one queue, and [`Notices::send`] rings the engine's bell. Nothing here
//! waits, and nothing here decides.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use gtp_alloc::Rate;
use gtp_proto::FlowId;
use gtp_store::{BlockSource, Lender, Value};
use gtp_sys::udp::UdpSocket;
use gtp_sys::wake::Waker;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::api::{
    Allowances, SessionOpen, SocketId, SourceEvent, SourceProgress, TransferEvent, TransferOpen,
    TransferProgress,
};
use super::carrier::{Outgoing, Parcel};
use super::driver::Routing;
use super::keeper::DaemonNews;
use super::mates::Stray;
use super::reader::{Loaded, ReadJobs};
use super::stream::StreamNotice;
use super::transfer::RelayNotice;
use super::writer::{self, Written};
use crate::messages::Arrivals;

/// Names a transfer within a host.
pub(super) type TransferId = u32;

/// What is sent to the engine.
pub(super) enum Notice {
    AddSocket(SocketId, UdpSocket),
    OpenSource(Box<NewSource>),
    CloseSource(FlowId),
    OpenTransfer(Box<NewTransfer>),
    AddSession(TransferId, FlowId, Box<SessionOpen>),
    RemoveSession(TransferId, FlowId),
    /// Something of sessions that have parts of the object.
    Relay(TransferId, RelayNotice),
    FinishFiles(TransferId, Vec<(u32, Option<Value>)>),
    /// A file whose root was wrong is to come anew.
    BeginAnew(TransferId, u32),
    Suspend(TransferId),
    SetCapacity {
        out: Option<Rate>,
        in_: Option<Rate>,
    },
    /// What clients have here has changed.
    Allow(Arc<Allowances>),
    /// The host's daemon has come, gone or granted.
    Daemon(DaemonNews),
    /// A reader has loaded a block, or failed.
    Loaded(FlowId, Loaded),
    /// A writer has done a job, or failed.
    Written(TransferId, Written),
    /// Something about a stream.
    Stream(StreamNotice),
    /// Whether datagrams of a session have come is to be said, once all that were there by now are
    /// read.
    Arrivals(FlowId, oneshot::Sender<Arrivals>),
    /// Somebody asks whether the engine's loop goes on.
    Beat(oneshot::Sender<()>),
    /// Something about a session's ways besides UDP.
    Carrier(CarrierNotice),
    /// A datagram of one of its sessions has come to another engine.
    Stray(Box<Stray>),
    /// Routers are to be asked, each through its socket.
    AskRouters(Box<Routing>, Vec<std::net::UdpSocket>),
    /// The last handle is gone.
    Shutdown,
}

/// What is said of carriers.
pub(super) enum CarrierNotice {
    /// A session has one. Where this end leads, it is used from now on.
    Carry { flow: FlowId, carrier: SocketId, outgoing: Arc<Outgoing> },
    /// Datagrams have come by one.
    Carried(Box<Parcel>),
    /// The one of a session has room for content again.
    Room(FlowId),
    /// One is gone.
    Drop(SocketId),
    /// The peer of a session says that no datagram comes from here.
    Unheard(FlowId),
    /// The sessions of one may send to this port of the peer's by UDP before the peer does.
    GoFirst(SocketId, u16),
}

/// A source session to be opened, with the ways back to its handle.
pub(super) struct NewSource {
    pub flow: FlowId,
    pub session: SessionOpen,
    pub jobs: ReadJobs,
    pub lender: Option<Box<dyn Lender>>,
    pub manifest: Arc<gtp_store::Manifest>,
    pub events: UnboundedSender<SourceEvent>,
    pub progress: Arc<Mutex<SourceProgress>>,
}

/// A transfer to be opened, with the ways back to its handle.
pub(super) struct NewTransfer {
    pub transfer: TransferId,
    pub open: TransferOpen,
    pub writer: writer::Start,
    pub events: UnboundedSender<TransferEvent>,
    pub progress: Arc<Mutex<TransferProgress>>,
}

/// The engine's letter box.
#[derive(Clone)]
pub(super) struct Notices {
    queue: mpsc::Sender<Notice>,
    waker: Waker,
}

impl Notices {
    pub fn new(queue: mpsc::Sender<Notice>, waker: Waker) -> Notices {
        Notices { queue, waker }
    }

    /// Puts a notice in the box. If the engine is gone there is no one to tell.
    pub fn send(&self, notice: Notice) {
        if self.queue.send(notice).is_ok() {
            self.waker.wake();
        }
    }
}

/// The object of a source, on its way to the reader.
pub(super) type Object = Box<dyn BlockSource>;
