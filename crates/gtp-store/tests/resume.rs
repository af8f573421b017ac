//! Going on after a kill, and what is refused on the way.

mod common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use common::{
    Dice, contents, copy, dir, file, finish, missing, name, single, sink, transfer, tree,
};
use gtp_store::{
    Attributes, BLOCK, BlockSink, BlockSource, Destination, Durability, Existing, Fault, FileSink,
    Kind, MadeDir, Mode, Mtime, Pattern, Recheck, SinkError, SinkOptions, SyntheticSource, Written,
    new_framed,
};
use proptest::prelude::*;

fn object() -> SyntheticSource {
    let manifest = tree(vec![
        dir("d", 11),
        dir("d/empty", 12),
        file("d/big", 9 * BLOCK + 17, 13),
        file("d/exact", 2 * BLOCK, 14),
        file("nothing", 0, 15),
        file("one", BLOCK, 16),
        file("small-1", 1, 17),
        file("small-2", 4096, 18),
    ]);
    SyntheticSource::new(manifest, Pattern::Random { seed: 3 })
}

/// The content that a complete transfer must leave.
fn expected(source: &mut SyntheticSource) -> Vec<(String, Option<Vec<u8>>)> {
    let manifest = source.manifest().clone();
    let mut out = Vec::new();
    let mut framed = gtp_store::new_framed();
    for (number, entry) in manifest.entries.iter().enumerate() {
        let mut content = Vec::new();
        for block in 0..entry.size.div_ceil(BLOCK) {
            source.load_block(number as u32, block, &mut framed).unwrap();
            content.extend_from_slice(&framed[..framed.len() - 32]);
        }
        let is_file = entry.kind == gtp_store::Kind::File;
        out.push((format!("obj/{}", entry.path.as_str()), is_file.then_some(content)));
    }
    out.push(("obj".into(), None));
    out.sort();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn after_any_number_of_kills_only_the_missing_comes_again_and_the_bytes_are_the_same(
        seed in 1u64.., kills in 1usize..6,
    ) {
        let mut dice = Dice(seed);
        let mut source = object();
        let want = expected(&mut source);
        let dest = tempfile::tempdir().unwrap();
        let manifest = source.manifest().clone();
        let mut left = missing(&manifest, &gtp_store::DiscardSink::new(manifest.clone()));
        for _ in 0..kills {
            let mut killed = sink(dest.path(), &manifest).unwrap();
            prop_assert_eq!(missing(&manifest, &killed), left.clone(), "seed {}", seed);
            let mut order = left.clone();
            dice.shuffle(&mut order);
            order.truncate(dice.below(order.len() as u64 + 1) as usize);
            copy(&mut source, &mut killed, &order).unwrap();
            killed.checkpoint().unwrap();
            left.retain(|block| !order.contains(block));
            // What is written after the last checkpoint is what a kill may cost.
            let after = left[..left.len().min(dice.below(3) as usize)].to_vec();
            copy(&mut source, &mut killed, &after).unwrap();
            drop(killed);
        }
        let mut last = sink(dest.path(), &manifest).unwrap();
        transfer(&mut source, &mut last).unwrap();
        prop_assert_eq!(contents(dest.path()), want, "seed {}", seed);
    }
}

/// A sink for a bundle in a directory that is there.
fn bundle_sink(dest: &Path, manifest: &Arc<gtp_store::Manifest>) -> FileSink {
    let destination = Destination::into(dest, MadeDir::There).unwrap();
    FileSink::open(destination, manifest.clone(), SinkOptions::default()).unwrap()
}

/// The journals in a directory.
fn journals(dest: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dest).unwrap().map(|item| item.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.ends_with(".gtp-journal")).collect()
}

