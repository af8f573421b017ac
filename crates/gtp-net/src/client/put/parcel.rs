//! What `put` sends: the user's paths as one object.
//!
//! Each path is one part, under the name that the user gave; links are followed. What cannot be
//! sent is left out and reported. Where the parts go has been decided before.

use std::path::{Path, PathBuf};

use gtp_store::{BlockSource, Export, FileSource, RelPath, RootKind, Scanned, Value};

use super::shared::Share;
use crate::client::placement::{End, Placement, SourceName, placement};
use crate::flows::{Bundle, Failure, FailureKind, Part, next_change_shows};

/// Opens a source; called again for each attempt, on a thread that may block.
pub type MakeSource = Box<dyn FnMut() -> Result<Box<dyn BlockSource>, Failure> + Send>;

/// A source, and values of blocks that the server may have already in older versions of its files:
/// of each file from the first block on.
pub type Content = (Box<dyn BlockSource>, Vec<(RelPath, Vec<Value>)>);

/// Opens a directory's content, as [`MakeSource`] does. It may wait until it is known what to send.
pub type MakeContent = Box<dyn FnMut() -> Result<Content, Failure> + Send>;

/// What is sent.
pub enum Objects {
    /// Files and directories of the file system.
    Paths(Vec<PathBuf>),
    /// The same, which other transfers send as well.
    Shared(Share),
    /// Something else, under this name.
    Made(RelPath, MakeSource),
    /// A directory's content.
    Content(MakeContent),
}

/// What is sent, as one object.
pub(super) struct Parcel {
    pub source: Box<dyn BlockSource>,
    pub skipped: Vec<Failure>,
    pub values: Vec<(RelPath, Vec<Value>)>,
}

/// The destination, as the command and the first attempt see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub end: End,
    pub there: Option<RootKind>,
}

/// A part, and how it is named.
struct Item {
    said: SourceName,
    /// `None` where the path has no name, as `.` and `/` have none.
    name: Option<RelPath>,
    source: Box<dyn BlockSource>,
}

/// Lists what is to be sent. Blocks.
pub(super) fn pack(objects: &mut Objects, aim: Aim) -> Result<Parcel, Failure> {
    let (mut skipped, mut values) = (Vec::new(), Vec::new());
    let several = matches!(objects, Objects::Paths(paths) if paths.len() > 1);
    let mut items: Vec<Item> = match objects {
        Objects::Made(name, make) => {
            let source = make()?;
            let said = SourceName::of(source.manifest().root_kind, End::Name);
            vec![Item { said, name: Some(name.clone()), source }]
        }
        Objects::Content(make) => {
            let (source, known) = make()?;
            values = known;
            vec![Item { said: SourceName::Content, name: None, source }]
        }
        Objects::Shared(share) => return share.pack(aim),
        Objects::Paths(paths) => {
            open_paths(paths, &mut skipped)?.into_iter().map(Listed::open).collect()
        }
    };
    let first = items.first().map(|item| item.said);
    if place_of(several, first, aim)? == Placement::Itself {
        return Ok(Parcel { source: items.remove(0).source, skipped, values });
    }
    let bundle = Bundle::new(items.into_iter().map(Item::part).collect());
    let bundle = bundle.map_err(|why| Failure::new(FailureKind::Usage, why.to_string()))?;
    for (path, why) in bundle.skipped() {
        skipped.push(Failure::new(FailureKind::Partial, why.to_string()).about(path));
    }
    Ok(Parcel { source: Box::new(bundle), skipped, values })
}

/// Where the objects go, of which this is the first one.
///
/// # Errors
/// If there is none, or there are several and the destination is no directory.
pub(super) fn place_of(
    several: bool,
    first: Option<SourceName>,
    aim: Aim,
) -> Result<Placement, Failure> {
    let Some(said) = first else {
        return Err(Failure::new(FailureKind::Usage, "nothing to send was named"));
    };
    if several && aim.end == End::Name && aim.there != Some(RootKind::Dir) {
        let text = "several objects need a directory: end the address with a slash";
        return Err(Failure::new(FailureKind::Destination, text));
    }
    if several { Ok(Placement::Beneath) } else { Ok(placement(said, aim.end, aim.there)) }
}

impl Item {
    fn part(self) -> Part {
        Part { name: part_name(self.said, self.name), source: self.source }
    }
}

/// Under which name an object is joined with others.
pub(super) fn part_name<N>(said: SourceName, name: Option<N>) -> Option<N> {
    match said {
        SourceName::Content => None,
        SourceName::File | SourceName::Directory => name,
    }
}

/// A path's object, listed.
pub(super) struct Listed {
    pub said: SourceName,
    /// `None` where the path has no name.
    pub name: Option<RelPath>,
    pub scanned: Scanned,
}

impl Listed {
    fn open(self) -> Item {
        let source = FileSource::new(self.scanned).with_settling(next_change_shows);
        Item { said: self.said, name: self.name, source: Box::new(source) }
    }
}

/// Opens what is to be sent. Of several paths, those that cannot be opened are left out.
pub(super) fn open_paths(
    paths: &[PathBuf],
    skipped: &mut Vec<Failure>,
) -> Result<Vec<Listed>, Failure> {
    let mut listed = Vec::new();
    let mut first = None;
    for path in paths {
        match list_path(path, skipped) {
            Ok(object) => listed.push(object),
            Err(failure) => {
                skipped.push(Failure::new(FailureKind::Partial, failure.text.clone()));
                first.get_or_insert(failure);
            }
        }
    }
    match first {
        Some(failure) if listed.is_empty() => Err(failure),
        Some(_) | None => Ok(listed),
    }
}

