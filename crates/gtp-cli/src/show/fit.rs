//! Lines for terminals of any width: what matters less is left out, and no word is broken.
//!
//! A line is written in several forms, from the longest to the shortest; the first one that fits is
//! shown. Only where even the shortest does not fit is it cut, with a mark. Texts and numbers go
//! in, a line comes out: nothing here knows a terminal.

use console::measure_text_width;
use gtp::{Progress, Rate, SourceShare};

use crate::limit::Ends;
use crate::words::{say_bytes, say_rate, say_seconds};

/// How a whole transfer is doing.
pub struct Whole {
    /// Bytes in place.
    pub bytes: u64,
    /// Bytes in all; 0 for a stream, whose end nobody knows.
    pub total: u64,
    /// Its files.
    pub files: Files,
    /// How it moves, or what goes on instead.
    pub pace: Pace,
}

/// How many files of a transfer are whole, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    done: u64,
    all: u64,
}

impl Files {
    /// Those of a transfer that is doing so.
    pub fn of(progress: &Progress) -> Files {
        Files { done: progress.files_done, all: progress.files }
    }

    /// What is said of them: nothing of a single one.
    pub fn words(self) -> Option<String> {
        (self.all > 1).then(|| format!("{} of {} files", self.done, self.all))
    }
}

/// How a transfer moves.
pub enum Pace {
    /// At this rate, to its end in so many seconds.
    Moving(Rate, Option<f64>),
    /// What is here is read again.
    Rechecking,
}

/// Widest bar, in columns.
const BAR_MOST: usize = 30;
/// A narrower bar says nothing.
const BAR_LEAST: usize = 10;

/// The line of a whole transfer in so many columns.
pub fn whole_line(whole: &Whole, columns: usize) -> String {
    if let (0, Pace::Moving(rate, _)) = (whole.total, &whole.pace) {
        let (bytes, rate) = (say_bytes(whole.bytes), say_rate(*rate));
        let forms = [format!("{bytes} so far  {rate}"), format!("{bytes}  {rate}"), bytes];
        return first_that_fits(forms, columns);
    }
    let part = whole.bytes as f64 / whole.total.max(1) as f64;
    let percent = format!("{:>3.0} %", 100.0 * part.clamp(0.0, 1.0));
    let of = format!("{} of {}", say_bytes(whole.bytes), say_bytes(whole.total));
    let forms = match &whole.pace {
        Pace::Rechecking => vec![
            format!("{percent}  {of}  reading again what is here"),
            format!("{percent}  reading again what is here"),
            format!("{percent}  reading again"),
        ],
        Pace::Moving(rate, left) => {
            let rate = say_rate(*rate);
            let left = left.map_or(String::new(), |left| format!(", {} left", say_seconds(left)));
            let files = whole.files.words();
            let files = files.map(|files| format!("{percent}  {of}, {files}  {rate}{left}"));
            vec![
                files.unwrap_or_default(),
                format!("{percent}  {of}  {rate}{left}"),
                format!("{percent}  {rate}{left}"),
                format!("{percent}  {rate}"),
            ]
        }
    };
    let forms = forms.into_iter().filter(|form| !form.is_empty());
    let line = first_that_fits(forms.chain([percent]), columns);
    let spare = columns.saturating_sub(measure_text_width(&line) + 1).min(BAR_MOST);
    if spare < BAR_LEAST {
        return line;
    }
    let full = ((spare as f64 * part.clamp(0.0, 1.0)) as usize).min(spare);
    format!("{}{} {line}", "█".repeat(full), "░".repeat(spare - full))
}

