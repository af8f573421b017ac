//! What the paths that a near end asks for mean here, at the far end.
//!
//! A path is relative to the login's home; no shell reads it. What is exported is the directory
//! that holds what was named, and the paths beneath it have no links: these are followed here,
//! once, as the login itself would follow them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use gtp::{Failure, FailureKind};

pub use super::hello::is_content;
use super::hello::{OBJECTS_MAX, Object};

/// What is to be exported, and what in it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub root: PathBuf,
    pub objects: Vec<Object>,
}

/// What a path asks for by its last part: whether an object of this name may be the answer.
pub fn asks_for(path: &str, name: &str) -> bool {
    let (last, pattern) = last_part(path);
    last == name || pattern.is_some_and(|pattern| pattern.matches_with(name, OPTIONS))
}

/// The last part of a path, and the pattern that it is, if it is one.
fn last_part(path: &str) -> (&str, Option<Pattern>) {
    let last = path.rsplit('/').next().unwrap_or_default();
    (last, Pattern::new(last).ok().filter(|_| last.contains(['*', '?', '['])))
}

/// The names that several paths ask for, made once for many questions.
#[derive(Debug, Default)]
pub struct Asked {
    /// Whether a path stands for the content of a directory, which may have any name.
    any: bool,
    names: HashSet<String>,
    patterns: Vec<Pattern>,
}

impl Asked {
    /// What these paths ask for.
    pub fn of(paths: &[String]) -> Asked {
        let mut asked = Asked::default();
        for path in paths {
            let (name, pattern) = last_part(path);
            asked.any |= is_content(path);
            asked.names.insert(name.to_owned());
            asked.patterns.extend(pattern);
        }
        asked
    }

    /// Whether an object of this name may be the answer to one of the paths.
    pub fn may_be(&self, name: &str) -> bool {
        let matches = |pattern: &Pattern| pattern.matches_with(name, OPTIONS);
        self.any || self.names.contains(name) || self.patterns.iter().any(matches)
    }
}

/// Something that a requested path stands for.
struct Named {
    /// The position of the requested path.
    index: usize,
    /// Where it is, under the name that was asked for.
    found: PathBuf,
    /// The same without links.
    real: PathBuf,
}

/// Finds what is to be read. Of several paths, those at which nothing can be read are left out.
///
/// # Errors
/// [`FailureKind::Missing`] if nothing is at any of them, [`FailureKind::Destination`] if it may
/// not be read.
pub fn to_read(home: &Path, paths: &[String]) -> Result<Found, Failure> {
    let (named, _) = named(home, paths)?;
    let mut root = PathBuf::new();
    for (number, Named { real, .. }) in named.iter().enumerate() {
        let holder = real.parent().unwrap_or(real);
        root = if number == 0 { holder.to_owned() } else { common(&root, holder) };
    }
    let root = readable(root);
    let objects = named.into_iter().map(|Named { index, found, real }| {
        let name = text(found.file_name().unwrap_or_default())?;
        Ok(Object { path: beneath(&root, &real)?, name, index })
    });
    let objects = objects.collect::<Result<_, Failure>>()?;
    Ok(Found { root, objects })
}

/// Finds what is to be sent: paths as a sender of this machine's own would name them, and whether
/// they go beneath their place whatever it is called. Several do, and so does a directory that is
/// named without a slash at its end. Of several paths, those at which nothing can be read are among
/// them, as they were asked for: who sends names them.
///
/// # Errors
/// As [`to_read`].
pub fn to_send(home: &Path, paths: &[String]) -> Result<(Vec<PathBuf>, bool), Failure> {
    let (named, missing) = named(home, paths)?;
    let mut beneath = named.len() + missing.len() > 1;
    let mut all = Vec::with_capacity(named.len());
    for Named { index, found, real } in named {
        let is_content = paths.get(index).is_some_and(|path| is_content(path));
        beneath |= real.is_dir() && !is_content;
        let mut found = found.into_os_string();
        if is_content {
            found.push("/");
        }
        all.push(found.into());
    }
    for path in missing {
        all.push(absolute(home, path)?);
    }
    Ok((all, beneath))
}

/// Looks up what the requested paths stand for. Returns also the paths at which nothing can be
/// read; if that is all of them, the first one's failure.
fn named<'a>(home: &Path, paths: &'a [String]) -> Result<(Vec<Named>, Vec<&'a str>), Failure> {
    let (mut named, mut missing) = (Vec::new(), Vec::new());
    let mut first = None;
    for (index, path) in paths.iter().enumerate() {
        match look_up(home, path, index) {
            Ok(found) => named.extend(found),
            Err(failure) if failure.kind == FailureKind::Usage => return Err(failure),
            Err(failure) => {
                missing.push(path.as_str());
                first.get_or_insert(failure);
            }
        }
        if named.len() > OBJECTS_MAX {
            let text = format!("more than {OBJECTS_MAX} objects; name the directory instead");
            return Err(Failure::new(FailureKind::Usage, text).about(gtp_text::of_text(path)));
        }
    }
    match first {
        Some(failure) if named.is_empty() => Err(failure),
        Some(_) | None => Ok((named, missing)),
    }
}

