//! Sessions that write at once, beside directories that may not be looked at: what is counted is
//! what is there.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use gtp_store::replica::{Deed, Dress, Replica, Seen};
use gtp_store::{Mode, Mtime, usage_beneath};

use super::*;
use crate::server::quota::{Count, Ledger, Quota, QuotaOf, Wanted};
use crate::server::watched::Watched;

const MOST: u64 = 1 << 40;

/// An export whose account knows what is there.
struct World {
    dir: tempfile::TempDir,
    ledger: Arc<Ledger>,
    watched: Arc<Watched>,
    account: Count,
}

impl World {
    fn with(files: &[(&str, u64)]) -> World {
        World::with_places(files, &["home"])
    }

    fn with_places(files: &[(&str, u64)], places: &[&str]) -> World {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            grow(dir.path(), path, *bytes);
        }
        let quota = Quota { bytes: Some(MOST), files: Some(1_000) };
        let places = places.iter().map(|place| place.parse().unwrap()).collect();
        let roots = [("home".to_owned(), dir.path().to_owned())].into();
        let owner = QuotaOf::Group("g".into());
        let ledger = Arc::new(Ledger::default());
        let account = ledger.replace(vec![Wanted { owner, quota, places, roots }])[0].0;
        let world = World { dir, ledger, watched: Arc::default(), account };
        world.ledger.counted(account, world.there());
        world
    }

    fn root(&self) -> OwnedFd {
        self.open("")
    }

    fn open(&self, path: &str) -> OwnedFd {
        File::open(self.dir.path().join(path)).unwrap().into()
    }

    fn meter(&self, path: Option<&RelPath>) -> Meter {
        self.ledger.meter(("home", self.dir.path(), &self.watched), path)
    }

    fn there(&self) -> Usage {
        let mut all = Usage::default();
        usage_beneath(self.root(), &mut |_, takes| {
            all = all.plus(takes);
            true
        })
        .unwrap();
        all
    }

    fn counted(&self) -> Usage {
        self.ledger.used(self.account).unwrap()
    }

    fn stream(&self, at: &str) -> Result<StreamCharge, Full> {
        let (path, above) = (path(at), self.open(path(at).parent().unwrap_or_default()));
        StreamCharge::take(self.meter(Some(&path)), (self.root(), &above), &path, 7)
    }

    fn put(&self, at: &str, files: &[(&str, u64)]) -> Result<Charge, Full> {
        let (path, above) = (path(at), self.open(path(at).parent().unwrap_or_default()));
        let dirs = (self.root(), &above);
        Charge::take(self.meter(Some(&path)), dirs, Some(&path), &manifest(files))
    }

    /// Carries out a page of steps as a server does, and says which were refused.
    fn page(&self, deeds: &[Deed]) -> Vec<Full> {
        self.page_while(deeds, || {})
    }

    /// The same; once the steps are done, and before it is counted what came of them, something
    /// happens.
    fn page_while(&self, deeds: &[Deed], happens: impl FnOnce()) -> Vec<Full> {
        let meter = self.meter(None);
        let replica = Replica::beneath_open(self.root(), None).unwrap();
        let (mut steps, mut refused) = (replica.steps(), Vec::new());
        let mut page = PageCharge::of(&meter, (self.root(), None), deeds.iter()).unwrap();
        for (index, deed) in deeds.iter().enumerate() {
            match page.admit(deed) {
                Ok(()) => steps.carry_out(index, deed),
                Err(full) => refused.push(full),
            }
        }
        let faults = steps.finish();
        assert!(faults.is_empty(), "{faults:?}");
        happens();
        page.settle();
        refused
    }

    fn set_mode(&self, at: &str, mode: u32) {
        let at = self.dir.path().join(at);
        fs::set_permissions(at, Permissions::from_mode(mode)).unwrap();
    }

    fn assert_true(&self) {
        assert_eq!(self.counted(), self.there());
        assert!(self.watched.table().is_empty());
    }
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn grow(dir: &Path, at: &str, bytes: u64) {
    let at = dir.join(at);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    File::create(at).unwrap().set_len(bytes).unwrap();
}

fn manifest(files: &[(&str, u64)]) -> Arc<Manifest> {
    let entry = |&(at, size): &(&str, u64)| Entry {
        path: path(at),
        kind: Kind::File,
        size,
        mode: Mode::new(0o644),
        mtime: Mtime::new(1, 0).unwrap(),
    };
    let entries = files.iter().map(entry).collect();
    let manifest = Manifest { root_kind: RootKind::Dir, own: None, entries };
    manifest.validate().unwrap();
    Arc::new(manifest)
}

