//! Hours of the week in which something holds: `mon-fri 20:00-06:00, sat,sun 00:00-24:00`.
//!
//! A window belongs to the day on which it begins, and one that ends at an earlier time of day ends
//! on the next. Times are those of this machine's time zone. A time of day that a change of clocks
//! leaves out is as much later, and of one that comes twice the first counts, so that windows that
//! adjoin on the wall do so in time as well. What holds in these hours is not known here, and the
//! time is an argument.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// Windows of one list.
pub const WINDOWS_MOST: usize = 32;

/// Windows of time; none means always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hours(Vec<Window>);

/// One window, on each of some days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// A bit for each day on which it begins, Monday's the lowest.
    days: u8,
    /// Minutes of the day at which it begins and ends.
    from: u16,
    to: u16,
}

/// The text says no hours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} {1}; write hours as in \"mon-fri 20:00-06:00, sat,sun 00:00-24:00\"")]
pub struct BadHours(String, &'static str);

/// A moment, and the time zone in which hours are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalTime {
    at: Timestamp,
    zone: TimeZone,
}

/// That it is none of the hours in which somebody may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When they begin again; `None` if that is not within two weeks.
    pub opens: Option<Timestamp>,
}

const DAY: u16 = 24 * 60;
const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const EVERY_DAY: u8 = 0x7f;

/// The time zone that `TZ` in the environment names, if nothing on this machine says what that is:
/// hours then go by UTC.
pub fn unknown_zone() -> Option<String> {
    let named = std::env::var_os("TZ").filter(|name| !name.is_empty())?;
    TimeZone::try_system().is_err().then(|| named.to_string_lossy().into_owned())
}

impl LocalTime {
    /// The present, in this machine's time zone.
    pub fn now() -> LocalTime {
        let seconds = i64::try_from(gtp_sys::clock::unix_seconds()).unwrap_or(i64::MAX);
        let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        LocalTime { at, zone: TimeZone::system() }
    }

    /// A moment in a time zone.
    pub fn new(at: Timestamp, zone: TimeZone) -> LocalTime {
        LocalTime { at, zone }
    }

    /// The moment.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Another moment in the same zone, for people: `Mon 2026-11-30 20:00 (+01)`.
    pub fn say(&self, at: Timestamp) -> String {
        let local = self.zone.to_datetime(at);
        format!("{} ({})", local.strftime("%a %Y-%m-%d %H:%M"), self.zone.to_offset(at))
    }

    fn then(&self, at: Timestamp) -> LocalTime {
        LocalTime { at, zone: self.zone.clone() }
    }

    /// The days around this one, from the day before on.
    fn days(&self, count: i64) -> impl Iterator<Item = Date> {
        let today = self.zone.to_datetime(self.at).date();
        let first = today.yesterday().unwrap_or(today);
        (0..count).map(move |n| first.saturating_add(Span::new().days(n)))
    }

    fn instant(&self, day: Date, minutes: u16) -> Option<Timestamp> {
        let day = if minutes < DAY { day } else { day.tomorrow().ok()? };
        let (hour, minute) = (minutes % DAY / 60, minutes % 60);
        let civil = day.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
        self.zone.to_timestamp(civil).ok()
    }
}

impl Closed {
    /// When it opens again, in words, for somebody to whom this is the present.
    pub fn words(&self, now: &LocalTime) -> String {
        match self.opens {
            Some(opens) => format!("they begin again on {}, the server's time", now.say(opens)),
            None => "they do not begin again within two weeks".to_owned(),
        }
    }
}

impl Hours {
    /// All hours of all days.
    pub const ALWAYS: Hours = Hours(Vec::new());

    /// Whether this is always.
    pub fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// The windows of both, each once.
    #[must_use]
    pub fn and(&self, other: &Hours) -> Hours {
        let new = other.0.iter().filter(|window| !self.0.contains(window));
        Hours(self.0.iter().chain(new).copied().collect())
    }

    /// Whether this moment is within them.
    pub fn cover(&self, now: &LocalTime) -> bool {
        self.is_always() || self.spans(now, 3).any(|(from, to)| from <= now.at && now.at < to)
    }

    /// When a window begins next.
    fn begin(&self, now: &LocalTime) -> Option<Timestamp> {
        self.spans(now, 10).map(|(from, _)| from).filter(|&from| from > now.at).min()
    }

    /// When a window begins or ends next; never if this is always.
    pub fn turn(&self, now: &LocalTime) -> Option<Timestamp> {
        let turns = self.spans(now, 10).flat_map(|(from, to)| [from, to]);
        turns.filter(|&turn| turn > now.at).min()
    }

