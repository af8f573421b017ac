//! Frames in step, in virtual time: drawn histories of parts against the promises of the release.

use std::collections::BTreeMap;

use gtp_alloc::{Span, Time};
use gtp_proto::in_step::{Fate, Gather, GatherConfig, Part, Released, Settled, Tempo};
use proptest::prelude::*;

const EVERY: Span = Span::from_millis(50);

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

/// A sink that keeps the time: frame 0 is due at 1,000 ms, and one each 50 ms.
fn led(parts: u16, deadline_ms: u64, frames_most: usize) -> Gather<u64> {
    let deadline = Span::from_millis(deadline_ms);
    let tempo = Some(Tempo::new(at(1_000), EVERY));
    let mut gather = Gather::new(GatherConfig { parts, deadline, frames_most, tempo });
    (0..parts).for_each(|place| gather.handle_joined(place));
    gather
}

/// A sink of one source, which keeps the time.
fn free(deadline_ms: u64, frames_most: usize) -> Gather<u64> {
    let deadline = Span::from_millis(deadline_ms);
    let mut gather = Gather::new(GatherConfig { parts: 1, deadline, frames_most, tempo: None });
    gather.handle_joined(0);
    gather
}

fn say(gather: &mut Gather<u64>, ms: u64, place: u16, number: u64) -> Fate {
    let part = Part { number, release: None, came: at(ms), body: number };
    gather.handle_part(at(ms), place, part)
}

fn numbers(gather: &mut Gather<u64>, ms: u64) -> Vec<(u64, Settled)> {
    std::iter::from_fn(|| gather.poll_release(at(ms)))
        .map(|frame| (frame.number, frame.settled))
        .collect()
}

#[test]
fn a_frame_is_released_with_its_last_part() {
    let mut gather = led(3, 300, 8);
    assert_eq!(say(&mut gather, 1_001, 2, 0), Fate::Held);
    assert_eq!(say(&mut gather, 1_040, 0, 0), Fate::Held);
    assert_eq!(numbers(&mut gather, 1_040), []);
    assert_eq!(gather.poll_timeout(), Some(at(1_300)));
    assert_eq!(say(&mut gather, 1_071, 1, 0), Fate::Held);
    let frame = gather.poll_release(at(1_071)).expect("whole");
    assert!(frame.is_whole() && frame.settled == Settled::Whole);
    assert_eq!(frame.came, (at(1_001), at(1_071)));
    assert_eq!(gather.poll_timeout(), None);
}

#[test]
fn a_frame_whose_time_has_come_leaves_without_what_is_missing() {
    let mut gather = led(2, 300, 8);
    say(&mut gather, 1_001, 0, 0);
    assert_eq!(numbers(&mut gather, 1_299), []);
    let frame = gather.poll_release(at(1_300)).expect("its time has come");
    assert_eq!((frame.parts, frame.settled), (vec![Some(0), None], Settled::Due));
    assert_eq!(say(&mut gather, 1_301, 1, 0), Fate::Late);
    assert_eq!((gather.tally(1).late, gather.tally(1).missing), (1, 1));
}

#[test]
fn a_part_is_not_waited_for_once_its_source_has_sent_a_later_one() {
    let mut gather = led(2, 300, 8);
    say(&mut gather, 1_001, 0, 0);
    say(&mut gather, 1_060, 1, 1);
    assert_eq!(numbers(&mut gather, 1_060), [(0, Settled::Spent)]);
    say(&mut gather, 1_061, 0, 1);
    assert_eq!(numbers(&mut gather, 1_061), [(1, Settled::Whole)]);
}

#[test]
fn a_source_that_has_left_is_waited_for_by_nobody_and_is_taken_in_again() {
    let mut gather = led(2, 300, 8);
    say(&mut gather, 1_001, 0, 0);
    gather.handle_left(1);
    assert_eq!(numbers(&mut gather, 1_002), [(0, Settled::Spent)]);
    say(&mut gather, 1_051, 0, 1);
    assert_eq!(numbers(&mut gather, 1_051), [(1, Settled::Spent)]);
    gather.handle_joined(1);
    say(&mut gather, 1_101, 0, 2);
    assert_eq!(numbers(&mut gather, 1_101), []);
    say(&mut gather, 1_102, 1, 2);
    assert_eq!(numbers(&mut gather, 1_102), [(2, Settled::Whole)]);
}

#[test]
fn no_source_runs_ahead_of_the_time() {
    let mut gather = led(2, 300, 8);
    assert_eq!(say(&mut gather, 1_000, 0, 3), Fate::Ahead);
    assert_eq!(say(&mut gather, 1_000, 0, u64::MAX), Fate::Ahead);
    assert_eq!(say(&mut gather, 1_000, 0, 2), Fate::Held);
    say(&mut gather, 1_001, 1, 0);
    assert_eq!(numbers(&mut gather, 1_001), [(0, Settled::Spent)]);
    assert_eq!(gather.tally(0).ahead, 2);
}

