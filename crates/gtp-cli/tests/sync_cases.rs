//! What rsync does in the cases that its users know, and that `gtp sync` does the same: names,
//! links, permissions, times, attributes, patterns, backups and what is deleted. Where it does not,
//! the case says why, and that it still does not is part of the test.
//!
//! Each case is run by rsync and by `gtp sync`, between directories and to where a real sshd logs
//! in, and all three destinations are compared with all that a file system knows of them.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::sshd::Sshd;
use common::{bytes, require_root};

/// What a case comes to.
#[derive(Clone, Copy)]
enum Comes {
    /// To the same tree, and `gtp sync` ends with this code.
    Same(i32),
    /// To another tree than rsync's at these names, for a reason that README gives; `gtp sync` ends
    /// with this code.
    Differs(i32, &'static [&'static str], &'static str),
}

use Comes::{Differs, Same};

/// One case. Both programs get its options; rsync gets `-a` as well.
struct Case {
    name: &'static str,
    options: &'static [&'static str],
    /// Makes what the source and the destination hold before.
    arrange: fn(&Path, &Path),
    comes: Comes,
}

const fn case(
    name: &'static str,
    options: &'static [&'static str],
    arrange: fn(&Path, &Path),
    comes: Comes,
) -> Case {
    Case { name, options, arrange, comes }
}

/// Writes a file with the directories above it, of a time of its own.
fn put(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    age(&path, 1_000_000_000 + content.len() as u64);
}

fn age(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    std::fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn dir(root: &Path, name: &str) {
    std::fs::create_dir_all(root.join(name)).unwrap();
}

fn mode(root: &Path, name: &str, mode: u32) {
    std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(mode)).unwrap();
}

fn link(root: &Path, name: &str, target: &str) {
    symlink(target, root.join(name)).unwrap();
}

fn attribute(root: &Path, name: &str, value: &str) {
    let (path, none) = (root.join(name), rustix::fs::XattrFlags::empty());
    rustix::fs::setxattr(path, "user.note", value.as_bytes(), none).unwrap();
}

/// The same small tree at both ends.
fn alike(source: &Path, destination: &Path) {
    for root in [source, destination] {
        for name in ["a", "b", "d/x", "d/y", "d/e/z", "other/f"] {
            put(root, name, name.as_bytes());
        }
        for name in ["d/e", "d", "other", ""] {
            age(&root.join(name), 1_000_000_000);
        }
    }
}

/// A tree with names for patterns, at the source alone.
fn patterned(source: &Path, destination: &Path) {
    for name in [
        "a.c",
        "a.o",
        "b.tmp",
        "d/a.c",
        "d/a.o",
        "d/e/deep.o",
        "d/e/a1",
        "d/e/a2",
        "d/e/ab",
        "build/out",
        "d/build/out",
        "d/build.c",
        "tmp/x",
    ] {
        put(source, name, name.as_bytes());
    }
    put(destination, "mine.o", b"mine");
    put(destination, "d/mine.o", b"mine");
    put(destination, "build/mine", b"mine");
    put(destination, "gone/mine.o", b"mine");
    put(destination, "gone/mine.c", b"mine");
}

fn names(source: &Path, _: &Path) {
    for name in [
        "with blanks and  two",
        "-dash",
        "--delete",
        "quotes'\"`",
        "back\\slash",
        "glob*?[x]",
        "$HOME ~ #!",
        "gr\u{fc}\u{df}e \u{1f600}",
        "e\u{301} and \u{e9}",
        ".hidden",
        "...",
        "d ir/.x/ y",
        "file.gtp",
        "a~",
    ] {
        put(source, name, name.as_bytes());
    }
    put(source, &"n".repeat(255), b"long");
    put(source, &["deep"; 60].join("/"), b"deep");
}

fn odd_names(source: &Path, _: &Path) {
    put(source, "plain", b"plain");
    put(source, "line\nfeed", b"x");
    std::fs::write(source.join(std::ffi::OsStr::from_bytes(b"latin\xe9")), b"x").unwrap();
}