    /// Whether this moment is within all of these hours.
    ///
    /// # Errors
    /// [`Closed`] if not.
    pub fn all(hours: &[&Hours], now: &LocalTime) -> Result<(), Closed> {
        if hours.iter().all(|hours| hours.cover(now)) {
            return Ok(());
        }
        let last = now.at.saturating_add(Span::new().hours(TWO_WEEKS_H)).unwrap_or(now.at);
        let mut then = now.clone();
        for _ in 0..STEPS_MOST {
            let closed = hours.iter().filter(|hours| !hours.cover(&then));
            let opens: Vec<_> = closed.map(|hours| hours.begin(&then)).collect();
            if opens.is_empty() {
                return Err(Closed { opens: Some(then.at) });
            }
            let next = opens.into_iter().collect::<Option<Vec<Timestamp>>>();
            let Some(next) = next.and_then(|all| all.into_iter().max()) else { break };
            if next > last {
                break;
            }
            then = then.then(next);
        }
        Err(Closed { opens: None })
    }

    /// When this moment is no longer within all of these hours; `None` if that is not within two
    /// weeks, or if it is not within them now.
    pub fn until(hours: &[&Hours], now: &LocalTime) -> Option<Timestamp> {
        let cover = |at: &LocalTime| hours.iter().all(|hours| hours.cover(at));
        let last = now.at.saturating_add(Span::new().hours(TWO_WEEKS_H)).unwrap_or(now.at);
        let mut then = Some(now.clone()).filter(&cover)?;
        // Windows that adjoin are one span, so a turn need not be an end.
        for _ in 0..STEPS_MOST {
            let turn = hours.iter().filter_map(|hours| hours.turn(&then)).min()?;
            then = then.then(turn);
            if turn > last {
                return None;
            }
            if !cover(&then) {
                return Some(turn);
            }
        }
        None
    }

    /// Each window on each of so many days from yesterday on.
    fn spans(&self, now: &LocalTime, days: i64) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        now.days(days).flat_map(move |day| {
            let on_it = self.0.iter().filter(move |window| window.begins_on(day.weekday()));
            on_it.filter_map(move |window| {
                let to = if window.to > window.from { window.to } else { window.to + DAY };
                let (from, to) = (now.instant(day, window.from)?, now.instant(day, to)?);
                // A change of clocks may leave nothing of it.
                (from < to).then_some((from, to))
            })
        })
    }
}

/// Hours of two weeks.
const TWO_WEEKS_H: i64 = 14 * 24;
/// Beginnings that are looked at for one that is within several lists of hours.
const STEPS_MOST: usize = 200;

impl Window {
    fn begins_on(&self, day: Weekday) -> bool {
        self.days & bit(day.to_monday_zero_offset()) != 0
    }
}

fn bit(day: i8) -> u8 {
    1 << day.rem_euclid(7)
}

impl FromStr for Hours {
    type Err = BadHours;

    fn from_str(text: &str) -> Result<Hours, BadHours> {
        let bad = |part: &str, why| BadHours(gtp_text::of_text(part.trim()), why);
        let (mut windows, mut days) = (Vec::new(), None);
        for part in text.split(',') {
            let (named, times) = match part.trim().rsplit_once(char::is_whitespace) {
                Some((named, times)) => (Some(named.trim()), times),
                None if part.contains(':') => (None, part.trim()),
                None => (Some(part.trim()), ""),
            };
            let more = named.map(parse_days).transpose().map_err(|why| bad(part, why))?;
            days = match (days, more) {
                (None, more) => more,
                (Some(days), Some(more)) => Some(days | more),
                (Some(_), None) => return Err(bad(part, "does not follow a list of days")),
            };
            if !times.is_empty() {
                let (from, to) = parse_times(times).map_err(|why| bad(part, why))?;
                windows.push(Window { days: days.take().unwrap_or(EVERY_DAY), from, to });
            }
        }
        if days.is_some() || windows.is_empty() {
            return Err(bad(text, "has no times behind its last day"));
        }
        if windows.len() > WINDOWS_MOST {
            return Err(bad(text, "has more than 32 windows"));
        }
        Ok(Hours(windows))
    }
}

fn parse_days(text: &str) -> Result<u8, &'static str> {
    let day = |name: &str| {
        let at = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
        at.and_then(|at| i8::try_from(at).ok()).ok_or("names no day (mon, tue, ... sun)")
    };
    let Some((first, last)) = text.split_once('-') else { return Ok(bit(day(text)?)) };
    let (first, last) = (day(first)?, day(last)?);
    let count = (last - first).rem_euclid(7) + 1;
    Ok((0..count).fold(0, |days, n| days | bit(first + n)))
}

