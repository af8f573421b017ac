//! A destination whose names fold case: what would take another file's place is refused by name.

#[path = "common/altered.rs"]
mod altered;
mod common;

use std::path::Path;
use std::sync::Arc;

use altered::Altered;
use common::{dir, file, tree};
use gtp_store::{BlockSink, Entry, Fault, FileSink, SinkOptions, Written, block_value};

/// Opens a sink for a tree of these entries on such a disk; which it refuses, and why.
fn sink(dir: &Path, entries: Vec<Entry>) -> (FileSink<Altered>, Vec<(String, Option<Fault>)>) {
    let listing = Arc::new(tree(entries));
    let disk = Altered { stored: str::to_lowercase, ..Altered::beneath(dir) };
    let mut sink = FileSink::on_disk(disk, None, listing.clone(), SinkOptions::default()).unwrap();
    let path = |number: u32| listing.entries[number as usize].path.as_str().to_owned();
    let refused = sink.take_refused().into_iter();
    let refused = refused.map(|one| (path(one.file), one.error.fault())).collect();
    (sink, refused)
}

/// Offers a file of ten bytes; whether it is taken.
fn offer(sink: &mut FileSink<Altered>, number: u32) -> bool {
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
