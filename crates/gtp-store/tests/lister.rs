//! Listing an object entry by entry, in bounded memory, and sharing listings that are alike.

mod common;

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use common::name;
use gtp_store::{
    Claim, Depth, Export, Granted, Lister, NamesHeld, SharedNames, SkipReason, SourceError, Step,
};
use proptest::prelude::*;

/// What a listing with these many names at a time brings: paths, and what it skipped. `between` is
/// called before each step.
fn listed(mut lister: Lister, mut between: impl FnMut(usize)) -> (Vec<String>, Vec<String>) {
    let (mut paths, mut skipped) = (Vec::new(), Vec::new());
    loop {
        between(paths.len());
        lister.rest();
        match lister.step() {
            None => return (paths, skipped),
            Some(Ok(Step::Entry(entry))) => paths.push(entry.path.to_string()),
            Some(Ok(Step::Skipped(name))) => skipped.push(name.shown()),
            Some(Ok(Step::Nothing)) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
}

/// All that is beneath a directory, by the bytes of the paths.
fn all_beneath(dir: &Path) -> Vec<String> {
    let mut left = vec![dir.to_path_buf()];
    let mut all = Vec::new();
    while let Some(at) = left.pop() {
        for item in std::fs::read_dir(at).unwrap() {
            let path = item.unwrap().path();
            all.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    all.sort_unstable();
    all
}

/// What a listing on this account may ask for in these tests.
fn claim(account: u64) -> Claim {
    Claim { account, bytes: 1 << 20 }
}

/// A listing of the whole directory that holds 64 names and shares more. It counts in `asked` how
/// often it wants memory, which it does not get before it was `refused` so often.
fn sharing(
    export: &Export,
    shared: &Arc<SharedNames>,
    (asked, refused): (&Arc<AtomicUsize>, usize),
) -> Lister {
    let asked = Arc::clone(asked);
    let names = NamesHeld::from(64).sharing(shared, claim(1), move |_| {
        let is_refused = asked.fetch_add(1, Ordering::Relaxed) < refused;
        (!is_refused).then(|| Box::new(()) as Granted)
    });
    export.lister(None, Depth::One, names).unwrap()
}

/// The listing after its first entry.
fn begun(mut lister: Lister) -> Lister {
    while !matches!(lister.step(), Some(Ok(Step::Entry(_)))) {}
    lister
}

/// A directory with so many files.
fn numbered(files: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..files {
        std::fs::write(dir.path().join(format!("{n:05}")), b"x").unwrap();
    }
    dir
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Names of characters around the separator, in directories of which some are too large to be
    /// kept whole.
    #[test]
    fn entries_come_in_the_order_of_manifests_however_few_names_are_kept(
        tree in prop::collection::vec("[ab!.0~-]{1,3}(/[ab!0-]{1,2}){0,4}", 0..200),
        large in prop::collection::vec("[ab!.0~-]{4}", 0..200),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in tree.iter().filter(|path| !path.split('/').any(|name| name.starts_with('.'))) {
            let (holder, name) = path.rsplit_once('/').unwrap_or(("", path));
            // A file may be in the way of a directory, and the reverse.
            if std::fs::create_dir_all(at(holder)).is_ok() && !at(path).exists() {
                std::fs::write(at(holder).join(name), b"x").unwrap();
            }
        }
        let holders = ["a", "a/b", ""];
        for (n, name) in large.iter().enumerate() {
            let _ = std::fs::write(at(holders[n % 3]).join(name), b"x");
        }
        let export = Export::open(dir.path()).unwrap();
        let expected = all_beneath(dir.path());
        for names_most in [0, 100, usize::MAX] {
            let lister = export.lister(None, Depth::All, names_most).unwrap();
            prop_assert_eq!(&listed(lister, |_| {}).0, &expected, "{} names", names_most);
            let shared = SharedNames::new(|_| true);
            let granted = |_| Some(Box::new(()) as Granted);
            let names = NamesHeld::from(names_most).sharing(&shared, claim(1), granted);
            let lister = export.lister(None, Depth::All, names).unwrap();
            prop_assert_eq!(&listed(lister, |_| {}).0, &expected, "{} names shared", names_most);
        }
        let level: Vec<_> = expected.iter().filter(|path| !path.contains('/')).cloned().collect();
        let lister = export.lister(None, Depth::One, 0).unwrap();
        prop_assert_eq!(listed(lister, |_| {}).0, level);
    }
}

#[test]
fn a_tree_that_changes_while_it_is_listed_has_no_entry_twice_and_keeps_what_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: usize| dir.path().join(format!("{n:04}"));
    for n in 0..1_000 {
        std::fs::write(at(n), b"x").unwrap();
    }
    std::fs::create_dir_all(dir.path().join("gone/deep")).unwrap();
    std::fs::create_dir_all(dir.path().join("other")).unwrap();
    let export = Export::open(dir.path()).unwrap();
    let lister = export.lister(None, Depth::All, 0).unwrap();
    let mut before = 0;
    let (paths, skipped) = listed(lister, |listed| {
        if listed == before {
            return;
        }
        before = listed;
        // Odd ones go, before or after they are listed; even ones are replaced.
        let n = (listed * 389) % 1_000;
        if n % 2 == 1 {
            let _ = std::fs::remove_file(at(n));
        } else {
            std::fs::write(dir.path().join("~new"), b"y").unwrap();
            std::fs::rename(dir.path().join("~new"), at(n)).unwrap();
        }
        if listed == 500 {
            std::fs::write(dir.path().join("zz-late"), b"z").unwrap();
            std::fs::remove_dir_all(dir.path().join("gone")).unwrap();
        }
    });
    assert!(paths.is_sorted() && paths.windows(2).all(|pair| pair[0] != pair[1]));
    let even = paths.iter().filter(|path| path.parse().is_ok_and(|n: usize| n.is_multiple_of(2)));
    assert_eq!(even.count(), 500);
    assert!(paths.contains(&"other".into()) && paths.contains(&"zz-late".into()), "{paths:?}");
    assert!(!paths.iter().any(|path| path.starts_with("gone/")));
    // What vanished between being read and being looked at is named.
    assert!(skipped.iter().all(|path| path == "gone" || path.parse::<usize>().is_ok()));
}

#[test]
fn a_directory_that_is_replaced_by_another_while_it_is_listed_is_left_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    for n in 0..10 {
        std::fs::write(inner.join(n.to_string()), b"x").unwrap();
    }
    let export = Export::open(dir.path()).unwrap();
    let lister = export.lister(None, Depth::All, 0).unwrap();
    let mut is_replaced = false;
    let (paths, skipped) = listed(lister, |listed| {
        if listed == 3 && !std::mem::replace(&mut is_replaced, true) {
            std::fs::rename(&inner, dir.path().join("moved")).unwrap();
            std::fs::create_dir(&inner).unwrap();
            std::fs::write(inner.join("5"), b"other").unwrap();
        }
    });
    assert_eq!(paths, ["inner", "inner/0", "inner/1"]);
    assert_eq!(skipped, ["inner"]);
}

#[test]
fn a_listing_like_an_earlier_one_is_that_one_and_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..100 {
        std::fs::create_dir_all(dir.path().join(format!("d{}", n % 7))).unwrap();
        std::fs::write(dir.path().join(format!("d{}/{n}", n % 7)), b"x").unwrap();
    }
    symlink("nowhere", dir.path().join("link")).unwrap();
    let export = Export::open(dir.path()).unwrap();
    let taken = |earlier: Option<&Arc<_>>| {
        let mut taken = 0;
        let mut room = |bytes| {
            taken += bytes;
            true
        };
        let scanned = export.scan_like(None, earlier, 64, &mut room).unwrap();
        (scanned, taken)
    };
    let (first, took) = taken(None);
    let paths: usize = first.manifest.entries.iter().map(|e| e.path.as_str().len()).sum();
    assert_eq!((first.manifest.entries.len(), took), (107, paths + "link".len()));
    let (second, took) = taken(Some(&first));
    assert!(Arc::ptr_eq(&first, &second) && took == 0);
    // Any change makes a listing of its own, in which all is as it would be without the first.
    let changes: [&dyn Fn(); 4] = [
        &|| std::fs::write(dir.path().join("d3/3"), b"longer").unwrap(),
        &|| std::fs::remove_file(dir.path().join("d6/97")).unwrap(),
        &|| symlink("nowhere", dir.path().join("d0/another")).unwrap(),
        &|| {
            let mode = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(dir.path(), mode).unwrap();
        },
    ];
    let mut earlier = second;
    for (n, change) in changes.iter().enumerate() {
        change();
        let (scanned, _) = taken(Some(&earlier));
        assert!(!Arc::ptr_eq(&earlier, &scanned), "change {n}");
        let fresh = export.scan(None).unwrap();
        assert_eq!(scanned.manifest, fresh.manifest, "change {n}");
        assert_eq!(
            (&scanned.skipped, scanned.skipped_total),
            (&fresh.skipped, fresh.skipped_total)
        );
        earlier = scanned;
    }
}

#[test]
fn a_shared_listing_that_finds_no_room_ends_where_it_first_differs() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..9 {
        std::fs::write(dir.path().join(n.to_string()), b"x").unwrap();
    }
    let export = Export::open(dir.path()).unwrap();
    let first = export.scan_like(None, None, 64, &mut |_| true).unwrap();
    std::fs::write(dir.path().join("8"), b"yy").unwrap();
    let error = export.scan_like(None, Some(&first), 64, &mut |bytes| bytes == 0).unwrap_err();
    assert!(matches!(error, SourceError::NoRoom));
}

