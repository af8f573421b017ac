//! The sink of frames in step: it takes sources in, and gives frames when they are to be shown.
//!
//! Nothing is released before every place has its source and their clocks are known; then the
//! group begins, and frame 0 is due as soon as every source can have heard of it. After that
//! sources may leave and come again. All decisions about frames are the core's; this one decides
//! who takes which place, and when the group is over.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gtp_alloc::{Span, Time};
use gtp_proto::in_step::{
    Begun, Gather, GatherConfig, PARTS_MOST, Part, Released, Tally, Tempo, Totals,
};
use gtp_sys::clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::picture::Picture;
use super::source::{Attendance, News, Told, attend};
use super::{WARM_UP, later, wait_for};
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::Reason;
use crate::stream::{Caller, Line, StreamListener};

/// What a sink wants.
#[derive(Clone, Copy, Debug)]
pub struct SinkTerms {
    /// Sources whose parts make a frame, 1 to [`PARTS_MOST`].
    pub parts: u16,
    /// Bytes of a part, at most.
    pub part_bytes: u64,
    /// One frame each such time. With several sources the sink keeps the time and must say it; a
    /// single source keeps it itself.
    pub every: Option<Span>,
    /// How long a frame is held at most: after it was due if the sink keeps the time, else after it
    /// came.
    pub deadline: Span,
}

/// What happens at a sink.
#[derive(Debug)]
pub enum Happened {
    /// A source has taken its place (from 0).
    Joined {
        /// Its place.
        place: u16,
        /// Its key.
        peer: Fingerprint,
        /// Whence it comes.
        remote: SocketAddr,
    },
    /// Somebody was refused.
    Refused {
        /// Whence they came.
        remote: SocketAddr,
        /// Why, in words for people.
        why: String,
    },
    /// Every place has its source: frame 0 is due at this time, if the sink keeps the time.
    Begun(Option<Time>),
    /// A frame is to be shown now.
    Frame {
        /// It, with its parts.
        frame: Released<Bytes>,
        /// The time.
        at: Time,
    },
    /// A source has left its place.
    Left {
        /// Its place.
        place: u16,
        /// Whether it said its end.
        how: Left,
    },
}

/// How a source left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It said its end.
    Ended,
    /// Its connection broke.
    Broke(String),
    /// The same key has called again for its place.
    Replaced,
}

/// A place of the picture.
enum Seat {
    /// Nobody has taken it yet.
    Free,
    Taken(Taken),
    /// Its source has left.
    Over(Left),
}

/// A source that is there.
struct Taken {
    call: u64,
    peer: Fingerprint,
    line: Line,
    /// Whether its clock is known.
    is_known: bool,
    /// Whether its parts are waited for.
    is_joined: bool,
}

/// What was seen of a source beside its parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Frames of the stream that were lost on the way, of all its connections.
    pub lost: u64,
    /// How often a source took this place.
    pub calls: u64,
    /// The shortest round trip to it of late.
    pub round_trip: Option<Span>,
}

/// The sink of a group. Dropping it breaks all connections off.
pub struct Gathering {
    listener: StreamListener,
    clock: Clock,
    terms: SinkTerms,
    frames_most: usize,
    seats: Vec<Seat>,
    seen: Vec<Seen>,
    gather: Option<Gather<Bytes>>,
    begun: watch::Sender<Begun>,
    tell: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    calls: u64,
    tasks: JoinSet<()>,
    happened: VecDeque<Happened>,
    /// When the group ends, since nobody is there.
    ends_at: Option<Time>,
}

/// Memory that the frames which are held may take.
const HELD_MOST: u64 = 1 << 30;

/// Memory for the frames of one source that keeps the time: how many are on the way at once is its
/// own affair.
const HELD_OF_ONE: u64 = 256 << 20;

/// Frames that are held of one source, at most.
const FRAMES_OF_ONE: u64 = 256;

/// Frames that are held beside those of the deadline: two may be ahead, and one is being released.
const FRAMES_BESIDE: u64 = 4;

/// How long a group whose sources all broke off is kept for their return.
const RETURN_SPAN: Span = Span::from_secs(10);

