//! The exports of a running server, and which of them a client means.
//!
//! A server has one export, and a path is beneath it; or it has several, and a path begins with the
//! name of one. What a client may not see answers as if it were not there: rights are judged before
//! anything is opened. The rules may be replaced while sessions go on; a session keeps its export.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use gtp_alloc::Span;
use gtp_store::{Chosen, RelPath, SourceError};
use gtp_sys::Clock;

use super::budget::Budget;
use super::counting::count;
use super::ground::Ground;
use super::occupancy::Right;
use super::overlaps::overlaps;
use super::quota::{Ledger, Meter, Quotas};
use super::rules::{BadExports, ExportRule, Exports, Rights, Subject};
use super::session::{Refusal, missing, no_such_request, place, right};
use super::sharing::Ruled;
use super::walks::Walks;
use super::watched::Watched;
use super::writers::{SoFar, Writer, Writers};
use crate::identity::Fingerprint;
use crate::messages::{Reason, Verb, printable};
use crate::trust::ClientTrust;

/// An export as sessions use it.
pub(super) struct Outlet {
    /// Its name; `None` if the server has one export alone.
    pub name: Option<Arc<str>>,
    /// What clients are told that its directory is called, with a slash at its end.
    pub called: String,
    pub walks: Arc<Walks>,
    pub ground: Arc<Ground>,
    ledger: Arc<Ledger>,
    watched: Arc<Watched>,
    writers: Mutex<Writers>,
}

/// All exports of a server.
pub(crate) struct Outlets {
    now: Arc<RwLock<Arc<Standing>>>,
    listings: Arc<Budget>,
    ledger: Arc<Ledger>,
    clock: Clock,
}

enum Standing {
    One {
        /// What its groups have; there are no exports in it.
        ruled: Arc<Ruled>,
        outlet: Arc<Outlet>,
    },
    Several {
        ruled: Arc<Ruled>,
        all: BTreeMap<String, Arc<Outlet>>,
        /// What stands for the list of exports.
        top: Arc<Outlet>,
    },
}

/// What a look at all exports has found.
pub(super) struct Looked {
    /// How many can be opened.
    pub opened: usize,
    /// Why the first one cannot that cannot.
    pub first: Option<SourceError>,
}

/// How long all exports are waited for.
const LOOK_MOST: Span = Span::from_secs(2);

/// What a client means by a path.
pub(super) struct Place {
    pub outlet: Arc<Outlet>,
    /// Beneath the export; `None` is all of it.
    pub path: Option<RelPath>,
    /// What the client may do there.
    pub rights: Rights,
    /// The names that are listed, where the client may only see which way leads on.
    pub above: Option<Vec<String>>,
}

/// What a session was allowed when it began, as far as its verb uses that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    rights: Rights,
    above: Option<Vec<String>>,
}

impl Place {
    /// What a session for this verb has from this place.
    pub fn given(&self, verb: &Verb) -> Given {
        let Rights { read, write, delete } = self.rights;
        let rights = match verb {
            Verb::Get { .. } | Verb::List { .. } | Verb::Tree { changes: false, .. } => {
                Rights { read, ..Rights::default() }
            }
            Verb::Stream { .. } if verb.probed_path().is_some() => {
                Rights { read, ..Rights::default() }
            }
            Verb::Put { .. } | Verb::Stream { .. } | Verb::Fetch { .. } | Verb::Relay { .. } => {
                Rights { read, write, delete: false }
            }
            Verb::Tree { changes: true, .. } => Rights { read, write, delete },
        };
        Given { rights, above: self.above.clone() }
    }
}

impl Given {
    /// Whether what is allowed now includes all of this.
    pub fn is_within(&self, now: &Given) -> bool {
        let (old, new) = (self.rights, now.rights);
        let rights = (!old.read || new.read) && (!old.write || new.write);
        let names = match (&self.above, &now.above) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(old), Some(new)) => old.iter().all(|name| new.contains(name)),
        };
        rights && (!old.delete || new.delete) && names
    }
}

impl Outlet {
    fn of(
        name: Option<&str>,
        called: &str,
        ground: Ground,
        (listings, ledger): (&Arc<Budget>, &Arc<Ledger>),
    ) -> Arc<Outlet> {
        let (ground, ledger) = (Arc::new(ground), Arc::clone(ledger));
        let opened = Arc::clone(&ground);
        let walks = Walks::new(Arc::clone(listings), move || opened.export());
        let called = name.map_or_else(|| called.to_owned(), |name| format!("{called}{name}/"));
        let (name, watched, writers) = (name.map(Arc::from), Arc::default(), Mutex::default());
        Arc::new(Outlet { name, called, walks, ground, ledger, watched, writers })
    }

