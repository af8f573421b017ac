//! Looks an object up while its client waits: the walk through the tree, and the memory it takes.
//!
//! Walking blocks, so it has a thread of its own, which nobody can stop from outside. It asks
//! before every entry whether it is still wanted; when the client has left it ends there, and only
//! then gives back memory and the session's place. Whoever comes and goes in a loop so meets his
//! own limits, not others'.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gtp_store::{Export, Manifest, Scanned, SkipReason, Skipped, SourceError};
use tokio::task::JoinHandle;

use super::Shared;
use super::admission::listing_bytes;
use super::budget::{Share, USED_UP};
use super::guests::Seat;
use super::session::{Client, Ending};
use crate::control::SEARCH_SPAN;
use crate::flows::{Failure, FailureKind, reason_of_source};
use crate::messages::{
    CONTENT_MAX, ENTRIES_MAX, Fault, Message, PATH_MAX, PATHS_MAX, PeerText, Reason,
};

/// How much of an object is looked up.
#[derive(Clone, Copy)]
pub(super) enum Extent {
    /// Everything.
    Whole,
    /// A directory's own names.
    OneLevel,
}

/// Looks up what the client asks for, and tells it meanwhile that this goes on. The listing takes
/// memory for as long as the share that comes with it lives.
///
/// # Errors
/// How the session ends; the client knows.
pub(super) async fn scan(
    shared: &Arc<Shared>,
    mut client: Client,
    extent: Extent,
) -> Result<(Client, Scanned, Share), Ending> {
    let walked = Arc::new(AtomicU64::new(0));
    let search = {
        let (shared, path) = (Arc::clone(shared), client.path.clone());
        let (seat, mut share) = (Arc::clone(&client.seat), shared.listings.share(client.holder));
        let walked = Arc::clone(&walked);
        Search::begin(move |wanted| {
            let _seat = seat;
            let at = path.as_ref();
            let mut room = |path| {
                walked.fetch_add(1, Ordering::Relaxed);
                wanted() && share.take(listing_bytes(path))
            };
            let scanned = export(&shared).and_then(|export| {
                let scanned = match extent {
                    Extent::Whole => export.scan_within(at, &mut room),
                    Extent::OneLevel => export.list_within(at, &mut room),
                };
                scanned.map_err(Nothing::There)
            });
            (scanned, share)
        })
    };
    let clock = shared.host.clock();
    let note = |seat: &Seat| seat.note(walked.load(Ordering::Relaxed), clock.now());
    match wait(&mut client, search, note).await {
        Ok((Ok(scanned), share)) => match beyond_limits(&scanned.manifest) {
            Some(text) => {
                client.channel.refuse(Reason::Limit, text.clone()).await;
                Err(Ending::failed(Failure::new(FailureKind::Other, text)))
            }
            None => Ok((client, scanned, share)),
        },
        Ok((Err(Nothing::There(error)), _)) => Err(refuse(client, error).await),
        Ok((Err(Nothing::Exported), _)) => {
            client.channel.refuse(Reason::Busy, GONE).await;
            Err(Ending::failed(Failure::new(FailureKind::Temporary, GONE)))
        }
        Err(failure) => Err(Ending::failed(failure)),
    }
}

/// Why there is no listing.
enum Nothing {
    /// The export itself does not exist.
    Exported,
    /// The export has no such object, or the object cannot be listed.
    There(SourceError),
}

/// Opens the export by the path that the operator named, anew for each session: the directory may
/// have been replaced, or a link that leads to it switched. Running sessions keep theirs.
fn export(shared: &Shared) -> Result<Export, Nothing> {
    Export::open(&shared.config.root).map_err(|error| {
        tracing::warn!(%error, "the export cannot be opened");
        Nothing::Exported
    })
}

/// What clients are told while the export does not exist; they do not learn its path.
const GONE: &str = "what this server exports is not there at present";

/// What a client is told about names that exist and are not in the listing: the first by name, the
/// rest by number.
pub(super) fn skipped_faults(scanned: &Scanned) -> Vec<Message> {
    let named = scanned.skipped.iter().take(NAMED_MAX);
    let mut faults: Vec<Message> = named.map(skipped_fault).collect();
    let more = scanned.skipped_total.saturating_sub(faults.len() as u64);
    if more > 0 {
        let text = PeerText::new(format!("{more} more"));
        let rest = Fault { reason: Reason::Other, text, path: Some(Vec::new()) };
        faults.push(Message::Fault(rest));
    }
    faults
}

/// Clients keep a thousand; the last says how many more there are.
const NAMED_MAX: usize = 999;

fn skipped_fault(skipped: &Skipped) -> Message {
    let reason = match skipped.why {
        SkipReason::Link | SkipReason::Special => Reason::Other,
        SkipReason::Denied => Reason::Permission,
        SkipReason::Name(_) | SkipReason::Unreadable => Reason::Unreadable,
    };
    let mut path = skipped.path.clone().into_bytes();
    path.truncate(PATH_MAX);
    let text = PeerText::new(skipped.why.to_string());
    Message::Fault(Fault { reason, text, path: Some(path) })
}

