//! What a word of the command line names: a path here, one behind an ssh login, or an address.
//!
//! The rule is scp's and rsync's: a colon before the first slash ends a login. A file here whose
//! name has a colon is written with its directory, as in `./a:b`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gtp::{Failure, FailureKind};

/// What a word names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A path here; `-` is a stream.
    Local(PathBuf),
    /// A path behind a login.
    Remote(Remote),
    /// An address of a server.
    Address(String),
}

/// A path behind a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Who logs in where.
    pub login: Login,
    /// The path as it was written.
    pub path: String,
}

/// Who logs in where, as ssh takes it: `[user@]host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login(String);

impl Operand {
    /// What the word names.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if it names a login that is none.
    pub fn of(word: &OsStr) -> Result<Operand, Failure> {
        let bytes = word.as_bytes();
        if bytes.starts_with(b"gtp://") {
            return Ok(Operand::Address(text(word)?.to_owned()));
        }
        let Some(colon) = colon(bytes) else { return Ok(Operand::Local(word.into())) };
        let text = text(word)?;
        let (login, path) = (&text[..colon], &text[colon + 1..]);
        if path.starts_with(':') {
            let why = "a daemon of rsync's is not spoken to; name a path behind one colon";
            return Err(usage(text, why));
        }
        let login = Login::of(login).ok_or_else(|| {
            usage(text, "no host stands before the colon; write a path of this machine as ./PATH")
        })?;
        Ok(Operand::Remote(Remote { login, path: path.to_owned() }))
    }
}

/// Where the colon is that ends a login: before the first slash, and not within brackets.
fn colon(word: &[u8]) -> Option<usize> {
    let head = word.split(|&b| b == b'/').next()?;
    let host = head.iter().rposition(|&b| b == b'@').map_or(0, |at| at + 1);
    let bracketed = head[host..].starts_with(b"[");
    let from = match bracketed {
        true => head.iter().position(|&b| b == b']')?,
        false => 0,
    };
    head[from..].iter().position(|&b| b == b':').map(|at| from + at)
}

impl Login {
    /// A login; `None` if ssh would take it for an option, or it has characters that no host has.
    pub fn of(text: &str) -> Option<Login> {
        let fits = |c: char| gtp_text::is_plain(c) && c != ' ' && !"/'\"\\[]".contains(c);
        let is_word = |word: &str| !word.starts_with('-') && word.chars().all(fits);
        let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_v6 = |host: &str| {
            let address = host.split('%').next().unwrap_or_default();
            address.parse::<std::net::Ipv6Addr>().is_ok()
        };
        let bare = bracketed.filter(|host| is_v6(host)).unwrap_or(host);
        let sane = !bare.is_empty() && is_word(bare) && is_word(user);
        sane.then(|| Login(text.to_owned()))
    }

    /// The word for ssh, where an IPv6 address has no brackets.
    pub fn for_ssh(&self) -> String {
        self.0.replace(['[', ']'], "")
    }

    /// The host, without user and brackets.
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once('@').map_or(self.0.as_str(), |(_, host)| host);
        host.trim_matches(['[', ']'])
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn text(word: &OsStr) -> Result<&str, Failure> {
    word.to_str().ok_or_else(|| usage(&word.to_string_lossy(), "it is not UTF-8"))
}

fn usage(word: &str, why: &str) -> Failure {
    Failure::new(FailureKind::Usage, format!("{}: {why}", gtp_text::of_text(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(word: &str) -> Operand {
        Operand::of(OsStr::new(word)).unwrap()
    }

    #[test]
    fn a_colon_before_the_first_slash_ends_a_login() {
        for (word, ssh, host, path) in [
            ("host:a/b:c", "host", "host", "a/b:c"),
            ("me@host:", "me@host", "host", ""),
            ("me@[2001:db8::1]:/x", "me@2001:db8::1", "2001:db8::1", "/x"),
            ("[fe80::1%eth0]:~/x", "fe80::1%eth0", "fe80::1%eth0", "~/x"),
            ("a@b@host:x y", "a@b@host", "host", "x y"),
        ] {
            let Operand::Remote(remote) = operand(word) else { panic!("{word}") };
            let login = remote.login;
            assert_eq!((&*login.for_ssh(), login.host(), &*remote.path), (ssh, host, path));
        }
    }

    #[test]
    fn other_words_are_paths_here_or_addresses() {
        for word in ["a", "./a:b", "/x:y", "a/b:c", "-", ".", "[x"] {
            assert_eq!(operand(word), Operand::Local(word.into()));
        }
        assert_eq!(operand("gtp://h/x"), Operand::Address("gtp://h/x".into()));
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_login() {
        for word in [":x", "-oProxyCommand=x:y", "host::module", "a b:c", "a\u{1b}b:c", "me@:x"] {
            let refused = Operand::of(OsStr::new(word)).unwrap_err();
            assert_eq!(refused.kind, FailureKind::Usage, "{word}");
        }
        for word in ["[-oProxyCommand=x]:y", "]-oProxyCommand=x:y", "[]-o:x", "me@-o:x", "[a]:x"] {
            let refused = Operand::of(OsStr::new(word)).unwrap_err();
            assert_eq!(refused.kind, FailureKind::Usage, "{word}");
        }
    }
}
