//! The handles through which a stream's sessions are opened, watched and ended.
//!
//! A session gives two things: the end that an application reads or writes, and a handle for
//! whoever tends the connection, who alone knows what the peer says about it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::Span;
use gtp_proto::FlowId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::framed::{FrameReader, FrameWriter};
use super::pipe::{Bell, Broken, InPipe, OutPipe, StreamReader, StreamWriter};
use super::ring::repairs;
use super::{Ended, NewStreamSink, NewStreamSource, StreamEvent, StreamNotice};
use crate::engine::api::{FlowProgress, SessionOpen, SourceProgress};
use crate::engine::carrier::Carrier;
use crate::engine::command::{CarrierNotice, Notice};
use crate::engine::host::{Host, Watch, arrivals, carrier};
use crate::messages::{Arrivals, Delivery};

/// A stream's session that sends, for whoever tends the connection. Dropping it ends the session.
pub struct Outgoing {
    tended: Tended,
    pipe: Arc<OutPipe>,
    progress: Arc<Mutex<SourceProgress>>,
}

/// A stream's session that receives, for whoever tends the connection. Dropping it ends the
/// session; what is here can still be read.
pub struct Incoming {
    tended: Tended,
    pipe: Arc<InPipe>,
    progress: Arc<Mutex<Option<FlowProgress>>>,
}

/// What both have.
struct Tended {
    flow: FlowId,
    host: Host,
    events: UnboundedReceiver<StreamEvent>,
    presence: Option<oneshot::Receiver<()>>,
}

impl Tended {
    fn close(&self) {
        self.host.notices().send(Notice::Stream(StreamNotice::Close(self.flow)));
    }

    fn unheard(&self) {
        self.host.notices().send(Notice::Carrier(CarrierNotice::Unheard(self.flow)));
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.close();
    }
}

/// The end that an application writes, before it is known what: bytes or frames.
pub struct Writing {
    pipe: Arc<OutPipe>,
    presence: oneshot::Sender<()>,
}

impl Writing {
    /// For a stream of bytes.
    pub fn of_bytes(self) -> StreamWriter {
        StreamWriter { pipe: self.pipe, _presence: self.presence }
    }

    /// For a stream of frames.
    pub fn of_frames(self) -> FrameWriter {
        FrameWriter { pipe: self.pipe, _presence: self.presence }
    }
}

/// The end that an application reads, before it is known what.
pub struct Reading {
    pipe: Arc<InPipe>,
    presence: oneshot::Sender<()>,
}

impl Reading {
    /// For a stream of bytes.
    pub fn of_bytes(self) -> StreamReader {
        StreamReader { pipe: self.pipe, _presence: self.presence }
    }

    /// For a stream of frames.
    pub fn of_frames(self) -> FrameReader {
        FrameReader { pipe: self.pipe, _presence: self.presence }
    }
}

impl Host {
    /// Opens the sending side of a stream whose sink asks at most `window` units ahead: of bytes,
    /// or of frames that are delivered so.
    pub fn open_stream_source(
        &self,
        session: SessionOpen,
        window: u32,
        delivery: Option<Delivery>,
    ) -> (Writing, Outgoing) {
        let (flow, events_in, tended, presence) = self.tended();
        let bell = Bell { notices: self.notices().clone(), flow };
        let pipe = OutPipe::new(window, delivery, bell);
        let progress = Arc::new(Mutex::new(SourceProgress::new(&session.label)));
        self.notices().send(Notice::Stream(StreamNotice::OpenSource(Box::new(NewStreamSource {
            flow,
            session,
            pipe: Arc::clone(&pipe),
            events: events_in,
            progress: Arc::clone(&progress),
        }))));
        let writing = Writing { pipe: Arc::clone(&pipe), presence };
        (writing, Outgoing { tended, pipe, progress })
    }

