//! Paths that are sent to several places at once.
//!
//! They are listed once for all, and read once as far as the places keep pace. If a file turns out
//! to have changed, whoever tries again has them listed again, and the others go on with what they
//! have. Whether a place is slow or gone is no other place's matter.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gtp_store::{BlockSource, ReadBytes, ReadCount, RelPath, Settling, SharedFiles};

use super::parcel::{Aim, Parcel, open_paths, part_name, place_of};
use super::relay::Relay;
use crate::client::Relaying;
use crate::client::placement::{Placement, SourceName};
use crate::flows::{Bundle, Failure, FailureKind, Joined, has_settled, next_change_shows};

/// The most places to which one command sends: each has a session, a thread that reads, and its
/// part of the memory for blocks, which is a few blocks then.
pub const SINKS_MOST: usize = 32;

/// Memory for blocks that some places have taken and others have not: at 10 Gbit/s a place may be
/// a tenth of a second behind.
const SHARED_MEMORY: usize = 128 << 20;

/// Files and directories that are sent to several places.
#[derive(Debug)]
pub struct SharedPaths {
    paths: Vec<PathBuf>,
    places: usize,
    relay: Option<Arc<Relay>>,
    count: Arc<ReadCount>,
    /// Held while the paths are listed, which may take minutes.
    turn: Mutex<()>,
    /// Held for a moment alone: who ends a transfer must not wait for a listing.
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    listing: Option<Arc<Listing>>,
    /// Places that need nothing any more.
    gone: Vec<usize>,
    listings: u32,
}

/// What one place gets of shared paths.
#[derive(Debug)]
pub struct Share {
    paths: Arc<SharedPaths>,
    place: usize,
    /// What the last attempt has sent.
    sent: Option<Arc<Listing>>,
}

struct Listing {
    objects: Vec<(SourceName, Option<RelPath>)>,
    files: SharedFiles,
    skipped: Vec<Failure>,
    joined: OnceLock<Result<Arc<Joined>, String>>,
}

impl SharedPaths {
    /// Paths for so many places, and what each place gets of them.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] with more than [`SINKS_MOST`] places.
    pub fn new(
        paths: Vec<PathBuf>,
        places: usize,
        relaying: Relaying,
    ) -> Result<(Arc<SharedPaths>, Vec<Share>), Failure> {
        if places > SINKS_MOST {
            let text = format!("{places} destinations; one command takes {SINKS_MOST} at most");
            return Err(Failure::new(FailureKind::Usage, text));
        }
        let (count, turn, now) = (Arc::default(), Mutex::default(), Mutex::default());
        let relay = (relaying == Relaying::On).then(|| Relay::new(places));
        let all = Arc::new(SharedPaths { paths, places, relay, count, turn, now });
        let share = |place| Share { paths: Arc::clone(&all), place, sent: None };
        let shares = (0..places).map(share).collect();
        Ok((all, shares))
    }

    /// Bytes that were read from the files so far.
    pub fn read_bytes(&self) -> ReadBytes {
        self.count.bytes()
    }

    /// How the sinks relay, if they were asked to.
    pub fn relay(&self) -> Option<&Relay> {
        self.relay.as_deref()
    }

    /// How often the paths were listed.
    pub fn listings(&self) -> u32 {
        self.now().listings
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listing for an attempt after one that has sent `sent`. Others wait meanwhile.
    fn listing(&self, sent: Option<&Arc<Listing>>) -> Result<Arc<Listing>, Failure> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.now().listing.clone();
        if let Some(listing) = last {
            let has_failed =
                |sent: &&Arc<Listing>| Arc::ptr_eq(sent, &listing) && listing.files.has_failed();
            if !sent.as_ref().is_some_and(has_failed) {
                return Ok(listing);
            }
            listing.files.retire();
        }
        self.now().listings += 1;
        let listing = Arc::new(self.list()?);
        let mut now = self.now();
        now.gone.iter().for_each(|place| listing.files.leave(*place));
        now.listing = Some(Arc::clone(&listing));
        Ok(listing)
    }

    fn list(&self) -> Result<Listing, Failure> {
        let mut skipped = Vec::new();
        let listed = open_paths(&self.paths, &mut skipped)?;
        let (objects, parts) =
            listed.into_iter().map(|object| ((object.said, object.name), object.scanned)).unzip();
        let settling = Settling { shows: next_change_shows, lasts: has_settled };
        let room = (self.places, SHARED_MEMORY);
        let files = SharedFiles::new(parts, room, settling, Arc::clone(&self.count));
        Ok(Listing { objects, files, skipped, joined: OnceLock::new() })
    }
}

impl Share {
    /// What has the sinks relay, if they are asked to, and the number of this one.
    pub(super) fn relay(&self) -> Option<(Arc<Relay>, usize)> {
        self.paths.relay.clone().map(|relay| (relay, self.place))
    }