#[test]
fn a_bundle_goes_on_although_objects_have_come_to_it_and_no_other_journal_is_touched() {
    let dest = tempfile::tempdir().unwrap();
    let (large, more) = (|name: &str| file(name, 8 * BLOCK, 1), file("c", 3 * BLOCK, 2));
    let fill = Pattern::Random { seed: 5 };
    let mut first = SyntheticSource::new(tree(vec![large("a"), large("b")]), fill);
    let manifest = first.manifest().clone();
    let mut stopped = bundle_sink(dest.path(), &manifest);
    copy(&mut first, &mut stopped, &[(0, 0), (0, 1), (1, 0), (1, 5), (1, 6)]).unwrap();
    stopped.suspend().unwrap();
    drop(stopped);
    // Another bundle waits as well, which lacks something that the new one has.
    let others = tree(vec![large("a2"), large("z")]);
    let mut others = SyntheticSource::new(others, fill);
    let other_manifest = others.manifest().clone();
    let mut waits = bundle_sink(dest.path(), &other_manifest);
    copy(&mut others, &mut waits, &[(0, 0), (1, 0)]).unwrap();
    waits.suspend().unwrap();
    drop(waits);
    let grown = SyntheticSource::new(tree(vec![large("a"), large("a2"), large("b"), more]), fill);
    let manifest = grown.manifest().clone();
    let mut resumed = bundle_sink(dest.path(), &manifest);
    assert_eq!(resumed.resumed_bytes(), 5 * BLOCK);
    assert_eq!(journals(dest.path()).len(), 2, "its own, and the other bundle's");
    resumed.suspend().unwrap();
    drop(resumed);
    let again = bundle_sink(dest.path(), &manifest);
    assert_eq!(again.resumed_bytes(), 5 * BLOCK, "it is its own now");
    drop(again);
    assert_eq!(bundle_sink(dest.path(), &other_manifest).resumed_bytes(), 2 * BLOCK);
}

#[test]
fn what_was_alone_goes_on_as_a_part_of_a_bundle() {
    let dest = tempfile::tempdir().unwrap();
    let beneath = |as_name, manifest: &Arc<gtp_store::Manifest>| {
        let to = Destination::beneath(dest.path(), name(as_name), manifest.root_kind).unwrap();
        FileSink::open(to, manifest.clone(), SinkOptions::default()).unwrap()
    };
    let entry = |path: &str| file(path, 8 * BLOCK, 1_000);
    let same = Pattern::Random { seed: 6 };
    let mut alone = SyntheticSource::new(single("as it is called there", 8 * BLOCK), same);
    let mut stopped = beneath("f", &alone.manifest().clone());
    copy(&mut alone, &mut stopped, &[(0, 0), (0, 3)]).unwrap();
    stopped.suspend().unwrap();
    drop(stopped);
    let mut inside = SyntheticSource::new(tree(vec![entry("x")]), same);
    let mut stopped = beneath("t", &inside.manifest().clone());
    copy(&mut inside, &mut stopped, &[(0, 1)]).unwrap();
    stopped.suspend().unwrap();
    drop(stopped);
    let both = Arc::new(tree(vec![entry("f"), dir("t", 1), entry("t/x")]));
    assert_eq!(bundle_sink(dest.path(), &both).resumed_bytes(), 3 * BLOCK);
    assert_eq!(journals(dest.path()).len(), 1);
}

#[test]
fn an_orderly_end_names_what_is_whole_and_keeps_the_rest() {
    let (mut source, dest) = (object(), tempfile::tempdir().unwrap());
    let manifest = source.manifest().clone();
    let mut stopped = sink(dest.path(), &manifest).unwrap();
    copy(&mut source, &mut stopped, &[(1, 0), (6, 0), (7, 0)]).unwrap();
    stopped.finish_file(6, None).unwrap();
    stopped.suspend().unwrap();
    drop(stopped);
    assert!(dest.path().join("obj/small-1").exists());
    assert!(dest.path().join("obj/small-2.gtp-part").exists());
    assert!(dest.path().join("obj/d/big.gtp-part").exists());
    let resumed = sink(dest.path(), &manifest).unwrap();
    assert_eq!(resumed.resumed_bytes(), BLOCK + 4096);
    assert_eq!(resumed.have().len(), 3);
    assert!(resumed.is_kept(6), "it has its name");
    assert!(!resumed.is_kept(7), "whole, but nobody has vouched for it");
    assert!(!resumed.is_kept(1));
}

#[test]
fn a_transfer_that_brought_nothing_leaves_no_journal() {
    let (source, dest) = (object(), tempfile::tempdir().unwrap());
    let mut stopped = sink(dest.path(), source.manifest()).unwrap();
    assert!(dest.path().join("obj.gtp-journal").exists());
    stopped.suspend().unwrap();
    assert!(!dest.path().join("obj.gtp-journal").exists());
}

