//! Changes of the list of client keys: one line for each key, and everything else as it was.
//!
//! A change is made to the text, under the list's lock, and the file is replaced at once, so that a
//! server that reads it meanwhile sees the old list or the new one. Lines that cannot be read are
//! kept: what they were meant to say is not known here. The file keeps its owner, group and mode.

use std::path::{Path, PathBuf};

use super::authorized::{Listed, parse_line};
use super::grants::Below;
use super::hours::Hours;
use super::key_share::{KeyShare, ShareChange, that_counts};
use super::{Access, FILE_MAX, LineError, TrustError, read_list, words_of};
use crate::identity::{Fingerprint, guard, place};

/// A line of the list of client keys, as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyLine {
    /// Its number, from 1.
    pub number: usize,
    /// The key and what it may do, or what is wrong with the line.
    pub says: Result<(Fingerprint, Access), LineError>,
    /// Whether it names places with `read=`, `write=` or `delete=`.
    pub is_narrowed: bool,
    /// When the key may come by this line.
    pub hours: Hours,
    /// The groups that it names.
    pub groups: Vec<String>,
    /// What the key has of the server's rates by this line.
    pub share: KeyShare,
    /// The comment behind it, escaped for display; empty if there is none.
    pub comment: String,
}

/// What is to be said of a key; what is left out stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineChange<'a> {
    /// What it may do. A new key may do all if that is left out.
    pub rights: Option<Access>,
    /// Whose it is: one line of plain text.
    pub comment: Option<&'a str>,
    /// When it may come.
    pub hours: Option<&'a Hours>,
    /// The groups that it is in.
    pub groups: Option<&'a [String]>,
    /// What it has of the server's rates.
    pub share: ShareChange,
    /// Where it may do what.
    pub places: PlacesChange<'a>,
}

/// Places that a key's line is to name; what is left out stays as it is. They go to the line that
/// names places already, or else to the key's first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlacesChange<'a> {
    /// Where it may read.
    pub read: Option<&'a [Below]>,
    /// Where it may write.
    pub write: Option<&'a [Below]>,
    /// Where it may remove and move.
    pub delete: Option<&'a [Below]>,
}

/// What came of a request to change the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The file has changed.
    Done,
    /// It said so already.
    Needless,
}

/// Why the list is not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file cannot be used: [`TrustError::Exposed`] or [`TrustError::File`].
    #[error(transparent)]
    List(#[from] TrustError),
    /// A line that names places would name none any more, and so say more than before.
    #[error("{0} would have no place left; name another one, or revoke the key")]
    NoPlace(Fingerprint),
    /// A line cannot hold this place, which is escaped for display.
    #[error("a line cannot name `{0}`: a place there has no comma, `#`, quotation mark or tab")]
    Unsayable(String),
    /// What the line would say with the change makes no sense.
    #[error("a line of {0} would make no sense then: {1}")]
    Senseless(Fingerprint, LineError),
}

/// A file that lists client keys, to be shown and changed.
#[derive(Clone, Debug)]
pub struct KeyListFile {
    path: PathBuf,
}

impl KeyListFile {
    /// The file at this path; it need not be there. A symbolic link stays one: the file that it
    /// leads to is changed. A link that leads nowhere is not followed.
    pub fn at(path: &Path) -> KeyListFile {
        KeyListFile { path: path.to_owned() }
    }

    /// All lines that hold something besides a comment.
    ///
    /// # Errors
    /// [`TrustError::Exposed`], [`TrustError::File`].
    pub fn lines(&self) -> Result<Vec<KeyLine>, TrustError> {
        Ok(lines_of(&read(&self.path)?))
    }

    /// Lists a key, or changes what its lines say, and returns what it may do. Its lines that name
    /// places become one, and so do the others, each with the options of all of them; if one line
    /// cannot hold these, they stay several.
    ///
    /// # Errors
    /// [`EditError`], if the list is left as it is.
    pub fn add(
        &self,
        key: Fingerprint,
        change: &LineChange<'_>,
    ) -> Result<(Edit, Access), EditError> {
        let mut access = Access::ALL;
        let edit = self.edit(|text| {
            access = change.rights.or_else(|| rights_of(text, key)).unwrap_or(Access::ALL);
            with_key(text, key, change)
        })?;
        Ok((edit, access))
    }

