//! Connections of programs under `gtp run` that were made over TCP, since the other end has no GTP.
//!
//! A pump remembers the last ones for `gtp sessions`, and how they stand is what the kernel says of
//! the program's socket. A program's word about itself is never more than something to show.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use gtp::{Failure, FailureKind};
use gtp_alloc::{Span, Time};
use gtp_share::{Incoming, printable};
use gtp_sys::Clock;
use gtp_sys::pump::VERSION;
use serde::{Deserialize, Serialize};

use super::place;
use super::sockets::Connected;
use crate::words::say_seconds;

/// One of them, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// `tcp`: what it is over.
    pub over: String,
    /// The process that asked for it; zero where it is not seen.
    pub pid: i32,
    /// What the kernel calls that process.
    pub program: String,
    /// Where to.
    pub to: SocketAddr,
    /// Why it is not over GTP.
    pub why: String,
    /// Whether it is there still.
    pub open: bool,
    /// Seconds since it was asked for.
    pub age_s: u64,
}

/// The last ones.
#[derive(Debug)]
pub struct Fallbacks {
    clock: Clock,
    last: VecDeque<Known>,
}

/// One of them, as it is remembered.
#[derive(Debug)]
struct Known {
    at: Time,
    /// When it was last known to be there.
    seen: Time,
    pid: i32,
    program: String,
    to: SocketAddr,
    /// The kernel's number of the program's socket.
    socket: u64,
    why: String,
}

/// Most that are remembered.
const MOST: usize = 128;
/// Connections that are over are shown for so long, less [`LOOK_SPAN`] at most.
const SHOWN: Span = Span::from_millis(600_000);
/// Time between two looks at which connections are over.
pub const LOOK_SPAN: Duration = Duration::from_secs(60);
/// Characters of a reason.
const WHY_MOST: usize = 120;
/// Bytes of the list: more than [`MOST`] of the longest.
const LIST_MOST: usize = 128 << 10;
/// A pump answers within this, or hangs.
const PATIENCE_MILLIS: u32 = 5_000;

impl Default for Fallbacks {
    fn default() -> Fallbacks {
        Fallbacks { clock: Clock::start(), last: VecDeque::new() }
    }
}

impl Fallbacks {
    /// Takes note of one, by this process, in place of whose socket with this number.
    pub fn add(&mut self, pid: i32, to: SocketAddr, socket: u64, why: &str) {
        if self.last.len() == MOST {
            self.last.pop_front();
        }
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let now = self.clock.now();
        self.last.push_back(Known {
            at: now,
            seen: now,
            pid,
            program: plain(program.trim_end()),
            to,
            socket,
            why: plain(why),
        });
    }

    /// All that are there and those that were lately, the oldest first: after a line that says so,
    /// one of JSON each.
    pub fn lines(&mut self, connected: &Connected) -> String {
        let now = self.clock.now();
        self.look(connected, now);
        let shown = self.shown(connected, now);
        // What is made of words and numbers is JSON.
        let lines = shown.filter_map(|one| Some(serde_json::to_string(&one).ok()? + "\n"));
        std::iter::once("ok\n".to_owned()).chain(lines).collect()
    }

    /// The kernel's numbers of their sockets.
    pub fn sockets(&self) -> Vec<u64> {
        self.last.iter().map(|known| known.socket).filter(|&socket| socket != 0).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Looks which are there.
    pub fn look_again(&mut self, connected: &Connected) {
        self.look(connected, self.clock.now());
    }

    fn look(&mut self, connected: &Connected, now: Time) {
        for known in &mut self.last {
            if known.is_open(connected) {
                known.seen = now;
            }
        }
    }

    fn shown<'a>(
        &'a self,
        connected: &'a Connected,
        now: Time,
    ) -> impl Iterator<Item = Fallback> + 'a {
        let shown = move |known: &Known| {
            let age = now.since(known.at);
            let open = known.is_open(connected);
            (open || now.since(known.seen) <= SHOWN).then(|| Fallback {
                over: "tcp".to_owned(),
                pid: known.pid,
                program: known.program.clone(),
                to: known.to,
                why: known.why.clone(),
                open,
                age_s: age.as_nanos() / 1_000_000_000,
            })
        };
        self.last.iter().filter_map(shown)
    }
}

impl Known {
    fn is_open(&self, connected: &Connected) -> bool {
        self.socket != 0 && connected.has(self.socket)
    }
}

/// Words for a terminal: programs and other hosts choose them, and must not command it.
fn plain(text: &str) -> String {
    printable(text).chars().take(WHY_MOST).collect()
}

