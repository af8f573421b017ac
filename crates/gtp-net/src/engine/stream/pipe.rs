//! Between an application and the engine: a stream's rings, each behind one lock.
//!
//! Both sides only ever copy under the lock. The application is woken through its task's waker;
//! the engine is rung only when it has said that it waits, so a fast writer costs no bells.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use gtp_alloc::Time;
use gtp_proto::{FlowId, Supplied};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::StreamNotice;
use super::frames_out::Ended;
use super::ring::{InRing, OutRing};
use crate::engine::command::{Notice, Notices};
use crate::messages::Delivery;

/// Why a stream broke, for both ends of a pipe.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What kind of error the application sees.
    pub kind: io::ErrorKind,
    /// The same for people.
    pub text: String,
}

impl Broken {
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.text.clone())
    }
}

/// The way to the engine for one session.
#[derive(Clone)]
pub(in crate::engine) struct Bell {
    pub notices: Notices,
    pub flow: FlowId,
}

/// What an application says, on its way to the engine.
pub(in crate::engine) struct OutPipe(Mutex<Out>);

pub(super) struct Out {
    pub ring: OutRing,
    /// The engine had nothing to send, and waits for a bell.
    hungry: bool,
    pub writer: Option<Waker>,
    broken: Option<Broken>,
    bell: Bell,
}

/// What an application is to hear, on its way from the engine.
pub(in crate::engine) struct InPipe(Mutex<In>);

pub(super) struct In {
    pub ring: InRing,
    pub reader: Option<Waker>,
    pub broken: Option<Broken>,
    /// The engine was rung for room, and has not asked for more since.
    rung: bool,
    bell: Bell,
}

/// What follows from a unit that was taken in.
pub(in crate::engine) struct Taken {
    /// What is to be asked for.
    pub asked: Option<Range<u64>>,
    /// The length of the stream, if all of it is here now.
    pub whole: Option<u64>,
}

/// The engine's hold of an outgoing pipe for the length of a batch.
pub(in crate::engine) struct Sending<'a>(MutexGuard<'a, Out>);

