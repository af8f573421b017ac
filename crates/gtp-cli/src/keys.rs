//! `gtp keys`: shows, changes and judges the list of keys that servers on this machine let in.
//!
//! The file is the one that `gtp serve` reads, and is changed at once. A key is meant by its
//! fingerprint or by the comment on its line. What a line means is decided where servers read it.

mod places;
mod shares;
mod timetable;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use gtp::{
    AUTHORIZED_KEYS_FILE, Access, AuthorizedKeys, BadHours, Below, Edit, EditError, Exports,
    Failure, FailureKind, Fingerprint, GROUPS_OF_KEY_MOST, Hours, KeyLine, KeyListFile, LineChange,
    LocalTime, PLACES_MOST, PlacesChange, TrustError, is_name,
};
use serde_json::json;

use crate::output;
use crate::verbs::other;
use places::Places;
use shares::{ShareArgs, Shares};
pub use timetable::Groups;
use timetable::{Timetable, window};

/// What a line of the list says, for people.
pub const LINES: &str = "\
A line of authorized_keys is FINGERPRINT [RIGHTS] [OPTION=VALUE...] [# COMMENT], as
gtp-authorized_keys(5) says at length:
  SHA256:AAAA... read                        # may read
  SHA256:BBBB... read,write group=staff      # is in [group.staff] of the configuration
  SHA256:CCCC... read=pub write=home/c delete=home/c   # at these places alone
  SHA256:DDDD... window=\"mon-fri 20:00-06:00, sat,sun 00:00-24:00\"
  SHA256:EEEE... rate=50Mbit weight=2 guarantee=10Mbit   # all its sessions together
RIGHTS are read, write or read,write; without them a key may do all that the server allows. Options:
group=NAME,... and read=, write= and delete=PLACE,... for a server with several exports (a place is
EXPORT or EXPORT/PATH), window=HOURS by the server's clock and time zone, and rate=RATE,
weight=WEIGHT and guarantee=RATE as a group has them. `gtp id` prints a host's fingerprint.";

/// What is said of the list beside that.
const CHANGES: &str = "\
A running server reads the list again when it changes: sessions of a key that is revoked end within
two seconds, and at once if the server gets a HUP.";

/// Options of `keys`.
#[derive(Debug, Args)]
#[command(after_help = format!("{LINES}\n{CHANGES}"))]
pub struct KeysArgs {
    /// The list, in place of the one in the configuration directory
    #[arg(long, value_name = "FILE", env = "GTP_AUTHORIZED_KEYS", global = true,
        value_hint = ValueHint::FilePath)]
    authorized_keys: Option<PathBuf>,
    /// What the configuration file names.
    #[arg(skip)]
    pub groups: Groups,
    #[command(subcommand)]
    deed: Deed,
}