fn parse_times(text: &str) -> Result<(u16, u16), &'static str> {
    let time = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let two = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        let both = Some((hour, minute)).filter(|(hour, minute)| two(hour) && two(minute));
        let (hour, minute) = both?;
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        Some(hour * 60 + minute).filter(|&time| minute < 60 && time <= DAY)
    };
    let none = "has no times such as 20:00-06:00";
    let (from, to) = text.split_once('-').ok_or(none)?;
    let (from, to) = (time(from).ok_or(none)?, time(to).ok_or(none)?);
    match from == to || from == DAY || to == 0 {
        true => Err("has no end after its begin (midnight as an end is 24:00)"),
        false => Ok((from, to)),
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, window) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write_days(f, window.days)?;
            let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
            write!(f, "{}-{}", time(window.from), time(window.to))?;
        }
        Ok(())
    }
}

/// The days with a space behind them, as runs; nothing for all of them.
fn write_days(f: &mut fmt::Formatter<'_>, days: u8) -> fmt::Result {
    if days == EVERY_DAY {
        return Ok(());
    }
    let (mut day, mut comma) = (0, "");
    while day < 7 {
        let first = day;
        while day < 7 && days & (1 << day) != 0 {
            day += 1;
        }
        match day - first {
            0 => {
                day += 1;
                continue;
            }
            1 => write!(f, "{comma}{}", NAMES[first])?,
            _ => write!(f, "{comma}{}-{}", NAMES[first], NAMES[day - 1])?,
        }
        comma = ",";
    }
    f.write_str(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Central Europe: one hour before UTC, two in summer; clocks change at 01:00 UTC on the last
    /// Sundays of March and October.
    fn zone() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    /// A moment by the clock in UTC.
    fn at(utc: &str) -> LocalTime {
        LocalTime::new(format!("{utc}:00Z").parse().unwrap(), zone())
    }

    fn hours(text: &str) -> Hours {
        text.parse().unwrap()
    }

    fn covers(text: &str, utc: &str) -> bool {
        hours(text).cover(&at(utc))
    }

    fn opens(text: &str, utc: &str) -> String {
        Hours::all(&[&hours(text)], &at(utc)).unwrap_err().opens.unwrap().to_string()
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        // 2026-11-30 is a Monday; local time is an hour before UTC.
        let nights = "mon-fri 20:00-06:00";
        assert!(!covers(nights, "2026-11-30T04:30"), "the night of Sunday is not in it");
        assert!(!covers(nights, "2026-11-30T18:59") && covers(nights, "2026-11-30T19:00"));
        assert!(covers(nights, "2026-11-30T23:00") && covers(nights, "2026-12-01T04:59"));
        assert!(!covers(nights, "2026-12-01T05:00"));
        assert!(covers(nights, "2026-12-05T04:59"), "Friday's ends on Saturday");
        assert!(!covers(nights, "2026-12-05T19:30"));
        assert_eq!(opens(nights, "2026-12-05T05:00"), "2026-12-07T19:00:00Z");
        assert!(
            covers("00:00-24:00", "2026-12-05T23:00") && covers("00:00-24:00", "2026-12-05T22:59")
        );
        assert!(Hours::default().cover(&at("2026-12-05T23:00")));
    }

    #[test]
    fn a_night_in_which_clocks_change_is_as_long_as_its_clock_times_say() {
        // In the night to 2026-10-25 the hour from 02:00 comes twice: ten hours are eleven.
        let nights = hours("20:00-06:00");
        let (from, to) = ("2026-10-24T18:00", "2026-10-25T05:00");
        assert!(nights.cover(&at(from)) && !nights.cover(&at(to)));
        assert_eq!(nights.turn(&at(from)), Some(at(to).at()));
        // In the night to 2026-03-29 it is left out: ten hours are nine.
        let (from, to) = ("2026-03-28T19:00", "2026-03-29T04:00");
        assert!(nights.cover(&at(from)) && !nights.cover(&at(to)));
        assert_eq!(nights.turn(&at(from)), Some(at(to).at()));
    }

    #[test]
    fn a_time_that_is_left_out_is_as_much_later_and_of_one_that_comes_twice_the_first_counts() {
        let begins = |text: &str, utc: &str| opens(text, utc);
        assert_eq!(begins("02:30-05:00", "2026-03-29T00:00"), "2026-03-29T01:30:00Z");
        assert_eq!(begins("02:30-05:00", "2026-10-25T00:00"), "2026-10-25T00:30:00Z");
        assert!(!covers("01:00-02:30", "2026-10-25T01:00"), "it ended at the first 02:30");
    }

    #[test]
    fn what_several_lists_leave_open_begins_with_the_last_of_them() {
        let (days, nights) = (hours("mon-fri 08:00-22:00"), hours("20:00-06:00"));
        let all = |utc: &str| Hours::all(&[&days, &nights], &at(utc));
        assert_eq!(all("2026-11-30T20:00"), Ok(()));
        let opens = |utc: &str| all(utc).unwrap_err().opens.map(|at| at.to_string());
        assert_eq!(opens("2026-11-30T12:00").as_deref(), Some("2026-11-30T19:00:00Z"));
        assert_eq!(opens("2026-12-04T22:00").as_deref(), Some("2026-12-07T19:00:00Z"));
        let never = hours("07:00-08:00");
        let said = Hours::all(&[&never, &nights], &at("2026-12-04T22:00")).unwrap_err();
        assert_eq!(said.opens, None);
        assert!(said.words(&at("2026-12-04T22:00")).contains("two weeks"));
    }

    #[test]
    fn hours_end_with_the_first_list_that_ends_and_not_between_windows_that_adjoin() {
        let (days, nights) = (hours("mon-fri 08:00-22:00"), hours("20:00-24:00, 00:00-06:00"));
        let until =
            |all: &[&Hours], utc: &str| Hours::until(all, &at(utc)).map(|until| until.to_string());
        let both = [&days, &nights];
        assert_eq!(until(&both, "2026-11-30T20:00").as_deref(), Some("2026-11-30T21:00:00Z"));
        assert_eq!(until(&both, "2026-11-30T12:00"), None, "it is not within them");
        let (one, always) = ([&nights], [&Hours::default(), &hours("00:00-24:00")]);
        assert_eq!(until(&one, "2026-11-30T20:00").as_deref(), Some("2026-12-01T05:00:00Z"));
        assert_eq!(until(&always, "2026-11-30T20:00"), None, "it never ends");
    }

    #[test]
    fn hours_are_said_as_they_are_read() {
        for (text, said) in [
            ("Mon-Fri 20:00-06:00", "mon-fri 20:00-06:00"),
            ("sat,sun 00:00-24:00", "sat-sun 00:00-24:00"),
            ("sat-mon 01:00-02:00", "mon,sat-sun 01:00-02:00"),
            ("mon-sun 01:00-02:00,  wed 03:00-04:00", "01:00-02:00, wed 03:00-04:00"),
            ("mon,wed,thu-fri 10:00-11:00", "mon,wed-fri 10:00-11:00"),
        ] {
            assert_eq!(hours(text).to_string(), said);
            assert_eq!(hours(said), hours(text));
        }
        let now = at("2026-11-30T12:00");
        let words = Closed { opens: Some(at("2026-11-30T19:00").at()) }.words(&now);
        assert_eq!(words, "they begin again on Mon 2026-11-30 20:00 (+01), the server's time");
    }

    #[test]
    fn what_says_no_hours_is_refused() {
        for bad in [
            "",
            "mon",
            "mon-fri",
            "20:00",
            "20:00-20:00",
            "24:00-06:00",
            "20:00-00:00",
            "25:00-26:00",
            "8:00-10:00",
            "20:60-21:00",
            "moon 20:00-21:00",
            "mon-fri 20:00-06:00,",
            "mon 20:00-06:00,tue",
            "mon, 20:00-06:00",
            "+1:00-02:00",
            "mon-fri-sat 10:00-11:00",
        ] {
            assert!(bad.parse::<Hours>().is_err(), "{bad:?}");
        }
        let many = vec!["10:00-11:00"; WINDOWS_MOST + 1].join(",");
        assert!(many.parse::<Hours>().is_err());
        assert!(many[12..].parse::<Hours>().is_ok());
    }

    proptest! {
        #[test]
        fn two_windows_that_make_up_the_day_cover_each_moment_once(
            minute in 0_i64..60 * 24 * 365,
            (one, other) in (1_u16..DAY, 1_u16..DAY).prop_filter("two", |(a, b)| a != b),
        ) {
            let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
            let (one, other) = (time(one), time(other));
            let first = hours(&format!("{one}-{other}"));
            let second = hours(&format!("{other}-{one}"));
            let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            let now = begin.saturating_add(Span::new().minutes(minute)).unwrap();
            let now = LocalTime::new(now, zone());
            prop_assert!(first.cover(&now) != second.cover(&now));
            // Nothing changes before the next turn.
            let turn = first.turn(&now).unwrap();
            let before = turn.saturating_sub(Span::new().seconds(1)).unwrap();
            prop_assert_eq!(first.cover(&now.then(before)), first.cover(&now));
        }
    }
}
