//! What clients may write, where that is less than all that is exported.
//!
//! A client that writes for somebody else may be hostile to the user who let it in. The place is
//! fixed beforehand, and so are the names that may appear directly beneath it. What the names are
//! for is not known here.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use gtp_store::{Manifest, RelPath, RootKind};

/// Whether something directly beneath the place may have a name.
type MayName = dyn Fn(&str) -> bool + Send + Sync;

/// The one place that clients may write, and the names beneath it.
#[derive(Clone)]
pub struct Confines {
    /// Beneath the export, without slashes at its ends; empty for all of it.
    path: String,
    may_name: Arc<MayName>,
}

impl fmt::Debug for Confines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Confines({:?})", self.path)
    }
}

impl Confines {
    /// Clients may write the file, or into the directory, at this path beneath the export (empty
    /// for all of it); directly beneath that directory only what `may_name` says yes to.
    pub fn new(
        path: impl Into<String>,
        may_name: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Confines {
        Confines { path: path.into(), may_name: Arc::new(may_name) }
    }

    /// Whether an object may be put at this path; `None` is all that is exported.
    pub(super) fn allow(&self, path: Option<&RelPath>) -> bool {
        path.map_or("", RelPath::as_str) == self.path
    }

    /// The first entry of an object that is none of those that may come. Asks for each name
    /// directly beneath the place once, which may take long if there are many.
    pub(super) fn strange<'m>(&self, manifest: &'m Manifest) -> Option<&'m RelPath> {
        // A file has the name of the place.
        let entries = manifest.entries.iter().filter(|_| manifest.root_kind == RootKind::Dir);
        let mut known = HashSet::new();
        entries.map(|entry| &entry.path).find(|path| {
            let top = path.as_str().split('/').next().unwrap_or_default();
            known.insert(top) && !(self.may_name)(top)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use gtp_store::{Entry, Kind, Mode, Mtime};

    use super::*;

    fn manifest(root_kind: RootKind, paths: &[&str]) -> Manifest {
        let entry = |path: &&str| Entry {
            path: RelPath::new(path).unwrap(),
            kind: Kind::File,
            size: 1,
            mode: Mode::new(0o644),
            mtime: Mtime::new(0, 0).unwrap(),
        };
        Manifest { root_kind, own: None, entries: paths.iter().map(entry).collect() }
    }

    #[test]
    fn one_place_may_be_written_and_names_directly_beneath_it_alone_are_judged() {
        let confines = Confines::new("in/x", |name: &str| name == "a");
        let path = |text: &str| RelPath::new(text).unwrap();
        assert!(confines.allow(Some(&path("in/x"))));
        assert!(!confines.allow(Some(&path("in"))) && !confines.allow(None));
        assert!(!confines.allow(Some(&path("in/x/a"))));
        assert!(Confines::new("", |_: &str| true).allow(None));
        let strange = |kind, paths: &[&str]| {
            confines.strange(&manifest(kind, paths)).map(|path| path.as_str().to_owned())
        };
        assert_eq!(strange(RootKind::Dir, &["a/b", "a/c"]), None);
        assert_eq!(strange(RootKind::Dir, &["a/b", "b/a"]), Some("b/a".into()));
        assert_eq!(strange(RootKind::File, &["x"]), None);
    }

    #[test]
    fn a_name_is_judged_once_however_much_is_beneath_it() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let confines = Confines::new("", move |_: &str| {
            count.fetch_add(1, Ordering::Relaxed);
            true
        });
        let many = manifest(RootKind::Dir, &["a", "a/1", "b", "b/1", "a/2", "a/2/3"]);
        assert_eq!(confines.strange(&many), None);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
