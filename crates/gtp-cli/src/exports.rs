//! Exports and groups of a server: `[export.NAME]` and `[group.NAME]` in the configuration file.
//!
//! Here the tables are read, key by key, and what is wrong with one is said in words. Whether they
//! fit together, and what they let a client do, the server's own rules say.

mod unfit;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use gtp::{
    Below, ExportRule, Exports, Fingerprint, Grants, GroupRule, GroupShare, Hours, PLACES_MOST,
    Quota, Rate, ShareAt, Visibility, Who,
};

use crate::words;

/// The tables' names.
const EXPORT: &str = "export";
const GROUP: &str = "group";

/// What is wrong with the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where: the keys that lead there from the top of the file, and items of lists.
    pub place: Vec<String>,
    /// Why, in a sentence that names the table.
    pub why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// What is wrong with the value of a key.
#[derive(Debug)]
struct Wrong {
    /// Where in the value, as in [`Bad`]; nothing if it is the value itself.
    inside: Vec<String>,
    /// Why, in words that follow the key.
    why: String,
}

impl From<String> for Wrong {
    fn from(why: String) -> Wrong {
        Wrong { inside: Vec::new(), why }
    }
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Wrong {
        Wrong::from(why.to_owned())
    }
}

impl Wrong {
    /// The same of what is an item of a list.
    fn of_item(self, number: usize) -> Wrong {
        self.below(&number.to_string())
    }

    fn below(mut self, key: &str) -> Wrong {
        self.inside.insert(0, key.to_owned());
        self
    }
}

/// Takes the tables of exports and groups out of the configuration file; `None` if there are none.
///
/// # Errors
/// [`Bad`], with the first key that cannot be used.
pub fn take(file: &mut toml::Table) -> Result<Option<Exports>, Bad> {
    let mut exports = Exports::default();
    for (name, says) in tables(file, EXPORT)? {
        let rule = export(&name, &says)?;
        exports.exports.insert(name, rule);
    }
    for (name, says) in tables(file, GROUP)? {
        let rule = group(&name, &says)?;
        exports.groups.insert(name, rule);
    }
    if exports == Exports::default() {
        return Ok(None);
    }
    if exports.exports.is_empty() {
        exports.groups.iter().try_for_each(|(name, rule)| needs_no_export(name, rule))?;
    }
    exports
        .check()
        .map_err(|bad| Bad { place: unfit::place(&bad, &exports), why: bad.to_string() })?;
    Ok(Some(exports))
}

/// Looks whether a group can be one of a server with a directory.
///
/// # Errors
/// [`Bad`], with the first key that is about exports.
fn needs_no_export(name: &str, rule: &GroupRule) -> Result<(), Bad> {
    let Grants { read, write, delete } = &rule.grants;
    let said = [
        ("read", !read.is_empty()),
        ("write", !write.is_empty()),
        ("delete", !delete.is_empty()),
        ("quota", rule.quota.bytes.is_some()),
        ("quota-files", rule.quota.files.is_some()),
    ];
    match said.into_iter().find(|(_, is_said)| *is_said) {
        Some((key, _)) => Err(at(GROUP, name, key)(NEEDS_EXPORTS.into())),
        None => Ok(()),
    }
}

fn tables(file: &mut toml::Table, table: &'static str) -> Result<Vec<(String, toml::Table)>, Bad> {
    let bad = |name: &str| at(table, name, "")(format!("write it as [{table}.NAME]").into());
    let all = match file.remove(table) {
        None => return Ok(Vec::new()),
        Some(toml::Value::Table(all)) => all,
        Some(_) => return Err(bad("")),
    };
    let each = all.into_iter().map(|(name, says)| match says {
        toml::Value::Table(says) => Ok((name, says)),
        _ => Err(bad(&name)),
    });
    each.collect()
}