    /// What is sent to this place. Blocks.
    pub(super) fn pack(&mut self, aim: Aim) -> Result<Parcel, Failure> {
        let listing = self.paths.listing(self.sent.as_ref())?;
        self.sent = Some(Arc::clone(&listing));
        let (several, values) = (self.paths.paths.len() > 1, Vec::new());
        let first = listing.objects.first().map(|(said, _)| *said);
        let mut skipped = listing.skipped.clone();
        if place_of(several, first, aim)? == Placement::Itself {
            let source = Box::new(listing.files.source(0, self.place));
            return Ok(Parcel { source, skipped, values });
        }
        let joined = listing.joined()?;
        for (path, why) in joined.skipped() {
            skipped.push(Failure::new(FailureKind::Partial, why.to_string()).about(path));
        }
        let sources = (0..listing.objects.len()).map(|part| -> Box<dyn BlockSource> {
            Box::new(listing.files.source(part, self.place))
        });
        let source = Box::new(Bundle::of(joined, sources.collect()));
        Ok(Parcel { source, skipped, values })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.paths.relay.iter().for_each(|relay| relay.note_end());
        let mut now = self.paths.now();
        now.gone.push(self.place);
        if let Some(listing) = &now.listing {
            listing.files.leave(self.place);
        }
        if let Some(sent) = &self.sent {
            sent.files.leave(self.place);
        }
    }
}

impl Listing {
    /// All objects as one, joined once for all places.
    fn joined(&self) -> Result<Arc<Joined>, Failure> {
        let join = || {
            let parts = self.objects.iter().zip(0..).map(|((said, name), part)| {
                (part_name(*said, name.as_ref()), &*self.files.listing(part).manifest)
            });
            Joined::of(parts).map(Arc::new).map_err(|why| why.to_string())
        };
        let joined = self.joined.get_or_init(join).clone();
        joined.map_err(|why| Failure::new(FailureKind::Usage, why))
    }
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").field("objects", &self.objects).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gtp_store::{RootKind, new_framed};

    use super::*;
    use crate::client::placement::End;

    const HERE: Aim = Aim { end: End::Slash, there: Some(RootKind::Dir) };
    const NEW: Aim = Aim { end: End::Name, there: None };

    /// All blocks of what is sent, and the hashes of its files.
    fn send(source: &mut dyn BlockSource) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let files: Vec<u64> = source.manifest().entries.iter().map(|e| e.size).collect();
        for (size, file) in files.into_iter().zip(0..) {
            let mut content = Vec::new();
            for block in 0..size.div_ceil(gtp_store::BLOCK) {
                let mut out = new_framed();
                source.load_block(file, block, &mut out).unwrap();
                content.extend_from_slice(&out[..out.len() - gtp_store::TRAILER]);
            }
            if size > 0 {
                assert_eq!(source.file_root(file).unwrap(), *blake3::hash(&content).as_bytes());
                all.push(content);
            }
        }
        all
    }

    fn tree(dir: &std::path::Path) -> Vec<Vec<u8>> {
        let large = vec![7; 700_000];
        fs::create_dir_all(dir.join("t/sub")).unwrap();
        fs::write(dir.join("t/large"), &large).unwrap();
        let mut all = vec![large];
        for n in 0..50 {
            let content = format!("file {n:02}").into_bytes();
            fs::write(dir.join(format!("t/sub/{n:02}")), &content).unwrap();
            all.push(content);
        }
        all
    }

    #[test]
    fn a_tree_is_listed_once_and_read_once_for_all_places_wherever_it_goes_there() {
        let dir = tempfile::tempdir().unwrap();
        let content = tree(dir.path());
        let (paths, mut shares) =
            SharedPaths::new(vec![dir.path().join("t")], 3, Relaying::Off).unwrap();
        let aims = [HERE, NEW, HERE];
        let mut parcels: Vec<_> =
            shares.iter_mut().zip(aims).map(|(share, aim)| share.pack(aim).ok().unwrap()).collect();
        let names = |at: usize| {
            parcels[at].source.manifest().entries.iter().map(|e| e.path.as_str()).next()
        };
        assert_eq!((names(0), names(1)), (Some("t"), Some("large")));
        let of = |at: usize| Arc::as_ptr(parcels[at].source.manifest());
        assert_eq!(of(0), of(2), "the joined listing is in memory once");
        for parcel in &mut parcels {
            assert_eq!(send(&mut *parcel.source), content);
        }
        assert_eq!(paths.listings(), 1);
    }

    #[test]
    fn what_has_changed_is_listed_again_for_who_tries_again_and_for_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "before").unwrap();
        let (paths, mut shares) = SharedPaths::new(vec![path.clone()], 2, Relaying::Off).unwrap();
        for _ in 0..2 {
            let mut parcel = shares[0].pack(NEW).ok().unwrap();
            assert_eq!(send(&mut *parcel.source), [b"before".to_vec()]);
        }
        assert_eq!(paths.listings(), 1, "nothing has changed");
        let mut old = shares[0].pack(NEW).ok().unwrap();
        fs::write(dir.path().join("other"), "after it").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(old.source.load_block(0, 0, &mut new_framed()).is_ok(), "it is in memory");
        assert!(old.source.file_root(0).is_err());
        let mut parcel = shares[0].pack(NEW).ok().unwrap();
        assert_eq!(send(&mut *parcel.source), [b"after it".to_vec()]);
        let mut other = shares[1].pack(NEW).ok().unwrap();
        assert_eq!(send(&mut *other.source), [b"after it".to_vec()]);
        assert_eq!(paths.listings(), 2);
    }

    #[test]
    fn more_places_than_there_may_be_are_refused() {
        assert!(SharedPaths::new(Vec::new(), SINKS_MOST, Relaying::Off).is_ok());
        let refused = SharedPaths::new(Vec::new(), SINKS_MOST + 1, Relaying::Off).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Usage);
        assert!(refused.text.contains("32 at most"), "{refused}");
    }
}