    /// Opens the receiving side of a stream that is asked for at most `window` units ahead. It
    /// waits at least for the `patience` for what others overtake.
    pub fn open_stream_sink(
        &self,
        session: SessionOpen,
        window: u32,
        (delivery, patience): (Option<Delivery>, Span),
    ) -> (Reading, Incoming) {
        let (flow, events_in, tended, presence) = self.tended();
        let bell = Bell { notices: self.notices().clone(), flow };
        let pipe = InPipe::new(window, delivery, bell);
        let progress = Arc::default();
        self.notices().send(Notice::Stream(StreamNotice::OpenSink(Box::new(NewStreamSink {
            flow,
            session,
            repairs: repairs(delivery),
            patience,
            pipe: Arc::clone(&pipe),
            events: events_in,
            progress: Arc::clone(&progress),
        }))));
        let reading = Reading { pipe: Arc::clone(&pipe), presence };
        (reading, Incoming { tended, pipe, progress })
    }

    fn tended(
        &self,
    ) -> (FlowId, tokio::sync::mpsc::UnboundedSender<StreamEvent>, Tended, oneshot::Sender<()>)
    {
        let flow = self.name();
        let (events_in, events) = unbounded_channel();
        let (presence_in, presence) = oneshot::channel();
        let tended = Tended { flow, host: self.clone(), events, presence: Some(presence) };
        (flow, events_in, tended, presence_in)
    }
}

impl Outgoing {
    /// The next event; `None` after the last one. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<StreamEvent> {
        self.tended.events.recv().await
    }

    /// What ends when nobody writes any more; the first time. Nothing is ever sent.
    pub fn take_presence(&mut self) -> Option<oneshot::Receiver<()>> {
        self.tended.presence.take()
    }

    /// What is written from now on fails so.
    pub fn fail(&self, why: Broken) {
        self.pipe.fail(why);
    }

    /// Bytes written in all, once nothing more will be.
    pub fn finished_at(&self) -> Option<u64> {
        self.pipe.finished_at()
    }

    /// Ends the session.
    pub fn close(&self) {
        self.tended.close();
    }

    /// What has come of the session's datagrams, as [`crate::engine::SourceHandle::arrivals`].
    pub fn arrivals(&self) -> impl Future<Output = Option<Arrivals>> + Send + 'static {
        arrivals(&self.tended.host, self.tended.flow)
    }

    /// Gives both sessions of a connection another way besides UDP: the control connection, which
    /// comes from `peer`.
    pub fn carrier(&self, incoming: &Incoming, peer: SocketAddr) -> Carrier {
        carrier(&self.tended.host, (self.tended.flow, peer)).also(incoming.tended.flow)
    }

    /// The peer says that it hears no datagram.
    pub fn unheard(&self) {
        self.tended.unheard();
    }

    /// Says how the session is doing, also after this is dropped.
    pub fn watch(&self) -> Watch<SourceProgress> {
        Watch(Arc::clone(&self.progress))
    }

    /// How the session is doing, at most 50 ms old.
    pub fn progress(&self) -> SourceProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Incoming {
    /// The next event; `None` after the last one. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<StreamEvent> {
        self.tended.events.recv().await
    }

    /// What ends when nobody reads any more; the first time. Nothing is ever sent.
    pub fn take_presence(&mut self) -> Option<oneshot::Receiver<()>> {
        self.tended.presence.take()
    }

    /// The peer says that there is so much of a stream of frames.
    pub fn end(&self, ended: Ended) {
        let notice = StreamNotice::Ended(self.tended.flow, ended);
        self.tended.host.notices().send(Notice::Stream(notice));
    }

    /// The peer says that it hears no datagram.
    pub fn unheard(&self) {
        self.tended.unheard();
    }

    /// Once what is here is read, reading fails so, unless the stream is whole.
    pub fn fail(&self, why: Broken) {
        self.pipe.fail(why);
    }

    /// What has come of the session's datagrams, as [`crate::engine::SourceHandle::arrivals`].
    pub fn arrivals(&self) -> impl Future<Output = Option<Arrivals>> + Send + 'static {
        arrivals(&self.tended.host, self.tended.flow)
    }

    /// How the session is doing, at most 50 ms old; `None` before it was looked at.
    pub fn progress(&self) -> Option<FlowProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