fn write(at: &str, bytes: usize) -> Deed {
    let (mode, mtime) = (0o600, Mtime::new(1, 0).unwrap());
    Deed::Write { path: path(at), content: vec![1; bytes], mode, mtime }
}

fn dress(at: &str, mode: u32) -> Deed {
    Deed::Dress(Dress { path: Some(path(at)), mode: Some(mode), ..Dress::default() })
}

fn move_dir(from: &str, to: &str) -> Deed {
    Deed::Move { path: path(from), seen: Seen::Dir, to: path(to) }
}

const GIGABYTE: u64 = 1 << 30;

#[test]
fn what_two_sessions_replace_at_once_is_taken_off_once() {
    let world = World::with(&[("x", 10 * GIGABYTE), ("other", 50 * GIGABYTE)]);
    let streams = [world.stream("x").ok().unwrap(), world.stream("x").ok().unwrap()];
    grow(world.dir.path(), "x", 1);
    drop(streams);
    world.assert_true();
}

#[test]
fn a_put_a_stream_and_a_page_of_steps_that_meet_in_a_directory_count_each_change_once() {
    let world = World::with(&[("d/x", 10 * GIGABYTE), ("d/y", 20 * GIGABYTE)]);
    let put = world.put("d", &[("x", 3_000), ("y", 7_000)]).ok().unwrap();
    let stream = world.stream("d/y").ok().unwrap();
    assert!(world.page(&[write("d/x", 100), write("d/new", 50)]).is_empty());
    grow(world.dir.path(), "d/y", 9);
    drop(put);
    grow(world.dir.path(), "d/y", 11);
    drop(stream);
    world.assert_true();
}

#[test]
fn a_directory_in_which_somebody_writes_is_not_moved() {
    let world = World::with(&[("d/x", 10), ("e/y", 5)]);
    let put = world.put("d/z", &[("f", 100)]).ok().unwrap();
    let moves = [move_dir("d", "m")];
    assert_eq!(world.page(&moves), [Full::Claimed]);
    grow(world.dir.path(), "d/z/f", 100);
    drop(put);
    assert!(world.page(&moves).is_empty());
    world.assert_true();
}

#[test]
fn a_put_to_a_directory_that_was_moved_since_it_was_found_is_refused() {
    let world = World::with(&[("d/x", 10)]);
    let (at, found) = (path("d/y"), world.open("d"));
    fs::rename(world.dir.path().join("d"), world.dir.path().join("e")).unwrap();
    fs::create_dir(world.dir.path().join("d")).unwrap();
    let taken = Charge::take(
        world.meter(Some(&at)),
        (world.root(), &found),
        Some(&at),
        &manifest(&[("f", 1)]),
    );
    assert_eq!(taken.err(), Some(Full::Claimed));
    assert!(world.watched.table().is_empty());
}

#[test]
fn what_is_in_a_directory_that_nobody_may_search_counts_as_before() {
    without_rights(|| {
        let world = World::with(&[("d/f", 10 * GIGABYTE)]);
        let before = world.counted();
        let refused = world.page_while(&[dress("d/f", 0o600)], || world.set_mode("d", 0));
        assert!(refused.is_empty());
        assert_eq!(world.counted(), before);
        assert!(world.page(&[dress("d", 0o755), dress("d/f", 0o644)]).is_empty());
        world.assert_true();
        // A stream that cannot be removed is there.
        let mut stream = world.stream("d/new").ok().unwrap();
        stream.more(5_000).unwrap();
        let part = StreamedFile::part_of(&path("new"), 7);
        grow(world.dir.path(), &format!("d/{part}"), 5_000);
        world.set_mode("d", 0);
        drop(stream);
        world.set_mode("d", 0o755);
        assert!(world.counted().bytes >= world.there().bytes);
    });
}

#[test]
fn a_directory_that_moves_with_one_that_nobody_may_read_counts_as_before() {
    without_rights(|| {
        let world = World::with(&[("d/closed/f", 10 * GIGABYTE)]);
        let close = || world.set_mode("e/closed", 0);
        assert!(world.page_while(&[move_dir("d", "e")], close).is_empty());
        assert_eq!(world.counted().bytes, 10 * GIGABYTE);
        assert!(world.page(&[dress("e/closed", 0o755)]).is_empty());
        world.assert_true();
    });
}