/// Time for the connections to part, beside what each takes.
const CLOSING_SPAN: Duration = Duration::from_secs(6);

impl SinkTerms {
    /// Frames that are held at a time, at most.
    ///
    /// # Errors
    /// Of kind `Usage`: terms that are not sound, or need too much memory.
    pub fn frames_most(&self) -> Result<usize, Failure> {
        let usage = |text: String| Failure::new(FailureKind::Usage, text);
        if !(1..=PARTS_MOST).contains(&self.parts) {
            return Err(usage(format!("a frame has 1 to {PARTS_MOST} parts")));
        }
        let frame_bytes = self.part_bytes.saturating_mul(u64::from(self.parts)).max(1);
        let frames = match self.every {
            Some(every) => {
                let held = self.deadline.as_nanos().div_ceil(every.as_nanos().max(1));
                held.saturating_add(FRAMES_BESIDE)
            }
            None if self.parts > 1 => {
                return Err(usage("the sink of several sources needs the time of a frame".into()));
            }
            None => (HELD_OF_ONE / frame_bytes).clamp(FRAMES_BESIDE, FRAMES_OF_ONE),
        };
        if frames.saturating_mul(frame_bytes) > HELD_MOST {
            let text = format!(
                "{frames} frames of {frame_bytes} bytes would be held, and a group may hold \
                 {HELD_MOST} bytes: a shorter deadline or smaller frames need less"
            );
            return Err(usage(text));
        }
        Ok(frames as usize)
    }
}

