//! A destination that does not give whole files their names: when a part stays and when it goes.

#[path = "common/altered.rs"]
mod altered;
mod common;

use std::path::Path;
use std::sync::Arc;

use altered::Altered;
use common::{file, tree};
use gtp_store::{BlockSink, Fault, FileSink, SinkOptions, block_value};
use rustix::io::Errno;

const REFUSALS: [fn(&str) -> Option<Errno>; 2] = [
    |path| path.ends_with("odd").then_some(Errno::INVAL),
    |path| path.ends_with("odd").then_some(Errno::ILSEQ),
];

/// Writes a small tree to such a disk. Returns why its entry `odd` was left out, and whether what
/// is in the directory besides is that entry's part with its content, or nothing.
fn written(dir: &Path, disk: Altered) -> (Fault, bool) {
    let listing = Arc::new(tree(vec![file("even", 10, 1), file("odd", 10, 1)]));
    let mut sink = FileSink::on_disk(disk, None, listing, SinkOptions::default()).unwrap();
    for number in 0..2 {
        let mut framed = vec![number as u8; 10];
        framed.extend_from_slice(&block_value(10, 0, &framed));
        sink.write_block(number, 0, &framed).unwrap();
        sink.finish_file(number, None).unwrap();
    }
    sink.finish().unwrap();
    let refused = sink.take_refused();
    assert_eq!(refused.iter().map(|one| one.file).collect::<Vec<_>>(), [1]);
    assert_eq!(std::fs::read(dir.join("even")).unwrap(), [0; 10]);
    let mut names: Vec<_> = dir.read_dir().unwrap().map(|name| name.unwrap().file_name()).collect();
    names.retain(|name| name != "even" && name != "odd");
    let part = "odd.gtp-part";
    let stays = std::fs::read(dir.join(part)).is_ok_and(|content| content == [1; 10]);
    assert!(names == if stays { vec![part] } else { vec![] }, "{names:?}");
    (refused[0].error.fault().unwrap(), stays)
}

#[test]
fn a_part_goes_whose_name_the_file_system_can_give_to_nothing() {
    for refuses in REFUSALS {
        let at = tempfile::tempdir().unwrap();
        let disk = Altered { create: refuses, rename: refuses, ..Altered::beneath(at.path()) };
        assert_eq!(written(at.path(), disk), (Fault::Unnameable, false));
    }
}

#[test]
fn a_part_stays_that_is_not_renamed_although_its_name_is_possible() {
    for refuses in REFUSALS {
        let at = tempfile::tempdir().unwrap();
        let disk = Altered { rename: refuses, ..Altered::beneath(at.path()) };
        assert_eq!(written(at.path(), disk), (Fault::Other, true));
        assert!(!at.path().join("odd").exists(), "what was tried is gone");
    }
}

#[test]
fn a_part_stays_beside_an_older_file_when_nobody_knows_why_it_is_not_renamed() {
    for refuses in REFUSALS {
        let at = tempfile::tempdir().unwrap();
        std::fs::write(at.path().join("odd"), "older").unwrap();
        let disk = Altered { rename: refuses, ..Altered::beneath(at.path()) };
        assert_eq!(written(at.path(), disk), (Fault::Other, true));
        assert_eq!(std::fs::read(at.path().join("odd")).unwrap(), b"older");
    }
}

#[test]
fn a_part_stays_where_no_name_at_all_can_be_created_just_now() {
    let at = tempfile::tempdir().unwrap();
    let create = |path: &str| {
        let is_tried = path.ends_with("odd") || path.ends_with('~');
        is_tried.then_some(Errno::INVAL)
    };
    let disk = Altered { create, rename: REFUSALS[0], ..Altered::beneath(at.path()) };
    assert_eq!(written(at.path(), disk), (Fault::Other, true));
}
