//! The source of frames in step: one frame to one sink or to several at once.
//!
//! A frame goes to every sink that has room for it at that moment; one that has none misses it,
//! and nobody waits for it. A frame may wait for the one before it, and not for more: what is late
//! already is worth less than the next. With several sinks the source keeps the time, and tells
//! them when to release each frame; the one sink of several sources keeps it otherwise.

use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use gtp_alloc::{Span, Time};
use gtp_proto::in_step::{Begun, PeerClock, Tempo, Word};
use gtp_sys::clock::Clock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::picture::Picture;
use super::pulse::Pulse;
use super::{WARM_UP, later, wait_until};
use crate::client::{Endpoint, Terms, Url};
use crate::flows::{Failure, FailureKind};
use crate::messages::Delivery;
use crate::stream::{Frame, FrameReader, FrameStream, FrameWriter, Line, connect_frames_to};

/// Connects to a sink of frames in step, to which this source sends its part of the picture.
///
/// # Errors
/// [`Failure`], as of any client; of kind `Missing` if the sink gathers other frames.
pub async fn connect(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    window: u32,
    (picture, delivery): (Picture, Delivery),
) -> Result<FrameStream, Failure> {
    let service = picture.service();
    let on = (delivery, Span::ZERO);
    connect_frames_to(endpoint, url, service.as_bytes(), terms, window, on).await
}

/// When sinks release a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// As soon as it is whole.
    Whole,
    /// So long after the source has it, at all sinks at the same time.
    Span(Span),
    /// At the same time, so long after as the farthest sink needs: one and a half of the round
    /// trip to it, for one repair, and the time of two frames.
    Farthest,
}

/// What a source sends.
#[derive(Clone, Copy, Debug)]
pub struct SourceTerms {
    /// Its part of the picture.
    pub picture: Picture,
    /// One frame each such time, if the source keeps the time; as it is asked to send if not said.
    pub every: Option<Span>,
    /// When sinks release frames, if the source keeps the time.
    pub after: After,
}

/// What one frame came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub number: u64,
    /// Sinks to which it goes.
    pub taken: usize,
    /// Sinks that had no room for it.
    pub dropped: usize,
}

/// One sink.
struct Sink {
    writer: Arc<FrameWriter>,
    line: Line,
    known: watch::Receiver<Known>,
    sent: u64,
    dropped: u64,
    gone: Option<String>,
}

/// What a sink's task knows.
#[derive(Clone, Debug)]
struct Known {
    peer: PeerClock,
    begun: Begun,
    /// Why nothing more is heard.
    over: Option<String>,
}

/// What became of one sink.
#[derive(Clone, Debug)]
pub struct SinkEnd {
    /// Frames that it was sent.
    pub sent: u64,
    /// Frames for which it had no room.
    pub dropped: u64,
    /// The shortest round trip to it of late.
    pub round_trip: Option<Span>,
    /// Why it is gone before the end; `None`: it is there, or has all that was sent.
    pub gone: Option<String>,
}

/// A source of frames. Dropping it before [`Sending::finish`] breaks all connections off.
pub struct Sending {
    sinks: Vec<Sink>,
    clock: Clock,
    terms: SourceTerms,
    /// How long after the source has a frame it is released.
    after: Option<Span>,
    /// When frames are due: by the clock of the first sink if that one keeps the time.
    tempo: Option<Tempo>,
    is_led: bool,
    next: u64,
    has_sent: bool,
    frame: Vec<u8>,
}

/// A frame's time by default, where a delay is worked out and nobody says how often frames come.
const FRAME_SPAN: Span = Span::from_millis(50);

/// Frames that a source that was held up sends late, rather than pass them over: a moment in which
/// somebody else had its processor costs none.
const CATCH_UP: u64 = 2;

/// Time between two fillers at least.
const FILLER_SPAN: Span = Span::from_millis(10);

/// A path is filled no longer than this: a second, and two round trips of two seconds, which is the
/// longest one that is believed.
const WARM_UP_MOST: Span = Span::from_secs(5);

/// Time for the ends to part.
const PARTING_SPAN: Duration = Duration::from_secs(30);

impl Sending {
    /// Sends to these sinks, at least one.
    ///
    /// # Errors
    /// Of kind `Usage`: several sinks for frames of several sources, of which each would keep the
    /// time.
    pub fn new(
        streams: Vec<FrameStream>,
        clock: Clock,
        terms: SourceTerms,
    ) -> Result<Sending, Failure> {
        let is_led = terms.picture.parts() > 1;
        let keeps_time = terms.every.is_some() || terms.after != After::Whole;
        if streams.is_empty() || (is_led && (streams.len() > 1 || keeps_time)) {
            let text = "a part of a frame goes to one sink, which keeps the time";
            return Err(Failure::new(FailureKind::Usage, text));
        }
        let sinks = streams.into_iter().map(|stream| Sink::new(stream, clock)).collect();
        Ok(Sending {
            sinks,
            clock,
            terms,
            after: None,
            tempo: None,
            is_led,
            next: 0,
            has_sent: false,
            frame: Vec::new(),
        })
    }

