//! The side of a process: to attach, to ask, to change.
//!
//! Attaching gives two pages and a bell; everything after that is memory. Questions of people have
//! a connection of their own each. Waits are bounded, so that a daemon that stands still
//! holds up no program.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::message::{
    Answer, BELL, Change, HistoryView, HostView, KeyView, LIST_PACKET, MESSAGE_MOST, Request,
    SessionView, VERSION, versions_differ,
};
use crate::page::{GrantsReader, ReportsWriter};
use crate::place::is_users_own;
use crate::socket::{Connection, Incoming};

/// A process's place with the daemon.
#[derive(Debug)]
pub struct Attachment {
    /// Where it posts.
    pub reports: ReportsWriter,
    /// Where it reads.
    pub grants: GrantsReader,
    connection: Connection,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// There are new grants.
    Yes,
    /// Nothing yet.
    No,
    /// The daemon is gone.
    Gone,
}

/// How long a daemon may take to answer.
const PATIENCE_MS: u32 = 2_000;
/// Bytes of a list at most: 65,536 sessions of 1 KiB.
const LIST_MOST: u64 = 64 << 20;

/// Whether a process has been attached to a daemon before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It never was.
    None,
    /// It was, and has lost it.
    Orphaned,
}

/// Why no daemon has accepted a process.
#[derive(Debug)]
pub enum Missed {
    /// No daemon listens there.
    Absent(io::Error),
    /// A daemon is there and says that it has no room now.
    Full(String),
    /// A daemon listens and has not answered: it hangs, too many wait at its socket, or
    /// this process or the machine lacks a descriptor.
    Silent(io::Error),
    /// The daemon there has another version.
    OtherVersion(String),
    /// The listener there is not trusted, or this process may not connect to it.
    Barred(io::Error),
}

impl Display for Missed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Missed::Absent(e) | Missed::Silent(e) | Missed::Barred(e) => e.fmt(f),
            Missed::Full(why) | Missed::OtherVersion(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Missed {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Missed::Absent(error),
            io::ErrorKind::PermissionDenied => Missed::Barred(error),
            _ => Missed::Silent(error),
        }
    }
}

/// Attaches this process, with room for `slots` sessions, to the daemon at `path`.
///
/// # Errors
/// [`Missed`].
pub fn attach(path: &Path, slots: u32, program: &str, past: Past) -> Result<Attachment, Missed> {
    let connection = connect(path)?;
    let program = program.chars().take(PROGRAM_MOST).collect();
    let again = past == Past::Orphaned;
    let request = Request::Attach { version: VERSION, slots, program, again };
    match ask(&connection, &request)? {
        (Answer::Attached { version: VERSION, slots }, fds) => {
            let [reports, grants]: [OwnedFd; 2] =
                fds.try_into().map_err(|_| io::Error::other("pages are missing"))?;
            Ok(Attachment::open([&reports, &grants], slots, connection)?)
        }
        (Answer::Attached { version, .. }, _) => {
            Err(Missed::OtherVersion(versions_differ(version, VERSION)))
        }
        // A daemon refuses to attach a process of another version, and no other.
        (Answer::Refused { why }, _) => Err(Missed::OtherVersion(why)),
        (Answer::Busy { why }, _) => Err(Missed::Full(why)),
        (other @ (Answer::Sessions { .. } | Answer::Done { .. }), _) => {
            Err(unexpected(other).into())
        }
    }
}

/// The host and all its sessions.
///
/// # Errors
/// As [`attach`].
pub fn sessions(path: &Path) -> io::Result<(HostView, Vec<SessionView>)> {
    let connection = connect(path)?;
    match ask(&connection, &Request::Sessions { version: VERSION })? {
        (Answer::Sessions { bytes }, _) => read_list(&connection, bytes),
        (other, _) => Err(unexpected(other)),
    }
}

/// What users moved in the last hour.
///
/// # Errors
/// As [`attach`]; and when the daemon is of an earlier release.
pub fn history(path: &Path) -> io::Result<Vec<HistoryView>> {
    rows(path, &Request::History { version: VERSION })
}