/// Those of this user's pump; none where there is no pump.
///
/// # Errors
/// When it does not answer, or is another user's.
pub fn ask(named: Option<&Path>) -> Result<Option<Vec<Fallback>>, Failure> {
    // Without a place there is none.
    let Ok(socket) = place::socket(named) else { return Ok(None) };
    match ask_at(&socket) {
        Ok(all) => Ok(Some(all)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => {
                let text = format!("the pump at {}: {error}", socket.display());
                Err(Failure::new(FailureKind::Other, text))
            }
        },
    }
}

fn ask_at(socket: &Path) -> io::Result<Vec<Fallback>> {
    let pump = gtp_share::Connection::open(socket)?;
    if pump.peer().uid != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    pump.send(format!("{VERSION} fallbacks").as_bytes(), &[])?;
    if !pump.wait(Some(PATIENCE_MILLIS))? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut list = vec![0; LIST_MOST];
    let Incoming::Message(count, _) = pump.receive(&mut list)? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    let mut lines = list[..count].split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    match lines.next() {
        Some(b"ok") => {}
        // A pump that does not answer questions of this kind says why.
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            return Err(io::Error::other(plain(other.strip_prefix("tcp ").unwrap_or(&other))));
        }
        None => return Err(io::ErrorKind::InvalidData.into()),
    }
    lines.map(|line| serde_json::from_slice(line).map_err(io::Error::from)).collect()
}

/// What people read; nothing where there are none.
pub fn table(all: &[Fallback]) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let cells = |cells: [&str; 6]| {
        let [pid, program, to, state, since, why] = cells;
        format!("{pid:>7} {program:15} {to:21} {state:5} {since:>8} {why}")
    };
    let mut lines = vec![
        "under gtp run, over TCP in place of GTP:".to_owned(),
        cells(["PID", "PROGRAM", "TO", "STATE", "SINCE", "WHY"]),
    ];
    lines.extend(all.iter().map(|one| {
        let state = if one.open { "open" } else { "over" };
        let since = say_seconds(one.age_s as f64);
        let to = one.to.to_string();
        cells([&one.pid.to_string(), &one.program, &to, state, &since, &one.why])
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], port))
    }

    #[test]
    fn those_that_are_open_stay_in_the_list_and_those_that_are_over_leave_it() {
        let mut all = Fallbacks::default();
        let own = std::process::id() as i32;
        all.add(own, to(1), 7, "has no GTP");
        all.add(own, to(2), 0, &"x".repeat(10_000));
        let now = all.clock.now();
        let shown = |connected: &Connected, at: Time| all.shown(connected, at).collect::<Vec<_>>();
        let both = shown(&Connected::of([7]), now);
        assert_eq!(both.iter().map(|one| one.open).collect::<Vec<_>>(), [true, false]);
        assert!(!both[0].program.is_empty() && both[1].why.len() == WHY_MOST);
        let later = now + SHOWN + Span::from_millis(5_000);
        let left = shown(&Connected::of([7]), later);
        assert!(matches!(&left[..], [one] if one.to == to(1) && one.age_s >= 604));
        assert_eq!(shown(&Connected::default(), later), []);
    }

    #[test]
    fn one_that_was_there_for_long_is_shown_as_over_for_as_long_as_any_other() {
        let mut all = Fallbacks::default();
        all.add(1, to(1), 7, "has no GTP");
        let ended = all.clock.now() + SHOWN + SHOWN;
        all.look(&Connected::of([7]), ended);
        let (none, later) = (Connected::default(), ended + Span::from_millis(1_000));
        all.look(&none, later);
        let left: Vec<_> = all.shown(&none, later).collect();
        assert!(matches!(&left[..], [one] if !one.open && one.age_s >= 1_200), "{left:?}");
        assert_eq!(all.shown(&none, later + SHOWN).collect::<Vec<_>>(), []);
    }

    #[test]
    fn a_full_list_fits_what_is_read_and_says_every_one_in_a_line() {
        let mut all = Fallbacks::default();
        let why = "\u{1}\"\u{1f980}".repeat(999);
        (0..=MOST as u16).for_each(|port| all.add(i32::MAX, to(port), 0, &why));
        let lines = all.lines(&Connected::default());
        assert!(lines.len() < LIST_MOST, "{}", lines.len());
        let read: Vec<Fallback> =
            lines.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(read.iter().all(|one| one.why.starts_with("?\"\u{1f980}")));
        assert_eq!((read.len(), read[0].to), (MOST, to(1)), "the first has left it");
        assert_eq!(table(&read).len(), 2 + MOST);
        assert!(table(&[]).is_empty());
    }
}
