//! Destinations that fail: full, read-only, forbidden. Mounting a small file system needs root;
//! without it these tests say that they were skipped, or fail where GTP_REQUIRE_ROOT=1 is set.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{copy, file, finish, missing, sink, transfer, tree};
use gtp_store::{
    Attributes, BLOCK, BlockSink, BlockSource, Destination, Export, Fault, FileSink, MadeDir,
    Manifest, Mode, Mtime, Pattern, SinkError, SinkOptions, SkipReason, SyntheticSource,
};
use rustix::process::Uid;

/// A small file system of its own, gone when dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn option(&self, options: &str) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", options]).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !Command::new("umount").arg(self.path()).status().is_ok_and(|s| s.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(std::env::var("GTP_REQUIRE_ROOT").as_deref() != Ok("1"), "this test needs root");
        eprintln!("skipped: needs root");
    }
    root
}

fn small_disk(size: &str) -> Option<Mount> {
    if !is_root() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = format!("size={size}");
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path());
    assert!(mount.status().unwrap().success());
    Some(Mount(dir))
}

fn object() -> SyntheticSource {
    let mut entries: Vec<_> = (0..3).map(|i| file(&format!("big-{i}"), 3 * BLOCK, 1)).collect();
    entries.push(file("small", 10, 1));
    SyntheticSource::new(tree(entries), Pattern::Random { seed: 4 })
}

#[test]
fn a_full_disk_is_named_keeps_what_was_whole_and_goes_on_when_there_is_room() {
    let Some(disk) = small_disk("1536k") else { return };
    let mut source = object();
    let manifest = source.manifest().clone();
    let mut there = sink(disk.path(), &manifest).unwrap();
    copy(&mut source, &mut there, &[(3, 0), (0, 0), (0, 1), (0, 2)]).unwrap();
    there.finish_file(0, None).unwrap();
    there.finish_file(3, None).unwrap();
    let rest = missing(&manifest, &there);
    let rest: Vec<_> = rest.into_iter().filter(|&(file, _)| file == 1 || file == 2).collect();
    let error = copy(&mut source, &mut there, &rest).unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Full), "{error}");
    assert!(error.to_string().ends_with("no space left"), "{error}");
    // The journal may find no room either; what has its name keeps it all the same.
    if let Err(second) = there.suspend() {
        assert_eq!(second.fault(), Some(Fault::Full));
    }
    drop(there);
    assert_eq!(disk.path().join("obj/big-0").metadata().unwrap().len(), 3 * BLOCK);
    assert!(disk.path().join("obj/small").exists());
    disk.option("remount,size=8m");
    let mut resumed = sink(disk.path(), &manifest).unwrap();
    assert!(missing(&manifest, &resumed).len() <= 6);
    transfer(&mut source, &mut resumed).unwrap();
    assert_eq!(disk.path().join("obj").read_dir().unwrap().count(), 4);
}

#[test]
fn a_disk_without_room_for_a_journal_is_full() {
    let Some(disk) = small_disk("4k") else { return };
    std::fs::write(disk.path().join("fill"), [1; 4096]).unwrap();
    let error = sink(disk.path(), object().manifest()).unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Full), "{error}");
}

#[test]
fn a_read_only_disk_is_named() {
    let Some(disk) = small_disk("1m") else { return };
    disk.option("remount,ro");
    let error = sink(disk.path(), object().manifest()).unwrap_err();
    assert_eq!(error.fault(), Some(Fault::ReadOnly), "{error}");
    let named = SinkError::to_string(&error);
    assert!(named.contains(&disk.path().display().to_string()), "{named}");
}

/// Runs a step as a user who may do nothing: as oneself, or when root, as nobody.
fn as_nobody<T: Send>(step: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            step()
        });
        thread.join().unwrap()
    })
}

fn open_to_all(dir: &Path, mode: u32) -> PathBuf {
    std::fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
    dir.to_owned()
}

#[test]
fn a_destination_that_may_not_be_written_is_forbidden() {
    let dir = tempfile::tempdir().unwrap();
    let dest = open_to_all(dir.path(), 0o555);
    let source = object();
    let error = as_nobody(|| sink(&dest, source.manifest()).unwrap_err());
    assert_eq!(error.fault(), Some(Fault::Denied), "{error}");
    assert_eq!(dest.read_dir().unwrap().count(), 0);
}