fn links(source: &Path, destination: &Path) {
    put(source, "d/x", b"x");
    for (name, target) in [
        ("to file", "d/x"),
        ("to dir", "d"),
        ("dangling", "nowhere"),
        ("absolute", "/etc/hostname"),
        ("up", "../../.."),
        ("d/loop", "loop"),
        ("changed", "new"),
    ] {
        link(source, name, target);
    }
    put(destination, "outside/x", b"keep");
    link(destination, "changed", "old");
    link(destination, "d", "outside");
}

fn kinds(source: &Path, destination: &Path) {
    put(source, "file for link", b"f");
    link(destination, "file for link", "nowhere");
    link(source, "link for file", "target");
    put(destination, "link for file", b"f");
    put(source, "dir for file/x", b"x");
    put(destination, "dir for file", b"f");
    put(source, "file for empty dir", b"f");
    dir(destination, "file for empty dir");
    put(source, "dir for link/x", b"x");
    link(destination, "dir for link", "nowhere");
}

fn full_dir_in_the_way(source: &Path, destination: &Path) {
    put(source, "file", b"f");
    put(source, "other", b"o");
    put(destination, "file/x", b"keep");
    age(&destination.join("file"), 1_000_000_000);
}

fn hard_links(source: &Path, destination: &Path) {
    put(source, "a", b"of three names");
    for name in ["b", "c"] {
        std::fs::hard_link(source.join("a"), source.join(name)).unwrap();
    }
    put(source, "d/one", b"one");
    std::fs::hard_link(source.join("d/one"), source.join("two")).unwrap();
    put(destination, "a", b"of three names");
    put(destination, "b", b"other");
    // Names of one file at the destination that are two at the source.
    put(source, "p", b"p");
    put(source, "q", b"qq");
    put(destination, "p", b"p");
    std::fs::hard_link(destination.join("p"), destination.join("q")).unwrap();
}

fn modes(source: &Path, destination: &Path) {
    for (name, bits) in
        [("r", 0o444), ("x", 0o755), ("none", 0o000), ("w", 0o622), ("d/f", 0o640), ("same", 0o600)]
    {
        put(source, name, name.as_bytes());
        mode(source, name, bits);
    }
    put(destination, "same", b"same");
    mode(destination, "same", 0o644);
    dir(source, "closed");
    put(source, "closed/x", b"x");
    mode(source, "closed", 0o500);
    mode(source, "d", 0o711);
    put(destination, "closed/x", b"older");
    mode(destination, "closed", 0o555);
}

fn special_bits(source: &Path, _: &Path) {
    put(source, "program", b"p");
    mode(source, "program", 0o4755);
    put(source, "d/x", b"x");
    mode(source, "d", 0o2775);
    dir(source, "drop");
    mode(source, "drop", 0o1777);
}

fn times(source: &Path, destination: &Path) {
    put(source, "old", b"x");
    std::fs::File::open(source.join("old")).unwrap().set_modified(UNIX_EPOCH).unwrap();
    put(source, "before 1970", b"x");
    let before = UNIX_EPOCH - Duration::new(86_400, 500_000_000);
    std::fs::File::open(source.join("before 1970")).unwrap().set_modified(before).unwrap();
    put(source, "far", b"x");
    age(&source.join("far"), 4_000_000_000);
    for root in [source, destination] {
        put(root, "d/time alone", b"x");
    }
    age(&destination.join("d/time alone"), 5);
    age(&source.join("d"), 1_234_567);
}

fn same_size_and_time(source: &Path, destination: &Path) {
    alike(source, destination);
    put(destination, "a", b"A");
    age(&destination.join("a"), 1_000_000_001);
    age(&destination.join(""), 1_000_000_000);
}

fn times_within_two_seconds(source: &Path, destination: &Path) {
    alike(source, destination);
    put(destination, "a", b"A");
    age(&destination.join("a"), 1_000_000_002);
    put(destination, "b", b"B");
    age(&destination.join("b"), 1_000_000_008);
    age(&destination.join(""), 1_000_000_000);
}

fn extra(source: &Path, destination: &Path) {
    alike(source, destination);
    for name in ["gone", "gone dir/x", "gone dir/deep/y", "d/gone", "d/e/gone"] {
        put(destination, name, b"gone");
    }
    dir(destination, "empty");
    link(destination, "gone link", "a");
    link(destination, "link to dir", "d");
    std::fs::remove_dir_all(source.join("other")).unwrap();
}

