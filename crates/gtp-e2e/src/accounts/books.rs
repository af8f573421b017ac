//! What a server has written down: its audit, its log and its numbers, read and compared.
//!
//! The audit is held against the transfers, and the other two against the audit. How transfers are
//! made is not known here.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Ended;
use super::transfers::Kind;
use crate::numbers::sum;

/// Everything that is written down.
pub(super) struct Books {
    begins: usize,
    /// Each end of a session.
    pub(super) ends: Vec<Entry>,
    /// Refusals that the audit records or counts.
    refused: u64,
    pub(super) log: Log,
    page: String,
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    session: u64,
    verb: String,
    /// The last name of its path.
    name: String,
    bytes: u64,
    wire_bytes: u64,
    files: u64,
    outcome: String,
}

/// What the log has of sessions.
pub(super) struct Log {
    lines: u64,
    /// Lines about sessions that the log counts and does not have.
    pub(super) left_out: u64,
    ends: Vec<Entry>,
}

impl Entry {
    fn read(record: &Value, path: &str) -> Result<Entry> {
        let number =
            |name: &str| record[name].as_u64().with_context(|| format!("{name}: {record}"));
        let word = |name: &str| record[name].as_str().with_context(|| format!("{name}: {record}"));
        let name = word(path)?.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Entry {
            session: number("session")?,
            verb: word("verb")?.to_owned(),
            name,
            bytes: number("bytes")?,
            wire_bytes: number("wire_bytes")?,
            files: number("files")?,
            outcome: word("outcome")?.to_owned(),
        })
    }
}

impl Books {
    pub(super) fn read(audit: &str, log: &str, page: String) -> Result<Books> {
        let (mut begins, mut ends, mut refused) = (0, Vec::new(), 0);
        for record in records(audit)? {
            match record["event"].as_str() {
                Some("begin") => begins += 1,
                Some("end") => ends.push(Entry::read(&record, "path")?),
                Some("refused") => refused += 1 + record["left_out_before"].as_u64().unwrap_or(0),
                other => anyhow::bail!("the audit has {other:?}: {record}"),
            }
        }
        Ok(Books { begins, ends, refused, log: Log::read(log)?, page })
    }

    /// Whether nothing is under way any more, and so many refusals are counted.
    pub(super) fn are_whole(&self, refused: usize) -> bool {
        let is_counted = sum(&self.page, "sessions_total", &[]) as usize == self.ends.len();
        let told = self.log.lines + self.log.left_out;
        self.begins == self.ends.len()
            && is_counted
            && told == 2 * self.begins as u64
            && sum(&self.page, "refused_total", &[]) as usize == refused
    }

