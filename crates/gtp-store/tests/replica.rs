//! What a tree lets nobody do, whatever steps a peer asks for.
//!
//! Each test has a tree with something beside it that must stay as it is.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use gtp_store::replica::{
    Asked, Deed, Dress, Keep, Node, NodeKind, Patch, Replica, SMALL_MAX, Seen, Surveyed,
    patch_hash, piece_sums,
};
use gtp_store::{BLOCK, Mtime, RelPath};
use proptest::prelude::*;

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

/// A directory with the tree `t`, in it a link `out` to the directory `beside`, which holds `x`.
fn world() -> (tempfile::TempDir, Replica) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("t/d")).unwrap();
    fs::create_dir(at("beside")).unwrap();
    fs::write(at("beside/x"), b"keep").unwrap();
    fs::write(at("t/a"), b"a").unwrap();
    fs::write(at("t/d/f"), b"f").unwrap();
    symlink("../beside", at("t/out")).unwrap();
    symlink("../beside/x", at("t/file")).unwrap();
    let replica = Replica::beneath(dir.path(), Some(path("t"))).unwrap();
    (dir, replica)
}

fn survey(replica: &Replica) -> Vec<Node> {
    let mut nodes = Vec::new();
    let each = &mut |found| {
        if let Surveyed::Node(node) = found {
            nodes.push(*node);
        }
        true
    };
    replica.survey(Asked::default(), each).unwrap();
    nodes
}

fn seen(replica: &Replica, name: &str) -> Seen {
    let node = survey(replica).into_iter().find(|node| node.name() == name).unwrap();
    Seen::of(&node).unwrap()
}

fn is_whole(dir: &Path) -> bool {
    let beside: Vec<_> = fs::read_dir(dir.join("beside")).unwrap().flatten().collect();
    beside.len() == 1 && fs::read(dir.join("beside/x")).is_ok_and(|content| content == b"keep")
}

#[test]
fn a_survey_of_one_name_looks_at_nothing_that_more_than_one_part_leads_to() {
    let (_dir, replica) = world();
    for name in ["out/x", "d/f"] {
        let each = &mut |found| panic!("{name}: {found:?}");
        let surveyed = replica.survey_name(Asked::default(), &path(name), each);
        assert_eq!(surveyed, Err(rustix::io::Errno::INVAL), "{name}");
    }
}

#[test]
fn a_survey_tells_links_as_links_and_does_not_follow_them() {
    let (_dir, replica) = world();
    let nodes = survey(&replica);
    let names: Vec<&str> = nodes.iter().map(Node::name).collect();
    assert_eq!(names, ["", "a", "d", "file", "out", "d/f"]);
    assert_eq!(nodes[4].kind, NodeKind::Link(b"../beside".to_vec()));
}

#[test]
fn no_step_leads_through_a_link() {
    let (dir, replica) = world();
    let was = seen(&replica, "a");
    let dress = Dress { path: Some(path("out/x")), mode: Some(0), ..Dress::default() };
    for deed in [
        Deed::Remove { path: path("out/x"), seen: was },
        Deed::Move { path: path("a"), seen: was, to: path("out/a") },
        Deed::MakeDir { path: Some(path("out/new")) },
        Deed::MakeDir { path: Some(path("out")) },
        Deed::Link { path: path("out/new"), target: b"x".to_vec() },
        Deed::HardLink { path: path("out/new"), to: path("a") },
        Deed::HardLink { path: path("new"), to: path("file") },
        Deed::Dig { path: path("file") },
        written("out/new", b"x"),
        written("file", b"x"),
        Deed::Dress(dress),
    ] {
        assert!(replica.apply(&deed).is_err(), "{deed:?}");
        assert!(is_whole(dir.path()), "{deed:?}");
    }
    let mtime = Some(Mtime::new(1, 0).unwrap());
    let own = Dress { path: Some(path("file")), mode: Some(0o777), mtime, ..Dress::default() };
    replica.apply(&Deed::Dress(own)).unwrap();
    let beside = fs::metadata(dir.path().join("beside/x")).unwrap();
    assert_ne!(
        beside.modified().unwrap(),
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(1)
    );
}

