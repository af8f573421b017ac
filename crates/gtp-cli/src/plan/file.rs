//! A plan as its file says it, checked as a whole before anybody is asked.
//!
//! `[host.NAME]` names a server with its key and capacities, `[object.NAME]` what is to be where.
//! Every fault is found and told at once, with the table and key that it is in, so that nobody
//! mends a file fault by fault. What only the servers know, such as whether an object is there, is
//! not judged here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use gtp::{FETCH_SOURCES_MAX, Fingerprint, Rate, RelPath, Url};

use crate::words;

/// Bytes of a plan's file at most.
pub const FILE_MAX: u64 = 1 << 20;

/// Hosts of a plan at most.
const HOSTS_MAX: usize = 256;

/// Transfers of a plan at most: an object to a host that wants it.
const TRANSFERS_MAX: usize = 4_096;

/// Sessions that one host may have by a plan, as a source and a sink together: a server has 64 for
/// one key, and some are for looking.
const SESSIONS_MAX: usize = 60;

/// Content bytes of a plan at most, 2^58: what one object may have (docs/PROTOCOL.md, 4.2).
const BYTES_MAX: u64 = 1 << 58;

/// What is to be moved, and between whom.
#[derive(Debug)]
pub struct Plan {
    pub hosts: Vec<Host>,
    /// Each comes after those that it waits for.
    pub objects: Vec<Object>,
}

/// A server.
#[derive(Debug)]
pub struct Host {
    pub name: String,
    /// What the plan's paths are beneath.
    pub url: Url,
    pub key: Fingerprint,
    /// What it can receive.
    pub into: Rate,
    /// What it can send.
    pub out: Rate,
}

/// A file or a directory.
#[derive(Debug)]
pub struct Object {
    pub name: String,
    /// Its bytes, if the plan says so.
    pub size: Option<u64>,
    pub has: Vec<Source>,
    pub wants: Vec<Place>,
    /// Numbers of the objects whose transfers must have ended before its own begin.
    pub after: Vec<usize>,
}

/// Where an object is.
#[derive(Clone, Debug)]
pub struct Source {
    pub at: Place,
    /// The object of the plan that brings it there, if it is not there from the beginning.
    pub brought_by: Option<usize>,
}

/// A path at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host's number.
    pub host: usize,
    pub url: Url,
}

impl Plan {
    /// The number of transfers.
    pub fn transfers(&self) -> usize {
        self.objects.iter().map(|object| object.wants.len()).sum()
    }
}

/// Reads a plan.
///
/// # Errors
/// Every fault that is found, each as a sentence.
pub fn read(text: &str) -> Result<Plan, Vec<String>> {
    let file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        vec![format!("line {line}: {}", error.message())]
    })?;
    let mut faults = Faults::default();
    let mut tables = Tables::take(file, &mut faults);
    let hosts = hosts(std::mem::take(&mut tables.hosts), &mut faults);
    let drafts = drafts(std::mem::take(&mut tables.objects), &mut faults);
    let mut objects = objects(&hosts, &drafts, &mut faults);
    find_bringers(&mut objects, &hosts, &mut faults);
    let plan = Plan { hosts, objects };
    judge_whole(&plan, &mut faults);
    if faults.0.is_empty() { Ok(plan) } else { Err(faults.0) }
}

/// What is wrong with a plan.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, at: impl Display, why: impl Display) {
        self.0.push(format!("{at}: {why}"));
    }

    /// The value, or its fault.
    fn take<T>(&mut self, at: impl Display, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|why| self.add(at, why)).ok()
    }
}

#[derive(Default)]
struct Tables {
    hosts: Vec<(String, toml::Table)>,
    objects: Vec<(String, toml::Table)>,
}

