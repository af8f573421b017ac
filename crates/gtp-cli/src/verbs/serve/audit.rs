//! The audit: a file of JSON lines that says who read, wrote and changed what, and how it ended.
//!
//! Records are appended by a thread of their own, so that a disk that stands still does not stop
//! the server. No record is lost in silence: those that cannot be written, or for which there is no
//! room in memory, are counted, and the first record after a gap says how many are missing.
//! Refusals are rationed, because anybody can cause them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gtp::{
    Bucket, Change, Failure, FailureKind, Moved, Objects, Request, Room, ServerEvent, Visit, Whose,
};
use gtp_sys::Clock;
use rustix::fs::{Access as FileAccess, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::teller::outcome;
use crate::log::{self, SERVER};

/// The way to the thread that writes the audit.
pub struct Audit {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    clock: Clock,
    /// Of listed clients and of strangers: these must not hide those.
    refusals: [Refusals; 2],
}

/// Which refusals are recorded.
struct Refusals {
    ration: Bucket,
    /// Those that the ration left out, and that no record has told of.
    left_out: u64,
}

struct Shared {
    /// Bytes of records that wait.
    waiting: AtomicUsize,
    /// Records lost since the start.
    lost: AtomicU64,
    /// Records lost for want of room, and not told yet.
    dropped: AtomicU64,
    /// Why the last record was lost.
    why: RwLock<String>,
}

enum Job {
    /// A record; room for more of a client's changes is given back when it is written.
    Write(Vec<u8>, Option<Room>),
    Reopen(PathBuf),
    Drain(SyncSender<()>),
}

/// Bytes of records that wait at most.
const WAITING_MOST: usize = 16 << 20;

/// Refusals that are recorded, of listed clients and of strangers each: a second, and at once.
const REFUSALS: Bucket = Bucket::new(5, 20);

/// Characters of the path of a refusal that are recorded: anybody can cause them.
const REFUSED_PATH_MOST: usize = 256;

/// How long the end of the process waits for the last records.
const DRAIN_SPAN: Duration = Duration::from_secs(5);

impl Audit {
    /// Opens the file, which is made with mode 0600 if it is not there, and starts the thread.
    ///
    /// # Errors
    /// [`FailureKind::Destination`] if it cannot be opened for appending.
    pub fn open(path: &Path) -> Result<Audit, Failure> {
        let failed = |error: io::Error| cannot_be_kept(path, &error);
        let (file, torn) = open(path).map_err(failed)?;
        let shared = Arc::new(Shared {
            waiting: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            why: RwLock::default(),
        });
        let (jobs, todo) = channel();
        let writer =
            Writer { path: path.to_owned(), file, shared: Arc::clone(&shared), missing: 0, torn };
        let thread = std::thread::Builder::new().name("gtp-audit".into());
        thread.spawn(move || writer.work(&todo)).map_err(failed)?;
        let refusals = [(), ()].map(|()| Refusals { ration: REFUSALS, left_out: 0 });
        Ok(Audit { jobs, shared, clock: Clock::start(), refusals })
    }

    /// Looks whether the file could be opened, as far as that shows without making it.
    ///
    /// # Errors
    /// As [`Audit::open`].
    pub fn judge(path: &Path) -> Result<(), Failure> {
        let may = |path: &Path, access| {
            accessat(CWD, path, access, AtFlags::EACCESS).map_err(io::Error::from)
        };
        let judged = match may(path, FileAccess::WRITE_OK) {
            Ok(()) if path.is_dir() => Err(Errno::ISDIR.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                let dir = dir.unwrap_or(Path::new("."));
                may(dir, FileAccess::WRITE_OK | FileAccess::EXEC_OK)
            }
            judged => judged,
        };
        judged.map_err(|error| cannot_be_kept(path, &error))
    }

    /// Records an event, if it is one for the audit.
    pub fn record(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::Started { visit } => self.write(&[begin(visit)], None),
            ServerEvent::Ended { visit, moved, objects, failure } => {
                self.write(&[end(visit, moved, objects, failure.as_ref())], None);
            }
            ServerEvent::Changed { visit, changes, room } => {
                let lines: Vec<Value> = changes.iter().map(|step| change(visit, step)).collect();
                self.write(&lines, Some(room));
            }
            ServerEvent::Refused { request: Some(request), client, failure, whose, reason } => {
                let [listed, strangers] = &mut self.refusals;
                let of = if *whose == Whose::Listed { listed } else { strangers };
                if of.ration.take(self.clock.now()) {
                    let left_out = std::mem::take(&mut of.left_out);
                    let mut record = refused(request, &client.to_string(), failure, left_out);
                    record["reason"] = reason.as_str().into();
                    self.write(&[record], None);
                } else {
                    of.left_out += 1;
                }
            }
            // These proved no key.
            ServerEvent::Refused { request: None, .. } | ServerEvent::TurnedAway { .. } => {}
            ServerEvent::Missed { count } => {
                let why = "events came faster than they were taken";
                self.shared.lose(*count, why);
                self.write(&[missing(*count, why)], None);
            }
            ServerEvent::KeysRead { .. }
            | ServerEvent::KeysUnreadable { .. }
            | ServerEvent::KeysUsable { .. } => {}
        }
    }

    /// Has the file at this path opened, because the one that is open was moved away, or the
    /// records are to be elsewhere from now on. If it cannot be opened, the open one stays.
    pub fn reopen(&self, path: &Path) {
        self.give(Job::Reopen(path.to_owned()));
    }

    /// Records that were lost since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Waits until all records are written, for five seconds at most. Returns a failure that says
    /// how many records were lost since the start, if any were.
    pub fn close(self) -> Option<Failure> {
        self.close_within(DRAIN_SPAN)
    }

    /// The same, within another time.
    pub fn close_within(mut self, span: Duration) -> Option<Failure> {
        let left_out = self.refusals.iter().map(|of| of.left_out).sum();
        if left_out > 0 {
            let why = "refusals beyond five a second are not recorded";
            self.write(&[missing(left_out, why)], None);
        }
        let (done, written) = sync_channel(1);
        self.give(Job::Drain(done));
        if written.recv_timeout(span).is_err() {
            let text = "the last records of the audit may be lost: its file does not take them";
            return Some(Failure::new(FailureKind::Destination, text));
        }
        let lost = self.shared.lost.load(Ordering::Relaxed);
        let why = self.shared.why.read().unwrap_or_else(PoisonError::into_inner);
        let text = format!("{} of the audit lost: {why}", gtp_text::count(lost, "record"));
        (lost > 0).then(|| Failure::new(FailureKind::Destination, text))
    }

    fn write(&mut self, records: &[Value], room: Option<&Room>) {
        let lines = records
            .iter()
            .map(|record| format!("{}\n", gtp_text::escape_json(&record.to_string())).into_bytes());
        for line in lines {
            let waiting = self.shared.waiting.load(Ordering::Relaxed);
            if waiting + line.len() > WAITING_MOST {
                let why = "its disk does not keep up";
                self.shared.lose(1, why);
                if self.shared.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(target: SERVER, "records of the audit are lost: {why}");
                }
                continue;
            }
            self.shared.waiting.fetch_add(line.len(), Ordering::Relaxed);
            self.give(Job::Write(line, room.cloned()));
        }
    }

    fn give(&self, job: Job) {
        // The thread lives as long as this value.
        let _ = self.jobs.send(job);
    }
}