#[test]
fn a_file_is_listed_as_itself_and_odd_things_are_refused_at_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"hello").unwrap();
    symlink("f", dir.path().join("link")).unwrap();
    let export = Export::open(dir.path()).unwrap();
    let lister = export.lister(Some(&name("f")), Depth::All, 0).unwrap();
    assert_eq!(lister.own(), None);
    assert_eq!(listed(lister, |_| {}), (vec!["f".to_owned()], vec![]));
    for gone in ["nothing", "f/x"] {
        let error = export.lister(Some(&name(gone)), Depth::One, 0).unwrap_err();
        assert!(matches!(error, SourceError::Missing { .. }), "{gone}: {error}");
    }
    let error = export.lister(Some(&name("link")), Depth::One, 0).unwrap_err();
    assert!(matches!(error, SourceError::Link { .. }), "{error}");
    let lister = export.lister(None, Depth::One, 0).unwrap();
    assert_eq!(listed(lister, |_| {}), (vec!["f".to_owned()], vec!["link".to_owned()]));
    assert!(export.list(None).unwrap().skipped.iter().all(|name| name.why == SkipReason::Link));
}

/// Memory for all names is asked for once for each time that they are read.
#[test]
fn a_large_directory_is_read_once_for_all_who_list_it_and_anew_when_it_has_changed() {
    let dir = numbered(1_000);
    // The next change shows, however soon it comes.
    File::open(dir.path()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let export = Export::open(dir.path()).unwrap();
    let grants = Arc::new(AtomicUsize::new(0));
    let begin = |settled| begun(sharing(&export, settled, (&grants, 0)));
    let rest = |lister| listed(lister, |_| {}).0.len();
    let settled = SharedNames::new(|_| true);
    let first = begin(&settled);
    let others: Vec<_> = (0..9).map(|_| begin(&settled)).collect();
    assert_eq!(grants.load(Ordering::Relaxed), 1, "one took memory for all");
    assert!(others.into_iter().all(|other| rest(other) == 999));
    std::fs::write(dir.path().join("01000"), b"x").unwrap();
    let later = begin(&settled);
    assert_eq!((rest(later), rest(first)), (1_000, 999));
    assert_eq!(grants.load(Ordering::Relaxed), 2);
}

/// A listing that has no memory for all names goes on with few at a time.
#[test]
fn many_who_list_a_large_directory_that_changes_take_memory_for_few_sets_of_its_names() {
    let dir = numbered(1_000);
    let export = Export::open(dir.path()).unwrap();
    let grants = Arc::new(AtomicUsize::new(0));
    let begin = |settled| begun(sharing(&export, settled, (&grants, 0)));
    let rest = |lister| listed(lister, |_| {}).0.len();
    // Its time may stay what it is at the next change, so nothing is shared.
    let unsettled = SharedNames::new(|_| false);
    let listers: Vec<_> = (0..9).map(|_| begin(&unsettled)).collect();
    assert_eq!(grants.load(Ordering::Relaxed), 1);
    // Each of them takes the only place when the one before has ended.
    assert!(listers.into_iter().all(|lister| rest(lister) == 999));
    let settled = SharedNames::new(|_| true);
    let changed = |n: u64| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(n);
        File::open(dir.path()).unwrap().set_modified(time).unwrap();
        begin(&settled)
    };
    grants.store(0, Ordering::Relaxed);
    let listers: Vec<_> = (0..9).map(changed).collect();
    assert_eq!(grants.load(Ordering::Relaxed), 4);
    assert!(listers.into_iter().all(|lister| rest(lister) == 999));
}

