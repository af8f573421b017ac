//! The file that lists the keys, and the one thread that reads it.
//!
//! Whoever reads a file waits while its file system does not answer, which may be for ever. Only
//! this thread waits then; those who asked it for the list stop waiting after two seconds. All who
//! ask before a check begins share its result, so nobody gets an older state, and however many ask
//! while a check hangs, one check more is due. Who may do what is decided elsewhere.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_sys::Clock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::admission::{Admission, Narrowed};
use crate::flows::{Failure, FailureKind};
use crate::identity::guard;
use crate::trust::{ClientTrust, Strangers};

/// The longest step in which a file system is taken to count time. A file that was read within one
/// step after a change may have changed again since and still look the same.
const STEP_SPAN: Span = Span::from_millis(100);

/// How long the list is waited for: clients wait ten seconds for an answer, and enter after two
/// checks.
const LOOK_MOST: Duration = Duration::from_secs(2);

/// The list that a check found, or why it cannot be used.
pub(super) type Looked = Result<Arc<ClientTrust>, Failure>;

/// The file with the list, and what it said when it was last read.
pub(super) struct KeyFile {
    path: PathBuf,
    strangers: Strangers,
    narrowed: Narrowed,
    clock: Clock,
    known: Option<Known>,
}

struct Known {
    stamp: Option<Stamp>,
    trust: Arc<ClientTrust>,
    /// When this stamp was first seen; `read` is when the list was last read.
    seen: Time,
    read: Time,
}

/// Properties of a file that change when the file does: size, times, device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp([i64; 5], [u64; 2]);

impl Stamp {
    /// Returns the stamp of a file, or `None` if it does not exist.
    fn of(path: &Path) -> Option<Stamp> {
        let meta: Metadata = std::fs::metadata(path).ok()?;
        let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        let [mtime, mtime_ns, ctime, ctime_ns] = times;
        let size = i64::try_from(meta.size()).unwrap_or(i64::MAX);
        Some(Stamp([size, mtime, mtime_ns, ctime, ctime_ns], [meta.dev(), meta.ino()]))
    }
}

impl KeyFile {
    pub fn new(
        path: PathBuf,
        (strangers, narrowed): (Strangers, Narrowed),
        clock: Clock,
    ) -> KeyFile {
        KeyFile { path, strangers, narrowed, clock, known: None }
    }

    /// Returns the list as it stands now. Blocks while it looks at the file and reads it.
    ///
    /// # Errors
    /// If the list cannot be used.
    pub fn now(&mut self) -> Looked {
        let (now, stamp) = (self.clock.now(), Stamp::of(&self.path));
        // The file may be unchanged while a directory above it has been opened to others.
        guard::check(&self.path)
            .map_err(|e| Failure::new(FailureKind::Authentication, e.to_string()))?;
        let same = self.known.as_ref().filter(|known| known.stamp == stamp);
        if let Some(known) = same
            && known.read.since(known.seen) >= STEP_SPAN
        {
            return Ok(Arc::clone(&known.trust));
        }
        let (path, strangers) = (self.path.clone(), self.strangers);
        let mut read = Admission::File { path, strangers }.load()?;
        let void = match self.narrowed {
            Narrowed::ToPlaces => Vec::new(),
            Narrowed::Void => read.keys.void_narrowed(),
        };
        if !void.is_empty() && self.known.as_ref().is_none_or(|known| *known.trust != read) {
            warn_of_void(&void);
        }
        let read = Arc::new(read);
        let (seen, trust) = match same {
            Some(known) if *known.trust == *read => (known.seen, Arc::clone(&known.trust)),
            Some(known) => (known.seen, read),
            None => (now, read),
        };
        self.known = Some(Known { stamp, trust: Arc::clone(&trust), seen, read: now });
        Ok(trust)
    }
}

/// Tells the log whose lines give nothing.
fn warn_of_void(void: &[String]) {
    let (shown, rest) = void.split_at(void.len().min(VOID_SHOWN));
    let more = match rest.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    tracing::warn!(
        "lines of the list of keys that give nothing here, because read=, write= and delete= name \
         places in a server with several exports: {}{more}",
        shown.join(", ")
    );
}

/// Lines that one warning names.
const VOID_SHOWN: usize = 8;

/// The thread that makes all checks; it ends with this value, or when a check that hangs does.
///
/// The runtime's pool would do for a file system that answers, but its idle threads take turns, and
/// each ends only after ten seconds without work. Two checks a second would keep up to twenty of
/// them for good, and each client of a list that hangs would keep one more.
pub(super) struct Watcher {
    asked: Arc<Asked>,
}

#[derive(Default)]
struct Asked {
    next: Mutex<Next>,
    bell: Condvar,
}

/// What the thread is to do when it has made its check.
#[derive(Default)]
enum Next {
    #[default]
    Wait,
    /// Check again; all who have asked meanwhile listen here.
    Look(watch::Sender<Option<Looked>>),
    End,
}

