//! Addresses of objects: `gtp://host[:port]/path`.
//!
//! The path is what follows the first slash after the host; `%` and two hexadecimal digits stand
//! for a byte. A trailing slash is kept in mind: for `put` it says that a directory is meant.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::messages::{PATH_MAX, printable};
use crate::trust::HostAddress;

/// The port, of TCP and UDP alike, when an address names none.
pub const DEFAULT_PORT: u16 = 4810;

/// The address of an object at a server. Two are equal if they name the same, written with the
/// default port or without one.
#[derive(Clone, Debug)]
pub struct Url {
    host: HostAddress,
    path: Vec<u8>,
    slash: bool,
    /// Whether a port was written.
    names_port: bool,
}

impl PartialEq for Url {
    fn eq(&self, other: &Url) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Url {}

impl Hash for Url {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// The text is no address of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address: {why}; expected gtp://host[:port]/path, IPv6 in brackets")]
pub struct BadUrl {
    text: String,
    why: &'static str,
}

impl Url {
    /// The address of the object at `path` of a server; a slash at its end counts as in a text.
    ///
    /// # Errors
    /// [`BadUrl`] if no host has this name, the port is 0, or the path is too long.
    pub fn at(host: &str, port: u16, path: &str) -> Result<Url, BadUrl> {
        let bad = |why| BadUrl { text: format!("gtp://{host}:{port}/{path}"), why };
        let host = HostAddress::new(host, port).map_err(|_| bad("no host has this name"))?;
        let trimmed = trim(path.as_bytes());
        if trimmed.len() > PATH_MAX {
            return Err(bad("the path is too long"));
        }
        Ok(Url { host, path: trimmed.to_vec(), slash: path.ends_with('/'), names_port: true })
    }

    /// The address of what is at this path, which has no slash at its ends, of a server; `None` if
    /// there can be none.
    pub fn of(host: HostAddress, path: &[u8]) -> Option<Url> {
        let fits = path.len() <= PATH_MAX && trim(path) == path;
        fits.then(|| Url { host, path: path.to_vec(), slash: false, names_port: true })
    }

    /// The server.
    pub fn host(&self) -> &HostAddress {
        &self.host
    }

    /// The path below what the server exports, without slashes at its ends; empty for all of it.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The last component of the path, if it has one and it is UTF-8.
    pub fn name(&self) -> Option<&str> {
        let last = self.path.rsplit(|&b| b == b'/').next()?;
        std::str::from_utf8(last).ok().filter(|name| !name.is_empty())
    }

