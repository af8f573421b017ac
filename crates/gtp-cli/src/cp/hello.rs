//! What both ends of `gtp cp` say to each other over ssh's pipe before any data move.
//!
//! One line each way: a mark with a version, then JSON. The near end asks, the far end answers, and
//! the shell that starts the far end may say in the same form that there is none. A login shell may
//! print anything before. Whatever comes is hostile: its length is bounded before it is kept, and
//! every field is checked here. docs/PROTOCOL.md, chapter 21, is the definition.

use std::fmt;
use std::net::IpAddr;

use gtp::{FailureKind, Fingerprint};
use serde::{Deserialize, Serialize};

/// What a line begins with; the number is the version of this exchange.
pub const MARK: &str = "gtp-hello/1 ";

/// The part of the mark that every version has.
const ANY_VERSION: &str = "gtp-hello/";

/// Longest line, with all paths: some thousand of ordinary length.
pub const LINE_MAX: usize = 1 << 20;

/// Bytes that may come before the line that is waited for.
pub const SKIPPED_MAX: usize = 1 << 18;

/// Objects that one command can fetch.
pub const OBJECTS_MAX: usize = 4_096;

/// Addresses that a far end may name.
pub const ADDRESSES_MAX: usize = 8;

/// Longest version, and longest name of a system.
const WORD_MAX: usize = 64;

/// What the near end wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The near end's release.
    pub version: String,
    /// The key that the near end shows, made for this command.
    #[serde(with = "as_text")]
    pub key: Fingerprint,
    /// The first and the last port that may be used; any if `None`.
    pub ports: Option<(u16, u16)>,
    /// What is to be reached.
    pub want: Want,
}

/// What is to be reached at the far end: paths as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// These are to be read; patterns are expanded.
    Read(Vec<String>),
    /// This is to be written.
    Write(String),
    /// This tree is to be made like another one: it is read, written and removed from.
    Tree(String),
    /// The same for a tree of which old versions are kept outside it.
    Alike(Alike),
    /// A command is to be run, which the near end says later; or the server of the subsystem that
    /// is named.
    Run(Option<String>),
    /// These are to be sent to another far end, of which the near end says more later; patterns are
    /// expanded.
    Send(Vec<String>),
    /// Another far end, which shows the key of the request, writes here.
    Receive(Receive),
}

/// A tree that is to be made like another one, and the directory for its old versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alike {
    /// The place.
    pub path: String,
    /// The name of the tree beneath the place; empty if the place is the tree.
    pub name: String,
    /// Whether one file alone is followed: what is no directory is then that file, and the tree is
    /// the directory that holds it.
    pub is_file: bool,
    /// Where old versions are kept: a path from the tree's directory.
    pub old_versions: String,
}

/// What another far end is to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// The place.
    pub path: String,
    /// What the other far end was asked for. Beneath the place it may write what these paths ask
    /// for, and nothing else.
    pub from: Vec<String>,
}

/// The far end's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It listens.
    Ready(Ready),
    /// It has found what it is to send.
    Sends(Sends),
    /// It cannot serve.
    Failed(Failed),
}

/// A far end that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// The far end's release.
    pub version: String,
    /// The key that the far end shows, made for this command.
    #[serde(with = "as_text")]
    pub key: Fingerprint,
    /// Where it may be reached, the most likely one first.
    pub addresses: Vec<IpAddr>,
    /// The port of TCP and UDP.
    pub port: u16,
    /// What was found.
    pub found: Vec<Object>,
}

/// A far end that waits to be told where to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sends {
    /// The far end's release.
    pub version: String,
    /// The key that it will show the other far end, made for this command.
    #[serde(with = "as_text")]
    pub key: Fingerprint,
}

/// Something that the near end asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The path beneath what is exported, without slashes at its ends; empty for all of it.
    pub path: String,
    /// The last part of the path as it was asked for.
    pub name: String,
    /// The position, from 0, of the requested path that it belongs to.
    pub index: usize,
}

/// A far end that cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// The far end's release.
    pub version: String,
    /// The kind of failure, as in machine output.
    pub kind: String,
    /// The same for people.
    pub text: String,
}

