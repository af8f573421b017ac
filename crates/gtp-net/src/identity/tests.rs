//! Keys are made once, kept private, and refused when they are not.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_key_is_made_once_and_kept_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("deep/gtp");
    let first = Identity::load_or_create(&config).unwrap();
    let again = Identity::load_or_create(&config).unwrap();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert_eq!(mode_of(&config.join(IDENTITY_FILE)), 0o600);
    assert_eq!(mode_of(&config), 0o700);
    assert_eq!(fs::read_dir(&config).unwrap().count(), 1, "no draft is left behind");
}

#[test]
fn many_first_starts_at_once_end_with_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let fingerprints: HashSet<Fingerprint> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Identity::load_or_create(dir.path()).unwrap().fingerprint()))
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(fingerprints.len(), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Identity::load_or_create(dir.path()).unwrap();
    let path = dir.path().join(IDENTITY_FILE);
    for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = Identity::load_or_create(dir.path()).unwrap_err();
        assert!(matches!(refused, IdentityError::OpenToOthers { mode: m, .. } if m == mode));
        assert!(refused.to_string().contains("chmod 600"));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(Identity::load_or_create(dir.path()).is_ok());
}

#[test]
fn what_is_no_key_is_refused_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(IDENTITY_FILE);
    let pem = to_pem(&generate_pkcs8());
    let cut = pem.lines().take(2).collect::<Vec<_>>().join("\n");
    let other = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned();
    for content in [String::new(), cut, other, "x".repeat(20_000)] {
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let refused = Identity::load_or_create(dir.path());
        assert!(matches!(refused, Err(IdentityError::NotAKey { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(Identity::load_or_create(dir.path()), Err(IdentityError::File { .. })));
}

#[test]
fn a_link_to_nowhere_is_an_error_not_a_new_key_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = dir.path().join("elsewhere");
    symlink(&elsewhere, dir.path().join(IDENTITY_FILE)).unwrap();
    assert!(Identity::load_or_create(dir.path()).is_err());
    assert!(!elsewhere.exists());
}

#[test]
fn a_fingerprint_reads_back_as_it_is_printed() {
    let fingerprint = Identity::generate().fingerprint();
    let text = fingerprint.to_string();
    assert!(text.starts_with("SHA256:") && text.len() == 50 && !text.ends_with('='));
    assert_eq!(text.parse(), Ok(fingerprint));
    for bad in ["", "SHA256:", &text[1..], &text[..49], &format!("{text}="), &format!("{text}A")] {
        assert_eq!(bad.parse::<Fingerprint>(), Err(BadFingerprint));
    }
    assert_eq!(
        Fingerprint::of_public_key(b"").to_string(),
        "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
    );
}

#[test]
fn the_public_key_is_an_ed25519_key_in_its_44_bytes() {
    let identity = Identity::generate();
    assert_eq!(identity.public_key.len(), 44);
    assert_ne!(identity.fingerprint(), Identity::generate().fingerprint());
    assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.fingerprint()));
}

#[test]
fn the_configuration_directory_follows_the_environment() {
    let with = |set: &'static [(&str, &str)]| {
        let variable =
            move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
        place::config_dir_by(variable, variable("HOME").map(|home: OsString| home.into()))
    };
    assert_eq!(with(&[]), Err(NoConfigDir));
    assert_eq!(with(&[("HOME", "/h")]), Ok("/h/.config/gtp".into()));
    assert_eq!(with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]), Ok("/x/gtp".into()));
    assert_eq!(with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")]), Ok("/h/.config/gtp".into()));
    let all = with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("GTP_CONFIG_DIR", "here")]);
    assert_eq!(all, Ok("here".into()));
    assert_eq!(with(&[("HOME", "/h"), ("GTP_CONFIG_DIR", "")]), Ok("/h/.config/gtp".into()));
}
