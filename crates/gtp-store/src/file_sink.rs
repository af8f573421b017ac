//! Blocks into files.
//!
//! Every file is written beside its final name as `NAME.gtp-part`, each block at its offset after
//! it verified, and a journal says which blocks are there. A whole file gets its mode and time,
//! is made durable and only then renamed, so a final name never holds anything but a whole file,
//! whatever dies when.
//!
//! Durability: a file of several blocks is synced by itself before its rename. Files of one block
//! are renamed in groups after one sync of the whole file system, because ten thousand single
//! syncs would take longer than their transfer. Between two syncs the journal is written but not
//! synced: after a loss of power some blocks are fetched again, none is wrong, because resuming
//! trusts no record that the file's bytes do not confirm.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use crate::arrivals::{Arrivals, Checked, Progress};
use crate::destination::{Destination, Names};
use crate::disk::{Disk, FoundKind, MadeDir, Opened, OsDisk};
use crate::hash::{Value, block_value, empty_root};
use crate::journal::Record;
use crate::log::{Log, Origin};
use crate::manifest::{Entry, Kind, Manifest, Mtime, RootKind};
use crate::name::RelPath;
use crate::parts::Parts;
use crate::recheck::Recheck;
use crate::reread::Reread;
use crate::row::{BLOCK, blocks_in, content_of};
use crate::sink::{BlockSink, Fault, Finished, Have, Refused, SinkError, Window, Written};
use crate::time_step::{COARSEST_S, TimeStep};
use crate::walk::split;

/// Whole small files that wait for their common sync: bounds what a loss of power costs, and
/// how often everything on the file system is synced.
const MAX_GROUP: usize = 16_384;

/// Content of whole small files that waits for their common sync, in bytes.
const MAX_GROUP_BYTES: u64 = 256 << 20;

/// From this many directories or files on, one sync of everything replaces single ones.
pub(crate) const SYNC_SINGLY: usize = 4;

/// What to do with files that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// A file with the listed size and time is kept and not fetched.
    #[default]
    SkipUnchanged,
    /// A file with the listed size and time is kept if this is its BLAKE3 hash: for an object of
    /// one file. It is hashed when the sink opens.
    SkipIf(Value),
    /// Every file is fetched and replaced.
    Replace,
}

/// What is waited for before a file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Its bytes survive a loss of power.
    #[default]
    Synced,
    /// They are written, and the system syncs them when it likes.
    System,
}

/// How a sink treats its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkOptions {
    /// Files that are there already.
    pub existing: Existing,
    /// What is waited for.
    pub durability: Durability,
}

/// Writes an object beneath a directory, resuming what an earlier transfer left.
#[derive(Debug)]
pub struct FileSink<D: Disk = OsDisk> {
    /// Where it writes, as it was found when it began: asking later may wait for the device.
    device: Option<u64>,
    pub(crate) parts: Parts<D>,
    pub(crate) log: Log<D::File>,
    pub(crate) arrivals: Arrivals,
    pub(crate) found: Leftovers,
    pub(crate) recheck: Arc<Recheck>,
    options: SinkOptions,
    have: Vec<Have>,
    /// Empty files still to be created.
    empty: Vec<u32>,
    /// Whole small files that wait for their common sync.
    ready: Vec<u32>,
    ready_bytes: u64,
    /// Small and empty files that got their names and have not been asked for yet.
    named: Vec<u32>,
    /// Entries that this destination refuses, not asked for yet.
    pub(crate) refused: Vec<Refused>,
    /// Directories that were refused.
    pub(crate) refused_dirs: BTreeSet<String>,
    /// Directories whose names changed.
    pub(crate) touched: BTreeSet<String>,
    /// Directories that this transfer makes, or its earlier attempts have made.
    pub(crate) made: BTreeSet<String>,
    /// Whether the end of the journal was looked for.
    pub(crate) end_known: bool,
    /// How coarse the destination's times are, once that mattered.
    time_step: Option<TimeStep>,
    unchanged: u64,
    bytes_written: u64,
    root: Option<Value>,
}

/// What an earlier transfer left, beside good blocks.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Content bytes that need not come again.
    pub(crate) resumed_bytes: u64,
    /// Files of which another version was under way.
    pub(crate) restarted: BTreeSet<RelPath>,
    /// Files that are not listed any more.
    pub(crate) orphans: Vec<RelPath>,
}

