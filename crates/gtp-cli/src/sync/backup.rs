//! `--backup` and `--backup-dir`: what would be overwritten or removed is kept under another name.
//!
//! A file that is replaced gets its further name before, as a link to the same content, so it is
//! never missing and its unchanged blocks still serve the new version. What is removed is moved.
//! The names are made here and are beneath the tree, whatever a source calls its files; each end
//! checks them once more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use gtp::replica::{Deed, Dress, Node, Seen};
use gtp::{Failure, FailureKind, Mtime, RelPath};

use super::plan::{Plan, ancestors};

/// Where old versions go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    place: Place,
    suffix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Beside each name.
    Beside,
    /// In a directory beneath the destination.
    Beneath(RelPath),
    /// In a directory elsewhere on this machine, from the destination's.
    Outside(PathBuf),
}

impl Backup {
    /// As the options say; `None` if nothing is to be kept.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] for a directory or a suffix that no name can have.
    pub fn of(
        is_wanted: bool,
        dir: Option<&str>,
        suffix: Option<&str>,
    ) -> Result<Option<Backup>, Failure> {
        let usage = |text: String| Failure::new(FailureKind::Usage, text);
        if !is_wanted && dir.is_none() {
            return match suffix {
                Some(_) => Err(usage("--suffix is for --backup and --backup-dir".into())),
                None => Ok(None),
            };
        }
        let place = dir.map_or(Ok(Place::Beside), Place::of)?;
        let suffix = suffix.unwrap_or(if dir.is_some() { "" } else { "~" });
        let is_name = RelPath::new(&format!("x{suffix}")).is_ok() && !suffix.contains('/');
        if !is_name || dir.is_none() && suffix.is_empty() {
            let shown = gtp_text::of_text(suffix);
            return Err(usage(format!("--suffix {shown:?}: no end of a name")));
        }
        Ok(Some(Backup { place, suffix: suffix.to_owned() }))
    }

    /// Whether a path is where backups are.
    pub fn has(&self, path: &str) -> bool {
        match &self.place {
            Place::Beneath(dir) => ancestors(path).any(|part| part == dir.as_str()),
            Place::Beside => path.ends_with(&self.suffix),
            Place::Outside(_) => false,
        }
    }

    /// Whether a directory of the destination is set aside for backups.
    pub fn has_dir(&self) -> bool {
        matches!(self.place, Place::Beneath(_))
    }

    /// The directory, if it is not beneath the destination: a path from the destination's.
    pub fn outside(&self) -> Option<&Path> {
        match &self.place {
            Place::Outside(dir) => Some(dir),
            Place::Beside | Place::Beneath(_) => None,
        }
    }

    fn name(&self, path: &str) -> Result<RelPath, String> {
        let named = match &self.place {
            Place::Beneath(dir) => format!("{dir}/{path}{}", self.suffix),
            Place::Beside | Place::Outside(_) => format!("{path}{}", self.suffix),
        };
        RelPath::new(&named).map_err(|why| format!("cannot be kept as a backup: {why}"))
    }
}

impl Place {
    fn of(dir: &str) -> Result<Place, Failure> {
        let bare = dir.trim_start_matches("./").trim_end_matches('/');
        if dir.starts_with('/') || bare.split('/').any(|part| part == "..") {
            return Ok(Place::Outside(PathBuf::from(dir)));
        }
        RelPath::new(bare).map(Place::Beneath).map_err(|why| {
            let shown = gtp_text::of_text(dir);
            Failure::new(FailureKind::Usage, format!("--backup-dir {shown}: {why}"))
        })
    }
}

/// Notes in a plan what it would overwrite or remove, and what that is called elsewhere.
pub fn keep_elsewhere(plan: &mut Plan, destination: &[Node], backup: &Backup) {
    let there: HashMap<&str, &Node> = destination.iter().map(|node| (node.name(), node)).collect();
    let lost = [&plan.obstacles, &plan.removed, &plan.links].into_iter().flatten();
    let lost = lost.filter_map(|deed| {
        let Deed::Remove { path, seen } = deed else { return None };
        (*seen != Seen::Dir).then_some(path.as_str())
    });
    let mut names: BTreeSet<String> = lost.map(str::to_owned).collect();
    names.extend(overwritten(plan, &there));
    let mut unkept = Vec::new();
    for path in names {
        let from = RelPath::new(&path).map_err(|why| why.to_string());
        match from.and_then(|from| Ok((from, backup.name(&path)?))) {
            Ok(pair) => plan.kept.push(pair),
            Err(why) => unkept.push((path, why)),
        }
    }
    plan.leave_beneath(&unkept.iter().map(|(path, _)| path.clone()).collect());
    plan.unkept.extend(unkept);
}

/// Changes a plan so that it keeps what it would overwrite or remove. A backup never takes a name
/// that the source has.
pub fn keep_old(plan: &mut Plan, source: &[Node], destination: &[Node], backup: &Backup) {
    let names = Names { backup, wanted: source.iter().map(Node::name).collect() };
    let there: HashMap<&str, &Node> = destination.iter().map(|node| (node.name(), node)).collect();
    let mut unkept = Vec::new();
    for deeds in [&mut plan.obstacles, &mut plan.removed, &mut plan.links] {
        for deed in deeds.iter_mut() {
            move_away(deed, &names, &mut unkept);
        }
    }
    let linked = further_names(overwritten(plan, &there), &names, &mut unkept);
    plan.leave_beneath(&unkept.iter().map(|(path, _)| path.clone()).collect());
    plan.unkept.extend(unkept);
    restore_times(plan, &linked, &there);
    let dirs = linked.iter().flat_map(|(_, to)| ancestors(to.as_str()).skip(1));
    let dirs: BTreeSet<&str> = dirs.collect();
    let made = dirs.into_iter().filter_map(|dir| RelPath::new(dir).ok());
    plan.backed = made.map(|dir| Deed::MakeDir { path: Some(dir) }).collect();
    for (from, to) in linked {
        plan.backed_as.insert(gtp_text::of_text(to.as_str()), from.as_str().to_owned());
        plan.backed.push(Deed::HardLink { path: to, to: from });
    }
    keep_holders(plan);
}