#[test]
fn a_single_source_that_comes_again_counts_from_the_start_and_its_frames_go_on() {
    let mut gather = free(500, 8);
    say(&mut gather, 100, 0, 7);
    assert_eq!(numbers(&mut gather, 100), [(7, Settled::Whole)]);
    let release = Some(at(400));
    let timed = Part { number: 9, release, came: at(100), body: 9 };
    gather.handle_part(at(100), 0, timed);
    gather.handle_left(0);
    gather.handle_joined(0);
    assert_eq!(say(&mut gather, 200, 0, 0), Fate::Held);
    assert_eq!(say(&mut gather, 200, 0, 1), Fate::Held);
    let all = [(9, Settled::Due), (10, Settled::Whole), (11, Settled::Whole)];
    assert_eq!(numbers(&mut gather, 400), all, "order is kept");
}

#[test]
fn the_last_number_that_there_is_is_no_frames() {
    let mut gather = free(500, 8);
    assert_eq!(say(&mut gather, 100, 0, u64::MAX), Fate::Ahead);
    for _ in 0..2 {
        say(&mut gather, 100, 0, u64::MAX - 1);
    }
    assert_eq!(numbers(&mut gather, 100), [(u64::MAX - 1, Settled::Whole)]);
    assert_eq!(say(&mut gather, 100, 0, u64::MAX - 1), Fate::Late);
}

#[test]
fn a_frame_with_a_time_is_released_then_and_not_before() {
    let mut gather = free(500, 8);
    let timed = |number, release| {
        let release = Some(at(release));
        Part { number, release, came: at(100), body: number }
    };
    assert_eq!(gather.handle_part(at(100), 0, timed(7, 350)), Fate::Held);
    assert_eq!(gather.handle_part(at(100), 0, timed(8, 9_000)), Fate::Held);
    assert_eq!(numbers(&mut gather, 349), []);
    assert_eq!(numbers(&mut gather, 350), [(7, Settled::Due)]);
    // A clock that is far off holds nothing for longer than the sink wants.
    assert_eq!(gather.poll_timeout(), Some(at(600)));
    assert_eq!(gather.handle_part(at(400), 0, timed(9, 399)), Fate::Late);
    assert_eq!(numbers(&mut gather, 600), [(8, Settled::Due)]);
}

#[test]
fn frames_without_a_time_of_one_source_pass_at_once_and_gaps_are_counted() {
    let mut gather = free(500, 8);
    for (number, absent) in [(4, 0), (5, 0), (9, 3)] {
        say(&mut gather, 100, 0, number);
        let frame = gather.poll_release(at(100)).expect("whole");
        assert_eq!((frame.number, frame.absent), (number, absent));
    }
    assert_eq!(say(&mut gather, 100, 0, 9), Fate::Late);
    assert_eq!((gather.totals().whole, gather.totals().absent), (3, 3));
}