impl FileSink<OsDisk> {
    /// Opens a destination for an object with this listing: takes the lock, makes directories,
    /// finds what is there already, and hashes what an earlier transfer left.
    ///
    /// # Errors
    /// [`SinkError::Unsuitable`] for an invalid listing; [`Fault::InUse`], [`Fault::Foreign`],
    /// [`Fault::Link`], [`Fault::IsADirectory`] and the like for what is in the way; and what
    /// the system says.
    pub fn open(
        destination: Destination,
        manifest: Arc<Manifest>,
        options: SinkOptions,
    ) -> Result<FileSink, SinkError> {
        FileSink::open_watched(destination, manifest, options, Arc::default())
    }

    /// As [`FileSink::open`]; how far the hashing is can be seen in `recheck`, which can stop it.
    ///
    /// # Errors
    /// As there, and [`SinkError::Stopped`].
    pub fn open_watched(
        destination: Destination,
        manifest: Arc<Manifest>,
        options: SinkOptions,
        recheck: Arc<Recheck>,
    ) -> Result<FileSink, SinkError> {
        let Destination { disk, names, made } = destination;
        let new = match made {
            MadeDir::New => BTreeSet::from([String::new()]),
            MadeDir::There => BTreeSet::new(),
        };
        FileSink::start((disk, names), new, manifest, options, recheck)
    }
}

impl<D: Disk> FileSink<D> {
    /// As [`FileSink::open`] on any [`Disk`]: the object goes to `base` beneath it.
    ///
    /// # Errors
    /// As [`FileSink::open`].
    pub fn on_disk(
        disk: D,
        base: Option<RelPath>,
        manifest: Arc<Manifest>,
        options: SinkOptions,
    ) -> Result<FileSink<D>, SinkError> {
        let names = Names::new(manifest.root_kind, base, ".");
        FileSink::start((disk, names), BTreeSet::new(), manifest, options, Arc::default())
    }

    fn start(
        (mut disk, mut names): (D, Names),
        new: BTreeSet<String>,
        manifest: Arc<Manifest>,
        options: SinkOptions,
        recheck: Arc<Recheck>,
    ) -> Result<FileSink<D>, SinkError> {
        manifest.validate().map_err(|e| SinkError::Unsuitable(e.to_string()))?;
        refuse_occupied(&mut disk, &names, &manifest)?;
        names.tell_apart(&manifest);
        match (manifest.root_kind, manifest.own) {
            (RootKind::File, _) => {}
            // Several objects, or one beneath the place that was named.
            (RootKind::Dir, None) if names.root().is_empty() => disk.may_lend_beneath(),
            (RootKind::Dir, Some(_) | None) => disk.may_lend(names.root()),
        }
        let log = Log::of(&mut disk, &names, &manifest, &recheck)?;
        let mut sink = FileSink {
            device: disk.device(),
            parts: Parts::new(disk, names, manifest.clone()),
            log,
            arrivals: Arrivals::new(manifest.clone()),
            found: Leftovers::default(),
            recheck,
            options,
            have: Vec::new(),
            empty: Vec::new(),
            ready: Vec::new(),
            ready_bytes: 0,
            named: Vec::new(),
            refused: Vec::new(),
            refused_dirs: BTreeSet::new(),
            touched: BTreeSet::new(),
            made: new,
            end_known: false,
            time_step: None,
            unchanged: 0,
            bytes_written: 0,
            root: None,
        };
        match sink.prepare(&manifest) {
            Ok(()) => Ok(sink),
            Err(error) => {
                sink.withdraw();
                sink.parts.disk.settle();
                Err(error)
            }
        }
    }

    fn prepare(&mut self, manifest: &Manifest) -> Result<(), SinkError> {
        for (dir, mode) in self.parts.disk.loans() {
            self.note_loan(&dir, mode)?;
        }
        self.refuse_twins(manifest)?;
        let absent = self.absent_dirs(manifest)?;
        self.look_at_files(manifest, &absent)?;
        self.replay()?;
        self.make_dirs(absent)?;
        self.list_have();
        Ok(())
    }

    /// After a refusal, takes away the journal that this transfer itself began.
    fn withdraw(&mut self) {
        match self.log.origin() {
            Origin::New if self.touched.is_empty() => {
                if let Err(error) = self.remove_journal() {
                    tracing::debug!(%error, "an empty journal stays");
                }
            }
            Origin::Left | Origin::New => {}
        }
    }

    /// Content bytes that an earlier transfer left and that were found good.
    pub fn resumed_bytes(&self) -> u64 {
        self.found.resumed_bytes
    }

