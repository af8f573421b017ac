//! How much may lie beneath places of the exports, and how much lies there.
//!
//! An account has places and a limit; it begins with what was counted there, and goes on with what
//! sessions say they have changed. Before a session writes it reserves what it will need at most,
//! so that sessions together never go beyond a limit. This module counts; it looks at no file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp_store::{RelPath, Usage};

use super::watched::Watched;
use crate::trust::Below;

/// The most that may be somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of content.
    pub bytes: Option<u64>,
    /// Names: files, directories and links.
    pub files: Option<u64>,
}

impl Quota {
    /// Whether there is no limit.
    pub fn is_none(self) -> bool {
        self == Quota::default()
    }
}

/// Whose quota it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaOf {
    /// All who write to an export.
    Export(String),
    /// The members of a group, in their places.
    Group(String),
}

impl fmt::Display for QuotaOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaOf::Export(name) => write!(f, "the export {name}"),
            QuotaOf::Group(name) => write!(f, "the group {name}"),
        }
    }
}

/// What an account is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub owner: QuotaOf,
    pub quota: Quota,
    pub places: Vec<Below>,
    /// The paths of the exports that have these places.
    pub roots: BTreeMap<String, PathBuf>,
}

/// How one quota stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStands {
    /// Whose it is.
    pub owner: QuotaOf,
    /// What may be there.
    pub quota: Quota,
    /// Bytes of content and names that are there; `None` as long as they are being counted.
    pub used: Option<(u64, u64)>,
}

/// The quotas of a server that runs, as its exports are now. Clones show the same.
#[derive(Clone, Default)]
pub struct Quotas(Arc<Ledger>);

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Quotas")
    }
}

impl Quotas {
    /// Those of this ledger.
    pub(super) fn of(ledger: &Arc<Ledger>) -> Quotas {
        Quotas(Arc::clone(ledger))
    }

    /// How each quota stands: those of exports before those of groups, each by name.
    pub fn all(&self) -> Vec<QuotaStands> {
        let stands = |account: &Account| QuotaStands {
            owner: account.wanted.owner.clone(),
            quota: account.wanted.quota,
            used: account.used.map(|used| (used.bytes, used.files)),
        };
        self.0.books().accounts.iter().map(stands).collect()
    }
}

/// Numbers accounts, each in one set of places.
pub(super) type AccountId = u64;

/// One count of what is there. Another one takes its place where other directories are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    account: AccountId,
    number: u64,
}

/// All accounts of a server.
#[derive(Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
    /// Rings when something was counted, or accounts have changed.
    news: Condvar,
}

#[derive(Default)]
struct Books {
    accounts: Vec<Account>,
    last: AccountId,
}

struct Account {
    id: AccountId,
    wanted: Wanted,
    /// How often it was to be counted anew.
    counts: u64,
    /// What is there, once it was counted.
    used: Option<Usage>,
    /// What sessions that run may add.
    reserved: Usage,
}

/// Why something may not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// What is there has not been counted yet.
    Uncounted,
    /// Another session writes where a directory is to be moved, or moves one there.
    Claimed,
    /// The directory that it goes to cannot be opened, in words of the system.
    Unopened(String),
    /// What would move from one account to another cannot be looked at.
    Unseen,
    /// The server could not look into a directory any more.
    Closed,
    /// There is no room, in words.
    NoRoom(String),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Uncounted => f.write_str(
                "the server is still counting the existing data for its quota; try again later",
            ),
            Full::Claimed => f.write_str("another transfer is writing there; try again later"),
            Full::Unopened(why) => {
                write!(f, "the server cannot open the directory that holds it: {why}")
            }
            Full::Unseen => f.write_str(
                "the server cannot read everything in it, so it cannot count it for a quota",
            ),
            Full::Closed => f.write_str(
                "the server cannot count a directory that its owner may not list and search; set \
                 u+rx on it",
            ),
            Full::NoRoom(text) => f.write_str(text),
        }
    }
}

/// The accounts that what is at and beneath one path counts for.
pub(super) struct Meter {
    ledger: Arc<Ledger>,
    watched: Arc<Watched>,
    export: String,
    /// The length of the path that it is about.
    at: usize,
    scopes: Vec<Scope>,
}