impl Watcher {
    /// Starts the thread; `look` makes a check.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(mut look: impl FnMut() -> Looked + Send + 'static) -> io::Result<Watcher> {
        let asked = Arc::new(Asked::default());
        let work = Arc::clone(&asked);
        let work = move || {
            while let Some(answer) = work.wait() {
                // Nobody may be waiting any more.
                answer.send_replace(Some(look()));
            }
        };
        std::thread::Builder::new().name("gtp-keys".into()).spawn(work)?;
        Ok(Watcher { asked })
    }

    /// Returns the result of a check that begins after this call. Safe to cancel.
    ///
    /// # Errors
    /// If the list cannot be used, or there is no answer within [`LOOK_MOST`].
    pub async fn look(&self) -> Looked {
        let mut answer = self.asked.ask();
        if let Ok(Ok(looked)) = timeout(LOOK_MOST, answer.wait_for(Option::is_some)).await
            && let Some(looked) = looked.as_ref()
        {
            return looked.clone();
        }
        let seconds = LOOK_MOST.as_secs();
        let text = format!("the list of keys could not be read within {seconds} seconds");
        Err(Failure::new(FailureKind::Temporary, text))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *self.asked.next() = Next::End;
        self.asked.bell.notify_one();
    }
}

impl Asked {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> watch::Receiver<Option<Looked>> {
        let mut next = self.next();
        if let Next::Look(answer) = &*next {
            return answer.subscribe();
        }
        let (answer, answered) = watch::channel(None);
        *next = Next::Look(answer);
        self.bell.notify_one();
        answered
    }

    /// Waits until a check is asked for. Returns where its result goes, or `None` if the thread is
    /// to end.
    fn wait(&self) -> Option<watch::Sender<Option<Looked>>> {
        let mut next = self.next();
        loop {
            match std::mem::take(&mut *next) {
                Next::Look(answer) => return Some(answer),
                Next::End => return None,
                Next::Wait => {}
            }
            next = self.bell.wait(next).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::identity::Identity;

    const VOID: (Strangers, Narrowed) = (Strangers::Refused, Narrowed::Void);

    #[test]
    fn a_line_that_names_places_gives_nothing_where_there_are_none_and_others_of_its_key_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let key = Identity::generate().fingerprint();
        let access = |text: &str, narrowed| {
            std::fs::write(&path, text.replace("KEY", &key.to_string())).unwrap();
            let of = (Strangers::Refused, narrowed);
            let trust = KeyFile::new(path.clone(), of, Clock::start()).now().unwrap();
            assert_eq!(trust.keys.comment(&key), Some("anna"));
            trust.access(&key).words()
        };
        for line in ["KEY read=home/a # anna\n", "KEY delete=x # anna\n", "KEY read write=x # anna"]
        {
            assert_eq!(access(line, Narrowed::Void), "", "{line}");
            assert_ne!(access(line, Narrowed::ToPlaces), "", "{line}");
        }
        let both = "KEY write=home # anna\nKEY read\n";
        assert_eq!(access(both, Narrowed::Void), "read");
        assert_eq!(access("KEY group=staff # anna", Narrowed::Void), "read,write");
    }

    #[test]
    fn a_list_is_read_when_it_has_changed_and_also_when_that_may_not_show() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let mut keys = KeyFile::new(path.clone(), VOID, Clock::start());
        assert_eq!(keys.now().unwrap().keys.len(), 0, "no file is an empty list");
        let identities = [Identity::generate(), Identity::generate()];
        for identity in &identities {
            let key = identity.fingerprint();
            // The same length, perhaps within one step of the file system's clock.
            std::fs::write(&path, format!("{key}\n")).unwrap();
            assert!(keys.now().unwrap().access(&key).read);
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(keys.now().unwrap().keys.len(), 0);
    }

    #[tokio::test]
    async fn however_many_ask_while_a_check_hangs_each_waits_two_seconds_and_one_check_is_due() {
        let (hung, gate) = std::sync::mpsc::channel::<()>();
        let checks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&checks);
        let trust =
            Arc::new(ClientTrust { keys: Default::default(), strangers: Strangers::Refused });
        let watcher = Watcher::start(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // It hangs until the other end is gone.
            let _ = gate.recv();
            Ok(Arc::clone(&trust))
        });
        let watcher = Arc::new(watcher.unwrap());
        let first = Arc::clone(&watcher);
        tokio::spawn(async move { first.look().await });
        while checks.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let start = tokio::time::Instant::now();
        let asking = (0..100).map(|_| {
            let watcher = Arc::clone(&watcher);
            tokio::spawn(async move { watcher.look().await.is_err() })
        });
        for asked in asking.collect::<Vec<_>>() {
            assert!(asked.await.unwrap(), "it hangs");
        }
        // The clock of timers has steps of a millisecond.
        let waited = start.elapsed();
        assert!((LOOK_MOST..=LOOK_MOST + Duration::from_millis(2)).contains(&waited));
        tokio::time::resume();
        drop(hung);
        assert!(watcher.look().await.is_ok(), "it can be used again");
        // The one that hung, one for those who asked meanwhile, and perhaps one for the last.
        assert!((2..=3).contains(&checks.load(Ordering::Relaxed)));
    }
}
