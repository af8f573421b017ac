//! The journal as a locked, growing file: the one thing that says which transfer owns a
//! destination.
//! Whoever holds the lock holds the destination; what the records mean is known to the journal.

mod inherit;

use std::io;

use inherit::Heir;

use crate::destination::Names;
use crate::disk::{Disk, Opened};
use crate::journal::{
    HEADER_LEN, Header, MAX_RECORD, Record, decode, encode, header, parse_header,
};
use crate::manifest::{Manifest, Mode};
use crate::name::JOURNAL_SUFFIX;
use crate::recheck::Recheck;
use crate::sink::{Fault, SinkError};
use crate::time_step::TimeStep;

/// Records wait in memory up to this many bytes between two flushes: about 1,300 blocks.
const MAX_BUFFER: usize = 64 * 1024;

/// The permissions of a journal: its owner's alone.
const PRIVATE: Mode = Mode::new(0o600);

/// How much of a journal is read at once.
const READ: usize = 256 * 1024;

/// How often opening is tried again when another transfer removes its journal meanwhile.
const TRIES: usize = 8;

/// Unfinished transfers in one directory: bounds what peers leave behind that begin and go.
const MAX_JOURNALS: usize = 1_000;

/// An open journal. Records are appended only after what they speak of was written.
#[derive(Debug)]
pub(crate) struct Log<F> {
    file: F,
    /// Where the next record goes.
    end: u64,
    buffer: Vec<u8>,
    /// How many files have been named: the number of the next.
    files: u32,
    origin: Origin,
}

/// Where a journal comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This transfer began it.
    New,
    /// An earlier transfer left it.
    Left,
}

/// How another transfer's journal is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Only to be read, while its transfer may be writing it.
    Unlocked,
    /// For this transfer alone.
    Locked,
}

/// Why a journal is not usable.
#[derive(Debug)]
enum LogError {
    /// Another transfer holds it.
    InUse,
    /// What is there is not a journal of ours.
    Foreign,
    /// What the system says.
    Disk(io::Error),
}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> LogError {
        LogError::Disk(error)
    }
}

impl<F: Send> Log<F> {
    /// Opens and locks the journal of the object of these names.
    pub(crate) fn of<D: Disk<File = F>>(
        disk: &mut D,
        names: &Names,
        manifest: &Manifest,
        recheck: &Recheck,
    ) -> Result<Log<F>, SinkError> {
        let path = names.journal_path();
        let shown = names.shown(path);
        let failed = |e| SinkError::disk(&shown, e);
        if disk.look(path).map_err(failed)?.is_none()
            && disk.count_names(JOURNAL_SUFFIX).map_err(failed)? >= MAX_JOURNALS
        {
            let text = format!(
                "{shown}: {MAX_JOURNALS} unfinished transfers lie there already; finish them, or \
                 remove their *.gtp-journal and *.gtp-part files"
            );
            return Err(SinkError::Unsuitable(text));
        }
        let mut log = Log::open(disk, path).map_err(|error| match error {
            LogError::InUse => SinkError::refused(&names.shown_object(), Fault::InUse),
            LogError::Foreign => SinkError::refused(&shown, Fault::Foreign),
            LogError::Disk(error) => SinkError::disk(&names.shown_object(), error),
        })?;
        log.inherit(disk, &Heir { names, manifest, recheck })?;
        Ok(log)
    }

    /// Takes over what is a bundle's. If that fails, a journal that is new is not left behind.
    fn inherit<D: Disk<File = F>>(
        &mut self,
        disk: &mut D,
        heir: &Heir<'_>,
    ) -> Result<(), SinkError> {
        let inherited = heir.inherit(self, disk);
        if inherited.is_err()
            && self.origin == Origin::New
            && let Err(error) = disk.remove(heir.names.journal_path())
        {
            tracing::debug!(%error, "an empty journal stays");
        }
        inherited
    }

    /// Opens the journal at `path`, new or left by an earlier transfer, and locks it.
    fn open<D: Disk<File = F>>(disk: &mut D, path: &str) -> Result<Log<F>, LogError> {
        for _ in 0..TRIES {
            let file = match disk.open(path)? {
                Opened::Ours(file) => file,
                Opened::Foreign => return Err(LogError::Foreign),
                Opened::Locked => return Err(LogError::InUse),
                Opened::Absent => match disk.create(path) {
                    Ok(file) => file,
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(e) => return Err(e.into()),
                },
            };
            // Its last owner may have removed it between our opening and our locking.
            let identity = disk.identity(&file)?;
            if disk.look(path)?.is_some_and(|found| found.identity == identity) {
                return Log::begin(disk, file);
            }
        }
        Err(LogError::InUse)
    }

    fn begin<D: Disk<File = F>>(disk: &mut D, file: F) -> Result<Log<F>, LogError> {
        let len = disk.len(&file)?;
        let mut head = vec![0; (len as usize).min(HEADER_LEN)];
        disk.read_at(&file, 0, &mut head)?;
        let origin = match parse_header(&head) {
            Header::Ours => Origin::Left,
            Header::Foreign => return Err(LogError::Foreign),
            Header::Torn => {
                disk.set_len(&file, 0)?;
                disk.write_at(&file, 0, &header())?;
                Origin::New
            }
        };
        Ok(Log { file, end: HEADER_LEN as u64, buffer: Vec::new(), files: 0, origin })
    }