impl Tables {
    fn take(file: toml::Table, faults: &mut Faults) -> Tables {
        let mut tables = Tables::default();
        for (kind, all) in file {
            let into = match kind.as_str() {
                "host" => &mut tables.hosts,
                "object" => &mut tables.objects,
                _ => {
                    faults.add(kind, "a plan has the tables [host.NAME] and [object.NAME] alone");
                    continue;
                }
            };
            let toml::Value::Table(all) = all else {
                faults.add(format_args!("`{kind}`"), format_args!("write it as [{kind}.NAME]"));
                continue;
            };
            for (name, says) in all {
                match says {
                    toml::Value::Table(says) if is_name(&name) => into.push((name, says)),
                    toml::Value::Table(_) => faults.add(
                        format_args!("[{kind}.{}]", gtp_text::of_message(&name)),
                        "a name has letters, digits, `.`, `-` and `_`, 64 at most",
                    ),
                    _ => faults.add(
                        format_args!("`{kind}.{name}`"),
                        format_args!("write it as [{kind}.{name}]"),
                    ),
                }
            }
        }
        tables
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(fits)
}

fn hosts(tables: Vec<(String, toml::Table)>, faults: &mut Faults) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for (name, says) in tables {
        let at = |key: &str| format!("[host.{name}] `{key}`");
        let (mut url, mut key, mut into, mut out) = (None, None, None, None);
        for (word, value) in &says {
            match word.as_str() {
                "url" => url = faults.take(at("url"), address(value)),
                "key" => key = faults.take(at("key"), fingerprint(value)),
                "in" => into = faults.take(at("in"), rate(value)),
                "out" => out = faults.take(at("out"), rate(value)),
                _ => faults.add(at(word), "a host has `url`, `key`, `in` and `out`"),
            }
        }
        for word in ["url", "key", "in", "out"] {
            if !says.contains_key(word) {
                faults.add(format_args!("[host.{name}]"), format_args!("`{word}` is missing"));
            }
        }
        if let Some(url) = &url
            && let Some(other) = hosts.iter().find(|host| host.url.host() == url.host())
        {
            faults.add(at("url"), format_args!("this server is [host.{}] already", other.name));
        }
        // A host whose faults were told is known by its name, so that nothing else is told of it.
        let url = url.or_else(|| Url::at("unknown.invalid", 1, "").ok());
        let Some(url) = url else { continue };
        let key = key.unwrap_or_else(|| Fingerprint::of_public_key(name.as_bytes()));
        let rate = |rate: Option<Rate>| rate.unwrap_or(Rate::UNLIMITED);
        hosts.push(Host { name, url, key, into: rate(into), out: rate(out) });
    }
    hosts
}

/// An object as its table says it.
struct Draft {
    name: String,
    path: String,
    size: Option<u64>,
    has: Vec<String>,
    wants: Vec<String>,
    after: Vec<String>,
}

fn drafts(tables: Vec<(String, toml::Table)>, faults: &mut Faults) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (name, says) in tables {
        let at = |key: &str| format!("[object.{name}] `{key}`");
        let mut draft = Draft {
            path: name.clone(),
            name: name.clone(),
            size: None,
            has: Vec::new(),
            wants: Vec::new(),
            after: Vec::new(),
        };
        for (word, value) in &says {
            let list = || list(value).map_err(|()| "needs a list of texts, as in [\"a\", \"b\"]");
            match word.as_str() {
                "path" => {
                    let path = faults.take(at("path"), text(value));
                    draft.path = path.map_or(draft.path, str::to_owned);
                }
                "size" => draft.size = faults.take(at("size"), size(value)),
                "has" => draft.has = faults.take(at("has"), list()).unwrap_or_default(),
                "wants" => draft.wants = faults.take(at("wants"), list()).unwrap_or_default(),
                "after" => draft.after = faults.take(at("after"), list()).unwrap_or_default(),
                _ => {
                    faults.add(at(word), "an object has `path`, `size`, `has`, `wants` and `after`")
                }
            }
        }
        let is_empty = |word: &str| match says.get(word) {
            None => true,
            Some(value) => value.as_array().is_some_and(Vec::is_empty),
        };
        if is_empty("has") {
            faults.add(format_args!("[object.{name}]"), "`has` names no host");
        }
        if is_empty("wants") {
            faults.add(format_args!("[object.{name}]"), "`wants` names no host");
        }
        drafts.push(draft);
    }
    drafts
}