fn empty_source(_: &Path, destination: &Path) {
    put(destination, "a", b"a");
    put(destination, "d/x", b"x");
}

fn changed(source: &Path, destination: &Path) {
    alike(source, destination);
    put(source, "a", b"changed");
    put(source, "d/x", b"changed too");
    std::fs::remove_file(source.join("b")).unwrap();
    std::fs::remove_dir_all(source.join("other")).unwrap();
}

fn owners(source: &Path, destination: &Path) {
    alike(source, destination);
    put(source, "new", b"new");
    link(source, "link", "new");
    for (name, owner) in [("a", 1_234), ("d", 65_534), ("new", 4_321), ("link", 77)] {
        std::os::unix::fs::lchown(source.join(name), Some(owner), Some(owner + 1)).unwrap();
    }
}

fn attributes(source: &Path, destination: &Path) {
    alike(source, destination);
    put(source, "new", b"new");
    for name in ["a", "d", "new"] {
        attribute(source, name, "of the source");
    }
    attribute(destination, "a", "another");
    attribute(destination, "b", "not at the source");
}

fn holes(source: &Path, _: &Path) {
    put(source, "image", b"begin");
    let image = std::fs::File::options().write(true).open(source.join("image")).unwrap();
    image.set_len(4 << 20).unwrap();
    put(source, "zeros", &vec![0; 300_000]);
    put(source, "content", &bytes(300_000, 1));
}

fn devices(source: &Path, _: &Path) {
    put(source, "plain", b"plain");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, source.join("pipe"), kind, mode, 0).unwrap();
}

/// A large file with an older version, and one that has become shorter.
fn large(source: &Path, destination: &Path) {
    let mut content = bytes(3_000_000, 1);
    put(destination, "changed", &content);
    put(destination, "shorter", &content);
    put(destination, "longer", &content[..1_000_000]);
    put(source, "shorter", &content[..700_000]);
    put(source, "longer", &content);
    content[1_500_000] ^= 1;
    put(source, "changed", &content);
}