#[test]
fn a_tree_that_lacks_files_stays_private_and_its_resume_gives_it_its_modes() {
    use std::os::unix::fs::MetadataExt;
    let dest = tempfile::tempdir().unwrap();
    let entries = vec![dir("d", 1), file("d/a", 9, 1), file("d/b", 9, 1)];
    let mut source = SyntheticSource::new(tree(entries), Pattern::Random { seed: 4 });
    let manifest = source.manifest().clone();
    let mode = || dest.path().join("obj/d").metadata().unwrap().mode() & 0o777;
    let mut stopped = sink(dest.path(), &manifest).unwrap();
    copy(&mut source, &mut stopped, &[(1, 0)]).unwrap();
    stopped.finish_file(1, None).unwrap();
    stopped.suspend().unwrap();
    drop(stopped);
    assert!(dest.path().join("obj/d/a").exists());
    assert_eq!(mode(), 0o700);
    let mut resumed = sink(dest.path(), &manifest).unwrap();
    let rest = missing(&manifest, &resumed);
    copy(&mut source, &mut resumed, &rest).unwrap();
    finish(&mut source, &mut resumed).unwrap();
    assert_eq!(mode(), manifest.entries[0].mode.bits());
}

#[test]
fn journaled_blocks_whose_bytes_were_damaged_are_fetched_again() {
    use std::os::unix::fs::FileExt;
    let (mut source, dest) = (object(), tempfile::tempdir().unwrap());
    let manifest = source.manifest().clone();
    let mut killed = sink(dest.path(), &manifest).unwrap();
    copy(&mut source, &mut killed, &[(1, 0), (1, 1), (1, 9), (6, 0), (7, 0)]).unwrap();
    killed.checkpoint().unwrap();
    drop(killed);
    let damage = |path: &str, at: u64| {
        let path = dest.path().join("obj").join(path);
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(b"\x55\xaa\x55", at).unwrap();
    };
    damage("d/big.gtp-part", BLOCK + 5);
    damage("small-2.gtp-part", 9);
    std::fs::remove_file(dest.path().join("obj/small-1.gtp-part")).unwrap();
    let mut resumed = sink(dest.path(), &manifest).unwrap();
    let have: Vec<_> = resumed.have().iter().map(|h| (h.file, h.blocks.clone())).collect();
    assert_eq!(have, [(1, 0..1), (1, 9..10)]);
    transfer(&mut source, &mut resumed).unwrap();
    assert_eq!(contents(dest.path()), expected(&mut source));
}

#[test]
fn a_damaged_block_of_zeros_is_zeros_again() {
    use std::os::unix::fs::FileExt;
    let dest = tempfile::tempdir().unwrap();
    let mut source = SyntheticSource::new(single("z", 4 * BLOCK), Pattern::Zeros);
    let manifest = source.manifest().clone();
    let mut killed = sink(dest.path(), &manifest).unwrap();
    copy(&mut source, &mut killed, &[(0, 0), (0, 1)]).unwrap();
    killed.checkpoint().unwrap();
    drop(killed);
    let part = std::fs::File::options().write(true).open(dest.path().join("obj.gtp-part")).unwrap();
    part.write_all_at(&[7; 3 * BLOCK as usize], BLOCK).unwrap();
    drop(part);
    let mut resumed = sink(dest.path(), &manifest).unwrap();
    transfer(&mut source, &mut resumed).unwrap();
    assert!(std::fs::read(dest.path().join("obj")).unwrap().iter().all(|&b| b == 0));
}

#[test]
fn a_changed_listing_starts_that_file_afresh_and_destroys_nothing_before_its_first_block() {
    let dest = tempfile::tempdir().unwrap();
    let old = tree(vec![file("a", 3 * BLOCK, 1), file("b", 3 * BLOCK, 1), file("gone", 1, 1)]);
    let mut source = SyntheticSource::new(old.clone(), Pattern::Random { seed: 1 });
    let mut killed = sink(dest.path(), source.manifest()).unwrap();
    copy(&mut source, &mut killed, &[(0, 1), (1, 1), (2, 0)]).unwrap();
    killed.checkpoint().unwrap();
    drop(killed);
    let new = tree(vec![file("a", 3 * BLOCK, 1), file("b", 2 * BLOCK, 2)]);
    let mut source_of_new = SyntheticSource::new(new, Pattern::Random { seed: 1 });
    let sink_of_new = sink(dest.path(), source_of_new.manifest()).unwrap();
    assert_eq!(sink_of_new.restarted(), &[name("b")].into());
    assert_eq!(sink_of_new.have().len(), 1);
    drop(sink_of_new);
    let sink_of_old = sink(dest.path(), source.manifest()).unwrap();
    assert_eq!(sink_of_old.have().len(), 3, "the old version is still there");
    drop(sink_of_old);
    let mut sink_of_new = sink(dest.path(), source_of_new.manifest()).unwrap();
    transfer(&mut source_of_new, &mut sink_of_new).unwrap();
    let names: Vec<_> = contents(dest.path()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, ["obj", "obj/a", "obj/b"]);
}