/// The objects in an order in which each comes after those that it waits for.
fn objects(hosts: &[Host], drafts: &[Draft], faults: &mut Faults) -> Vec<Object> {
    let numbers: BTreeMap<&str, usize> =
        drafts.iter().enumerate().map(|(n, draft)| (draft.name.as_str(), n)).collect();
    let waits: Vec<BTreeSet<usize>> = drafts
        .iter()
        .map(|draft| {
            let at = format!("[object.{}] `after`", draft.name);
            let mut number = |other: &String| {
                let found = numbers.get(other.as_str()).copied();
                let shown = gtp_text::of_message(other);
                found.ok_or_else(|| faults.add(&at, format_args!("no object is called {shown}")))
            };
            draft.after.iter().filter_map(|other| number(other).ok()).collect()
        })
        .collect();
    let order = match in_order(&waits) {
        Ok(order) => order,
        Err(cycle) => {
            let names: Vec<&str> = cycle.iter().map(|&n| drafts[n].name.as_str()).collect();
            let first = names.first().copied().unwrap_or_default();
            let circle = format!("{} after {first}", names.join(" after "));
            faults.add(format_args!("[object.{first}] `after`"), format_args!("a cycle: {circle}"));
            (0..drafts.len()).collect()
        }
    };
    let mut place_of = vec![0; drafts.len()];
    order.iter().enumerate().for_each(|(place, &number)| place_of[number] = place);
    let mut objects = Vec::new();
    for &number in &order {
        let draft = &drafts[number];
        let mut places = |word: &str, texts: &[String]| -> Vec<Place> {
            let at = format!("[object.{}] `{word}`", draft.name);
            let found =
                texts.iter().filter_map(|text| faults.take(&at, place(hosts, text, &draft.path)));
            found.collect()
        };
        let (has, wants) = (places("has", &draft.has), places("wants", &draft.wants));
        objects.push(Object {
            name: draft.name.clone(),
            size: draft.size,
            has: has.into_iter().map(|at| Source { at, brought_by: None }).collect(),
            wants,
            after: waits[number].iter().map(|&other| place_of[other]).collect(),
        });
    }
    objects
}