/// What a marked line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The far end's answer.
    Answer(Box<Answer>),
    /// The shell found no program; the name of the system.
    Absent(String),
    /// The shell found only a program that is another one of the same name; the name of the
    /// system.
    Foreign(String),
    /// The shell found a program, which waits for the request.
    Found,
    /// The shell waits for the program.
    Send,
    /// The program is not for this system, whose name it is.
    Unfit(String),
    /// The program came damaged.
    Damaged,
}

/// Why a line says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Another version of this exchange.
    #[error("it greets with {0:?}, this end with \"gtp-hello/1\"")]
    Version(String),
    /// Longer than anything sensible.
    #[error("it sends a line that is too long")]
    TooLong,
    /// Too much before the line that is waited for.
    #[error("it sends too much that is no greeting")]
    TooMuch,
    /// A marked line that cannot be read.
    #[error("its greeting makes no sense: {0}")]
    Malformed(String),
}

impl Failed {
    /// The kind of failure; a kind that no far end has is another one.
    pub fn kind(&self) -> FailureKind {
        let known = [
            FailureKind::Usage,
            FailureKind::Missing,
            FailureKind::Destination,
            FailureKind::Temporary,
            FailureKind::Authentication,
        ];
        let named = known.into_iter().find(|kind| kind.as_str() == self.kind);
        named.unwrap_or(FailureKind::Other)
    }
}

/// A request as a line.
pub fn of_request(request: &Request) -> String {
    line(request)
}

/// An answer as lines: an empty one ends whatever a shell has printed before.
pub fn of_answer(answer: &Answer) -> String {
    format!("\n{}", line(answer))
}

fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    format!("{MARK}{json}\n")
}

/// Reads a request.
///
/// # Errors
/// [`Bad`].
pub fn request(line: &[u8]) -> Result<Request, Bad> {
    let rest = marked(line)?.ok_or_else(|| malformed("it is no greeting"))?;
    let request: Request = serde_json::from_str(rest).map_err(malformed)?;
    check_version(&request.version)?;
    let fits = match &request.want {
        Want::Read(paths) | Want::Send(paths) => are_paths(paths),
        Want::Receive(Receive { path, from }) => is_path(path) && are_paths(from),
        Want::Write(path) | Want::Tree(path) => is_path(path),
        Want::Alike(Alike { path, name, old_versions, .. }) => {
            let is_name = name.len() <= NAME_MAX && !name.contains(['/', '\0']) && name != "..";
            is_path(path) && is_name && is_path(old_versions)
        }
        Want::Run(subsystem) => subsystem.as_ref().is_none_or(|name| name.len() <= WORD_MAX),
    };
    if !fits {
        return Err(malformed("it names no path, or too many"));
    }
    match request.ports {
        Some((first, last)) if first == 0 || last < first => Err(malformed("it names no port")),
        Some(_) | None => Ok(request),
    }
}

/// What a line of the far end says; `None` if it is none of ours.
///
/// # Errors
/// [`Bad`].
pub fn message(line: &[u8]) -> Result<Option<Message>, Bad> {
    let Some(rest) = marked(line)? else { return Ok(None) };
    let (first, system) = rest.split_once(' ').unwrap_or((rest, ""));
    let system = || match system.len() <= WORD_MAX {
        true => Ok(gtp_text::of_text(system)),
        false => Err(malformed("the name of its system is too long")),
    };
    Ok(Some(match first {
        "absent" => Message::Absent(system()?),
        "foreign" => Message::Foreign(system()?),
        "unfit" => Message::Unfit(system()?),
        "found" => Message::Found,
        "send" => Message::Send,
        "damaged" => Message::Damaged,
        _ => Message::Answer(Box::new(answer(rest)?)),
    }))
}