/// What one requested path stands for.
fn look_up(home: &Path, path: &str, index: usize) -> Result<Vec<Named>, Failure> {
    let all = expanded(home, path)?.into_iter().map(|found| {
        let real = found.canonicalize().map_err(|error| failed(path, &error))?;
        check_kind(path, &real)?;
        Ok(Named { index, found, real })
    });
    all.collect()
}

/// Refuses what is no file and no directory, or no directory where one is asked for.
fn check_kind(path: &str, real: &Path) -> Result<(), Failure> {
    let about = std::fs::metadata(real).map_err(|error| failed(path, &error))?;
    let (kind, why) = if !about.is_dir() && !about.is_file() {
        (FailureKind::Other, "is neither a regular file nor a directory")
    } else if is_content(path) && !about.is_dir() {
        (FailureKind::Missing, "is not a directory, although its path ends in a slash")
    } else {
        return Ok(());
    };
    Err(Failure::new(kind, why).about(gtp_text::of_text(path)))
}

/// Checks that what is at a path that is to be written can be written, or made.
///
/// # Errors
/// [`FailureKind::Destination`] if a device, a pipe or a socket is there, something else than a
/// directory although the path ends in a slash, or something else than a directory above it.
pub fn check_target(home: &Path, path: &str) -> Result<(), Failure> {
    // Without a slash at its end, which would hide what is no directory.
    let full: PathBuf = absolute(home, path)?.components().collect();
    let refused =
        |why: &str| Err(Failure::new(FailureKind::Destination, why).about(gtp_text::of_text(path)));
    let above = full.parent().and_then(|holder| std::fs::metadata(holder).ok());
    match std::fs::metadata(&full) {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(there) if !there.is_file() => refused("is a device, pipe or socket, and no destination"),
        Ok(_) if is_content(path) => {
            refused("is not a directory, although its path ends in a slash")
        }
        Ok(_) => Ok(()),
        Err(_) if above.is_some_and(|above| !above.is_dir()) => {
            refused("what should hold it is not a directory")
        }
        // Finding the place says what is wrong, if something is.
        Err(_) => Ok(()),
    }
}

/// Finds the place that is to be written. A link there to a file is followed.
///
/// # Errors
/// [`FailureKind::Destination`] if the directory that should hold it is not there.
pub fn to_write(home: &Path, path: &str) -> Result<Found, Failure> {
    let full = absolute(home, path)?;
    match full.canonicalize() {
        Ok(real) if !real.is_dir() => {
            let name = real.file_name().map(OsStr::to_owned);
            place((real.parent().unwrap_or(&real).to_owned(), name))
        }
        Ok(_) | Err(_) => to_make_alike(home, path),
    }
}

/// Finds the place that is to be made like another one. A link there to a directory is followed,
/// and one to a file is itself the place.
///
/// # Errors
/// As [`to_write`].
pub fn to_make_alike(home: &Path, path: &str) -> Result<Found, Failure> {
    let full = absolute(home, path)?;
    match full.canonicalize() {
        Ok(real) if real.is_dir() => place((real, None)),
        Ok(_) | Err(_) => {
            let name = full.file_name().map(OsStr::to_owned);
            let holder = full.parent().unwrap_or(&full).canonicalize().map_err(|error| {
                let text = match error.kind() {
                    ErrorKind::NotFound => {
                        "the directory that should hold it is not there: make it first".into()
                    }
                    _ => error.to_string(),
                };
                Failure::new(FailureKind::Destination, text).about(gtp_text::of_text(path))
            })?;
            place((holder, name))
        }
    }
}

/// A name in a directory, or the directory itself, as what was found.
fn place((holder, name): (PathBuf, Option<OsString>)) -> Result<Found, Failure> {
    let spot = match &name {
        Some(name) => holder.join(name),
        None => holder.clone(),
    };
    let root = readable(holder);
    let name = text(name.as_deref().unwrap_or_default())?;
    let object = Object { path: beneath(&root, &spot)?, name, index: 0 };
    Ok(Found { root, objects: vec![object] })
}

