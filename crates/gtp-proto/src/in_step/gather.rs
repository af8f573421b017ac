//! Which frame a sink releases when.
//!
//! A frame is released when every part that can still come is there, or when its time has come,
//! whichever is first; frames that are to be shown at one time everywhere are released then and
//! not before. Frames leave in the order of their numbers. Each source's parts come in their
//! order, so a part is not waited for once a later one of its source has come, or its source has
//! left. A frame's time follows the sink's own clock, so no source holds up the others, and what is
//! held has a bound that the sink sets.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::{Span, Time};

use super::{PARTS_MOST, Tempo};

/// What a sink holds, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct GatherConfig {
    /// Parts of a frame, one from each source; 1 to [`PARTS_MOST`].
    pub parts: u16,
    /// A frame is held so long at most: after it was due if this end keeps the time, else after
    /// its part came.
    pub deadline: Span,
    /// Frames that are held at a time, at most; at least one.
    pub frames_most: usize,
    /// When frames are due, if this end keeps the time. With several sources it must.
    pub tempo: Option<Tempo>,
}

/// A source's place in the picture, from 0.
pub type Place = u16;

/// A part of a frame, as it came.
#[derive(Clone, Debug)]
pub struct Part<B> {
    /// The frame's number.
    pub number: u64,
    /// When the frame shall be released, by this end's clock; none: once it is whole.
    pub release: Option<Time>,
    /// When it came.
    pub came: Time,
    /// What it shows.
    pub body: B,
}

/// What becomes of a part that is handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits for its frame's release.
    Held,
    /// Its frame was released, or should have been, before it came.
    Late,
    /// Its source has sent this part, or a later one, before.
    Repeated,
    /// Its frame is not due for long.
    Ahead,
    /// There is no room: all frames that are held are later ones.
    Crowded,
}

/// Why a frame was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// All parts are there.
    Whole,
    /// The others cannot come any more: their sources have sent later ones, or have left.
    Spent,
    /// Its time has come.
    Due,
}

/// A frame that is released.
#[derive(Clone, Debug)]
pub struct Released<B> {
    /// Its number.
    pub number: u64,
    /// Its parts by their sources' places; a part that is missing is none. At least one is there.
    pub parts: Vec<Option<B>>,
    /// When the first of its parts came, and the last.
    pub came: (Time, Time),
    /// Why it was released.
    pub settled: Settled,
    /// Frames before it, and after the one released before it, of which nothing was released.
    pub absent: u64,
}

impl<B> Released<B> {
    /// Whether all parts are there.
    pub fn is_whole(&self) -> bool {
        self.parts.iter().all(Option::is_some)
    }
}

/// What became of one source's parts. Each that was handed in, and is not held any more, is in one
/// of these numbers, but for `missing`, which counts those that were not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In frames that were released.
    pub released: u64,
    /// Not there when their frames were released.
    pub missing: u64,
    /// As [`Fate::Late`].
    pub late: u64,
    /// As [`Fate::Repeated`].
    pub repeated: u64,
    /// As [`Fate::Ahead`].
    pub ahead: u64,
    /// As [`Fate::Crowded`], or let go of for want of room.
    pub crowded: u64,
}

/// Frames so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Released with all parts.
    pub whole: u64,
    /// Released without some.
    pub incomplete: u64,
    /// Passed over between released ones, because no part of them was there.
    pub absent: u64,
}

/// One source.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    is_present: bool,
    /// No part below this number will come from it.
    next: u64,
    tally: Tally,
}

/// A frame that is held.
#[derive(Debug)]
struct Held<B> {
    parts: Vec<Option<B>>,
    came: (Time, Time),
    /// When its time comes.
    due: Time,
    /// Whether it waits for that although it is whole.
    is_timed: bool,
}

/// Parts of frames at a sink, until their release.
#[derive(Debug)]
pub struct Gather<B> {
    config: GatherConfig,
    sources: Vec<Source>,
    held: BTreeMap<u64, Held<B>>,
    /// The first frame that can still be released.
    next: u64,
    /// What number 0 of a single source is here.
    base: u64,
    /// The last one that was released.
    last: Option<u64>,
    totals: Totals,
}

/// Frames before a frame is due that a source may be: its idea of the sink's clock is wrong by half
/// of a round trip at most.
const AHEAD_MOST: u64 = 2;

impl<B> Gather<B> {
    /// Nothing is held, and no source is present.
    ///
    /// # Panics
    /// If the configuration breaks its own rules.
    pub fn new(config: GatherConfig) -> Gather<B> {
        let GatherConfig { parts, frames_most, tempo, .. } = config;
        assert!((1..=PARTS_MOST).contains(&parts), "a frame has 1 to {PARTS_MOST} parts");
        assert!(frames_most > 0, "a frame must be held to be released");
        assert!(parts == 1 || tempo.is_some(), "the sink of several sources keeps the time");
        Gather {
            config,
            sources: alloc::vec![Source::default(); usize::from(parts)],
            held: BTreeMap::new(),
            next: 0,
            base: 0,
            last: None,
            totals: Totals::default(),
        }
    }

    /// A source has come, or come again, to this place: its parts are waited for. A single source
    /// that keeps the time counts from 0 again, and its frames here go on from the last one.
    pub fn handle_joined(&mut self, place: Place) {
        if self.config.tempo.is_none() {
            let held = self.held.last_key_value().map(|(&last, _)| last.saturating_add(1));
            self.base = self.next.max(held.unwrap_or(0));
        }
        let source = &mut self.sources[usize::from(place)];
        source.is_present = true;
        // One that begins anew knows only what is due now.
        source.next = 0;
    }

