//! Where a fetched object goes: from the user's words to a sink.
//!
//! Which place the words mean is decided by the rule that `put` has too. Here it is found or made,
//! once for a transfer: whatever its sources do later, it stays.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gtp_store::{
    BlockSink, Chosen, Destination, DiscardSink, Entry, Existing, FileSink, MadeDir, Manifest,
    OrderedWriterSink, Recheck, RelPath, RootKind, SinkError, SinkOptions, UNFINISHED_DIR, Value,
};

use super::Url;
use super::connect::Described;
use super::placement::{End, Placement, SourceName, placement};
use crate::flows::{Failure, FailureKind};

/// Makes a sink for an object, once its listing is known. Called on a thread that may block.
pub type MakeSink = Box<dyn FnOnce(&Arc<Manifest>) -> Result<Box<dyn BlockSink>, SinkError> + Send>;

/// Where an object goes.
pub enum Place {
    /// A path of the file system.
    Path {
        /// The path.
        path: PathBuf,
        /// How files that are there are treated.
        options: SinkOptions,
        /// How the object is called there.
        naming: Naming,
    },
    /// A stream, in order; one file only.
    Stream {
        /// What takes the bytes.
        out: Box<dyn Write + Send>,
        /// What errors call it.
        name: String,
    },
    /// Whatever the caller makes.
    Sink(MakeSink),
}

impl Place {
    /// What was to come, is not in an object, and was not said to be left out.
    pub(super) fn missing(&self, described: &Described) -> Vec<Failure> {
        let Place::Path { naming, .. } = self else { return Vec::new() };
        let gone = |name: String| {
            let failure = Failure::new(FailureKind::Partial, "it is not there any more");
            failure.about(gtp_store::escaped(&name))
        };
        let is_told = |name: &String| {
            let begin = format!("{}: ", gtp_store::escaped(name));
            described.skipped.iter().any(|failure| failure.text.starts_with(&begin))
        };
        let missing = naming.missing(&described.manifest).into_iter();
        missing.filter(|name| !is_told(name)).map(gone).collect()
    }
}

/// How an object is called at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// What a destination without a slash at its end means to a directory.
    pub directories: Directories,
    /// The object's name beneath a directory; if `None`, the last part of its address.
    pub name: Option<RelPath>,
    /// The names directly beneath a directory that may come; any if `None`.
    pub only: Option<Arc<Chosen>>,
}

impl Naming {
    /// The first entry of an object that may not come.
    fn strange<'m>(&self, manifest: &'m Manifest) -> Option<&'m RelPath> {
        let only = self.only.as_ref()?;
        let may_come = |entry: &Entry| {
            let top = entry.path.as_str().split('/').next().unwrap_or_default();
            manifest.root_kind == RootKind::Dir && only.contains(top)
        };
        manifest.entries.iter().find(|entry| !may_come(entry)).map(|entry| &entry.path)
    }

    /// The names that were to come and are not in an object.
    fn missing(&self, manifest: &Manifest) -> Vec<String> {
        let Some(only) = &self.only else { return Vec::new() };
        let paths = manifest.entries.iter().map(|entry| entry.path.as_str());
        let there: HashSet<&str> = paths.filter(|path| !path.contains('/')).collect();
        only.iter().filter(|name| !there.contains(name.as_str())).cloned().collect()
    }
}

/// What a destination without a slash at its end means to a directory that is named without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Directories {
    /// The directory's new name, as for `get`.
    #[default]
    TakeTheName,
    /// The directory that it goes beneath under its own name, as for `cp` and rsync.
    GoBeneath,
}

/// A sink, with how people name it.
pub(super) struct Placed {
    pub sink: Box<dyn BlockSink>,
    pub shown: String,
}

/// Opens the destination for an object, or for a file of this hash. Blocks, as long as it takes
/// to hash what is there; `recheck` shows how far that is.
pub(super) fn open(
    place: Place,
    url: &Url,
    manifest: &Arc<Manifest>,
    expected: Option<Value>,
    recheck: &Arc<Recheck>,
) -> Result<Placed, Failure> {
    match place {
        Place::Path { path, mut options, naming } => {
            options.existing = match (options.existing, expected) {
                (Existing::SkipUnchanged, Some(expected)) => Existing::SkipIf(expected),
                (existing, _) => existing,
            };
            on_disk(&path, (options, &naming), url, manifest, recheck)
        }
        Place::Stream { out, name } => {
            let sink = OrderedWriterSink::new(Arc::clone(manifest), out, EARLY_BLOCKS)?;
            Ok(Placed { sink: Box::new(sink.called(&name)), shown: "-".into() })
        }
        Place::Sink(make) => Ok(Placed { sink: make(manifest)?, shown: "-".into() }),
    }
}