/// The line of one source in so many columns, of a session between these ends.
pub fn source_line(share: &SourceShare, ends: Ends, columns: usize) -> String {
    // The last part of an address tells sources apart less well than all of it, and still does.
    let short = share.url.rsplit_once("://").map_or(share.url.as_str(), |(_, rest)| rest);
    let host = short.split('/').next().unwrap_or(short);
    let names = [share.url.as_str(), short, host];
    let line = |name: &str, rest: &str| format!("  {name}  {rest}");
    if !share.alive {
        let forms = names.map(|name| line(name, "not connected"));
        return first_that_fits(forms.into_iter().chain(["  not connected".into()]), columns);
    }
    let (rate, granted) = (say_rate(share.rate), say_rate(share.granted));
    let (by, loss) = (ends.limit(share.limited_by), 100.0 * share.loss_ratio);
    let ms = share.rtt.as_secs_f64() * 1000.0;
    let rests = [
        format!("{rate} of {granted} granted, limited by {by}, loss {loss:.2} %, {ms:.0} ms"),
        format!("{rate} of {granted} granted, limited by {by}"),
        format!("{rate}, limited by {by}"),
    ];
    let mut forms: Vec<String> = rests.iter().map(|rest| line(names[0], rest)).collect();
    forms.extend(names[1..].iter().map(|name| line(name, &rests[2])));
    forms.extend([format!("  {}", rests[2]), line(host, &rate), format!("  {rate}")]);
    first_that_fits(forms, columns)
}

/// How transfers of the same object to several sinks stand.
pub struct Sinks {
    pub all: usize,
    pub done: usize,
    pub failed: usize,
    /// The one that will be done last, as it looks: its address, the part that it has from 0 to 1,
    /// its rate and what limits that, which is empty where only others know it.
    pub slowest: Option<(String, f64, Rate, String)>,
}

/// The line of several transfers in so many columns.
pub fn sinks_line(sinks: &Sinks, columns: usize) -> String {
    let failed = match sinks.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let whole = format!("{} of {} done{failed}", sinks.done, sinks.all);
    let Some((url, part, rate, by)) = &sinks.slowest else {
        return first_that_fits([whole], columns);
    };
    let percent = format!("{:.0} %", 100.0 * part.clamp(0.0, 1.0));
    let rate = say_rate(*rate);
    let by = if by.is_empty() { String::new() } else { format!(", limited by {by}") };
    let short = url.strip_prefix("gtp://").unwrap_or(url);
    let host = short.split('/').next().unwrap_or(short);
    let forms = [
        format!("{whole}; slowest {url}: {percent}, {rate}{by}"),
        format!("{whole}; slowest {host}: {percent}, {rate}{by}"),
        format!("{whole}; slowest {host}: {percent}, {rate}"),
        format!("{whole}; slowest {percent}"),
        whole,
    ];
    first_that_fits(forms, columns)
}