#[test]
fn names_count_once_for_each_account_and_not_beyond_its_own_listings() {
    let dir = numbered(1_000);
    let export = Export::open(dir.path()).unwrap();
    let shared = SharedNames::new(|_| true);
    let held = [(); 2].map(|()| Arc::new(()));
    let begin = |account: usize| {
        let held = Arc::clone(&held[account]);
        let grant = move |_| Some(Box::new(Arc::clone(&held)) as Granted);
        let names = NamesHeld::from(64).sharing(&shared, claim(account as u64), grant);
        begun(export.lister(None, Depth::One, names).unwrap())
    };
    // A listing holds what gives it memory as well.
    let grants =
        |listings: [usize; 2]| [0, 1].map(|n| Arc::strong_count(&held[n]) - 1 - listings[n]);
    let first = begin(0);
    assert_eq!(grants([1, 0]), [1, 0]);
    let (second, third) = (begin(1), begin(1));
    assert_eq!(grants([1, 2]), [1, 1]);
    drop(first);
    assert_eq!(grants([0, 2]), [0, 1], "others who hold the names prolong nothing");
    let fourth = begin(0);
    assert_eq!(grants([1, 2]), [1, 1]);
    drop((second, third));
    assert_eq!(grants([1, 0]), [1, 0]);
    assert_eq!(listed(fourth, |_| {}).0.len(), 999);
    assert_eq!(grants([0, 0]), [0, 0]);
}

