//! Steps in their order, of which those that write files wait for each other.
//!
//! A file is written under a spare name. Files of steps that follow one another are made durable
//! together and then get their names, before a step of another kind is carried out: one by one,
//! each would wait for the disk. This module must not know what a tree is to become.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, fsync, renameat, unlinkat};
use rustix::io::Errno;

use super::deed::Deed;
use super::survey::words;
use super::tree::{Fault, Replica};
use crate::abilities::is_refusal;
use crate::disk::sync_file_system;
use crate::file_sink::SYNC_SINGLY;
use crate::name::escaped;
use crate::walk;

/// Files that wait hold two descriptors each, so there are this many at most.
const WAITING_MOST: usize = 32;

/// A file that is written whole, under a name of its own.
pub(super) struct Spare {
    /// The directory that it is in.
    pub dir: OwnedFd,
    /// Its name there.
    pub spare: String,
    /// The name that it is to get.
    pub name: String,
    /// Open, and so locked against other transfers.
    pub file: OwnedFd,
    /// Whether it has got it.
    pub is_placed: bool,
}

/// A row of steps that are being carried out.
pub struct Steps<'r> {
    replica: &'r Replica,
    waiting: Vec<(usize, String, Spare)>,
    faults: Vec<(usize, Fault)>,
}

impl Replica {
    /// Begins a row of steps.
    pub fn steps(&self) -> Steps<'_> {
        Steps { replica: self, waiting: Vec::new(), faults: Vec::new() }
    }

    /// Carries out one step. Blocks.
    ///
    /// # Errors
    /// A [`Fault`] that names what the step concerns; the tree is as it was.
    pub fn apply(&self, deed: &Deed) -> Result<(), Fault> {
        let mut steps = self.steps();
        steps.carry_out(0, deed);
        steps.finish().pop().map_or(Ok(()), |(_, fault)| Err(fault))
    }
}

impl Steps<'_> {
    /// Carries out the next step, or begins to. Its `index` says which one failed. One that fails
    /// does not keep the others from being tried. Blocks.
    pub fn carry_out(&mut self, index: usize, deed: &Deed) {
        if self.waiting.len() >= WAITING_MOST || !matches!(deed, Deed::Write { .. }) {
            self.settle();
        }
        let mut written = self.replica.carry_out(deed);
        if written.is_err() && !self.waiting.is_empty() {
            // Those that wait may be in the way, by their descriptors or by a spare name.
            self.settle();
            written = self.replica.carry_out(deed);
        }
        let name = escaped(deed.name());
        match written {
            Ok(None) => {}
            Ok(Some(spare)) => self.waiting.push((index, name, spare)),
            Err(why) => self.faults.push((index, Fault { path: name, why })),
        }
    }

    /// Ends the row, and returns the steps that failed, in their order. Of each of them the tree is
    /// as it was, unless it was named before the disk failed. Blocks.
    pub fn finish(mut self) -> Vec<(usize, Fault)> {
        self.settle();
        self.faults.sort_by_key(|(index, _)| *index);
        self.faults
    }

    /// Makes the files that wait durable, gives them their names, and makes these durable.
    fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let singly = waiting.len() < SYNC_SINGLY;
        let files = |(.., spare): &(usize, String, Spare)| sync_file(&spare.file);
        let synced = each(&waiting, singly, files);
        let placed: Vec<_> = waiting
            .iter_mut()
            .zip(synced)
            .map(|((.., spare), synced)| synced.and_then(|()| spare.place()))
            .collect();
        let named = each(&waiting, singly, |(.., spare)| sync_dir(&spare.dir));
        for (((index, path, _), placed), named) in waiting.into_iter().zip(placed).zip(named) {
            if let Err(error) = placed.and(named) {
                self.faults.push((index, Fault { path, why: words(error) }));
            }
        }
    }
}

impl Spare {
    fn place(&mut self) -> Result<(), Errno> {
        renameat(&self.dir, &*self.spare, &self.dir, &*self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // Under its spare name there may be another transfer's part by now if this one is placed.
        if !self.is_placed {
            let _ = unlinkat(&self.dir, &*self.spare, AtFlags::empty());
        }
    }
}

/// Syncs one by one, or all at once by their file systems.
fn each(
    waiting: &[(usize, String, Spare)],
    singly: bool,
    sync: impl Fn(&(usize, String, Spare)) -> Result<(), Errno>,
) -> Vec<Result<(), Errno>> {
    if singly {
        return waiting.iter().map(sync).collect();
    }
    let mut done: Vec<(u64, Result<(), Errno>)> = Vec::new();
    let of = |(.., spare): &(usize, String, Spare)| -> Result<(), Errno> {
        let device = fstat(&spare.file)?.st_dev;
        if let Some((_, synced)) = done.iter().find(|(known, _)| *known == device) {
            return *synced;
        }
        let synced = sync_file_system(spare.file.as_fd());
        done.push((device, synced));
        synced
    };
    waiting.iter().map(of).collect()
}

fn sync_file(file: &OwnedFd) -> Result<(), Errno> {
    excused(fsync(file))
}

fn sync_dir(dir: &OwnedFd) -> Result<(), Errno> {
    let dir: BorrowedFd<'_> = dir.as_fd();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    excused(walk::open(dir, ".", flags, Mode::empty()).and_then(fsync))
}

/// A file system that cannot sync has done what it can.
fn excused(synced: Result<(), Errno>) -> Result<(), Errno> {
    synced.or_else(|error| if is_refusal(error) { Ok(()) } else { Err(error) })
}