/// What clients of servers moved in the last hour, by their keys.
///
/// # Errors
/// As [`history`].
pub fn keys(path: &Path) -> io::Result<Vec<KeyView>> {
    rows(path, &Request::Keys { version: VERSION })
}

/// The lines that answer a question, each a row.
fn rows<T: DeserializeOwned>(path: &Path, question: &Request) -> io::Result<Vec<T>> {
    let connection = connect(path)?;
    match ask(&connection, question)? {
        (Answer::Sessions { bytes }, _) => {
            let text = read_lines(&connection, bytes)?;
            Ok(lines_of(&text).map(serde_json::from_slice).collect::<Result<_, _>>()?)
        }
        (other, _) => Err(unexpected(other)),
    }
}

/// Changes a session, or its transfer; returns what the daemon has to say of it.
///
/// # Errors
/// As [`attach`]; and when there is no such session, or it is another user's.
pub fn set(path: &Path, session: u32, change: Change) -> io::Result<Option<String>> {
    let connection = connect(path)?;
    let request = Request::Set { version: VERSION, session, change };
    match ask(&connection, &request)? {
        (Answer::Done { note }, _) => Ok(note),
        (other, _) => Err(unexpected(other)),
    }
}

impl Attachment {
    /// The pages of reports and of grants with room for so many sessions, and the connection over
    /// which they came.
    ///
    /// # Errors
    /// When they are not what they should be.
    pub fn open(
        [reports, grants]: [&OwnedFd; 2],
        slots: u32,
        connection: Connection,
    ) -> io::Result<Attachment> {
        let mut reports = ReportsWriter::open(reports, slots)?;
        let grants = GrantsReader::open(grants, slots)?;
        // A daemon of an earlier release would take them for a part of labels.
        if grants.knows_terms() {
            reports.post_terms();
        }
        Ok(Attachment { reports, grants, connection })
    }

    /// Tells the daemon that there are new reports.
    pub fn ring(&self) {
        // If its bell is full it has been rung; if it is gone, the wait says so.
        let _ = self.connection.send(BELL, &[]);
    }

    /// Waits for the daemon's bell, `millis` at most (`None`: for ever).
    pub fn wait(&self, millis: Option<u32>) -> Rung {
        match self.connection.wait(millis) {
            Ok(false) => return Rung::No,
            Ok(true) => {}
            Err(_) => return Rung::Gone,
        }
        let mut buffer = [0; 64];
        let mut rung = Rung::No;
        loop {
            match self.connection.receive(&mut buffer) {
                Ok(Incoming::Message(..)) => rung = Rung::Yes,
                Ok(Incoming::Nothing) => return rung,
                Ok(Incoming::End) | Err(_) => return Rung::Gone,
            }
        }
    }

    /// Detaches; a wait on another thread ends.
    pub fn end(&self) {
        self.connection.end();
    }
}

/// Connects to a daemon that may be believed; see [`is_believed`].
fn connect(path: &Path) -> io::Result<Connection> {
    let connection = Connection::open(path)?;
    let owner = connection.peer().uid;
    let own = rustix::process::geteuid().as_raw();
    let dir = path.parent().and_then(|dir| std::fs::metadata(dir).ok()).map(|dir| dir.uid());
    if is_believed(owner, own, dir.filter(|_| !is_users_own(path))) {
        return Ok(connection);
    }
    let text = format!("{}: belongs to user {owner}, who is not trusted here", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether a daemon of user `owner` may be believed by user `own`: it is root's or `own`'s. At the
/// host's place, or at one that somebody named, it may also be the user's who owns the directory.
/// At a user's own place that says nothing: anybody can make a directory of that name in `/tmp`.
fn is_believed(owner: u32, own: u32, dir: Option<u32>) -> bool {
    owner == 0 || owner == own || Some(owner) == dir
}

/// One question and its answer.
fn ask(connection: &Connection, request: &Request) -> io::Result<(Answer, Vec<OwnedFd>)> {
    connection.send(&serde_json::to_vec(request)?, &[]).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ended(),
        _ => error,
    })?;
    let mut buffer = vec![0; MESSAGE_MOST];
    let (length, fds) = next(connection, &mut buffer)?;
    let answer = serde_json::from_slice(&buffer[..length]);
    Ok((answer.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, NO_DAEMON))?, fds))
}