/// A step that writes a file.
fn written(name: &str, content: &[u8]) -> Deed {
    let mtime = Mtime::new(1_000_000_000, 5).unwrap();
    Deed::Write { path: path(name), content: content.to_vec(), mode: 0o640, mtime }
}

#[test]
fn a_file_that_a_step_writes_replaces_a_file_and_nothing_else_and_stays_if_the_step_fails() {
    let (dir, replica) = world();
    let at = |name: &str| dir.path().join("t").join(name);
    fs::hard_link(at("a"), at("other")).unwrap();
    let before = fs::read(at("a")).unwrap();
    for name in ["a", "d/new"] {
        replica.apply(&written(name, b"now")).unwrap();
        let about = fs::metadata(at(name)).unwrap();
        let mtime = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
        assert_eq!(fs::read(at(name)).unwrap(), b"now", "{name}");
        assert_eq!((about.mode() & 0o7777, about.modified().unwrap()), (0o640, mtime), "{name}");
    }
    assert_eq!(fs::read(at("other")).unwrap(), before, "another name of the old file");
    let long = vec![0; SMALL_MAX + 1];
    for deed in [written("a", &long), written("d", b"x"), written("gone/x", b"x")] {
        assert!(replica.apply(&deed).is_err(), "{}", deed.name());
    }
    assert!(fs::read(at("a")).unwrap() == b"now" && at("d/f").exists());
    let left = fs::read_dir(at("")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("gtp-")));
}

#[test]
fn old_versions_go_into_the_place_that_a_tree_has_for_them_and_nowhere_without_one() {
    let (dir, replica) = world();
    let keep = |from: &str, how| Deed::Keep { path: path(from), to: path("d/old"), how };
    let refused = replica.apply(&keep("a", Keep::Name)).unwrap_err();
    assert!(refused.why.contains("in the tree alone"), "{refused:?}");
    let place = dir.path().join("made/for them");
    let replica = replica.keeping_in(Replica::at(&place).unwrap());
    let content = fs::read(dir.path().join("t/a")).unwrap();
    for how in [Keep::Name, Keep::Copy] {
        replica.apply(&keep("a", how)).unwrap();
        assert_eq!(fs::read(place.join("d/old")).unwrap(), content);
    }
    assert_eq!(fs::metadata(place.join("d/old")).unwrap().nlink(), 1, "a copy");
    // No link is followed, neither in the tree nor in the place.
    assert!(replica.apply(&keep("out/x", Keep::Name)).is_err());
    fs::remove_dir_all(place.join("d")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("beside"), place.join("d")).unwrap();
    assert!(replica.apply(&keep("a", Keep::Name)).is_err());
    assert!(is_whole(dir.path()));
}

#[test]
fn an_old_version_is_never_kept_under_its_own_name() {
    let (dir, replica) = world();
    let place = dir.path().join("beside/../t");
    let keep = |place: &Path, to: &str, how| {
        let place = Replica::beneath(place, None).unwrap();
        replica.keep(&path("a"), &place, &path(to), how)
    };
    for how in [Keep::Name, Keep::Copy] {
        let inode = fs::metadata(dir.path().join("t/a")).unwrap().ino();
        let refused = keep(&place, "a", how).unwrap_err();
        assert!(refused.why.contains("itself"), "{refused:?}");
        let left = fs::metadata(dir.path().join("t/a")).unwrap();
        assert_eq!((left.ino(), left.nlink()), (inode, 1), "{how:?}");
    }
    // What a run kept that was interrupted is kept, though both are one file.
    for _ in 0..2 {
        keep(&dir.path().join("t/d"), "a", Keep::Name).unwrap();
        assert_eq!(fs::metadata(dir.path().join("t/a")).unwrap().nlink(), 2);
    }
}

