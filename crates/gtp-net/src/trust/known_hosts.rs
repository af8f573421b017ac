//! The servers that a client has met: lines of `host:port fingerprint`.
//!
//! A server that shows another key than the one remembered is refused, whatever else is said: only
//! the user can remove the line. New ones are added under a lock, whole or not at all.

use std::path::{Path, PathBuf};

use super::{HostAddress, LineError, TrustError, parse_lines, read_list};
use crate::identity::{Fingerprint, guard, place};

/// Name of the file in the configuration directory.
pub const KNOWN_HOSTS_FILE: &str = "known_hosts";

/// The list of known hosts as it was when it was read.
#[derive(Clone, Debug)]
pub struct KnownHosts {
    /// Where it is kept, if it is.
    path: Option<PathBuf>,
    hosts: Vec<KnownHost>,
}

#[derive(Clone, Debug)]
struct KnownHost {
    line: usize,
    address: HostAddress,
    fingerprint: Fingerprint,
}

/// How a server's key stands with this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the key that was expected.
    Trusted,
    /// The host was never met, and new hosts are accepted: its key is to be remembered.
    New,
}

/// Why a server's key is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostRefused {
    /// The host was never met.
    #[error(
        "host {host} is not known; its key is {fingerprint}. If that is right (gtp id on the \
         server prints it), repeat with --fingerprint {fingerprint}, or with --accept-new to \
         trust and remember it"
    )]
    Unknown {
        /// The server.
        host: HostAddress,
        /// The key that it has.
        fingerprint: Fingerprint,
    },
    /// The host has another key than it had.
    #[error(
        "THE KEY OF HOST {host} HAS CHANGED: it was {known}, now it is {fingerprint}. Somebody \
         may be in between. If the change is right, remove line {line} of {path}",
        path = path.display()
    )]
    Changed {
        /// The server.
        host: HostAddress,
        /// The key that it had.
        known: Fingerprint,
        /// The key that it has.
        fingerprint: Fingerprint,
        /// The list.
        path: Box<Path>,
        /// The line to remove if the change is right, from 1.
        line: usize,
    },
    /// The key is not the one that was given.
    #[error("host {host} has the key {fingerprint}, which is not the one given")]
    NotPinned {
        /// The server.
        host: HostAddress,
        /// The key that it has.
        fingerprint: Fingerprint,
    },
}

impl KnownHosts {
    /// Reads the list; a file that is not there is an empty list.
    ///
    /// # Errors
    /// [`TrustError::Exposed`] if anybody but this user may change it, [`TrustError::File`],
    /// [`TrustError::Line`].
    pub fn load(path: &Path) -> Result<KnownHosts, TrustError> {
        guard::check(path)?;
        let text = read_list(path).map_err(|e| file_error(path, e))?;
        let hosts = parse_lines(path, &text, |line, words, _| parse_line(line, words))?;
        Ok(KnownHosts { path: Some(path.to_owned()), hosts })
    }

    /// An empty list that is kept nowhere.
    pub fn unkept() -> KnownHosts {
        KnownHosts { path: None, hosts: Vec::new() }
    }

    /// Whether the host has this key: trusted if one of its lines says so, changed if all of its
    /// lines say otherwise, unknown if it has none.
    ///
    /// # Errors
    /// [`HostRefused::Unknown`], [`HostRefused::Changed`].
    pub fn check(&self, host: &HostAddress, fingerprint: Fingerprint) -> Result<(), HostRefused> {
        let lines = || self.hosts.iter().filter(|known| known.address == *host);
        if lines().any(|known| known.fingerprint == fingerprint) {
            return Ok(());
        }
        let host = host.clone();
        Err(match lines().next() {
            None => HostRefused::Unknown { host, fingerprint },
            Some(&KnownHost { line, fingerprint: known, .. }) => HostRefused::Changed {
                host,
                known,
                fingerprint,
                path: self.path.as_deref().unwrap_or(Path::new(KNOWN_HOSTS_FILE)).into(),
                line,
            },
        })
    }