#[test]
fn a_version_that_was_begun_and_left_again_takes_nothing_from_the_other() {
    let dest = tempfile::tempdir().unwrap();
    let versions = [1, 2, 1, 2].map(|secs| {
        SyntheticSource::new(
            tree(vec![file("a", 3 * BLOCK, secs)]),
            Pattern::Random { seed: secs as u64 },
        )
    });
    for (mut version, block) in versions.into_iter().zip([0, 1, 2, 0]) {
        let mut killed = sink(dest.path(), version.manifest()).unwrap();
        assert!(killed.have().is_empty(), "the other version took its place");
        copy(&mut version, &mut killed, &[(0, block)]).unwrap();
        killed.checkpoint().unwrap();
    }
}

#[test]
fn a_wrong_root_drops_the_file_and_a_retry_fetches_all_of_it() {
    let (mut source, dest) = (object(), tempfile::tempdir().unwrap());
    let manifest = source.manifest().clone();
    let mut there = sink(dest.path(), &manifest).unwrap();
    copy(&mut source, &mut there, &[(3, 0), (3, 1)]).unwrap();
    there.checkpoint().unwrap();
    let wrong = there.finish_file(3, Some([1; 32]));
    assert!(matches!(wrong, Err(SinkError::RootMismatch { .. })));
    assert!(!dest.path().join("obj/d/exact").exists());
    let incomplete = there.finish_file(3, None);
    assert!(matches!(incomplete, Err(SinkError::Incomplete { missing: 2, .. })));
    copy(&mut source, &mut there, &[(3, 0), (3, 1)]).unwrap();
    transfer_rest(&mut source, &mut there, &[(3, 0), (3, 1)]);
    assert_eq!(contents(dest.path()), expected(&mut source));
}

fn transfer_rest(source: &mut SyntheticSource, there: &mut FileSink, done: &[(u32, u64)]) {
    let mut rest = missing(&source.manifest().clone(), there);
    rest.retain(|block| !done.contains(block));
    copy(source, there, &rest).unwrap();
    finish(source, there).unwrap();
}

#[test]
fn bad_blocks_wrong_lengths_and_blocks_that_do_not_exist_leave_no_trace() {
    let (mut source, dest) = (object(), tempfile::tempdir().unwrap());
    let mut there = sink(dest.path(), source.manifest()).unwrap();
    let mut framed = gtp_store::new_framed();
    source.load_block(1, 3, &mut framed).unwrap();
    assert_eq!(there.write_block(1, 4, &framed).unwrap(), Written::Bad);
    assert_eq!(there.write_block(1, 9, &framed).unwrap(), Written::Bad);
    assert_eq!(there.write_block(1, 3, &framed[1..]).unwrap(), Written::Bad);
    assert_eq!(there.write_block(1, 3, &[]).unwrap(), Written::Bad);
    assert!(matches!(there.write_block(1, 10, &framed), Err(SinkError::NotWanted { .. })));
    assert!(matches!(there.write_block(0, 0, &framed), Err(SinkError::NotWanted { .. })));
    assert!(matches!(there.write_block(99, 0, &framed), Err(SinkError::NotWanted { .. })));
    assert!(!dest.path().join("obj/d/big.gtp-part").exists());
    assert_eq!(there.write_block(1, 3, &framed).unwrap(), Written::Good);
    assert_eq!(there.write_block(1, 3, &framed[1..]).unwrap(), Written::Duplicate);
}

#[test]
fn two_transfers_never_share_a_destination() {
    let (source, dest) = (object(), tempfile::tempdir().unwrap());
    let first = sink(dest.path(), source.manifest()).unwrap();
    let second = sink(dest.path(), source.manifest()).unwrap_err();
    assert_eq!(second.fault(), Some(Fault::InUse));
    drop(first);
    assert!(sink(dest.path(), source.manifest()).is_ok());
}