fn export(name: &str, says: &toml::Table) -> Result<ExportRule, Bad> {
    let mut path = None;
    let (mut read, mut write, mut delete) = (Who::Nobody, Who::Nobody, Who::Nobody);
    let (mut visibility, mut quota) = (Visibility::Listed, Quota::default());
    for (key, value) in says {
        let taken = match key.as_str() {
            "path" => text(value).map(|text| path = Some(PathBuf::from(text))),
            "read" => who(value).map(|who| read = who),
            "write" => who(value).map(|who| write = who),
            "delete" => who(value).map(|who| delete = who),
            "hidden" => truth(value).map(|hidden| {
                visibility = if hidden { Visibility::Hidden } else { Visibility::Listed };
            }),
            "quota" => size(value).map(|bytes| quota.bytes = Some(bytes)),
            "quota-files" => number(value).map(|files| quota.files = Some(files)),
            _ => Err(NO_SETTING.into()),
        };
        taken.map_err(at(EXPORT, name, key))?;
    }
    let path = path.ok_or_else(|| at(EXPORT, name, "")("say its `path`".into()))?;
    Ok(ExportRule { path, read, write, delete, visibility, quota })
}

fn group(name: &str, says: &toml::Table) -> Result<GroupRule, Bad> {
    let (mut keys, mut grants) = (BTreeSet::new(), Grants::default());
    let (mut quota, mut share) = (Quota::default(), GroupShare::default());
    let (mut hours, mut at_times) = (Hours::default(), Vec::new());
    for (key, value) in says {
        let taken = match key.as_str() {
            "keys" => fingerprints(value).map(|all| keys = all),
            "read" => places(value).map(|all| grants.read = all),
            "write" => places(value).map(|all| grants.write = all),
            "delete" => places(value).map(|all| grants.delete = all),
            "quota" => size(value).map(|bytes| quota.bytes = Some(bytes)),
            "quota-files" => number(value).map(|files| quota.files = Some(files)),
            "rate" => rate_of(value).map(|most| share.rate = most),
            "total-rate" => rate_of(value).map(|most| share.total_rate = most),
            "guarantee" => guarantee_of(value).map(|least| share.guarantee = least),
            "weight" => weight_of(value).map(|among| share.weight = among),
            "window" => hours_of(value).map(|all| hours = all),
            "at" => shares_at(value).map(|all| at_times = all),
            _ => Err(NO_GROUP_SETTING.into()),
        };
        taken.map_err(at(GROUP, name, key))?;
    }
    Ok(GroupRule { keys, grants, quota, share, at: at_times, hours })
}

/// The tables `[[group.NAME.at]]`.
fn shares_at(value: &toml::Value) -> Result<Vec<ShareAt>, Wrong> {
    let all = value.as_array().ok_or(NO_TABLES)?;
    let table = |one: &toml::Value| share_at(one.as_table().ok_or(NO_TABLES)?);
    let each = all.iter().enumerate();
    each.map(|(number, one)| table(one).map_err(|wrong| wrong.of_item(number))).collect()
}

const NO_TABLES: &str = "is for tables: write [[group.NAME.at]] above `window` and what holds then";

fn share_at(says: &toml::Table) -> Result<ShareAt, Wrong> {
    let mut share = ShareAt::default();
    for (key, value) in says {
        let taken = match key.as_str() {
            "window" => hours_of(value).map(|all| share.hours = all),
            "rate" => rate_of(value).map(|most| share.rate = Some(most)),
            "total-rate" => rate_of(value).map(|most| share.total_rate = Some(most)),
            "guarantee" => guarantee_of(value).map(|least| share.guarantee = Some(least)),
            "weight" => weight_of(value).map(|among| share.weight = Some(among)),
            _ => Err("is no setting there; there are window, rate, total-rate, guarantee and \
                      weight"
                .into()),
        };
        taken.map_err(|Wrong { inside, why }| {
            Wrong { inside, why: format!("`{key}` {why}") }.below(key)
        })?;
    }
    match share.hours.is_always() {
        true => Err("needs a `window` in each table".into()),
        false => Ok(share),
    }
}

const NEEDS_EXPORTS: &str = "is about places in exports, and the file has none: write \
                             [export.NAME] tables and start `gtp serve` without a directory, or \
                             take this line out";
const NO_SETTING: &str = "no setting of an export; there are path, read, write, delete, hidden, \
                          quota and quota-files";
const NO_GROUP_SETTING: &str = "no setting of a group; there are keys, read, write, delete, quota, \
                                quota-files, rate, total-rate, guarantee, weight, window and \
                                tables at";