    /// Adds a host's key to the file, under its lock and at once. Nothing happens if it is there
    /// by now.
    ///
    /// # Errors
    /// [`TrustError`]; `Refused` if the host is there by now with another key.
    pub fn remember(
        path: &Path,
        host: &HostAddress,
        fingerprint: Fingerprint,
    ) -> Result<(), TrustError> {
        let failed = |e| file_error(path, e);
        if let Some(dir) = path.parent() {
            place::make_dir(dir).map_err(failed)?;
        }
        let _lock = place::lock(path).map_err(failed)?;
        match KnownHosts::load(path)?.check(host, fingerprint) {
            Ok(()) => return Ok(()),
            Err(HostRefused::Unknown { .. }) => {}
            Err(refused @ (HostRefused::Changed { .. } | HostRefused::NotPinned { .. })) => {
                return Err(TrustError::Refused(Box::new(refused)));
            }
        }
        let mut text = read_list(path).map_err(failed)?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("{host} {fingerprint}\n"));
        place::replace(path, text.as_bytes()).map_err(failed)
    }
}

/// What a client believes about servers.
#[derive(Clone, Debug)]
pub enum HostTrust {
    /// Only servers with one of these keys; the list of known hosts is not asked.
    Pinned(Vec<Fingerprint>),
    /// Only these servers, each with its key; the list of known hosts is not asked.
    Each(Vec<(HostAddress, Fingerprint)>),
    /// Servers of the list.
    Known {
        /// The list.
        hosts: KnownHosts,
        /// What happens to a host that is not on it.
        unknown: UnknownHosts,
    },
}

/// What happens to a host that was never met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownHosts {
    /// It is refused, with its fingerprint.
    Refuse,
    /// It is trusted and remembered.
    Accept,
}

impl HostTrust {
    /// Whether a server with this key, of which it has proved to hold the private half, is the
    /// one that is meant by `host`.
    ///
    /// # Errors
    /// [`HostRefused`].
    pub fn judge(
        &self,
        host: &HostAddress,
        fingerprint: Fingerprint,
    ) -> Result<Standing, HostRefused> {
        match self {
            HostTrust::Pinned(keys) if keys.contains(&fingerprint) => Ok(Standing::Trusted),
            HostTrust::Each(pairs) if pairs.iter().any(|p| p.0 == *host && p.1 == fingerprint) => {
                Ok(Standing::Trusted)
            }
            HostTrust::Pinned(_) | HostTrust::Each(_) => {
                Err(HostRefused::NotPinned { host: host.clone(), fingerprint })
            }
            HostTrust::Known { hosts, unknown } => {
                match (hosts.check(host, fingerprint), unknown) {
                    (Ok(()), _) => Ok(Standing::Trusted),
                    (Err(HostRefused::Unknown { .. }), UnknownHosts::Accept) => Ok(Standing::New),
                    (Err(refused), UnknownHosts::Accept | UnknownHosts::Refuse) => Err(refused),
                }
            }
        }
    }

    /// Remembers a host that [`HostTrust::judge`] called new. Reads and writes the file, if there
    /// is one.
    ///
    /// # Errors
    /// As [`KnownHosts::remember`].
    pub fn remember(&self, host: &HostAddress, fingerprint: Fingerprint) -> Result<(), TrustError> {
        match self {
            HostTrust::Pinned(_) | HostTrust::Each(_) => Ok(()),
            HostTrust::Known { hosts, .. } => match &hosts.path {
                Some(path) => KnownHosts::remember(path, host, fingerprint),
                None => Ok(()),
            },
        }
    }
}

fn parse_line(line: usize, words: &[&str]) -> Result<KnownHost, LineError> {
    let (address, fingerprint) = match *words {
        [address, fingerprint] => (address, fingerprint),
        [_] => return Err(LineError::Fingerprint),
        _ => return Err(LineError::Rest),
    };
    let address = address.parse().map_err(|_| LineError::Host)?;
    let fingerprint = fingerprint.parse().map_err(|_| LineError::Fingerprint)?;
    Ok(KnownHost { line, address, fingerprint })
}

fn file_error(path: &Path, source: std::io::Error) -> TrustError {
    TrustError::File { path: path.to_owned(), source }
}