    /// Files of which an earlier transfer had begun another version. Its part is kept until the
    /// first block of the new version has verified.
    pub fn restarted(&self) -> &BTreeSet<RelPath> {
        &self.found.restarted
    }

    /// Finds what is already under the final names.
    fn look_at_files(
        &mut self,
        manifest: &Manifest,
        new_dirs: &BTreeSet<String>,
    ) -> Result<(), SinkError> {
        for (number, entry) in manifest.entries.iter().enumerate() {
            let number = number as u32;
            if entry.kind == Kind::Dir || self.arrivals.progress(number) == Progress::GivenUp {
                continue;
            }
            let path = self.parts.names.final_path(&entry.path);
            let fresh = new_dirs.contains(split(&path).0);
            let unchanged = match fresh {
                true => Ok(false),
                false => self.is_unchanged(&path, entry),
            };
            let unchanged = match unchanged {
                Ok(unchanged) => unchanged,
                Err(error) => {
                    self.refuse(number, error)?;
                    continue;
                }
            };
            if unchanged {
                self.arrivals.set(number, Progress::Settled);
                self.unchanged += 1;
                if entry.size > 0 {
                    self.have.push(Have { file: number, blocks: 0..blocks_in(entry.size) });
                }
            } else if entry.size == 0 {
                self.empty.push(number);
            }
        }
        Ok(())
    }

    /// Whether the file is there with the listed size and time and may be kept.
    fn is_unchanged(&mut self, path: &str, entry: &Entry) -> Result<bool, SinkError> {
        let found = self.parts.disk.look(path).map_err(|e| self.parts.failed(path, e))?;
        let Some(found) = found else { return Ok(false) };
        if let Some(fault) = in_the_way(found.kind) {
            return Err(self.parts.refused(path, fault));
        }
        let alike = found.size == entry.size && self.is_time_of(found.mtime, entry.mtime)?;
        Ok(match self.options.existing {
            Existing::SkipUnchanged => alike,
            Existing::SkipIf(value) => alike && self.hash_of(path, entry.size)? == Some(value),
            Existing::Replace => false,
        })
    }

    /// Whether a file that was given the time `listed` has the time `found`: the same one, or what
    /// this file system makes of it, since many keep times in coarser steps.
    fn is_time_of(&mut self, found: Mtime, listed: Mtime) -> Result<bool, SinkError> {
        if found == listed || found.secs().abs_diff(listed.secs()) > COARSEST_S {
            return Ok(found == listed);
        }
        let step = match self.time_step {
            Some(step) => step,
            None => {
                let (log, disk) = (&self.log, &mut self.parts.disk);
                let path = self.parts.names.journal_path();
                let step = log.time_step(disk, path).map_err(|e| SinkError::disk(path, e))?;
                *self.time_step.insert(step)
            }
        };
        Ok(step.of(listed) == found)
    }

    /// The hash of a file that is there; `None` if it cannot be told.
    fn hash_of(&mut self, path: &str, size: u64) -> Result<Option<Value>, SinkError> {
        let Ok(Opened::Ours(file)) = self.parts.disk.open_to_read(path) else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        let mut buffer = Vec::new();
        for block in 0..blocks_in(size) {
            self.recheck.go_on()?;
            buffer.resize(content_of(size, block) as usize, 0);
            if self.parts.disk.read_at(&file, block * BLOCK, &mut buffer).is_err() {
                return Ok(None);
            }
            self.recheck.count(buffer.len() as u64);
            hasher.update(&buffer);
        }
        Ok(Some(*hasher.finalize().as_bytes()))
    }

    /// Compares a file that was kept, or an empty one, with what is expected of it. A file of the
    /// user's that differs is left as it is.
    fn check_kept(&mut self, file: u32, expected: Option<Value>) -> Result<(), SinkError> {
        let Some(expected) = expected else { return Ok(()) };
        let entry = match self.arrivals.manifest().entries.get(file as usize) {
            Some(entry) if entry.kind == Kind::File => entry.clone(),
            Some(_) | None => return Ok(()),
        };
        if entry.size > 0 && self.options.existing == Existing::SkipIf(expected) {
            return Ok(()); // It was hashed when it was found.
        }
        let path = self.parts.names.final_path(&entry.path);
        let got = match entry.size {
            0 => Some(empty_root()),
            size => self.hash_of(&path, size)?,
        };
        match got {
            Some(got) if got == expected => Ok(()),
            Some(got) => {
                let path = self.parts.names.shown(&path);
                Err(SinkError::RootMismatch { path, expected, got })
            }
            None => {
                // What is there stays, without any claim about its content.
                let error = self.parts.refused(&path, Fault::Unread);
                self.refuse(file, error)?;
                self.unchanged -= u64::from(entry.size > 0);
                Ok(())
            }
        }
    }