fn on_disk(
    path: &Path,
    (options, naming): (SinkOptions, &Naming),
    url: &Url,
    manifest: &Arc<Manifest>,
    recheck: &Arc<Recheck>,
) -> Result<Placed, Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::new(FailureKind::Usage, "the destination is empty"));
    }
    if manifest.root_kind == RootKind::File && url.names_directory() && !url.path().is_empty() {
        let text = format!("{url}: is not a directory, although its path ends in a slash");
        return Err(Failure::new(FailureKind::Missing, text));
    }
    if let Some(strange) = naming.strange(manifest) {
        let text = format!("{url}: it sends {strange}, which nobody asked for");
        return Err(Failure::new(FailureKind::Other, text));
    }
    let there = look(path)?;
    if there == Some(There::Null) {
        let sink = Box::new(DiscardSink::new(Arc::clone(manifest)));
        return Ok(Placed { sink, shown: shown(path) });
    }
    let destination = destination(path, there.and_then(There::kind), (url, naming), manifest)?;
    let shown = destination.shown();
    let recheck = Arc::clone(recheck);
    let sink = FileSink::open_watched(destination, Arc::clone(manifest), options, recheck);
    if sink.is_err() && there.is_none() && manifest.root_kind == RootKind::Dir {
        // Nothing says that this transfer made the directory, unless a journal is in it.
        if let Err(error) = std::fs::remove_dir(path) {
            tracing::debug!(path = %shown, %error, "a directory that was made stays");
        }
    }
    Ok(Placed { sink: Box::new(sink?), shown })
}

/// The place that the rule gives the object; directories that it needs are made.
fn destination(
    path: &Path,
    there: Option<RootKind>,
    (url, naming): (&Url, &Naming),
    manifest: &Manifest,
) -> Result<Destination, Failure> {
    let kind = manifest.root_kind;
    let named = if url.names_directory() { End::Slash } else { End::Name };
    let end = match (kind, naming.directories) {
        (RootKind::Dir, Directories::GoBeneath) => End::Slash,
        (RootKind::Dir, Directories::TakeTheName) | (RootKind::File, _) => End::of(path),
    };
    match (placement(SourceName::of(kind, named), end, there), kind) {
        (Placement::Beneath, _) => {
            let name = match &naming.name {
                Some(name) => name.clone(),
                None => own_name(url, manifest)?,
            };
            if there.is_none() {
                make(path, 0o777)?;
            }
            Ok(Destination::beneath(path, name, kind)?)
        }
        (Placement::Itself, RootKind::File) => {
            let name = path.file_name().unwrap_or_default().as_bytes();
            let name = RelPath::from_bytes(name).map_err(|why| {
                Failure::new(FailureKind::Destination, format!("{}: {why}", shown(path)))
            })?;
            let holder = path.parent().filter(|p| !p.as_os_str().is_empty());
            Ok(Destination::beneath(holder.unwrap_or(Path::new(".")), name, kind)?)
        }
        (Placement::Itself, RootKind::Dir) => {
            if there.is_none() {
                // A directory that is to get the source's mode is private until it has it.
                make(path, if manifest.own.is_some() { UNFINISHED_DIR } else { 0o777 })?;
            }
            let made = if there.is_none() { MadeDir::New } else { MadeDir::There };
            Ok(Destination::into(path, made)?)
        }
    }
}

/// What can be at a destination, links followed: the user wrote them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// A directory, or something else that is no device: a file, or a link that leads nowhere.
    Object(RootKind),
    /// The device that drops what it is given.
    Null,
}

impl There {
    fn kind(self) -> Option<RootKind> {
        match self {
            There::Object(kind) => Some(kind),
            There::Null => None,
        }
    }
}

