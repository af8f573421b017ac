//! The words of `gtp sync`, most of them as rsync has them.
//!
//! None of them can come from the environment or the configuration file: what a command removes is
//! said with the command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, ValueHint};

use super::backup::Backup;
use super::filter::{Filter, read};
use super::limit::Limit;
use super::plan::Rules;
use super::side::Part;
use crate::args::{TransferArgs, Udp};
use crate::cp::WayArgs;
use crate::cp::hello::{Alike, Want};
use crate::words;
use gtp::replica::Asked;
use gtp::tree::Pieces;
use gtp::{Failure, FailureKind, TimeStep};

/// Options of `sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The directory that is to be followed, and the one that is made like it. Each is a path of
    /// this machine, [user@]host:path for one behind an ssh login, or gtp://host[:port]/path; one
    /// at least is here. SRC goes beneath DST under its own name; written with a slash at its end,
    /// its content goes into DST. A single file goes into DST if that is a directory or ends with a
    /// slash; otherwise the last part of DST is its new name
    #[arg(required = true, num_args = 2, value_names = ["SRC", "DST"],
        value_hint = ValueHint::Hostname)]
    pub words: Vec<OsString>,
    /// Accepted because rsync has it: links, modes, times and, as root, owners are kept anyway
    #[arg(short = 'a', long)]
    pub archive: bool,
    /// Say what would be done and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Print one line for each name that changes, as a dry run does
    #[arg(short = 'i', long)]
    pub itemize_changes: bool,
    /// Compare files by size and BLAKE3 hash in place of size and time
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Take times that differ by at most so many seconds for the same
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub modify_window: u64,
    /// Remove what DST has and SRC has not, after the transfer
    #[arg(long)]
    pub delete: bool,
    /// The same, before the transfer
    #[arg(long)]
    pub delete_before: bool,
    /// If more than so many names would be removed, remove none and exit with code 12
    #[arg(long, value_name = "N")]
    pub max_delete: Option<usize>,
    /// Remove also where SRC has become empty
    #[arg(long)]
    pub force: bool,
    /// Leave out names that match; the first matching pattern of all options decides
    #[arg(long, value_name = "PATTERN", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    /// Take in names that match although a later pattern leaves them out
    #[arg(long, value_name = "PATTERN", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Leave out what matches a pattern of this file, one a line; - is standard input
    #[arg(long, value_name = "FILE", action = ArgAction::Append, value_hint = ValueHint::FilePath)]
    pub exclude_from: Vec<PathBuf>,
    /// A rule, "- PATTERN" or "+ PATTERN"; rules come before --include and --exclude
    #[arg(short = 'f', long, value_name = "RULE", action = ArgAction::Append,
        allow_hyphen_values = true)]
    pub filter: Vec<String>,
    /// Only these paths beneath SRC, one a line, with all beneath them; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from: Option<PathBuf>,
    /// Keep several names of one file together
    #[arg(short = 'H', long)]
    pub hard_links: bool,
    /// Keep extended attributes of users
    #[arg(short = 'X', long)]
    pub xattrs: bool,
    /// Keep access control lists
    #[arg(short = 'A', long)]
    pub acls: bool,
    /// Let zeros of files that are moved take no space
    #[arg(short = 'S', long)]
    pub sparse: bool,
    /// Keep what would be overwritten or removed under its name with the suffix behind it
    #[arg(short = 'b', long)]
    pub backup: bool,
    /// Keep it in this directory instead, under the same paths. A relative path starts at DST. It
    /// may lead out of DST if DST is on this machine or behind a login, not at gtp://
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<String>,
    /// What is put behind names of backups: ~ if not said, and nothing with --backup-dir
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub suffix: Option<String>,
    /// Leave out what .gtpignore, .ignore and .gitignore in SRC say, by git's rules, where no
    /// pattern of an option decides
    #[arg(long)]
    pub ignore_files: bool,
    /// Remove at DST also what is left out
    #[arg(long)]
    pub delete_excluded: bool,
    /// Sync again whenever SRC changes, until interrupted
    #[arg(long, conflicts_with_all = ["dry_run", "files_from"])]
    pub watch: bool,
    /// With --watch and a SRC at gtp://: time between two comparisons, since a server reports no
    /// changes
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = words::span,
        requires = "watch")]
    pub watch_every: Duration,
    /// Limit of the rate in KiB a second, or with K, M or G that unit: 10M; or limits by the time
    /// of day: "08:00,10M 18:00,off"
    #[arg(long, value_name = "RATE|TABLE")]
    pub bwlimit: Option<Limit>,
    /// Move whole files also where an older version is at the destination
    #[arg(short = 'W', long)]
    pub whole_file: bool,
    #[command(flatten)]
    pub way: WayArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
}