/// What is wrong with a key of a table, or with the table if the key is empty.
fn at<'a>(table: &'static str, name: &'a str, key: &'a str) -> impl FnOnce(Wrong) -> Bad + 'a {
    move |Wrong { inside, why }| {
        let shown = match (name.is_empty(), key.is_empty()) {
            (true, _) => why,
            (false, true) => format!("[{table}.{name}]: {why}"),
            (false, false) => format!("[{table}.{name}] `{key}`: {why}"),
        };
        let place = [table, name, key].into_iter().filter(|part| !part.is_empty());
        Bad { place: place.map(str::to_owned).chain(inside).collect(), why: shown }
    }
}

fn text(value: &toml::Value) -> Result<&str, Wrong> {
    value.as_str().ok_or_else(|| "needs a text between quotes".into())
}

fn truth(value: &toml::Value) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| "must be true or false".into())
}

/// A number of bytes with its unit.
fn size(value: &toml::Value) -> Result<u64, Wrong> {
    Ok(words::bytes(text(value).map_err(|_| "needs a size between quotes, as in \"50GB\"")?)?)
}

fn rate_of(value: &toml::Value) -> Result<Rate, Wrong> {
    Ok(words::rate(text(value).map_err(|_| "needs a rate between quotes, as in \"100Mbit\"")?)?)
}

fn guarantee_of(value: &toml::Value) -> Result<Rate, Wrong> {
    let least = rate_of(value)?;
    let is_rate = !least.is_unlimited();
    is_rate.then_some(least).ok_or_else(|| "needs a number, as in \"100Mbit\"".into())
}

/// One text or a list of them.
fn hours_of(value: &toml::Value) -> Result<Hours, Wrong> {
    let needs = "needs hours, as in \"mon-fri 20:00-06:00\", or a list of them";
    let all = match value.as_str() {
        Some(one) => vec![one],
        None => list(value, needs)?,
    };
    all.join(",").parse().map_err(|bad: gtp::BadHours| bad.to_string().into())
}

fn weight_of(value: &toml::Value) -> Result<f64, Wrong> {
    let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(words::weight(&word)?)
}

fn number(value: &toml::Value) -> Result<u64, Wrong> {
    let number = value.as_integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| "needs a number, as in 100000".into())
}

/// Everybody, nobody, or groups.
fn who(value: &toml::Value) -> Result<Who, Wrong> {
    match value {
        toml::Value::Boolean(true) => Ok(Who::Everybody),
        toml::Value::Boolean(false) => Ok(Who::Nobody),
        _ => {
            let names = list(value, "needs true, false, or a list of groups, as in [\"staff\"]")?;
            Ok(Who::Groups(names.into_iter().map(str::to_owned).collect()))
        }
    }
}

fn places(value: &toml::Value) -> Result<Vec<Below>, Wrong> {
    let all = list(value, "needs a list of places, as in [\"home/anna\", \"scratch\"]")?;
    if all.len() > PLACES_MOST {
        let there = all.len();
        return Err(format!("names {there} places, and {PLACES_MOST} at most are allowed").into());
    }
    each(all, |at| at.parse::<Below>().map_err(|bad| bad.to_string()))
}

fn fingerprints(value: &toml::Value) -> Result<BTreeSet<Fingerprint>, Wrong> {
    let all = list(value, "needs a list of fingerprints, as in [\"SHA256:...\"]")?;
    each(all, |text| {
        let bad = |_| format!("{:?} is no fingerprint, as `gtp id` prints it", text);
        text.parse::<Fingerprint>().map_err(bad)
    })
}

/// Reads each text of a list.
fn each<'v, T, All: FromIterator<T>>(
    all: Vec<&'v str>,
    read: impl Fn(&'v str) -> Result<T, String>,
) -> Result<All, Wrong> {
    let all = all.into_iter().enumerate();
    all.map(|(at, text)| read(text).map_err(|why| Wrong::from(why).of_item(at))).collect()
}

fn list<'v>(value: &'v toml::Value, needs: &str) -> Result<Vec<&'v str>, Wrong> {
    let all = value.as_array().ok_or(needs)?.iter().enumerate();
    let text =
        |(at, one): (usize, &'v toml::Value)| one.as_str().ok_or(Wrong::from(needs).of_item(at));
    all.map(text).collect()
}