fn answer(json: &str) -> Result<Answer, Bad> {
    let answer: Answer = serde_json::from_str(json).map_err(malformed)?;
    match &answer {
        Answer::Failed(failed) => check_version(&failed.version)?,
        Answer::Sends(sends) => check_version(&sends.version)?,
        Answer::Ready(ready) => {
            check_version(&ready.version)?;
            if ready.port == 0 || ready.addresses.len() > ADDRESSES_MAX {
                return Err(malformed("it names no port, or too many addresses"));
            }
            let fits = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_multicast();
            if !ready.addresses.iter().all(fits) {
                return Err(malformed("it names an address that no host has"));
            }
            let fits = |object: &Object| {
                let path = &object.path;
                let is_bare = !path.starts_with('/') && !path.ends_with('/');
                is_path(path) && is_bare && object.name.len() <= NAME_MAX
            };
            if ready.found.len() > OBJECTS_MAX || !ready.found.iter().all(fits) {
                return Err(malformed("it names too many objects, or others than there are"));
            }
        }
    }
    Ok(answer)
}

/// The text behind the mark; `None` if the line has none.
fn marked(line: &[u8]) -> Result<Option<&str>, Bad> {
    if !line.starts_with(ANY_VERSION.as_bytes()) {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(malformed)?.trim_end_matches(['\r', '\n']);
    match text.strip_prefix(MARK) {
        Some(rest) => Ok(Some(rest)),
        None => {
            let greeting: String = text.chars().take_while(|c| *c != ' ').take(WORD_MAX).collect();
            Err(Bad::Version(gtp_text::of_text(&greeting)))
        }
    }
}

/// A version is shown and compared; it is short, and harmless to a terminal.
fn check_version(version: &str) -> Result<(), Bad> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b".+-".contains(&b);
    if (1..=WORD_MAX).contains(&version.len()) && version.bytes().all(fits) {
        return Ok(());
    }
    Err(malformed("it names no version"))
}

fn are_paths(paths: &[String]) -> bool {
    (1..=OBJECTS_MAX).contains(&paths.len()) && paths.iter().all(|path| is_path(path))
}

fn is_path(path: &str) -> bool {
    path.len() <= PATH_MAX && !path.contains('\0')
}

fn malformed(why: impl fmt::Display) -> Bad {
    Bad::Malformed(gtp_text::of_text(&why.to_string()))
}

/// Longest path (Linux's PATH_MAX) and longest name (its NAME_MAX).
const PATH_MAX: usize = 4_096;
const NAME_MAX: usize = 255;

/// What some far ends can do and older ones cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It takes the link without TLS.
    Bare,
    /// It watches the tree that it offers.
    Watch,
    /// All that it exports is a bundle of those objects that one can hold ([`part`]).
    Bundle,
    /// It sends with the use of the path that it is told.
    PathUse,
    /// It sends with the steps of the end-node law that it is told.
    Steps,
}

impl Ability {
    /// What a far end of this release can do whatever it is asked for.
    pub const ALWAYS: [Ability; 2] = [Ability::Bare, Ability::Watch];

    fn word(self) -> &'static str {
        match self {
            Ability::Bare => "bare",
            Ability::Watch => "watch",
            Ability::Bundle => "bundle",
            Ability::PathUse => "path",
            Ability::Steps => "steps",
        }
    }

    /// Whether the far end of this release has it.
    pub fn is_of(self, version: &str) -> bool {
        let word = self.word();
        version.split_once('+').is_some_and(|(_, more)| more.split('.').any(|said| said == word))
    }
}

/// A release with what this far end can do. Other releases skip what they do not know behind the
/// sign.
pub fn with_abilities(version: &str, abilities: &[Ability]) -> String {
    let sign = if version.contains('+') { '.' } else { '+' };
    let words: Vec<&str> = abilities.iter().map(|ability| ability.word()).collect();
    format!("{version}{sign}{}", words.join("."))
}

/// Whether a path stands for the content of a directory: it ends in a slash, a dot or nothing.
pub fn is_content(path: &str) -> bool {
    matches!(path.rsplit('/').next(), None | Some("" | "." | "..")) || path == "~"
}

/// Parts the objects that were found for these paths: first those that lie directly beneath what is
/// exported under the names that they were asked for by, which one bundle holds, then the others.
/// There are none of the first kind, or two at least.
pub fn part<'o>(paths: &[String], found: &'o [Object]) -> (Vec<&'o Object>, Vec<&'o Object>) {
    let has_content = |index| paths.get(index).is_none_or(|path: &String| is_content(path));
    let fits = |object: &&Object| {
        !has_content(object.index) && object.path == object.name && !object.path.contains('/')
    };
    let (together, others): (Vec<_>, Vec<_>) = found.iter().partition(fits);
    match together.len() {
        0 | 1 => (Vec::new(), found.iter().collect()),
        _ => (together, others),
    }
}