struct Scope {
    account: AccountId,
    /// Whether all at and beneath the meter's path counts, so that no path need be compared.
    whole: bool,
    places: Vec<Below>,
}

/// Amounts, one for each account of a meter.
pub(super) type Amounts = Vec<Usage>;

/// Room that a session has, until this is dropped.
pub(super) struct Reservation {
    ledger: Arc<Ledger>,
    held: Vec<(AccountId, Usage)>,
}

impl Ledger {
    /// Puts these accounts in place. Those whose owners, places and directories stay keep what they
    /// know. Returns the others, whose places are to be counted.
    pub fn replace(&self, wanted: Vec<Wanted>) -> Vec<(Count, Vec<Below>)> {
        let mut books = self.books();
        let mut old = std::mem::take(&mut books.accounts);
        let mut new = Vec::new();
        for wanted in wanted {
            let same = |account: &Account| {
                let Wanted { owner, quota: _, places, roots } = &account.wanted;
                (owner, places, roots) == (&wanted.owner, &wanted.places, &wanted.roots)
            };
            let account = match old.iter().position(same) {
                Some(at) => Account { wanted, ..old.swap_remove(at) },
                None => {
                    books.last += 1;
                    let (id, used, reserved) = (books.last, None, Usage::default());
                    new.push((Count { account: id, number: 0 }, wanted.places.clone()));
                    Account { id, wanted, counts: 0, used, reserved }
                }
            };
            books.accounts.push(account);
        }
        self.news.notify_all();
        new
    }

    /// Forgets what is known of the accounts that have places in an export at this path, since
    /// another directory is there. Returns them, to be counted again.
    pub fn forget(&self, export: &str, root: &Path) -> Vec<(Count, Vec<Below>)> {
        let mut books = self.books();
        let concerned = books.accounts.iter_mut().filter(|account| account.is_in(export, root));
        let forgotten = concerned.map(|account| {
            (account.used, account.counts) = (None, account.counts + 1);
            let count = Count { account: account.id, number: account.counts };
            (count, account.wanted.places.clone())
        });
        forgotten.collect()
    }

    /// Whether somebody waits for this count.
    pub fn awaits(&self, count: Count) -> bool {
        self.books().awaiting(count).is_some()
    }

    /// Notes what was counted at an account's places, if that is still what was asked for.
    pub fn counted(&self, count: Count, there: Usage) {
        if let Some(account) = self.books().awaiting(count) {
            account.used = Some(there);
            self.news.notify_all();
        }
    }

    /// Waits until something was counted or accounts have changed, but no longer than this. Blocks.
    fn wait(&self, most: Duration) {
        // However the wait has ended, whoever waits looks.
        drop(self.news.wait_timeout(self.books(), most));
    }

    /// What an account knows to be there.
    #[cfg(test)]
    pub fn used(&self, count: Count) -> Option<Usage> {
        self.books().find(count.account)?.used
    }

    /// The accounts for which something at or beneath a path counts, of the export of this name and
    /// path in which sessions change what is watched. Another path that the name had before counts
    /// for nobody.
    pub fn meter(
        self: &Arc<Ledger>,
        (export, root, watched): (&str, &Path, &Arc<Watched>),
        at: Option<&RelPath>,
    ) -> Meter {
        let books = self.books();
        let here = books.accounts.iter().filter(|account| account.is_in(export, root));
        let concerned = here.filter_map(|account| {
            let places = &account.wanted.places;
            let whole = places.iter().any(|place| place.covers(export, at));
            let part = places.iter().any(|place| place.way(export, at).is_some());
            (whole || part).then(|| Scope { account: account.id, whole, places: places.clone() })
        });
        let (scopes, export) = (concerned.collect(), export.to_owned());
        let (ledger, watched) = (Arc::clone(self), Arc::clone(watched));
        Meter { ledger, watched, export, at: at.map_or(0, |at| at.as_str().len()), scopes }
    }

    fn settle(&self, account: AccountId, before: Usage, after: Usage) {
        if let Some(account) = self.books().find(account) {
            account.used = account.used.map(|used| used.plus(after).minus(before));
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn find(&mut self, id: AccountId) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|account| account.id == id)
    }

    fn awaiting(&mut self, count: Count) -> Option<&mut Account> {
        self.find(count.account).filter(|account| account.counts == count.number)
    }
}