impl Gathering {
    /// Waits for sources at `listener`, which listens for frames.
    ///
    /// # Errors
    /// As of [`SinkTerms::frames_most`].
    pub fn new(
        listener: StreamListener,
        clock: Clock,
        terms: SinkTerms,
    ) -> Result<Gathering, Failure> {
        let frames_most = terms.frames_most()?;
        // A source that is fast is held up by its window, not by this queue.
        let (tell, news) = mpsc::channel(2 * usize::from(terms.parts));
        Ok(Gathering {
            listener,
            clock,
            terms,
            frames_most,
            seats: (0..terms.parts).map(|_| Seat::Free).collect(),
            seen: vec![Seen::default(); usize::from(terms.parts)],
            gather: None,
            begun: watch::Sender::new(Begun::No),
            tell,
            news,
            calls: 0,
            tasks: JoinSet::new(),
            happened: VecDeque::new(),
            ends_at: None,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Frames that are held at a time, at most.
    pub fn frames_most(&self) -> usize {
        self.frames_most
    }

    /// What happens next; `None` at the end of the group: all sources have left. Safe to cancel.
    ///
    /// # Errors
    /// If the listener fails.
    pub async fn next(&mut self) -> Result<Option<Happened>, Failure> {
        loop {
            if let Some(happened) = self.happened.pop_front() {
                return Ok(Some(happened));
            }
            let now = self.clock.now();
            let gather = self.gather.as_mut();
            if let Some(frame) = gather.and_then(|gather| gather.poll_release(now)) {
                return Ok(Some(Happened::Frame { frame, at: now }));
            }
            let due = self.gather.as_ref().and_then(Gather::poll_timeout);
            if due.is_none() && self.ends_at.is_some_and(|at| at <= now) {
                return Ok(None);
            }
            // The group does not end while frames are held, so its end matters after the last one.
            let due = due.or(self.ends_at);
            tokio::select! {
                caller = self.listener.next() => match caller {
                    Some(caller) => self.handle_caller(caller),
                    None => {
                        let text = "nobody listens any more";
                        return Err(Failure::new(FailureKind::Other, text));
                    }
                },
                Some(news) = self.news.recv() => self.handle_news(news),
                () = wait_for(self.clock, due) => {}
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// Waits until the ends have parted. Whoever calls meanwhile is refused.
    pub async fn close(mut self) {
        drop(self.listener);
        self.news.close();
        let parting = async { while self.tasks.join_next().await.is_some() {} };
        // Whoever takes longer hears by the end of the connection.
        let _ = timeout(CLOSING_SPAN, parting).await;
    }

    /// What became of a source's parts.
    pub fn tally(&self, place: u16) -> Tally {
        self.gather.as_ref().map(|gather| gather.tally(place)).unwrap_or_default()
    }

    /// What became of frames.
    pub fn totals(&self) -> Totals {
        self.gather.as_ref().map(Gather::totals).unwrap_or_default()
    }

    /// What was seen of a source beside its parts.
    pub fn seen(&self, place: u16) -> Seen {
        self.seen.get(usize::from(place)).copied().unwrap_or_default()
    }

    /// Why the source of a place broke off and has not come again; `None` if it did not.
    pub fn broke(&self, place: u16) -> Option<&str> {
        match self.seats.get(usize::from(place)) {
            Some(Seat::Over(Left::Broke(why))) => Some(why),
            Some(Seat::Free | Seat::Taken(_) | Seat::Over(_)) | None => None,
        }
    }

    fn handle_caller(&mut self, caller: Caller) {
        let (remote, peer) = (caller.remote(), caller.peer());
        let place = match self.place(&caller) {
            Ok(place) => place,
            Err((reason, why)) => return self.refuse(caller, reason, why),
        };
        self.vacate(place);
        let stream = match caller.accept_frames() {
            Ok(stream) => stream,
            Err(failure) => {
                self.happened.push_back(Happened::Refused { remote, why: failure.to_string() });
                return;
            }
        };
        self.calls += 1;
        let (call, line) = (self.calls, stream.line.clone());
        let taken = Taken { call, peer, line, is_known: false, is_joined: false };
        self.seats[usize::from(place)] = Seat::Taken(taken);
        self.seen[usize::from(place)].calls += 1;
        self.tasks.spawn(attend(
            stream,
            Attendance {
                call,
                part_bytes: self.terms.part_bytes,
                clock: self.clock,
                begun: self.begun.subscribe(),
                news: self.tell.clone(),
            },
        ));
        self.ends_at = None;
        self.happened.push_back(Happened::Joined { place, peer, remote });
    }

    /// The place that a caller may take.
    fn place(&self, caller: &Caller) -> Result<u16, (Reason, String)> {
        let shown = caller.shown_service();
        let Some(asked) = Picture::read(caller.service()) else {
            let text = match Picture::is_meant(caller.service()) {
                true => format!("{shown:?} names no part of a picture"),
                false => {
                    format!("the caller asks for {shown:?}, and here frames are gathered (--group)")
                }
            };
            return Err((Reason::Missing, text));
        };
        let (parts, bytes) = (self.terms.parts, self.terms.part_bytes);
        if (asked.parts(), asked.part_bytes()) != (parts, bytes) {
            let text = format!(
                "the caller's frames have {} parts of {} bytes, and those here {parts} of {bytes}: \
                 --group and --frames must be the same at both ends",
                asked.parts(),
                asked.part_bytes()
            );
            return Err((Reason::Missing, text));
        }
        match &self.seats[usize::from(asked.part())] {
            Seat::Taken(taken) if taken.peer != caller.peer() => {
                let part = asked.part() + 1;
                Err((Reason::Busy, format!("part {part} is sent by {} already", taken.peer)))
            }
            Seat::Free | Seat::Taken(_) | Seat::Over(_) => Ok(asked.part()),
        }
    }

    fn refuse(&mut self, caller: Caller, reason: Reason, why: String) {
        self.happened.push_back(Happened::Refused { remote: caller.remote(), why: why.clone() });
        self.tasks.spawn(caller.refuse(reason, why));
    }

    /// Who has this place leaves it: the same source calls again, and does not know it yet.
    fn vacate(&mut self, place: u16) {
        if let Seat::Taken(taken) = &self.seats[usize::from(place)] {
            taken.line.abort();
            self.leave(place, Left::Replaced);
        }
    }

    fn leave(&mut self, place: u16, how: Left) {
        self.seats[usize::from(place)] = Seat::Over(how.clone());
        if let Some(gather) = &mut self.gather {
            gather.handle_left(place);
        }
        self.happened.push_back(Happened::Left { place, how });
        let is_over = |seat: &Seat| matches!(seat, Seat::Over(_));
        if self.gather.is_some() && self.seats.iter().all(is_over) {
            let has_ended = |seat: &Seat| matches!(seat, Seat::Over(Left::Ended));
            let span = match self.seats.iter().any(has_ended) {
                true => Span::ZERO,
                false => RETURN_SPAN,
            };
            self.ends_at = Some(later(self.clock.now(), span));
        }
    }

    fn handle_news(&mut self, News { call, told }: News) {
        let of_call = |seat: &Seat| matches!(seat, Seat::Taken(taken) if taken.call == call);
        // News of a source that was replaced are old.
        let Some(place) = self.seats.iter().position(of_call) else { return };
        let number = place as u16;
        match told {
            Told::Known(round_trip) => {
                self.seen[place].round_trip = Some(round_trip);
                if let Seat::Taken(taken) = &mut self.seats[place] {
                    taken.is_known = true;
                }
                self.begin_if_ready();
            }
            Told::Part(part, round_trip) => {
                self.seen[place].round_trip = round_trip.or(self.seen[place].round_trip);
                self.handle_part(number, part);
            }
            Told::Lost(count) => self.seen[place].lost += count,
            Told::Ended(Ok(())) => self.leave(number, Left::Ended),
            Told::Ended(Err(why)) => self.leave(number, Left::Broke(why)),
        }
    }

    fn handle_part(&mut self, place: u16, part: Part<Bytes>) {
        let (Some(gather), Seat::Taken(taken)) =
            (&mut self.gather, &mut self.seats[usize::from(place)])
        else {
            return; // Before the group has begun no part was asked for.
        };
        // One that comes again is waited for from its first part on, not while it opens its path.
        if !mem::replace(&mut taken.is_joined, true) {
            gather.handle_joined(place);
        }
        gather.handle_part(self.clock.now(), place, part);
    }

    /// Begins the group once every place has a source whose clock is known.
    fn begin_if_ready(&mut self) {
        let is_ready = |seat: &Seat| matches!(seat, Seat::Taken(taken) if taken.is_known);
        if self.gather.is_some() || !self.seats.iter().all(is_ready) {
            return;
        }
        let far = self.seen.iter().filter_map(|seen| seen.round_trip).max().unwrap_or_default();
        // Each source hears of it within two words, and has the rest of the time to fill its path.
        let at = later(later(later(self.clock.now(), far), far), WARM_UP);
        let tempo = self.terms.every.map(|every| Tempo::new(at, every));
        let SinkTerms { parts, deadline, .. } = self.terms;
        let frames_most = self.frames_most;
        let mut gather = Gather::new(GatherConfig { parts, deadline, frames_most, tempo });
        for (place, seat) in (0..parts).zip(&mut self.seats) {
            gather.handle_joined(place);
            if let Seat::Taken(taken) = seat {
                taken.is_joined = true;
            }
        }
        self.gather = Some(gather);
        self.begun.send_replace(tempo.map_or(Begun::Free, Begun::Led));
        self.happened.push_back(Happened::Begun(tempo.map(|tempo| tempo.at())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(parts: u16, part_bytes: u64, every_ms: Option<u64>) -> SinkTerms {
        let every = every_ms.map(Span::from_millis);
        SinkTerms { parts, part_bytes, every, deadline: Span::from_millis(300) }
    }

    #[test]
    fn as_many_frames_are_held_as_come_within_the_deadline_and_four_more() {
        assert_eq!(terms(4, 2_000_000, Some(50)).frames_most().unwrap(), 10);
        assert_eq!(terms(1, 2_000_000, None).frames_most().unwrap(), 134);
        assert_eq!(terms(1, 1_000, None).frames_most().unwrap(), 256);
    }

    #[test]
    fn terms_that_need_too_much_memory_or_a_tempo_are_refused() {
        for terms in [terms(64, 9_000_000, Some(50)), terms(2, 1, None), terms(0, 1, Some(50))] {
            assert_eq!(terms.frames_most().unwrap_err().kind, FailureKind::Usage);
        }
    }
}