#[test]
fn transfers_whose_destinations_overlap_end_in_an_error_and_not_in_a_mixed_file() {
    let dest = tempfile::tempdir().unwrap();
    let mut tree_source =
        SyntheticSource::new(tree(vec![file("a", 2 * BLOCK, 1)]), Pattern::Random { seed: 1 });
    let mut one_source = SyntheticSource::new(single("a", 9), Pattern::Random { seed: 2 });
    let mut whole = sink(dest.path(), tree_source.manifest()).unwrap();
    copy(&mut tree_source, &mut whole, &[(0, 0)]).unwrap();
    let inside = dest.path().join("obj");
    let at = |p: &Path| Destination::beneath(p, name("a"), gtp_store::RootKind::File).unwrap();
    let options = SinkOptions::default();
    let mut one = FileSink::open(at(&inside), one_source.manifest().clone(), options).unwrap();
    let blocked = copy(&mut one_source, &mut one, &[(0, 0)]).unwrap_err();
    assert_eq!(blocked.fault(), Some(Fault::InUse));
    copy(&mut tree_source, &mut whole, &[(0, 1)]).unwrap();
    finish(&mut tree_source, &mut whole).unwrap();
    assert_eq!(inside.join("a").metadata().unwrap().len(), 2 * BLOCK);
}

/// Who planted what, and what must be said. `X` is a file outside of the destination.
/// What a destination has against a transfer, or first against an entry of it.
fn fault_at(dest: &Path, source: &mut SyntheticSource) -> Option<Fault> {
    let manifest = source.manifest().clone();
    let mut sink = match sink(dest, &manifest) {
        Ok(sink) => sink,
        Err(error) => return error.fault(),
    };
    let mut refused = sink.take_refused();
    let mut framed = new_framed();
    for (file, block) in missing(&manifest, &sink) {
        source.load_block(file, block, &mut framed).unwrap();
        if let Err(error) = sink.write_block(file, block, &framed) {
            return error.fault();
        }
    }
    for file in 0..manifest.entries.len() as u32 {
        sink.finish_file(file, None).unwrap();
    }
    let finished = sink.finish().unwrap();
    refused.extend(sink.take_refused());
    let files = |file: u32| manifest.entries[file as usize].kind == Kind::File;
    let left_out = refused.iter().filter(|one| files(one.file)).count() as u64;
    assert_eq!(finished.files_written + left_out, manifest.files());
    refused.first().and_then(|one| one.error.fault())
}

#[test]
fn links_planted_anywhere_in_the_destination_are_refused_and_nothing_outside_changes() {
    for (plant, fault) in [
        ("obj/d/big", Fault::Link),
        ("obj/d", Fault::Link),
        ("obj", Fault::Link),
        ("obj/d/big.gtp-part", Fault::Foreign),
        ("obj/small-1.gtp-part", Fault::Foreign),
        ("obj.gtp-journal", Fault::Foreign),
    ] {
        for target in ["outside-file", "outside-dir", "dangling"] {
            let world = tempfile::tempdir().unwrap();
            let dest = world.path().join("dest");
            std::fs::create_dir_all(dest.join("obj/d")).unwrap();
            std::fs::write(world.path().join("outside-file"), b"untouched").unwrap();
            std::fs::create_dir(world.path().join("outside-dir")).unwrap();
            if plant == "obj" || plant == "obj/d" {
                std::fs::remove_dir_all(dest.join(plant)).unwrap();
            }
            symlink(world.path().join(target), dest.join(plant)).unwrap();
            let refused = fault_at(&dest, &mut object());
            assert_eq!(refused, Some(fault), "{plant} -> {target}");
            let outside = std::fs::read(world.path().join("outside-file")).unwrap();
            assert_eq!(outside, b"untouched");
            assert_eq!(world.path().join("outside-dir").read_dir().unwrap().count(), 0);
            assert!(!world.path().join("dangling").exists());
        }
    }
}

#[test]
fn hard_links_and_strange_files_under_our_names_are_left_alone() {
    for plant in ["obj.gtp-part", "obj.gtp-journal"] {
        let dest = tempfile::tempdir().unwrap();
        let precious = dest.path().join("precious");
        std::fs::write(&precious, b"mine").unwrap();
        std::fs::hard_link(&precious, dest.path().join(plant)).unwrap();
        let mut source = SyntheticSource::new(single("x", 5), Pattern::Zeros);
        let error = sink(dest.path(), source.manifest())
            .and_then(|mut sink| transfer(&mut source, &mut sink))
            .unwrap_err();
        assert_eq!(error.fault(), Some(Fault::Foreign), "{plant}");
        assert_eq!(std::fs::read(&precious).unwrap(), b"mine");
    }
    let dest = tempfile::tempdir().unwrap();
    std::fs::write(dest.path().join("obj.gtp-journal"), b"a diary of somebody else").unwrap();
    let source = SyntheticSource::new(single("x", 5), Pattern::Zeros);
    let error = sink(dest.path(), source.manifest()).unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Foreign));
}

