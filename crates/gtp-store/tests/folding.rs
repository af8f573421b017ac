//! A destination whose names fold case: what would take another file's place is refused by name.

mod common;

use std::io;
use std::sync::Arc;

use common::{file, tree};
use gtp_store::{
    BlockSink, Disk, Fault, FileSink, Found, Identity, MadeDir, Mode, Mtime, Opened, OsDisk,
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

#[test]
fn of_two_names_that_are_one_here_the_later_is_refused_and_the_earlier_keeps_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let listing = tree(vec![file("A", 10, 1), file("a", 10, 2), file("b", 10, 3)]);
    let disk = Folding(OsDisk::beneath(dir.path()).unwrap());
    let options = SinkOptions::default();
    let mut sink = FileSink::on_disk(disk, None, Arc::new(listing), options).unwrap();
    let refused: Vec<_> =
        sink.take_refused().into_iter().map(|one| (one.file, one.error.fault())).collect();
    assert_eq!(refused, [(1, Some(Fault::Twin))]);
    for number in 0..3 {
        let mut framed = vec![number as u8; 10];
        framed.extend_from_slice(&block_value(10, 0, &framed));
        let written = sink.write_block(number, 0, &framed).unwrap();
        assert_eq!(written == Written::Completed, number != 1, "{written:?}");
        sink.finish_file(number, None).unwrap();
    }
    assert_eq!(sink.finish().unwrap().files_written, 2);
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), [0; 10]);
    assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), [2; 10]);
}