/// The paths that a requested path stands for. What is there under the very name comes before what
/// a pattern means.
fn expanded(home: &Path, path: &str) -> Result<Vec<PathBuf>, Failure> {
    let full = absolute(home, path)?;
    match full.symlink_metadata() {
        Ok(_) => return Ok(vec![full]),
        Err(error) if error.kind() == ErrorKind::NotFound && path.contains(['*', '?', '[']) => {}
        Err(error) => return Err(failed(path, &error)),
    }
    let home = Pattern::escape(home.to_str().unwrap_or_default());
    let pattern = absolute(Path::new(&home), path)?;
    let found = glob::glob_with(pattern.to_str().unwrap_or_default(), OPTIONS);
    let found = found.map_err(|error| {
        Failure::new(FailureKind::Usage, error.to_string()).about(gtp_text::of_text(path))
    })?;
    let found: Vec<PathBuf> = found.flatten().take(OBJECTS_MAX + 1).collect();
    if found.is_empty() {
        let text = "nothing there has a name like this";
        return Err(Failure::new(FailureKind::Missing, text).about(gtp_text::of_text(path)));
    }
    Ok(found)
}

/// Patterns mean what a shell makes of them: neither a slash nor a dot in front is guessed.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

fn absolute(home: &Path, path: &str) -> Result<PathBuf, Failure> {
    match path.strip_prefix('~') {
        None => Ok(home.join(path)),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            Ok(home.join(rest.trim_start_matches('/')))
        }
        Some(_) => {
            let text = "another user's home is not looked up; write its path (or ./~NAME)";
            Err(Failure::new(FailureKind::Usage, text).about(gtp_text::of_text(path)))
        }
    }
}

/// The nearest directory at or above this one that can be opened for reading.
fn readable(mut dir: PathBuf) -> PathBuf {
    while File::open(&dir).is_err() && dir.pop() {}
    dir
}

/// The longest path that both are beneath.
fn common(one: &Path, other: &Path) -> PathBuf {
    let both = one.components().zip(other.components());
    both.take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
}

fn beneath(root: &Path, path: &Path) -> Result<String, Failure> {
    text(path.strip_prefix(root).unwrap_or(path).as_os_str())
}

fn text(name: &OsStr) -> Result<String, Failure> {
    let shown = || gtp_text::of_text(&name.to_string_lossy());
    let not_text = || Failure::new(FailureKind::Other, "the name is not UTF-8").about(shown());
    name.to_str().map(str::to_owned).ok_or_else(not_text)
}