#[test]
fn directories_and_devices_in_the_way_are_not_replaced() {
    let source = || SyntheticSource::new(single("x", 5), Pattern::Zeros);
    // In a tree of several files one may be left out; a tree of one file is that file's transfer.
    let manifest = Arc::new(tree(vec![file("x", 5, 1), file("y", 5, 1)]));
    let alone = Arc::new(tree(vec![file("x", 5, 1)]));
    let dest = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dest.path().join("obj/x")).unwrap();
    let fault = |result: Result<FileSink, SinkError>| result.unwrap_err().fault();
    let refused = |result: Result<FileSink, SinkError>| {
        let all = result.unwrap().take_refused();
        all.first().and_then(|one| one.error.fault())
    };
    assert_eq!(refused(sink(dest.path(), &manifest)), Some(Fault::IsADirectory));
    assert_eq!(fault(sink(dest.path(), &alone)), Some(Fault::IsADirectory));
    std::fs::remove_dir(dest.path().join("obj/x")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dest.path().join("obj/x")).unwrap();
    assert_eq!(refused(sink(dest.path(), &manifest)), Some(Fault::Special));
    let device =
        Destination::beneath("/dev".as_ref(), name("null"), gtp_store::RootKind::File).unwrap();
    let options = SinkOptions::default();
    let refused = FileSink::open(device, source().manifest().clone(), options);
    assert_eq!(fault(refused), Some(Fault::Special));
    assert!(!Path::new("/dev/null.gtp-journal").exists());
    let plain = tempfile::tempdir().unwrap();
    std::fs::write(plain.path().join("obj"), b"a file").unwrap();
    assert_eq!(fault(sink(plain.path(), &manifest)), Some(Fault::NotADirectory));
}

#[test]
fn an_existing_file_is_replaced_whole_kept_when_unchanged_and_fetched_when_asked() {
    let dest = tempfile::tempdir().unwrap();
    let path = dest.path().join("obj");
    std::fs::write(&path, b"an older and longer file").unwrap();
    let mut source = SyntheticSource::new(single("x", 5), Pattern::Zeros);
    let mut first = sink(dest.path(), source.manifest()).unwrap();
    copy(&mut source, &mut first, &[(0, 0)]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"an older and longer file");
    assert!(finish(&mut source, &mut first).unwrap().root.is_some());
    assert_eq!(std::fs::read(&path).unwrap(), [0; 5]);
    let unchanged = sink(dest.path(), source.manifest()).unwrap();
    assert_eq!(unchanged.have().len(), 1);
    drop(unchanged);
    let object = name("obj");
    let options = SinkOptions { existing: Existing::Replace, durability: Durability::System };
    let kind = gtp_store::RootKind::File;
    let there = Destination::beneath(dest.path(), object, kind).unwrap();
    let mut forced = FileSink::open(there, source.manifest().clone(), options).unwrap();
    assert!(forced.have().is_empty());
    assert_eq!(transfer(&mut source, &mut forced).unwrap().files_written, 1);
}

#[test]
fn a_file_with_the_right_size_and_time_is_kept_only_with_the_right_hash_if_one_is_given() {
    let dest = tempfile::tempdir().unwrap();
    let mut source = SyntheticSource::new(single("x", 2 * BLOCK + 9), Pattern::Random { seed: 5 });
    let mut first = sink(dest.path(), source.manifest()).unwrap();
    let root = transfer(&mut source, &mut first).unwrap().root.unwrap();
    drop(first);
    for (value, kept) in [(root, true), ([9; 32], false)] {
        let existing = Existing::SkipIf(value);
        let options = SinkOptions { existing, durability: Durability::System };
        let object = name("obj");
        let kind = gtp_store::RootKind::File;
        let there = Destination::beneath(dest.path(), object, kind).unwrap();
        let again = FileSink::open(there, source.manifest().clone(), options).unwrap();
        assert_eq!((again.is_kept(0), again.have().is_empty()), (kept, !kept));
    }
}