/// The first form that fits, else the last one, cut.
fn first_that_fits(forms: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut last = String::new();
    for form in forms {
        if measure_text_width(&form) <= columns {
            return form;
        }
        last = form;
    }
    while measure_text_width(&last) >= columns.max(1) && last.pop().is_some() {}
    if columns > 0 { format!("{last}…") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp::Span;

    fn whole() -> Whole {
        let pace = Pace::Moving(Rate::from_mbps(633), Some(754.0));
        let files = Files::default();
        Whole { bytes: 1_234_567_890, total: 9_876_543_210, files, pace }
    }

    fn share(url: &str) -> SourceShare {
        SourceShare {
            url: url.into(),
            bytes: 1,
            wire_bytes: 1,
            duplicate_bytes: 0,
            rate: Rate::from_mbps(317),
            granted: Rate::from_mbps(333),
            limited_by: gtp::LimitedBy::Source,
            path: None,
            loss_ratio: 0.0123,
            rtt: Span::from_millis(42),
            way: gtp::Way::Udp,
            alive: true,
        }
    }

    /// Every word of a line, so that a broken one is noticed.
    fn words(line: &str) -> Vec<&str> {
        line.split(' ').filter(|word| !word.is_empty() && !word.starts_with(['█', '░'])).collect()
    }

    #[test]
    fn no_width_breaks_a_word_or_is_exceeded() {
        let shares = [
            share("gtp://a.example:4810/run42.h5"),
            share("gtp://[2001:db8:1:2:3:4:5:6]:4810/a/very/long/path/to/some/file.h5"),
            SourceShare { alive: false, ..share("gtp://a.example:4810/run42.h5") },
        ];
        let rechecking = Whole { pace: Pace::Rechecking, ..whole() };
        let files = || Whole { files: Files { done: 3, all: 12 }, ..whole() };
        for columns in 0..=200 {
            let mut lines = vec![(whole_line(&whole(), columns), whole_line(&whole(), 500))];
            lines.push((whole_line(&files(), columns), whole_line(&files(), 500)));
            lines.push((whole_line(&rechecking, columns), whole_line(&rechecking, 500)));
            for share in &shares {
                lines.push((
                    source_line(share, Ends::GET, columns),
                    source_line(share, Ends::GET, 500),
                ));
            }
            for (line, all) in lines {
                assert!(measure_text_width(&line) <= columns, "{columns}: {line:?}");
                // Narrower than the shortest form there is nothing to be had but a cut one.
                if columns < 20 {
                    continue;
                }
                let comma = |word: &str| word.trim_end_matches(',').to_owned();
                let known: Vec<String> = words(&all).into_iter().map(comma).collect();
                for word in words(&line).into_iter().map(comma) {
                    let part_of_url = all.contains(&format!("{word}/")) || word.contains(':');
                    assert!(
                        known.contains(&word) || part_of_url,
                        "{columns}: {word:?} of {line:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn files_of_files_are_said_where_there_are_several_and_the_line_has_room() {
        let several = Whole { files: Files { done: 12, all: 340 }, ..whole() };
        let wide = whole_line(&several, 100);
        let words = " 12 %  1.1 GiB of 9.2 GiB, 12 of 340 files  633 Mbit/s, 12:34 min left";
        assert!(wide.ends_with(words), "{wide}");
        assert!(!whole_line(&several, 60).contains("files"));
        assert!(
            !whole_line(&Whole { files: Files { done: 0, all: 1 }, ..whole() }, 100)
                .contains("file")
        );
    }

    #[test]
    fn several_sinks_have_one_line_with_how_many_are_done_and_the_slowest() {
        let slowest =
            Some(("gtp://c:4810/in/".to_owned(), 0.456, Rate::from_mbps(12), "the server".into()));
        let sinks = Sinks { all: 5, done: 2, failed: 1, slowest };
        let line = |columns| sinks_line(&sinks, columns);
        let whole = "2 of 5 done, 1 failed";
        let all =
            format!("{whole}; slowest gtp://c:4810/in/: 46 %, 12.0 Mbit/s, limited by the server");
        assert_eq!(line(120), all);
        assert_eq!(line(45), format!("{whole}; slowest 46 %"));
        assert_eq!(line(22), whole);
        for columns in 0..100 {
            assert!(measure_text_width(&line(columns)) <= columns);
        }
        let ended = Sinks { all: 3, done: 3, failed: 0, slowest: None };
        assert_eq!(sinks_line(&ended, 100), "3 of 3 done");
    }

    #[test]
    fn a_narrow_terminal_shows_rates_with_their_units() {
        assert_eq!(whole_line(&whole(), 20), " 12 %  633 Mbit/s");
        assert_eq!(whole_line(&whole(), 40), " 12 %  633 Mbit/s, 12:34 min left");
        let all = whole_line(&whole(), 60);
        assert!(all.contains(" 12 %  1.1 GiB of 9.2 GiB  633 Mbit/s, 12:34 min left"), "{all}");
        let line =
            |ends, columns| source_line(&share("gtp://a.example:4810/run42.h5"), ends, columns);
        let whole = "  a.example:4810/run42.h5  317 Mbit/s, limited by the server";
        assert_eq!(line(Ends::GET, 60), whole);
        assert_eq!(line(Ends::PUT, 60), whole.replace("the server", "this host"));
        assert_eq!(line(Ends::GET, 40), "  317 Mbit/s, limited by the server");
        assert_eq!(line(Ends::GET, 20), "  317 Mbit/s");
    }
}