/// What to do with the list.
#[derive(Debug, Subcommand)]
enum Deed {
    /// Let a key in, or change what it may do
    Add {
        /// The key's fingerprint (SHA256:…), as `gtp id` prints it on the other host
        key: Fingerprint,
        /// What it may do: read, write or read,write; otherwise a listed key keeps its rights, and
        /// a new one may read and write
        #[arg(long, value_parser = rights)]
        rights: Option<Access>,
        /// Whose it is: the comment on its line, which logs and the audit show
        #[arg(long, value_parser = name)]
        name: Option<String>,
        /// When it may come, as in 'mon-fri 20:00-06:00, sat,sun 00:00-24:00', by the server's
        /// clock and time zone; `always` lifts that. Otherwise a listed key keeps its hours
        #[arg(long, value_name = "HOURS", value_parser = hours)]
        window: Option<Hours>,
        /// The groups of the server's configuration that it is in, between commas, in place of
        /// those that its line names; `-` for none. Otherwise a listed key keeps its groups
        #[arg(long, value_name = "NAMES", value_parser = groups, allow_hyphen_values = true)]
        group: Option<Names>,
        #[command(flatten)]
        share: ShareArgs,
        #[command(flatten)]
        places: Box<PlacesArgs>,
    },
    /// Print the keys, what they may do, and whose they are
    List {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Remove a key; its sessions end
    Revoke {
        /// Its fingerprint, or the comment on its line
        key: String,
    },
    /// Say what a key may do, why, where and when, by its lines and by the exports and groups of
    /// the configuration file; exit code 7 if it may do nothing, or not at this hour
    Test {
        /// Its fingerprint, or the comment on its line
        key: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Where a key may do what, of `add`.
#[derive(Debug, Args)]
struct PlacesArgs {
    /// Where it may read at a server with several exports: EXPORT or EXPORT/PATH, between commas,
    /// in place of those that its line names; `-` for none. A line that names places gives nothing
    /// elsewhere
    #[arg(long, value_name = "PLACES", value_parser = places, allow_hyphen_values = true)]
    read: Option<At>,
    /// Where it may write, in the same way
    #[arg(long, value_name = "PLACES", value_parser = places, allow_hyphen_values = true)]
    write: Option<At>,
    /// Where it may remove and move, in the same way, which needs the right to write as well
    #[arg(long, value_name = "PLACES", value_parser = places, allow_hyphen_values = true)]
    delete: Option<At>,
}

impl PlacesArgs {
    fn change(&self) -> PlacesChange<'_> {
        fn of(at: &Option<At>) -> Option<&[Below]> {
            at.as_ref().map(|At(places)| &places[..])
        }
        PlacesChange { read: of(&self.read), write: of(&self.write), delete: of(&self.delete) }
    }
}

pub fn run(args: KeysArgs) -> Result<ExitCode, Failure> {
    let path = match args.authorized_keys {
        Some(path) => path,
        None => gtp::config_dir().map_err(other)?.join(AUTHORIZED_KEYS_FILE),
    };
    let file = KeyListFile::at(&path);
    match args.deed {
        Deed::Add { key, rights, name, window, group, share, places } => {
            let groups = group.as_ref().map(|Names(groups)| &groups[..]);
            let (comment, hours) = (name.as_deref(), window.as_ref());
            let (share, places) = (share.change(), places.change());
            add(&file, &path, key, &LineChange { rights, comment, hours, groups, share, places })
        }
        Deed::List { json } => list(&file, &path, json),
        Deed::Revoke { key } => {
            let key = meant(&file, &path, &key)?;
            if file.revoke(key).map_err(failed)? == Edit::Needless {
                let text = format!("{key} is not in {}", path.display());
                return Err(Failure::new(FailureKind::Missing, text));
            }
            output::aside(format_args!("{key} is revoked: {}", path.display()));
            Ok(ExitCode::SUCCESS)
        }
        Deed::Test { key, json } => test(&file, &path, (&key, json), &args.groups),
    }
}

fn add(
    file: &KeyListFile,
    path: &Path,
    key: Fingerprint,
    change: &LineChange<'_>,
) -> Result<ExitCode, Failure> {
    let (edit, rights) = file.add(key, change).map_err(failed)?;
    let done = match edit {
        Edit::Done => "may now",
        Edit::Needless => "could already",
    };
    let where_alone = if by_places_alone(file, key)? { AT_PLACES } else { "" };
    let may = words(rights);
    output::aside(format_args!("{key} {done} {may}{where_alone}: {}", path.display()));
    let said = |places: Option<&[Below]>| places.is_some_and(|places| !places.is_empty());
    let is_void = |right: bool, places| !right && said(places);
    let places = &change.places;
    if is_void(rights.read, places.read)
        || is_void(rights.write, places.write)
        || is_void(rights.write, places.delete)
    {
        output::aside("places give no more than its rights: add --rights read,write");
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether all lines of a key name places.
fn by_places_alone(file: &KeyListFile, key: Fingerprint) -> Result<bool, Failure> {
    let lines = file.lines().map_err(failed)?;
    let mut of_key = lines.iter().filter(|line| matches!(line.says, Ok((one, _)) if one == key));
    Ok(of_key.all(|line| line.is_narrowed))
}

fn list(file: &KeyListFile, path: &Path, json: bool) -> Result<ExitCode, Failure> {
    let mut unread = 0;
    let lines = file.lines().map_err(failed)?;
    if lines.is_empty() {
        output::aside(format_args!("no key is listed in {}", path.display()));
    }
    for line in lines {
        match line.says {
            Ok(says) if json => output::json(record(&line, says))?,
            Ok(says) => output::line(in_words(&line, says))?,
            Err(why) => {
                unread += 1;
                output::aside(format_args!("{}, line {}: {why}", path.display(), line.number));
            }
        }
    }
    if unread > 0 {
        let lines = gtp_text::count(unread, "line");
        let text = format!("{lines} cannot be read: a server lets nobody in with this list");
        return Err(Failure::new(FailureKind::Authentication, text));
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for programs.
fn record(line: &KeyLine, (key, access): (Fingerprint, Access)) -> serde_json::Value {
    let mut record = json!({
        "event": "key", "line": line.number, "key": key.to_string(),
        "read": access.read, "write": access.write, "name": line.comment,
        "narrowed": line.is_narrowed, "window": window(&line.hours), "groups": line.groups,
    });
    shares::add_line(&mut record, line.share);
    record
}

/// A line for people.
fn in_words(line: &KeyLine, (key, access): (Fingerprint, Access)) -> String {
    let narrowed = if line.is_narrowed { "  (at named places alone)" } else { "" };
    let said = |said: Option<String>| said.map_or_else(String::new, |said| format!("  ({said})"));
    let (share, hours) = (said(shares::of_line(line.share)), said(window(&line.hours)));
    let (rights, groups, comment) = (access.words(), in_brackets(&line.groups), &line.comment);
    format!("{key}  {rights:<10}  {comment}{groups}{narrowed}{share}{hours}")
}

/// Groups as a list of sessions shows them.
fn in_brackets(groups: &[String]) -> String {
    match groups {
        [] => String::new(),
        groups => format!("  [{}]", groups.join(",")),
    }
}

/// Judges a key as a server does, with the whole list and the groups of the configuration file.
fn test(
    file: &KeyListFile,
    path: &Path,
    (key, json): (&str, bool),
    groups: &Groups,
) -> Result<ExitCode, Failure> {
    let trusted = AuthorizedKeys::load(path).map_err(|error| {
        let text = format!("a server lets nobody in with this list: {error}");
        Failure::new(FailureKind::Authentication, text)
    })?;
    let key = meant(file, path, key)?;
    let access = trusted.access(&key);
    let lines = file.lines().map_err(failed)?;
    let of_key = lines.iter().filter(|line| matches!(line.says, Ok((one, _)) if one == key));
    let numbers: Vec<usize> = of_key.clone().map(|line| line.number).collect();
    let narrowed = of_key.filter(|line| line.is_narrowed).map(|line| line.number);
    let narrowed: Vec<usize> = narrowed.collect();
    let (now, none) = (LocalTime::now(), Exports::default());
    let shares = Shares::of(&trusted, &key, (groups, &none), &now);
    let timetable = Timetable::of(&trusted, &key, groups, now);
    let places = Places::of(&trusted, &key, groups);
    if json {
        let mut record = json!({
            "event": "key", "key": key.to_string(), "read": access.read, "write": access.write,
            "name": trusted.comment(&key), "lines": numbers, "narrowed_lines": narrowed,
        });
        timetable.add_to(&mut record);
        shares.add_to(&mut record);
        places.add_to(&mut record);
        output::json(record)?;
    } else {
        let reason = reason(key, access, (&numbers, &narrowed), path);
        output::line(format_args!("{reason}{shares}{timetable}{places}"))?;
    }
    let may = access != Access::NONE && timetable.is_open() && places.are_some();
    Ok(if may { ExitCode::SUCCESS } else { ExitCode::from(NOT_LISTED) })
}

/// What a key may do, and why.
fn reason(
    key: Fingerprint,
    access: Access,
    (numbers, narrowed): (&[usize], &[usize]),
    path: &Path,
) -> String {
    let path = path.display();
    if numbers.is_empty() {
        return format!(
            "{key} may do nothing: no line of {path} has it. With `serve --public` anyone may read"
        );
    }
    let where_writing = match access.write {
        true => "; it may write only where the server was started with --writable",
        false => "",
    };
    let narrowing = match narrowed {
        [] => String::new(),
        narrowed => format!(
            "; by {} only at the places named there, and not at all where a server has one export",
            lines(narrowed)
        ),
    };
    let lines = lines(numbers);
    format!("{key} may {}: {lines} of {path}{where_writing}{narrowing}", words(access))
}

/// Numbers of lines in words.
fn lines(numbers: &[usize]) -> String {
    let line = if numbers.len() == 1 { "line" } else { "lines" };
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{line} {}", numbers.join(" and "))
}

/// The key that a fingerprint or a comment means.
fn meant(file: &KeyListFile, path: &Path, said: &str) -> Result<Fingerprint, Failure> {
    if let Ok(key) = said.parse() {
        return Ok(key);
    }
    let lines = file.lines().map_err(failed)?;
    let named = lines.iter().filter(|line| line.comment == gtp_text::of_text(said));
    let mut keys: Vec<Fingerprint> = named.filter_map(|line| Some(line.says.ok()?.0)).collect();
    keys.dedup();
    match keys[..] {
        [key] => Ok(key),
        [] => {
            let text = format!("{said} is no fingerprint, and no comment in {}", path.display());
            Err(Failure::new(FailureKind::Missing, text))
        }
        _ => {
            let text = format!("{said} stands behind several keys: name one by its fingerprint");
            Err(Failure::new(FailureKind::Usage, text))
        }
    }
}

fn words(access: Access) -> &'static str {
    match (access.read, access.write) {
        (true, true) => "read and write",
        (true, false) => "read",
        (false, true) => "write",
        (false, false) => "do nothing",
    }
}

fn failed(error: impl Into<EditError>) -> Failure {
    let error = error.into();
    let kind = match &error {
        EditError::NoPlace(_) | EditError::Unsayable(_) | EditError::Senseless(..) => {
            FailureKind::Usage
        }
        EditError::List(TrustError::Exposed(_)) => FailureKind::Authentication,
        EditError::List(
            TrustError::File { .. } | TrustError::Line { .. } | TrustError::Refused(_),
        ) => FailureKind::Destination,
    };
    Failure::new(kind, error.to_string())
}

fn hours(text: &str) -> Result<Hours, String> {
    match text {
        "always" => Ok(Hours::default()),
        text => text.parse().map_err(|bad: BadHours| bad.to_string()),
    }
}

/// Names of groups.
#[derive(Clone, Debug)]
struct Names(Vec<String>);

fn groups(text: &str) -> Result<Names, String> {
    let names = match text {
        "-" => Vec::new(),
        text => text.split(',').map(str::to_owned).collect(),
    };
    match names.len() <= GROUPS_OF_KEY_MOST && names.iter().all(|name| is_name(name)) {
        true => Ok(Names(names)),
        false => Err(format!("they are up to {GROUPS_OF_KEY_MOST} names between commas, or `-`")),
    }
}

/// Places where a key may do something.
#[derive(Clone, Debug)]
struct At(Vec<Below>);

fn places(text: &str) -> Result<At, String> {
    let places: Vec<Below> = match text {
        "-" => Vec::new(),
        text => {
            let place = |text: &str| text.parse().map_err(|bad: gtp::BadPlace| bad.to_string());
            text.split(',').map(place).collect::<Result<_, String>>()?
        }
    };
    match places.len() <= PLACES_MOST {
        true => Ok(At(places)),
        false => Err(format!("there are at most {PLACES_MOST} places")),
    }
}

fn rights(text: &str) -> Result<Access, String> {
    Access::parse(text).map_err(|_| "it is read, write or read,write".into())
}

fn name(text: &str) -> Result<String, String> {
    let fits = text.chars().count() <= NAME_MOST && text.chars().all(gtp_text::is_plain);
    let name = text.trim().to_owned();
    match fits && !name.is_empty() {
        true => Ok(name),
        false => Err(format!("a name is one line of 1 to {NAME_MOST} visible characters")),
    }
}

/// What is said of a key all of whose lines name places.
const AT_PLACES: &str = ", only at the places that its line names";

/// Characters of a name: more are not shown by servers.
const NAME_MOST: usize = 100;

/// The exit code for a key that may do nothing, as of a client that is not let in.
const NOT_LISTED: u8 = 7;
