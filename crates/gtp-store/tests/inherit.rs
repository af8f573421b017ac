//! What a bundle takes over from transfers of fewer objects, and what it leaves alone.

#[path = "common/altered.rs"]
mod altered;
mod common;

use std::path::Path;
use std::sync::Arc;

use altered::Altered;
use common::{copy, dir, file, name, tree};
use gtp_store::journal::HEADER_LEN;
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Destination, FileSink, MadeDir, Manifest, Pattern, Recheck,
    SinkError, SinkOptions, SyntheticSource,
};

fn source(entries: Vec<gtp_store::Entry>) -> SyntheticSource {
    SyntheticSource::new(tree(entries), Pattern::Random { seed: 5 })
}

fn large(name: &str) -> gtp_store::Entry {
    file(name, 8 * BLOCK, 1)
}

/// A sink for a bundle in a directory that is there.
fn bundle(dest: &Path, manifest: &Arc<Manifest>) -> FileSink {
    let destination = Destination::into(dest, MadeDir::There).unwrap();
    FileSink::open(destination, manifest.clone(), SinkOptions::default()).unwrap()
}

/// A sink for one object under this name.
fn alone(dest: &Path, as_name: &str, manifest: &Arc<Manifest>) -> FileSink {
    let to = Destination::beneath(dest, name(as_name), manifest.root_kind).unwrap();
    FileSink::open(to, manifest.clone(), SinkOptions::default()).unwrap()
}

/// Writes these blocks and stops in good order.
fn leave(mut sink: FileSink, source: &mut SyntheticSource, blocks: &[(u32, u64)]) {
    copy(source, &mut sink, blocks).unwrap();
    sink.suspend().unwrap();
}

/// The journals in a directory, in order.
fn journals(dest: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dest).unwrap().map(|item| item.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".gtp-journal")).collect();
    names.sort();
    names
}

#[test]
fn a_file_of_a_directory_is_not_taken_for_an_object_of_the_same_name() {
    let dest = tempfile::tempdir().unwrap();
    let mut inside = source(vec![large("x"), large("y")]);
    let sink = alone(dest.path(), "t", &inside.manifest().clone());
    leave(sink, &mut inside, &[(0, 1)]);
    let without = Arc::new(tree(vec![dir("t", 1), large("t/y"), large("x")]));
    drop(bundle(dest.path(), &without));
    assert_eq!(journals(dest.path()).len(), 2, "the directory's journal stays");
    let sink = alone(dest.path(), "t", &inside.manifest().clone());
    assert_eq!(sink.resumed_bytes(), BLOCK);
}

#[test]
fn an_opening_that_is_stopped_takes_nothing_over_and_leaves_no_journal_of_its_own() {
    let dest = tempfile::tempdir().unwrap();
    let mut first = source(vec![large("a"), large("b")]);
    let sink = bundle(dest.path(), &first.manifest().clone());
    leave(sink, &mut first, &[(0, 0), (1, 5)]);
    let before = journals(dest.path());
    let grown = Arc::new(tree(vec![large("a"), large("b"), large("c")]));
    let into = || Destination::into(dest.path(), MadeDir::There).unwrap();
    let recheck = Arc::new(Recheck::default());
    recheck.stop();
    let stopped = FileSink::open_watched(into(), grown.clone(), SinkOptions::default(), recheck);
    assert!(matches!(stopped, Err(SinkError::Stopped)), "{stopped:?}");
    assert_eq!(journals(dest.path()), before);
    assert_eq!(bundle(dest.path(), &grown).resumed_bytes(), 2 * BLOCK);
}

#[test]
fn an_object_whose_name_is_as_long_as_a_name_can_be_goes_on_in_a_bundle() {
    let dest = tempfile::tempdir().unwrap();
    let (long, other) = ("n".repeat(255), format!("{}m", "n".repeat(254)));
    let mut first = source(vec![large("x")]);
    for name in [&long, &other] {
        let sink = alone(dest.path(), name, &first.manifest().clone());
        leave(sink, &mut first, &[(0, 1)]);
    }
    let entries = vec![dir(&long, 1), large(&format!("{long}/x")), large("z")];
    assert_eq!(bundle(dest.path(), &Arc::new(tree(entries))).resumed_bytes(), BLOCK);
    assert_eq!(journals(dest.path()).len(), 2, "the bundle's, and the other object's");
}

#[test]
fn the_journal_of_another_bundle_is_read_without_its_lock() {
    let dest = tempfile::tempdir().unwrap();
    let mut others = source(vec![large("b1"), large("b2")]);
    let sink = bundle(dest.path(), &others.manifest().clone());
    leave(sink, &mut others, &[(0, 0)]);
    let [others] = &*journals(dest.path()) else { panic!("one journal") };
    let mine = Arc::new(tree(vec![large("a1"), large("a2")]));
    let disk = Altered::beneath(dest.path());
    let calls = Arc::clone(&disk.calls);
    drop(FileSink::on_disk(disk, None, mine, SinkOptions::default()).unwrap());
    let calls = calls.lock().unwrap();
    assert!(!calls.contains(&format!("lock {others}")), "{calls:?}");
}

#[test]
fn a_journal_is_removed_only_after_what_it_says_is_durable_elsewhere() {
    let dest = tempfile::tempdir().unwrap();
    let mut first = source(vec![large("a"), large("b")]);
    let sink = bundle(dest.path(), &first.manifest().clone());
    leave(sink, &mut first, &[(0, 0)]);
    let [first] = &*journals(dest.path()) else { panic!("one journal") };
    let grown = Arc::new(tree(vec![large("a"), large("b"), large("c")]));
    let disk = Altered::beneath(dest.path());
    let calls = Arc::clone(&disk.calls);
    drop(FileSink::on_disk(disk, None, grown, SinkOptions::default()).unwrap());
    let calls = calls.lock().unwrap();
    let at = calls.iter().position(|call| *call == format!("remove {first}")).unwrap();
    assert_eq!(calls[at - 2..at], ["sync", "sync directory "], "{calls:?}");
}

#[test]
fn a_bundle_takes_over_once_more_what_a_killed_one_was_taking_over() {
    let dest = tempfile::tempdir().unwrap();
    let mut first = source(vec![large("a"), large("b")]);
    let sink = bundle(dest.path(), &first.manifest().clone());
    leave(sink, &mut first, &[(0, 0), (0, 1), (1, 5)]);
    let [other] = &*journals(dest.path()) else { panic!("one journal") };
    let other = dest.path().join(other);
    let before = std::fs::read(&other).unwrap();
    let grown = Arc::new(tree(vec![large("a"), large("b"), large("c")]));
    drop(bundle(dest.path(), &grown));
    let [own] = &*journals(dest.path()) else { panic!("one journal") };
    let own = dest.path().join(own);
    let whole = std::fs::read(&own).unwrap();
    // It may have died with any part of the records written, the other journal still there.
    for written in [HEADER_LEN, whole.len() / 2, whole.len() - 1, whole.len()] {
        std::fs::write(&own, &whole[..written]).unwrap();
        std::fs::write(&other, &before).unwrap();
        assert_eq!(bundle(dest.path(), &grown).resumed_bytes(), 3 * BLOCK, "{written} bytes");
        assert_eq!(journals(dest.path()).len(), 1, "{written} bytes");
    }
}