impl OutPipe {
    pub fn new(window: u32, delivery: Option<Delivery>, bell: Bell) -> Arc<OutPipe> {
        Arc::new(OutPipe(Mutex::new(Out {
            ring: OutRing::new(window, delivery),
            hungry: false,
            writer: None,
            broken: None,
            bell,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Out> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the pipe for a batch.
    pub fn sending(&self) -> Sending<'_> {
        Sending(self.lock())
    }

    /// No unit from `asked_end` on has been asked for.
    pub fn asked(&self, asked_end: u64) {
        self.lock().ring.forget(asked_end);
    }

    /// What is said from now on reaches nobody.
    pub fn fail(&self, why: Broken) {
        let mut out = self.lock();
        out.broken.get_or_insert(why);
        if let Some(writer) = out.writer.take() {
            writer.wake();
        }
    }

    /// Nothing more will be said.
    pub fn finish(&self) {
        let mut out = self.lock();
        if !out.ring.is_finished() && out.broken.is_none() {
            out.ring.finish();
            out.ring_bell();
        }
    }

    /// What was said has no end.
    pub fn abandon(&self) {
        let kind = io::ErrorKind::ConnectionAborted;
        self.fail(Broken { kind, text: "the stream was abandoned here".into() });
    }

    /// Bytes said in all, once nothing more will be.
    pub fn finished_at(&self) -> Option<u64> {
        let out = self.lock();
        out.ring.is_finished().then(|| out.ring.total())
    }
}

impl Sending<'_> {
    /// Whether a unit can be sent.
    pub fn supply(&mut self, unit: u64, payload: u16) -> Supplied {
        let supplied = self.0.ring.supply(unit, payload);
        self.0.hungry = supplied == Supplied::NotYet;
        supplied
    }

    /// Bytes that wait to be sent for the first time.
    pub fn unsent(&self) -> u64 {
        self.0.ring.unsent() as u64
    }

    /// The first unit that was not sent yet.
    pub fn next(&self) -> u64 {
        self.0.ring.next()
    }

    /// Appends a unit that was supplied.
    pub fn write(&self, unit: u64, out: &mut Vec<u8>) {
        self.0.ring.write(unit, out);
    }

    /// Of frames: what there is in all, once all of it is in units.
    pub fn ended(&self) -> Option<Ended> {
        self.0.ring.ended()
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.0.ring.has_much_room()
            && let Some(writer) = self.0.writer.take()
        {
            writer.wake();
        }
    }
}

impl InPipe {
    pub fn new(window: u32, delivery: Option<Delivery>, bell: Bell) -> Arc<InPipe> {
        let ring = InRing::new(window, delivery);
        let (reader, broken, rung) = (None, None, false);
        Arc::new(InPipe(Mutex::new(In { ring, reader, broken, rung, bell })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, In> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units are at most this long.
    pub fn begin(&self, payload: u16) {
        self.lock().ring.begin(payload);
    }

    /// Takes a unit in that reached this host at this time.
    ///
    /// # Errors
    /// When the source breaks a rule.
    pub fn take(&self, unit: u64, payload: &[u8], at: Time) -> Result<Taken, &'static str> {
        let mut inside = self.lock();
        inside.ring.take(unit, payload, at)?;
        Ok(inside.taken())
    }

    /// These units will not come.
    ///
    /// # Errors
    /// As of [`InPipe::take`].
    pub fn give_up(&self, units: Range<u64>) -> Result<Taken, &'static str> {
        let mut inside = self.lock();
        inside.ring.give_up(units)?;
        Ok(inside.taken())
    }

    /// The peer has said how much there is.
    ///
    /// # Errors
    /// As of [`InPipe::take`].
    pub fn end(&self, ended: Ended) -> Result<Taken, &'static str> {
        let mut inside = self.lock();
        inside.ring.end(ended)?;
        Ok(inside.taken())
    }

    /// Nobody will read any more.
    pub fn drop_unread(&self) {
        let mut inside = self.lock();
        inside.ring.drop_unread();
        inside.tell_taken();
    }

    /// What should be asked for now.
    pub fn ask(&self) -> Option<Range<u64>> {
        self.lock().ask()
    }

    /// Bytes that came in order.
    pub fn total(&self) -> u64 {
        self.lock().ring.total()
    }

    /// Nothing more will come; what is here can still be read.
    pub fn fail(&self, why: Broken) {
        let mut inside = self.lock();
        if !inside.ring.is_whole() {
            inside.broken.get_or_insert(why);
        }
        if let Some(reader) = inside.reader.take() {
            reader.wake();
        }
    }
}

impl In {
    /// After something has come: what follows.
    fn taken(&mut self) -> Taken {
        let whole = self.ring.is_whole();
        if (self.ring.is_ready() || whole)
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
        let asked = self.ask();
        Taken { asked, whole: whole.then(|| self.ring.total()) }
    }

    fn ask(&mut self) -> Option<Range<u64>> {
        self.rung = false;
        self.ring.ask()
    }

    /// There is room again.
    pub fn tell_taken(&mut self) {
        if std::mem::replace(&mut self.rung, true) {
            return;
        }
        self.bell.notices.send(Notice::Stream(StreamNotice::Taken(self.bell.flow)));
    }
}

/// The end of a stream that an application writes to. Bytes that were taken are sent even when it
/// is dropped, and its drop ends the stream as [`AsyncWrite::poll_shutdown`] does.
pub struct StreamWriter {
    pub(in crate::engine) pipe: Arc<OutPipe>,
    /// Whoever tends the stream learns by its end that nobody writes any more.
    pub(in crate::engine) _presence: oneshot::Sender<()>,
}

impl StreamWriter {
    /// Nothing more will be written: the peer reads what there is, and then the end.
    pub fn finish(&self) {
        self.pipe.finish();
    }

    /// Lets go of the stream without an end, which its drop would say: for whoever then breaks the
    /// connection off.
    pub fn abandon(self) {
        self.pipe.abandon();
    }
}

impl Out {
    /// Whether anything can be said.
    pub fn check(&self) -> io::Result<()> {
        match &self.broken {
            Some(broken) => Err(broken.error()),
            None if self.ring.is_finished() => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(()),
        }
    }

    pub fn ring_bell(&mut self) {
        if std::mem::take(&mut self.hungry) {
            self.bell.notices.send(Notice::Stream(StreamNotice::Supplied(self.bell.flow)));
        }
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl AsyncWrite for StreamWriter {
    /// An error of kind `BrokenPipe` or as the stream broke; `BrokenPipe` after the end.
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut out = self.pipe.lock();
        if let Err(error) = out.check() {
            return Poll::Ready(Err(error));
        }
        let taken = out.ring.say(bytes);
        if taken == 0 && !bytes.is_empty() {
            out.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        out.ring_bell();
        Poll::Ready(Ok(taken))
    }

    /// What was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

/// The end of a stream that an application reads from. Dropped before the stream's end, it lets
/// the peer go on, into nothing.
pub struct StreamReader {
    pub(in crate::engine) pipe: Arc<InPipe>,
    /// As in [`StreamWriter`].
    pub(in crate::engine) _presence: oneshot::Sender<()>,
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.pipe.drop_unread();
    }
}

impl AsyncRead for StreamReader {
    /// Nothing read is the end of the stream, and only that: a stream that broke is an error, once
    /// what came before is read.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inside = self.pipe.lock();
        let InRing::Bytes(ring) = &mut inside.ring else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        let count = ring.read(out.initialize_unfilled());
        out.advance(count);
        if count > 0 {
            if ring.due().is_some() {
                inside.tell_taken();
            }
            return Poll::Ready(Ok(()));
        }
        if out.remaining() == 0 || ring.is_whole() {
            return Poll::Ready(Ok(()));
        }
        if let Some(broken) = &inside.broken {
            return Poll::Ready(Err(broken.error()));
        }
        inside.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use gtp_sys::wake::Poller;

    use super::*;

    #[test]
    fn a_reader_of_small_pieces_rings_once_until_the_engine_has_asked() {
        let (queue, inbox) = channel();
        let poller = Poller::new().unwrap();
        let bell = Bell { notices: Notices::new(queue, poller.waker()), flow: 1 };
        let pipe = InPipe::new(4, None, bell);
        pipe.begin(11);
        assert_eq!(pipe.ask(), Some(0..4));
        for unit in 0..4 {
            pipe.take(unit, &[0; 11], Time::ZERO).unwrap();
        }
        let (_presence, _) = oneshot::channel();
        let mut reader = StreamReader { pipe: Arc::clone(&pipe), _presence };
        let mut context = Context::from_waker(Waker::noop());
        for asked in [4..6, 6..8] {
            for _ in 0..20 {
                let mut byte = [0];
                let mut out = ReadBuf::new(&mut byte);
                assert!(Pin::new(&mut reader).poll_read(&mut context, &mut out).is_ready());
            }
            assert_eq!(inbox.try_iter().count(), 1);
            assert_eq!(pipe.ask(), Some(asked));
        }
    }
}