#[test]
fn a_link_that_is_put_into_the_path_of_a_judged_place_leads_nowhere() {
    let (dir, replica) = world();
    // A path that was judged has no links in it.
    let base = dir.path().canonicalize().unwrap();
    let (above, beside) = (base.join("judged"), base.join("elsewhere"));
    fs::create_dir_all(above.join("place")).unwrap();
    fs::create_dir_all(beside.join("place")).unwrap();
    let opened = Arc::new(Replica::at_judged(&above.join("place")).unwrap());
    let missing = Replica::at_judged(&above.join("place/new/one")).unwrap();
    fs::rename(&above, base.join("moved")).unwrap();
    symlink(&beside, &above).unwrap();
    let too_late = Replica::at_judged(&above.join("place")).unwrap();
    let keep = Deed::Keep { path: path("a"), to: path("old"), how: Keep::Copy };
    let replica = replica.keeping_in(opened);
    replica.apply(&keep).unwrap();
    let replica = replica.keeping_in(missing);
    replica.apply(&keep).unwrap();
    assert!(base.join("moved/place/old").exists() && base.join("moved/place/new/one/old").exists());
    assert!(replica.keeping_in(too_late).apply(&keep).is_err());
    assert_eq!(fs::read_dir(beside.join("place")).unwrap().count(), 0, "nothing came through");
    for bad in ["relative", "/tmp/../etc"] {
        assert!(Replica::at_judged(Path::new(bad)).is_err(), "{bad}");
    }
}

#[test]
fn what_a_user_changes_while_a_written_file_waits_for_its_name_is_kept() {
    let (dir, replica) = world();
    let at = |name: &str| dir.path().join("t").join(name);
    fs::write(at("gone"), b"old").unwrap();
    let mut steps = replica.steps();
    for (index, name) in ["a", "d/f", "gone", "new", "free"].into_iter().enumerate() {
        steps.carry_out(index, &written(name, b"sent"));
    }
    fs::write(at("a"), b"a user's").unwrap();
    fs::write(at("other"), b"f").unwrap();
    fs::rename(at("other"), at("d/f")).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::write(at("new"), b"a user's").unwrap();
    let faults = steps.finish();
    let told: Vec<_> = faults.iter().map(|(index, fault)| (*index, &*fault.path)).collect();
    assert_eq!(told, [(0, "a"), (1, "d/f"), (2, "gone"), (3, "new")], "{faults:?}");
    assert!(faults.iter().all(|(_, fault)| fault.why.contains("changed meanwhile")), "{faults:?}");
    for (name, content) in [("a", "a user's"), ("d/f", "f"), ("new", "a user's"), ("free", "sent")]
    {
        assert_eq!(fs::read(at(name)).unwrap(), content.as_bytes(), "{name}");
    }
    assert!(!at("gone").exists());
    let left = fs::read_dir(at("")).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("gtp-")));
}

#[test]
fn a_patch_changes_only_what_was_seen_and_nothing_that_it_does_not_fit() {
    let (dir, replica) = world();
    let at = |name: &str| dir.path().join("t").join(name);
    let (old, new) = (b"a".to_vec(), b"and more".to_vec());
    let was = seen(&replica, "a");
    let patched = |name: &str, was: Seen, meant: &[u8]| Deed::Patch {
        path: path(name),
        seen: was,
        patch: Patch::of(&new, 1, &piece_sums(&old, &[0; 32]), &[0; 32]),
        size: new.len(),
        hash: patch_hash(meant),
        mode: 0o600,
        mtime: Mtime::new(1_000_000_000, 5).unwrap(),
    };
    for (name, was, meant) in [
        ("a", was, &b"something else"[..]),
        ("a", Seen::Link, &new),
        ("a", Seen::File { size: 2, mtime: Mtime::new(0, 0).unwrap() }, &new),
        ("d/f", was, &new),
        ("file", was, &new),
        ("out/x", was, &new),
        ("gone", was, &new),
    ] {
        assert!(replica.apply(&patched(name, was, meant)).is_err(), "{name}");
        assert!(is_whole(dir.path()), "{name}");
    }
    assert_eq!(
        (fs::read(at("a")).unwrap(), fs::read(at("d/f")).unwrap()),
        (old.clone(), b"f".into())
    );
    replica.apply(&patched("a", was, &new)).unwrap();
    assert_eq!(
        (fs::read(at("a")).unwrap(), fs::metadata(at("a")).unwrap().mode() & 0o777),
        (new.clone(), 0o600)
    );
    // Now it is another one.
    assert!(replica.apply(&patched("a", was, &new)).is_err());
}

