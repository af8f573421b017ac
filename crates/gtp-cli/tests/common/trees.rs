//! Trees of these tests: how they are made, and compared with rsync's own eyes.
//!
//! Beside them, what tests of `gtp sync` say of its commands.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;

use super::{bytes, events};

#[track_caller]
pub fn ended(code: i32, words: &[&str], mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
    output
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Writes a file and the directories above it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A tree with files of all sizes, links, modes and directories of their own times.
pub fn plant(root: &Path) {
    write(&root.join("a"), b"a");
    write(&root.join("empty"), b"");
    write(&root.join("d/e/large"), bytes(3_000_000, 1));
    write(&root.join("d/x"), bytes(300, 2));
    write(&root.join("private"), b"mine");
    std::fs::create_dir(root.join("d/nothing")).unwrap();
    symlink("../../outside", root.join("d/link")).unwrap();
    std::fs::hard_link(root.join("a"), root.join("b")).unwrap();
    std::fs::set_permissions(root.join("private"), PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::set_permissions(root.join("d/nothing"), PermissionsExt::from_mode(0o711)).unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for dir in ["d/nothing", "d/e", "d", ""] {
        std::fs::File::open(root.join(dir)).unwrap().set_modified(past).unwrap();
    }
}

/// What rsync would still do to make one directory like the other: nothing, if they are alike.
pub fn differences(from: &Path, to: &Path) -> String {
    let mut command = Command::new("rsync");
    command.args(["-aHAXn", "--delete", "--checksum", "--itemize-changes"]);
    let output = command.arg(format!("{}/", from.display())).arg(to).output();
    let output = output.expect("rsync is needed: scripts/setup test");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub fn summary(output: &Output) -> Value {
    events(output).pop().unwrap()
}

/// Sets an extended attribute.
pub fn attribute(path: &Path, value: &str) {
    let set =
        rustix::fs::setxattr(path, "user.note", value.as_bytes(), rustix::fs::XattrFlags::empty());
    set.expect("the file system of these tests has extended attributes");
}

#[track_caller]
pub fn interrupted(mut child: std::process::Child) {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// After `tree` was copied to `there`: changes both, so that the next copy with `--delete` replaces
/// a file and a link and removes a name. Returns when the file was modified that is replaced.
pub fn outdate(tree: &Path, there: &Path) -> SystemTime {
    attribute(&there.join("d/x"), "of the old version");
    fs::set_permissions(there.join("d/x"), PermissionsExt::from_mode(0o604)).unwrap();
    let modified = there.join("d/x").metadata().unwrap().modified().unwrap();
    write(&tree.join("d/x"), b"new");
    fs::remove_file(tree.join("a")).unwrap();
    fs::remove_file(tree.join("d/link")).unwrap();
    symlink("elsewhere", tree.join("d/link")).unwrap();
    modified
}

/// What a copy after [`outdate`] replaces or removes must be in the directory of backups `at`.
pub fn are_kept(at: &Path, modified: SystemTime) {
    let kept = at.join("d/x").metadata().unwrap();
    assert_eq!(fs::read(at.join("d/x")).unwrap(), bytes(300, 2), "{at:?}");
    assert_eq!(kept.permissions().mode() & 0o7777, 0o604, "{at:?}");
    assert_eq!(kept.modified().unwrap(), modified, "{at:?}");
    assert_eq!(fs::read(at.join("a")).unwrap(), b"a", "{at:?}");
    assert_eq!(fs::read_link(at.join("d/link")).unwrap(), Path::new("../../outside"), "{at:?}");
}