    /// Notes that somebody begins to write at or beneath a path, and says for which accounts that
    /// counts. An account that comes later is not counted before this writer has gone.
    pub fn writing(&self, path: Option<&RelPath>) -> (Writer, Meter) {
        let writer = self.writers().current();
        let name = self.name.as_deref().unwrap_or_default();
        let export = (name, self.ground.root(), &self.watched);
        (writer, self.ledger.meter(export, path))
    }

    /// Words about it, with the table that names it.
    fn said(&self, what: &dyn std::fmt::Display) -> String {
        match &self.name {
            Some(name) => format!("[export.{name}]: {what}"),
            None => format!("{}: {what}", self.ground.root().display()),
        }
    }

    /// Those who write now.
    pub fn writers_so_far(&self) -> SoFar {
        self.writers().so_far()
    }

    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlets {
    /// How the quotas of the exports stand.
    pub fn quotas(&self) -> Quotas {
        Quotas::of(&self.ledger)
    }

    /// One export, beneath which all paths are. Blocks.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn one(
        root: std::path::PathBuf,
        called: &str,
        chosen: Option<Arc<Chosen>>,
        listings: Arc<Budget>,
    ) -> Result<Outlets, SourceError> {
        let clock = Clock::start();
        let ground = Ground::new(root, chosen, clock);
        // Each session opens it anew; this is to fail early.
        ground.try_export()?;
        let ledger = Arc::new(Ledger::default());
        let outlet = Outlet::of(None, called, ground, (&listings, &ledger));
        let standing = Standing::One { ruled: Arc::default(), outlet };
        let now = Arc::new(RwLock::new(Arc::new(standing)));
        Ok(Outlets { now, listings, ledger, clock })
    }

    /// Several exports. Those that cannot be opened may be there later. Blocks.
    ///
    /// # Errors
    /// If none can be opened.
    pub fn several(
        rules: Exports,
        called: &str,
        listings: Arc<Budget>,
    ) -> Result<Outlets, SourceError> {
        let clock = Clock::start();
        let nowhere = Ground::new(std::path::PathBuf::new(), None, clock);
        let ledger = Arc::new(Ledger::default());
        let top = Outlet::of(None, called, nowhere, (&listings, &ledger));
        let empty = Standing::Several { ruled: Arc::default(), all: BTreeMap::new(), top };
        let now = Arc::new(RwLock::new(Arc::new(empty)));
        let outlets = Outlets { now, listings, ledger, clock };
        outlets.replace_several(rules);
        match outlets.look_anew() {
            Looked { opened: 0, first: Some(why) } => Err(why),
            Looked { .. } => Ok(outlets),
        }
    }

    /// Looks again at what is there, for an operator who says that it is as it should be. An export
    /// whose file system does not answer is waited for no longer than [`LOOK_MOST`]. Blocks.
    pub fn look_anew(&self) -> Looked {
        let outlets = match &*self.now() {
            Standing::One { outlet, .. } => vec![Arc::clone(outlet)],
            Standing::Several { all, .. } => all.values().cloned().collect(),
        };
        let (tell, told) = channel();
        for (index, outlet) in outlets.iter().enumerate() {
            let (tell, ground) = (tell.clone(), Arc::clone(&outlet.ground));
            let look = move || {
                ground.look_anew();
                // Nobody waits for what comes too late.
                let _ = tell.send((index, ground.try_export().map(drop)));
            };
            // Without a thread it is looked at when it is used.
            let _ = std::thread::Builder::new().name("gtp-export".into()).spawn(look);
        }
        drop(tell);
        let mut silent: BTreeSet<usize> = (0..outlets.len()).collect();
        let mut away = Vec::new();
        let mut looked = Looked { opened: 0, first: None };
        let begun = self.clock.now();
        let left = || LOOK_MOST.saturating_sub(self.clock.now().since(begun));
        while let Ok((index, opened)) = told.recv_timeout(Duration::from_nanos(left().as_nanos())) {
            silent.remove(&index);
            match opened {
                Ok(()) => looked.opened += 1,
                Err(why) => {
                    away.extend(outlets.get(index).map(|outlet| outlet.said(&why)));
                    looked.first.get_or_insert(why);
                }
            }
        }
        let silent = silent.into_iter().filter_map(|index| outlets.get(index));
        away.extend(silent.map(|outlet| outlet.said(&"it does not answer")));
        tell_away(&away);
        self.tell_overlaps();
        looked
    }