/// Numbers so that each comes after those that it waits for, or the numbers of a cycle.
fn in_order(waits: &[BTreeSet<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut order = Vec::new();
    let mut is_placed = vec![false; waits.len()];
    while order.len() < waits.len() {
        let is_next = |&n: &usize| !is_placed[n] && waits[n].iter().all(|&other| is_placed[other]);
        let next: Vec<usize> = (0..waits.len()).filter(is_next).collect();
        if next.is_empty() {
            return Err(cycle(waits, &is_placed));
        }
        next.iter().for_each(|&n| is_placed[n] = true);
        order.extend(next);
    }
    Ok(order)
}

/// A cycle among those that are not placed, each of which waits for another one of them.
fn cycle(waits: &[BTreeSet<usize>], is_placed: &[bool]) -> Vec<usize> {
    let mut way: Vec<usize> = Vec::new();
    let mut at = is_placed.iter().position(|placed| !placed).unwrap_or(0);
    loop {
        if let Some(begin) = way.iter().position(|&n| n == at) {
            return way.split_off(begin);
        }
        way.push(at);
        at = waits[at].iter().copied().find(|&other| !is_placed[other]).unwrap_or(at);
    }
}

/// A place such as `HOST` or `HOST:PATH`.
fn place(hosts: &[Host], text: &str, path: &str) -> Result<Place, String> {
    let (name, path) = text.split_once(':').unwrap_or((text, path));
    let found = hosts.iter().position(|host| host.name == name);
    let shown = gtp_text::of_message(name);
    let host = found.ok_or_else(|| format!("no host is called {shown}"))?;
    let trimmed = path.trim_end_matches('/');
    let path =
        RelPath::new(trimmed).map_err(|why| format!("{}: {why}", gtp_text::of_message(path)))?;
    let base = &hosts[host].url;
    let whole = match base.path() {
        b"" => path.as_str().as_bytes().to_vec(),
        base => [base, path.as_str().as_bytes()].join(&b'/'),
    };
    let url = Url::of(base.host().clone(), &whole);
    Ok(Place { host, url: url.ok_or_else(|| "the path is too long".to_owned())? })
}

/// Finds which sources have an object only once other transfers have brought it, or parts of it,
/// there. These must come before.
fn find_bringers(objects: &mut [Object], hosts: &[Host], faults: &mut Faults) {
    for number in 0..objects.len() {
        let before = all_before(objects, number);
        let mut found = Vec::new();
        for source in &objects[number].has {
            let brings =
                |&other: &usize| objects[other].wants.iter().any(|to| overlap(to, &source.at));
            let all: Vec<usize> = (0..objects.len()).filter(brings).collect();
            for &by in all.iter().filter(|by| !before.contains(by)) {
                let (name, host) = (&objects[by].name, &hosts[source.at.host].name);
                let text = format!("[object.{name}] brings it to {host}: add it to `after`");
                faults.add(format_args!("[object.{}] `has`", objects[number].name), text);
            }
            found.push(all.first().copied());
        }
        for (source, by) in objects[number].has.iter_mut().zip(found) {
            source.brought_by = by;
        }
    }
}

/// The numbers of all objects that one waits for, directly or not.
fn all_before(objects: &[Object], number: usize) -> BTreeSet<usize> {
    let mut before = BTreeSet::new();
    let mut open = objects[number].after.clone();
    while let Some(other) = open.pop() {
        if before.insert(other) {
            open.extend(&objects[other].after);
        }
    }
    before
}

/// What tables that are right alone make wrong together.
fn judge_whole(plan: &Plan, faults: &mut Faults) {
    if plan.objects.is_empty() && faults.0.is_empty() {
        faults.add("[object.NAME]", "the plan contains no object");
    }
    if plan.hosts.len() > HOSTS_MAX {
        faults.add("[host.NAME]", format_args!("a plan has {HOSTS_MAX} hosts at most"));
    }
    if plan.transfers() > TRANSFERS_MAX {
        let text = format!("a plan has {TRANSFERS_MAX} transfers at most");
        faults.add("[object.NAME]", text);
        return;
    }
    let sum = plan.objects.iter().try_fold(0u64, |sum, object| {
        let one = object.size.unwrap_or(0).checked_mul(object.wants.len() as u64)?;
        sum.checked_add(one).filter(|&sum| sum <= BYTES_MAX)
    });
    if sum.is_none() {
        faults.add("`size`", "all transfers together have 2^58 bytes at most");
    }
    for object in &plan.objects {
        judge_object(object, plan, faults);
    }
    judge_sinks(plan, faults);
    for (number, host) in plan.hosts.iter().enumerate() {
        let of = |object: &Object| {
            let source = object.has.iter().filter(|has| has.at.host == number).count();
            let sink = object.wants.iter().filter(|place| place.host == number).count();
            source * object.wants.len() + sink
        };
        let many: usize = plan.objects.iter().map(of).sum();
        if many > SESSIONS_MAX {
            let text = format!(
                "it is a source or a sink of {many} transfers; at most {SESSIONS_MAX} are allowed"
            );
            faults.add(format_args!("[host.{}]", host.name), text);
        }
        if let Some(other) = plan.hosts[..number].iter().find(|other| other.key == host.key) {
            let text = format!("`key` is that of [host.{}]: one server is one host", other.name);
            faults.add(format_args!("[host.{}]", host.name), text);
        }
    }
}

fn judge_object(object: &Object, plan: &Plan, faults: &mut Faults) {
    let at = |word: &str| format!("[object.{}] `{word}`", object.name);
    let name = |host: usize| plan.hosts[host].name.as_str();
    if object.has.len() > FETCH_SOURCES_MAX {
        faults.add(at("has"), format_args!("names {FETCH_SOURCES_MAX} hosts at most"));
    }
    for (n, has) in object.has.iter().enumerate() {
        if object.has[..n].iter().any(|other| other.at.host == has.at.host) {
            faults.add(at("has"), format_args!("{} is named twice", name(has.at.host)));
        }
    }
    for (n, place) in object.wants.iter().enumerate() {
        if object.wants[..n].iter().any(|other| other.host == place.host) {
            faults.add(at("wants"), format_args!("{} is named twice", name(place.host)));
        }
        if object.has.iter().any(|has| has.at.host == place.host) {
            let text = format!("{} has it, as `has` says", name(place.host));
            faults.add(at("wants"), text);
        }
    }
}

/// Whether two transfers write to one place, or one reads what another one brings.
fn judge_sinks(plan: &Plan, faults: &mut Faults) {
    let sinks: Vec<(usize, &Place)> = plan
        .objects
        .iter()
        .enumerate()
        .flat_map(|(number, object)| object.wants.iter().map(move |place| (number, place)))
        .collect();
    for (n, (number, place)) in sinks.iter().enumerate() {
        let other = sinks[..n].iter().find(|(_, other)| overlap(place, other));
        if let Some((other, _)) = other.filter(|(other, _)| other != number) {
            let (one, other) = (&plan.objects[*number].name, &plan.objects[*other].name);
            let host = &plan.hosts[place.host].name;
            let text = format!("[object.{other}] goes to the same place of {host}");
            faults.add(format_args!("[object.{one}] `wants`"), text);
        }
    }
}

/// Whether two places are the same one, or one lies within the other.
pub fn overlap(one: &Place, other: &Place) -> bool {
    let within = |inner: &[u8], outer: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let (a, b) = (one.url.path(), other.url.path());
    one.host == other.host && (within(a, b) || within(b, a))
}

fn text(value: &toml::Value) -> Result<&str, &'static str> {
    value.as_str().ok_or("needs a text between quotes")
}

