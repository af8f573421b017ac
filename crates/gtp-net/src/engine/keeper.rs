//! Looks for the machine's daemon, and tells engines when it comes, goes or rings.
//!
//! It has a thread of its own, because waiting is all it does. The first look is taken before the
//! host starts, so that a process beside a daemon never allocates for itself, and one whose daemon
//! was named starts with it or not at all. To the daemon each engine of a host is what a process
//! is: the first one's keeper looks for it, and once that has found it the others attach as well.
//! What follows for rates is decided in `standing`.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gtp_alloc::{Rate, Span, Time};
use gtp_share::client::{Attachment, Missed, Past, Rung, attach};
use gtp_share::{Places, SLOTS_MOST, Side};
use gtp_sys::Clock;

use super::command::{Notice, Notices};
use super::standing::{ALLOWANCE, Bond, ORPHAN_WAIT};

/// How a host finds the daemon of its machine.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Where to look. What that means is found out anew at each look.
    pub places: Places,
    /// Whether the user named the daemon. A host whose daemon was named does not start without it.
    pub bond: Bond,
    /// What this process is, for people.
    pub program: String,
    /// A program that starts a daemon at the last place, with its arguments; it is run when no
    /// daemon answers.
    pub start: Option<Vec<std::ffi::OsString>>,
}

/// Why a host does not start.
#[derive(Debug)]
pub enum StartError {
    /// The system gives no thread or no descriptor.
    System(io::Error),
    /// The named daemon does not accept this process.
    Daemon {
        /// Where it should be.
        place: PathBuf,
        /// Why not.
        why: Missed,
    },
}

impl Display for StartError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            StartError::System(error) => write!(f, "the engine cannot start: {error}"),
            StartError::Daemon { place, why } => {
                let place = place.display();
                match why {
                    Missed::Absent(_) => write!(
                        f,
                        "no daemon runs at {place}: start one with `gtpd --socket {place}`, or \
                         leave --daemon out to use one only if there is one"
                    ),
                    Missed::Full(why) => write!(f, "the daemon at {place} has no room: {why}"),
                    Missed::Silent(why) => {
                        write!(f, "the daemon at {place} does not answer: {why}")
                    }
                    Missed::OtherVersion(why) => write!(f, "{place}: {why}"),
                    Missed::Barred(why) => {
                        write!(f, "the daemon at {place} may not be used: {why}")
                    }
                }
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::System(error)
    }
}

/// What the engine hears of the daemon.
#[derive(Debug)]
pub(super) enum DaemonNews {
    /// It is there.
    Found(Arc<Attachment>),
    /// Another engine of this host has found it.
    Elsewhere,
    /// It has new grants.
    Rang,
    /// It is gone.
    Lost(Bond),
    /// It was not found.
    Missed(Bond, Why),
}

/// Why no daemon was found, as far as rates depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// There is none that this process could use.
    Absent,
    /// It has another version.
    OtherVersion,
    /// It listens and does not answer.
    Silent,
    /// It is full.
    Full,
}

impl Why {
    fn of(missed: &Missed) -> Why {
        match missed {
            Missed::Absent(_) | Missed::Barred(_) => Why::Absent,
            Missed::OtherVersion(_) => Why::OtherVersion,
            Missed::Silent(_) => Why::Silent,
            Missed::Full(_) => Why::Full,
        }
    }
}

/// The thread that looks; it ends some time after this is dropped.
pub(super) struct Keeper(Arc<AtomicBool>);

/// Whether the first engine of a host has ever found a daemon, for the others to hear.
#[derive(Default)]
struct Word {
    found: Mutex<bool>,
    heard: Condvar,
}

/// Who looks for which engine.
struct Lookout {
    sharing: Sharing,
    notices: Notices,
    word: Arc<Word>,
    /// It looks for the first engine, and starts daemons if that is wanted.
    leads: bool,
    clock: Clock,
}

/// The pause between the first [`SOON`] looks for a daemon that has gone.
const AGAIN: Duration = Duration::from_millis(50);
const SOON: u32 = 200;
/// The pause between later looks: until a process sees the next daemon it uses its own capacity.
const LATER: Duration = Duration::from_millis(100);
/// The pause between looks for a daemon that never was there.
const SELDOM: Duration = Duration::from_secs(2);
/// A lost daemon is started again at the first look and then at every 20th: once a second.
const STARTS: u32 = 20;
/// How long a process looks for a named daemon at its start. The last look begins within this; if
/// a daemon listens and does not answer, that look takes two seconds more.
const NAMED_WAIT: Span = Span::from_secs(5);
/// The thread looks this often whether it should end, and whether the daemon is at work.
const WAIT_MS: u32 = 500;
/// A daemon that gave no sign of life in so many waits in a row, two seconds, counts as gone. It is
/// waits that count and no clock: a process that stood still itself has not waited.
const SILENT_MOST: u32 = 4;