const CASES: &[Case] = &[
    case("nothing", &[], |_, _| {}, Same(0)),
    case("names", &[], names, Same(0)),
    case(
        "odd names",
        &[],
        odd_names,
        Differs(
            12,
            &["latin\u{fffd}", "line\nfeed"],
            "names that are not UTF-8 or hold control characters are left out",
        ),
    ),
    case(
        "empty files and directories",
        &[],
        |source, _| {
            put(source, "empty", b"");
            dir(source, "d/e/f");
            dir(source, "g");
        },
        Same(0),
    ),
    case("an unchanged tree", &["--delete"], alike, Same(0)),
    case("links", &["--delete"], links, Same(0)),
    case("links without --delete", &[], links, Same(0)),
    case("another kind in the way", &[], kinds, Same(0)),
    case("another kind in the way, with --delete", &["--delete"], kinds, Same(0)),
    case("a directory that is not empty in the way", &[], full_dir_in_the_way, Same(12)),
    case("the same with --delete", &["--delete"], full_dir_in_the_way, Same(0)),
    case("hard links", &["-H"], hard_links, Same(0)),
    case("hard links as files", &[], hard_links, Same(0)),
    case("modes", &[], modes, Same(0)),
    case(
        "special bits",
        &[],
        special_bits,
        Differs(12, &["d", "drop", "program"], "set-user, set-group and sticky bits are not kept"),
    ),
    case("times", &[], times, Same(0)),
    case("same size and time", &[], same_size_and_time, Same(0)),
    case("same size and time, by content", &["-c"], same_size_and_time, Same(0)),
    case("a window of times", &["--modify-window=2"], times_within_two_seconds, Same(0)),
    case("more at the destination", &[], extra, Same(0)),
    case("more at the destination, deleted", &["--delete"], extra, Same(0)),
    case("deleted before", &["--delete-before"], extra, Same(0)),
    case("a dry run", &["-n", "--delete"], extra, Same(0)),
    case(
        "fewer deletions than there are",
        &["--delete", "--max-delete=2"],
        extra,
        Differs(12, &["other", "other/f"], "--max-delete deletes none if there were more"),
    ),
    case(
        "an empty source",
        &["--delete"],
        empty_source,
        Differs(12, &["a", "d", "d/x"], "an empty source deletes nothing without --force"),
    ),
    case("an empty source by force", &["--delete", "--force"], empty_source, Same(0)),
    case("a pattern", &["--exclude=*.o"], patterned, Same(0)),
    case("a pattern protects", &["--delete", "--exclude=*.o"], patterned, Same(0)),
    case("what is left out goes", &["--delete-excluded", "--exclude=*.o"], patterned, Same(0)),
    case("from the top", &["--delete", "--exclude=/build/"], patterned, Same(0)),
    case("directories alone", &["--delete", "--exclude=build/"], patterned, Same(0)),
    case("with a slash", &["--exclude=d/a.*"], patterned, Same(0)),
    case("two stars", &["--exclude=d/**.o"], patterned, Same(0)),
    case("a class", &["--exclude=a[0-9]"], patterned, Same(0)),
    case("a negated class", &["--exclude=a[!0-9]"], patterned, Same(0)),
    case("a question mark", &["--exclude=a?"], patterned, Same(0)),
    case("the first match decides", &["--include=a.o", "--exclude=*.o"], patterned, Same(0)),
    case("one kind of file", &["--include=*/", "--include=*.c", "--exclude=*"], patterned, Same(0)),
    case("filters", &["-f", "+ a.o", "-f", "- *.o", "-f", "- /tmp/"], patterned, Same(0)),
    case("what changed", &["--delete"], changed, Same(0)),
    case("backups", &["--backup"], changed, Differs(0, &["", "d"], OF_BACKUPS)),
    case(
        "backups with a suffix",
        &["--backup", "--suffix=.old", "--delete"],
        changed,
        Differs(0, &["", "d"], OF_BACKUPS),
    ),
    case(
        "a backup directory",
        &["--backup", "--backup-dir=old", "--delete", "--exclude=/old"],
        changed,
        Differs(0, &["old", "old/d", "old/other"], "directories of --backup-dir are private"),
    ),
    case("attributes", &["-X"], attributes, Same(0)),
    case("attributes that are not asked for", &[], attributes, Same(0)),
    case("holes", &["-S"], holes, Same(0)),
    case("large files", &[], large, Same(0)),
    case("large files as a whole", &["-W"], large, Same(0)),
];

const OF_BACKUPS: &str = "a directory in which a backup is made gets SRC's time nevertheless";

/// Cases that need root.
const ROOT_CASES: &[Case] = &[
    case("owners", &[], owners, Same(0)),
    case("pipes", &[], devices, Differs(12, &["pipe"], "devices, pipes and sockets are not kept")),
];

/// What a file system knows of one name.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    content: Vec<u8>,
    note: Option<Vec<u8>>,
    /// Of a file, its first name, by which names of one file are told from files that are alike.
    first: PathBuf,
}

