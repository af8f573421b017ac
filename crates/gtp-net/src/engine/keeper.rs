//! Looks for the machine's daemon, and tells engines when it comes, goes or rings.
//!
//! A thread of its own, because waiting is all it does. The first look is taken before the host
//! starts, so that a process beside a daemon never allocates for itself. To the daemon each engine
//! of a host is what a process is: the first one's keeper looks for it, and once that has found it
//! the others attach as well. It decides nothing about rates.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gtp_share::SLOTS_MOST;
use gtp_share::client::{Attachment, Past, Rung, attach};

use super::command::{Notice, Notices};

/// How a host finds the daemon of its machine.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Sockets to try, in this order.
    pub places: Vec<PathBuf>,
    /// What this process is, for people.
    pub program: String,
    /// A program that starts a daemon at the last place, with its arguments; it is run when no
    /// daemon answers.
    pub start: Option<Vec<std::ffi::OsString>>,
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
    Lost,
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
}

/// A daemon that was there may soon be again: looked for this often.
const AGAIN: Duration = Duration::from_millis(50);
/// One that never was is looked for this often.
const SELDOM: Duration = Duration::from_secs(2);
/// One that was lost is started anew at the first look and at every so manieth: once a second.
const STARTS: u32 = 20;
/// The thread looks this often whether it should end, and whether the daemon is at work.
const WAIT_MS: u32 = 500;
/// A daemon that gave no sign of life in so many waits in a row, two seconds, counts as gone. It is
/// waits that count and no clock: a process that stood still itself has not waited.
const SILENT_MOST: u32 = 4;

impl Keeper {
    /// Takes the first look for each engine, and starts the threads.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(sharing: Sharing, engines: Vec<Notices>) -> io::Result<Vec<Keeper>> {
        let word = Arc::new(Word::default());
        let lookout = |(number, notices)| {
            let (sharing, word) = (sharing.clone(), word.clone());
            Lookout { sharing, notices, word, leads: number == 0 }
        };
        engines.into_iter().enumerate().map(lookout).map(Keeper::begin).collect()
    }

    fn begin(lookout: Lookout) -> io::Result<Keeper> {
        let mut refusals = Refusals::default();
        let first = lookout.first_look(&mut refusals);
        if let Some(found) = &first {
            lookout.tell(DaemonNews::Found(found.clone()));
        } else if lookout.leads {
            tracing::info!("no daemon: this process allocates for itself");
        }
        let over = Arc::new(AtomicBool::new(false));
        let keeper = Keeper(over.clone());
        let thread = std::thread::Builder::new().name("gtp-daemon".into());
        thread.spawn(move || keep(&lookout, (first, refusals), &over))?;
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

impl Lookout {
    fn tell(&self, news: DaemonNews) {
        if self.leads && matches!(news, DaemonNews::Found(_)) {
            self.word.spread();
        }
        self.notices.send(Notice::Daemon(news));
    }

    fn first_look(&self, refusals: &mut Refusals) -> Option<Arc<Attachment>> {
        if !self.leads && !self.word.is_out() {
            return None;
        }
        look(&self.sharing, Past::None, refusals).or_else(|| {
            self.sharing.start.as_ref().filter(|_| self.leads)?;
            start_daemon(&self.sharing);
            look_for_a_while(&self.sharing, refusals)
        })
    }

    /// Waits for the time to look for a daemon that this engine has not, or has not any more.
    /// `false`: it is not yet.
    fn wait(&self, past: Past, hopes: &mut bool) -> bool {
        if past == Past::Orphaned || *hopes {
            std::thread::sleep(AGAIN);
            return true;
        }
        if self.leads {
            std::thread::sleep(SELDOM);
            return true;
        }
        self.word.wait(SELDOM);
        *hopes = self.word.is_out();
        if *hopes {
            self.tell(DaemonNews::Elsewhere);
        }
        *hopes
    }
}

fn keep(
    lookout: &Lookout,
    (first, mut refusals): (Option<Arc<Attachment>>, Refusals),
    over: &AtomicBool,
) {
    let Lookout { sharing, leads, .. } = lookout;
    let mut past = if first.is_some() { Past::Orphaned } else { Past::None };
    let mut found = first;
    let (mut looks, mut hopes) = (0_u32, false);
    let mut pulse = Pulse::default();
    while !over.load(Ordering::Relaxed) {
        let Some(daemon) = &found else {
            if !lookout.wait(past, &mut hopes) {
                continue;
            }
            found = look(sharing, past, &mut refusals);
            looks = looks.wrapping_add(1);
            match &found {
                Some(daemon) => {
                    (past, looks, pulse) = (Past::Orphaned, 0, Pulse::default());
                    if *leads {
                        tracing::info!("this process shares capacity through the daemon");
                    }
                    lookout.tell(DaemonNews::Found(daemon.clone()));
                }
                None if *leads && past == Past::Orphaned && looks % STARTS == 1 => {
                    start_daemon(sharing);
                }
                None => {}
            }
            continue;
        };
        let rung = daemon.wait(Some(WAIT_MS));
        match (rung, pulse.feel(rung, daemon.grants.beats())) {
            (Rung::Yes, _) => lookout.tell(DaemonNews::Rang),
            (Rung::No, Health::Good) => {}
            (Rung::Gone, _) | (Rung::No, Health::Hangs) => {
                if *leads {
                    tracing::warn!("the daemon is gone: rates fall slowly until it is back");
                }
                found = None;
                lookout.tell(DaemonNews::Lost);
            }
        }
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

/// Attaches to the first daemon that answers.
fn look(sharing: &Sharing, past: Past, refusals: &mut Refusals) -> Option<Arc<Attachment>> {
    let attach = |place| attach(place, SLOTS_MOST, &sharing.program, past);
    sharing.places.iter().find_map(|place| match attach(place) {
        Ok(found) => Some(Arc::new(found)),
        Err(error) => {
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                _ => {
                    let what = format!("{}: {error}", place.display());
                    if refusals.note(what.clone()) {
                        tracing::warn!("{what}; {}", meanwhile(past));
                    }
                }
            }
            None
        }
    })
}

/// What a process does that no daemon takes.
fn meanwhile(past: Past) -> &'static str {
    match past {
        Past::None => "this process allocates for itself",
        Past::Orphaned => "rates only fall until one takes it, or the program is started anew",
    }
}

/// A daemon that was just started needs a moment.
fn look_for_a_while(sharing: &Sharing, refusals: &mut Refusals) -> Option<Arc<Attachment>> {
    const LOOKS: u32 = 40;
    (0..LOOKS).find_map(|_| {
        std::thread::sleep(AGAIN);
        look(sharing, Past::None, refusals)
    })
}

/// Starts a daemon, if that is wanted. Of several that are started at once, one stays.
fn start_daemon(sharing: &Sharing) {
    let Some((program, arguments)) = sharing.start.as_deref().and_then(<[_]>::split_first) else {
        return;
    };
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