/// Files of which the plan puts something else in their place, sorted.
fn overwritten(plan: &Plan, there: &HashMap<&str, &Node>) -> BTreeSet<String> {
    let replaced = plan.replaced.keys().map(String::as_str);
    let renamed = plan.names.iter().map(Deed::name).filter(|path| {
        // What was of another kind has been moved away.
        there.get(path).is_some_and(|node| node.is_file())
    });
    replaced.chain(renamed).map(str::to_owned).collect()
}

/// The names that these files get beside their own.
fn further_names(
    files: BTreeSet<String>,
    names: &Names,
    unkept: &mut Vec<(String, String)>,
) -> Vec<(RelPath, RelPath)> {
    let mut linked = Vec::new();
    for path in files {
        let from = RelPath::new(&path).map_err(|why| why.to_string());
        match from.and_then(|from| Ok((from, names.of(&path)?))) {
            Ok(pair) => linked.push(pair),
            Err(why) => unkept.push((path, why)),
        }
    }
    linked
}

/// The names that backups may take.
struct Names<'a> {
    backup: &'a Backup,
    /// The names of the source.
    wanted: HashSet<&'a str>,
}

impl Names<'_> {
    fn of(&self, path: &str) -> Result<RelPath, String> {
        let name = self.backup.name(path)?;
        if self.wanted.contains(name.as_str()) {
            let shown = gtp_text::of_text(name.as_str());
            return Err(format!("cannot be kept as a backup: SRC has a {shown} of its own"));
        }
        Ok(name)
    }
}

/// A file or link that was to be removed is moved instead.
fn move_away(deed: &mut Deed, names: &Names, unkept: &mut Vec<(String, String)>) {
    let Deed::Remove { path, seen } = deed else { return };
    if *seen == Seen::Dir {
        return;
    }
    match names.of(path.as_str()) {
        Ok(to) => *deed = Deed::Move { path: path.clone(), seen: *seen, to },
        Err(why) => unkept.push((path.as_str().to_owned(), why)),
    }
}

/// A file whose time is set back before it is replaced is the same as its backup at that moment.
fn restore_times(plan: &mut Plan, linked: &[(RelPath, RelPath)], there: &HashMap<&str, &Node>) {
    let aged: HashSet<&str> = plan.aged.iter().map(Deed::name).collect();
    for (from, to) in linked.iter().filter(|(from, _)| aged.contains(from.as_str())) {
        let mtime: Option<Mtime> = there.get(from.as_str()).map(|node| node.mtime);
        plan.dressed.push(Deed::Dress(Dress { path: Some(to.clone()), mtime, ..Dress::default() }));
    }
}

/// Directories that hold backups stay.
fn keep_holders(plan: &mut Plan) {
    let mut holders: HashSet<String> = HashSet::new();
    for deed in plan.removed.iter().chain(&plan.obstacles) {
        if let Deed::Move { to, .. } = deed {
            holders.extend(ancestors(to.as_str()).skip(1).map(str::to_owned));
        }
    }
    let stays = |deed: &Deed| {
        matches!(deed, Deed::Remove { seen: Seen::Dir, .. }) && holders.contains(deed.name())
    };
    let kept: HashSet<String> =
        plan.removed.iter().filter(|deed| stays(deed)).map(|deed| deed.name().to_owned()).collect();
    plan.removed.retain(|deed| !stays(deed));
    plan.items.retain(|item| !(item.is_deletion() && kept.contains(&item.path)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dir: Option<&str>, suffix: Option<&str>, path: &str) -> Result<String, String> {
        let backup = Backup::of(true, dir, suffix).map_err(|failure| failure.text)?;
        backup.unwrap().name(path).map(|name| name.as_str().to_owned())
    }

    #[test]
    fn old_versions_go_beside_their_names_or_into_the_directory_that_is_named() {
        assert_eq!(kept(None, None, "d/a"), Ok("d/a~".into()));
        assert_eq!(kept(None, Some(".old"), "a"), Ok("a.old".into()));
        assert_eq!(kept(Some("old/1"), None, "d/a"), Ok("old/1/d/a".into()));
        assert_eq!(kept(Some("./old/"), Some(".x"), "a"), Ok("old/a.x".into()));
        for dir in ["", ".", "a//b", "x.gtp-part"] {
            assert!(kept(Some(dir), None, "a").is_err(), "{dir:?}");
        }
        for suffix in ["/x", "", "\n", "/../x"] {
            assert!(kept(None, Some(suffix), "a").is_err(), "{suffix:?}");
        }
        assert!(kept(Some("old"), None, &"a/".repeat(2_047)).is_err(), "too long a path");
        for dir in ["..", "a/../..", "/old"] {
            let backup = Backup::of(true, Some(dir), None).unwrap().unwrap();
            assert_eq!(backup.outside(), Some(Path::new(dir)));
        }
        assert_eq!(Backup::of(false, None, None), Ok(None));
        assert!(Backup::of(false, None, Some("x")).is_err());
    }
}