impl Keeper {
    /// Takes the first look for each engine, and starts the threads.
    ///
    /// # Errors
    /// When the system gives no thread, or the daemon was named and is not to be had.
    pub fn start(sharing: Sharing, engines: Vec<Notices>) -> Result<Vec<Keeper>, StartError> {
        let (word, clock) = (Arc::new(Word::default()), Clock::start());
        let lookout = |(number, notices)| {
            let (sharing, word) = (sharing.clone(), word.clone());
            Lookout { sharing, notices, word, leads: number == 0, clock }
        };
        engines.into_iter().enumerate().map(lookout).map(Keeper::begin).collect()
    }

    fn begin(lookout: Lookout) -> Result<Keeper, StartError> {
        let mut search = Search::new();
        lookout.first_look(&mut search)?;
        let over = Arc::new(AtomicBool::new(false));
        let keeper = Keeper(over.clone());
        let thread = std::thread::Builder::new().name("gtp-daemon".into());
        thread.spawn(move || keep(&lookout, search, &over))?;
        Ok(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Word {
    /// There is one.
    fn spread(&self) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_all();
    }

    fn is_out(&self) -> bool {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is out, or this long.
    fn wait(&self, most: Duration) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // However the wait has ended, whoever waits looks.
        drop(self.heard.wait_timeout_while(found, most, |found| !*found));
    }
}

/// What one engine's keeper knows.
struct Search {
    found: Option<Arc<Attachment>>,
    past: Past,
    /// Looks in vain since the daemon was there last.
    looks: u32,
    /// What the engine was told of the last of them.
    told: Option<Why>,
    /// What people were told of it.
    refusals: Refusals,
    /// When a process whose daemon has gone is alone again, until that is said.
    alone: Option<Time>,
    /// The other engines of this process have found one.
    hopes: bool,
    pulse: Pulse,
}

impl Search {
    fn new() -> Search {
        Search {
            found: None,
            past: Past::None,
            looks: 0,
            told: None,
            refusals: Refusals::default(),
            alone: None,
            hopes: false,
            pulse: Pulse::default(),
        }
    }
}

impl Lookout {
    fn tell(&self, news: DaemonNews) {
        if self.leads && matches!(news, DaemonNews::Found(_)) {
            self.word.spread();
        }
        self.notices.send(Notice::Daemon(news));
    }

    /// The look before the host starts.
    ///
    /// # Errors
    /// When the daemon was named and is not to be had.
    fn first_look(&self, search: &mut Search) -> Result<(), StartError> {
        if !self.leads && !self.word.is_out() {
            return Ok(());
        }
        let end = self.clock.now() + NAMED_WAIT;
        let mut looked = look(&self.sharing, Past::None);
        if self.leads && looked.is_err() && self.sharing.start.is_some() {
            start_daemon(&self.sharing);
            looked = look_for_a_while(&self.sharing);
        }
        match (looked, self.sharing.bond) {
            (Ok(found), _) => self.found(search, found),
            (Err((_, why)), Bond::Named) if self.leads => {
                let found = self.insist(why, end)?;
                self.found(search, found);
            }
            (Err(missed), Bond::Found | Bond::Named) => self.missed(search, missed),
        }
        if self.leads && search.found.is_none() && search.told == Some(Why::Absent) {
            tracing::info!("no daemon: this process allocates for itself");
        }
        Ok(())
    }

    /// Looks for a daemon that was named again and again, until `end`.
    ///
    /// # Errors
    /// Why it is not to be had.
    fn insist(&self, mut why: Missed, end: Time) -> Result<Arc<Attachment>, StartError> {
        let place = || self.sharing.places.now().pop().unwrap_or_default();
        let mut said = false;
        while self.clock.now() < end {
            match why {
                Missed::OtherVersion(_) | Missed::Barred(_) => break,
                Missed::Silent(_) | Missed::Absent(_) | Missed::Full(_) => {}
            }
            if !std::mem::replace(&mut said, true) {
                tracing::warn!("{}: {why}; waiting for the daemon", place().display());
            }
            std::thread::sleep(AGAIN);
            match look(&self.sharing, Past::None) {
                Ok(found) => return Ok(found),
                Err((_, now)) => why = now,
            }
        }
        Err(StartError::Daemon { place: place(), why })
    }

    fn found(&self, search: &mut Search, found: Arc<Attachment>) {
        let again = search.past == Past::Orphaned;
        self.tell(DaemonNews::Found(found.clone()));
        let (refusals, hopes) = (Refusals::default(), search.hopes);
        let (past, found) = (Past::Orphaned, Some(found));
        *search = Search { found, past, refusals, hopes, ..Search::new() };
        match again {
            true if self.leads => tracing::warn!("the daemon is back: it shares the capacity out"),
            false if self.leads => {
                tracing::info!("this process shares capacity through the daemon");
            }
            true | false => {}
        }
    }

    fn missed(&self, search: &mut Search, (place, missed): (PathBuf, Missed)) {
        let why = Why::of(&missed);
        search.looks = search.looks.saturating_add(1);
        if search.told != Some(why) {
            search.told = Some(why);
            self.tell(DaemonNews::Missed(self.sharing.bond, why));
        }
        if !matches!(missed, Missed::Absent(_)) {
            let what = format!("{}: {missed}", place.display());
            if search.refusals.note(what.clone()) {
                tracing::warn!("{what}; {}", meanwhile(search.past, why, self.sharing.bond));
            }
        }
        if search.alone.is_some_and(|alone| alone <= self.clock.now()) && why != Why::Full {
            search.alone = None;
            if self.leads {
                tracing::warn!("the daemon is not back: this process allocates for itself");
            }
        }
    }

    fn lost(&self, search: &mut Search, lost: &Attachment) {
        self.tell(DaemonNews::Lost(self.sharing.bond));
        (search.found, search.looks, search.told) = (None, 0, None);
        search.alone = (self.sharing.bond == Bond::Found).then(|| self.clock.now() + ORPHAN_WAIT);
        if !self.leads {
            return;
        }
        let how = if lost.grants.has_ended() { "has ended" } else { "is gone" };
        let [out, in_] = [Side::Source, Side::Sink].map(|side| said(lost.grants.fallback(side)));
        let until = match self.sharing.bond {
            Bond::Found => format!("for {} s", ORPHAN_WAIT.as_secs_f64()),
            Bond::Named => "until it is back".to_owned(),
        };
        tracing::warn!(
            "the daemon {how}: this process keeps to its part of the capacity ({out} out, {in_} \
             in) {until}"
        );
    }

    /// Waits for the time to look for a daemon that this engine has not, or has not any more.
    /// `false`: it is not yet.
    fn wait(&self, search: &mut Search) -> bool {
        let near = matches!(search.told, Some(Why::Full | Why::Silent));
        if search.past == Past::Orphaned || search.hopes || near {
            std::thread::sleep(if search.looks < SOON { AGAIN } else { LATER });
            return true;
        }
        if self.leads {
            std::thread::sleep(SELDOM);
            return true;
        }
        self.word.wait(SELDOM);
        search.hopes = self.word.is_out();
        if search.hopes {
            self.tell(DaemonNews::Elsewhere);
        }
        search.hopes
    }
}

fn keep(lookout: &Lookout, mut search: Search, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let Some(daemon) = search.found.clone() else {
            if !lookout.wait(&mut search) {
                continue;
            }
            match look(&lookout.sharing, search.past) {
                Ok(found) => lookout.found(&mut search, found),
                Err(missed) => {
                    lookout.missed(&mut search, missed);
                    let starts = search.past == Past::Orphaned && search.looks % STARTS == 1;
                    if lookout.leads && starts {
                        start_daemon(&lookout.sharing);
                    }
                }
            }
            continue;
        };
        let rung = daemon.wait(Some(WAIT_MS));
        match (rung, search.pulse.feel(rung, daemon.grants.beats())) {
            (Rung::Yes, _) => lookout.tell(DaemonNews::Rang),
            (Rung::No, Health::Good) => {}
            (Rung::Gone, _) | (Rung::No, Health::Hangs) => lookout.lost(&mut search, &daemon),
        }
    }
}

/// A promise in words.
fn said(rate: Option<Rate>) -> String {
    match rate {
        None => "as before".to_owned(),
        Some(rate) if rate.is_unlimited() => "unlimited".to_owned(),
        Some(rate) => format!("{:.1} Mbit/s", rate.as_f64() / 1e6),
    }
}

/// What was last seen of a daemon's beat.
#[derive(Debug, Default)]
struct Pulse {
    beats: u64,
    silent: u32,
}

/// Whether a daemon is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// As far as anybody can tell.
    Good,
    /// It holds the connection and does nothing.
    Hangs,
}