#[test]
fn a_part_that_a_transfer_writes_or_another_user_owns_is_not_replaced_by_a_step() {
    let (dir, replica) = world();
    let part = dir.path().join("t/a.gtp-part");
    fs::write(&part, b"part").unwrap();
    let at_work = fs::File::options().write(true).open(&part).unwrap();
    at_work.lock().unwrap();
    let fault = replica.apply(&written("a", b"new")).unwrap_err();
    assert!(fault.why.contains("another transfer"), "{fault:?}");
    assert_eq!(fs::read(&part).unwrap(), b"part");
    let place = Replica::beneath(dir.path(), Some(path("t"))).unwrap();
    assert!(replica.keep(&path("d/f"), &place, &path("a"), Keep::Name).is_err());
    drop(at_work);
    replica.apply(&written("a", b"new")).unwrap();
    assert_eq!(fs::read(dir.path().join("t/a")).unwrap(), b"new");
    assert!(!part.exists());
    if !Replica::may_own() {
        return;
    }
    fs::write(&part, b"theirs").unwrap();
    std::os::unix::fs::chown(&part, Some(1), Some(1)).unwrap();
    let fault = replica.apply(&written("a", b"newer")).unwrap_err();
    assert!(fault.why.contains("not a file of ours"), "{fault:?}");
    assert_eq!(fs::read(&part).unwrap(), b"theirs");
}

/// All names of a tree, with the content of files and the targets of links.
fn told(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let (at, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            all.extend(
                told(&at).into_iter().map(|(inner, held)| (format!("{name}/{inner}"), held)),
            );
            all.push((name, Vec::new()));
        } else {
            let target =
                fs::read_link(&at).map(|target| target.into_os_string().into_encoded_bytes());
            all.push((name, target.unwrap_or_else(|_| fs::read(&at).unwrap())));
        }
    }
    all.sort();
    all
}

