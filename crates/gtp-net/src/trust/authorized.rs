//! The clients that a server lets in: lines of
//! `fingerprint [read|write|read,write] [option=value ...] [# comment]`.
//!
//! A line that cannot be read is an error with its number, never a key that is silently left out
//! or let in. What a key may do is at most what the server itself allows. The options say to which
//! groups a key belongs, when it may come, what it has of the server's rates, and what it may do
//! where in a server with several exports.

use std::collections::BTreeMap;
use std::path::Path;

use gtp_alloc::Rate;

use super::grants::{Below, GROUPS_OF_KEY_MOST, Grants, PLACES_MOST, is_name};
use super::hours::Hours;
use super::key_share::KeyShare;
use super::{LineError, TrustError, parse_lines, read_list};
use crate::identity::{Fingerprint, guard};

/// Name of the file in the configuration directory.
pub const AUTHORIZED_KEYS_FILE: &str = "authorized_keys";

/// What a client may do. Whether the server writes at all is another question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It may list and get.
    pub read: bool,
    /// It may put.
    pub write: bool,
}

impl Access {
    /// Nothing at all.
    pub const NONE: Access = Access { read: false, write: false };
    /// List, get and put.
    pub const ALL: Access = Access { read: true, write: true };
    /// List and get.
    pub const READ: Access = Access { read: true, write: false };

    /// Put alone.
    pub const WRITE: Access = Access { read: false, write: true };

    /// How the list writes it: `read`, `write` or `read,write`; empty for nothing.
    pub fn words(self) -> &'static str {
        match (self.read, self.write) {
            (true, true) => "read,write",
            (true, false) => "read",
            (false, true) => "write",
            (false, false) => "",
        }
    }

    pub(super) fn and(self, other: Access) -> Access {
        Access { read: self.read || other.read, write: self.write || other.write }
    }

    /// Reads `read`, `write` or `read,write`.
    ///
    /// # Errors
    /// [`LineError::Access`] for anything else.
    pub fn parse(word: &str) -> Result<Access, LineError> {
        word.split(',').try_fold(Access::NONE, |access, right| match right {
            "read" => Ok(access.and(Access::READ)),
            "write" => Ok(access.and(Access::WRITE)),
            _ => Err(LineError::Access),
        })
    }
}

/// The list of client keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthorizedKeys {
    keys: Vec<Listed>,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub key: Fingerprint,
    pub access: Access,
    /// The groups that it belongs to.
    pub groups: Vec<String>,
    /// What it may do where, beside what its groups may.
    grants: Grants,
    /// When it may come.
    pub hours: Hours,
    /// What it has of the server's rates.
    pub share: KeyShare,
    /// What stands behind the `#`, escaped for display and cut; empty if there is nothing.
    comment: String,
}

/// Characters of a comment that are kept.
const COMMENT_MOST: usize = 100;

impl AuthorizedKeys {
    /// Reads the list; a file that is not there is an empty list.
    ///
    /// # Errors
    /// [`TrustError::Exposed`] if anybody but this user may change it, [`TrustError::File`],
    /// [`TrustError::Line`].
    pub fn load(path: &Path) -> Result<AuthorizedKeys, TrustError> {
        guard::check(path)?;
        let failed = |source| TrustError::File { path: path.to_owned(), source };
        let text = read_list(path).map_err(failed)?;
        let keys = parse_lines(path, &text, |_, words, comment| parse_line(words, comment))?;
        Ok(AuthorizedKeys { keys })
    }

    /// A list in memory of one key and what it may do.
    pub fn of_one(key: Fingerprint, access: Access) -> AuthorizedKeys {
        AuthorizedKeys { keys: vec![Listed::new(key, access, String::new())] }
    }

    /// What the list grants to a key; several lines of one key add up.
    pub fn access(&self, client: &Fingerprint) -> Access {
        self.lines(client).fold(Access::NONE, |access, line| access.and(line.access))
    }

    /// The comment on a key's line, escaped for display and cut after 100 characters; of several
    /// lines the first that has one.
    pub fn comment(&self, client: &Fingerprint) -> Option<&str> {
        self.lines(client).map(|line| line.comment.as_str()).find(|comment| !comment.is_empty())
    }