impl Account {
    /// Whether it has places in the export of this name that leads to this path.
    fn is_in(&self, export: &str, root: &Path) -> bool {
        self.wanted.roots.get(export).is_some_and(|path| path == root)
    }

    /// Whether there is room for more.
    fn admits(&self, more: Usage) -> Result<(), Full> {
        let taken = self.used.ok_or(Full::Uncounted)?.plus(self.reserved);
        let Quota { bytes, files } = self.wanted.quota;
        if let Some(most) = bytes.filter(|most| more.bytes > most.saturating_sub(taken.bytes)) {
            let left = most.saturating_sub(taken.bytes);
            let unit = gtp_text::Unit::as_written(most);
            let [needs, left, most] = [more.bytes, left, most].map(|bytes| size(bytes, unit));
            return Err(self.no_room(&needs, &left, &most));
        }
        if let Some(most) = files.filter(|most| more.files > most.saturating_sub(taken.files)) {
            let left = most.saturating_sub(taken.files);
            let needs = format!("{} names", more.files);
            return Err(self.no_room(&needs, &left.to_string(), &most.to_string()));
        }
        Ok(())
    }

    fn no_room(&self, needs: &str, left: &str, most: &str) -> Full {
        let owner = &self.wanted.owner;
        Full::NoRoom(format!(
            "the quota is reached: this needs {needs} more, but {owner} has only {left} left of \
             {most}; remove something there, or ask whoever runs the server for more"
        ))
    }
}

fn size(bytes: u64, unit: gtp_text::Unit) -> String {
    gtp_text::scaled(bytes as f64, unit)
}

impl Meter {
    /// Whether no account is concerned.
    pub fn is_idle(&self) -> bool {
        self.scopes.is_empty()
    }

    /// Amounts of nothing.
    pub fn nothing(&self) -> Amounts {
        vec![Usage::default(); self.scopes.len()]
    }

    /// Adds what is at a path of the export to the amounts of the accounts for which it counts: at
    /// the meter's path, beneath it, or on the way to it.
    pub fn add(&self, amounts: &mut Amounts, path: &str, takes: Usage) {
        for (scope, amount) in self.scopes.iter().zip(amounts) {
            let holds = |place: &Below| place.covers_text(&self.export, path);
            if scope.whole && path.len() >= self.at || scope.places.iter().any(holds) {
                *amount = amount.plus(takes);
            }
        }
    }

    /// Reserves room for these amounts.
    ///
    /// # Errors
    /// [`Full`], of the first account that has none; then nothing is reserved. An account that is
    /// no more, since the settings have changed, has none either: a session that begins again
    /// counts for the new one.
    pub fn reserve(&self, needs: &[Usage]) -> Result<Reservation, Full> {
        let mut books = self.ledger.books();
        let needs = || self.scopes.iter().map(|scope| scope.account).zip(needs.iter().copied());
        for (id, need) in needs() {
            books.find(id).ok_or(Full::Uncounted)?.admits(need)?;
        }
        for (id, need) in needs() {
            if let Some(account) = books.find(id) {
                account.reserved = account.reserved.plus(need);
            }
        }
        Ok(Reservation { ledger: Arc::clone(&self.ledger), held: needs().collect() })
    }

    /// Whether the other one is of the same accounts.
    pub fn is_same(&self, other: &Meter) -> bool {
        let accounts = |meter: &Meter| meter.scopes.iter().map(|s| s.account).collect::<Vec<_>>();
        accounts(self) == accounts(other)
    }

    /// Waits for what is being counted, but no longer than this. Blocks.
    pub fn wait(&self, most: Duration) {
        self.ledger.wait(most);
    }

    /// What sessions change beneath the export.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Whether all that is at or beneath the meter's path counts for the same accounts.
    pub fn is_even(&self) -> bool {
        self.scopes.iter().all(|scope| scope.whole)
    }

    /// Has a reservation hold so much more.
    ///
    /// # Errors
    /// As [`Meter::reserve`]; then it holds what it held.
    pub fn extend(&self, held: &mut Reservation, needs: &[Usage]) -> Result<(), Full> {
        let mut more = self.reserve(needs)?;
        for ((_, held), (_, more)) in held.held.iter_mut().zip(std::mem::take(&mut more.held)) {
            *held = held.plus(more);
        }
        Ok(())
    }