#[test]
fn the_oldest_frame_makes_room_and_one_that_is_older_yet_finds_none() {
    let mut gather = led(2, 10_000, 2);
    for number in [1, 2] {
        assert_eq!(say(&mut gather, 1_100, 0, number), Fate::Held);
    }
    assert_eq!(say(&mut gather, 1_100, 1, 0), Fate::Crowded);
    assert_eq!(say(&mut gather, 1_150, 0, 3), Fate::Held);
    assert_eq!(gather.frames_held(), 2);
    assert_eq!((gather.tally(0).crowded, gather.tally(1).crowded), (1, 1));
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happens {
    Part { place: u16, ahead: i64, release_ms: Option<i64> },
    Left(u16),
    Joined(u16),
}

fn happens(parts: u16) -> impl Strategy<Value = (u64, bool, Happens)> {
    let part = (0..parts, -4_i64..8, proptest::option::of(-50_i64..900))
        .prop_map(|(place, ahead, release_ms)| Happens::Part { place, ahead, release_ms });
    let what = prop_oneof![
        12 => part,
        1 => (0..parts).prop_map(Happens::Left),
        1 => (0..parts).prop_map(Happens::Joined),
    ];
    (0_u64..30, proptest::bool::weighted(0.8), what)
}

/// What was handed in, by place.
#[derive(Default)]
struct Seen {
    handed: BTreeMap<u16, u64>,
    last: Option<u64>,
    whole: u64,
    incomplete: u64,
}

impl Seen {
    /// The promises that hold of each released frame.
    fn check(&mut self, frame: &Released<(u16, u64, Time)>, now: Time, terms: (bool, Span)) {
        let (is_led, deadline) = terms;
        assert!(self.last.is_none_or(|last| last < frame.number), "order is kept");
        self.last = Some(frame.number);
        for (place, part) in frame.parts.iter().enumerate() {
            if let Some((from, number, came)) = part {
                assert!(usize::from(*from) == place);
                // A single source that comes again counts anew.
                assert!(*number == frame.number || !is_led && *number < frame.number);
                assert!(*came >= frame.came.0 && *came <= frame.came.1 && *came <= now);
            }
        }
        assert!(frame.parts.iter().any(Option::is_some), "something is there");
        assert!(now.since(frame.came.0) <= deadline + AHEAD + STEP, "nothing waits for ever");
        match frame.is_whole() {
            true => self.whole += 1,
            false => self.incomplete += 1,
        }
    }
}

/// How long before it is due a frame's part may come.
const AHEAD: Span = Span::from_millis(3 * 50);

/// The longest time between two things that happen.
const STEP: Span = Span::from_millis(30 * 4);

proptest! {
    #[test]
    fn whatever_sources_say_order_bound_and_deadline_hold_and_each_part_is_counted_once(
        parts in 1_u16..5,
        is_led in any::<bool>(),
        frames_most in 1_usize..12,
        deadline_ms in 1_u64..600,
        history in proptest::collection::vec(happens(4), 1..400),
    ) {
        let is_led = is_led || parts > 1;
        let deadline = Span::from_millis(deadline_ms);
        let tempo = is_led.then(|| Tempo::new(at(1_000), EVERY));
        let mut gather =
            Gather::new(GatherConfig { parts, deadline, frames_most, tempo });
        (0..parts).for_each(|place| gather.handle_joined(place));
        let (mut now, mut seen, mut skipped) = (1_000, Seen::default(), 0);
        for (step_ms, drains, what) in history {
            now += step_ms;
            match what {
                Happens::Part { place, ahead, release_ms } => {
                    let place = place % parts;
                    let number = (((now - 1_000) / 50) as i64 + ahead).max(0) as u64;
                    let release = release_ms.map(|ms| at((now as i64 + ms).max(0) as u64));
                    let body = (place, number, at(now));
                    let part = Part { number, release, came: at(now), body };
                    gather.handle_part(at(now), place, part);
                    *seen.handed.entry(place).or_default() += 1;
                }
                Happens::Left(place) => gather.handle_left(place % parts),
                Happens::Joined(place) => gather.handle_joined(place % parts),
            }
            prop_assert!(gather.frames_held() <= frames_most);
            prop_assert!(gather.parts_held() <= frames_most * usize::from(parts));
            // A host that is busy asks late, three times in a row at most.
            skipped = if drains || skipped == 3 { 0 } else { skipped + 1 };
            if skipped > 0 {
                continue;
            }
            while let Some(frame) = gather.poll_release(at(now)) {
                seen.check(&frame, at(now), (is_led, deadline));
            }
            prop_assert!(gather.poll_timeout().is_none_or(|due| due > at(now)), "all is drained");
        }
        let totals = gather.totals();
        prop_assert_eq!((totals.whole, totals.incomplete), (seen.whole, seen.incomplete));
        let ended = now + deadline_ms + 1_000;
        while let Some(frame) = gather.poll_release(at(ended)) {
            let _ = frame;
        }
        prop_assert_eq!(gather.parts_held(), 0, "every frame's time comes");
        for place in 0..parts {
            let tally = gather.tally(place);
            let counted =
                tally.released + tally.late + tally.repeated + tally.ahead + tally.crowded;
            prop_assert_eq!(counted, seen.handed.get(&place).copied().unwrap_or(0));
        }
    }

    #[test]
    fn one_source_that_says_anything_takes_nothing_from_the_others(
        lies in proptest::collection::vec((0_u64..40, any::<u64>()), 1..200),
    ) {
        let mut gather = led(2, 200, 8);
        let mut lies = lies.into_iter().cycle();
        let mut released = Vec::new();
        for number in 0..60 {
            let ms = 1_000 + 50 * number + 20;
            let (step, lie) = lies.next().expect("endless");
            say(&mut gather, ms, 1, lie);
            say(&mut gather, ms, 1, number.saturating_add(step % 5).saturating_sub(2));
            say(&mut gather, ms, 0, number);
            while let Some(frame) = gather.poll_release(at(ms)) {
                released.push((frame.number, frame.parts[0].is_some()));
            }
        }
        while let Some(frame) = gather.poll_release(at(10_000)) {
            released.push((frame.number, frame.parts[0].is_some()));
        }
        let honest: Vec<u64> = released.iter().filter(|(_, is)| *is).map(|(n, _)| *n).collect();
        prop_assert_eq!(honest, (0..60).collect::<Vec<u64>>(), "each part of the honest one");
    }
}