impl Shared {
    fn lose(&self, records: u64, why: &str) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        *self.why.write().unwrap_or_else(PoisonError::into_inner) = why.to_owned();
    }
}

/// What the thread has.
struct Writer {
    path: PathBuf,
    file: File,
    shared: Arc<Shared>,
    /// Records that could not be written, and that the file does not tell of.
    missing: u64,
    /// Whether the file ends in the middle of a record.
    torn: bool,
}

impl Writer {
    fn work(mut self, todo: &Receiver<Job>) {
        for job in todo {
            match job {
                Job::Write(line, _room) => {
                    self.write(&line);
                    self.shared.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Job::Reopen(path) => match open(&path) {
                    Ok((file, torn)) => (self.path, self.file, self.torn) = (path, file, torn),
                    Err(error) => tracing::error!(
                        target: SERVER, %error, path = %path.display(),
                        "the audit cannot be opened anew, and goes on in the file that was open"
                    ),
                },
                // Nobody may be waiting any more.
                Job::Drain(done) => drop(done.try_send(())),
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        self.missing += self.shared.dropped.swap(0, Ordering::Relaxed);
        let was_whole = self.missing == 0;
        let told = match was_whole {
            true => Ok(()),
            false => {
                let note = missing(self.missing, "they could not be written");
                self.append(format!("{note}\n").as_bytes())
            }
        };
        if told.is_ok() {
            self.missing = 0;
        }
        if let Err(error) = told.and_then(|()| self.append(line)) {
            self.missing += 1;
            self.shared.lose(1, &error.to_string());
            if was_whole {
                tracing::error!(
                    target: SERVER, %error, path = %self.path.display(),
                    "the audit cannot be written: records are lost from here on"
                );
            }
        } else if !was_whole {
            tracing::warn!(target: SERVER, "the audit can be written again");
        }
    }

    /// Writes a whole line. Where the one before it was cut, that one is ended first.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let line = if self.torn { [b"\n", line].concat() } else { line.to_vec() };
        let mut left = line.as_slice();
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = left.get(written..).unwrap_or_default();
                    self.torn = !left.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn cannot_be_kept(path: &Path, error: &io::Error) -> Failure {
    let text = format!("the audit cannot be kept: {}: {error}", path.display());
    Failure::new(FailureKind::Destination, text)
}

/// Opens the file, and says whether it ends in the middle of a record: a process that wrote it was
/// killed, or its disk was full.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let meta = file.metadata()?;
    let Some(last) = meta.len().checked_sub(1).filter(|_| meta.is_file()) else {
        return Ok((file, false));
    };
    let mut end = [b'\n'];
    // Whoever may write the file need not be allowed to read it: an empty line does no harm then.
    let seen = File::open(path).and_then(|file| file.read_at(&mut end, last));
    let torn = seen.is_err() || end != [b'\n'];
    Ok((file, torn))
}

fn begin(visit: &Visit) -> Value {
    let mut record = of_request("begin", &visit.request, &visit.client.to_string());
    record["session"] = visit.id.into();
    record
}

fn end(visit: &Visit, moved: &Moved, objects: &Objects, failure: Option<&Failure>) -> Value {
    let mut record = begin(visit);
    record["event"] = "end".into();
    if !objects.paths.is_empty() {
        record["objects"] = objects.paths.as_slice().into();
    }
    if objects.more > 0 {
        record["objects_more"] = objects.more.into();
    }
    record["bytes"] = moved.content_bytes.into();
    record["wire_bytes"] = moved.wire_bytes.into();
    record["files"] = moved.files.into();
    record["changes"] = moved.changes.into();
    record["seconds"] = moved.span.as_secs_f64().into();
    record["outcome"] = outcome(failure).into();
    record["why"] = failure.map(|failure| failure.text.as_str()).into();
    record
}

fn change(visit: &Visit, step: &Change) -> Value {
    let mut record = begin(visit);
    let tree = &visit.request.path;
    let path = [tree, &step.path].into_iter().filter(|part| !part.is_empty());
    let path: Vec<&str> = path.map(String::as_str).collect();
    record["event"] = "change".into();
    record["change"] = step.what.into();
    record["path"] = path.join("/").into();
    record["to"] = step.to.as_deref().into();
    record["outcome"] = if step.failure.is_none() { "done" } else { "failed" }.into();
    record["why"] = step.failure.as_deref().into();
    record
}

fn refused(request: &Request, client: &str, failure: &Failure, left_out: u64) -> Value {
    let mut record = of_request("refused", request, client);
    if let Some((at, _)) = request.path.char_indices().nth(REFUSED_PATH_MOST) {
        record["path"] = request.path[..at].into();
        record["path_is_cut"] = true.into();
    }
    record["why"] = failure.text.as_str().into();
    record["left_out_before"] = left_out.into();
    record
}

fn missing(records: u64, why: &str) -> Value {
    json!({ "time": log::now(), "event": "missing", "records": records, "why": why })
}

fn of_request(event: &str, request: &Request, client: &str) -> Value {
    json!({
        "time": log::now(),
        "event": event,
        "client": client,
        "key": request.key.to_string(),
        "name": request.name,
        "verb": request.verb,
        "path": request.path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(path: &str) -> Visit {
        let key = gtp::Identity::generate().fingerprint();
        let request = Request { key, name: Some("anna".into()), verb: "tree", path: path.into() };
        let client = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let groups = Vec::new();
        Visit { id: 7, client, whose: gtp::Whose::Listed, request, export: None, groups }
    }

    fn started(path: &str) -> ServerEvent {
        ServerEvent::Started { visit: Arc::new(visit(path)) }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_file_that_was_moved_away_is_left_at_the_reopening_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("audit"), dir.path().join("audit.1"));
        let mut audit = Audit::open(&path).unwrap();
        audit.record(&started("one"));
        std::fs::rename(&path, &old).unwrap();
        audit.record(&started("two"));
        audit.reopen(&path);
        audit.record(&started("three"));
        assert!(audit.close().is_none());
        let paths = |file| lines(file).iter().map(|l| l["path"].clone()).collect::<Vec<_>>();
        assert_eq!(paths(&old), ["one", "two"]);
        assert_eq!(paths(&path), ["three"]);
    }

    #[test]
    fn a_record_that_a_killed_process_left_half_written_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        for there in ["{\"n\":1}\n{\"n\":", "{\"n\":1}\n", ""] {
            std::fs::write(&path, there).unwrap();
            let mut audit = Audit::open(&path).unwrap();
            audit.record(&started("one"));
            assert!(audit.close().is_none());
            let text = std::fs::read_to_string(&path).unwrap();
            let added = text.strip_prefix(there.trim_end()).unwrap().trim_start();
            assert_eq!(serde_json::from_str::<Value>(added).unwrap()["path"], "one", "{text}");
            let begun = there.lines().count();
            assert_eq!(text.lines().count(), begun + 1, "{text}");
        }
    }

    #[test]
    fn a_long_path_of_a_refusal_is_cut_and_said_to_be() {
        let failure = Failure::new(FailureKind::Authentication, "no");
        let record =
            |chars: usize| refused(&visit(&"\u{e9}".repeat(chars)).request, "x", &failure, 0);
        let (whole, cut) = (record(REFUSED_PATH_MOST), record(REFUSED_PATH_MOST + 1));
        assert_eq!(whole["path"], cut["path"]);
        assert_eq!((&whole["path_is_cut"], &cut["path_is_cut"]), (&Value::Null, &true.into()));
    }

    #[test]
    fn events_that_were_missed_count_as_lost_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut audit = Audit::open(&dir.path().join("audit")).unwrap();
        audit.record(&ServerEvent::Missed { count: 3 });
        let failure = audit.close().unwrap();
        assert!(failure.text.starts_with("3 records of the audit lost"), "{failure}");
    }

    #[test]
    fn records_that_a_full_disk_refuses_are_counted_and_the_end_says_how_many() {
        let mut audit = Audit::open(Path::new("/dev/full")).unwrap();
        for _ in 0..3 {
            audit.record(&started("x"));
        }
        let failure = audit.close().unwrap();
        assert_eq!(failure.kind, FailureKind::Destination);
        assert!(failure.text.starts_with("3 records of the audit lost"), "{failure}");
    }

    #[test]
    fn the_first_record_after_a_gap_says_how_many_are_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let shared = Shared {
            waiting: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            dropped: AtomicU64::new(2),
            why: RwLock::default(),
        };
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let shared = Arc::new(shared);
        let mut writer = Writer { path: path.clone(), file: full, shared, missing: 0, torn: false };
        writer.write(b"{\"n\":1}\n");
        writer.file = open(&path).unwrap().0;
        writer.write(b"{\"n\":2}\n");
        writer.write(b"{\"n\":3}\n");
        let lines = lines(&path);
        assert_eq!((&lines[0]["event"], &lines[0]["records"]), (&"missing".into(), &3.into()));
        assert_eq!([&lines[1]["n"], &lines[2]["n"]], [&json!(2), &json!(3)]);
    }

    #[test]
    fn a_removal_is_recorded_with_who_did_it_and_the_whole_path() {
        let step = Change { what: "remove", path: "b/c".into(), to: None, failure: None };
        let record = change(&visit("a"), &step);
        let said = [&record["change"], &record["path"], &record["name"], &record["outcome"]];
        assert_eq!(said, ["remove", "a/b/c", "anna", "done"]);
        let failed = Change { failure: Some("permission denied".into()), ..step };
        let record = change(&visit(""), &failed);
        assert_eq!([&record["path"], &record["outcome"]], ["b/c", "failed"]);
    }

    #[test]
    fn the_end_of_a_session_names_what_it_wrote_and_counts_what_it_does_not_name() {
        let paths = ["a/hi.txt", "a/b"].map(String::from).to_vec();
        let end = |objects: &Objects| end(&visit("a"), &Moved::default(), objects, None);
        let some = end(&Objects { paths, more: 7 });
        let said = [&some["path"], &some["objects"], &some["objects_more"]];
        assert_eq!(said, [&json!("a"), &json!(["a/hi.txt", "a/b"]), &json!(7)]);
        let none = end(&Objects::default());
        assert_eq!([&none["objects"], &none["objects_more"]], [&Value::Null; 2]);
    }

    #[test]
    fn a_flood_of_refusals_is_rationed_and_those_left_out_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut audit = Audit::open(&path).unwrap();
        let request = visit("x").request;
        for _ in 0..10_000 {
            audit.record(&ServerEvent::Refused {
                client: std::net::SocketAddr::from(([127, 0, 0, 1], 9)),
                whose: Whose::Stranger,
                reason: gtp::WhyRefused::NotAllowed,
                request: Some(request.clone()),
                failure: Failure::new(FailureKind::Authentication, "no"),
            });
        }
        assert!(audit.close().is_none());
        let lines = lines(&path);
        let told = lines.iter().filter(|line| line["event"] == "refused").count() as u64;
        let left_out = |line: &Value| {
            line["left_out_before"].as_u64().or(line["records"].as_u64()).unwrap_or(0)
        };
        assert_eq!(told + lines.iter().map(left_out).sum::<u64>(), 10_000);
        assert!(told < 500, "{told}");
    }
}