/// What a tree holds, by the paths.
fn known(root: &Path, began: i64) -> BTreeMap<PathBuf, Known> {
    let (mut all, mut paths) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = paths.pop() {
        let about = std::fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_owned();
        if about.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let content = match (about.is_file(), about.is_symlink()) {
            (true, _) => std::fs::read(&path).unwrap(),
            (_, true) => std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let mut value = [0; 100];
        let note = rustix::fs::lgetxattr(&path, "user.note", &mut value[..]).ok();
        let note = note.map(|length| value[..length].to_vec());
        let known = Known {
            mode: about.mode(),
            owner: (about.uid(), about.gid()),
            mtime: match about.is_dir() && about.mtime() >= began {
                true => (began, 0),
                false => (about.mtime(), about.mtime_nsec()),
            },
            content,
            note,
            first: name.clone(),
        };
        all.insert(name, (known, about.is_file().then_some((about.dev(), about.ino()))));
    }
    let mut firsts: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let each = all.into_iter().map(|(name, (known, id))| {
        let first = match id {
            Some(id) => firsts.entry(id).or_insert_with(|| name.clone()).clone(),
            None => name.clone(),
        };
        (name, Known { first, ..known })
    });
    each.collect()
}

/// How a tree differs from rsync's: the names, and in words. Directories that changed by themselves
/// since a case began have no time of their own.
fn differences(of_rsync: &Path, other: &Path, began: i64) -> BTreeMap<String, String> {
    let (one, mut two) = (known(of_rsync, began), known(other, began));
    let mut told = BTreeMap::new();
    for (name, rsyncs) in one {
        let shown = name.to_string_lossy().into_owned();
        match two.remove(&name) {
            None => drop(told.insert(shown, "is not there".to_owned())),
            Some(own) if own == rsyncs => {}
            Some(own) => {
                let short = |known: Known| {
                    let content = blake3::hash(&known.content).to_hex();
                    let Known { mode, owner, mtime, note, first, .. } = known;
                    format!("{mode:o} {owner:?} {mtime:?} {note:?} {first:?} {}", &content[..8])
                };
                let (rsyncs, own) = (short(rsyncs), short(own));
                told.insert(shown, format!("{own}, rsync: {rsyncs}"));
            }
        }
    }
    let more = two.keys().map(|name| (name.to_string_lossy().into_owned(), "is there".to_owned()));
    told.extend(more);
    told
}

/// Gives directories and links that were just made times of their own: rsync does not see a
/// difference within a second.
fn settle(root: &Path, seconds: i64, began: i64) {
    let about = std::fs::symlink_metadata(root).unwrap();
    if about.is_dir() {
        for entry in std::fs::read_dir(root).unwrap() {
            settle(&entry.unwrap().path(), seconds + 1, began);
        }
    }
    if !about.is_file() && about.mtime() >= began {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 7 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, root, &times, flags).unwrap();
    }
}

/// Copies a tree with all that is known of it.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a case by both programs; what is wrong with it.
fn run(far: &Sshd, case: &Case) -> Vec<String> {
    let at = |name: &str| far.world.path("case").join(name);
    let (source, by_rsync, by_gtp) = (at("src"), at("rsync"), at("gtp"));
    std::fs::create_dir_all(&source).unwrap();
    std::fs::create_dir_all(&by_rsync).unwrap();
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    (case.arrange)(&source, &by_rsync);
    settle(&source, 1_100_000_000, began);
    settle(&by_rsync, 1_050_000_000, began);
    copy(&by_rsync, &by_gtp);
    copy(&by_rsync, &far.home("there"));
    let mut rsync = Command::new("rsync");
    rsync.arg("-a").args(case.options).arg(at("src/")).arg(&by_rsync);
    let rsync = rsync.output().expect("rsync is needed: scripts/setup test");
    let (code, expected, reason) = match case.comes {
        Same(code) => (code, &[][..], ""),
        Differs(code, names, reason) => (code, names, reason),
    };
    let mut wrong = Vec::new();
    for (to, destination) in [("case/gtp", by_gtp), ("far:there", far.home("there"))] {
        let output =
            far.gtp("sync", &[case.options, &["case/src/", to]].concat()).output().unwrap();
        let differences = differences(&by_rsync, &destination, began);
        let unexpected = differences.iter().filter(|(name, _)| !expected.contains(&name.as_str()));
        let mut told: Vec<String> =
            unexpected.map(|(name, how)| format!("{name}: {how}")).collect();
        let alike = expected.iter().filter(|name| !differences.contains_key(**name));
        told.extend(alike.map(|name| format!("{name} does not differ any more: {reason}")));
        if output.status.code() != Some(code) {
            told.push(format!("ends with {:?} and not {code}: {}", output.status, said(&output)));
        }
        told.truncate(8);
        wrong.extend(told.into_iter().map(|text| format!("{} to {to}: {text}", case.name)));
    }
    if !wrong.is_empty() {
        wrong.push(format!("rsync: {:?} {}", rsync.status, said(&rsync)));
    }
    for left in [at(""), far.home("there")] {
        std::fs::remove_dir_all(left).unwrap();
    }
    wrong
}

#[test]
fn whatever_rsync_does_in_these_cases_gtp_sync_does_or_the_table_says_why_not() {
    let far = Sshd::with_gtp();
    let mut wrong: Vec<String> = CASES.iter().flat_map(|case| run(&far, case)).collect();
    if require_root() {
        wrong.extend(ROOT_CASES.iter().flat_map(|case| run(&far, case)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