fn list_path(path: &Path, skipped: &mut Vec<Failure>) -> Result<Listed, Failure> {
    let end = End::of(path);
    let shown = || gtp_store::escaped(&path.to_string_lossy());
    if end == End::Slash && std::fs::metadata(path).is_err_and(|e| is_no_directory(&e)) {
        let text = format!("{}: is not a directory, although its path ends in a slash", shown());
        return Err(Failure::new(FailureKind::Missing, text));
    }
    let scanned = Export::open(path)?.scan(None)?;
    for left_out in &scanned.skipped {
        let failure = Failure::new(FailureKind::Partial, left_out.why.to_string());
        skipped.push(failure.about(left_out.shown()));
    }
    let more = scanned.skipped_total.saturating_sub(scanned.skipped.len() as u64);
    if more > 0 {
        skipped.push(Failure::new(FailureKind::Partial, format!("{more} more")));
    }
    let said = SourceName::of(scanned.manifest.root_kind, end);
    let name =
        match (said, path.file_name()) {
            (SourceName::Content, _) | (SourceName::File | SourceName::Directory, None) => None,
            (SourceName::File | SourceName::Directory, Some(name)) => {
                let name = RelPath::from_bytes(name.as_encoded_bytes());
                Some(name.map_err(|why| {
                    Failure::new(FailureKind::Usage, format!("{}: {why}", shown()))
                })?)
            }
        };
    Ok(Listed { said, name, scanned })
}

fn is_no_directory(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Aim = Aim { end: End::Slash, there: Some(RootKind::Dir) };
    const NEW: Aim = Aim { end: End::Name, there: None };

    fn paths(paths: &[PathBuf]) -> Objects {
        Objects::Paths(paths.to_vec())
    }

    fn sent(objects: &[PathBuf], aim: Aim) -> Vec<String> {
        let parcel = pack(&mut paths(objects), aim).ok().unwrap();
        let entries = &parcel.source.manifest().entries;
        entries.iter().map(|entry| entry.path.as_str().to_owned()).collect()
    }

    #[test]
    fn no_objects_at_all_are_refused_also_into_a_directory() {
        for aim in [HERE, NEW] {
            let failure = pack(&mut paths(&[]), aim).err().unwrap();
            assert_eq!(failure.kind, FailureKind::Usage);
        }
    }

    #[test]
    fn of_several_objects_those_that_are_not_there_are_left_out_by_name_and_the_rest_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), b"content").unwrap();
        let mut several = paths(&[at("gone"), at("a"), at("a/")]);
        let parcel = pack(&mut several, HERE).ok().unwrap();
        let names: Vec<&str> =
            parcel.source.manifest().entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(names, ["a"], "beneath the destination, as if all were there");
        let [gone, slash] = &parcel.skipped[..] else { panic!("{:?}", parcel.skipped) };
        assert!(gone.kind == FailureKind::Partial && gone.text.contains("gone: "), "{gone}");
        assert!(slash.text.contains("is not a directory"), "{slash}");
        assert_eq!(pack(&mut several, NEW).err().unwrap().kind, FailureKind::Destination);
        for all in [&[at("gone")][..], &[at("gone"), at("lost")]] {
            let failure = pack(&mut paths(all), HERE).err().unwrap();
            assert!(failure.kind == FailureKind::Missing && failure.text.contains("gone"));
        }
    }

    #[test]
    fn an_object_has_the_name_that_it_was_given_wherever_links_lead() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("tree")).unwrap();
        std::fs::write(at("tree/f1"), b"content").unwrap();
        std::os::unix::fs::symlink("tree/f1", at("lf")).unwrap();
        std::os::unix::fs::symlink("tree", at("ld")).unwrap();
        for (object, arrives) in [
            ("lf", &["lf"][..]),
            ("tree/f1", &["f1"]),
            ("tree/../lf", &["lf"]),
            ("ld", &["ld", "ld/f1"]),
            ("tree", &["tree", "tree/f1"]),
            ("ld/", &["f1"]),
            ("tree/", &["f1"]),
            ("tree/.", &["f1"]),
            ("tree/../tree/", &["f1"]),
        ] {
            assert_eq!(sent(&[at(object)], HERE), arrives, "{object}");
        }
        assert_eq!(sent(&[at("ld"), at("lf")], HERE), ["ld", "ld/f1", "lf"]);
        assert_eq!(sent(&[at("ld")], NEW), ["f1"], "under the name of the destination");
        let refused = pack(&mut paths(&[at("lf/")]), HERE).err().unwrap();
        assert_eq!(refused.kind, FailureKind::Missing);
    }

    #[test]
    fn a_path_that_is_too_deep_under_its_new_name_is_left_out_by_name_and_the_rest_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("t").join("d/".repeat(254));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("bottom"), b"x").unwrap();
        std::fs::write(dir.path().join("t/top"), b"x").unwrap();
        let parcel = pack(&mut paths(&[dir.path().join("t")]), HERE).ok().unwrap();
        assert_eq!(parcel.source.manifest().entries.last().unwrap().path.as_str(), "t/top");
        let [left_out] = &parcel.skipped[..] else { panic!("{:?}", parcel.skipped) };
        assert_eq!(left_out.kind, FailureKind::Partial);
        assert!(left_out.text.contains("d/d/bottom: "), "{left_out}");
    }
}