    /// Warns of exports within others whose quotas do not count what is written there.
    fn tell_overlaps(&self) {
        let standing = self.now();
        let Standing::Several { ruled, all, .. } = &*standing else { return };
        let path = |(name, outlet): (&String, &Arc<Outlet>)| {
            Some((name.clone(), outlet.ground.real_path()?))
        };
        let paths = all.iter().filter_map(path).collect();
        let places = ruled.rules.accounts().into_iter().flat_map(|account| account.places);
        let counted = places.map(|place| place.export().to_owned()).collect();
        for both in overlaps(&paths, &counted) {
            tracing::warn!(
                "the export {} lies within the export {}: what is written by one name does not \
                 count for a quota of the other; take one of the exports away, or the quota",
                both.inner,
                both.outer
            );
        }
    }

    /// Replaces the rules; exports whose paths stay are the same as before. Sessions keep the
    /// exports that they have; which of them may stay is decided elsewhere. Opens nothing.
    ///
    /// # Errors
    /// If these are rules of exports, and one directory is served.
    pub fn replace(&self, rules: Exports) -> Result<(), BadExports> {
        let Standing::One { ruled, outlet } = &*self.now() else {
            self.replace_several(rules);
            return Ok(());
        };
        if let Some(name) = rules.exports.keys().next() {
            return Err(BadExports::BesideDirectory(name.clone()));
        }
        let (ruled, outlet) = (Arc::new(ruled.with(rules)), Arc::clone(outlet));
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(Standing::One { ruled, outlet });
        Ok(())
    }

    fn replace_several(&self, rules: Exports) {
        let before = self.now();
        let Standing::Several { ruled, all: old, top } = &*before else { return };
        let outlet = |(name, rule): (&String, &ExportRule)| {
            let same = old.get(name).filter(|outlet| outlet.ground.root() == rule.path);
            let outlet = same.cloned().unwrap_or_else(|| {
                let ground = self.ground(name, rule);
                Outlet::of(Some(name), &top.called, ground, (&self.listings, &self.ledger))
            });
            (name.clone(), outlet)
        };
        let all: BTreeMap<String, Arc<Outlet>> = rules.exports.iter().map(outlet).collect();
        // Nobody counts anew meanwhile.
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        for (counting, places) in self.ledger.replace(rules.accounts()) {
            count(&self.ledger, counting, places, &all);
        }
        let (ruled, top) = (Arc::new(ruled.with(rules)), Arc::clone(top));
        *now = Arc::new(Standing::Several { ruled, all, top });
    }

    /// What an export names. Where that becomes another directory, it is counted anew for quotas.
    fn ground(&self, name: &str, rule: &ExportRule) -> Ground {
        let (now, ledger) = (Arc::downgrade(&self.now), Arc::downgrade(&self.ledger));
        let (name, path) = (name.to_owned(), rule.path.clone());
        let ground = Ground::new(rule.path.clone(), None, self.clock);
        ground.on_move(move || {
            let Some((now, ledger)) = now.upgrade().zip(ledger.upgrade()) else { return };
            let standing = read(&now);
            let Standing::Several { all, .. } = &**standing else { return };
            for (counting, places) in ledger.forget(&name, &path) {
                count(&ledger, counting, places, all);
            }
        })
    }

    /// The rules; of a server with one directory, those of its groups.
    pub fn ruled(&self) -> Arc<Ruled> {
        match &*self.now() {
            Standing::One { ruled, .. } | Standing::Several { ruled, .. } => Arc::clone(ruled),
        }
    }

    fn now(&self) -> Arc<Standing> {
        Arc::clone(&read(&self.now))
    }

