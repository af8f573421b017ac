//! Listing and reading what a host offers.

mod common;

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use common::{Dice, contents, name, sink, source, transfer};
use gtp_store::{
    BLOCK, BlockCheck, BlockSource, Export, FileSource, Kind, RootKind, SkipReason, SourceError,
    TRAILER, check_block,
};

#[test]
fn a_tree_is_listed_in_order_and_what_cannot_travel_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    std::fs::create_dir_all(at("b/deep")).unwrap();
    std::fs::write(at("b/deep/x"), b"xx").unwrap();
    std::fs::write(at("b-file"), b"").unwrap();
    std::fs::write(at("a"), b"a").unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    symlink("/etc", at("b/linkdir")).unwrap();
    std::fs::write(at("evil\n"), b"").unwrap();
    std::fs::write(at("x.gtp-part"), b"").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
    let paths: Vec<&str> = scanned.manifest.entries.iter().map(|e| e.path.as_str()).collect();
    assert_eq!(paths, ["a", "b", "b-file", "b/deep", "b/deep/x"]);
    assert_eq!(scanned.manifest.validate(), Ok(()));
    let mut skipped: Vec<_> = scanned.skipped.iter().map(|s| s.shown()).collect();
    skipped.sort_unstable();
    assert_eq!(skipped, ["b/linkdir", "evil\\n", "link", "socket", "x.gtp-part"]);
    assert!(scanned.skipped.iter().any(|s| s.why == SkipReason::Link));
    assert_eq!(scanned.skipped_total, 5);
}

#[test]
fn chosen_names_and_what_is_beneath_them_are_listed_as_a_bundle_and_parts_are_as_ever() {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    std::fs::create_dir_all(at("d/b")).unwrap();
    for name in ["a", "b", "c", "d/a", "d/b/x"] {
        std::fs::write(at(name), b"a").unwrap();
    }
    let chosen = ["a", "d", "none"].map(str::to_owned).into_iter().collect();
    let export = Export::open(dir.path()).unwrap().choosing(std::sync::Arc::new(chosen));
    let listed = |at: Option<&str>| {
        let scanned = export.scan(at.map(name).as_ref()).unwrap();
        let paths = scanned.manifest.entries.iter().map(|e| e.path.as_str().to_owned());
        (paths.collect::<Vec<_>>(), scanned.manifest.own.is_some(), scanned.skipped_total)
    };
    let paths = |all: &[&str]| all.iter().map(|path| path.to_string()).collect::<Vec<_>>();
    assert_eq!(listed(None), (paths(&["a", "d", "d/a", "d/b", "d/b/x"]), false, 0));
    assert_eq!(listed(Some("d")), (paths(&["a", "b", "b/x"]), true, 0));
}

#[test]
fn a_directory_of_links_is_left_as_soon_as_nobody_wants_its_listing() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..9 {
        symlink("nowhere", dir.path().join(n.to_string())).unwrap();
    }
    let mut asked = Vec::new();
    let export = Export::open(dir.path()).unwrap();
    let scanned = export.scan_like(None, None, usize::MAX, &mut |path| {
        asked.push(path);
        asked.len() < 3
    });
    assert!(matches!(scanned, Err(SourceError::NoRoom)));
    // The third question is about the first link's name, which the listing would keep.
    assert_eq!(asked, [0, 0, 1]);
}

#[test]
fn parts_of_an_export_are_objects_and_links_in_their_paths_are_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("d/e")).unwrap();
    std::fs::write(dir.path().join("d/e/f"), b"hello").unwrap();
    symlink("d", dir.path().join("l")).unwrap();
    symlink("d/e/f", dir.path().join("lf")).unwrap();
    let export = Export::open(dir.path()).unwrap();
    let one = export.scan(Some(&name("d/e/f"))).unwrap();
    assert_eq!(one.manifest.root_kind, RootKind::File);
    assert_eq!(one.manifest.entries[0].path, name("f"));
    let mut framed = gtp_store::new_framed();
    FileSource::new(one).load_block(0, 0, &mut framed).unwrap();
    assert_eq!(&framed[..5], b"hello");
    let list = export.list(Some(&name("d"))).unwrap();
    assert_eq!(list.manifest.entries.len(), 1);
    assert_eq!(list.manifest.entries[0].kind, Kind::Dir);
    for gone in ["l/e/f", "d/e/f/g", "nothing"] {
        let error = export.scan(Some(&name(gone))).unwrap_err();
        assert!(matches!(error, SourceError::Missing { .. }), "{gone}: {error}");
    }
    for link in ["l", "lf"] {
        let error = export.scan(Some(&name(link))).unwrap_err();
        assert!(matches!(error, SourceError::Link { .. }), "{link}: {error}");
    }
}