    /// Removes all lines of a key.
    ///
    /// # Errors
    /// [`EditError::List`].
    pub fn revoke(&self, key: Fingerprint) -> Result<Edit, EditError> {
        self.edit(|text| Ok(kept(text, |line| key_of(line) != Some(key))))
    }

    fn edit(
        &self,
        change: impl FnOnce(&str) -> Result<String, EditError>,
    ) -> Result<Edit, EditError> {
        let failed = |source| TrustError::File { path: self.path.clone(), source };
        // Nothing is made on a way that another user may lead elsewhere.
        guard::check(&self.path).map_err(TrustError::from)?;
        let path = guard::end_of(&self.path).map_err(failed)?;
        if let Some(dir) = path.parent() {
            place::make_dir(dir).map_err(failed)?;
        }
        guard::check(&path).map_err(TrustError::from)?;
        let _lock = place::lock(&path).map_err(failed)?;
        let text = read(&path)?;
        let changed = change(&text)?;
        if changed == text {
            return Ok(Edit::Needless);
        }
        // A server lets nobody in by a list that is too long to be read.
        if changed.len() as u64 > FILE_MAX {
            return Err(failed(std::io::Error::other("it would be longer than 4 MiB")).into());
        }
        place::replace_like(&path, changed.as_bytes()).map_err(failed)?;
        Ok(Edit::Done)
    }
}

fn read(path: &Path) -> Result<String, TrustError> {
    guard::check(path)?;
    read_list(path).map_err(|source| TrustError::File { path: path.to_owned(), source })
}

fn lines_of(text: &str) -> Vec<KeyLine> {
    let parsed = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let (content, comment) = line.split_once('#').unwrap_or((line, ""));
        let words = words_of(content);
        let says = (!words.is_empty()).then(|| parse_line(&words, ""))?;
        let is_narrowed = says.as_ref().is_ok_and(Listed::is_narrowed);
        let hours = says.as_ref().map_or_else(|_| Hours::default(), |listed| listed.hours.clone());
        let groups = says.as_ref().map_or_else(|_| Vec::new(), |listed| listed.groups.clone());
        let share = says.as_ref().map_or_else(|_| KeyShare::default(), |listed| listed.share);
        let says = says.map(|listed| (listed.key, listed.access));
        let comment = gtp_text::of_text(comment.trim());
        Some(KeyLine { number, says, is_narrowed, hours, groups, share, comment })
    });
    parsed.collect()
}

/// The key of a line that can be read.
fn key_of(line: &str) -> Option<Fingerprint> {
    let says = lines_of(line).pop()?.says;
    says.ok().map(|(key, _)| key)
}

/// What a list grants to a key, if it is there; several lines of one key add up.
fn rights_of(text: &str, key: Fingerprint) -> Option<Access> {
    let said = lines_of(text).into_iter().filter_map(|line| line.says.ok());
    said.filter(|(one, _)| *one == key).map(|(_, access)| access).reduce(Access::and)
}