    /// The address as a text that reads back as the same one: of the path, all but letters, digits,
    /// `/`, `.`, `-`, `_` and `~` is percent-encoded.
    pub fn encoded(&self) -> String {
        let mut text = format!("gtp://{}/", self.host);
        for &byte in &self.path {
            if byte.is_ascii_alphanumeric() || b"/.-_~".contains(&byte) {
                text.push(byte.into());
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        if self.slash && !self.path.is_empty() {
            text.push('/');
        }
        text
    }

    /// Whether it was written with a port, which may be the default one.
    pub fn names_port(&self) -> bool {
        self.names_port
    }

    /// What it names.
    fn parts(&self) -> (&HostAddress, &[u8], bool) {
        (&self.host, &self.path, self.slash)
    }

    /// Whether it was written with a slash at its end, or names all that is exported.
    pub fn names_directory(&self) -> bool {
        self.slash || self.path.is_empty()
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Url, BadUrl> {
        let bad = |why| BadUrl { text: text.to_owned(), why };
        let rest = text.strip_prefix("gtp://").ok_or(bad("it does not begin with gtp://"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = parse_authority(authority).ok_or(bad("host or port cannot be read"))?;
        let decoded = decode(path).ok_or(bad("% must be followed by two hexadecimal digits"))?;
        let trimmed = trim(&decoded);
        if trimmed.len() > PATH_MAX {
            return Err(bad("the path is too long"));
        }
        let (slash, names_port) = (decoded.ends_with(b"/"), port_at(authority).is_some());
        Ok(Url { host, path: trimmed.to_vec(), slash, names_port })
    }
}

/// Where the colon is that a port follows.
fn port_at(authority: &str) -> Option<usize> {
    let bracket_end = authority.rfind(']');
    authority.rfind(':').filter(|&at| bracket_end.is_none_or(|end| at > end))
}

fn parse_authority(text: &str) -> Option<HostAddress> {
    match port_at(text) {
        Some(_) => text.parse().ok(),
        None => format!("{text}:{DEFAULT_PORT}").parse().ok(),
    }
}

fn trim(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] | [rest @ .., b'/'] = path {
        path = rest;
    }
    path
}

fn decode(path: &str) -> Option<Vec<u8>> {
    let mut bytes = path.bytes();
    let mut decoded = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |b: u8| char::from(b).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                (high * 16 + low) as u8
            }
            plain => plain,
        });
    }
    Some(decoded)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.slash && !self.path.is_empty() { "/" } else { "" };
        write!(f, "gtp://{}/{}{slash}", self.host, printable(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        let url: Url = "gtp://Example.org/a/b%20c".parse().unwrap();
        assert_eq!((url.host().host(), url.host().port()), ("example.org", DEFAULT_PORT));
        assert_eq!((url.path(), url.name()), (&b"a/b c"[..], Some("b c")));
        let url: Url = "gtp://[::1]:99/dir/".parse().unwrap();
        assert_eq!((url.host().host(), url.host().port()), ("::1", 99));
        assert!(url.names_directory());
        let url: Url = "gtp://[::1]".parse().unwrap();
        assert_eq!((url.host().port(), url.path()), (DEFAULT_PORT, &b""[..]));
        assert!(url.names_directory());
        let url: Url = "gtp://[fe80::1%Va0]/x%20y".parse().unwrap();
        assert_eq!((url.host().host(), url.host().port()), ("fe80::1%Va0", DEFAULT_PORT));
        assert_eq!(url.to_string(), "gtp://[fe80::1%Va0]:4810/x y");
        assert_eq!(url.to_string().parse::<Url>().unwrap().host(), url.host());
        assert_eq!("gtp://h//x".parse::<Url>().unwrap().to_string(), "gtp://h:4810/x");
    }

    #[test]
    fn an_address_of_a_path_takes_every_character_as_itself() {
        let url = Url::at("h", 7, "a b/50%/").unwrap();
        assert_eq!((url.path(), url.name()), (&b"a b/50%"[..], Some("50%")));
        assert!(url.names_directory() && !Url::at("::1", 7, "a").unwrap().names_directory());
        assert!(Url::at("h", 7, "").unwrap().names_directory());
        for (host, port, path) in [("", 7, "a"), ("h", 0, "a"), ("h", 7, &*"x".repeat(4_097))] {
            assert!(Url::at(host, port, path).is_err(), "{host} {port}");
        }
    }

    #[test]
    fn an_encoded_address_reads_back_as_the_same_one_whatever_bytes_its_path_has() {
        let every: String = (0..=255_u8).map(|byte| format!("%{byte:02x}")).collect();
        for text in [&*format!("gtp://h/a{every}z/"), "gtp://[::1]:7", "gtp://h/a/b"] {
            let url: Url = text.parse().unwrap();
            let encoded = url.encoded();
            assert_eq!(encoded.parse::<Url>().unwrap(), url, "{encoded}");
            assert!(encoded.is_ascii() && !encoded.contains(['\'', '"', '$', '`', ' ', '\n']));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "h/x", "http://h/x", "gtp://", "gtp:///x", "gtp://h:0/x", "gtp://::1/x"] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
        for text in ["gtp://h/%", "gtp://h/%g0", "gtp://h:x/", "gtp://h:70000/"] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }
}
