//! A disk that a test alters.
#![allow(dead_code)]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use gtp_store::{Disk, Found, Identity, MadeDir, Mode, Mtime, Opened, OsDisk};
use rustix::io::Errno;

/// The real file system, with other names and more errors.
pub struct Altered {
    pub disk: OsDisk,
    /// What it makes of a name.
    pub stored: fn(&str) -> String,
    /// Why it does not create this name.
    pub create: fn(&str) -> Option<Errno>,
    /// Why it does not rename to this name.
    pub rename: fn(&str) -> Option<Errno>,
    /// What it was asked to lock, to sync and to remove, in order.
    pub calls: Arc<Mutex<Vec<String>>>,
}

impl Altered {
    /// One beneath this directory that is as the real one.
    pub fn beneath(dir: &Path) -> Altered {
        let disk = OsDisk::beneath(dir).unwrap();
        let calls = Arc::default();
        Altered { disk, stored: str::to_owned, create: |_| None, rename: |_| None, calls }
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

type Handle = <OsDisk as Disk>::File;

impl Disk for Altered {
    type File = Handle;

    fn look(&mut self, path: &str) -> io::Result<Option<Found>> {
        self.disk.look(&(self.stored)(path))
    }

    fn count_names(&mut self, suffix: &str) -> io::Result<usize> {
        self.disk.count_names(suffix)
    }

    fn create(&mut self, path: &str) -> io::Result<Handle> {
        if let Some(error) = (self.create)(path) {
            return Err(error.into());
        }
        self.disk.create(&(self.stored)(path))
    }

    fn names(&mut self, suffix: &str) -> io::Result<Vec<String>> {
        self.disk.names(suffix)
    }

    fn open_to_read(&mut self, path: &str) -> io::Result<Opened<Handle>> {
        self.disk.open_to_read(&(self.stored)(path))
    }

    fn open(&mut self, path: &str) -> io::Result<Opened<Handle>> {
        self.note(format!("lock {path}"));
        self.disk.open(&(self.stored)(path))
    }

    fn identity(&mut self, file: &Handle) -> io::Result<Identity> {
        self.disk.identity(file)
    }

    fn len(&mut self, file: &Handle) -> io::Result<u64> {
        self.disk.len(file)
    }

    fn read_at(&mut self, file: &Handle, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(file, offset, out)
    }

    fn write_at(&mut self, file: &Handle, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(file, offset, bytes)
    }

    fn clear(&mut self, file: &Handle, offset: u64, len: u64) -> io::Result<()> {
        self.disk.clear(file, offset, len)
    }

    fn set_len(&mut self, file: &Handle, len: u64) -> io::Result<()> {
        self.disk.set_len(file, len)
    }

    fn start_writing(&mut self, file: &Handle, offset: u64, len: u64) {
        self.disk.start_writing(file, offset, len);
    }

    fn dress(&mut self, file: &Handle, mode: Mode, mtime: Mtime) -> io::Result<()> {
        self.disk.dress(file, mode, mtime)
    }

    fn sync(&mut self, file: &Handle) -> io::Result<()> {
        self.note("sync".into());
        self.disk.sync(file)
    }

    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir> {
        self.disk.make_dir(&(self.stored)(path))
    }

    fn set_dir_attributes(
        &mut self,
        path: &str,
        mode: Option<Mode>,
        mtime: Mtime,
    ) -> io::Result<()> {
        self.disk.set_dir_attributes(&(self.stored)(path), mode, mtime)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if let Some(error) = (self.rename)(to) {
            return Err(error.into());
        }
        self.disk.rename(&(self.stored)(from), &(self.stored)(to))
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.note(format!("remove {path}"));
        self.disk.remove(&(self.stored)(path))
    }

    fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        self.note(format!("sync directory {path}"));
        self.disk.sync_dir(&(self.stored)(path))
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.disk.sync_all()
    }
}