fn list(value: &toml::Value) -> Result<Vec<String>, ()> {
    let all = value.as_array().ok_or(())?;
    all.iter().map(|one| one.as_str().map(str::to_owned).ok_or(())).collect()
}

fn address(value: &toml::Value) -> Result<Url, String> {
    text(value)?.parse::<Url>().map_err(|bad| bad.to_string())
}

fn fingerprint(value: &toml::Value) -> Result<Fingerprint, String> {
    text(value)?.parse::<Fingerprint>().map_err(|bad| bad.to_string())
}

fn rate(value: &toml::Value) -> Result<Rate, String> {
    match text(value)? {
        "unlimited" => Ok(Rate::UNLIMITED),
        text => words::rate(text),
    }
}

fn size(value: &toml::Value) -> Result<u64, String> {
    let text = text(value).map_err(|_| "needs a size between quotes, as in \"50GB\"")?;
    let size = words::bytes(text)?;
    if size <= BYTES_MAX { Ok(size) } else { Err("an object has 2^58 bytes at most".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: &str = "abc";

    /// A plan whose hosts are `a`, `b` and `c`.
    fn with_hosts(rest: &str) -> String {
        let host = |(n, name): (usize, char)| {
            let key = Fingerprint::of_public_key(&[n as u8]);
            format!(
                "[host.{name}]\nurl = \"gtp://h{n}/base\"\nkey = \"{key}\"\n\
                 in = \"100Mbit\"\nout = \"unlimited\"\n"
            )
        };
        HOSTS.chars().enumerate().map(host).chain([rest.to_owned()]).collect()
    }

    fn faults(rest: &str) -> Vec<String> {
        read(&with_hosts(rest)).err().unwrap_or_default()
    }

    #[test]
    fn a_plan_says_which_object_goes_from_where_to_where() {
        let plan = read(&with_hosts(
            "[object.x]\nhas = [\"a\", \"b:old/x\"]\nwants = [\"c\"]\nsize = \"1GiB\"\n\
             [object.y]\npath = \"d/y\"\nhas = [\"c\"]\nwants = [\"a:in/y\"]\nafter = [\"z\"]\n\
             [object.z]\nhas = [\"a\"]\nwants = [\"b\"]\n",
        ))
        .unwrap();
        let names: Vec<&str> = plan.objects.iter().map(|object| object.name.as_str()).collect();
        assert_eq!(names, ["x", "z", "y"], "each after those that it waits for");
        let urls = |places: Vec<&Place>| {
            places.iter().map(|place| place.url.to_string()).collect::<Vec<_>>().join(" ")
        };
        let [x, _, y] = &plan.objects[..] else { panic!("three objects") };
        let has = x.has.iter().map(|has| &has.at).collect();
        assert_eq!(urls(has), "gtp://h0:4810/base/x gtp://h1:4810/base/old/x");
        assert_eq!(
            (urls(x.wants.iter().collect()).as_str(), x.size),
            ("gtp://h2:4810/base/x", { Some(1 << 30) })
        );
        assert_eq!(urls(y.wants.iter().collect()), "gtp://h0:4810/base/in/y");
        assert_eq!((y.after.as_slice(), plan.transfers()), (&[1][..], 3));
        assert!(plan.hosts[0].out.is_unlimited() && plan.hosts[0].into == Rate::from_mbps(100));
    }

    #[test]
    fn every_fault_is_told_with_its_table_and_key() {
        let all = faults(
            "odd = 1\n[host.d]\nurl = \"http://x\"\nkey = \"SHA256:x\"\nin = \"7\"\nspeed = 1\n\
             [host.e]\nurl = \"gtp://h0:4810/other\"\nkey = 1\nin = \"1Mbit\"\nout = \"1Mbit\"\n\
             [object.nobody]\nhas = []\nwants = [\"a\"]\n\
             [object.o]\nhas = [\"a\", \"a\", \"nowhere\"]\nwants = [\"b:../x\", \"a\"]\n\
             size = \"9999999PB\"\nafter = [\"missing\"]\n",
        );
        for (at, why) in [
            ("[host.d] `speed`", "a host has"),
            ("[host.d] `url`", "gtp://"),
            ("[host.d] `key`", "fingerprint"),
            ("[host.d] `in`", "unit"),
            ("[host.d]: `out` is missing", ""),
            ("[host.e] `url`", "this server is [host.a] already"),
            ("[host.e] `key`", "text"),
            ("[object.nobody]", "`has` names no host"),
            ("[object.o] `has`", "no host is called nowhere"),
            ("[object.o] `has`", "a is named twice"),
            ("[object.o] `wants`", "../x"),
            ("[object.o] `wants`", "a has it"),
            ("[object.o] `size`", ""),
            ("[object.o] `after`", "no object is called missing"),
        ] {
            let is = |fault: &&String| fault.starts_with(at) && fault.contains(why);
            assert!(all.iter().any(|fault| is(&fault)), "{at} {why}: {all:#?}");
        }
    }

    #[test]
    fn a_cycle_is_named_and_what_is_wrong_beside_it_as_well() {
        let object = |name: &str, after: &str| {
            format!("[object.{name}]\nhas = [\"a\"]\nwants = [\"b\"]\nafter = [{after}]\n")
        };
        let circle = [object("x", "\"y\""), object("y", "\"z\""), object("z", "\"x\"")].concat();
        let all = faults(&(circle + &object("w", "\"nobody\"")));
        assert!(all.iter().any(|fault| fault.contains("a cycle: x after y after z after x")));
        assert!(all.iter().any(|fault| fault.contains("nobody")), "{all:#?}");
        assert!(faults(&object("x", "\"x\"")).iter().any(|f| f.contains("a cycle: x after x")));
    }

    #[test]
    fn what_one_transfer_brings_another_reads_only_if_it_comes_after() {
        let first = "[object.x]\nhas = [\"a\"]\nwants = [\"b\"]\n";
        let second = |after: &str| {
            format!("{first}[object.y]\npath = \"x\"\nhas = [\"b\"]\nwants = [\"c\"]\n{after}")
        };
        let all = faults(&second(""));
        assert!(all[0].contains("[object.x] brings it to b: add it to `after`"), "{all:#?}");
        let plan = read(&with_hosts(&second("after = [\"x\"]\n"))).unwrap();
        assert_eq!(plan.objects[1].has[0].brought_by, Some(0));
        assert_eq!(plan.objects[0].has[0].brought_by, None);
    }

    #[test]
    fn what_reads_a_directory_comes_after_all_that_bring_parts_of_it() {
        let part = |name: &str, from: &str| {
            format!("[object.{name}]\npath = \"d/{name}\"\nhas = [\"{from}\"]\nwants = [\"b\"]\n")
        };
        let key = Fingerprint::of_public_key(b"another");
        let fourth = format!(
            "[host.w]\nurl = \"gtp://w\"\nkey = \"{key}\"\nin = \"1Mbit\"\nout = \"1Mbit\"\n"
        );
        let parts = fourth + &part("x", "a") + &part("y", "c");
        let whole = |after: &str| {
            format!(
                "{parts}[object.d]\nsize = \"9KB\"\nhas = [\"b\"]\nwants = [\"w\"]\n\
                 after = [{after}]\n"
            )
        };
        let all = faults(&whole("\"x\""));
        assert!(all.len() == 1 && all[0].contains("[object.y] brings it to b"), "{all:#?}");
        assert_eq!(faults(&whole("\"x\", \"y\"")), [""; 0]);
    }

    #[test]
    fn one_server_is_one_host() {
        let object = "[object.x]\nhas = [\"a\"]\nwants = [\"b\"]\n";
        let text = with_hosts(object);
        let key = |name: &str| {
            let table = text.split(&format!("[host.{name}]")).nth(1).unwrap();
            table.lines().find(|line| line.starts_with("key")).unwrap().to_owned()
        };
        let same = text.replace(&key("b"), &key("a"));
        let all = read(&same).unwrap_err();
        assert!(all.iter().any(|fault| fault.contains("`key` is that of [host.a]")), "{all:#?}");
    }

    #[test]
    fn two_objects_for_one_place_are_refused_also_where_one_lies_within_the_other() {
        for path in ["x", "x/y"] {
            let all = faults(&format!(
                "[object.x]\nhas = [\"a\"]\nwants = [\"b\"]\n\
                 [object.o]\npath = \"{path}\"\nhas = [\"c\"]\nwants = [\"b\"]\n"
            ));
            assert!(all.iter().any(|fault| fault.contains("the same place of b")), "{all:#?}");
        }
    }

    #[test]
    fn a_plan_has_bounds() {
        let huge = "[object.x]\nsize = \"200000000GB\"\nhas = [\"a\"]\nwants = [\"b\", \"c\"]\n";
        assert!(faults(huge).iter().any(|fault| fault.contains("2^58")), "{:?}", faults(huge));
        let one = |n| format!("[object.o{n}]\nhas = [\"a\"]\nwants = [\"b\"]\n");
        let many: String = (0..SESSIONS_MAX + 1).map(one).collect();
        let all = faults(&many);
        for host in
            ["[host.a]: it is a source or a sink of 61", "[host.b]: it is a source or a sink"]
        {
            assert!(all.iter().any(|fault| fault.starts_with(host)), "{all:#?}");
        }
        assert_eq!(faults(&(0..SESSIONS_MAX).map(one).collect::<String>()), [""; 0]);
        let back = |n| format!("[object.r{n}]\nhas = [\"b\"]\nwants = [\"a\"]\n");
        let both: String = (0..SESSIONS_MAX / 2 + 1).map(|n| one(n) + &back(n)).collect();
        assert!(faults(&both).iter().any(|fault| fault.contains("of 62")), "{:?}", faults(&both));
        assert_eq!(read("").unwrap_err(), ["[object.NAME]: the plan contains no object"]);
        let twice = with_hosts("[host.a]\nurl = \"gtp://h\"\n");
        assert!(read(&twice).unwrap_err()[0].starts_with("line 16: "), "a name stands there once");
    }
}
