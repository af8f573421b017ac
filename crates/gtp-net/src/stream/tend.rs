//! Tends a connection from its first byte to the end of both streams.
//!
//! One task per connection listens to the peer's words, to the engine, and to whether the
//! application is still there. A connection is over when each end has confirmed what it received;
//! everything else is a break, which both the application and the peer are told of.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gtp_alloc::Span;
use gtp_sys::Clock;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Interval, interval, timeout};

use super::silence::{Judged, Next, Silence};
use super::{Delivery, Ends, Line, Standing};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::{Broken, Host, Incoming, Outgoing, SessionOpen, StreamEvent};
use crate::flows::{Failure, FailureKind};
use crate::messages::{Carry, Done, Ended, Message, Reason};
use crate::server::budget::Share;
use crate::server::clients::{Leave, Seat};

/// What the engine is asked for.
pub(crate) struct Sessions {
    /// The session that carries what is written here.
    pub says: SessionOpen,
    /// The session that brings what is read here.
    pub hears: SessionOpen,
    pub window: u32,
    /// Of frames.
    pub delivery: Option<Delivery>,
    /// How long what others overtake is waited for at least.
    pub patience: Span,
    /// Said once the engine knows both.
    pub greeting: Option<Message>,
    /// Whether the control connection is to carry their datagrams from the beginning.
    pub carried: bool,
    /// This end's UDP port, if it has called; else 0.
    pub data_port: u16,
}

/// An application that has left waits this long, five seconds, for the end of what it will not
/// read.
const LINGER_LOOKS: u32 = 50;
/// A peer that says more than this to nobody is told that nobody is there.
const LINGER_BYTES: u64 = 64 << 10;
/// Between two looks at whether it does.
const LOOK_SPAN: Duration = Duration::from_millis(100);
/// What the peer says about an end that the engine has noticed first comes within this.
const LAST_WORD_SPAN: Duration = Duration::from_secs(1);

/// Said of a peer that has ended the connection before its streams.
const BROKEN_OFF: &str = "the peer broke the connection off";
/// The time between two notes that data move.
const NOTE_SPAN: Duration = Duration::from_secs(1);

/// Opens both sessions, and tends the connection in a task of its own, which keeps `held` until it
/// is over.
pub(crate) fn start(
    host: &Host,
    channel: ControlChannel,
    sessions: Sessions,
    silence: Silence,
    held: Option<Held>,
) -> Ends {
    let (peer, remote) = (channel.peer(), channel.ends().remote);
    let Sessions { says, hears, window, delivery, patience, greeting, carried, data_port } =
        sessions;
    let (writing, mut outgoing) = host.open_stream_source(says, window, delivery);
    let (reading, mut incoming) = host.open_stream_sink(hears, window, (delivery, patience));
    let sent = outgoing.watch();
    let (writes, reads) = (outgoing.take_presence(), incoming.take_presence());
    let (standing_in, standing) = watch::channel(Standing::default());
    let (breaker, why) = (Arc::new(Notify::new()), Arc::new(OnceLock::new()));
    let tended = Tended {
        channel,
        outgoing,
        incoming,
        standing: standing_in,
        breaker: Arc::clone(&breaker),
        why: Arc::clone(&why),
        silence,
        writes,
        reads,
        left: None,
        greeting,
        carried,
        data_port,
        delivery,
        told_end: false,
        heard_end: false,
        paths: 0,
        held,
        look: look(),
        note: interval(NOTE_SPAN),
        keepalive: interval(KEEPALIVE_SPAN),
    };
    tokio::spawn(tended.run());
    Ends {
        reading,
        writing,
        line: Line { breaker, standing, why, peer, remote, sent, carried_words: None },
    }
}

/// Looks that were not made while nobody was to be looked for are not made up for.
fn look() -> tokio::time::Interval {
    let mut look = interval(LOOK_SPAN);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    look
}