#[test]
fn an_exported_file_offers_itself_and_not_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("open"), b"o").unwrap();
    std::fs::write(dir.path().join("secret"), b"s").unwrap();
    let export = Export::open(&dir.path().join("open")).unwrap();
    assert_eq!(export.kind(), RootKind::File);
    assert_eq!(export.scan(None).unwrap().manifest.entries[0].path, name("open"));
    assert!(export.scan(Some(&name("open"))).is_ok());
    assert!(matches!(export.scan(Some(&name("secret"))), Err(SourceError::Missing { .. })));
    assert!(matches!(Export::open(&dir.path().join("no")), Err(SourceError::Missing { .. })));
    assert!(matches!(Export::open("/dev/null".as_ref()), Err(SourceError::Special { .. })));
}

/// Each way in which a file can stop being the one that was listed.
#[test]
fn a_file_that_is_written_cut_replaced_or_removed_is_reported_as_changed_unless_it_is_open() {
    type Change = fn(&std::path::Path);
    let later = |p: &std::path::Path| {
        let file = std::fs::File::options().write(true).open(p).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(77)).unwrap();
    };
    let changes: [(&str, Change); 4] = [
        ("written", |p| {
            let file = std::fs::File::options().write(true).open(p).unwrap();
            file.write_all_at(b"zz", 5).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(99)).unwrap();
        }),
        ("cut", |p| std::fs::File::options().write(true).open(p).unwrap().set_len(9).unwrap()),
        ("replaced", |p| {
            std::fs::write(p.with_extension("new"), vec![1; 3 * BLOCK as usize]).unwrap();
            std::fs::rename(p.with_extension("new"), p).unwrap();
        }),
        ("removed", |p| std::fs::remove_file(p).unwrap()),
    ];
    for (what, change) in changes {
        for opened_before in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            std::fs::write(&path, vec![1; 3 * BLOCK as usize]).unwrap();
            later(&path);
            let mut source = source(&path);
            let mut framed = gtp_store::new_framed();
            for block in 0..opened_before {
                source.load_block(0, block, &mut framed).unwrap();
            }
            change(&path);
            if opened_before == 1 && ["replaced", "removed"].contains(&what) {
                // What was listed is still there for who has it open.
                source.load_block(0, 1, &mut framed).unwrap();
                let whole = *blake3::hash(&vec![1; 3 * BLOCK as usize]).as_bytes();
                assert_eq!(source.file_root(0).unwrap(), whole, "{what}");
                assert!(source.take_remarks().is_empty());
                continue;
            }
            match source.load_block(0, 1, &mut framed) {
                Err(SourceError::Changed { path }) => assert_eq!(path, name("f")),
                other => panic!("{what}, {opened_before} blocks read before: {other:?}"),
            }
            assert!(source.file_root(0).is_err(), "{what}");
        }
    }
}

#[test]
fn a_file_that_only_grows_is_given_as_listed_and_one_that_is_rewritten_meanwhile_is_not() {
    for rewritten in [false, true] {
        for blocks in [1, 3] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let listed = vec![1; (blocks * BLOCK) as usize];
            std::fs::write(&path, &listed).unwrap();
            let mut source = source(&path);
            let mut framed = gtp_store::new_framed();
            source.load_block(0, 0, &mut framed).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"more", listed.len() as u64).unwrap();
            if rewritten {
                file.write_all_at(b"other", 7).unwrap();
            }
            for block in 1..blocks {
                source.load_block(0, block, &mut framed).unwrap();
            }
            let root = source.file_root(0);
            if rewritten {
                assert!(matches!(root, Err(SourceError::Changed { .. })), "{root:?}");
            } else {
                assert_eq!(root.unwrap(), *blake3::hash(&listed).as_bytes());
                let remarks = source.take_remarks();
                assert!(matches!(remarks[..], [(0, SourceError::Grew { .. })]), "{remarks:?}");
            }
        }
    }
}