    /// What a client with this key means by its request, if it may do that there.
    ///
    /// # Errors
    /// The refusal that the client is told.
    pub fn find(
        &self,
        trust: &ClientTrust,
        key: &Fingerprint,
        verb: &Verb,
    ) -> Result<Place, Refusal> {
        let path = match place(verb) {
            b"" => None,
            bytes => Some(
                RelPath::from_bytes(bytes)
                    .map_err(|why| no_such_request(format!("{}: {why}", printable(bytes))))?,
            ),
        };
        match &*self.now() {
            Standing::One { outlet, .. } => {
                let (outlet, rights) = (Arc::clone(outlet), Rights::of(trust.access(key)));
                Ok(Place { outlet, path, rights, above: None })
            }
            Standing::Several { ruled, all, top } => {
                let subject = Subject::of(&ruled.rules, trust, key);
                let Some(path) = path else { return at_top(&subject, top, verb) };
                let (name, rest) = split(&path);
                match all.get(name) {
                    Some(outlet) => in_export(&subject, (name, outlet), (&path, rest), verb),
                    None => Err(absent(verb, &path)),
                }
            }
        }
    }
}

/// Warns of exports that are not there, in one line: lines like another one may be left out.
fn tell_away(away: &[String]) {
    if away.is_empty() {
        return;
    }
    let shown = away.iter().take(AWAY_SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    match away.len().saturating_sub(AWAY_SHOWN) {
        0 => tracing::warn!("cannot be opened: {shown}"),
        more => tracing::warn!("cannot be opened: {shown}; and {more} more"),
    }
}

/// Exports that one warning names.
const AWAY_SHOWN: usize = 16;

fn read(now: &RwLock<Arc<Standing>>) -> RwLockReadGuard<'_, Arc<Standing>> {
    now.read().unwrap_or_else(PoisonError::into_inner)
}

/// A path's first component, and what is behind it.
fn split(path: &RelPath) -> (&str, Option<RelPath>) {
    match path.as_str().split_once('/') {
        // What is behind a component of a valid path is valid.
        Some((name, rest)) => (name, RelPath::new(rest).ok()),
        None => (path.as_str(), None),
    }
}

/// The place above all exports.
fn at_top(subject: &Subject<'_>, top: &Arc<Outlet>, verb: &Verb) -> Result<Place, Refusal> {
    if !matches!(verb, Verb::List { .. }) {
        let reason = match reads(verb) {
            true => Reason::Permission,
            false => Reason::Destination,
        };
        return Err(Refusal::new(reason, NAME_ONE));
    }
    let above = Some(subject.listed().map(str::to_owned).collect());
    let (outlet, rights) = (Arc::clone(top), Rights::default());
    Ok(Place { outlet, path: None, rights, above })
}

/// A place in an export that is there.
fn in_export(
    subject: &Subject<'_>,
    (name, outlet): (&str, &Arc<Outlet>),
    (full, path): (&RelPath, Option<RelPath>),
    verb: &Verb,
) -> Result<Place, Refusal> {
    let rights = subject.rights(name, path.as_ref());
    let ways = subject.ways(name, path.as_ref());
    let outlet = Arc::clone(outlet);
    if right(verb).within(rights.access()) {
        return Ok(Place { outlet, path, rights, above: None });
    }
    if ways.is_empty() && !rights.is_some() {
        return Err(absent(verb, full));
    }
    if rights.is_some() {
        let what = match right(verb) {
            Right::Read | Right::None => "be read",
            Right::Write => "be written",
            Right::Both => "be read and written",
        };
        let text =
            format!("{full}: it may not {what} with this key here; ask whoever runs the server");
        return Err(Refusal::new(Reason::NotAuthorised, text));
    }
    let above: Vec<String> = ways.into_iter().map(str::to_owned).collect();
    match verb {
        Verb::List { .. } => Ok(Place { outlet, path, rights, above: Some(above) }),
        Verb::Get { .. }
        | Verb::Put { .. }
        | Verb::Fetch { .. }
        | Verb::Relay { .. }
        | Verb::Tree { .. }
        | Verb::Stream { .. } => {
            let text = format!("{full}: only a part of it is for this key: {}", above.join(", "));
            Err(Refusal::new(Reason::Permission, text))
        }
    }
}

/// That there is no such place, or none that the client may see.
fn absent(verb: &Verb, path: &RelPath) -> Refusal {
    let (name, rest) = split(path);
    match (reads(verb), rest) {
        (true, _) => {
            let nothing = SourceError::Missing { path: path.to_string() };
            missing(Reason::Missing, nothing.to_string())
        }
        (false, None) => missing(Reason::Destination, format!("{name}: {NO_EXPORT}")),
        (false, Some(_)) => missing(Reason::Destination, format!("{path}: no such directory here")),
    }
}