fn any_step() -> impl Strategy<Value = Deed> {
    let name = prop::sample::select(vec!["a", "b", "d/f", "d/g", "d", "new/x", "out", "gone/x"]);
    let content = prop::collection::vec(any::<u8>(), 0..4);
    prop_oneof![
        12 => (name.clone(), content).prop_map(|(name, content)| written(name, &content)),
        1 => Just(Deed::MakeDir { path: Some(path("new")) }),
        1 => name.clone().prop_map(|name| Deed::Link { path: path(name), target: b"t".to_vec() }),
        1 => (name.clone(), name).prop_map(|(new, old)| {
            Deed::HardLink { path: path(new), to: path(old) }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_row_of_steps_makes_what_they_make_one_by_one_and_names_the_same_that_fail(
        row in prop::collection::vec(any_step(), 0..80),
    ) {
        let ((together, replica), (singly, other)) = (world(), world());
        let mut steps = replica.steps();
        let mut failed = Vec::new();
        for (index, step) in row.iter().enumerate() {
            steps.carry_out(index, step);
            failed.extend(other.apply(step).err().map(|fault| (index, fault)));
        }
        prop_assert_eq!(steps.finish(), failed);
        prop_assert_eq!(told(&together.path().join("t")), told(&singly.path().join("t")));
    }
}

#[test]
fn a_file_is_read_for_a_step_only_as_it_was_seen() {
    let (dir, replica) = world();
    let (was, content) = (seen(&replica, "a"), fs::read(dir.path().join("t/a")).unwrap());
    assert_eq!(replica.read_seen(&path("a"), was), Some(content));
    fs::write(dir.path().join("t/a"), b"changed since").unwrap();
    assert_eq!(replica.read_seen(&path("a"), was), None);
    fs::write(dir.path().join("t/a"), vec![0; SMALL_MAX + 1]).unwrap();
    assert_eq!(replica.read_seen(&path("a"), seen(&replica, "a")), None);
    assert_eq!(replica.read_seen(&path("file"), Seen::Link), None);
    assert_eq!(replica.read_seen(&path("gone"), was), None);
}

#[test]
fn only_what_was_seen_is_removed_and_no_directory_that_holds_something() {
    let (dir, replica) = world();
    let was = seen(&replica, "a");
    fs::write(dir.path().join("t/a"), b"changed since").unwrap();
    for (name, seen) in [("a", was), ("a", Seen::Dir), ("d", Seen::Dir), ("out", Seen::Dir)] {
        let deed = Deed::Remove { path: path(name), seen };
        assert!(replica.apply(&deed).is_err(), "{deed:?}");
    }
    assert_eq!(survey(&replica).len(), 6);
    for (name, seen) in [("a", seen(&replica, "a")), ("out", Seen::Link), ("gone", Seen::Link)] {
        replica.apply(&Deed::Remove { path: path(name), seen }).unwrap();
    }
    assert!(is_whole(dir.path()) && survey(&replica).len() == 4);
}

#[test]
fn a_move_that_was_interrupted_is_completed_and_one_that_is_done_stays_done() {
    let (dir, replica) = world();
    let at = |name: &str| dir.path().join("t").join(name);
    fs::hard_link(at("a"), at("a~")).unwrap();
    let deed = Deed::Move { path: path("a"), seen: seen(&replica, "a"), to: path("a~") };
    for _ in 0..2 {
        replica.apply(&deed).unwrap();
        assert!(!at("a").exists());
        assert_eq!(fs::read(at("a~")).unwrap(), b"a");
    }
    fs::hard_link(at("a~"), at("more")).unwrap();
    let to_itself = Deed::Move { path: path("a~"), seen: seen(&replica, "a~"), to: path("a~") };
    replica.apply(&to_itself).unwrap();
    assert!(at("a~").exists());
}

#[test]
fn attributes_of_the_system_and_bits_that_lend_rights_are_never_set() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, replica) = world();
    for name in ["security.capability", "trusted.x", "system.x", "user."] {
        let xattrs = Some(vec![(name.to_owned(), b"x".to_vec())]);
        let dress = Dress { path: Some(path("a")), xattrs, ..Dress::default() };
        assert!(replica.apply(&Deed::Dress(dress)).is_err(), "{name}");
    }
    let dress = Dress { path: Some(path("a")), mode: Some(0o6755), ..Dress::default() };
    replica.apply(&Deed::Dress(dress)).unwrap();
    let mode = fs::metadata(dir.path().join("t/a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_tree_whose_own_directory_is_a_link_is_not_entered() {
    let (dir, _) = world();
    let replica = Replica::beneath(dir.path(), Some(path("t/out"))).unwrap();
    assert!(replica.open_root().is_err());
    let deed = Deed::Link { path: path("new"), target: b"x".to_vec() };
    assert!(replica.apply(&deed).is_err() && is_whole(dir.path()));
}

#[test]
fn values_of_blocks_are_those_of_the_new_size_and_end_with_the_file() {
    let (dir, replica) = world();
    let content = vec![7; BLOCK as usize + 10];
    fs::write(dir.path().join("t/a"), &content).unwrap();
    let size = 3 * BLOCK;
    let values = replica.block_values(&path("a"), size, 0, 10).unwrap();
    let first = gtp_store::block_value(size, 0, &content[..BLOCK as usize]);
    assert_eq!(values, [first], "the second block is not there in full");
    assert!(replica.block_values(&path("file"), size, 0, 10).is_err(), "it is a link");
}

proptest! {
    #[test]
    fn whatever_steps_are_asked_for_nothing_beside_the_tree_changes(
        steps in proptest::collection::vec((0..6_u8, 0..6_usize, 0..6_usize), 0..20),
    ) {
        let (dir, replica) = world();
        let names = ["a", "d", "d/f", "out", "out/x", "file"];
        for (kind, one, other) in steps {
            let (one, other) = (path(names[one]), path(names[other]));
            let deed = match kind {
                0 => Deed::Remove { path: one, seen: Seen::Link },
                1 => Deed::Move { path: one, seen: Seen::Link, to: other },
                2 => Deed::Link { path: one, target: b"../beside".to_vec() },
                3 => Deed::HardLink { path: one, to: other },
                4 => Deed::MakeDir { path: Some(one) },
                _ => Deed::Remove { path: one, seen: Seen::Dir },
            };
            // Most of them fail, which is what is wanted.
            let _ = replica.apply(&deed);
            prop_assert!(is_whole(dir.path()), "{deed:?}");
        }
    }
}