/// Whether two releases speak one protocol: before 1.0 a minor version may change it, later a major
/// one.
pub fn are_compatible(one: &str, other: &str) -> bool {
    let numbers = |version: &str| {
        let mut parts = version.split('.');
        let major = parts.next().map(str::to_owned);
        let minor = parts.next().map(str::to_owned);
        if major.as_deref() == Some("0") { (major, minor) } else { (major, None) }
    };
    numbers(one) == numbers(other)
}

/// Finds marked lines in what comes.
#[derive(Debug, Default)]
pub struct Finder {
    line: Vec<u8>,
    /// Whether the rest of the present line is dropped.
    is_skipping: bool,
    skipped: usize,
    /// The beginning of what was skipped, for people.
    first: Vec<u8>,
}

impl Finder {
    /// Takes bytes in, up to the end of the first line that says something. Returns how many bytes
    /// it has taken, and what the line says.
    ///
    /// # Errors
    /// [`Bad`]; the rest of the bytes means nothing then.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Message>), Bad> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let end = rest.iter().position(|&b| b == b'\n').map(|at| at + 1);
            let piece = &rest[..end.unwrap_or(rest.len())];
            self.line.extend_from_slice(piece);
            taken += piece.len();
            if !self.may_be_marked() {
                self.skip()?;
            } else if self.line.len() > LINE_MAX {
                return Err(Bad::TooLong);
            } else if end.is_some() {
                match message(&self.line)? {
                    Some(message) => {
                        self.line.clear();
                        return Ok((taken, Some(message)));
                    }
                    None => self.skip()?,
                }
            }
        }
        Ok((taken, None))
    }

    /// Whether the line so far is marked, or may become so.
    fn may_be_marked(&self) -> bool {
        if self.is_skipping {
            return false;
        }
        let mark = ANY_VERSION.as_bytes();
        let common = self.line.len().min(mark.len());
        self.line[..common] == mark[..common]
    }

    /// Drops the line so far; its rest is dropped when it comes.
    fn skip(&mut self) -> Result<(), Bad> {
        self.skipped += self.line.len();
        let room = FIRST_MAX.saturating_sub(self.first.len());
        self.first.extend(self.line.iter().take(room));
        self.is_skipping = !self.line.ends_with(b"\n");
        self.line.clear();
        if self.skipped > SKIPPED_MAX { Err(Bad::TooMuch) } else { Ok(()) }
    }

    /// The beginning of what was skipped, harmless to a terminal; empty if nothing was.
    pub fn skipped(&self) -> String {
        gtp_text::of_bytes(self.first.trim_ascii())
    }
}

/// Bytes of skipped lines that are kept for people.
const FIRST_MAX: usize = 200;

