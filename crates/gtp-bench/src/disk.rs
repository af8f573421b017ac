//! What a directory's file system takes and gives, through the store that keeps files.
//!
//! Four figures: a plain file written in large pieces and flushed, the same bytes kept by the
//! store (blocks verified, recorded for a resume, flushed, named), and both ways of reading. The
//! difference is what the store costs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_net::flows::{Failure, FailureKind};
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Destination, Export, FileSink, FileSource, MadeDir, Manifest,
    SinkOptions, new_framed,
};
use gtp_sys::Clock;

use crate::memory::{CONTENT_MOST, Content, MemorySource, Object};
use crate::serve::{other, usage};

/// Bytes per second, each of the whole size.
#[derive(Clone, Copy, Debug)]
pub struct DiskFigures {
    /// Bytes moved by each measurement.
    pub bytes: u64,
    /// A plain file, written and flushed.
    pub plain_write: f64,
    /// Kept by the store, to the end of its flushes.
    pub store_write: f64,
    /// A plain file read, as warm as the writing left it.
    pub plain_read: f64,
    /// Read by the store, every block hashed.
    pub store_read: f64,
}

/// Bytes per call of the plain measurements.
const PIECE: usize = 4 << 20;
/// Blocks between two checkpoints, as a writer that is busy makes them: some 50 ms.
const BLOCKS_PER_CHECKPOINT: u64 = 256;

/// Measures the file system that holds `dir`, with files that are removed again; breaks off when
/// `stop` becomes true, after what is being flushed.
///
/// # Errors
/// When the size is beyond the limits, the directory cannot be written, or it was to stop.
pub fn measure_disk(dir: &Path, bytes: u64, stop: &AtomicBool) -> Result<DiskFigures, Failure> {
    if !(BLOCK..=CONTENT_MOST).contains(&bytes) {
        return Err(usage(format!("{bytes} bytes: expected 256 KiB to 16 GiB")));
    }
    // Removed in the end, with all that is in it.
    let place = tempfile::Builder::new().prefix("gtp-bench-").tempdir_in(dir);
    let place = place.map_err(|e| other(format!("{}: {e}", dir.display())))?;
    let object = Object::new(bytes, 1).map_err(usage)?;
    let content = Arc::new(Content::make(object).map_err(other)?);
    let clock = Clock::start();
    let timed = |work: &mut dyn FnMut() -> Result<(), Failure>| {
        let began = clock.now();
        work()?;
        Ok::<f64, Failure>(bytes as f64 / clock.now().since(began).as_secs_f64())
    };
    let plain = place.path().join("plain");
    let kept = place.path().join("kept");
    let plain_write = timed(&mut || write_plain(&plain, &content, stop))?;
    let plain_read = timed(&mut || read_plain(&plain, stop))?;
    fs::remove_file(&plain).map_err(other)?;
    fs::create_dir(&kept).map_err(other)?;
    let store_write = timed(&mut || write_store(&kept, &content, stop).map(drop))?;
    let store_read = timed(&mut || read_store(&kept, stop))?;
    Ok(DiskFigures { bytes, plain_write, store_write, plain_read, store_read })
}

/// Receives one small object into a directory beneath `dir`, which is removed again. Returns what
/// its file system lacks of what transfers use, in a sentence.
///
/// # Errors
/// When nothing can be received there.
pub fn try_disk(dir: &Path) -> Result<Option<String>, Failure> {
    let place = tempfile::Builder::new().prefix("gtp-doctor-").tempdir_in(dir);
    let place = place.map_err(|e| other(format!("{}: {e}", dir.display())))?;
    let object = Object::new(BLOCK, 1).map_err(usage)?;
    let content = Arc::new(Content::make(object).map_err(other)?);
    write_store(place.path(), &content, &AtomicBool::new(false))
}

fn unless(stop: &AtomicBool) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
    }
    Ok(())
}

fn write_plain(path: &Path, content: &Arc<Content>, stop: &AtomicBool) -> Result<(), Failure> {
    let mut file = File::create_new(path).map_err(other)?;
    let mut piece = Vec::with_capacity(PIECE + BLOCK as usize);
    for number in 0..content.object().blocks() {
        unless(stop)?;
        piece.extend_from_slice(content.block(number));
        if piece.len() >= PIECE {
            file.write_all(&piece).map_err(other)?;
            piece.clear();
        }
    }
    file.write_all(&piece).map_err(other)?;
    file.sync_all().map_err(other)
}

fn read_plain(path: &Path, stop: &AtomicBool) -> Result<(), Failure> {
    let mut file = File::open(path).map_err(other)?;
    let mut piece = vec![0; PIECE];
    while file.read(&mut piece).map_err(other)? > 0 {
        unless(stop)?;
    }
    Ok(())
}

/// Keeps the content as a transfer does. Returns what the file system lacks, in a sentence.
fn write_store(
    dir: &Path,
    content: &Arc<Content>,
    stop: &AtomicBool,
) -> Result<Option<String>, Failure> {
    let mut source = MemorySource(Arc::clone(content));
    let manifest: Arc<Manifest> = source.manifest().clone();
    let destination = Destination::into(dir, MadeDir::There)?;
    let mut sink = FileSink::open(destination, manifest, SinkOptions::default())?;
    let mut framed = new_framed();
    for number in 0..content.object().blocks() {
        unless(stop)?;
        source.load_block(0, number, &mut framed)?;
        sink.write_block(0, number, &framed)?;
        if (number + 1).is_multiple_of(BLOCKS_PER_CHECKPOINT) {
            sink.checkpoint()?;
        }
    }
    sink.finish_file(0, None)?;
    sink.finish()?;
    Ok(sink.take_warning())
}

fn read_store(dir: &Path, stop: &AtomicBool) -> Result<(), Failure> {
    let scanned = Export::open(dir)?.scan(None)?;
    let mut source = FileSource::new(scanned);
    let manifest = source.manifest().clone();
    let mut framed = new_framed();
    for (file, entry) in manifest.entries.iter().enumerate() {
        for number in 0..entry.size.div_ceil(BLOCK) {
            unless(stop)?;
            source.load_block(file as u32, number, &mut framed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn who_is_to_stop_says_so_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let failure = measure_disk(dir.path(), BLOCK, &AtomicBool::new(true)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Interrupted);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_process_of_the_same_number_left_behind_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(format!("gtp-bench-{}", std::process::id()))).unwrap();
        measure_disk(dir.path(), BLOCK, &GO_ON).unwrap();
    }

    #[test]
    fn every_figure_is_measured_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let figures = measure_disk(dir.path(), 3 * BLOCK + 5, &GO_ON).unwrap();
        let all =
            [figures.plain_write, figures.store_write, figures.plain_read, figures.store_read];
        assert!(all.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{figures:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(measure_disk(dir.path(), 1, &GO_ON).is_err());
        assert!(measure_disk(&dir.path().join("none"), BLOCK, &GO_ON).is_err());
    }
}