#[test]
fn an_object_does_not_open_the_directory_that_is_to_hold_it_and_a_directorys_content_does() {
    let mode = Mode::new(0o755);
    let own = Attributes { mode, mtime: Mtime::new(1_000, 0).unwrap() };
    for own in [None, Some(own)] {
        let dir = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
        }
        let dest = open_to_all(dir.path(), 0o555);
        let manifest = Arc::new(Manifest { own, ..tree(vec![file("f", 9, 1)]) });
        let opened = as_nobody(|| {
            let destination = Destination::into(&dest, MadeDir::There)?;
            FileSink::open(destination, manifest, SinkOptions::default()).map(drop)
        });
        match own {
            None => assert_eq!(opened.unwrap_err().fault(), Some(Fault::Denied)),
            Some(_) => opened.unwrap(),
        }
        assert_eq!(dest.metadata().unwrap().permissions().mode() & 0o777, 0o555);
    }
}

#[test]
fn read_only_files_arrive_and_resume_for_an_ordinary_user() {
    let dir = tempfile::tempdir().unwrap();
    let dest = open_to_all(dir.path(), 0o777);
    let mut entries = vec![file("big", 2 * BLOCK, 1), file("small", 9, 1)];
    for entry in &mut entries {
        entry.mode = gtp_store::Mode::new(0o400);
    }
    let mut source = SyntheticSource::new(tree(entries), Pattern::Random { seed: 4 });
    let manifest = source.manifest().clone();
    as_nobody(|| {
        let mut killed = sink(&dest, &manifest).unwrap();
        copy(&mut source, &mut killed, &[(0, 0), (1, 0)]).unwrap();
        killed.checkpoint().unwrap();
        drop(killed);
        let mut resumed = sink(&dest, &manifest).unwrap();
        assert_eq!(resumed.have().len(), 2);
        let rest = missing(&manifest, &resumed);
        copy(&mut source, &mut resumed, &rest).unwrap();
        finish(&mut source, &mut resumed).unwrap();
    });
    for path in ["obj/big", "obj/small"] {
        assert_eq!(dest.join(path).metadata().unwrap().permissions().mode() & 0o777, 0o400);
    }
}

#[test]
fn unreadable_files_and_directories_of_a_source_are_listed_as_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    open_to_all(dir.path(), 0o755);
    std::fs::create_dir(at("closed")).unwrap();
    std::fs::write(at("closed/in"), b"x").unwrap();
    std::fs::write(at("secret"), b"x").unwrap();
    std::fs::write(at("open"), b"x").unwrap();
    open_to_all(&at("closed"), 0);
    open_to_all(&at("secret"), 0);
    open_to_all(&at("open"), 0o644);
    let scanned = as_nobody(|| Export::open(dir.path()).unwrap().scan(None).unwrap());
    let mut skipped: Vec<_> = scanned.skipped.iter().map(|s| (&s.path[..], s.why)).collect();
    skipped.sort_by_key(|(path, _)| *path);
    let denied = SkipReason::Denied;
    assert_eq!(skipped, [(&b"closed"[..], denied), (b"secret", denied)]);
    open_to_all(&at("closed"), 0o755);
}

#[test]
fn a_directory_of_another_user_takes_a_tree_and_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let dest = open_to_all(dir.path(), 0o777);
    let mut listed = tree(vec![file("x", 9, 1)]);
    listed.own = Some(gtp_store::Attributes {
        mode: gtp_store::Mode::new(0o700),
        mtime: gtp_store::Mtime::new(7, 0).unwrap(),
    });
    let mut source = SyntheticSource::new(listed, Pattern::Random { seed: 4 });
    as_nobody(|| {
        let into = Destination::into(&dest, MadeDir::There).unwrap();
        let options = SinkOptions::default();
        let mut there = FileSink::open(into, source.manifest().clone(), options).unwrap();
        transfer(&mut source, &mut there).unwrap();
        assert_eq!(there.take_warning(), None, "the file system lacks nothing");
    });
    assert_eq!(dest.join("x").metadata().unwrap().len(), 9);
    assert_eq!(dest.metadata().unwrap().permissions().mode() & 0o777, 0o777);
}