    /// Waits until the group has begun: at every sink, every source is there.
    ///
    /// # Errors
    /// Of kind `Temporary` if a sink is gone before.
    pub async fn begun(&mut self) -> Result<(), Failure> {
        let mut farthest = Span::ZERO;
        for sink in &mut self.sinks {
            let known = sink.known.wait_for(|known| known.begun != Begun::No || known.is_over());
            let known = known.await.map_err(|error| temporary(error.to_string()))?.clone();
            if let Some(why) = known.over {
                return Err(temporary(why));
            }
            farthest = farthest.max(known.peer.round_trip().unwrap_or_default());
            match known.begun {
                Begun::Led(tempo) if self.is_led => self.tempo = Some(tempo),
                Begun::Free if !self.is_led => {}
                Begun::No | Begun::Free | Begun::Led(_) => {
                    return Err(temporary("the sink's idea of the time is not this end's".into()));
                }
            }
        }
        self.warm_up().await;
        let own = |every| Tempo::new(self.clock.now(), every);
        self.tempo = self.tempo.or_else(|| self.terms.every.map(own));
        self.after = match self.terms.after {
            After::Whole => None,
            After::Span(span) => Some(span),
            After::Farthest => {
                let frames = 2 * self.terms.every.unwrap_or(FRAME_SPAN).as_nanos();
                let repair = farthest.as_nanos().saturating_add(farthest.as_nanos() / 2);
                Some(Span::from_nanos(repair.saturating_add(frames)))
            }
        };
        Ok(())
    }

    /// Fills the path before the first frame is due, so that rates have risen by then: a session
    /// that has sent little is granted little. A source that comes later than the others does
    /// without.
    async fn warm_up(&mut self) {
        let now = self.clock.now();
        let until = match self.tempo.filter(|_| self.is_led) {
            Some(tempo) => {
                let peer = self.sinks[0].known.borrow().peer;
                let at = peer.own(tempo.at().as_nanos()).unwrap_or(now);
                // Whatever the sink says.
                at.min(later(now, WARM_UP_MOST))
            }
            None => later(now, WARM_UP),
        };
        let every = self.tempo.map(|tempo| tempo.every()).or(self.terms.every);
        let every = every.unwrap_or(FRAME_SPAN).max(FILLER_SPAN);
        let mut frame = Vec::new();
        Word::Filler { bytes: self.terms.picture.part_bytes() as usize }.write(&mut frame);
        while later(self.clock.now(), every) < until {
            for sink in &self.sinks {
                // One that is gone shows by the first frame.
                let _ = sink.writer.offer_at_once(&frame, 0);
            }
            wait_until(self.clock, later(self.clock.now(), every)).await;
        }
    }

    /// How long after this source has a frame its sinks release it; `None`: once it is whole.
    pub fn after(&self) -> Option<Span> {
        self.after
    }

    /// Waits until the next frame is due. One that is late is due at once; those that are late by
    /// more than the time of two frames are passed over. Safe to cancel.
    pub async fn turn(&mut self) {
        let Some(tempo) = self.tempo else { return };
        let now = self.clock.now();
        let peer = self.is_led.then(|| self.sinks[0].known.borrow().peer);
        let shown = match &peer {
            Some(peer) => Time::from_nanos(peer.peer(now).unwrap_or_default()),
            None => now,
        };
        let first = match self.has_sent {
            false => tempo.next(shown),
            true => tempo.number(shown).saturating_sub(CATCH_UP),
        };
        self.next = self.next.max(first);
        let due = tempo.due(self.next);
        let due = peer.and_then(|peer| peer.own(due.as_nanos())).unwrap_or(due);
        let is_led = self.is_led;
        tokio::select! {
            () = wait_until(self.clock, due) => {}
            // Its time is nobody's any more: the next frame says that it is gone.
            () = self.sinks[0].over(), if is_led => {}
        }
    }