#[test]
fn no_session_closes_a_directory_to_the_server_which_would_not_count_it_the_next_time() {
    without_rights(|| {
        let world = World::with(&[("d/f", 10), ("f", 10)]);
        let made = Deed::MakeDir { path: Some(path("new")) };
        let deeds = [made, dress("new", 0o300), dress("d", 0), dress("f", 0), dress("d", 0o500)];
        assert_eq!(world.page(&deeds), [Full::Closed, Full::Closed]);
        world.set_mode("d", 0o755);
        let entry = Entry { kind: Kind::Dir, size: 0, ..manifest(&[("x", 1)]).entries[0].clone() };
        let put = |mode| {
            let entries = vec![Entry { mode: Mode::new(mode), ..entry.clone() }];
            let manifest = Arc::new(Manifest { root_kind: RootKind::Dir, own: None, entries });
            let (at, dirs) = (path("d/put"), (world.root(), &world.open("d")));
            Charge::take(world.meter(Some(&at)), dirs, Some(&at), &manifest).err()
        };
        assert_eq!([put(0o600), put(0o755)], [Some(Full::Closed), None]);
    });
}

/// As a user who may not look everywhere, also where root runs the tests.
fn without_rights<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::fs::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let run = || {
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn directories_above_a_new_name_count_and_are_reserved() {
    let world = World::with(&[("f", 10)]);
    let seen = {
        let (bytes, mtime) = (10, mtime_of(&world.dir.path().join("f")));
        Seen::File { size: bytes, mtime }
    };
    let deep = (0..60).map(|n| format!("d{n}")).collect::<Vec<_>>().join("/");
    let to = path(&format!("{deep}/f"));
    assert!(world.page(&[Deed::Move { path: path("f"), seen, to }]).is_empty());
    world.assert_true();
    assert_eq!(world.counted().files, 61);
}

fn mtime_of(at: &Path) -> Mtime {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(at).unwrap();
    Mtime::new(meta.mtime(), meta.mtime_nsec() as u32).unwrap()
}

#[test]
fn the_room_of_a_file_that_is_kept_is_there_for_no_other() {
    let world = World::with(&[("d/thought", 4_000), ("d/other.gtp-part", 1_000)]);
    let at = world.dir.path().join("d/thought");
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1));
    File::options().write(true).open(at).unwrap().set_times(times).unwrap();
    let mut put = world.put("d", &[("other", 9_000), ("thought", 4_000)]).ok().unwrap();
    // A part that is opened again gets its file's length.
    grow(world.dir.path(), "d/other.gtp-part", 9_000);
    put.top_up(|_| false).unwrap();
    let meter = world.meter(None);
    let left = MOST - world.counted().bytes - 8_000 - 4_000;
    assert!(meter.reserve(&[Usage { bytes: left + 1, files: 0 }]).is_err());
    assert!(meter.reserve(&[Usage { bytes: left, files: 0 }]).is_ok());
}

#[test]
fn an_unfinished_file_that_a_step_clears_is_taken_off() {
    let world = World::with(&[("f.gtp-part", 10 * GIGABYTE)]);
    assert!(world.page(&[write("f", 10)]).is_empty());
    world.assert_true();
}

#[test]
fn a_further_name_of_a_file_that_the_page_writes_is_reserved_with_its_bytes() {
    let world = World::with(&[]);
    let meter = world.meter(None);
    let deeds = [write("f", 1_000), Deed::HardLink { path: path("g"), to: path("f") }];
    let mut page = PageCharge::of(&meter, (world.root(), None), deeds.iter()).unwrap();
    for deed in &deeds {
        page.admit(deed).unwrap();
    }
    let rest = Usage { bytes: MOST - 2_000, files: 0 };
    let more = Usage { bytes: rest.bytes + 1, files: 0 };
    assert!(meter.reserve(&[rest]).is_ok() && meter.reserve(&[more]).is_err());
}

#[test]
fn a_directory_that_moves_into_a_groups_place_counts_for_it_though_it_goes_above_that() {
    let world = World::with_places(&[("a/in/f", 5_000)], &["home/b/in"]);
    world.ledger.counted(world.account, Usage::default());
    let meter = world.meter(None);
    let deeds = [move_dir("a", "b")];
    let mut page = PageCharge::of(&meter, (world.root(), None), deeds.iter()).unwrap();
    page.admit(&deeds[0]).unwrap();
    let rest = Usage { bytes: MOST - 5_000, files: 0 };
    assert!(meter.reserve(&[Usage { bytes: rest.bytes + 1, files: 0 }]).is_err());
    assert!(meter.reserve(&[rest]).is_ok());
    fs::rename(world.dir.path().join("a"), world.dir.path().join("b")).unwrap();
    page.settle();
    assert_eq!(world.counted(), Usage { bytes: 5_000, files: 2 });
}