    /// The source of this place has left: nothing of it is waited for.
    pub fn handle_left(&mut self, place: Place) {
        self.sources[usize::from(place)].is_present = false;
    }

    /// A part has come from the source of this place.
    pub fn handle_part(&mut self, now: Time, place: Place, part: Part<B>) -> Fate {
        let part = Part { number: part.number.saturating_add(self.base), ..part };
        let fate = self.judge(now, place, &part);
        let source = &mut self.sources[usize::from(place)];
        if fate != Fate::Ahead {
            source.next = source.next.max(part.number.saturating_add(1));
        }
        match fate {
            Fate::Held => self.hold(place, part),
            Fate::Late => source.tally.late += 1,
            Fate::Repeated => source.tally.repeated += 1,
            Fate::Ahead => source.tally.ahead += 1,
            Fate::Crowded => source.tally.crowded += 1,
        }
        fate
    }

    /// The next frame that is to be released now.
    pub fn poll_release(&mut self, now: Time) -> Option<Released<B>> {
        let (&number, front) = self.held.first_key_value()?;
        let settled = match self.settled(number, front) {
            Some(settled) => settled,
            // A frame whose time has come takes those before it along: order holds.
            None if self.held.values().any(|held| held.due <= now) => Settled::Due,
            None => return None,
        };
        self.held.pop_first().map(|(number, held)| self.release(number, held, settled))
    }

    /// When [`Gather::poll_release`] should be asked next, if no part comes before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.held.values().map(|held| held.due).min()
    }

    /// Parts that are held.
    pub fn parts_held(&self) -> usize {
        self.held.values().flat_map(|held| &held.parts).flatten().count()
    }

    /// Frames that are held.
    pub fn frames_held(&self) -> usize {
        self.held.len()
    }

    /// What became of the parts of the source of this place.
    pub fn tally(&self, place: Place) -> Tally {
        self.sources[usize::from(place)].tally
    }

    /// What became of frames.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn judge(&self, now: Time, place: Place, part: &Part<B>) -> Fate {
        let number = part.number;
        let is_ahead = |tempo: Tempo| number > tempo.number(now).saturating_add(AHEAD_MOST);
        // Behind the last number there is none that the next frame could have.
        if number == u64::MAX || self.config.tempo.is_some_and(is_ahead) {
            return Fate::Ahead;
        }
        if number < self.next || self.due(part) <= now {
            return Fate::Late;
        }
        if number < self.sources[usize::from(place)].next {
            return Fate::Repeated;
        }
        let taken = |held: &Held<B>| held.parts[usize::from(place)].is_some();
        match self.held.get(&number) {
            // A source that came again may say again what it had said.
            Some(held) if taken(held) => return Fate::Repeated,
            Some(_) => return Fate::Held,
            None => {}
        }
        let is_full = self.held.len() >= self.config.frames_most;
        let is_first = self.held.first_key_value().is_some_and(|(&first, _)| number < first);
        if is_full && is_first { Fate::Crowded } else { Fate::Held }
    }

    /// When the time of this part's frame comes.
    fn due(&self, part: &Part<B>) -> Time {
        let after = |time: Time| {
            Time::from_nanos(time.as_nanos().saturating_add(self.config.deadline.as_nanos()))
        };
        match self.config.tempo {
            Some(tempo) => after(tempo.due(part.number)),
            // A peer's idea of the time holds nothing for longer than this end wants.
            None => part.release.map_or(after(part.came), |at| at.min(after(part.came))),
        }
    }

    fn hold(&mut self, place: Place, part: Part<B>) {
        let due = self.due(&part);
        if !self.held.contains_key(&part.number) && self.held.len() >= self.config.frames_most {
            self.let_go_of_the_first();
        }
        let parts = usize::from(self.config.parts);
        let is_timed = self.config.tempo.is_none() && part.release.is_some();
        let held = self.held.entry(part.number).or_insert_with(|| Held {
            parts: (0..parts).map(|_| None).collect(),
            came: (part.came, part.came),
            due,
            is_timed,
        });
        held.came = (held.came.0.min(part.came), held.came.1.max(part.came));
        held.parts[usize::from(place)] = Some(part.body);
    }

    /// Makes room: the frame that has waited longest is worth least.
    fn let_go_of_the_first(&mut self) {
        let Some((number, held)) = self.held.pop_first() else { return };
        self.next = number.saturating_add(1);
        for (source, part) in self.sources.iter_mut().zip(&held.parts) {
            source.tally.crowded += u64::from(part.is_some());
        }
    }

    /// Why a frame need not wait for its time; none if it has to.
    fn settled(&self, number: u64, held: &Held<B>) -> Option<Settled> {
        if held.is_timed {
            return None;
        }
        let mut parts = self.sources.iter().zip(&held.parts);
        if held.parts.iter().all(Option::is_some) {
            return Some(Settled::Whole);
        }
        let can_come = |source: &Source| source.is_present && source.next <= number;
        let is_spent = parts.all(|(source, part)| part.is_some() || !can_come(source));
        is_spent.then_some(Settled::Spent)
    }

    fn release(&mut self, number: u64, held: Held<B>, settled: Settled) -> Released<B> {
        let absent = self.last.map_or(0, |last| number - last - 1);
        self.last = Some(number);
        self.next = number.saturating_add(1);
        for (source, part) in self.sources.iter_mut().zip(&held.parts) {
            match part {
                Some(_) => source.tally.released += 1,
                None => source.tally.missing += 1,
            }
        }
        let released = Released { number, parts: held.parts, came: held.came, settled, absent };
        self.totals.absent += absent;
        match released.is_whole() {
            true => self.totals.whole += 1,
            false => self.totals.incomplete += 1,
        }
        released
    }
}