struct Tended {
    channel: ControlChannel,
    outgoing: Outgoing,
    incoming: Incoming,
    standing: watch::Sender<Standing>,
    breaker: Arc<Notify>,
    /// Why it broke.
    why: Arc<OnceLock<Broken>>,
    silence: Silence,
    /// Somebody writes, and somebody reads.
    writes: Presence,
    reads: Presence,
    /// Since nobody is left and all is delivered: looks, and how much had come by then.
    left: Option<(u32, u64)>,
    greeting: Option<Message>,
    /// The control connection is to carry the datagrams, and does not yet.
    carried: bool,
    /// This end's UDP port, if it has called.
    data_port: u16,
    delivery: Option<Delivery>,
    /// Of frames: whether either end has said how many there are.
    told_end: bool,
    heard_end: bool,
    /// Paths that are open, of two.
    paths: u32,
    held: Option<Held>,
    look: Interval,
    note: Interval,
    keepalive: Interval,
}

/// Places and memory that a connection has at its host until it is over.
pub(crate) struct Held {
    seat: Arc<Seat>,
    clock: Clock,
    #[expect(dead_code, reason = "kept, and given back by its drop")]
    memory: Share,
}

impl Held {
    pub fn new(seat: Arc<Seat>, clock: Clock, memory: Share) -> Held {
        Held { seat, clock, memory }
    }
}

/// Waits until a caller must leave. The calling end holds no place, so it waits for ever.
async fn told(held: &Option<Held>) -> Leave {
    match held {
        Some(held) => held.seat.told().await,
        None => std::future::pending().await,
    }
}

/// Its sender lives as long as somebody uses an end of a stream.
type Presence = Option<oneshot::Receiver<()>>;

/// Waits until nobody uses an end of a stream any more, and notes that.
async fn left(presence: &mut Presence) {
    if let Some(used) = presence {
        // Nothing is ever sent: its end is the message.
        let _ = used.await;
        *presence = None;
    }
}

/// Why a connection breaks.
struct Break {
    /// For whoever reads and writes here.
    why: Broken,
    /// For the peer, unless it has said so itself.
    tell: Option<Box<Message>>,
}

impl Break {
    fn told(kind: io::ErrorKind, reason: Reason, text: impl Into<String>) -> Break {
        let text = text.into();
        let tell = Some(Box::new(Message::fault(reason, text.clone())));
        Break { why: Broken { kind, text }, tell }
    }

    /// Nobody has answered a datagram; the peer is told whether that is the path's fault.
    fn silent(failure: Failure) -> Break {
        let reason = match failure.is_temporary() {
            true => Reason::TimedOut,
            false => Reason::NoUdpPath,
        };
        Break::told(kind_of(failure.kind), reason, failure.text)
    }

    fn heard(kind: io::ErrorKind, text: impl Into<String>) -> Break {
        Break { why: Broken { kind, text: text.into() }, tell: None }
    }
}

impl From<ControlError> for Break {
    fn from(error: ControlError) -> Break {
        let failure = Failure::from(error);
        Break::heard(kind_of(failure.kind), failure.text)
    }
}

impl Tended {
    async fn run(mut self) {
        loop {
            let standing = *self.standing.borrow();
            if standing.delivered && standing.received {
                self.channel.close().await;
                break;
            }
            let stepped = match self.greeting.take() {
                Some(greeting) => self.channel.send(&greeting).await.map_err(Break::from),
                None if std::mem::take(&mut self.carried) => {
                    self.carry().await.map_err(Break::from)
                }
                None => self.step(standing).await,
            };
            if let Err(broken) = stepped {
                let no_path = broken.why.kind == io::ErrorKind::HostUnreachable;
                self.standing.send_modify(|now| now.no_path = no_path);
                // It breaks once.
                let _ = self.why.set(broken.why.clone());
                self.outgoing.fail(broken.why.clone());
                self.incoming.fail(broken.why);
                if let Some(last) = broken.tell
                    && self.channel.send(&last).await.is_ok()
                {
                    self.channel.close().await;
                }
                break;
            }
        }
        self.standing.send_modify(|now| now.over = true);
    }

