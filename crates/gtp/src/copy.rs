//! Copies from one place of this machine to another.
//!
//! A command may have sources here beside others elsewhere. What is copied is listed, placed and
//! taken up again as what comes from a server; only nothing travels.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gtp_net::flows::{Failure, FailureKind, next_change_shows};
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Destination, Export, FileSink, FileSource, Finished, Kind,
    MadeDir, Manifest, RelPath, SinkOptions, new_framed,
};

/// A copy of a file or directory here into a directory here, about to begin.
#[must_use = "nothing is copied before it is run"]
pub struct OwnCopy {
    source: FileSource,
    sink: FileSink,
    shown: String,
    skipped: Vec<Failure>,
}

/// What a copy has done.
#[derive(Debug)]
pub struct Copied {
    /// Files that were written, and those that were there.
    pub finished: Finished,
    /// What was left out, with the reasons.
    pub skipped: Vec<Failure>,
}

impl OwnCopy {
    /// Lists what is at a path and opens its place beneath a directory, which is made if it is not
    /// there. A directory that is named with a slash at its end is its content alone. Blocks.
    ///
    /// # Errors
    /// [`FailureKind::Missing`] if nothing is at the path, [`FailureKind::Destination`] if the
    /// place cannot be had.
    pub fn open(from: &Path, dir: &Path) -> Result<OwnCopy, Failure> {
        let last = from.as_os_str().as_bytes().rsplit(|&b| b == b'/').next();
        let is_content = matches!(last, None | Some(b"" | b"." | b".."));
        let shown = || gtp_store::escaped(&from.to_string_lossy());
        let scanned = Export::open(from)?.scan(None)?;
        let left_out = scanned.skipped.iter().map(|left_out| {
            Failure::new(FailureKind::Partial, left_out.why.to_string()).about(left_out.shown())
        });
        let mut skipped: Vec<Failure> = left_out.collect();
        let more = scanned.skipped_total.saturating_sub(skipped.len() as u64);
        if more > 0 {
            skipped.push(Failure::new(FailureKind::Partial, format!("{more} more")));
        }
        let kind = scanned.manifest.root_kind;
        make(dir)?;
        let destination = match from.file_name().filter(|_| !is_content) {
            Some(name) => {
                let name = RelPath::from_bytes(name.as_bytes()).map_err(|why| {
                    Failure::new(FailureKind::Usage, why.to_string()).about(shown())
                })?;
                Destination::beneath(dir, name, kind)?
            }
            None => Destination::into(dir, MadeDir::There)?,
        };
        let shown = destination.shown();
        let manifest = Arc::clone(&scanned.manifest);
        let sink = FileSink::open(destination, manifest, SinkOptions::default())?;
        let source = FileSource::new(scanned).with_settling(next_change_shows);
        Ok(OwnCopy { source, sink, shown, skipped })
    }

    /// What is copied.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(self.source.manifest())
    }

    /// The path where it goes, escaped for display.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What was left out of the listing, with the reasons.
    pub fn skipped(&self) -> &[Failure] {
        &self.skipped
    }

    /// Content bytes that an earlier copy left.
    pub fn resumed_bytes(&self) -> u64 {
        self.sink.resumed_bytes()
    }

    /// Copies it; `copied` counts bytes. Ends soon after `stop` is set. Blocks.
    ///
    /// # Errors
    /// As [`pour`].
    pub fn run(mut self, stop: &AtomicBool, copied: &AtomicU64) -> Result<Copied, Failure> {
        let (finished, left_out) = pour(&mut self.source, &mut self.sink, stop, copied)?;
        self.skipped.extend(left_out);
        Ok(Copied { finished, skipped: self.skipped })
    }
}

fn make(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(dir).map_err(|error| {
        let failure = Failure::new(FailureKind::Destination, error.to_string());
        failure.about(gtp_store::escaped(&dir.to_string_lossy()))
    })
}

/// Copies all blocks that a sink lacks, and gives files their names. Returns what that came to and
/// what was left out; `copied` counts bytes. Ends soon after `stop` is set. Blocks.
///
/// # Errors
/// A [`Failure`] if the destination fails, and [`FailureKind::Interrupted`] if it was stopped; what
/// is complete is kept.
pub(crate) fn pour(
    source: &mut dyn BlockSource,
    sink: &mut dyn BlockSink,
    stop: &AtomicBool,
    copied: &AtomicU64,
) -> Result<(Finished, Vec<Failure>), Failure> {
    let manifest = Arc::clone(source.manifest());
    let mut left_out = Vec::new();
    for (file, entry) in (0_u32..).zip(&manifest.entries) {
        if entry.kind == Kind::Dir || entry.size == 0 {
            continue;
        }
        match pour_file(source, sink, (file, entry.size), (stop, copied))? {
            None => drop(sink.finish_file(file, None)?),
            Some(why) => {
                sink.give_up(file)?;
                left_out.push(Failure::new(FailureKind::Partial, why).about(&entry.path));
            }
        }
        sink.checkpoint()?;
    }
    let finished = sink.finish()?;
    for refused in sink.take_refused() {
        left_out.push(Failure::new(FailureKind::Partial, refused.error.to_string()));
    }
    for (file, remark) in source.take_remarks() {
        let path = manifest.entries.get(file as usize).map(|entry| entry.path.to_string());
        let failure = Failure::new(FailureKind::Partial, remark.words());
        left_out.push(failure.about(path.unwrap_or_default()));
    }
    Ok((finished, left_out))
}

/// The same of one file. Returns why it cannot be read, if so.
fn pour_file(
    source: &mut dyn BlockSource,
    sink: &mut dyn BlockSink,
    (file, size): (u32, u64),
    (stop, copied): (&AtomicBool, &AtomicU64),
) -> Result<Option<String>, Failure> {
    let mut framed = new_framed();
    for block in 0..size.div_ceil(BLOCK) {
        if sink.have().iter().any(|have| have.file == file && have.blocks.contains(&block)) {
            continue;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Interrupted, "the copy was stopped"));
        }
        if let Err(error) = source.load_block(file, block, &mut framed) {
            return Ok(Some(error.words()));
        }
        sink.write_block(file, block, &framed)?;
        copied.fetch_add(BLOCK.min(size - block * BLOCK), Ordering::Relaxed);
    }
    Ok(None)
}