    pub(super) fn content_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.bytes).sum()
    }

    /// What is not as it should be.
    pub(super) fn judge(&self, ended: &[Ended], missed: &mut Vec<String>) {
        if self.begins != self.ends.len() {
            missed.push(format!("{} sessions began, {} ended", self.begins, self.ends.len()));
        }
        let mut of_transfer = BTreeMap::<(&str, String), Vec<&Entry>>::new();
        for end in &self.ends {
            of_transfer.entry((&end.verb, end.name.clone())).or_default().push(end);
        }
        for transfer in ended {
            let key = (transfer.kind.verb(), transfer.name());
            missed.extend(transfer.wrong(&of_transfer.remove(&key).unwrap_or_default()));
        }
        missed.extend(of_transfer.values().map(|ends| format!("of no transfer: {ends:?}")));
        self.compare_numbers(missed);
        self.compare_refusals(ended, missed);
        self.compare_log(missed);
    }

    fn compare_numbers(&self, missed: &mut Vec<String>) {
        let mut by = BTreeMap::<(&str, &str), [u64; 4]>::new();
        for end in &self.ends {
            let sums = by.entry((&end.verb, &end.outcome)).or_default();
            let of_one = [1, end.bytes, end.wire_bytes, end.files];
            sums.iter_mut().zip(of_one).for_each(|(sum, more)| *sum += more);
        }
        let mut verbs = BTreeMap::<&str, [u64; 4]>::new();
        for ((verb, outcome), sums) in by {
            let all = verbs.entry(verb).or_default();
            all.iter_mut().zip(sums).for_each(|(all, more)| *all += more);
            let labels = [format!("verb=\"{verb}\""), format!("outcome=\"{outcome}\"")];
            let labels = labels.each_ref().map(|label| &label[..]);
            self.compare("sessions_total", &labels, sums[0], missed);
            self.compare("ends_total", &labels, sums[0], missed);
        }
        let families = ["session_seconds_count", "content_bytes_total", "wire_bytes_total"];
        for (verb, sums) in verbs {
            let label = format!("verb=\"{verb}\"");
            for (family, sum) in families.into_iter().chain(["files_total"]).zip(sums) {
                self.compare(family, &[&label], sum, missed);
            }
            self.compare("running_sessions", &[&label], 0, missed);
        }
        let all = self.ends.len() as u64;
        self.compare("sessions_total", &[], all, missed);
        self.compare("ends_total", &[], all, missed);
    }

    fn compare_refusals(&self, ended: &[Ended], missed: &mut Vec<String>) {
        let of = |kind: Kind| ended.iter().filter(|ended| ended.kind == kind).count() as u64;
        for (kind, whose) in [(Kind::NotAllowed, "listed"), (Kind::Stranger, "stranger")] {
            let labels = ["why=\"not_allowed\"", &format!("whose=\"{whose}\"")];
            self.compare("refused_total", &labels, of(kind), missed);
        }
        let all = of(Kind::NotAllowed) + of(Kind::Stranger);
        self.compare("refused_total", &[], all, missed);
        // Those after the last record are told by the next one.
        if self.refused > all {
            missed.push(format!("{all} refused, {} in the audit", self.refused));
        }
    }

    fn compare(&self, family: &str, labels: &[&str], should: u64, missed: &mut Vec<String>) {
        let is = sum(&self.page, family, labels);
        if is != should as f64 {
            missed.push(format!("{family} {labels:?}: {is} in the numbers, {should} in the audit"));
        }
    }

    fn compare_log(&self, missed: &mut Vec<String>) {
        let (lines, left_out) = (self.log.lines, self.log.left_out);
        let should = (self.begins + self.ends.len()) as u64;
        if lines + left_out != should {
            missed.push(format!("log: {lines} lines and {left_out} left out, not {should}"));
        }
        let audit: BTreeMap<u64, &Entry> = self.ends.iter().map(|end| (end.session, end)).collect();
        let strange = self.log.ends.iter().filter(|end| audit.get(&end.session) != Some(end));
        missed.extend(strange.map(|end| format!("in the log and not so in the audit: {end:?}")));
    }
}

impl Log {
    fn read(log: &str) -> Result<Log> {
        let (mut lines, mut left_out, mut ends) = (0, 0, Vec::new());
        for record in records(log)? {
            match record["message"].as_str() {
                Some("session begins") => lines += 1,
                Some("session ends") => {
                    lines += 1;
                    ends.push(Entry::read(&record, "object")?);
                }
                Some(words) if words.starts_with("left out here") => {
                    left_out += record["sessions"].as_u64().context("no sessions")?;
                }
                _ => {}
            }
        }
        Ok(Log { lines, left_out, ends })
    }
}

impl Ended {
    /// The last name of its path at the server.
    fn name(&self) -> String {
        let letter = match self.kind {
            Kind::Gets | Kind::GetCut | Kind::Stranger => 'g',
            Kind::Misses => 'm',
            Kind::Puts | Kind::PutCut | Kind::TooLarge | Kind::NotAllowed => 'p',
        };
        format!("{letter}{}", self.number)
    }

