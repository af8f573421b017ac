//! What is named of listings, honest and hostile ones.
//!
//! Only listings that pass their check are drawn: others never come so far.

use gtp_store::{Attributes, Entry, Kind, Mode, Mtime, RelPath};

use super::*;

fn entry(path: &str, kind: Kind) -> Entry {
    let (mode, mtime) = (Mode::new(0o644), Mtime::new(0, 0).unwrap());
    Entry { path: RelPath::new(path).unwrap(), kind, size: 0, mode, mtime }
}

fn listing(entries: &[(&str, Kind)]) -> Manifest {
    let entries = entries.iter().map(|(path, kind)| entry(path, *kind)).collect();
    let manifest = Manifest { root_kind: RootKind::Dir, own: None, entries };
    manifest.validate().unwrap();
    manifest
}

#[test]
fn a_file_beneath_a_directory_is_named_by_its_final_path_and_a_tree_by_its_own() {
    let one = listing(&[("hi.txt", Kind::File)]);
    assert_eq!(Objects::of("home/staff", &one).paths, ["home/staff/hi.txt"]);
    assert_eq!(Objects::of("", &one).paths, ["hi.txt"]);
    let several = [
        ("a", Kind::Dir),
        ("a-b", Kind::File),
        ("a/x", Kind::Dir),
        ("a/x/y", Kind::File),
        ("z", Kind::File),
    ];
    let objects = Objects::of("p", &listing(&several));
    assert_eq!(
        (objects.paths, objects.more),
        (["p/a", "p/a-b", "p/z"].map(String::from).into(), 0)
    );
    let own = Some(Attributes { mode: Mode::new(0o755), mtime: Mtime::new(0, 0).unwrap() });
    let tree = Manifest { own, ..listing(&several) };
    assert_eq!(Objects::of("home/data", &tree).paths, ["home/data"]);
    let file = Manifest { root_kind: RootKind::File, ..one };
    assert_eq!(Objects::of("home/new name", &file).paths, ["home/new name"]);
}

#[test]
fn names_are_bounded_in_number_and_in_length_and_the_rest_is_counted() {
    let many: Vec<String> = (0..3_000).map(|n| format!("f{n:04}")).collect();
    let many: Vec<(&str, Kind)> = many.iter().map(|name| (name.as_str(), Kind::File)).collect();
    let objects = Objects::of("p", &listing(&many));
    assert_eq!((objects.paths.len(), objects.more), (NAMED_MOST, 3_000 - NAMED_MOST as u64));
    let long: Vec<String> = (0..9).map(|n| format!("{n}{}", "\u{202e}".repeat(80))).collect();
    let long: Vec<(&str, Kind)> = long.iter().map(|name| (name.as_str(), Kind::File)).collect();
    let objects = Objects::of("p", &listing(&long));
    let bytes: usize = objects.paths.iter().map(String::len).sum();
    assert!(bytes <= BYTES_MOST && !objects.paths.is_empty(), "{bytes}");
    assert_eq!(objects.paths.len() as u64 + objects.more, 9);
    assert!(objects.paths.iter().all(|path| !path.contains('\u{202e}')));
}