/// What the tables say, key by key, for people.
pub fn settings(exports: &Exports) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, rule) in &exports.exports {
        let hidden = rule.visibility == Visibility::Hidden;
        let said = [
            ("path", rule.path.display().to_string()),
            ("read", say_who(&rule.read)),
            ("write", say_who(&rule.write)),
            ("delete", say_who(&rule.delete)),
            ("hidden", hidden.to_string()),
        ];
        all.extend(said.map(|(key, value)| (format!("export.{name}.{key}"), value)));
        all.extend(say_quota(&format!("export.{name}"), rule.quota));
    }
    for (name, rule) in &exports.groups {
        let keys: Vec<String> = rule.keys.iter().map(Fingerprint::to_string).collect();
        let say = |all: &[Below]| {
            let all: Vec<String> = all.iter().map(Below::to_string).collect();
            all.join(",")
        };
        let grants = &rule.grants;
        let said = [
            ("keys", keys.join(",")),
            ("read", say(&grants.read)),
            ("write", say(&grants.write)),
            ("delete", say(&grants.delete)),
        ];
        let said = said.into_iter().filter(|(_, value)| !value.is_empty());
        all.extend(said.map(|(key, value)| (format!("group.{name}.{key}"), value)));
        all.extend(say_quota(&format!("group.{name}"), rule.quota));
        all.extend(say_share(&format!("group.{name}"), rule.share));
        let said = Some(&rule.hours).filter(|hours| !hours.is_always());
        all.extend(said.map(|hours| (format!("group.{name}.window"), hours.to_string())));
        let changes = rule.at.iter().map(say_share_at);
        all.extend(changes.map(|says| (format!("group.{name}.at"), says)));
    }
    all
}

fn say_quota(of: &str, quota: Quota) -> impl Iterator<Item = (String, String)> {
    let bytes = quota.bytes.map(|bytes| (format!("{of}.quota"), words::say_quota(bytes)));
    let files = quota.files.map(|files| (format!("{of}.quota-files"), files.to_string()));
    bytes.into_iter().chain(files)
}

fn say_share(of: &str, share: GroupShare) -> Vec<(String, String)> {
    let limit = |rate: Rate| (!rate.is_unlimited()).then(|| words::say_rate(rate));
    let guarantee = Some(share.guarantee).filter(|&least| least > Rate::ZERO);
    let said = [
        ("rate", limit(share.rate)),
        ("total-rate", limit(share.total_rate)),
        ("guarantee", guarantee.map(words::say_rate)),
        ("weight", Some(share.weight.to_string())),
    ];
    let said = said.into_iter().filter_map(|(key, value)| Some((key, value?)));
    said.map(|(key, value)| (format!("{of}.{key}"), value)).collect()
}

/// A change of shares in one line.
fn say_share_at(at: &ShareAt) -> String {
    let said = [
        ("rate", at.rate.map(words::say_rate)),
        ("total-rate", at.total_rate.map(words::say_rate)),
        ("guarantee", at.guarantee.map(words::say_rate)),
        ("weight", at.weight.map(|weight| weight.to_string())),
    ];
    let said = said.into_iter().filter_map(|(key, value)| Some(format!("{key} {}", value?)));
    format!("{}: {}", at.hours, said.collect::<Vec<_>>().join(", "))
}