#[test]
fn the_root_of_a_file_that_grows_comes_to_an_end_however_often_it_is_put_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let listed = vec![1; 9 * BLOCK as usize];
    std::fs::write(&path, &listed).unwrap();
    let mut source = source(&path);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"more", listed.len() as u64).unwrap();
    // Two blocks at a time: nine that are read, and all of them once more since it has grown.
    let mut tries = 0;
    let root = loop {
        tries += 1;
        let looks = std::cell::Cell::new(0);
        let wanted = || looks.replace(looks.get() + 1) < 2;
        match source.file_root_while(0, &wanted) {
            Err(SourceError::Unwanted) => assert!(tries < 9, "no block is read three times"),
            root => break root.unwrap(),
        }
    };
    assert_eq!((root, tries), (*blake3::hash(&listed).as_bytes(), 9));
}

#[test]
fn blocks_of_any_length_are_loaded_to_where_a_cache_line_begins() {
    let dir = tempfile::tempdir().unwrap();
    let mut framed = gtp_store::new_framed();
    for size in [1, 5_000, BLOCK as usize - 1, 700, BLOCK as usize] {
        let path = dir.path().join(size.to_string());
        std::fs::write(&path, vec![7; size]).unwrap();
        source(&path).load_block(0, 0, &mut framed).unwrap();
        assert_eq!(framed.len(), size + TRAILER);
        assert_eq!(framed.as_ptr().align_offset(64), 0, "{size}");
    }
}

#[test]
fn a_hundred_gigabytes_of_hole_give_their_first_and_last_block_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    let size = 100_000_000_000;
    file.set_len(size).unwrap();
    file.write_all_at(b"an island", 50_000_000_000).unwrap();
    let mut source = source(&path);
    let mut framed = gtp_store::new_framed();
    let last = (size - 1) / BLOCK;
    for block in [0, last, 50_000_000_000 / BLOCK] {
        source.load_block(0, block, &mut framed).unwrap();
        assert!(matches!(check_block(size, block, &framed), BlockCheck::Good(_)));
    }
    let island = 50_000_000_000 % BLOCK as usize;
    assert_eq!(&framed[island..island + 9], b"an island");
}

#[test]
fn a_tree_arrives_with_content_modes_times_empty_files_and_empty_directories() {
    use std::os::unix::fs::MetadataExt;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |p: &str| from.path().join(p);
    std::fs::create_dir_all(at("d/empty")).unwrap();
    std::fs::write(at("d/big"), (0..700_000u32).map(|i| i as u8).collect::<Vec<_>>()).unwrap();
    std::fs::write(at("d/small"), b"small").unwrap();
    std::fs::write(at("nothing"), b"").unwrap();
    for (path, mode) in [("d/big", 0o444), ("d/small", 0o4755), ("d/empty", 0o555), ("d", 0o711)] {
        let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        std::fs::File::open(at(path)).unwrap().set_modified(old).unwrap();
        std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
    }
    let mut source = source(from.path());
    let dest = to.path().join("obj");
    let mut there = sink(to.path(), source.manifest()).unwrap();
    let done = transfer(&mut source, &mut there).unwrap();
    assert_eq!((done.files_written, done.files_unchanged), (3, 0));
    assert_eq!(contents(&dest), contents(from.path()));
    assert_eq!(contents(to.path()).len(), 6, "no part file and no journal is left");
    for path in ["d/big", "d/small", "d/empty", "d", "nothing"] {
        let (a, b) = (at(path).metadata().unwrap(), dest.join(path).metadata().unwrap());
        assert_eq!(a.mode() & 0o777, b.mode() & 0o7777, "{path}: set-user bits do not travel");
        assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{path}");
    }
    let mut again = sink(to.path(), source.manifest()).unwrap();
    assert!(common::missing(&source.manifest().clone(), &again).is_empty());
    assert_eq!(transfer(&mut source, &mut again).unwrap().files_unchanged, 3);
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(100 * BLOCK + 1).unwrap();
    file.write_all_at(b"an island", 50 * BLOCK).unwrap();
    let mut source = source(&path);
    let dest = to.path().join("obj");
    let mut there = sink(to.path(), source.manifest()).unwrap();
    transfer(&mut source, &mut there).unwrap();
    assert_eq!(std::fs::read(&dest).unwrap(), std::fs::read(&path).unwrap());
    assert!(dest.metadata().unwrap().blocks() * 512 <= 2 * BLOCK);
}