impl Pulse {
    /// After a wait that ended so, with the daemon's beat as it is now.
    fn feel(&mut self, rung: Rung, beats: u64) -> Health {
        self.silent = match rung {
            Rung::No if beats == self.beats => self.silent + 1,
            Rung::Yes | Rung::No | Rung::Gone => 0,
        };
        self.beats = beats;
        if self.silent < SILENT_MOST { Health::Good } else { Health::Hangs }
    }
}

/// What daemons had against this process: each is told once, however often it is looked for.
#[derive(Debug, Default)]
struct Refusals {
    told: Option<String>,
}

impl Refusals {
    /// Whether this, from a daemon that is there, is news.
    fn note(&mut self, what: String) -> bool {
        let news = self.told.as_ref() != Some(&what);
        self.told = Some(what);
        news
    }
}

/// Attaches to the first daemon that takes this process in; else the reason that says most of a
/// daemon that is there.
fn look(sharing: &Sharing, past: Past) -> Result<Arc<Attachment>, (PathBuf, Missed)> {
    let mut most = None;
    for place in sharing.places.now() {
        let missed = match attach(&place, SLOTS_MOST, &sharing.program, past) {
            Ok(found) => return Ok(Arc::new(found)),
            Err(missed) => missed,
        };
        // A place that is barred says more to people than one where nobody is.
        let weight = |missed: &Missed| (Why::of(missed), !matches!(missed, Missed::Absent(_)));
        if most.as_ref().is_none_or(|(_, before)| weight(before) < weight(&missed)) {
            most = Some((place, missed));
        }
    }
    let nowhere = || (PathBuf::new(), Missed::Absent(io::ErrorKind::NotFound.into()));
    Err(most.unwrap_or_else(nowhere))
}