    /// Notes that what was there before is now what is there after.
    pub fn settle(&self, before: &[Usage], after: &[Usage]) {
        let all = self.scopes.iter().zip(before.iter().zip(after));
        for (scope, (&before, &after)) in all {
            self.ledger.settle(scope.account, before, after);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = self.ledger.books();
        for &(id, held) in &self.held {
            if let Some(account) = books.find(id) {
                account.reserved = account.reserved.minus(held);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Below {
        text.parse().unwrap()
    }

    fn meter_of(ledger: &Arc<Ledger>, export: &str, at: &str) -> Meter {
        let export = (export, Path::new("/srv"), &Arc::default());
        ledger.meter(export, RelPath::new(at).ok().as_ref())
    }

    /// All exports of these places lead to the same path.
    fn wanted(owner: QuotaOf, quota: Quota, places: Vec<Below>) -> Wanted {
        let root = |place: &Below| (place.export().to_owned(), PathBuf::from("/srv"));
        let roots = places.iter().map(root).collect();
        Wanted { owner, quota, places, roots }
    }

    fn bytes(bytes: u64) -> Usage {
        Usage { bytes, files: 1 }
    }

    fn ledger(wanted: Vec<Wanted>) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        for (count, _) in ledger.replace(wanted) {
            ledger.counted(count, Usage { bytes: 40, files: 4 });
        }
        ledger
    }

    fn of_group(places: &[&str], most: u64) -> Wanted {
        let quota = Quota { bytes: Some(most), files: None };
        let places = places.iter().map(|text| place(text)).collect();
        wanted(QuotaOf::Group("g".into()), quota, places)
    }

    #[test]
    fn sessions_together_never_reserve_beyond_a_limit_and_what_is_not_used_comes_back() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let meter = meter_of(&ledger, "home", "");
        let first = meter.reserve(&[bytes(50)]).ok().unwrap();
        let refused = meter.reserve(&[bytes(11)]).err().unwrap();
        let Full::NoRoom(text) = refused else { panic!("it was counted") };
        assert!(
            text.contains("needs 11 B more, but the group g has only 10 B left of 100 B"),
            "{text}"
        );
        drop(first);
        assert!(meter.reserve(&[bytes(60)]).is_ok() && meter.reserve(&[bytes(61)]).is_err());
    }

    #[test]
    fn what_was_written_stays_charged_and_what_was_removed_gives_room() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let meter = meter_of(&ledger, "home", "");
        let held = meter.reserve(&[bytes(60)]).ok().unwrap();
        meter.settle(&[bytes(0)], &[bytes(60)]);
        drop(held);
        assert!(meter.reserve(&[bytes(1)]).is_err());
        meter.settle(&[bytes(60)], &[bytes(30)]);
        assert!(meter.reserve(&[bytes(30)]).is_ok() && meter.reserve(&[bytes(31)]).is_err());
    }

    #[test]
    fn each_path_counts_for_the_accounts_whose_places_hold_it() {
        let (inner, outer) = (of_group(&["home/a/b", "lab"], 1_000), of_group(&["home/a"], 1_000));
        let ledger = ledger(vec![inner, outer]);
        let inner = meter_of(&ledger, "home", "a");
        let mut amounts = inner.nothing();
        for (path, takes) in [("a", 1), ("a/x", 2), ("a/b", 4), ("a/b/y", 8), ("a/bb", 16)] {
            inner.add(&mut amounts, path, bytes(takes));
        }
        assert_eq!(amounts, [Usage { bytes: 12, files: 2 }, Usage { bytes: 31, files: 5 }]);
        assert!(meter_of(&ledger, "home", "c").is_idle());
        assert!(
            !meter_of(&ledger, "lab", "").is_idle() && meter_of(&ledger, "other", "").is_idle()
        );
    }

    #[test]
    fn nothing_is_written_before_the_count_and_an_account_that_stays_is_not_counted_again() {
        let ledger = Arc::new(Ledger::default());
        let new = ledger.replace(vec![of_group(&["home"], 100)]);
        let meter = meter_of(&ledger, "home", "");
        assert_eq!(meter.reserve(&[bytes(1)]).err(), Some(Full::Uncounted));
        ledger.counted(new[0].0, bytes(100));
        assert!(matches!(meter.reserve(&[bytes(1)]), Err(Full::NoRoom(_))));
        assert!(ledger.replace(vec![of_group(&["home"], 200)]).is_empty());
        assert!(meter_of(&ledger, "home", "").reserve(&[bytes(100)]).is_ok());
        assert_eq!(ledger.replace(vec![of_group(&["home/x"], 200)]).len(), 1);
    }

    #[test]
    fn quotas_show_what_is_there_once_it_is_counted_and_follow_the_settings() {
        let ledger = Arc::new(Ledger::default());
        let quotas = Quotas::of(&ledger);
        let new = ledger.replace(vec![of_group(&["home"], 100)]);
        let (owner, quota) = (QuotaOf::Group("g".into()), Quota { bytes: Some(100), files: None });
        let stands = QuotaStands { owner, quota, used: None };
        assert_eq!(quotas.all(), std::slice::from_ref(&stands));
        ledger.counted(new[0].0, Usage { bytes: 40, files: 4 });
        assert_eq!(quotas.all(), [QuotaStands { used: Some((40, 4)), ..stands }]);
        let meter = meter_of(&ledger, "home", "");
        let held = meter.reserve(&[bytes(50)]).ok().unwrap();
        assert_eq!(quotas.all()[0].used, Some((40, 4)), "what is reserved is not there yet");
        meter.settle(&[Usage::default()], &[bytes(50)]);
        drop(held);
        assert_eq!(quotas.all()[0].used, Some((90, 5)));
        ledger.replace(Vec::new());
        assert!(quotas.all().is_empty());
    }

    #[test]
    fn an_export_that_leads_to_another_path_is_counted_anew_and_the_old_path_counts_for_nobody() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let old = meter_of(&ledger, "home", "");
        let mut moved = of_group(&["home"], 100);
        moved.roots = [("home".to_owned(), "/new".into())].into();
        let new = ledger.replace(vec![moved]);
        assert_eq!(new.len(), 1);
        old.settle(&[bytes(40)], &[bytes(0)]);
        assert!(meter_of(&ledger, "home", "").is_idle());
        let export = ("home", Path::new("/new"), &Arc::default());
        assert_eq!(ledger.meter(export, None).reserve(&[bytes(1)]).err(), Some(Full::Uncounted));
        ledger.counted(new[0].0, bytes(40));
        assert!(ledger.meter(export, None).reserve(&[bytes(60)]).is_ok());
        assert!(ledger.meter(export, None).reserve(&[bytes(61)]).is_err());
    }