    /// Takes over from the file that is under an entry's name those blocks that have these values,
    /// which are of the new file, from its first block on. Only files of several blocks that are to
    /// be fetched gain by it. Returns the content bytes taken over.
    ///
    /// # Errors
    /// When the destination fails.
    pub fn take_over(&mut self, path: &RelPath, values: &[Value]) -> Result<u64, SinkError> {
        let entries = &self.arrivals.manifest().entries;
        let at = entries.binary_search_by(|entry| entry.path.cmp(path));
        let Some(file) = at.ok().map(|at| at as u32) else { return Ok(0) };
        let size = self.arrivals.entry(file).size;
        if self.arrivals.progress(file) != Progress::Open || blocks_in(size) < 2 {
            return Ok(0);
        }
        let final_path = self.parts.names.final_path(path);
        let Ok(Opened::Ours(old)) = self.parts.disk.open_to_read(&final_path) else { return Ok(0) };
        let before = self.bytes_written;
        let mut buffer = Vec::new();
        for (block, value) in (0..blocks_in(size)).zip(values) {
            self.recheck.go_on()?;
            if self.arrivals.tree(file).is_some_and(|tree| tree.there().contains(block)) {
                continue;
            }
            buffer.resize(content_of(size, block) as usize, 0);
            if self.parts.disk.read_at(&old, block * BLOCK, &mut buffer).is_err() {
                break;
            }
            self.recheck.count(buffer.len() as u64);
            if block_value(size, block, &buffer) == *value {
                self.keep((file, block), *value, &buffer)?;
            }
            if self.log.is_full() {
                self.flush()?;
            }
        }
        let taken = self.bytes_written - before;
        self.bytes_written = before;
        self.have.retain(|have| have.file != file);
        if let Some(tree) = self.arrivals.tree(file) {
            self.have.extend(tree.there().iter().map(|blocks| Have { file, blocks }));
        }
        self.have.sort_unstable_by_key(|have| (have.file, have.blocks.start));
        Ok(taken)
    }

    fn list_have(&mut self) {
        for file in 0..self.arrivals.manifest().entries.len() as u32 {
            if let Some(tree) = self.arrivals.tree(file) {
                self.have.extend(tree.there().iter().map(|blocks| Have { file, blocks }));
            }
        }
        self.have.sort_unstable_by_key(|have| (have.file, have.blocks.start));
    }