/// The options on these lines of a key, each name once and nothing said twice; with the hours,
/// groups, rates and places of the change, if it has some.
fn options_of<'t>(lines: impl Iterator<Item = &'t str>, change: &LineChange<'_>) -> Vec<String> {
    let mut merged: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let content = line.split_once('#').map_or(line, |(content, _)| content);
        let options = words_of(content).into_iter().skip(1).filter_map(|word| word.split_once('='));
        for (name, value) in options {
            let value = value.trim_matches('"');
            match merged.iter_mut().find(|(there, _)| *there == name) {
                Some((_, values)) => values.push(value),
                None => merged.push((name, vec![value])),
            }
        }
    }
    let said = |name: &str, values: Vec<&str>| match (name, that_counts(name, &values)) {
        ("window", _) => windows_of(&values),
        (_, Some(counts)) => counts.to_owned(),
        (_, None) => once_each(values.iter().flat_map(|value| value.split(','))),
    };
    let merged = merged.into_iter().map(|(name, values)| (name, said(name, values)));
    let mut merged: Vec<(&str, String)> = merged.collect();
    let hours = change.hours.map(|hours| match hours.is_always() {
        true => String::new(),
        false => hours.to_string(),
    });
    let groups = change.groups.map(|groups| groups.join(","));
    let places = |all: Option<&[Below]>| {
        all.map(|all| all.iter().map(Below::to_string).collect::<Vec<_>>().join(","))
    };
    let PlacesChange { read, write, delete } = change.places;
    let new = [("group", groups), ("window", hours), ("read", places(read))];
    let new = new.into_iter().chain([("write", places(write)), ("delete", places(delete))]);
    let new = new.chain(change.share.options());
    for (name, new) in new {
        let Some(new) = new else { continue };
        merged.retain(|(there, _)| *there != name);
        merged.extend(Some((name, new)).filter(|(_, new)| !new.is_empty()));
    }
    let quoted = |(name, value): (&str, String)| match value.contains(char::is_whitespace) {
        true => format!("{name}=\"{value}\""),
        false => format!("{name}={value}"),
    };
    merged.into_iter().map(quoted).collect()
}

/// The windows of several texts; one text stays as its writer wrote it. The commas in them part
/// days as well.
fn windows_of(values: &[&str]) -> String {
    let all = values.iter().map(|value| value.parse::<Hours>());
    match (values, all.collect::<Result<Vec<Hours>, _>>()) {
        ([_, _, ..], Ok(all)) => {
            all.iter().fold(Hours::default(), |all, more| all.and(more)).to_string()
        }
        (values, _) => values.join(","),
    }
}

fn once_each<'v>(values: impl Iterator<Item = &'v str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all.join(",")
}

/// The lines that fit, each with its own end.
fn kept(text: &str, mut fits: impl FnMut(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| fits(line)).collect()
}

/// A key's lines of one kind: those that name places, or those that do not. A server with one
/// export goes by the latter alone, so lines of both kinds never become one.
struct OfKind<'t> {
    is_narrowed: bool,
    lines: Vec<&'t str>,
}

/// The list with a key of which this is said; without rights, each kind of its lines keeps its own.
fn with_key(text: &str, key: Fingerprint, change: &LineChange<'_>) -> Result<String, EditError> {
    check(&change.places)?;
    let kinds = kinds_of(text, key);
    let placed = kinds.iter().position(|kind| kind.is_narrowed).unwrap_or_default();
    let kinds = kinds.iter().zip(once_said(change)).enumerate().map(|(at, (kind, said))| {
        let places = if at == placed { change.places } else { PlacesChange::default() };
        changed(kind, key, &LineChange { places, ..said })
    });
    let mut lines = kinds.collect::<Result<String, EditError>>()?;
    let mut new = String::new();
    for old in text.split_inclusive('\n') {
        if key_of(old) != Some(key) {
            new.push_str(old);
        } else {
            new.push_str(&std::mem::take(&mut lines));
        }
    }
    if !lines.is_empty() && !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    Ok(new + &lines)
}

/// Refuses places that a line cannot hold: a comma parts places, `#` begins a comment.
fn check(places: &PlacesChange<'_>) -> Result<(), EditError> {
    let all = [places.read, places.write, places.delete];
    let mut all = all.into_iter().flatten().flatten().map(Below::to_string);
    match all.find(|place| place.contains([',', '#', '"']) || place.contains(is_odd_space)) {
        Some(place) => Err(EditError::Unsayable(gtp_text::of_text(&place))),
        None => Ok(()),
    }
}

/// White space that would end a line, or not look like a space.
fn is_odd_space(c: char) -> bool {
    c.is_whitespace() && c != ' '
}

/// The lines of a key by their kind, in the order of the list; one kind without lines if there are
/// none.
fn kinds_of(text: &str, key: Fingerprint) -> Vec<OfKind<'_>> {
    let mut kinds: Vec<OfKind<'_>> = Vec::new();
    for line in text.lines().filter(|line| key_of(line) == Some(key)) {
        let is_narrowed = lines_of(line).iter().any(|line| line.is_narrowed);
        match kinds.iter_mut().find(|kind| kind.is_narrowed == is_narrowed) {
            Some(kind) => kind.lines.push(line),
            None => kinds.push(OfKind { is_narrowed, lines: vec![line] }),
        }
    }
    if kinds.is_empty() {
        kinds.push(OfKind { is_narrowed: false, lines: Vec::new() });
    }
    kinds
}