#[test]
fn a_kept_file_is_compared_with_the_root_that_is_expected_of_it_and_left_as_it_is() {
    let dest = tempfile::tempdir().unwrap();
    let mut source = SyntheticSource::new(single("x", 2 * BLOCK + 9), Pattern::Random { seed: 5 });
    let mut first = sink(dest.path(), source.manifest()).unwrap();
    let root = transfer(&mut source, &mut first).unwrap().root.unwrap();
    drop(first);
    let path = dest.path().join("obj");
    let before = std::fs::read(&path).unwrap();
    let mut again = sink(dest.path(), source.manifest()).unwrap();
    assert!(again.is_kept(0));
    match again.finish_file(0, Some([9; 32])) {
        Err(SinkError::RootMismatch { expected, got, .. }) => {
            assert_eq!((expected, got), ([9; 32], root));
        }
        other => panic!("{other:?}"),
    }
    assert!(std::fs::read(&path).unwrap() == before, "it is the user's file");
    assert_eq!(again.finish_file(0, Some(root)).unwrap(), None);
    assert_eq!(again.finish_file(0, None).unwrap(), None);
}

#[test]
fn what_an_earlier_transfer_left_is_counted_as_it_is_read_again_and_reading_can_be_stopped() {
    let dest = tempfile::tempdir().unwrap();
    let mut source = SyntheticSource::new(single("x", 5 * BLOCK), Pattern::Random { seed: 5 });
    let mut first = sink(dest.path(), source.manifest()).unwrap();
    copy(&mut source, &mut first, &[(0, 0), (0, 3), (0, 4)]).unwrap();
    first.suspend().unwrap();
    drop(first);
    let open = |recheck: &Arc<Recheck>| {
        let kind = gtp_store::RootKind::File;
        let there = Destination::beneath(dest.path(), name("obj"), kind).unwrap();
        let (manifest, options) = (source.manifest().clone(), SinkOptions::default());
        FileSink::open_watched(there, manifest, options, Arc::clone(recheck))
    };
    let stopped = Arc::new(Recheck::default());
    stopped.stop();
    assert!(matches!(open(&stopped), Err(SinkError::Stopped)));
    assert_eq!(stopped.bytes(), 0);
    let recheck = Arc::new(Recheck::default());
    assert_eq!(open(&recheck).unwrap().resumed_bytes(), 3 * BLOCK);
    assert_eq!(recheck.bytes(), 3 * BLOCK);
}

#[test]
fn a_resume_of_which_every_file_has_changed_can_be_stopped() {
    let dest = tempfile::tempdir().unwrap();
    let old = SyntheticSource::new(tree(vec![file("a", 2 * BLOCK, 1)]), Pattern::Zeros);
    let new = SyntheticSource::new(tree(vec![file("a", 2 * BLOCK, 2)]), Pattern::Zeros);
    let mut source = old;
    let mut killed = sink(dest.path(), source.manifest()).unwrap();
    copy(&mut source, &mut killed, &[(0, 0)]).unwrap();
    killed.checkpoint().unwrap();
    drop(killed);
    let stopped = Arc::new(Recheck::default());
    stopped.stop();
    let there = Destination::beneath(dest.path(), name("obj"), gtp_store::RootKind::Dir).unwrap();
    let options = SinkOptions::default();
    let opened = FileSink::open_watched(there, new.manifest().clone(), options, stopped);
    assert!(matches!(opened, Err(SinkError::Stopped)));
}

#[test]
fn a_file_that_lies_about_its_size_is_refused_when_the_disk_cannot_have_it() {
    let dest = tempfile::tempdir().unwrap();
    let mut source = SyntheticSource::new(single("x", i64::MAX as u64), Pattern::Zeros);
    let mut there = sink(dest.path(), source.manifest()).unwrap();
    assert!(copy(&mut source, &mut there, &[(0, 0)]).is_err());
    assert!(!dest.path().join("obj.gtp-part").exists());
}

#[test]
fn names_as_long_as_a_name_can_be_have_parts_and_journals() {
    let dest = tempfile::tempdir().unwrap();
    let long = "n".repeat(255);
    let manifest = tree(vec![file(&long, 3 * BLOCK, 1)]);
    let mut source = SyntheticSource::new(manifest, Pattern::Random { seed: 1 });
    let manifest = source.manifest().clone();
    let open = || {
        let there = Destination::beneath(dest.path(), name(&long), gtp_store::RootKind::Dir);
        FileSink::open(there.unwrap(), manifest.clone(), SinkOptions::default()).unwrap()
    };
    let mut killed = open();
    copy(&mut source, &mut killed, &[(0, 2)]).unwrap();
    killed.checkpoint().unwrap();
    drop(killed);
    let mut resumed = open();
    assert_eq!(resumed.have().len(), 1);
    transfer(&mut source, &mut resumed).unwrap();
    assert_eq!(contents(dest.path()).len(), 2);
}