impl SyncArgs {
    /// Whether anything is to be removed.
    pub fn deletes(&self) -> bool {
        self.delete || self.delete_before || self.delete_excluded
    }

    /// Where what would be overwritten or removed is kept.
    ///
    /// # Errors
    /// [`gtp::FailureKind::Usage`].
    pub fn backups(&self) -> Result<Option<Backup>, Failure> {
        Backup::of(self.backup, self.backup_dir.as_deref(), self.suffix.as_deref())
    }

    /// The directory for backups, as a path from the destination's, if it lies outside that one.
    ///
    /// # Errors
    /// As [`SyncArgs::backups`].
    pub fn backups_outside(&self) -> Result<Option<PathBuf>, Failure> {
        Ok(self.backups()?.as_ref().and_then(Backup::outside).map(Path::to_owned))
    }

    /// What a far end is asked for of a destination: the tree of this name beneath the path, or, of
    /// a single file, its place.
    ///
    /// # Errors
    /// As [`SyncArgs::backups`].
    pub fn want(&self, path: &str, name: &str, is_file: bool) -> Result<Want, Failure> {
        let (path, name) = (path.to_owned(), name.to_owned());
        Ok(match self.backups_outside()? {
            Some(dir) => {
                // What the user wrote is UTF-8.
                let old_versions = dir.to_string_lossy().into_owned();
                Want::Alike(Alike { path, name, is_file, old_versions })
            }
            None => Want::Tree(path),
        })
    }

    /// Returns a far end's failure, or that its gtp is too old for `--backup-dir` outside DST.
    pub fn of_old_far_end(&self, failure: Failure) -> Failure {
        match self.backups_outside() {
            Ok(Some(_)) if failure.text.contains("unknown variant") => {
                let text = "gtp there is too old to keep backups outside DST (--backup-dir)";
                Failure::new(FailureKind::Authentication, text)
            }
            _ => failure,
        }
    }

    /// What surveys look at.
    pub fn asked(&self) -> Asked {
        Asked { hashes: self.checksum, xattrs: self.xattrs, acls: self.acls }
    }

    /// What a destination at a server is asked for: a dry run only looks.
    pub fn part_of_destination(&self) -> Part {
        if self.dry_run { Part::Looked } else { Part::Changed }
    }

    /// Whether something limits the rate or says what carries the data. What travels in steps keeps
    /// to neither.
    pub fn has_terms(&self) -> bool {
        let TransferArgs { max_rate, udp, .. } = &self.transfer;
        self.bwlimit.is_some() || max_rate.is_some() || matches!(udp, Udp::Only)
    }

    /// Whether pieces of small files at a destination are asked for while it is surveyed.
    pub fn pieces(&self) -> Pieces {
        match self.part_of_destination() {
            Part::Changed if !self.whole_file && !self.has_terms() => Pieces::Asked,
            Part::Changed | Part::Looked => Pieces::Unasked,
        }
    }

    /// What counts as a difference; `owner` is whether the destination can keep owners.
    pub fn rules(&self, owner: bool, time_step: TimeStep) -> Rules {
        Rules {
            time_step,
            checksum: self.checksum,
            modify_window_s: self.modify_window,
            delete: self.deletes(),
            hard_links: self.hard_links,
            owner,
            xattrs: self.xattrs,
            acls: self.acls,
            sparse: self.sparse,
        }
    }

    /// Which names take part.
    ///
    /// # Errors
    /// [`gtp::FailureKind::Usage`] for a rule that is none, or a file that cannot be read.
    pub fn names(&self) -> Result<Filter, Failure> {
        let mut filter = Filter::default();
        for rule in &self.filter {
            filter.rule(rule)?;
        }
        self.include.iter().for_each(|pattern| filter.include(pattern));
        self.exclude.iter().for_each(|pattern| filter.exclude(pattern));
        for file in &self.exclude_from {
            filter.exclude_from(file)?;
        }
        if let Some(file) = &self.files_from {
            filter.only(read(file)?.lines().filter(|line| !line.is_empty()).map(str::to_owned));
        }
        Ok(filter)
    }
}