    /// Waits for whatever comes next, and does what follows.
    async fn step(&mut self, standing: Standing) -> Result<(), Break> {
        let gone = self.writes.is_none() && self.reads.is_none() && standing.delivered;
        let asks = self.silence.is_open();
        tokio::select! {
            message = self.channel.recv() => match message {
                Ok(message) => self.hear(message, standing).await?,
                Err(error) => return Err(error.into()),
            },
            event = self.outgoing.next_event(), if !standing.delivered && !asks => {
                self.check(event).await?;
            }
            event = self.incoming.next_event(), if !standing.received && !asks => match event {
                Some(StreamEvent::Whole(content_bytes)) => {
                    let done = Done { content_bytes, ..Done::NOTHING };
                    self.channel.send(&Message::Done(done)).await?;
                    self.standing.send_modify(|now| now.received = true);
                }
                other => self.check(other).await?,
            },
            () = left(&mut self.writes), if self.writes.is_some() => {}
            () = left(&mut self.reads), if self.reads.is_some() => {}
            failure = self.silence.overdue() => return Err(Break::silent(failure)),
            () = self.breaker.notified() => {
                let text = "the connection was broken off here";
                let why = Broken { kind: io::ErrorKind::ConnectionAborted, text: text.into() };
                return Err(Break { why, tell: Some(Box::new(Message::Cancel)) });
            }
            _ = self.look.tick(), if gone => self.check_left()?,
            _ = self.keepalive.tick() => self.channel.send(&Message::Keepalive).await?,
            _ = self.note.tick(), if self.held.is_some() => self.note(),
            why = told(&self.held) => {
                let kind = kind_of(why.failure().kind);
                return Err(Break::told(kind, why.reason(), why.failure().text));
            }
        }
        Ok(())
    }

    /// Shows that something moves here, if it does.
    fn note(&self) {
        let heard = self.incoming.progress().map_or(0, |progress| progress.bytes);
        if let Some(held) = &self.held {
            held.seat.note(heard + self.outgoing.progress().wire_bytes, held.clock.now());
        }
    }

    async fn hear(&mut self, message: Message, standing: Standing) -> Result<(), Break> {
        match message {
            Message::Done(done) if !standing.delivered && self.is_all(&done) => {
                self.standing.send_modify(|now| now.delivered = true);
                self.outgoing.close();
                Ok(())
            }
            Message::Ended(Ended { units, frames })
                if self.delivery.is_some() && !std::mem::replace(&mut self.heard_end, true) =>
            {
                self.incoming.end(crate::engine::Ended { units, frames });
                Ok(())
            }
            Message::ArrivalsWanted => {
                let seen = self.silence.answer(&self.outgoing, &self.incoming).await?;
                Ok(self.channel.send(&seen).await?)
            }
            Message::ArrivalsSeen(seen) if let Some(judged) = self.silence.judge(seen.arrivals) => {
                self.handle_judged(judged).await
            }
            Message::Carry(Carry { port }) if self.silence.takes_carry() => {
                let carrier = self.outgoing.carrier(&self.incoming, self.channel.ends().remote);
                Ok(self.channel.carried(carrier.going_first(port))?)
            }
            Message::Unheard if self.silence.takes_unheard() => {
                self.outgoing.unheard();
                self.incoming.unheard();
                Ok(())
            }
            Message::Fault(fault) => {
                let failure = self.silence.weigh(Failure::of_fault(&fault));
                Err(Break::heard(kind_of(failure.kind), failure.text))
            }
            Message::Cancel => Err(Break::heard(io::ErrorKind::ConnectionReset, BROKEN_OFF)),
            other => {
                let text = format!("unexpected: message {}", other.name());
                Err(Break::told(io::ErrorKind::InvalidData, Reason::Unexpected, text))
            }
        }
    }

    /// Does what a silence of datagrams was found to mean.
    async fn handle_judged(&mut self, judged: Judged) -> Result<(), Break> {
        match judged {
            Judged::Carry => Ok(self.carry().await?),
            Judged::Wait => Ok(()),
            Judged::Fail(failure) => Err(Break::silent(failure)),
        }
    }