/// A value by its text.
pub mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
    {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use gtp::Identity;
    use proptest::prelude::*;

    use super::*;

    fn ready() -> Ready {
        Ready {
            version: "0.1.0".into(),
            key: Identity::generate().fingerprint(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            port: 40_123,
            found: vec![Object { path: "a/b c".into(), name: "b c".into(), index: 0 }],
        }
    }

    fn request_for(want: Want) -> Request {
        let key = Identity::generate().fingerprint();
        Request { version: "0.1.0".into(), key, ports: Some((4810, 4812)), want }
    }

    /// All that a far end says, in pieces of a length.
    fn heard(said: &[u8], length: usize) -> Result<Option<Message>, Bad> {
        let mut finder = Finder::default();
        for piece in said.chunks(length) {
            if let (_, Some(message)) = finder.take(piece)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    #[test]
    fn what_one_end_says_the_other_hears() {
        for want in [
            Want::Read(vec!["a".into(), "~/b*".into()]),
            Want::Write(String::new()),
            Want::Tree("t".into()),
            Want::Alike(Alike {
                path: "t".into(),
                name: "u".into(),
                is_file: false,
                old_versions: "../old".into(),
            }),
            Want::Send(vec!["a".into()]),
            Want::Receive(Receive { path: "b".into(), from: vec!["a".into()] }),
        ] {
            let said = request_for(want);
            assert_eq!(request(of_request(&said).as_bytes()), Ok(said));
        }
        let failed = Failed { version: "0.1.0".into(), kind: "missing".into(), text: "no".into() };
        assert_eq!(failed.kind(), FailureKind::Missing);
        let sends = Sends { version: "0.1.0".into(), key: Identity::generate().fingerprint() };
        for answer in [Answer::Ready(ready()), Answer::Sends(sends), Answer::Failed(failed)] {
            let said = of_answer(&answer);
            for length in [1, 7, 4_096] {
                let message = Some(Message::Answer(Box::new(answer.clone())));
                assert_eq!(heard(said.as_bytes(), length), Ok(message));
            }
        }
    }

    #[test]
    fn a_banner_before_the_greeting_is_skipped_even_without_an_end_of_its_line() {
        let said =
            format!("Welcome!\ngtp-hellish\nlast login{}", "\ngtp-hello/1 absent Linux arm\n");
        for length in [1, 5, 1_000] {
            let absent = Message::Absent("Linux arm".into());
            assert_eq!(heard(said.as_bytes(), length), Ok(Some(absent)));
        }
        assert_eq!(heard(b"mark inside: gtp-hello/1 found\n", 3), Ok(None));
    }

    #[test]
    fn too_much_of_anything_is_refused_before_it_is_kept() {
        let banner = vec![b'x'; SKIPPED_MAX + 1];
        assert_eq!(heard(&banner, 1_000), Err(Bad::TooMuch));
        let lines = b"y\n".repeat(SKIPPED_MAX);
        assert_eq!(heard(&lines, 1_000), Err(Bad::TooMuch));
        let long = [MARK.as_bytes(), &vec![b'{'; LINE_MAX]].concat();
        assert_eq!(heard(&long, 1_000), Err(Bad::TooLong));
        let mut finder = Finder::default();
        assert!(finder.take(&banner).is_err());
        assert!(finder.line.len() + finder.first.len() <= FIRST_MAX);
    }

    #[test]
    fn another_version_of_the_greeting_is_named_without_its_escapes() {
        let said = b"gtp-hello/\x1b[31m2 {}\n";
        let bad = heard(said, 4).unwrap_err();
        assert_eq!(bad, Bad::Version("gtp-hello/\\u{1b}[31m2".into()));
    }

    #[test]
    fn fields_that_no_far_end_has_are_refused() {
        let bad = |change: &dyn Fn(&mut Ready)| {
            let mut said = ready();
            change(&mut said);
            let said = of_answer(&Answer::Ready(said));
            assert!(matches!(heard(said.as_bytes(), 4_096), Err(Bad::Malformed(_))), "{said}");
        };
        bad(&|said| said.version = "\u{1b}[2J".into());
        bad(&|said| said.version = "1".repeat(65));
        bad(&|said| said.port = 0);
        bad(&|said| said.addresses = vec!["0.0.0.0".parse().unwrap()]);
        bad(&|said| said.addresses = vec!["ff02::1".parse().unwrap()]);
        bad(&|said| said.addresses = vec!["10.0.0.1".parse().unwrap(); ADDRESSES_MAX + 1]);
        bad(&|said| said.found[0].path = "x".repeat(PATH_MAX + 1));
        bad(&|said| said.found[0].path = "x/".into());
        bad(&|said| said.found[0].path = "/x".into());
        bad(&|said| said.found[0].name = "x".repeat(NAME_MAX + 1));
        bad(&|said| said.found = vec![said.found[0].clone(); OBJECTS_MAX + 1]);
    }

    #[test]
    fn requests_that_no_near_end_has_are_refused() {
        let bad = |said: Request| assert!(request(of_request(&said).as_bytes()).is_err());
        bad(request_for(Want::Read(Vec::new())));
        bad(request_for(Want::Send(vec!["a".into(); OBJECTS_MAX + 1])));
        bad(request_for(Want::Receive(Receive { path: "b".into(), from: Vec::new() })));
        bad(request_for(Want::Write("a\0b".into())));
        for name in ["..", "a/b", "a\0b"] {
            let (path, old_versions) = ("t".into(), "/old".into());
            let name = name.into();
            bad(request_for(Want::Alike(Alike { path, name, is_file: true, old_versions })));
        }
        bad(request_for(Want::Write("x".repeat(PATH_MAX + 1))));
        bad(Request { ports: Some((2, 1)), ..request_for(Want::Write("a".into())) });
        assert!(request(b"hello\n").is_err());
        assert!(matches!(request(b"gtp-hello/2 {}\n"), Err(Bad::Version(_))));
    }

    #[test]
    fn releases_of_one_minor_version_before_1_0_and_of_one_major_later_speak_together() {
        assert!(are_compatible("0.1.0", "0.1.7") && are_compatible("1.2.0", "1.3.4"));
        assert!(!are_compatible("0.1.0", "0.2.0") && !are_compatible("1.0.0", "2.0.0"));
        assert!(!are_compatible("0.1.0", "1.1.0") && !are_compatible("0.1.0", "x"));
    }

    #[test]
    fn a_release_with_abilities_says_so_and_is_compatible_with_one_that_has_none() {
        for version in ["0.1.0", "0.1.0+other"] {
            let said = with_abilities(version, &Ability::ALWAYS);
            for ability in Ability::ALWAYS {
                assert!(ability.is_of(&said) && !ability.is_of(version), "{said}");
            }
            assert!(!Ability::Bundle.is_of(&said), "{said}");
            assert!(are_compatible(&said, version) && check_version(&said).is_ok());
        }
        assert!(!Ability::Bare.is_of("0.1.0-bare") && !Ability::Bare.is_of("0.1.0+barely"));
    }

    proptest! {
        #[test]
        fn whatever_comes_no_word_shows_more_than_plain_characters(
            prefix in "(gtp-hello/1 (absent |unfit |\\{)?)?",
            bytes: Vec<u8>,
            length in 1_usize..50,
        ) {
            let said = [prefix.as_bytes(), &bytes, b"\n"].concat();
            let shown = match heard(&said, length) {
                Ok(Some(Message::Absent(system) | Message::Unfit(system))) => system,
                Ok(_) => String::new(),
                Err(bad) => bad.to_string(),
            };
            prop_assert!(shown.chars().all(gtp_text::is_plain), "{shown:?}");
            // The same in the other direction.
            let shown = request(&said).err().map(|bad| bad.to_string()).unwrap_or_default();
            prop_assert!(shown.chars().all(gtp_text::is_plain), "{shown:?}");
        }

        #[test]
        fn an_answer_with_any_field_garbled_is_heard_whole_or_refused(at: usize, byte: u8) {
            let mut said = of_answer(&Answer::Ready(ready())).into_bytes();
            let at = at % said.len();
            said[at] = byte;
            if let Ok(Some(Message::Answer(answer))) = heard(&said, 100)
                && let Answer::Ready(ready) = *answer
            {
                prop_assert!(ready.port > 0 && ready.addresses.len() <= ADDRESSES_MAX);
                prop_assert!(ready.version.bytes().all(|b| b.is_ascii_graphic()));
            }
        }
    }

    #[test]
    fn what_lies_in_one_directory_under_its_own_name_is_together_and_one_alone_is_not() {
        let object =
            |path: &str, name: &str, index| Object { path: path.into(), name: name.into(), index };
        let paths: Vec<String> = ["*.gz", "link", "d/", "deep/x"].map(String::from).to_vec();
        let all = [
            object("a.gz", "a.gz", 0),
            object("b.gz", "b.gz", 0),
            object("real", "link", 1),
            object("d", "d", 2),
            object("deep/x", "x", 3),
        ];
        let names = |objects: Vec<&Object>| -> Vec<String> {
            objects.into_iter().map(|object| object.name.clone()).collect()
        };
        let (together, others) = part(&paths, &all);
        assert_eq!(names(together), ["a.gz", "b.gz"]);
        assert_eq!(names(others), ["link", "d", "x"]);
        let (together, others) = part(&paths, &all[1..]);
        assert!(together.is_empty() && others.len() == 4);
        assert!(part(&paths, &[object("a", "a", 9), object("b", "b", 9)]).0.is_empty());
    }
}