fn failed(path: &str, error: &std::io::Error) -> Failure {
    let (kind, text) = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            (FailureKind::Missing, "no such file or directory".to_owned())
        }
        ErrorKind::PermissionDenied => (FailureKind::Destination, "permission denied".to_owned()),
        _ => (FailureKind::Other, error.to_string()),
    };
    Failure::new(kind, text).about(gtp_text::of_text(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home with files and links.
    fn home() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("h[o]me");
        std::fs::create_dir_all(home.join("data/deep")).unwrap();
        for name in ["a.gz", "b.gz", ".c.gz", "x*y", "data/f"] {
            std::fs::write(home.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("data/deep", home.join("link")).unwrap();
        (dir, home)
    }

    fn read(home: &Path, path: &str) -> Result<Vec<(String, String)>, FailureKind> {
        let found = to_read(home, &[path.to_owned()]).map_err(|failure| failure.kind)?;
        Ok(found.objects.into_iter().map(|object| (object.path, object.name)).collect())
    }

    fn pairs(of: &[(&str, &str)]) -> Result<Vec<(String, String)>, FailureKind> {
        Ok(of.iter().map(|(path, name)| (path.to_string(), name.to_string())).collect())
    }

    #[test]
    fn paths_are_the_logins_and_patterns_mean_what_they_mean_to_a_shell() {
        let (_dir, home) = home();
        for path in ["a.gz", "./a.gz", "~/a.gz", home.join("a.gz").to_str().unwrap()] {
            assert_eq!(read(&home, path), pairs(&[("a.gz", "a.gz")]), "{path}");
        }
        assert_eq!(read(&home, "*.gz"), pairs(&[("a.gz", "a.gz"), ("b.gz", "b.gz")]));
        assert_eq!(read(&home, "[ab].g?"), pairs(&[("a.gz", "a.gz"), ("b.gz", "b.gz")]));
        assert_eq!(read(&home, "x*y"), pairs(&[("x*y", "x*y")]), "its very name comes first");
        assert_eq!(read(&home, "d*/f"), pairs(&[("f", "f")]));
    }

    #[test]
    fn a_link_is_followed_and_keeps_its_name() {
        let (_dir, home) = home();
        assert_eq!(read(&home, "link"), pairs(&[("deep", "link")]));
        let found = to_read(&home, &["link".into(), "a.gz".into()]).unwrap();
        assert_eq!(found.root, home);
        assert_eq!(found.objects[0].path, "data/deep");
    }

    #[test]
    fn what_is_sent_is_named_as_its_path_and_goes_beneath_as_rsync_has_it() {
        let (_dir, home) = home();
        let sent = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| path.to_string()).collect();
            let (all, beneath) = to_send(&home, &paths).unwrap();
            let text = |path: &PathBuf| {
                path.to_str().unwrap().strip_prefix(home.to_str().unwrap()).unwrap().to_owned()
            };
            (all.iter().map(text).collect::<Vec<_>>().join(" "), beneath)
        };
        assert_eq!(sent(&["a.gz"]), ("/a.gz".into(), false));
        assert_eq!(sent(&["*.gz"]), ("/a.gz /b.gz".into(), true));
        assert_eq!(sent(&["link"]), ("/link".into(), true));
        assert_eq!(sent(&["data/"]), ("/data//".into(), false));
        let missing = to_send(&home, &["none".into()]).unwrap_err();
        assert_eq!(missing.kind, FailureKind::Missing);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let (_dir, home) = home();
        for (path, kind) in [
            ("none", FailureKind::Missing),
            ("none*", FailureKind::Missing),
            ("a.gz/", FailureKind::Missing),
            ("~root/x", FailureKind::Usage),
            ("none/***", FailureKind::Usage),
        ] {
            assert_eq!(read(&home, path), Err(kind), "{path}");
        }
    }

    #[test]
    fn a_place_to_write_is_a_directory_that_is_there_or_a_name_in_one() {
        let (_dir, home) = home();
        let place = |path: &str| {
            let mut found = to_write(&home, path).unwrap();
            let object = found.objects.remove(0);
            let root = found.root.strip_prefix(&home).unwrap().to_str().unwrap().to_owned();
            (root, object.path)
        };
        let is = |root: &str, path: &str| (root.to_owned(), path.to_owned());
        assert_eq!(place(""), is("", ""));
        assert_eq!(place("data/"), is("data", ""));
        assert_eq!(place("link"), is("data/deep", ""));
        assert_eq!(place("new"), is("", "new"));
        assert_eq!(place("data/new/"), is("data", "new"));
        assert_eq!(place("~/data/f"), is("data", "f"));
        std::os::unix::fs::symlink("data/f", home.join("to file")).unwrap();
        assert_eq!(place("to file"), is("data", "f"));
        let alike = |path: &str| to_make_alike(&home, path).unwrap().objects.remove(0).path;
        assert_eq!(
            (alike("to file"), alike("link"), alike("new")),
            ("to file".into(), String::new(), "new".into())
        );
        let refused = to_write(&home, "none/new").unwrap_err();
        assert_eq!(refused.kind, FailureKind::Destination);
    }

    #[test]
    fn what_is_no_file_and_no_directory_is_no_target() {
        let (_dir, home) = home();
        let pipe = home.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink("pipe", home.join("to pipe")).unwrap();
        std::os::unix::fs::symlink("none", home.join("to none")).unwrap();
        for path in ["", "data", "data/", "data/f", "link", "new", "data/new/", "to none"] {
            assert!(check_target(&home, path).is_ok(), "{path}");
        }
        for (path, why) in [
            ("/dev/null", "is a device, pipe or socket"),
            ("/dev/null/", "is a device, pipe or socket"),
            ("pipe", "is a device, pipe or socket"),
            ("to pipe", "is a device, pipe or socket"),
            ("pipe/x", "what should hold it is not a directory"),
            ("data/f/x", "what should hold it is not a directory"),
            ("data/f/", "is not a directory, although its path ends in a slash"),
        ] {
            let refused = check_target(&home, path).unwrap_err();
            assert_eq!(refused.kind, FailureKind::Destination, "{path}");
            assert!(refused.to_string().contains(why), "{path}: {refused}");
        }
    }

    #[test]
    fn an_answer_must_have_a_name_that_was_asked_for() {
        assert!(asks_for("a/b", "b") && asks_for("a/*.gz", "x.gz") && asks_for("x*y", "x*y"));
        assert!(!asks_for("a/b", "c") && !asks_for("*.gz", ".bashrc") && !asks_for("*", ".ssh"));
        let asked = Asked::of(&["a/b".into(), "c/*.gz".into(), "x*y".into()]);
        assert!(["b", "x.gz", "x*y", "xzy"].iter().all(|name| asked.may_be(name)));
        assert!(!["a", "c", ".x.gz", "*.g"].iter().any(|name| asked.may_be(name)));
        assert!(Asked::of(&["a/b".into(), "c/".into()]).may_be(".any"));
        assert!(is_content("") && is_content("a/") && is_content("..") && is_content("~"));
        assert!(!is_content("a") && !is_content("a~"));
    }
}
