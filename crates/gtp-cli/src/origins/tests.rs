//! What is wrong is said with the place where it can be mended.
//!
//! The programs' own settings are unknown here.

use std::fs::{Permissions, create_dir, set_permissions, write};

use clap::Arg;

use super::*;

fn origins(words: &[&str]) -> Origins {
    let arg = |name: &'static str| Arg::new(name).long(name).default_value("built in");
    let command = Command::new("x").args(["told", "read", "left"].map(arg));
    let given = command.clone().get_matches_from(words);
    let said = Said { key: "re_ad".into(), value: "v".into(), line: 7 };
    let said = BTreeMap::from([("read".to_owned(), said)]);
    Origins::of(&command, &given, Some(Path::new("/etc/x.toml")), &said)
}

#[test]
fn a_value_is_blamed_on_whoever_set_it() {
    let all = origins(&["x", "--told", "v"]);
    assert_eq!(all.blame("told", "no"), "--told: no");
    assert_eq!(all.blame("read", "no"), "/etc/x.toml, line 7: `re_ad`: no");
    assert_eq!(all.blame("left", "no"), "no");
    assert_eq!(all.sentence("read", " is more"), "/etc/x.toml, line 7: `re_ad` is more");
    assert_eq!(all.name_and_line("read"), "`re_ad` (line 7)");
    assert_eq!(all.name_and_line("left"), "--left");
    assert_eq!(origins(&["x", "--read", "v"]).blame("read", "no"), "--read: no");
}

#[test]
fn a_file_is_exposed_by_its_own_mode_and_by_that_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (inner, file) = (dir.path().join("d"), dir.path().join("d/file"));
    create_dir(&inner).unwrap();
    write(&file, "").unwrap();
    let set = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (dir_mode, file_mode, said) in [
        (0o755, 0o644, None),
        (0o755, 0o666, Some("d/file (mode 666)")),
        (0o755, 0o664, Some("d/file (mode 664)")),
        (0o777, 0o644, Some("/d (mode 777)")),
        (0o1777, 0o644, None),
    ] {
        set(&inner, dir_mode);
        set(&file, file_mode);
        let found = exposed(&file);
        match said {
            None => assert_eq!(found, None),
            Some(said) => {
                let found = found.unwrap();
                assert!(found.contains(said) && found.contains("chmod go-w '"), "{found}");
            }
        }
    }
    assert_eq!(exposed(&dir.path().join("none")), None);
}
