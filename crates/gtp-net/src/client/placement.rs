//! Which place a command means: the one rule for `get` and `put`.
//!
//! A slash at the end of a destination (or a dot, as in `.` and `..`) says that the object goes
//! beneath it, under its own name. Without one the destination is the object's new name. A
//! source directory that ends in a slash stands for its content alone. So the same command always
//! means the same place. What lies at the destination matters in one case only: a file goes beneath
//! a directory and never replaces it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gtp_store::RootKind;

/// What a command names as its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceName {
    /// A file.
    File,
    /// A directory, by its name.
    Directory,
    /// A directory's content: the name ends in a slash.
    Content,
}

/// How a destination is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It ends in a slash, or in `.` or `..`.
    Slash,
    /// It ends in a name.
    Name,
}

/// Where an object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Beneath the destination, a directory, under its own name.
    Beneath,
    /// To the destination itself: the file, or the directory that gets its entries.
    Itself,
}

impl SourceName {
    /// What the command names, if it is of this kind and its path ends so.
    pub fn of(kind: RootKind, end: End) -> SourceName {
        match (kind, end) {
            (RootKind::File, _) => SourceName::File,
            (RootKind::Dir, End::Name) => SourceName::Directory,
            (RootKind::Dir, End::Slash) => SourceName::Content,
        }
    }
}

impl End {
    /// How this path ends.
    pub fn of(path: &Path) -> End {
        let last = path.as_os_str().as_bytes().rsplit(|&b| b == b'/').next();
        match last {
            Some(b"" | b"." | b"..") | None => End::Slash,
            Some(_) => End::Name,
        }
    }
}

/// Where an object goes, by its name and by how the destination is written; `there` is what the
/// first attempt finds at the destination.
pub(super) fn placement(said: SourceName, destination: End, there: Option<RootKind>) -> Placement {
    match (said, destination, there) {
        (SourceName::Content, _, _) => Placement::Itself,
        (SourceName::File | SourceName::Directory, End::Slash, _) => Placement::Beneath,
        (SourceName::Directory, End::Name, _) => Placement::Itself,
        (SourceName::File, End::Name, Some(RootKind::Dir)) => Placement::Beneath,
        (SourceName::File, End::Name, Some(RootKind::File) | None) => Placement::Itself,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [End; 2] = [End::Slash, End::Name];
    const SAID: [SourceName; 3] = [SourceName::File, SourceName::Directory, SourceName::Content];

    /// What is at the destination when an object of this kind has gone there.
    fn after(said: SourceName, goes: Placement) -> RootKind {
        match (said, goes) {
            (SourceName::File, Placement::Itself) => RootKind::File,
            (_, Placement::Beneath) | (SourceName::Directory | SourceName::Content, _) => {
                RootKind::Dir
            }
        }
    }

    #[test]
    fn the_same_words_mean_the_same_place_once_they_have_been_followed() {
        for (said, end) in SAID.iter().flat_map(|&said| ENDS.map(|end| (said, end))) {
            for there in [None, Some(RootKind::File), Some(RootKind::Dir)] {
                let first = placement(said, end, there);
                let second = placement(said, end, Some(after(said, first)));
                assert_eq!(first, second, "{said:?} {end:?} {there:?}");
            }
        }
    }

    #[test]
    fn only_where_a_file_goes_depends_on_what_is_there() {
        for (said, end) in SAID.iter().flat_map(|&said| ENDS.map(|end| (said, end))) {
            let absent = placement(said, end, None);
            let present = placement(said, end, Some(RootKind::Dir));
            assert_eq!(absent != present, said == SourceName::File && end == End::Name, "{said:?}");
        }
    }

    #[test]
    fn dots_at_the_end_count_as_a_slash() {
        for text in ["/", "d/", "d//", ".", "..", "d/.", "d/..", "../", ""] {
            assert_eq!(End::of(Path::new(text)), End::Slash, "{text}");
        }
        for text in ["d", "d/e", "...", ".d", "d.", "../d"] {
            assert_eq!(End::of(Path::new(text)), End::Name, "{text}");
        }
    }
}