/// What of a listing no message may say, or no client would take.
fn beyond_limits(manifest: &Manifest) -> Option<String> {
    let paths: usize = manifest.entries.iter().map(|entry| entry.path.as_str().len()).sum();
    if manifest.entries.len() as u64 > ENTRIES_MAX {
        Some(format!("more than {ENTRIES_MAX} entries"))
    } else if paths > PATHS_MAX {
        Some(format!("more than {PATHS_MAX} bytes of names"))
    } else if manifest.content_bytes() > CONTENT_MAX {
        Some(format!("more than {CONTENT_MAX} bytes of content"))
    } else {
        None
    }
}

/// Tells a client why there is no listing.
async fn refuse(client: Client, error: SourceError) -> Ending {
    let text = match &error {
        SourceError::NoRoom => USED_UP.into(),
        other => other.to_string(),
    };
    client.channel.refuse(reason_of_source(&error), text).await;
    Ending::failed(error)
}

/// A large tree takes longer than a client would wait in silence.
/// What it has walked through is `note`d as a sign of life.
async fn wait<T>(
    client: &mut Client,
    mut search: Search<T>,
    note: impl Fn(&Seat),
) -> Result<T, Failure> {
    let mut keepalive = tokio::time::interval(SEARCH_SPAN);
    keepalive.reset();
    loop {
        tokio::select! {
            found = &mut search.job => {
                return found.map_err(|e| Failure::new(FailureKind::Other, e.to_string()));
            }
            _ = keepalive.tick() => {
                note(&client.seat);
                client.channel.send(&Message::Keepalive).await?;
            }
        }
    }
}

/// Work on a thread of its own that is wanted for as long as this lives.
struct Search<T> {
    job: JoinHandle<T>,
    wanted: Arc<AtomicBool>,
}

impl<T: Send + 'static> Search<T> {
    /// Begins `work`, which may ask at any time whether it is still wanted.
    fn begin(work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static) -> Search<T> {
        let wanted = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&wanted);
        let job = tokio::task::spawn_blocking(move || work(&|| asked.load(Ordering::Relaxed)));
        Search { job, wanted }
    }
}

impl<T> Drop for Search<T> {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use gtp_alloc::Bytes;
    use gtp_store::{Entry, Export, Kind, Mode, Mtime, RelPath, RootKind};

    use super::super::budget::{Budget, Holder};
    use super::*;

    #[test]
    fn a_listing_beyond_what_messages_may_say_is_known_by_which_limit() {
        let listing = |count: u64, size| {
            let entry = |n| Entry {
                path: RelPath::new(&format!("{n}")).unwrap(),
                kind: Kind::File,
                size,
                mode: Mode::new(0o644),
                mtime: Mtime::new(0, 0).unwrap(),
            };
            Manifest {
                root_kind: RootKind::Dir,
                own: None,
                entries: (0..count).map(entry).collect(),
            }
        };
        let beyond = |count, size| beyond_limits(&listing(count, size)).unwrap_or_default();
        assert_eq!(beyond(2, CONTENT_MAX / 2) + &beyond(ENTRIES_MAX, 0), "");
        assert!(beyond(2, CONTENT_MAX / 2 + 1).ends_with("bytes of content"));
        assert!(beyond(1, u64::MAX).ends_with("bytes of content"));
        assert!(beyond(ENTRIES_MAX + 1, 0).ends_with("entries"));
    }

    #[tokio::test]
    async fn a_search_that_nobody_waits_for_ends_at_the_next_entry_and_gives_its_memory_back() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let export = Export::open(dir.path()).unwrap();
        let budget = Budget::new(Bytes(400));
        let mut share = budget.share(Holder::Strangers);
        let (at_entry, entries) = mpsc::channel();
        let (go_on, allowed) = mpsc::channel();
        let (tell, ended) = tokio::sync::oneshot::channel();
        let search = Search::begin(move |wanted| {
            let mut room = |_| {
                at_entry.send(()).unwrap();
                allowed.recv().unwrap();
                wanted() && share.take(10)
            };
            let scanned = export.scan_within(None, &mut room);
            drop(share);
            tell.send(scanned.map(|_| ())).unwrap();
        });
        // It is at its third entry when the client leaves.
        for _ in 0..2 {
            entries.recv().unwrap();
            go_on.send(()).unwrap();
        }
        entries.recv().unwrap();
        assert!(!budget.share(Holder::Strangers).take(81), "two entries are taken");
        drop(search);
        go_on.send(()).unwrap();
        assert!(matches!(ended.await.unwrap(), Err(SourceError::NoRoom)));
        assert!(entries.recv().is_err(), "it asks no more");
        assert!(budget.share(Holder::Strangers).take(100));
    }
}