/// What a process does that no daemon takes.
fn meanwhile(past: Past, why: Why, bond: Bond) -> String {
    match (why, past, bond) {
        (Why::Full, _, _) => format!(
            "until it has room this process keeps to {} in each direction",
            said(Some(ALLOWANCE))
        ),
        (Why::Silent, Past::None, Bond::Found) => format!(
            "this process keeps to {} in each direction, and allocates for itself if there is no \
             answer within {} s",
            said(Some(ALLOWANCE)),
            ORPHAN_WAIT.as_secs_f64()
        ),
        (Why::OtherVersion, Past::Orphaned, _) => format!(
            "this process keeps to {} in each direction{}",
            said(Some(ALLOWANCE)),
            if bond == Bond::Found { " and is soon alone" } else { "" },
        ),
        (Why::Silent | Why::Absent | Why::OtherVersion, _, Bond::Named)
        | (Why::Silent, Past::Orphaned, Bond::Found) => {
            "this process asks again and keeps to what it may use".to_owned()
        }
        (Why::Absent | Why::OtherVersion, _, Bond::Found) => {
            "this process allocates for itself".to_owned()
        }
    }
}

/// A daemon that was just started needs a moment.
fn look_for_a_while(sharing: &Sharing) -> Result<Arc<Attachment>, (PathBuf, Missed)> {
    const LOOKS: u32 = 40;
    let mut looked = look(sharing, Past::None);
    for _ in 0..LOOKS {
        if looked.is_ok() {
            break;
        }
        std::thread::sleep(AGAIN);
        looked = look(sharing, Past::None);
    }
    looked
}

/// Starts a daemon, if that is wanted. Of several that are started at once, one stays.
fn start_daemon(sharing: &Sharing) {
    let Some((program, arguments)) = sharing.start.as_deref().and_then(<[_]>::split_first) else {
        return;
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // They are this process's: the daemon is no service of the system's manager.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    // What it would write goes nowhere, and a filter that cannot be read would end it.
    command.env_remove("GTP_LOG");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    match command.spawn() {
        // Somebody must take note of its end; if there is no thread for that, init will.
        Ok(mut child) => drop(std::thread::Builder::new().spawn(move || child.wait())),
        Err(error) => tracing::warn!("{}: {error}", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_has_against_a_process_is_told_once_and_again_when_it_changes() {
        let mut refusals = Refusals::default();
        let mut note = |what: &str| refusals.note(what.to_owned());
        assert!(note("another layout") && !note("another layout"));
        assert!(note("too many processes") && note("another layout"));
    }

    #[test]
    fn a_daemon_that_hangs_is_gone_after_two_seconds_and_one_that_beats_is_not() {
        let mut pulse = Pulse::default();
        let mut silence = |beats| (0..SILENT_MOST).map(|_| pulse.feel(Rung::No, beats)).last();
        assert_eq!(silence(0), Some(Health::Hangs));
        assert_eq!(silence(1), Some(Health::Good), "the first of these waits brought a beat");
        assert_eq!(pulse.feel(Rung::No, 1), Health::Hangs);
        assert_eq!(pulse.feel(Rung::Yes, 1), Health::Good, "it rang");
        assert_eq!(pulse.feel(Rung::No, 1), Health::Good);
        assert_eq!(SILENT_MOST * WAIT_MS, 2_000);
    }
}