fn say_who(who: &Who) -> String {
    match who {
        Who::Everybody => "true".into(),
        Who::Nobody => "false".into(),
        Who::Groups(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Exports>, Bad> {
        take(&mut text.parse().unwrap())
    }

    #[test]
    fn an_export_says_who_may_do_what_and_a_group_where_its_members_may() {
        let all = read(
            "[export.home]\npath = \"/srv/home\"\nread = [\"staff\"]\n\
             [export.drop]\npath = \"/srv/drop\"\nwrite = true\nhidden = true\n\
             [group.staff]\nwrite = [\"home/in\", \"drop\"]\nquota = \"2GiB\"\n\
             quota-files = 7\nrate = \"20Mbit\"\nweight = 3\n\
             total-rate = \"50Mbit\"\nguarantee = \"30Mbit\"\n\
             window = [\"mon-fri 20:00-06:00\", \"sat,sun 00:00-24:00\"]\n\
             [[group.staff.at]]\nwindow = \"22:00-06:00\"\nweight = 5\ntotal-rate = \"80Mbit\"\n",
        );
        let all = all.unwrap().unwrap();
        let says = settings(&all);
        let value = |key: &str| says.iter().find(|(name, _)| name == key).map(|(_, v)| &**v);
        assert_eq!(value("export.home.read"), Some("staff"));
        assert_eq!(value("export.home.write"), Some("false"));
        assert_eq!(
            (value("export.drop.write"), value("export.drop.hidden")),
            (Some("true"), Some("true"))
        );
        assert_eq!(value("group.staff.write"), Some("home/in,drop"));
        assert_eq!(value("group.staff.quota"), Some("2.0 GiB"));
        assert_eq!(value("group.staff.quota-files"), Some("7"));
        assert_eq!(value("group.staff.rate"), Some("20.0 Mbit/s"));
        assert_eq!(value("group.staff.total-rate"), Some("50.0 Mbit/s"));
        assert_eq!(value("group.staff.guarantee"), Some("30.0 Mbit/s"));
        assert_eq!(value("group.staff.weight"), Some("3"));
        let hours = "mon-fri 20:00-06:00, sat-sun 00:00-24:00";
        assert_eq!(value("group.staff.window"), Some(hours));
        let change = "22:00-06:00: total-rate 80.0 Mbit/s, weight 5";
        assert_eq!(value("group.staff.at"), Some(change));
        assert_eq!(read("weight = 2\n"), Ok(None));
    }

    #[test]
    fn groups_that_name_no_places_and_have_no_quotas_need_no_exports() {
        let all = read("[group.staff]\nrate = \"20Mbit\"\nwindow = \"22:00-06:00\"\n");
        let all = all.unwrap().unwrap();
        assert_eq!((all.exports.len(), all.groups.len()), (0, 1));
    }

    #[test]
    fn what_no_export_or_group_has_is_refused_at_its_place() {
        for (text, place) in [
            ("[export.a]\nread = true", "export.a"),
            ("[export.a]\npath = 1", "export.a.path"),
            ("[export.a]\npath = \"/a\"\nreed = true", "export.a.reed"),
            ("[export.a]\npath = \"/a\"\nread = \"staff\"", "export.a.read"),
            ("[export.a]\npath = \"/a\"\nhidden = 1", "export.a.hidden"),
            ("[export.a]\npath = \"/a\"\nquota = 7", "export.a.quota"),
            ("[export.a]\npath = \"/a\"\nquota-files = -1", "export.a.quota-files"),
            ("[export.a]\npath = \"/a\"\n[group.g]\nkeys = [\"x\"]", "group.g.keys.0"),
            ("[export.a]\npath = \"/a\"\n[group.g]\nread = [\"../x\"]", "group.g.read.0"),
            ("[export.a]\npath = \"a\"", "export.a.path"),
            ("[export.a]\npath = \"/a\"\nread = [\"none\"]", "export.a.read.none"),
            ("[export.a]\npath = \"/a\"\n[group.g]\nrate = 7", "group.g.rate"),
            ("[export.a]\npath = \"/a\"\n[group.g]\nweight = 0", "group.g.weight"),
            ("[export.a]\npath = \"/a\"\n[group.g]\ntotal-rate = 7", "group.g.total-rate"),
            (
                "[export.a]\npath = \"/a\"\n[group.g]\nguarantee = \"unlimited\"",
                "group.g.guarantee",
            ),
            (
                "[export.a]\npath=\"/a\"\n[group.g]\ntotal-rate = \"1Mbit\"\nguarantee = \"2Mbit\"",
                "group.g.guarantee",
            ),
            ("[export.a]\npath = \"/a\"\n[group.g]\nwindow = \"8-10\"", "group.g.window"),
            ("[export.a]\npath = \"/a\"\n[group.g]\nat = 1", "group.g.at"),
            ("[export.a]\npath = \"/a\"\n[[group.g.at]]\nweight = 2", "group.g.at.0"),
            (
                "[export.a]\npath = \"/a\"\n[[group.g.at]]\nwindow = \"08:00-10:00\"\nwait = 2",
                "group.g.at.0.wait",
            ),
            ("[group.g]\nread = [\"a\"]", "group.g.read"),
            ("[group.g]\nrate = \"1Mbit\"\nquota-files = 7", "group.g.quota-files"),
            ("[group.g]\ntotal-rate = \"1Mbit\"\nguarantee = \"2Mbit\"", "group.g.guarantee"),
            ("[export]\na = 1", "export.a"),
        ] {
            let bad = read(text).unwrap_err();
            assert_eq!(bad.place.join("."), place, "{text}: {bad}");
        }
    }
}