    /// Begins a file: its part, and its name in the journal.
    fn begin(&mut self, file: u32) -> Result<u32, SinkError> {
        let entry = self.arrivals.entry(file);
        let record =
            Record::File { path: entry.path.clone(), size: entry.size, mtime: entry.mtime };
        let number = self.log.push_file(&record);
        self.parts.create(file, number)?;
        Ok(number)
    }

    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        let flushed = self.log.flush(&mut self.parts.disk);
        flushed.map_err(|e| self.parts.failed(self.parts.names.journal_path(), e))
    }

    /// Makes the waiting small files durable together, then gives them their names.
    fn place_ready(&mut self) -> Result<(), SinkError> {
        if self.ready.is_empty() {
            return Ok(());
        }
        match self.options.durability {
            Durability::System => {}
            Durability::Synced if self.ready.len() < SYNC_SINGLY => {
                for file in self.ready.clone() {
                    self.parts.sync(file)?;
                    self.parts.close(file);
                }
            }
            Durability::Synced => self.sync_all()?,
        }
        while let Some(&file) = self.ready.last() {
            match self.place(file) {
                Ok(()) => self.named.push(file),
                Err(error) => self.refuse_whole(file, error)?,
            }
            self.ready.pop();
        }
        self.ready_bytes = 0;
        Ok(())
    }

    fn keep_for_later(&mut self) -> Result<(), SinkError> {
        let flushed = self.flush();
        self.place_ready()?;
        self.sync_names()?;
        let left = !self.found.restarted.is_empty() || !self.found.orphans.is_empty();
        if !self.parts.is_empty() || left {
            return flushed;
        }
        let whole = self.arrivals.all_finished().is_ok() && self.empty.is_empty();
        // A first attempt that brought nothing leaves empty directories, which hide nothing.
        let nothing = self.log.origin() == Origin::New && self.bytes_written == 0;
        if (whole || nothing) && self.made_dirs_stay_open() {
            self.conclude()?;
        } else if self.made.is_empty() {
            // Nothing that a later attempt would have to know.
            self.remove_journal()?;
        }
        flushed
    }

    /// Gives directories their attributes, then removes the journal.
    fn conclude(&mut self) -> Result<(), SinkError> {
        self.dress_dirs()?;
        // As long as the journal is there, a later attempt can still do this. Removing it may
        // change the time of the object's directory, so that is set once more.
        self.dress_root()?;
        self.remove_journal()?;
        self.dress_root()
    }

    fn place(&mut self, file: u32) -> Result<(), SinkError> {
        self.parts.place(file)?;
        self.touched.insert(split(&self.parts.final_path(file)).0.to_owned());
        Ok(())
    }

    fn sync_all(&mut self) -> Result<(), SinkError> {
        let synced = self.parts.disk.sync_all();
        synced.map_err(|e| self.parts.failed(self.parts.names.root(), e))
    }

    fn create_empty(&mut self) -> Result<(), SinkError> {
        while let Some(&file) = self.empty.last() {
            match self.begin(file).and_then(|_| self.parts.dress(file)) {
                Ok(()) => {
                    self.parts.close(file);
                    self.ready.push(file);
                }
                Err(error) => self.refuse(file, error)?,
            }
            self.empty.pop();
        }
        Ok(())
    }

    /// Keeps a block that was checked.
    fn keep(
        &mut self,
        (file, block): (u32, u64),
        value: Value,
        content: &[u8],
    ) -> Result<Written, SinkError> {
        let number = match self.parts.number(file) {
            Some(number) => number,
            None => self.begin(file)?,
        };
        self.parts.write(file, block, content)?;
        if blocks_in(self.arrivals.entry(file).size) == 1 {
            self.parts.dress(file)?;
            self.parts.close(file);
        }
        self.log.push(&Record::Block { number, block, value });
        self.bytes_written += content.len() as u64;
        Ok(self.arrivals.note(file, block, value))
    }

    /// Makes a file of several blocks durable and gives it its name.
    fn place_large(&mut self, file: u32) -> Result<(), SinkError> {
        self.parts.dress(file)?;
        match self.options.durability {
            Durability::Synced => self.parts.sync(file)?,
            Durability::System => {}
        }
        self.place(file)
    }

    /// Removes the parts of files that are not listed any more.
    fn remove_orphans(&mut self) -> Result<(), SinkError> {
        for path in std::mem::take(&mut self.found.orphans) {
            let part = self.parts.names.part_path(&path);
            match self.parts.clear_way(&part) {
                Ok(()) => {}
                // Its directory may be gone as well, and what is not ours is not touched.
                Err(error) => tracing::debug!(%error, "an old part file stays"),
            }
        }
        Ok(())
    }

    /// Makes all new names durable.
    fn sync_names(&mut self) -> Result<(), SinkError> {
        match self.options.durability {
            Durability::System => return Ok(()),
            Durability::Synced if self.touched.len() < SYNC_SINGLY => {}
            Durability::Synced => return self.sync_all(),
        }
        for dir in std::mem::take(&mut self.touched) {
            self.parts.disk.sync_dir(&dir).map_err(|e| self.parts.failed(&dir, e))?;
        }
        Ok(())
    }

    fn remove_journal(&mut self) -> Result<(), SinkError> {
        // The journal knows what is lent, so it goes after all is given back.
        self.parts.disk.settle();
        let path = self.parts.names.journal_path().to_owned();
        match self.parts.disk.remove(&path) {
            // Somebody else was first.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|e| self.parts.failed(&path, e)),
        }
    }
}

/// Refuses a single file whose name is taken by something else, before anything is touched.
fn refuse_occupied<D: Disk>(
    disk: &mut D,
    names: &Names,
    manifest: &Manifest,
) -> Result<(), SinkError> {
    let (RootKind::File, [only]) = (manifest.root_kind, manifest.entries.as_slice()) else {
        return Ok(());
    };
    let path = names.final_path(&only.path);
    let found = disk.look(&path).map_err(|e| SinkError::disk(&names.shown(&path), e))?;
    match found.and_then(|found| in_the_way(found.kind)) {
        Some(fault) => Err(SinkError::refused(&names.shown(&path), fault)),
        None => Ok(()),
    }
}