/// The change for each of several lines: windows, groups, rates and places of all lines count
/// together, so new ones go to the first, and the others have none.
fn once_said<'a>(change: &LineChange<'a>) -> impl Iterator<Item = LineChange<'a>> + use<'a> {
    const ALWAYS: &Hours = &Hours::ALWAYS;
    let (hours, groups) = (change.hours.map(|_| ALWAYS), change.groups.map(|_| &[][..]));
    let PlacesChange { read, write, delete } = change.places;
    let none = |places: Option<&[Below]>| places.map(|_| &[][..]);
    let places = PlacesChange { read: none(read), write: none(write), delete: none(delete) };
    let share = change.share.lifted();
    let others = LineChange { hours, groups, places, share, ..*change };
    std::iter::once(*change).chain(std::iter::repeat(others))
}

/// The lines that lines of a kind become. Each makes sense, and none that named places names none
/// any more.
fn changed(
    kind: &OfKind<'_>,
    key: Fingerprint,
    change: &LineChange<'_>,
) -> Result<String, EditError> {
    let lines = rewritten(kind, key, change);
    let new = lines_of(&lines);
    if let Some(why) = new.iter().find_map(|line| line.says.err()) {
        return Err(EditError::Senseless(key, why));
    }
    match kind.is_narrowed && new.iter().any(|line| !line.is_narrowed) {
        true => Err(EditError::NoPlace(key)),
        false => Ok(lines),
    }
}

/// The one line that lines of a kind become, or, where one cannot hold their options, each with its
/// own.
fn rewritten(kind: &OfKind<'_>, key: Fingerprint, change: &LineChange<'_>) -> String {
    let olds = &kind.lines;
    let access = change.rights.or_else(|| rights_of(&olds.join("\n"), key)).unwrap_or(Access::ALL);
    let said = olds.iter().map(|line| comment_of(line)).find(|said| !said.is_empty());
    let comment = change.comment.or(said).unwrap_or_default();
    let merged = line_of(key, access, &options_of(olds.iter().copied(), change), comment);
    if lines_of(&merged).pop().is_some_and(|line| line.says.is_ok()) {
        return merged;
    }
    let lines = olds.iter().zip(once_said(change)).map(|(old, change)| {
        let options = options_of(std::iter::once(*old), &change);
        line_of(key, access, &options, change.comment.unwrap_or(comment_of(old)))
    });
    lines.collect()
}

/// What stands behind the `#` of a line.
fn comment_of(line: &str) -> &str {
    line.split_once('#').map_or("", |(_, comment)| comment.trim())
}