    /// Has the control connection carry the datagrams of both sessions, unless it does.
    async fn carry(&mut self) -> Result<(), ControlError> {
        if !self.channel.carries() {
            let carrier = self.outgoing.carrier(&self.incoming, self.channel.ends().remote);
            self.channel.carry(carrier, self.data_port).await?;
            self.silence.is_carried();
            self.standing.send_modify(|now| now.carried = true);
        }
        Ok(())
    }

    /// Whether the peer has what was written: all of it, or what arrived of its frames.
    fn is_all(&self, done: &Done) -> bool {
        match (self.delivery, self.outgoing.finished_at()) {
            (_, None) => false,
            (None, Some(total)) => total == done.content_bytes,
            (Some(_), Some(total)) => self.told_end && total >= done.content_bytes,
        }
    }

    /// What an event of the engine means before the stream's end.
    async fn check(&mut self, event: Option<StreamEvent>) -> Result<(), Break> {
        let found = match event {
            Some(StreamEvent::PathOpen) => {
                self.paths += 1;
                if self.paths == 2 {
                    self.standing.send_modify(|now| now.open = true);
                }
                return Ok(());
            }
            Some(StreamEvent::Whole(_)) => return Ok(()),
            Some(StreamEvent::Silent) => {
                if let Some(words) = self.silence.wait(self.paths > 0) {
                    self.channel.send(&words).await?;
                }
                return Ok(());
            }
            Some(StreamEvent::Ended(ended)) => {
                self.told_end = true;
                let crate::engine::Ended { units, frames } = ended;
                self.channel.send(&Message::Ended(Ended { units, frames })).await?;
                return Ok(());
            }
            Some(StreamEvent::NoPath) => match self.silence.begin() {
                Next::Ask(question) => return Ok(self.channel.send(&question).await?),
                Next::Wait => return Ok(()),
                Next::Fail(failure) => Break::silent(failure),
            },
            Some(StreamEvent::Lost(why)) => {
                Break::told(io::ErrorKind::TimedOut, Reason::TimedOut, why)
            }
            Some(StreamEvent::Closed) | None => Break::told(
                io::ErrorKind::ConnectionReset,
                Reason::Other,
                "the session ended before its stream",
            ),
        };
        self.last_word(found).await
    }

    /// What the peer says last of an end that was `found` here. It may say why, which is the better
    /// word, and it may have received all.
    async fn last_word(&mut self, found: Break) -> Result<(), Break> {
        let standing = *self.standing.borrow();
        match timeout(LAST_WORD_SPAN, self.channel.recv()).await {
            Ok(Ok(message)) => self.hear(message, standing).await,
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(found),
        }
    }

    /// Nobody is here any more, and all that was said here is there.
    fn check_left(&mut self) -> Result<(), Break> {
        let heard = self.incoming.progress().map_or(0, |progress| progress.bytes);
        let (looks, before) = self.left.get_or_insert((0, heard));
        *looks += 1;
        if *looks < LINGER_LOOKS && heard - *before < LINGER_BYTES {
            return Ok(());
        }
        let why = Broken { kind: io::ErrorKind::ConnectionAborted, text: "nobody reads".into() };
        Err(Break { why, tell: Some(Box::new(Message::Cancel)) })
    }
}

/// The kind of error that an application sees for a failure.
fn kind_of(kind: FailureKind) -> io::ErrorKind {
    match kind {
        FailureKind::NoUdpPath => io::ErrorKind::HostUnreachable,
        FailureKind::TimeLimit => io::ErrorKind::TimedOut,
        FailureKind::Authentication | FailureKind::OutsideHours | FailureKind::Revoked => {
            io::ErrorKind::PermissionDenied
        }
        FailureKind::Missing => io::ErrorKind::ConnectionRefused,
        FailureKind::Other
        | FailureKind::Usage
        | FailureKind::Destination
        | FailureKind::Quota
        | FailureKind::Temporary
        | FailureKind::Unreachable
        | FailureKind::Integrity
        | FailureKind::Partial
        | FailureKind::Interrupted => io::ErrorKind::ConnectionReset,
    }
}
