//! Whom this host believes: servers by a list of known hosts, clients by a list of keys.
//!
//! Both lists are text files that people read and edit, one line per key, `#` before a comment.
//! A line that makes no sense is an error with its number and never a line skipped: a list that
//! is half read decides half at random. This module knows no network; it judges fingerprints.

mod authorized;
mod edited;
pub(crate) mod grants;
mod hours;
mod key_share;
mod known_hosts;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use authorized::{AUTHORIZED_KEYS_FILE, Access, AuthorizedKeys, ClientTrust, Strangers};
pub use edited::{Edit, EditError, KeyLine, KeyListFile, LineChange, PlacesChange};
pub use grants::{BadPlace, Below, GROUPS_OF_KEY_MOST, Grants, PLACES_MOST, is_name};
pub use hours::{BadHours, Closed, Hours, LocalTime, WINDOWS_MOST, unknown_zone};
pub use key_share::{KeyShare, Setting, ShareChange, read_weight};
pub use known_hosts::{
    HostRefused, HostTrust, KNOWN_HOSTS_FILE, KnownHosts, Standing, UnknownHosts,
};

use crate::identity::{Exposed, place};

/// Longest list that is read: some 40,000 lines.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read or changed.
    #[error("cannot use {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody else may change the list.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// A line makes no sense.
    #[error("{path}, line {line}: {why}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// The host is already listed with another key; it came while this one was being added.
    #[error(transparent)]
    Refused(Box<HostRefused>),
}

/// What is wrong with a line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Neither a host nor its port can be read.
    #[error("expected host:port in front")]
    Host,
    /// The fingerprint is missing or malformed.
    #[error("expected a fingerprint, SHA256: and 43 characters of base64")]
    Fingerprint,
    /// Something follows that is not known.
    #[error("expected the end of the line (a comment begins with #)")]
    Rest,
    /// A permission that does not exist.
    #[error("expected read, write or read,write after the fingerprint (a comment begins with #)")]
    Access,
    /// An option that does not exist, or that stands there twice.
    #[error(
        "expected group=, read=, write=, delete=, window=, rate=, weight= or guarantee=, each once"
    )]
    Option,
    /// What stands behind `group=`.
    #[error("expected names of groups behind group=, as in group=staff,lab")]
    Group,
    /// What stands behind `read=`, `write=` or `delete=`.
    #[error("expected places behind read=, write= or delete=, as in read=home/anna,scratch")]
    Place,
    /// What stands behind `window=`.
    #[error("expected hours behind window=, as in window=\"mon-fri 20:00-06:00\"")]
    Hours,
    /// What stands behind `rate=` or `guarantee=`.
    #[error("expected a rate above zero behind rate= or guarantee=, as in rate=50Mbit")]
    Rate,
    /// What stands behind `weight=`.
    #[error("expected a number from 0.001 to 1000 behind weight=, or low")]
    Weight,
    /// More is guaranteed than allowed.
    #[error("guarantee= is more than rate= on the same line")]
    Guarantee,
}

/// A server as the user names it: host name or address, and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostAddress {
    host: String,
    port: u16,
}

/// The text names no host, or no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host:port, with an IPv6 address in brackets")]
pub struct BadHostAddress;

impl HostAddress {
    /// Longest host name (RFC 1035), in bytes.
    const HOST_MAX: usize = 253;

    /// A host by name or address, an IPv6 address without brackets. Names are taken in lower
    /// case, IPv6 addresses in their shortest form. Behind a link-local one stands the interface
    /// (`fe80::1%eth0`), whose name keeps its case; `%25` before a name means `%` (RFC 6874).
    ///
    /// # Errors
    /// [`BadHostAddress`] if the host is empty, too long or has characters that no host has, or
    /// the port is 0.
    pub fn new(host: &str, port: u16) -> Result<HostAddress, BadHostAddress> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let (name, link) = match host.split_once('%') {
            Some((address, link)) => (address, Some(scope(link).ok_or(BadHostAddress)?)),
            None => (host, None),
        };
        let sane = (1..=Self::HOST_MAX).contains(&host.len()) && name.chars().all(fits);
        if !sane || port == 0 || (link.is_some() && !name.contains(':')) {
            return Err(BadHostAddress);
        }
        let name = match name.parse::<Ipv6Addr>() {
            Ok(address) => address.to_string(),
            Err(_) => name.to_ascii_lowercase(),
        };
        Ok(HostAddress { host: link.map_or(name.clone(), |link| format!("{name}%{link}")), port })
    }

    /// Name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port of TCP and UDP.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The interface behind the `%` of an address. A number that begins with 25 is a number: what would
/// be left of it is no interface's usual name.
fn scope(text: &str) -> Option<&str> {
    let name = match text.strip_prefix("25") {
        Some(name) if name.contains(|c: char| !c.is_ascii_digit()) => name,
        Some(_) | None => text,
    };
    let fits = |c: char| c.is_ascii_graphic() && !"/[]#%".contains(c);
    (!name.is_empty() && name.chars().all(fits)).then_some(name)
}

impl FromStr for HostAddress {
    type Err = BadHostAddress;

    /// Reads `host:port`; an IPv6 address must be in brackets, nothing else may be.
    fn from_str(text: &str) -> Result<HostAddress, BadHostAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(BadHostAddress)?;
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if inner.unwrap_or(host).contains(':') != inner.is_some() {
            return Err(BadHostAddress);
        }
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadHostAddress);
        }
        HostAddress::new(inner.unwrap_or(host), port.parse().map_err(|_| BadHostAddress)?)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostAddress { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The text of a list; empty if there is none.
fn read_list(path: &Path) -> io::Result<String> {
    let file: File = match place::open_to_read(path) {
        Err(e) if place::is_absent(&e) => return Ok(String::new()),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::other("longer than 4 MiB"));
    }
    Ok(text)
}

/// Reads every line that holds something besides a comment, as words and the comment behind them.
fn parse_lines<T>(
    path: &Path,
    text: &str,
    mut parse: impl FnMut(usize, &[&str], &str) -> Result<T, LineError>,
) -> Result<Vec<T>, TrustError> {
    let mut parsed = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let (content, comment) = content.split_once('#').unwrap_or((content, ""));
        let words = words_of(content);
        if words.is_empty() {
            continue;
        }
        let malformed = |why| TrustError::Line { path: path.to_owned(), line, why };
        parsed.push(parse(line, &words, comment.trim()).map_err(malformed)?);
    }
    Ok(parsed)
}

/// The words of a line. Space between double quotes is part of a word.
fn words_of(content: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let ends = move |c: char| {
        is_quoted ^= c == '"';
        c.is_whitespace() && !is_quoted
    };
    content.split(ends).filter(|word| !word.is_empty()).collect()
}