fn line_of(key: Fingerprint, access: Access, options: &[String], comment: &str) -> String {
    let mut line = format!("{key} {}", access.words());
    for option in options {
        line.push(' ');
        line.push_str(option);
    }
    if !comment.is_empty() {
        line.push_str("  # ");
        line.push_str(comment);
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use gtp_alloc::Rate;

    use super::super::AuthorizedKeys;
    use super::super::key_share::Setting;
    use super::*;

    fn key(n: u8) -> Fingerprint {
        Fingerprint::of_public_key(&[n])
    }

    fn list(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    /// What is said of a key but for groups.
    fn with<'a>(
        rights: Option<Access>,
        comment: Option<&'a str>,
        hours: Option<&'a Hours>,
    ) -> LineChange<'a> {
        LineChange { rights, comment, hours, ..LineChange::default() }
    }

    #[test]
    fn a_key_is_added_changed_and_revoked_and_every_other_line_stays_as_it_was() {
        let others = format!("# mine\n\n  {} read   # bob's\nno key at all\n", key(1));
        let (_dir, path) = list(&format!("{others}{}  # anna", key(2)));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            file.add(key(3), &with(Some(Access::READ), Some("carl"), None)).unwrap().0,
            Edit::Done
        );
        assert_eq!(text(), format!("{others}{}  # anna\n{} read  # carl\n", key(2), key(3)));
        assert_eq!(
            file.add(key(3), &with(Some(Access::READ), None, None)).unwrap().0,
            Edit::Needless
        );
        assert_eq!(file.add(key(2), &with(Some(Access::WRITE), None, None)).unwrap().0, Edit::Done);
        assert_eq!(text(), format!("{others}{} write  # anna\n{} read  # carl\n", key(2), key(3)));
        assert_eq!(file.revoke(key(2)).unwrap(), Edit::Done);
        assert_eq!(file.revoke(key(2)).unwrap(), Edit::Needless);
        assert_eq!(text(), format!("{others}{} read  # carl\n", key(3)));
    }

    #[test]
    fn a_key_whose_rights_change_keeps_its_groups_and_places() {
        let old = "{0} read group=staff write=home/a  # anna\n{0} group=\"lab\"\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        file.add(key(1), &with(Some(Access::ALL), None, None)).unwrap();
        let new = "{0} read,write group=staff write=home/a  # anna\n{0} read,write group=lab\n";
        let expected = new.replace("{0}", &key(1).to_string());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_line_with_places_never_takes_what_the_key_may_do_by_one_without() {
        let old = "{0} read  # anna\n{0} write write=drop window=10:00-11:00\n{0} group=lab\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap().replace(&key(1).to_string(), "{0}");
        assert_eq!(file.add(key(1), &with(None, None, None)).unwrap(), (Edit::Done, Access::ALL));
        let merged = "{0} read,write group=lab  # anna\n{0} write write=drop window=10:00-11:00\n";
        assert_eq!(text(), merged);
        let without_places = || {
            let mut keys = AuthorizedKeys::load(&path).unwrap();
            keys.void_narrowed();
            keys.access(&key(1))
        };
        assert_eq!(without_places(), Access::ALL, "a server with one export lets it in as before");
        let new: Hours = "12:00-13:00".parse().unwrap();
        file.add(key(1), &with(Some(Access::READ), Some("carl"), Some(&new))).unwrap();
        let all_new = "{0} read group=lab window=12:00-13:00  # carl\n\
                       {0} read write=drop  # carl\n";
        assert_eq!(text(), all_new);
        assert_eq!(AuthorizedKeys::load(&path).unwrap().hours(&key(1)), new);
    }

    #[test]
    fn groups_are_said_in_place_of_those_that_the_lines_name_and_stay_where_none_are_said() {
        let old = "{0} read group=staff window=10:00-11:00  # anna\n{0} write=drop group=lab\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap().replace(&key(1).to_string(), "{0}");
        let into = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|name| name.to_string()).collect();
            let change = LineChange { groups: Some(&groups), ..LineChange::default() };
            file.add(key(1), &change).unwrap()
        };
        assert_eq!(into(&["guests", "night"]), (Edit::Done, Access::ALL));
        let new = "{0} read window=10:00-11:00 group=guests,night  # anna\n\
                   {0} read,write write=drop\n";
        assert_eq!(text(), new);
        assert_eq!(file.lines().unwrap()[0].groups, ["guests", "night"]);
        file.add(key(1), &with(None, Some("bea"), None)).unwrap();
        assert_eq!(file.lines().unwrap()[0].groups, ["guests", "night"]);
        into(&[]);
        assert!(file.lines().unwrap().iter().all(|line| line.groups.is_empty()), "{}", text());
    }

    fn share(file: &KeyListFile, share: ShareChange) -> Result<Edit, EditError> {
        let change = LineChange { share, ..LineChange::default() };
        file.add(key(1), &change).map(|(edit, _)| edit)
    }

    #[test]
    fn rates_weight_and_guarantee_are_put_on_a_line_and_taken_off_one_by_one() {
        let (_dir, path) = list(&format!("{} read group=staff  # anna\n", key(1)));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap().replace(&key(1).to_string(), "{0}");
        let mbps = Rate::from_mbps;
        let all = ShareChange {
            rate: Setting::Now(mbps(1_500)),
            weight: Setting::Now(0.5),
            guarantee: Setting::Now(mbps(10)),
        };
        assert_eq!(share(&file, all).unwrap(), Edit::Done);
        let line = "{0} read group=staff rate=1500Mbit weight=0.5 guarantee=10Mbit  # anna\n";
        assert_eq!(text(), line);
        let said =
            KeyShare { rate: Some(mbps(1_500)), weight: Some(0.5), guarantee: Some(mbps(10)) };
        assert_eq!(file.lines().unwrap()[0].share, said);
        assert_eq!(share(&file, all).unwrap(), Edit::Needless);
        file.add(key(1), &with(None, Some("bea"), None)).unwrap();
        assert_eq!(text(), line.replace("anna", "bea"), "they stay");
        let off = ShareChange { weight: Setting::Lifted, ..ShareChange::default() };
        share(&file, off).unwrap();
        assert_eq!(text(), "{0} read group=staff rate=1500Mbit guarantee=10Mbit  # bea\n");
        let off = ShareChange {
            rate: Setting::Lifted,
            guarantee: Setting::Lifted,
            ..ShareChange::default()
        };
        share(&file, off).unwrap();
        assert_eq!(text(), "{0} read group=staff  # bea\n");
    }

    #[test]
    fn of_two_lines_that_become_one_what_counted_stays_and_a_new_rate_takes_the_place_of_all() {
        let old = "{0} read rate=50Mbit weight=2\n{0} rate=6MB guarantee=1Mbit weight=0.1\n\
                   {0} write=drop rate=9Mbit weight=9\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap().replace(&key(1).to_string(), "{0}");
        let before = AuthorizedKeys::load(&path).unwrap().share(&key(1));
        file.add(key(1), &with(None, None, None)).unwrap();
        assert_eq!(AuthorizedKeys::load(&path).unwrap().share(&key(1)), before);
        let merged = "{0} read,write rate=6MB weight=2 guarantee=1Mbit\n\
                      {0} read,write write=drop rate=9Mbit weight=9\n";
        assert_eq!(text(), merged);
        let new = ShareChange { rate: Setting::Now(Rate::from_mbps(70)), ..ShareChange::default() };
        share(&file, new).unwrap();
        let after = AuthorizedKeys::load(&path).unwrap().share(&key(1));
        assert_eq!(
            (after.rate, after.weight),
            (Some(Rate::from_mbps(70)), Some(9.0)),
            "{}",
            text()
        );
    }

    #[test]
    fn a_change_by_which_a_line_would_make_no_sense_is_refused_and_the_list_stays() {
        let old = format!("{} read guarantee=10Mbit\n", key(1));
        let (_dir, path) = list(&old);
        let rate = ShareChange { rate: Setting::Now(Rate::from_mbps(5)), ..ShareChange::default() };
        let refused = share(&KeyListFile::at(&path), rate).unwrap_err();
        assert!(matches!(refused, EditError::Senseless(_, LineError::Guarantee)), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), old);
    }

    fn places(all: &[&str]) -> Vec<Below> {
        all.iter().map(|place| place.parse().unwrap()).collect()
    }

    #[test]
    fn places_are_said_in_place_of_those_of_the_same_right_and_stay_where_none_are_said() {
        let (_dir, path) = list(&format!("{} read,write group=staff  # anna\n", key(1)));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap().replace(&key(1).to_string(), "{0}");
        let (own, both) = (places(&["home/anna"]), places(&["home/an na", "scratch"]));
        let at = |said| file.add(key(1), &LineChange { places: said, ..LineChange::default() });
        let read = PlacesChange { read: Some(&both), ..PlacesChange::default() };
        at(read).unwrap();
        at(PlacesChange { write: Some(&own), delete: Some(&own), ..read }).unwrap();
        let first = "{0} read,write group=staff read=\"home/an na,scratch\" write=home/anna";
        assert_eq!(text(), format!("{first} delete=home/anna  # anna\n"));
        assert_eq!(AuthorizedKeys::load(&path).unwrap().grants(&key(1)).read, both);
        at(PlacesChange { read: Some(&own), delete: Some(&[]), ..PlacesChange::default() })
            .unwrap();
        let second = "{0} read,write group=staff write=home/anna read=home/anna  # anna\n";
        assert_eq!(text(), second);
        file.add(key(1), &with(None, None, None)).unwrap();
        assert_eq!(text(), second, "they stay");
    }

    #[test]
    fn places_go_to_the_line_that_names_some_and_the_other_line_stays_without() {
        let old = "{0} read  # anna\n{0} read,write write=drop\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let drops = places(&["drop/in"]);
        let said = PlacesChange { write: Some(&drops), ..PlacesChange::default() };
        let change = LineChange { places: said, ..LineChange::default() };
        KeyListFile::at(&path).add(key(1), &change).unwrap();
        let new = "{0} read  # anna\n{0} read,write write=drop/in\n";
        let expected = new.replace("{0}", &key(1).to_string());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_line_never_loses_its_last_place_and_a_place_that_no_line_can_hold_is_refused() {
        let old = format!("{0} read\n{0} read,write write=drop\n", key(1));
        let (_dir, path) = list(&old);
        let with_write = |places: &[Below]| {
            let said = PlacesChange { write: Some(places), ..PlacesChange::default() };
            let change = LineChange { places: said, ..LineChange::default() };
            KeyListFile::at(&path).add(key(1), &change).unwrap_err()
        };
        assert!(matches!(with_write(&[]), EditError::NoPlace(one) if one == key(1)));
        for bad in ["a/b#c", "a/b,c", "a/b\"c"] {
            let refused = with_write(&places(&[bad]));
            assert!(matches!(&refused, EditError::Unsayable(said) if said == bad), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), old);
    }

    #[test]
    fn rights_by_places_alone_do_not_become_rights_without_places() {
        let old = "{0} read\n{0} write write=drop\n".replace("{0}", &key(1).to_string());
        let (_dir, path) = list(&old);
        let added = KeyListFile::at(&path).add(key(1), &with(None, None, None)).unwrap();
        assert_eq!(added, (Edit::Needless, Access::ALL));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), old);
    }

    #[test]
    fn a_key_keeps_its_hours_until_others_are_said_and_two_lines_have_the_windows_of_both() {
        let old =
            "{0} group=staff window=\"mon-fri 20:00-06:00\"\n{0} window=\"sat-sun 00:00-24:00\"\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap();
        file.add(key(1), &with(Some(Access::READ), None, None)).unwrap();
        let both = "window=\"mon-fri 20:00-06:00, sat-sun 00:00-24:00\"";
        assert_eq!(text(), format!("{} read group=staff {both}\n", key(1)));
        let new = "10:00-11:00".parse().unwrap();
        file.add(key(1), &with(None, None, Some(&new))).unwrap();
        assert_eq!(text(), format!("{} read group=staff window=10:00-11:00\n", key(1)));
        assert_eq!(file.lines().unwrap()[0].hours, new);
        file.add(key(1), &with(None, None, Some(&Hours::default()))).unwrap();
        assert_eq!(text(), format!("{} read group=staff\n", key(1)));
    }

    #[test]
    fn what_one_line_cannot_hold_stays_on_several_and_the_list_can_still_be_read() {
        let windows = |hour: u16| -> Vec<String> {
            (0..20).map(|n| format!("{hour:02}:{:02}-{hour:02}:{:02}", 2 * n, 2 * n + 1)).collect()
        };
        let line = |hour| format!("{} group=a,b window=\"{}\"", key(1), windows(hour).join(","));
        let places: Vec<String> = (0..200).map(|n| format!("home/{n}")).collect();
        let places = format!("{} read={}", key(2), places.join(","));
        let other = places.replace("home", "lab");
        let old = format!("{}  # anna\n{}\n{places}\n{other}\n", line(1), line(2));
        let (_dir, path) = list(&old);
        let file = KeyListFile::at(&path);
        file.add(key(1), &with(Some(Access::READ), Some("carl"), None)).unwrap();
        file.add(key(2), &with(Some(Access::READ), None, None)).unwrap();
        let load = || AuthorizedKeys::load(&path).unwrap();
        let before = load();
        assert_eq!((before.len(), before.access(&key(1))), (4, Access::READ));
        assert_eq!(before.comment(&key(1)), Some("carl"));
        assert_eq!(before.hours(&key(1)).to_string().matches(':').count(), 2 * 2 * 20);
        assert_eq!(before.grants(&key(2)).read.len(), 400);
        let new: Hours = "10:00-11:00".parse().unwrap();
        file.add(key(1), &with(None, None, Some(&new))).unwrap();
        assert_eq!((load().len(), load().hours(&key(1))), (3, new), "one line holds that");
        assert_eq!(load().groups(&key(1)).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_key_that_is_there_twice_has_one_line_after_a_change_and_none_after_a_revocation() {
        let twice = format!("{0} read\n{1}\n{0} write\n", key(1), key(2));
        let (_dir, path) = list(&twice);
        let file = KeyListFile::at(&path);
        file.add(key(1), &with(Some(Access::READ), None, None)).unwrap();
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(text(), format!("{0} read\n{1}\n", key(1), key(2)));
        std::fs::write(&path, twice).unwrap();
        file.revoke(key(1)).unwrap();
        assert_eq!(text(), format!("{}\n", key(2)));
    }

    #[test]
    fn the_file_keeps_its_mode_and_a_link_to_it_stays_a_link() {
        let (dir, path) = list("");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        KeyListFile::at(&link).add(key(1), &with(None, None, None)).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{} read,write\n", key(1)));
    }

    #[test]
    fn a_list_that_others_may_change_is_not_changed() {
        let (_dir, path) = list("");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let refused = KeyListFile::at(&path).add(key(1), &with(None, None, None));
        assert!(matches!(refused, Err(EditError::List(TrustError::Exposed(_)))), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn without_rights_a_listed_key_keeps_its_own_and_a_new_one_may_do_all() {
        let (_dir, path) = list(&format!("{} read\n", key(1)));
        let file = KeyListFile::at(&path);
        assert_eq!(
            file.add(key(1), &with(None, Some("anna"), None)).unwrap(),
            (Edit::Done, Access::READ)
        );
        assert_eq!(file.add(key(2), &with(None, None, None)).unwrap(), (Edit::Done, Access::ALL));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{} read  # anna\n{} read,write\n", key(1), key(2)));
    }

    #[test]
    fn nothing_is_made_on_a_way_that_others_may_change_or_that_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (open, real) = (dir.path().join("open"), dir.path().join("real"));
        std::fs::create_dir(&open).unwrap();
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, open.join("link")).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let refused = KeyListFile::at(&open.join("link/list")).add(key(1), &with(None, None, None));
        assert!(matches!(refused, Err(EditError::List(TrustError::Exposed(_)))), "{refused:?}");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
        std::os::unix::fs::symlink(dir.path().join("gone/list"), real.join("list")).unwrap();
        let refused = KeyListFile::at(&real.join("list")).add(key(1), &with(None, None, None));
        assert!(matches!(refused, Err(EditError::List(TrustError::File { .. }))), "{refused:?}");
        assert!(!dir.path().join("gone").exists());
    }

    #[test]
    fn a_lock_that_is_a_link_or_a_fifo_is_refused_at_once() {
        let (dir, path) = list("");
        let (lock, far) = (dir.path().join("list.lock"), dir.path().join("far"));
        std::os::unix::fs::symlink(&far, &lock).unwrap();
        assert!(KeyListFile::at(&path).add(key(1), &with(None, None, None)).is_err());
        assert!(!far.exists());
        std::fs::remove_file(&lock).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(KeyListFile::at(&path).add(key(1), &with(None, None, None)).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn lines_are_told_with_what_is_wrong_with_them() {
        let (_dir, path) = list(&format!("# c\n{} write # a\u{1b}b\nx y\n", key(1)));
        let lines = KeyListFile::at(&path).lines().unwrap();
        assert_eq!((lines[0].number, lines[0].says), (2, Ok((key(1), Access::WRITE))));
        assert_eq!(lines[0].comment, "a\\u{1b}b");
        assert_eq!((lines[1].number, lines[1].says), (3, Err(LineError::Access)));
    }
}