    /// Sends a frame to each sink that has room for it now.
    ///
    /// # Errors
    /// `InvalidInput` for one that is longer than was agreed, or than the stream takes;
    /// `BrokenPipe` if no sink is left.
    pub fn send(&mut self, content: &[u8]) -> io::Result<Sent> {
        if content.len() as u64 > self.terms.picture.part_bytes() {
            let text = "a frame longer than was agreed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let number = self.next;
        self.has_sent = true;
        // A sink that makes up the time makes up its numbers.
        self.next = number.saturating_add(1);
        let release = self.after.map(|after| later(self.clock.now(), after).as_nanos());
        let mut frame = mem::take(&mut self.frame);
        frame.clear();
        Word::Part { number, release, content }.write(&mut frame);
        let mut sent = Sent { number, taken: 0, dropped: 0 };
        for sink in self.sinks.iter_mut().filter(|sink| sink.gone.is_none()) {
            match sink.offer(&frame) {
                Ok(true) => sent.taken += 1,
                Ok(false) => sent.dropped += 1,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(error) => sink.gone = Some(sink.why(&error)),
            }
        }
        self.frame = frame;
        if self.sinks.iter().all(|sink| sink.gone.is_some()) {
            let why = self.sinks.iter().find_map(|sink| sink.gone.clone()).unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, why));
        }
        Ok(sent)
    }

    /// What became of each sink so far, in the order in which they were given.
    pub fn sinks(&self) -> Vec<SinkEnd> {
        self.sinks.iter().map(Sink::end).collect()
    }

    /// Says the end, and waits until the sinks have all, or are gone.
    pub async fn finish(mut self) -> Vec<SinkEnd> {
        self.sinks.iter().for_each(|sink| sink.writer.finish());
        for sink in &mut self.sinks {
            let delivered = timeout(PARTING_SPAN, sink.line.delivered()).await.unwrap_or(false);
            if !delivered && sink.gone.is_none() {
                let why = sink.line.why().unwrap_or("the end was not confirmed");
                sink.gone = Some(why.to_owned());
            }
        }
        for sink in &self.sinks {
            // Its word that it has all is said; it waits for this end's on its own direction.
            let _ = timeout(PARTING_SPAN, sink.line.over()).await;
        }
        self.sinks()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        for sink in self.sinks.iter().filter(|sink| !sink.line.standing().over) {
            sink.line.abort();
        }
    }
}

impl Sink {
    fn new(stream: FrameStream, clock: Clock) -> Sink {
        let FrameStream { reader, writer, line } = stream;
        let writer = Arc::new(writer);
        let first = Known { peer: PeerClock::new(), begun: Begun::No, over: None };
        let (tell, known) = watch::channel(first);
        tokio::spawn(hear(reader, Arc::clone(&writer), line.clone(), clock, tell));
        Sink { writer, line, known, sent: 0, dropped: 0, gone: None }
    }

    fn offer(&mut self, frame: &[u8]) -> io::Result<bool> {
        let taken = self.writer.offer_at_once(frame, frame.len())?;
        match taken {
            true => self.sent += 1,
            false => self.dropped += 1,
        }
        Ok(taken)
    }

    /// Waits until nothing more is heard of it, and takes it for gone then.
    async fn over(&mut self) {
        let why = match self.known.wait_for(Known::is_over).await {
            Ok(known) => known.over.clone(),
            Err(error) => Some(error.to_string()),
        };
        self.gone = self.gone.take().or(why);
    }

    fn why(&self, error: &io::Error) -> String {
        self.line.why().map_or_else(|| error.to_string(), str::to_owned)
    }

    fn end(&self) -> SinkEnd {
        let round_trip = self.known.borrow().peer.round_trip();
        let (sent, dropped, gone) = (self.sent, self.dropped, self.gone.clone());
        SinkEnd { sent, dropped, round_trip, gone }
    }
}

impl Known {
    fn is_over(&self) -> bool {
        self.over.is_some()
    }
}

/// Hears a sink's words about its clock, and says this end's.
async fn hear(
    reader: FrameReader,
    writer: Arc<FrameWriter>,
    line: Line,
    clock: Clock,
    tell: watch::Sender<Known>,
) {
    let (mut pulse, mut ticks) = (Pulse::new(clock), Pulse::ticks());
    let why = loop {
        let frame = tokio::select! {
            frame = reader.read() => frame,
            _ = ticks.tick() => {
                let begun = tell.borrow().begun;
                match pulse.tell(&writer, begun) {
                    Ok(()) => continue,
                    // The end was said, or the stream broke: the reader hears how.
                    Err(_) => reader.read().await,
                }
            }
        };
        match frame {
            Err(error) => break line.why().map_or_else(|| error.to_string(), str::to_owned),
            Ok(None) => break "the sink has ended the group".to_owned(),
            Ok(Some(Frame::Lost { .. })) => {}
            Ok(Some(Frame::Whole { bytes, came, .. })) => {
                let Ok(Some(Word::Clock { said, heard, begun })) = Word::read(&bytes) else {
                    continue; // A sink has nothing else to say, and nothing else counts.
                };
                pulse.hear(came.at, said, heard);
                // A source believes that the group has begun once it can tell the sink's time.
                let begun = if pulse.is_known() { begun } else { Begun::No };
                tell.send_modify(|known| {
                    known.peer = *pulse.peer();
                    known.begun = if begun == Begun::No { known.begun } else { begun };
                });
            }
        }
    };
    tell.send_modify(|known| known.over = Some(why));
}

fn temporary(text: String) -> Failure {
    Failure::new(FailureKind::Temporary, text)
}