    #[test]
    fn where_another_directory_is_found_only_a_count_of_that_one_is_believed() {
        let ledger = ledger(vec![of_group(&["home", "lab"], 100)]);
        let meter = meter_of(&ledger, "home", "");
        assert!(ledger.forget("home", Path::new("/old")).is_empty());
        let [late, now] = [(); 2].map(|()| ledger.forget("home", Path::new("/srv"))[0].0);
        assert!(ledger.awaits(now) && !ledger.awaits(late));
        ledger.counted(late, bytes(0));
        // Sessions that began before end while nobody knows what is there.
        meter.settle(&[bytes(30)], &[bytes(0)]);
        assert_eq!(meter.reserve(&[bytes(1)]).err(), Some(Full::Uncounted));
        ledger.counted(now, bytes(90));
        assert!(meter.reserve(&[bytes(10)]).is_ok() && meter.reserve(&[bytes(11)]).is_err());
    }

    #[test]
    fn names_have_a_limit_of_their_own() {
        let quota = Quota { bytes: None, files: Some(5) };
        let owner = QuotaOf::Export("home".into());
        let ledger = ledger(vec![wanted(owner, quota, vec![place("home")])]);
        let meter = meter_of(&ledger, "home", "");
        assert!(meter.reserve(&[bytes(1 << 40)]).is_ok());
        let two = Usage { bytes: 0, files: 2 };
        let Some(Full::NoRoom(text)) = meter.reserve(&[two]).err() else { panic!("no room") };
        assert!(
            text.contains("needs 2 names more, but ") && text.contains("1 left of 5"),
            "{text}"
        );
    }
}