/// A file that somebody else writes: each write makes a content that existed.
struct Written {
    file: std::fs::File,
    contents: Vec<Vec<u8>>,
    dice: Dice,
}

impl Written {
    fn write(&mut self, at: u64, len: u64) {
        let fill: Vec<u8> = (0..len).map(|_| self.dice.below(256) as u8).collect();
        self.file.write_all_at(&fill, at).unwrap();
        let mut content = self.contents.last().unwrap().clone();
        content.resize(content.len().max((at + len) as usize), 0);
        content[at as usize..(at + len) as usize].copy_from_slice(&fill);
        self.contents.push(content);
    }

    fn cut(&mut self, len: u64) {
        self.file.set_len(len).unwrap();
        let mut content = self.contents.last().unwrap().clone();
        content.truncate(len as usize);
        self.contents.push(content);
    }

    /// Leaves the file alone mostly; else appends, writes over a part, or writes it anew.
    fn happen(&mut self, appends_only: bool) {
        let len = self.contents.last().unwrap().len() as u64;
        match self.dice.below(if appends_only { 16 } else { 24 }) {
            0..15 => {}
            15 => self.write(len, 100),
            16..20 => {
                let at = self.dice.below(len);
                self.write(at, 3.min(len - at));
            }
            20..23 => {
                self.cut(0);
                self.write(0, len / 2);
                self.write(len / 2, len - len / 2);
            }
            _ => self.cut(len / 2),
        }
    }
}

/// What a source vouches for by its root is content that the file held at one moment, whatever was
/// done to the file between and during its readings, and however coarse the file's times are.
#[test]
fn a_root_is_never_given_for_a_mixture_of_contents() {
    let mut given = [0, 0];
    for seed in 1..=600 {
        let appends_only = seed % 2 == 0;
        let mut dice = Dice(seed * 0x9e37_79b9);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let size = (dice.below(3) * BLOCK + 1 + dice.below(BLOCK)) as usize;
        std::fs::write(&path, vec![1; size]).unwrap();
        let mut source = source(&path).with_settling(|_| false);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let written = Written { file, contents: vec![vec![1; size]], dice };
        let written = std::cell::RefCell::new(written);
        let happen = || written.borrow_mut().happen(appends_only);
        let mut sent = Vec::new();
        let mut framed = gtp_store::new_framed();
        for block in 0..(size as u64).div_ceil(BLOCK) {
            happen();
            match source.load_block(0, block, &mut framed) {
                Ok(()) => sent.extend_from_slice(&framed[..framed.len() - 32]),
                Err(_) => break,
            }
        }
        happen();
        let root = source.file_root_while(0, &|| {
            happen();
            true
        });
        if sent.len() < size || root.ok() != Some(*blake3::hash(&sent).as_bytes()) {
            continue;
        }
        given[usize::from(appends_only)] += 1;
        let contents = &written.borrow().contents;
        let existed = contents.iter().any(|content| content.starts_with(&sent));
        assert!(existed, "a mixture of {} contents from seed {seed}", contents.len());
    }
    assert!(given[0] > 50 && given[1] > 200, "roots were given: {given:?}");
}

#[test]
fn chosen_entries_are_listed_as_a_whole_listing_has_them_and_what_cannot_be_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    std::fs::create_dir_all(at("b/deep")).unwrap();
    for path in ["b/deep/x", "b/y", "b-file", "a", "z"] {
        std::fs::write(at(path), path).unwrap();
    }
    symlink("a", at("link")).unwrap();
    symlink("b", at("dirlink")).unwrap();
    let wanted = ["b", "b/deep", "b/deep/x", "b-file", "link", "dirlink/y", "gone", "../a", "/a"];
    let wanted = wanted.map(str::to_owned).into();
    let picked = Export::open(dir.path()).unwrap().pick(&wanted).unwrap();
    let whole = Export::open(dir.path()).unwrap().scan(None).unwrap();
    let of_whole = whole.manifest.entries.iter().filter(|e| wanted.contains(e.path.as_str()));
    let of_whole: Vec<_> = of_whole.cloned().collect();
    assert_eq!(of_whole.len(), 4);
    assert_eq!(picked.manifest.entries, of_whole);
    assert_eq!(picked.manifest.own, whole.manifest.own);
    let mut source = FileSource::new(picked);
    let mut framed = gtp_store::new_framed();
    source.load_block(3, 0, &mut framed).unwrap();
}