fn reads(verb: &Verb) -> bool {
    match right(verb) {
        Right::Read | Right::None => true,
        Right::Write | Right::Both => false,
    }
}

const NAME_ONE: &str = "this server has several exports: name one of them in the address, as in \
                        gtp://HOST/EXPORT/PATH; `gtp ls gtp://HOST/` lists those for this key";
const NO_EXPORT: &str = "the server has no such export for this key; `gtp ls gtp://HOST/` lists \
                         those that there are";

#[cfg(test)]
mod tests {
    use gtp_alloc::Bytes;

    use super::super::quota::Quota;
    use super::super::rules::{GroupRule, Visibility, Who};
    use super::*;
    use crate::trust::{AuthorizedKeys, Grants, Strangers};

    fn key() -> Fingerprint {
        Fingerprint::of_public_key(&[1])
    }

    fn rule(path: &std::path::Path, read: Who) -> ExportRule {
        let (write, delete, visibility) = (Who::Nobody, Who::Nobody, Visibility::Listed);
        let quota = Quota::default();
        ExportRule { path: path.to_owned(), read, write, delete, visibility, quota }
    }

    fn outlets(dir: &std::path::Path) -> Outlets {
        let secret = rule(&dir.join("s"), Who::Nobody);
        let home = rule(&dir.join("h"), Who::Nobody);
        let open = rule(&dir.join("o"), Who::Everybody);
        let grants = Grants { write: vec!["home/a".parse().unwrap()], ..Grants::default() };
        let group = GroupRule { keys: [key()].into(), grants, ..GroupRule::default() };
        let exports = [("secret", secret), ("home", home), ("open", open)];
        let exports = exports.map(|(name, rule)| (name.to_owned(), rule)).into();
        let groups = [("g".to_owned(), group)].into();
        ["s", "h", "o"].iter().for_each(|name| std::fs::create_dir_all(dir.join(name)).unwrap());
        let budget = Budget::new(Bytes(1 << 20));
        Outlets::several(Exports { exports, groups }, "the server's /", budget).ok().unwrap()
    }

    fn trust() -> ClientTrust {
        let keys = AuthorizedKeys::of_one(key(), crate::trust::Access::ALL);
        ClientTrust { keys, strangers: Strangers::Refused }
    }

    fn verbs(path: &str) -> [Verb; 4] {
        let bytes = || path.as_bytes().to_vec();
        [
            Verb::Get { path: bytes() },
            Verb::List { path: bytes() },
            Verb::Tree { path: bytes(), changes: true },
            Verb::Tree { path: bytes(), changes: false },
        ]
    }