fn ended() -> io::Error {
    let text = "the daemon has ended the connection";
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

/// What is said of an answer that no daemon gives.
const NO_DAEMON: &str = "what listens there does not answer as a daemon does";

/// The next packet: its length and what came with it.
fn next(connection: &Connection, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    loop {
        if !connection.wait(Some(PATIENCE_MS))? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the daemon does not answer"));
        }
        match connection.receive(buffer)? {
            Incoming::Message(length, fds) => return Ok((length, fds)),
            Incoming::Nothing => {}
            Incoming::End => return Err(ended()),
        }
    }
}

fn read_list(connection: &Connection, bytes: u64) -> io::Result<(HostView, Vec<SessionView>)> {
    let text = read_lines(connection, bytes)?;
    let mut lines = lines_of(&text);
    let host = lines.next().ok_or_else(|| io::Error::other("an empty list"))?;
    let sessions: Result<_, _> = lines.map(serde_json::from_slice).collect();
    Ok((serde_json::from_slice(host)?, sessions?))
}

fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n').filter(|line| !line.is_empty())
}

fn read_lines(connection: &Connection, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > LIST_MOST {
        return Err(io::Error::other("a list longer than any that a daemon writes"));
    }
    let mut text = Vec::new();
    let mut buffer = vec![0; LIST_PACKET];
    while (text.len() as u64) < bytes {
        let (length, _) = next(connection, &mut buffer)?;
        text.extend_from_slice(&buffer[..length]);
    }
    Ok(text)
}

fn unexpected(answer: Answer) -> io::Error {
    match answer {
        Answer::Refused { why } | Answer::Busy { why } => io::Error::other(why),
        Answer::Attached { version, .. } if version != VERSION => {
            io::Error::other(versions_differ(version, VERSION))
        }
        Answer::Attached { .. } | Answer::Sessions { .. } | Answer::Done { .. } => {
            io::Error::other("an answer to another question: daemon and program do not fit")
        }
    }
}

/// Characters of a program's name.
const PROGRAM_MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Listener;

    /// What a program hears that attaches to a daemon which answers this to whatever it asks.
    fn heard(answer: &'static [u8]) -> Missed {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).unwrap();
        let program = std::thread::spawn(move || attach(&path, 1, "test", Past::None));
        let connection = loop {
            match listener.accept().unwrap() {
                Some(connection) => break connection,
                None => std::thread::yield_now(),
            }
        };
        assert!(connection.wait(None).unwrap());
        connection.send(answer, &[]).unwrap();
        program.join().unwrap().unwrap_err()
    }

    #[test]
    fn a_daemon_of_another_version_is_left_with_clear_words() {
        let heard = |answer| match heard(answer) {
            Missed::OtherVersion(why) => why,
            other => panic!("{other:?}"),
        };
        let older = heard(br#"{"attached":{"version":3,"slots":1}}"#);
        assert!(older.contains("version 3") && older.contains("start the daemon anew"), "{older}");
        let newer = heard(br#"{"attached":{"version":1000,"slots":1}}"#);
        assert!(newer.contains("version 1000"), "{newer}");
        assert!(newer.contains("start the program anew"), "{newer}");
        let refuses = heard(br#"{"refused":{"why":"this daemon speaks version 3, not 5"}}"#);
        assert_eq!(refuses, "this daemon speaks version 3, not 5");
    }

    #[test]
    fn a_daemon_that_is_full_is_not_one_that_is_absent() {
        let full = heard(br#"{"busy":{"why":"too many processes"}}"#);
        assert!(matches!(&full, Missed::Full(why) if why == "too many processes"), "{full:?}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let absent = attach(&path, 1, "test", Past::None).unwrap_err();
        assert!(matches!(absent, Missed::Absent(_)), "{absent:?}");
        // A socket at which too many wait, and a process without descriptors.
        for error in [rustix::io::Errno::AGAIN, rustix::io::Errno::MFILE] {
            let missed = Missed::from(io::Error::from(error));
            assert!(matches!(missed, Missed::Silent(_)), "{missed:?}");
        }
    }
}
