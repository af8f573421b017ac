//! Changes of the list of client keys: one line for each key, and everything else as it was.
//!
//! A change is made to the text, under the list's lock, and the file is replaced at once, so that a
//! server that reads it meanwhile sees the old list or the new one. Lines that cannot be read are
//! kept: what they were meant to say is not known here. The file keeps its owner, group and mode.

use std::path::{Path, PathBuf};

use super::authorized::{Listed, parse_line};
use super::hours::Hours;
use super::{Access, FILE_MAX, LineError, TrustError, read_list, words_of};
use crate::identity::{Fingerprint, guard, place};

/// A line of the list of client keys, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// Its number, from 1.
    pub number: usize,
    /// The key and what it may do, or what is wrong with the line.
    pub says: Result<(Fingerprint, Access), LineError>,
    /// Whether it names places with `read=`, `write=` or `delete=`.
    pub is_narrowed: bool,
    /// When the key may come by this line.
    pub hours: Hours,
    /// The comment behind it, escaped for display; empty if there is none.
    pub comment: String,
}

/// What came of a request to change the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The file has changed.
    Done,
    /// It said so already.
    Needless,
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

    /// Lets a key have these rights, and returns what it may do. Without rights, a key that is
    /// listed keeps its own, and a new one may do all. Its lines become one, with the options of
    /// all of them; if one line cannot hold these, its lines stay several. Its comment stays unless
    /// there is a new one, which must be one line of plain text, and so do its hours.
    ///
    /// # Errors
    /// [`TrustError::Exposed`], [`TrustError::File`].
    pub fn add(
        &self,
        key: Fingerprint,
        rights: Option<Access>,
        comment: Option<&str>,
        hours: Option<&Hours>,
    ) -> Result<(Edit, Access), TrustError> {
        let mut access = Access::ALL;
        let edit = self.edit(|text| {
            access = rights.or_else(|| rights_of(text, key)).unwrap_or(Access::ALL);
            with_key(text, key, access, (comment, hours))
        })?;
        Ok((edit, access))
    }

    /// Removes all lines of a key.
    ///
    /// # Errors
    /// [`TrustError::Exposed`], [`TrustError::File`].
    pub fn revoke(&self, key: Fingerprint) -> Result<Edit, TrustError> {
        self.edit(|text| kept(text, |line| key_of(line) != Some(key)))
    }

    fn edit(&self, change: impl FnOnce(&str) -> String) -> Result<Edit, TrustError> {
        let failed = |source| TrustError::File { path: self.path.clone(), source };
        // Nothing is made on a way that another user may lead elsewhere.
        guard::check(&self.path)?;
        let path = guard::end_of(&self.path).map_err(failed)?;
        if let Some(dir) = path.parent() {
            place::make_dir(dir).map_err(failed)?;
        }
        guard::check(&path)?;
        let _lock = place::lock(&path).map_err(failed)?;
        let text = read(&path)?;
        let changed = change(&text);
        if changed == text {
            return Ok(Edit::Needless);
        }
        // A server lets nobody in by a list that is too long to be read.
        if changed.len() as u64 > FILE_MAX {
            return Err(failed(std::io::Error::other("it would be longer than 4 MiB")));
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
        let says = says.map(|listed| (listed.key, listed.access));
        let comment = gtp_text::of_text(comment.trim());
        Some(KeyLine { number, says, is_narrowed, hours, comment })
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

/// The options on these lines of a key, each name once and nothing said twice; with these hours, if
/// there are some.
fn options_of<'t>(lines: impl Iterator<Item = &'t str>, hours: Option<&Hours>) -> Vec<String> {
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
    let said = |name: &str, values: Vec<&str>| match name {
        "window" => windows_of(&values),
        _ => once_each(values.iter().flat_map(|value| value.split(','))),
    };
    let merged = merged.into_iter().map(|(name, values)| (name, said(name, values)));
    let mut merged: Vec<(&str, String)> = merged.collect();
    if let Some(hours) = hours {
        merged.retain(|(name, _)| *name != "window");
        let said = Some(hours).filter(|hours| !hours.is_always());
        merged.extend(said.map(|hours| ("window", hours.to_string())));
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

fn with_key(
    text: &str,
    key: Fingerprint,
    access: Access,
    (comment, hours): (Option<&str>, Option<&Hours>),
) -> String {
    let olds: Vec<&str> = text.lines().filter(|line| key_of(line) == Some(key)).collect();
    let old_comment = olds.first().and_then(|line| line.split_once('#')).map(|(_, old)| old.trim());
    let comment = comment.or(old_comment).unwrap_or_default();
    let merged = line_of(key, access, &options_of(olds.iter().copied(), hours), comment);
    let lines = match lines_of(&merged).pop().is_some_and(|line| line.says.is_ok()) {
        true => merged,
        false => each_changed(&olds, key, access, (comment, hours)),
    };
    let mut new = String::new();
    let mut is_there = false;
    for old in text.split_inclusive('\n') {
        if key_of(old) != Some(key) {
            new.push_str(old);
        } else if !std::mem::replace(&mut is_there, true) {
            new.push_str(&lines);
        }
    }
    if !is_there {
        if !new.is_empty() && !new.ends_with('\n') {
            new.push('\n');
        }
        new.push_str(&lines);
    }
    new
}

/// The lines of a key whose options no single line can hold, each with its own and the same rights.
/// The comment and new hours go to the first: windows of all lines count together.
fn each_changed(
    olds: &[&str],
    key: Fingerprint,
    access: Access,
    (comment, hours): (&str, Option<&Hours>),
) -> String {
    let none = hours.map(|_| Hours::default());
    let lines = olds.iter().enumerate().map(|(n, old)| {
        let (hours, comment) = if n == 0 { (hours, comment) } else { (none.as_ref(), "") };
        line_of(key, access, &options_of(std::iter::once(*old), hours), comment)
    });
    lines.collect()
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

    use super::super::AuthorizedKeys;
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

    #[test]
    fn a_key_is_added_changed_and_revoked_and_every_other_line_stays_as_it_was() {
        let others = format!("# mine\n\n  {} read   # bob's\nno key at all\n", key(1));
        let (_dir, path) = list(&format!("{others}{}  # anna", key(2)));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(file.add(key(3), Some(Access::READ), Some("carl"), None).unwrap().0, Edit::Done);
        assert_eq!(text(), format!("{others}{}  # anna\n{} read  # carl\n", key(2), key(3)));
        assert_eq!(file.add(key(3), Some(Access::READ), None, None).unwrap().0, Edit::Needless);
        assert_eq!(file.add(key(2), Some(Access::WRITE), None, None).unwrap().0, Edit::Done);
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
        file.add(key(1), Some(Access::ALL), None, None).unwrap();
        let expected = format!("{} read,write group=staff,lab write=home/a  # anna\n", key(1));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_key_keeps_its_hours_until_others_are_said_and_two_lines_have_the_windows_of_both() {
        let old =
            "{0} group=staff window=\"mon-fri 20:00-06:00\"\n{0} window=\"sat-sun 00:00-24:00\"\n";
        let (_dir, path) = list(&old.replace("{0}", &key(1).to_string()));
        let file = KeyListFile::at(&path);
        let text = || std::fs::read_to_string(&path).unwrap();
        file.add(key(1), Some(Access::READ), None, None).unwrap();
        let both = "window=\"mon-fri 20:00-06:00, sat-sun 00:00-24:00\"";
        assert_eq!(text(), format!("{} read group=staff {both}\n", key(1)));
        let new = "10:00-11:00".parse().unwrap();
        file.add(key(1), None, None, Some(&new)).unwrap();
        assert_eq!(text(), format!("{} read group=staff window=10:00-11:00\n", key(1)));
        assert_eq!(file.lines().unwrap()[0].hours, new);
        file.add(key(1), None, None, Some(&Hours::default())).unwrap();
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
        file.add(key(1), Some(Access::READ), Some("carl"), None).unwrap();
        file.add(key(2), Some(Access::READ), None, None).unwrap();
        let load = || AuthorizedKeys::load(&path).unwrap();
        let before = load();
        assert_eq!((before.len(), before.access(&key(1))), (4, Access::READ));
        assert_eq!(before.comment(&key(1)), Some("carl"));
        assert_eq!(before.hours(&key(1)).to_string().matches(':').count(), 2 * 2 * 20);
        assert_eq!(before.grants(&key(2)).read.len(), 400);
        let new: Hours = "10:00-11:00".parse().unwrap();
        file.add(key(1), None, None, Some(&new)).unwrap();
        assert_eq!((load().len(), load().hours(&key(1))), (3, new), "one line holds that");
        assert_eq!(load().groups(&key(1)).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_key_that_is_there_twice_has_one_line_after_a_change_and_none_after_a_revocation() {
        let twice = format!("{0} read\n{1}\n{0} write\n", key(1), key(2));
        let (_dir, path) = list(&twice);
        let file = KeyListFile::at(&path);
        file.add(key(1), Some(Access::READ), None, None).unwrap();
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
        KeyListFile::at(&link).add(key(1), None, None, None).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{} read,write\n", key(1)));
    }

    #[test]
    fn a_list_that_others_may_change_is_not_changed() {
        let (_dir, path) = list("");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let refused = KeyListFile::at(&path).add(key(1), None, None, None);
        assert!(matches!(refused, Err(TrustError::Exposed(_))), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn without_rights_a_listed_key_keeps_its_own_and_a_new_one_may_do_all() {
        let (_dir, path) = list(&format!("{} read\n", key(1)));
        let file = KeyListFile::at(&path);
        assert_eq!(file.add(key(1), None, Some("anna"), None).unwrap(), (Edit::Done, Access::READ));
        assert_eq!(file.add(key(2), None, None, None).unwrap(), (Edit::Done, Access::ALL));
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
        let refused = KeyListFile::at(&open.join("link/list")).add(key(1), None, None, None);
        assert!(matches!(refused, Err(TrustError::Exposed(_))), "{refused:?}");
        assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
        std::os::unix::fs::symlink(dir.path().join("gone/list"), real.join("list")).unwrap();
        let refused = KeyListFile::at(&real.join("list")).add(key(1), None, None, None);
        assert!(matches!(refused, Err(TrustError::File { .. })), "{refused:?}");
        assert!(!dir.path().join("gone").exists());
    }

    #[test]
    fn a_lock_that_is_a_link_or_a_fifo_is_refused_at_once() {
        let (dir, path) = list("");
        let (lock, far) = (dir.path().join("list.lock"), dir.path().join("far"));
        std::os::unix::fs::symlink(&far, &lock).unwrap();
        assert!(KeyListFile::at(&path).add(key(1), None, None, None).is_err());
        assert!(!far.exists());
        std::fs::remove_file(&lock).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(KeyListFile::at(&path).add(key(1), None, None, None).is_err());
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