    /// What of these ends is not one of this transfer's.
    fn wrong(&self, ends: &[&Entry]) -> Option<String> {
        let is = |end: &Entry, outcome: &str, bytes: u64, files: u64| {
            end.outcome == outcome && end.bytes == bytes && end.files == files
        };
        let is_right = match (self.kind, ends) {
            (Kind::Gets | Kind::Puts, [end]) => is(end, "done", self.size, 1),
            (Kind::Misses, [end]) => is(end, "missing", 0, 0),
            (Kind::TooLarge, [end]) => is(end, "quota", 0, 0),
            (Kind::NotAllowed | Kind::Stranger, []) => true,
            // It may have been killed before it was there, or after it was done.
            (Kind::GetCut | Kind::PutCut, []) => true,
            (Kind::GetCut | Kind::PutCut, [end]) if end.outcome == "done" => {
                is(end, "done", self.size, 1)
            }
            (Kind::GetCut | Kind::PutCut, [end]) => end.bytes <= self.size && end.files == 0,
            _ => false,
        };
        let say = || format!("{} {}: in the audit {ends:?}", self.kind.word(), self.name());
        (!is_right).then(say)
    }
}

/// The records of a file that has one on each line; a last line that is not whole yet is none.
fn records(text: &str) -> Result<Vec<Value>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
    whole.lines().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A get of one byte that ended well, and a stranger, as a server writes them down.
    struct Written {
        audit: Vec<Value>,
        log: Vec<Value>,
        page: Vec<String>,
    }

    impl Written {
        fn new() -> Written {
            let end = |event: &str, path: &str| {
                json!({"event": event, "message": "session ends", "session": 1, "verb": "get",
                    path: "data/g0", "bytes": 1, "wire_bytes": 90, "files": 1, "outcome": "done"})
            };
            let audit = [
                json!({"event": "begin", "session": 1}),
                end("end", "path"),
                json!({"event": "refused", "left_out_before": 0}),
            ];
            let log = [json!({"message": "session begins"}), end("", "object")];
            let page = [
                "sessions_total{verb=\"get\",outcome=\"done\"} 1",
                "ends_total{verb=\"get\",outcome=\"done\"} 1",
                "session_seconds_count{verb=\"get\"} 1",
                "content_bytes_total{verb=\"get\"} 1",
                "wire_bytes_total{verb=\"get\"} 90",
                "files_total{verb=\"get\"} 1",
                "refused_total{why=\"not_allowed\",whose=\"stranger\"} 1",
            ];
            let page = page.map(|line| format!("gtp_serve_{line}"));
            Written { audit: audit.into(), log: log.into(), page: page.into() }
        }

        fn missed(&self) -> Vec<String> {
            let lines = |records: &[Value]| -> String {
                records.iter().map(|record| format!("{record}\n")).collect()
            };
            let books =
                Books::read(&lines(&self.audit), &lines(&self.log), self.page.join("\n")).unwrap();
            let ended = [(0, Kind::Gets), (1, Kind::Stranger)];
            let ended = ended.map(|(number, kind)| Ended { number, kind, size: 1 });
            let mut missed = Vec::new();
            books.judge(&ended, &mut missed);
            missed
        }
    }

    #[test]
    fn books_that_agree_with_what_was_moved_miss_nothing() {
        assert_eq!(Written::new().missed(), Vec::<String>::new());
    }

    #[test]
    fn an_end_that_is_written_twice_or_not_at_all_or_with_other_bytes_is_missed() {
        let mut twice = Written::new();
        twice.audit.push(twice.audit[1].clone());
        assert!(twice.missed().iter().any(|missed| missed.starts_with("gets g0:")));
        let mut gone = Written::new();
        gone.audit.remove(1);
        assert!(gone.missed().iter().any(|missed| missed == "1 sessions began, 0 ended"));
        let mut other = Written::new();
        other.audit[1]["bytes"] = 2.into();
        assert!(other.missed().iter().any(|missed| missed.starts_with("gets g0:")));
        assert!(other.missed().iter().any(|missed| missed.starts_with("content_bytes_total")));
    }

    #[test]
    fn numbers_and_a_log_that_say_something_else_are_missed() {
        let mut numbers = Written::new();
        numbers.page[6] = numbers.page[6].replace("} 1", "} 2");
        assert_eq!(numbers.missed().len(), 2, "{:?}", numbers.missed());
        let mut short = Written::new();
        short.log.remove(0);
        assert_eq!(short.missed(), ["log: 1 lines and 0 left out, not 2"]);
        short.log.push(json!({"message": "left out here: …", "sessions": 1}));
        assert_eq!(short.missed(), Vec::<String>::new());
    }
}