#[test]
fn directories_get_mode_and_time_of_the_source_also_when_the_first_attempt_was_killed() {
    use std::os::unix::fs::MetadataExt;
    for killed_first in [false, true] {
        let dest = tempfile::tempdir().unwrap();
        let mut listed = tree(vec![dir("d", 7), file("d/big", 2 * BLOCK, 1), dir("e", 8)]);
        let own = Attributes { mode: Mode::new(0o710), mtime: Mtime::new(9, 5).unwrap() };
        listed.own = Some(own);
        let at = |path: &str| dest.path().join("obj").join(path);
        let mut source = SyntheticSource::new(listed, Pattern::Random { seed: 4 });
        if killed_first {
            let mut killed = sink(dest.path(), source.manifest()).unwrap();
            copy(&mut source, &mut killed, &[(1, 0)]).unwrap();
            drop(killed);
            assert_eq!(at("").metadata().unwrap().mode() & 0o777, 0o700, "private until whole");
        }
        let mut there = sink(dest.path(), source.manifest()).unwrap();
        transfer(&mut source, &mut there).unwrap();
        for (path, mode, time) in [("", 0o710, 9), ("d", 0o750, 7), ("e", 0o750, 8)] {
            let found = at(path).metadata().unwrap();
            assert_eq!((found.mode() & 0o777, found.mtime()), (mode, time), "{path}");
        }
    }
}

#[test]
fn a_directory_that_was_there_keeps_its_mode() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dest = tempfile::tempdir().unwrap();
    let theirs = dest.path().join("obj/d");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o700)).unwrap();
    let mut source =
        SyntheticSource::new(tree(vec![dir("d", 7), file("d/x", 5, 1)]), Pattern::Zeros);
    let mut there = sink(dest.path(), source.manifest()).unwrap();
    transfer(&mut source, &mut there).unwrap();
    let found = theirs.metadata().unwrap();
    assert_eq!((found.mode() & 0o777, found.mtime()), (0o700, 7));
}

#[test]
fn bundles_into_one_directory_go_side_by_side_and_one_bundle_excludes_itself() {
    let dest = tempfile::tempdir().unwrap();
    let bundle = |names: &[&str]| {
        let entries = names.iter().map(|name| file(name, 2 * BLOCK, 1)).collect();
        SyntheticSource::new(tree(entries), Pattern::Random { seed: 3 })
    };
    let open = |source: &SyntheticSource| {
        let into = Destination::into(dest.path(), MadeDir::There).unwrap();
        FileSink::open(into, source.manifest().clone(), SinkOptions::default())
    };
    let mut sources = [bundle(&["a"]), bundle(&["b"]), bundle(&["c", "d"]), bundle(&["c", "e"])];
    let mut sinks: Vec<_> = sources.iter().map(|source| open(source).unwrap()).collect();
    for source in &sources {
        let refused = open(source).unwrap_err();
        assert_eq!(refused.fault(), Some(Fault::InUse), "{refused}");
    }
    for at in 0..3 {
        transfer(&mut sources[at], &mut sinks[at]).unwrap();
    }
    drop(sinks);
    let left = std::fs::read_dir(dest.path()).unwrap().count();
    assert_eq!(left, 5, "four files, and the journal of the last");
}

#[test]
fn unfinished_transfers_in_one_directory_are_bounded() {
    let dest = tempfile::tempdir().unwrap();
    for number in 0..1_000 {
        std::fs::write(dest.path().join(format!("{number}.gtp-journal")), b"").unwrap();
    }
    let source = SyntheticSource::new(single("x", 5), Pattern::Zeros);
    let refused = sink(dest.path(), source.manifest()).unwrap_err().to_string();
    assert!(refused.contains("unfinished transfers"), "{refused}");
    std::fs::rename(dest.path().join("7.gtp-journal"), dest.path().join("obj.gtp-journal"))
        .unwrap();
    assert!(sink(dest.path(), source.manifest()).is_ok(), "one of them goes on");
}