    #[test]
    fn an_export_that_a_client_may_not_see_answers_word_for_word_like_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let (outlets, trust) = (outlets(dir.path()), trust());
        let said = |verb: &Verb, path: &str, other: &str| {
            let refusal = outlets.find(&trust, &key(), verb).err().unwrap();
            (refusal.reason, refusal.text.replace(path, other))
        };
        for (there, other) in
            [("secret", "nowhere"), ("secret/x", "nowhere/x"), ("home/b", "home/c")]
        {
            for (one, two) in verbs(there).iter().zip(&verbs(other)) {
                assert_eq!(said(one, there, "?"), said(two, other, "?"), "{there}");
            }
        }
    }

    #[test]
    fn a_path_is_beneath_the_export_of_its_first_name_and_above_places_only_ways_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (outlets, trust) = (outlets(dir.path()), trust());
        let find = |path: &str| outlets.find(&trust, &key(), &Verb::List { path: path.into() });
        let found = find("open/x/y").ok().unwrap();
        assert_eq!(found.outlet.name.as_deref(), Some("open"));
        assert_eq!(found.path.unwrap().as_str(), "x/y");
        assert_eq!(found.outlet.called, "the server's /open/");
        assert_eq!(find("").ok().unwrap().above.unwrap(), ["home", "open"]);
        assert_eq!(find("home").ok().unwrap().above.unwrap(), ["a"]);
        let [get, _, change, _] = verbs("home");
        for verb in [get, change] {
            let refusal = outlets.find(&trust, &key(), &verb).err().unwrap();
            assert_eq!(refusal.reason, Reason::Permission, "{}", refusal.text);
        }
        let [_, list, ..] = verbs("home/a");
        let refusal = outlets.find(&trust, &key(), &list).err().unwrap();
        assert_eq!(refusal.reason, Reason::NotAuthorised, "it may only write there");
    }

    #[test]
    fn a_session_stays_while_it_has_every_right_that_its_verb_uses_and_no_longer() {
        let rights = |text: &str| {
            let has = |letter| text.contains(letter);
            Rights { read: has('r'), write: has('w'), delete: has('d') }
        };
        let dir = tempfile::tempdir().unwrap();
        let outlets = outlets(dir.path());
        let Ok(found) = outlets.find(&trust(), &key(), &Verb::List { path: b"open".to_vec() })
        else {
            panic!("it may be listed");
        };
        let given = |verb: &Verb, text: &str| {
            let place =
                Place { outlet: Arc::clone(&found.outlet), path: None, above: None, ..found };
            Place { rights: rights(text), ..place }.given(verb)
        };
        let [get, list, change, look] = verbs("open");
        let put = Verb::Put { path: b"open".to_vec() };
        let all = ["", "r", "w", "d", "rw", "rd", "wd", "rwd"];
        let stays = |verb: &Verb| {
            let begun = given(verb, "rwd");
            let still = |now: &&str| begun.is_within(&given(verb, now));
            all.into_iter().filter(still).collect::<Vec<&str>>()
        };
        for verb in [get, list, look] {
            assert_eq!(stays(&verb), ["r", "rw", "rd", "rwd"], "{verb:?}");
        }
        assert_eq!(stays(&put), ["rw", "rwd"]);
        assert_eq!(stays(&change), ["rwd"]);
        assert!(given(&put, "w").is_within(&given(&put, "w")), "it had no more before");
    }

    #[test]
    fn a_session_ends_where_only_the_way_on_is_left_or_a_name_that_it_was_told_is_not() {
        let given = |names: Option<&[&str]>| {
            let above = names.map(|names| names.iter().map(|&name| name.to_owned()).collect());
            Given { rights: Rights::default(), above }
        };
        let (all, one, two) = (given(None), given(Some(&["a"])), given(Some(&["a", "b"])));
        assert!(one.is_within(&two) && one.is_within(&all) && two.is_within(&two));
        assert!(!all.is_within(&one) && !two.is_within(&one));
    }

    #[test]
    fn an_export_that_stays_is_the_same_after_a_change_and_one_with_another_path_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (outlets, trust) = (outlets(dir.path()), trust());
        let find = || {
            let found = outlets.find(&trust, &key(), &Verb::List { path: b"open".to_vec() });
            found.ok().map(|place| place.outlet)
        };
        let before = find().unwrap();
        let rules = |path: &std::path::Path| {
            let exports = [("open".to_owned(), rule(path, Who::Everybody))].into();
            Exports { exports, groups: BTreeMap::new() }
        };
        outlets.replace(rules(&dir.path().join("o"))).unwrap();
        assert!(Arc::ptr_eq(&before, &find().unwrap()));
        outlets.replace(rules(&dir.path().join("h"))).unwrap();
        assert!(!Arc::ptr_eq(&before, &find().unwrap()));
        outlets.replace(Exports::default()).unwrap();
        assert!(find().is_none());
    }

    #[test]
    fn a_server_with_one_directory_takes_other_groups_and_no_exports() {
        let dir = tempfile::tempdir().unwrap();
        let (root, listings) = (dir.path().to_owned(), Budget::new(Bytes(1 << 20)));
        let outlets = Outlets::one(root, "the server's /", None, listings).ok().unwrap();
        let group = GroupRule { keys: [key()].into(), ..GroupRule::default() };
        let groups: BTreeMap<String, GroupRule> = [("staff".to_owned(), group)].into();
        let of_client = || {
            let groups = outlets.ruled().groups(&trust(), &key());
            groups.iter().map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert!(of_client().is_empty());
        outlets.replace(Exports { groups: groups.clone(), ..Exports::default() }).unwrap();
        assert_eq!(of_client(), ["staff"]);
        let exports = [("open".to_owned(), rule(dir.path(), Who::Everybody))].into();
        let refused = outlets.replace(Exports { exports, groups: BTreeMap::new() });
        assert_eq!(refused, Err(BadExports::BesideDirectory("open".to_owned())));
        assert_eq!(of_client(), ["staff"], "nothing has changed");
        let found = outlets.find(&trust(), &key(), &Verb::Get { path: b"x".to_vec() });
        assert!(found.ok().unwrap().rights.read, "a group takes no right away");
    }
}