fn look(path: &Path) -> Result<Option<There>, Failure> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(_) if path.symlink_metadata().is_ok() => {
            return Ok(Some(There::Object(RootKind::File)));
        }
        Err(_) => return Ok(None), // Making it says what is wrong, if something is.
    };
    if found.is_dir() {
        return Ok(Some(There::Object(RootKind::Dir)));
    }
    let null = std::fs::metadata("/dev/null").map(|null| null.rdev());
    if found.file_type().is_char_device() && null.is_ok_and(|null| null == found.rdev()) {
        return Ok(Some(There::Null));
    }
    if !found.is_file() {
        let text =
            "is a device, pipe or socket, and no destination; write to standard output with -";
        return Err(Failure::new(FailureKind::Destination, format!("{}: {text}", shown(path))));
    }
    Ok(Some(There::Object(RootKind::File)))
}

fn make(path: &Path, mode: u32) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().mode(mode).create(path);
    made.map_err(|error| {
        let text = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "the directory that should hold it is not there: make it first".into()
            }
            _ => error.to_string(),
        };
        Failure::new(FailureKind::Destination, format!("{}: {text}", shown(path)))
    })
}

/// A file's name: the address's, else the server's.
fn own_name(url: &Url, manifest: &Manifest) -> Result<RelPath, Failure> {
    if let Some(name) = url_name(url)? {
        return Ok(name);
    }
    let entry = manifest.entries.first().map(|entry| entry.path.clone());
    entry.ok_or_else(|| Failure::new(FailureKind::Other, "the server named no file"))
}

fn url_name(url: &Url) -> Result<Option<RelPath>, Failure> {
    let named = url.name().map(RelPath::new).transpose();
    named.map_err(|why| Failure::new(FailureKind::Usage, format!("{url}: {why}")))
}

fn shown(path: &Path) -> String {
    gtp_store::escaped(&path.to_string_lossy())
}

/// Blocks that a stream holds until their turn: 64 MiB.
const EARLY_BLOCKS: u64 = 256;

#[cfg(test)]
mod tests {
    use gtp_store::{Attributes, Entry, Kind, Mode, Mtime};

    use super::*;

    #[test]
    fn a_directory_made_for_an_object_that_cannot_be_opened_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let (mode, mtime) = (Mode::new(0o755), Mtime::new(0, 0).unwrap());
        let twice =
            Entry { path: RelPath::new("a").unwrap(), kind: Kind::File, size: 1, mode, mtime };
        let manifest = Arc::new(Manifest {
            root_kind: RootKind::Dir,
            own: Some(Attributes { mode, mtime }),
            entries: vec![twice.clone(), twice],
        });
        let url = "gtp://host/object".parse().unwrap();
        let how = (SinkOptions::default(), &Naming::default());
        assert!(on_disk(&path, how, &url, &manifest, &Arc::default()).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn of_a_bundle_other_names_are_refused_and_what_does_not_come_is_told_unless_it_was_said() {
        let (mode, mtime) = (Mode::new(0o644), Mtime::new(0, 0).unwrap());
        let entry = |path: &&str, kind| Entry {
            path: RelPath::new(path).unwrap(),
            kind,
            size: 0,
            mode,
            mtime,
        };
        let bundle = |paths: &[&str]| {
            let entries = paths.iter().map(|path| entry(path, Kind::Dir)).collect();
            Arc::new(Manifest { root_kind: RootKind::Dir, own: None, entries })
        };
        let only = ["a", "b", "c"].map(str::to_owned).into_iter().collect();
        let naming = Naming { only: Some(Arc::new(only)), ..Naming::default() };
        assert_eq!(naming.strange(&bundle(&["a", "a/x", "b"])), None);
        let strange = |paths| naming.strange(&bundle(paths)).map(|path| path.as_str().to_owned());
        assert_eq!(strange(&["a", ".bashrc"]), Some(".bashrc".into()));
        assert_eq!(strange(&["a", "d/a"]), Some("d/a".into()));
        let file = Manifest { root_kind: RootKind::File, ..(*bundle(&["a"])).clone() };
        assert!(naming.strange(&file).is_some(), "a file has any name");
        let said = Failure::new(FailureKind::Partial, "permission denied").about("b");
        let described = Described::of(bundle(&["a", "a/c"]), vec![said]);
        let (path, options) = (PathBuf::new(), SinkOptions::default());
        let missing = Place::Path { path, options, naming }.missing(&described);
        let texts: Vec<&str> = missing.iter().map(|failure| failure.text.as_str()).collect();
        assert_eq!(texts, ["c: it is not there any more"]);
    }
}
