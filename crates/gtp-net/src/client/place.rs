//! Where a fetched object goes: from the user's words to a sink.
//!
//! A file goes into a directory under its own name, or becomes what the destination says. A
//! directory's content goes into the destination, which is made if need be; into `DEST/NAME`
//! when the destination is written with a slash or a dot at its end. So the same command, given
//! again, always means the same place, and resumes.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gtp_store::{
    BlockSink, Destination, Existing, FileSink, Manifest, OrderedWriterSink, Recheck, RelPath,
    RootKind, SinkError, SinkOptions, Value,
};

use super::Url;
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
    },
    /// A stream, in order; one file only.
    Stream(Box<dyn Write + Send>),
    /// Whatever the caller makes.
    Sink(MakeSink),
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
        Place::Path { path, mut options } => {
            options.existing = match (options.existing, expected) {
                (Existing::SkipUnchanged, Some(expected)) => Existing::SkipIf(expected),
                (existing, _) => existing,
            };
            on_disk(&path, options, url, manifest, recheck)
        }
        Place::Stream(out) => {
            let sink = OrderedWriterSink::new(Arc::clone(manifest), out, EARLY_BLOCKS)?;
            Ok(Placed { sink: Box::new(sink), shown: "-".into() })
        }
        Place::Sink(make) => Ok(Placed { sink: make(manifest)?, shown: "-".into() }),
    }
}

fn on_disk(
    path: &Path,
    options: SinkOptions,
    url: &Url,
    manifest: &Arc<Manifest>,
    recheck: &Arc<Recheck>,
) -> Result<Placed, Failure> {
    let kind = manifest.root_kind;
    let own_name = match kind {
        RootKind::File => Some(own_name(url, manifest)?),
        RootKind::Dir if into_named(path) && !url.names_directory() => url_name(url)?,
        RootKind::Dir => None,
    };
    let written = path.as_os_str().as_bytes();
    if written.is_empty() {
        return Err(Failure::new(FailureKind::Usage, "the destination is empty"));
    }
    if kind == RootKind::File && written.ends_with(b"/") && !path.is_dir() {
        let text = format!("{}: no such directory", shown(path));
        return Err(Failure::new(FailureKind::Destination, text));
    }
    if kind == RootKind::Dir && path.symlink_metadata().is_err() {
        std::fs::create_dir(path).map_err(|error| {
            Failure::new(FailureKind::Destination, format!("{}: {error}", shown(path)))
        })?;
    }
    let destination = Destination::open(path, own_name.as_ref(), kind)?;
    let shown = destination.shown();
    let recheck = Arc::clone(recheck);
    let sink = FileSink::open_watched(destination, Arc::clone(manifest), options, recheck)?;
    Ok(Placed { sink: Box::new(sink), shown })
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

/// Whether a directory is to appear under its own name beneath this one.
fn into_named(path: &Path) -> bool {
    let text = path.as_os_str().as_bytes();
    path.is_dir()
        && (text.ends_with(b"/") || text == b"." || text.ends_with(b"/.") || text == b"..")
}

fn shown(path: &Path) -> String {
    gtp_store::escaped(&path.to_string_lossy())
}

/// Blocks that a stream holds until their turn: 64 MiB.
const EARLY_BLOCKS: u64 = 256;