/// Why what is at a file's name cannot be replaced by a file; `None` for another file.
fn in_the_way(kind: FoundKind) -> Option<Fault> {
    match kind {
        FoundKind::File => None,
        FoundKind::Dir => Some(Fault::IsADirectory),
        FoundKind::Link => Some(Fault::Link),
        FoundKind::Special => Some(Fault::Special),
    }
}

impl<D: Disk> BlockSink for FileSink<D> {
    fn have(&self) -> &[Have] {
        &self.have
    }

    fn is_kept(&self, file: u32) -> bool {
        // An empty file needs no block, and may yet have to be made.
        let settled = self.arrivals.progress(file) == Progress::Settled;
        settled && self.empty.binary_search(&file).is_err()
    }

    fn window(&self) -> Window {
        Window::Any
    }

    fn device(&self) -> Option<u64> {
        self.device
    }

    fn write_block(
        &mut self,
        file: u32,
        block: u64,
        content_and_trailer: &[u8],
    ) -> Result<Written, SinkError> {
        let (value, content) = match self.arrivals.check(file, block, content_and_trailer)? {
            Checked::Over(written) => return Ok(written),
            Checked::Keep(value, content) => (value, content),
        };
        let written = match self.keep((file, block), value, content) {
            Ok(written) => written,
            Err(error) => {
                self.refuse(file, error)?;
                Written::Duplicate
            }
        };
        if self.log.is_full() {
            self.flush()?;
        }
        Ok(written)
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.flush()
    }

    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError> {
        match self.arrivals.progress(file) {
            Progress::Settled => return self.check_kept(file, expected).map(|()| None),
            Progress::Finished | Progress::GivenUp => return Ok(None),
            Progress::Open => {}
        }
        let root = match self.arrivals.root(file, expected) {
            Ok(root) => root,
            Err(error @ SinkError::RootMismatch { .. }) => {
                self.arrivals.forget(file);
                self.parts.discard(file)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if blocks_in(self.arrivals.entry(file).size) == 1 {
            self.ready.push(file);
            self.ready_bytes += self.arrivals.entry(file).size;
        } else if let Err(error) = self.place_large(file) {
            self.refuse_whole(file, error)?;
            return Ok(None);
        }
        self.arrivals.finished(file);
        if self.arrivals.manifest().root_kind == RootKind::File {
            self.root = Some(root);
        }
        if self.ready.len() >= MAX_GROUP || self.ready_bytes >= MAX_GROUP_BYTES {
            self.flush()?;
            self.place_ready()?;
        }
        Ok(Some(root))
    }

    fn give_up(&mut self, file: u32) -> Result<Option<u64>, SinkError> {
        if self.arrivals.manifest().root_kind == RootKind::File {
            let path = self.parts.names.shown(&self.parts.final_path(file));
            let text = format!("{path}: the source cannot give it any more");
            return Err(SinkError::Unsuitable(text));
        }
        match self.arrivals.progress(file) {
            Progress::Settled | Progress::Finished | Progress::GivenUp => return Ok(None),
            Progress::Open => {}
        }
        let missing = self.arrivals.give_up(file);
        if missing.is_some() {
            self.drop_part(file);
        }
        Ok(missing)
    }

    fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    fn is_named_later(&self, file: u32) -> bool {
        self.ready.last() == Some(&file) || self.named.contains(&file)
    }

    fn take_named(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.named)
    }

    /// A part that proved wrong is gone; a user's own file stays as it is.
    fn begins_anew(&self, file: u32) -> bool {
        self.arrivals.progress(file) == Progress::Open
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        self.arrivals.all_finished()?;
        let manifest = self.arrivals.manifest().clone();
        if manifest.root_kind == RootKind::File && !self.empty.is_empty() {
            self.root = Some(empty_root());
        }
        self.create_empty()?;
        self.flush()?;
        self.place_ready()?;
        self.remove_orphans()?;
        self.sync_names()?;
        self.conclude()?;
        self.parts.disk.settle();
        Ok(Finished {
            files_written: manifest.files() - self.unchanged - self.arrivals.given_up(),
            files_unchanged: self.unchanged,
            bytes_written: self.bytes_written,
            root: self.root,
        })
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        let kept = self.keep_for_later();
        self.parts.disk.settle();
        kept
    }

    fn take_warning(&mut self) -> Option<String> {
        self.parts.disk.warning()
    }

    fn rereader(&self) -> Option<Reread> {
        let (disk, names) = (self.parts.disk.another()?, self.parts.names.clone());
        Some(Reread::new(disk, names, Arc::clone(self.arrivals.manifest())))
    }
}