#[test]
fn of_many_who_begin_to_list_a_large_directory_at_once_one_collects_the_names_for_all() {
    let dir = numbered(3_000);
    let export = Export::open(dir.path()).unwrap();
    let grants = Arc::new(AtomicUsize::new(0));
    let shared = SharedNames::new(|_| true);
    let begin = |_| sharing(&export, &shared, (&grants, 0));
    let mut listers: Vec<Lister> = (0..8).map(begin).collect();
    let mut listed = vec![Vec::new(); 8];
    // Step by step in turns.
    while listed.iter().any(|names| names.len() < 3_000) {
        for (lister, names) in listers.iter_mut().zip(&mut listed) {
            if let Some(Ok(Step::Entry(entry))) = lister.step() {
                names.push(entry.path.to_string());
            }
        }
    }
    let expected = all_beneath(dir.path());
    assert!(listed.iter().all(|names| *names == expected));
    assert_eq!(grants.load(Ordering::Relaxed), 1, "one took memory for all");
}

#[test]
fn a_large_directory_for_whose_names_there_is_no_memory_is_listed_all_the_same() {
    let dir = numbered(1_000);
    let export = Export::open(dir.path()).unwrap();
    let shared = SharedNames::new(|_| true);
    let expected = all_beneath(dir.path());
    let none = NamesHeld::from(64).sharing(&shared, claim(1), |_| None);
    assert_eq!(listed(export.lister(None, Depth::One, none).unwrap(), |_| {}).0, expected);
    let asked = |_: usize| unreachable!("it asks for no more than it may");
    let few = Claim { bytes: 1_000, ..claim(1) };
    let few = NamesHeld::from(64).sharing(&shared, few, asked);
    assert_eq!(listed(export.lister(None, Depth::One, few).unwrap(), |_| {}).0, expected);
}

/// The memory of others comes back meanwhile, or those who collected the names fail.
#[test]
fn a_listing_that_finds_no_memory_at_first_asks_again_with_each_pass() {
    let dir = numbered(3_000);
    let export = Export::open(dir.path()).unwrap();
    let expected = all_beneath(dir.path());
    let steps = |refused: usize| {
        let shared = SharedNames::new(|_| true);
        let asked = Arc::new(AtomicUsize::new(0));
        let (lister, mut steps) = (sharing(&export, &shared, (&asked, refused)), 0);
        assert_eq!(listed(lister, |_| steps += 1).0, expected);
        (asked.load(Ordering::Relaxed), steps)
    };
    let (one, two, never) = (steps(0), steps(2), steps(usize::MAX));
    assert_eq!((one.0, two.0), (1, 3));
    // A pass for each 64 names costs several steps.
    assert_eq!(never.0, 3_000 / 64, "it asks after each pass that leaves names over");
    assert!(two.1 - one.1 < (never.1 - one.1) / 8, "{one:?} {two:?} {never:?}");
}

#[test]
fn names_that_are_left_out_take_memory_that_counts_up_to_a_thousand_of_them() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..1_203 {
        symlink("nowhere", dir.path().join(format!("{n:04}"))).unwrap();
    }
    let export = Export::open(dir.path()).unwrap();
    let scan = |earlier, most| {
        let (mut kept, mut bytes) = (0, 0);
        let scanned = export.scan_like(None, earlier, 64, &mut |path| {
            kept += usize::from(path > 0);
            bytes += path;
            kept <= most
        });
        scanned.map(|scanned| (scanned, kept, bytes))
    };
    let (first, kept, bytes) = scan(None, 1_000).unwrap();
    assert_eq!((kept, bytes), (1_000, 4_000));
    assert_eq!((first.skipped.len(), first.skipped_total), (1_000, 1_203));
    assert!(matches!(scan(None, 999), Err(SourceError::NoRoom)));
    let (again, kept, _) = scan(Some(&first), 0).unwrap();
    assert!(Arc::ptr_eq(&again, &first) && kept == 0, "what is the same takes none");
    std::fs::remove_file(dir.path().join("0500")).unwrap();
    let (later, kept, _) = scan(Some(&first), 1_000).unwrap();
    assert_eq!((kept, later.skipped_total), (1_000, 1_202));
    assert!(later.skipped.iter().all(|name| name.path != b"0500"));
}