    /// A journal that an earlier transfer left; `None` if there is none such, or if it is to be
    /// locked and another transfer holds it.
    fn left_at<D: Disk<File = F>>(
        disk: &mut D,
        path: &str,
        hold: Hold,
    ) -> io::Result<Option<Log<F>>> {
        let opened = match hold {
            Hold::Unlocked => disk.open_to_read(path)?,
            Hold::Locked => disk.open(path)?,
        };
        let Opened::Ours(file) = opened else { return Ok(None) };
        let identity = disk.identity(&file)?;
        let is_there = disk.look(path)?.is_some_and(|found| found.identity == identity);
        let mut head = vec![0; (disk.len(&file)? as usize).min(HEADER_LEN)];
        match disk.read_at(&file, 0, &mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let is_ours = is_there && parse_header(&head) == Header::Ours;
        let (end, origin) = (HEADER_LEN as u64, Origin::Left);
        Ok(is_ours.then(|| Log { file, end, buffer: Vec::new(), files: 0, origin }))
    }

    /// Where it comes from.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// The steps in which the destination keeps times, found by giving the journal, whose own time
    /// tells nothing, a time and looking at what became of it.
    pub(crate) fn time_step<D: Disk<File = F>>(
        &self,
        disk: &mut D,
        path: &str,
    ) -> io::Result<TimeStep> {
        let Some(set) = TimeStep::probe() else { return Ok(TimeStep::EXACT) };
        disk.dress(&self.file, PRIVATE, set)?;
        Ok(disk.look(path)?.map_or(TimeStep::EXACT, |found| TimeStep::between(set, found.mtime)))
    }

    /// Finds where the next record goes, so that records can be appended before those of earlier
    /// transfers are used.
    pub(crate) fn find_end<D: Disk<File = F>>(&mut self, disk: &mut D) -> io::Result<()> {
        let mut reader = self.reader(disk)?;
        while reader.next(disk, self)?.is_some() {}
        Ok(())
    }

    /// All records, from the first on, read piece by piece. Appending is allowed only after
    /// [`Reader::next`] has returned `None`.
    pub(crate) fn reader<D: Disk<File = F>>(&mut self, disk: &mut D) -> io::Result<Reader> {
        (self.end, self.files) = (HEADER_LEN as u64, 0);
        Ok(Reader { len: disk.len(&self.file)?, read_to: self.end, held: Vec::new(), at: 0 })
    }

    /// Appends a record in memory.
    pub(crate) fn push(&mut self, record: &Record) {
        encode(record, &mut self.buffer);
    }

    /// Appends the beginning of a file in memory; returns its number.
    pub(crate) fn push_file(&mut self, record: &Record) -> u32 {
        self.push(record);
        self.files += 1;
        self.files - 1
    }

    /// Appends a record of another journal in memory, whose files are numbered from `first` here.
    fn push_numbered(&mut self, record: Record, first: u32) {
        match record {
            Record::File { .. } => drop(self.push_file(&record)),
            Record::Block { number, block, value } => {
                let number = first.saturating_add(number);
                self.push(&Record::Block { number, block, value });
            }
            Record::Dir { .. } | Record::Loan { .. } => self.push(&record),
        }
    }

    /// Whether enough waits in memory to flush early.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.len() >= MAX_BUFFER
    }

    /// Writes what waits in memory. After an error the same can be tried again.
    pub(crate) fn flush<D: Disk<File = F>>(&mut self, disk: &mut D) -> io::Result<()> {
        if !self.buffer.is_empty() {
            disk.write_at(&self.file, self.end, &self.buffer)?;
            self.end += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// Reads a journal.
#[derive(Debug)]
pub(crate) struct Reader {
    len: u64,
    read_to: u64,
    held: Vec<u8>,
    at: usize,
}

impl Reader {
    /// The next whole record; at the first torn one, cuts the journal there and ends.
    pub(crate) fn next<D: Disk>(
        &mut self,
        disk: &mut D,
        log: &mut Log<D::File>,
    ) -> io::Result<Option<Record>> {
        let record = self.look(disk, log)?;
        if record.is_none() && log.end < self.len {
            disk.set_len(&log.file, log.end)?;
            self.len = log.end;
        }
        Ok(record)
    }

    /// As [`Reader::next`], but changes nothing: another transfer may be writing the journal.
    fn look<D: Disk>(
        &mut self,
        disk: &mut D,
        log: &mut Log<D::File>,
    ) -> io::Result<Option<Record>> {
        if self.held.len() - self.at < MAX_RECORD && self.read_to < self.len {
            self.held.drain(..self.at);
            self.at = 0;
            let old = self.held.len();
            let more = (self.len - self.read_to).min(READ as u64);
            self.held.resize(old + more as usize, 0);
            disk.read_at(&log.file, self.read_to, &mut self.held[old..])?;
            self.read_to += more;
        }
        let Some((record, used)) = decode(&self.held[self.at..]) else { return Ok(None) };
        self.at += used;
        log.end += used as u64;
        match record {
            Record::File { .. } => log.files += 1,
            Record::Block { .. } | Record::Dir { .. } | Record::Loan { .. } => {}
        }
        Ok(Some(record))
    }
}
