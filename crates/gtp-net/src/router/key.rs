//! The key that a router shares with its hosts, and the file that it is in.
//!
//! The file has one line of 64 hexadecimal digits. Whoever can read it can ask as any host and
//! answer as the router, so nobody but its owner may.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gtp_proto::router::{TAG_BYTES, Tags, Use};
use zeroize::Zeroizing;

use crate::identity::place::make_dir;

/// A key of 32 bytes, as the three that follow from it.
#[derive(Clone, PartialEq, Eq)]
pub struct RouterKey {
    to_router: Zeroizing<[u8; 32]>,
    to_host: Zeroizing<[u8; 32]>,
    pass: Zeroizing<[u8; 32]>,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("cannot use the router's key in {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others may read it.
    #[error("others may read the router's key in {path} (mode {mode:03o}); run: chmod go= '{path}'",
        path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a key.
    #[error("{} is no key of a router: it has one line of 64 hexadecimal digits", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

/// A file is no key if it is longer: its digits and a line's end.
const FILE_MOST: u64 = 66;

impl RouterKey {
    /// The key of these bytes.
    pub fn new(key: &[u8; 32]) -> RouterKey {
        let derived = |purpose: &str| {
            Zeroizing::new(blake3::derive_key(&format!("gtp router 1 {purpose}"), key))
        };
        RouterKey {
            to_router: derived("to router"),
            to_host: derived("to host"),
            pass: derived("pass"),
        }
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load(path: &Path) -> Result<RouterKey, KeyError> {
        let failed = |error| KeyError::Io { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::new());
        let malformed = || KeyError::Malformed { path: path.to_owned() };
        file.take(FILE_MOST + 1).read_to_string(&mut text).map_err(failed)?;
        let digits = text.trim_end();
        let key = digits_of(digits).filter(|_| text.len() as u64 <= FILE_MOST);
        Ok(RouterKey::new(&*key.ok_or_else(malformed)?))
    }

    /// Reads a key; draws one where there is no such file, and makes its directory where there is
    /// none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load_or_create(path: &Path) -> Result<RouterKey, KeyError> {
        match RouterKey::load(path) {
            Err(KeyError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            ended => return ended,
        }
        let made = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => make_dir(dir),
            Some(_) | None => Ok(()),
        };
        match made.and_then(|()| draw(path)) {
            // Another process was quicker: its key counts.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            drawn => drawn.map_err(|error| KeyError::Io { path: path.to_owned(), error })?,
        }
        RouterKey::load(path)
    }

    fn key(&self, purpose: Use) -> &[u8; 32] {
        match purpose {
            Use::ToRouter => &self.to_router,
            Use::ToHost => &self.to_host,
            Use::Pass => &self.pass,
        }
    }
}

/// Draws a key into a file that is not there. It has its name only once it is whole, so that nobody
/// reads half of it; until then it has one that nobody else draws and nothing left behind has.
fn draw(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0; 32]);
    gtp_sys::entropy::fill(&mut *key);
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = Zeroizing::new(digits + "\n");
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{:016x}", gtp_sys::entropy::u64()));
    let new = PathBuf::from(name);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(digits.as_bytes()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new)?;
    named
}

/// The bytes of 64 hexadecimal digits.
fn digits_of(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    // `from_str_radix` would take signs, too.
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = Zeroizing::new([0; 32]);
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}

impl Tags for RouterKey {
    fn tag(&self, purpose: Use, bytes: &[u8]) -> [u8; TAG_BYTES] {
        *blake3::keyed_hash(self.key(purpose), bytes).as_bytes()
    }
}

impl fmt::Debug for RouterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouterKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_drawn_is_read_again_and_tags_differ_by_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router-key");
        let drawn = RouterKey::load_or_create(&path).unwrap();
        let read = RouterKey::load_or_create(&path).unwrap();
        let tag = |key: &RouterKey, purpose| key.tag(purpose, b"something");
        assert_eq!(tag(&drawn, Use::ToHost), tag(&read, Use::ToHost));
        assert_ne!(tag(&drawn, Use::ToHost), tag(&drawn, Use::ToRouter));
        assert_ne!(tag(&drawn, Use::ToHost), tag(&drawn, Use::Pass));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_is_drawn_where_there_is_no_directory_yet_and_beside_what_a_crash_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("gtp").join("router-key");
        RouterKey::load_or_create(&path).unwrap();
        let made = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(made.mode() & 0o777, 0o700);
        let path = dir.path().join("router-key");
        let left = format!("router-key.new-{}", std::process::id());
        std::fs::write(dir.path().join(left), "half of a k").unwrap();
        RouterKey::load_or_create(&path).unwrap();
    }

    #[test]
    fn processes_that_draw_at_once_have_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router-key");
        draw(&path).unwrap();
        let first = std::fs::read(&path).unwrap();
        assert_eq!(draw(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), first);
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_no_key_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router-key");
        RouterKey::load_or_create(&path).unwrap();
        let open = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&path, open).unwrap();
        assert!(matches!(RouterKey::load(&path), Err(KeyError::Exposed { mode: 0o640, .. })));
        for wrong in ["", "x", &"0".repeat(63), &"+1".repeat(32), &"0".repeat(80)] {
            let path = dir.path().join("wrong");
            let _ = std::fs::remove_file(&path);
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(wrong.as_bytes()).unwrap();
            assert!(matches!(RouterKey::load(&path), Err(KeyError::Malformed { .. })), "{wrong}");
        }
    }
}
