//! A destination whose names fold case: what would take another file's place is refused by name.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;

use common::{dir, file, tree};
use gtp_store::{
    BlockSink, Disk, Entry, Fault, FileSink, Found, Identity, MadeDir, Mode, Mtime, Opened, OsDisk,
    SinkOptions, Written, block_value,
};

/// The real file system, in which all names are small.
struct Folding(OsDisk);

fn fold(path: &str) -> String {
    path.to_lowercase()
}

type Handle = <OsDisk as Disk>::File;

impl Disk for Folding {
    type File = Handle;

    fn look(&mut self, path: &str) -> io::Result<Option<Found>> {
        self.0.look(&fold(path))
    }

    fn count_names(&mut self, suffix: &str) -> io::Result<usize> {
        self.0.count_names(suffix)
    }

    fn create(&mut self, path: &str) -> io::Result<Handle> {
        self.0.create(&fold(path))
    }

    fn open(&mut self, path: &str) -> io::Result<Opened<Handle>> {
        self.0.open(&fold(path))
    }

    fn identity(&mut self, file: &Handle) -> io::Result<Identity> {
        self.0.identity(file)
    }

    fn len(&mut self, file: &Handle) -> io::Result<u64> {
        self.0.len(file)
    }

    fn read_at(&mut self, file: &Handle, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(file, offset, out)
    }

    fn write_at(&mut self, file: &Handle, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(file, offset, bytes)
    }

    fn clear(&mut self, file: &Handle, offset: u64, len: u64) -> io::Result<()> {
        self.0.clear(file, offset, len)
    }

    fn set_len(&mut self, file: &Handle, len: u64) -> io::Result<()> {
        self.0.set_len(file, len)
    }

    fn start_writing(&mut self, file: &Handle, offset: u64, len: u64) {
        self.0.start_writing(file, offset, len);
    }

    fn dress(&mut self, file: &Handle, mode: Mode, mtime: Mtime) -> io::Result<()> {
        self.0.dress(file, mode, mtime)
    }

    fn sync(&mut self, file: &Handle) -> io::Result<()> {
        self.0.sync(file)
    }

    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir> {
        self.0.make_dir(&fold(path))
    }

    fn set_dir_attributes(
        &mut self,
        path: &str,
        mode: Option<Mode>,
        mtime: Mtime,
    ) -> io::Result<()> {
        self.0.set_dir_attributes(&fold(path), mode, mtime)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&fold(from), &fold(to))
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.0.remove(&fold(path))
    }

    fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        self.0.sync_dir(&fold(path))
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Opens a sink for a tree of these entries on such a disk; which it refuses, and why.
fn sink(dir: &Path, entries: Vec<Entry>) -> (FileSink<Folding>, Vec<(String, Option<Fault>)>) {
    let listing = Arc::new(tree(entries));
    let disk = Folding(OsDisk::beneath(dir).unwrap());
    let mut sink = FileSink::on_disk(disk, None, listing.clone(), SinkOptions::default()).unwrap();
    let path = |number: u32| listing.entries[number as usize].path.as_str().to_owned();
    let refused = sink.take_refused().into_iter();
    let refused = refused.map(|one| (path(one.file), one.error.fault())).collect();
    (sink, refused)
}

/// Offers a file of ten bytes; whether it is taken.
fn offer(sink: &mut FileSink<Folding>, number: u32) -> bool {
    let mut framed = vec![number as u8; 10];
    framed.extend_from_slice(&block_value(10, 0, &framed));
    let written = sink.write_block(number, 0, &framed).unwrap();
    sink.finish_file(number, None).unwrap();
    written == Written::Completed
}

#[test]
fn of_two_names_that_are_one_here_the_later_is_refused_and_the_earlier_keeps_its_content() {
    let at = tempfile::tempdir().unwrap();
    let entries = vec![file("A", 10, 1), file("a", 10, 2), file("a.", 10, 2), file("b", 10, 3)];
    let (mut sink, refused) = sink(at.path(), entries);
    let twin = |path: &str| (path.to_owned(), Some(Fault::Twin));
    assert_eq!(refused, [twin("a"), twin("a.")]);
    let taken: Vec<bool> = (0..4).map(|number| offer(&mut sink, number)).collect();
    assert_eq!(taken, [true, false, false, true]);
    assert_eq!(sink.finish().unwrap().files_written, 2);
    assert_eq!(std::fs::read(at.path().join("a")).unwrap(), [0; 10]);
    assert_eq!(std::fs::read(at.path().join("b")).unwrap(), [3; 10]);
}

#[test]
fn a_directory_whose_name_another_entry_has_here_is_refused_with_all_that_is_in_it() {
    let at = tempfile::tempdir().unwrap();
    let entries = vec![
        dir("D", 1),
        file("D/same", 10, 1),
        dir("d", 1),
        file("d/other", 10, 1),
        dir("d/sub", 1),
        file("d/sub/deep", 10, 1),
        file("f", 10, 1),
    ];
    let (mut sink, refused) = sink(at.path(), entries);
    let refused: Vec<_> = refused.iter().map(|(path, fault)| (path.as_str(), *fault)).collect();
    let twins = ["d", "d/other", "d/sub", "d/sub/deep"].map(|path| (path, Some(Fault::Twin)));
    assert_eq!(refused, twins);
    let taken: Vec<bool> = [1, 3, 5, 6].into_iter().map(|n| offer(&mut sink, n)).collect();
    assert_eq!(taken, [true, false, false, true]);
    assert_eq!(sink.finish().unwrap().files_written, 2);
    assert_eq!(std::fs::read_dir(at.path().join("d")).unwrap().count(), 1, "nothing was mixed");
}