    /// The groups that the key's lines name.
    pub fn groups<'a>(&'a self, client: &Fingerprint) -> impl Iterator<Item = &'a str> {
        self.lines(client).flat_map(|line| line.groups.iter().map(String::as_str))
    }

    /// The groups that lines name and that are none, each with whose line names it first, by its
    /// comment or fingerprint.
    pub fn groups_but(&self, is_group: impl Fn(&str) -> bool) -> BTreeMap<&str, String> {
        let mut others = BTreeMap::new();
        for line in &self.keys {
            for name in line.groups.iter().filter(|name| !is_group(name)) {
                others.entry(name.as_str()).or_insert_with(|| line.whose());
            }
        }
        others
    }

    /// What the key's lines let it do where, all of them together.
    pub fn grants(&self, client: &Fingerprint) -> Grants {
        let mut all = Grants::default();
        self.lines(client).for_each(|line| all.add(&line.grants));
        all
    }

    /// When the key may come: the windows of all its lines, or always if there are none.
    pub fn hours(&self, client: &Fingerprint) -> Hours {
        self.lines(client).fold(Hours::default(), |all, line| all.and(&line.hours))
    }

    /// Whether a line says when its key may come.
    pub fn have_hours(&self) -> bool {
        self.keys.iter().any(|line| !line.hours.is_always())
    }

    /// What the key has of the server's rates by its lines; nothing if these give it no right.
    pub fn share(&self, client: &Fingerprint) -> KeyShare {
        match self.access(client) {
            Access::NONE => KeyShare::default(),
            Access { .. } => self.lines(client).fold(KeyShare::default(), |a, l| a.and(l.share)),
        }
    }

    /// Whether a line says what its key has of the server's rates.
    pub fn have_shares(&self) -> bool {
        self.keys.iter().any(|line| !line.share.is_none())
    }

    /// What lines guarantee to keys that have some right, all of them together.
    pub fn guaranteed(&self) -> Rate {
        let mut all: BTreeMap<Fingerprint, (Access, KeyShare)> = BTreeMap::new();
        for line in &self.keys {
            let (access, share) = all.entry(line.key).or_default();
            (*access, *share) = (access.and(line.access), share.and(line.share));
        }
        let listed = all.into_values().filter(|(access, _)| *access != Access::NONE);
        listed.map(|(_, share)| share.promised()).fold(Rate::ZERO, Rate::saturating_add)
    }

    /// Takes every right from lines that name places with `read=`, `write=` or `delete=`, for a
    /// server that has no exports in which such a place could be. Returns whose lines these are, by
    /// their comments or fingerprints.
    pub fn void_narrowed(&mut self) -> Vec<String> {
        let narrowed = self.keys.iter_mut().filter(|line| line.is_narrowed());
        let void = |line: &mut Listed| {
            line.access = Access::NONE;
            line.whose()
        };
        narrowed.map(void).collect()
    }

    fn lines(&self, client: &Fingerprint) -> impl Iterator<Item = &Listed> {
        let client = *client;
        self.keys.iter().filter(move |line| line.key == client)
    }

    /// How many lines there are with a key.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nobody is listed.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// What a server lets clients do that are not on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// Nothing.
    Refused,
    /// Read, as `--public` says.
    MayRead,
}

/// What a server believes about clients.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTrust {
    /// The list.
    pub keys: AuthorizedKeys,
    /// Everybody else.
    pub strangers: Strangers,
}

impl ClientTrust {
    /// What the client with this key, of which it has proved to hold the private half, may do.
    pub fn access(&self, client: &Fingerprint) -> Access {
        let listed = self.keys.access(client);
        match self.strangers {
            Strangers::Refused => listed,
            Strangers::MayRead => listed.and(Access::READ),
        }
    }
}

/// A key without more may do all that the server allows: that it writes at all was asked for by
/// its operator. A word behind the key narrows it.
pub(super) fn parse_line(words: &[&str], comment: &str) -> Result<Listed, LineError> {
    let (fingerprint, rest) = words.split_first().ok_or(LineError::Fingerprint)?;
    let (access, options) = match rest.split_first() {
        Some((word, options)) if !word.contains('=') => (Access::parse(word)?, options),
        Some(_) | None => (Access::ALL, rest),
    };
    let key = fingerprint.parse().map_err(|_| LineError::Fingerprint)?;
    let comment: String = comment.chars().take(COMMENT_MOST).collect();
    let mut listed = Listed::new(key, access, gtp_text::of_text(&comment));
    for word in options {
        let (name, value) = word.split_once('=').ok_or(LineError::Rest)?;
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        listed.take(name, quoted.unwrap_or(value))?;
    }
    listed.share.check()?;
    Ok(listed)
}

impl Listed {
    fn new(key: Fingerprint, access: Access, comment: String) -> Listed {
        let (groups, grants, hours) = (Vec::new(), Grants::default(), Hours::default());
        Listed { key, access, groups, grants, hours, share: KeyShare::default(), comment }
    }

    /// Whose it is, for people.
    fn whose(&self) -> String {
        match self.comment.as_str() {
            "" => self.key.to_string(),
            comment => comment.to_owned(),
        }
    }

    /// Whether it names places.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Takes an option of the line.
    fn take(&mut self, name: &str, value: &str) -> Result<(), LineError> {
        if let Some(taken) = self.share.take(name, value) {
            return taken;
        }
        let places = match name {
            "group" if self.groups.is_empty() => {
                let names: Vec<String> = value.split(',').map(str::to_owned).collect();
                let fits = names.len() <= GROUPS_OF_KEY_MOST && names.iter().all(|n| is_name(n));
                self.groups = Some(names).filter(|_| fits).ok_or(LineError::Group)?;
                return Ok(());
            }
            "window" if self.hours.is_always() => {
                self.hours = value.parse().map_err(|_| LineError::Hours)?;
                return Ok(());
            }
            "read" => &mut self.grants.read,
            "write" => &mut self.grants.write,
            "delete" => &mut self.grants.delete,
            _ => return Err(LineError::Option),
        };
        if !places.is_empty() {
            return Err(LineError::Option);
        }
        let parsed: Result<Vec<Below>, _> = value.split(',').map(str::parse).collect();
        let parsed = parsed.ok().filter(|all| all.len() <= PLACES_MOST);
        *places = parsed.ok_or(LineError::Place)?;
        Ok(())
    }
}
