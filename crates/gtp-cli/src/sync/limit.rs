//! `--bwlimit`: a limit of the whole command's rate, or one for each time of day.
//!
//! The limit is set as the capacity of this process's host in both directions, which sessions that
//! run follow within a control interval. Times are those of this machine's clock and time zone.

use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

use gtp::{Host, Rate};
use jiff::ZonedDateTime;
use jiff::civil::Time;

use crate::args::HostArgs;

/// Limits by the time of day from which each holds, sorted; the last one holds on past midnight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit(Vec<(Time, Option<Rate>)>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        if !text.contains(',') {
            return Ok(Limit(vec![(Time::midnight(), rate(text.trim())?)]));
        }
        let mut all = Vec::new();
        for entry in text.split_whitespace() {
            let (at, limit) = entry
                .split_once(',')
                .ok_or_else(|| format!("{entry:?} has no time: expected 08:00,10M"))?;
            let at = time(at).ok_or_else(|| format!("{at:?} is no time of day, as 08:00 is"))?;
            all.push((at, rate(limit)?));
        }
        all.sort_by_key(|(at, _)| *at);
        match all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!("{} is there twice", pair[0].0)),
            None if all.is_empty() => Err("no limit is said".into()),
            None => Ok(Limit(all)),
        }
    }
}

/// HH:MM or HH:MM:SS.
fn time(text: &str) -> Option<Time> {
    let mut parts = text.split(':').map(|part| match part.len() {
        2 => part.parse::<i8>().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit())),
        _ => None,
    });
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() {
        return None;
    }
    Time::new(hour, minute, second, 0).ok()
}

/// A rate as rsync and rclone have it: KiB a second, or with B, K, M or G that unit; or in bits a
/// second as elsewhere here. `None` is no limit.
fn rate(text: &str) -> Result<Option<Rate>, String> {
    if text == "off" || text == "0" {
        return Ok(None);
    }
    if text.ends_with("bit") {
        return crate::words::rate(text).map(Some);
    }
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let bytes = match unit.to_ascii_uppercase().as_str() {
        "B" => 1.0,
        "" | "K" | "KIB" => 1_024.0,
        "M" | "MIB" => 1_048_576.0,
        "G" | "GIB" => 1_073_741_824.0,
        _ => return Err(format!("{text:?} is no rate: expected 512, 10M, 80Mbit or off")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is no rate"))?;
    let bits = number * bytes * 8.0;
    if !(8_000.0..=1e15).contains(&bits) {
        return Err(format!("{text:?}: a limit is 1,000 bytes a second at least"));
    }
    Ok(Some(Rate::from_bps(bits as u64)))
}

impl Limit {
    /// What holds at a time of day.
    fn at(&self, now: Time) -> Option<Rate> {
        let begun = self.0.iter().rev().find(|(from, _)| *from <= now);
        begun.or(self.0.last()).and_then(|(_, rate)| *rate)
    }

    /// How long it is until another may hold.
    fn left(&self, now: Time) -> Duration {
        let next = self.0.iter().find(|(from, _)| *from > now).or(self.0.first());
        let Some((next, _)) = next else { return LOOK_SPAN };
        let seconds = |time: Time| {
            (i64::from(time.hour()) * 60 + i64::from(time.minute())) * 60 + i64::from(time.second())
        };
        let left = (seconds(*next) - seconds(now)).rem_euclid(86_400);
        Duration::from_secs(left.unsigned_abs()).clamp(Duration::from_millis(100), LOOK_SPAN)
    }

    /// Keeps a host to the limit of the hour. Never ends.
    async fn keep(&self, host: &Host, given: &HostArgs) -> Infallible {
        let most = |given: Option<Rate>, limit: Option<Rate>| {
            let given = given.unwrap_or_else(gtp::default_capacity);
            Some(limit.map_or(given, |limit| limit.min(given)))
        };
        let mut known = None;
        loop {
            let now = ZonedDateTime::now().time();
            let limit = self.at(now);
            if known != Some(limit) {
                tracing::debug!(?limit, "another limit holds");
                host.set_capacity(most(given.capacity_out, limit), most(given.capacity_in, limit));
                known = Some(limit);
            }
            // The clock may be set meanwhile, so this looks again before long.
            tokio::time::sleep(self.left(now)).await;
        }
    }
}

/// Does work within a limit, if there is one.
pub async fn within<T>(
    limit: Option<&Limit>,
    host: &Host,
    given: &HostArgs,
    work: impl Future<Output = T>,
) -> T {
    let Some(limit) = limit else { return work.await };
    tokio::select! {
        done = work => done,
        never = limit.keep(host, given) => match never {},
    }
}

/// Time between two looks at the clock, which somebody may set.
const LOOK_SPAN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(limit: &str, at: &str) -> Option<u64> {
        limit.parse::<Limit>().unwrap().at(time(at).unwrap()).map(Rate::as_bps)
    }

    #[test]
    fn a_limit_holds_from_its_time_to_the_next_and_the_last_one_past_midnight() {
        let table = "18:00,off 08:00,10M 12:30,512";
        let (ten, half) = (Some(80 << 20), Some(8 << 19));
        for (at, expected) in [
            ("00:00", None),
            ("07:59:59", None),
            ("08:00", ten),
            ("12:29", ten),
            ("12:30", half),
            ("17:59", half),
            ("18:00", None),
            ("23:59", None),
        ] {
            assert_eq!(holds(table, at), expected, "{at}");
        }
        assert_eq!(holds("08:00,10M", "03:00"), ten);
        assert_eq!(holds("1.5M", "03:00"), Some(24 << 19));
        assert_eq!(holds("80Mbit", "03:00"), Some(80_000_000));
    }

    #[test]
    fn the_next_look_is_when_the_next_limit_begins_and_a_minute_later_at_most() {
        let table: Limit = "08:00:10,10M 18:00,off".parse().unwrap();
        let left = |at: &str| table.left(time(at).unwrap()).as_secs();
        assert_eq!((left("08:00:00"), left("08:00:10"), left("17:59:58")), (10, 60, 2));
        let midnight: Limit = "00:00,1M 12:00,off".parse().unwrap();
        assert_eq!(midnight.left(time("23:59:57").unwrap()).as_secs(), 3);
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for bad in [
            "",
            "x",
            "10X",
            "08:00",
            "8:00,1M",
            "24:00,1M",
            "08:00,1M 08:00,2M",
            "-1M",
            "08:00,1M 10M",
            "1B",
            "1e30",
            "nan",
            "08:00:00:00,1M",
            "+8:00,1M",
        ] {
            assert!(bad.parse::<Limit>().is_err(), "{bad:?}");
        }
    }
}
