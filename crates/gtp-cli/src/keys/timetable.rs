//! When a key may come: within the hours of its lines, and within those of each of its groups.
//!
//! The groups are those of the configuration file, which a server reads as well, whether it exports
//! one directory or several. What comes out is for people and for programs; what hours mean is
//! decided where servers judge by them.

use std::fmt;
use std::path::PathBuf;

use gtp::{AuthorizedKeys, Closed, Exports, Fingerprint, Hours, LocalTime};
use serde_json::{Value, json};

/// The groups that the configuration file has, and where that file is.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    pub path: Option<PathBuf>,
    pub rules: Option<Exports>,
}

/// The hours of a key, as they are at one moment.
pub struct Timetable {
    own: Hours,
    /// Its groups, and their hours.
    groups: Vec<(String, Hours)>,
    /// Groups that its lines name and that the configuration file does not have.
    unknown: Vec<String>,
    /// Where the groups are from.
    path: Option<PathBuf>,
    now: LocalTime,
}

impl Timetable {
    /// The hours of a key of this list.
    pub fn of(
        keys: &AuthorizedKeys,
        key: &Fingerprint,
        groups: &Groups,
        now: LocalTime,
    ) -> Timetable {
        let of_rules = groups.rules.as_ref().map(|rules| rules.groups_of(keys, key));
        let of_rules = of_rules.into_iter().flatten();
        let known: Vec<(String, Hours)> =
            of_rules.map(|(name, group)| (name.to_owned(), group.hours.clone())).collect();
        let is_unknown = |name: &&str| known.iter().all(|(there, _)| there != name);
        let unknown = keys.groups(key).filter(is_unknown).map(str::to_owned).collect();
        Timetable { own: keys.hours(key), groups: known, unknown, path: groups.path.clone(), now }
    }

    /// Whether it is within all of them now.
    pub fn is_open(&self) -> bool {
        self.closed().is_none()
    }

    /// Adds to a record of the key what programs are told of its hours.
    pub fn add_to(&self, record: &mut Value) {
        let closed = self.closed();
        let say = |at| self.now.say(at);
        let group = |(name, hours): &(String, Hours)| {
            let open = hours.cover(&self.now);
            json!({ "name": name, "window": window(hours), "open": open })
        };
        record["window"] = window(&self.own).into();
        record["groups"] = self.groups.iter().map(group).collect();
        record["unknown_groups"] = self.unknown.clone().into();
        record["open"] = closed.is_none().into();
        record["opens"] = closed.and_then(|closed| closed.opens).map(say).into();
        record["closes"] = Hours::until(&self.all(), &self.now).map(say).into();
    }

    fn all(&self) -> Vec<&Hours> {
        self.groups.iter().map(|(_, hours)| hours).chain([&self.own]).collect()
    }

    fn closed(&self) -> Option<Closed> {
        Hours::all(&self.all(), &self.now).err()
    }

    /// The hours of its lines and of each of its groups that has some.
    fn words(&self) -> String {
        let of_groups = self.groups.iter().filter_map(|(name, hours)| {
            window(hours).map(|hours| format!("{hours} (group {name})"))
        });
        window(&self.own).into_iter().chain(of_groups).collect::<Vec<_>>().join(", and ")
    }

    /// What is not known of its groups.
    fn doubt(&self) -> Option<String> {
        let (first, names) = (self.unknown.first()?, self.unknown.join(", "));
        let groups = if self.unknown.len() == 1 { "group" } else { "groups" };
        let path = self.path.as_ref().map_or_else(String::new, |path| path.display().to_string());
        Some(format!(
            "; {path} has no [group.{first}], so what {groups} {names} may do, and when, is not \
             known here (GTP_CONFIG_FILE names the server's file)"
        ))
    }
}

/// The end of a sentence about the key; empty if it may always come.
impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.words();
        match (said.is_empty(), self.closed()) {
            (true, _) => {}
            (false, Some(closed)) => {
                let begin = closed.words(&self.now);
                write!(f, "; but not now: its hours are {said}; {begin}")?;
            }
            (false, None) => {
                write!(f, "; its hours are {said}: it may come now")?;
                if let Some(until) = Hours::until(&self.all(), &self.now) {
                    write!(f, ", until {}", self.now.say(until))?;
                }
            }
        }
        f.write_str(&self.doubt().unwrap_or_default())
    }
}

/// Hours in words; `None` for always.
pub fn window(hours: &Hours) -> Option<String> {
    (!hours.is_always()).then(|| hours.to_string())
}
