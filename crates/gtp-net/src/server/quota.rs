//! How much may lie beneath places of the exports, and how much lies there.
//!
//! An account has places and a limit; it begins with what was counted there, and goes on with what
//! sessions say they have changed. Before a session writes it reserves what it will need at most,
//! so that sessions together never go beyond a limit. This module counts; it looks at no file.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_store::{RelPath, Usage};

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

/// Whose account it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// All who write to an export.
    Export(String),
    /// The members of a group, in their places.
    Group(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Export(name) => write!(f, "the export {name}"),
            Owner::Group(name) => write!(f, "the group {name}"),
        }
    }
}

/// What an account is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub owner: Owner,
    pub quota: Quota,
    pub places: Vec<Below>,
}

/// Numbers accounts, each in one set of places.
pub(super) type AccountId = u64;

/// All accounts of a server.
#[derive(Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    accounts: Vec<Account>,
    /// Objects that are being put: what is there of one changes by one session alone.
    claimed: HashSet<Object>,
    last: AccountId,
}

struct Account {
    id: AccountId,
    wanted: Wanted,
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
    /// Another session puts the same object, or has not settled yet.
    Claimed,
    /// There is no room, in words.
    NoRoom(String),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Uncounted => f.write_str(
                "the server still counts what is there, for its quota: try again in a while",
            ),
            Full::Claimed => f.write_str("another transfer writes there: try again later"),
            Full::NoRoom(text) => f.write_str(text),
        }
    }
}

/// The accounts that what is at and beneath one path counts for.
pub(super) struct Meter {
    ledger: Arc<Ledger>,
    scopes: Vec<Scope>,
}

struct Scope {
    account: AccountId,
    export: String,
    at: Option<RelPath>,
    /// Whether all of it counts, so that no path need be compared.
    whole: bool,
    places: Vec<Below>,
}

/// Amounts, one for each account of a meter.
pub(super) type Amounts = Vec<Usage>;

/// An export's name, and a path beneath it.
type Object = (String, Option<RelPath>);

/// An object that nobody else puts, until this is dropped.
pub(super) struct Claimed {
    ledger: Arc<Ledger>,
    objects: Vec<Object>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut books = self.ledger.books();
        for object in &self.objects {
            books.claimed.remove(object);
        }
    }
}

/// Room that a session has, until this is dropped.
pub(super) struct Reservation {
    ledger: Arc<Ledger>,
    held: Vec<(AccountId, Usage)>,
}

impl Ledger {
    /// Puts these accounts in place. Those whose owners and places stay keep what they know.
    /// Returns the others, whose places are to be counted.
    pub fn replace(&self, wanted: Vec<Wanted>) -> Vec<(AccountId, Vec<Below>)> {
        let mut books = self.books();
        let mut old = std::mem::take(&mut books.accounts);
        let mut new = Vec::new();
        for wanted in wanted {
            let same = |account: &Account| {
                account.wanted.owner == wanted.owner && account.wanted.places == wanted.places
            };
            let account = match old.iter().position(same) {
                Some(at) => Account { wanted, ..old.swap_remove(at) },
                None => {
                    books.last += 1;
                    new.push((books.last, wanted.places.clone()));
                    let (id, used, reserved) = (books.last, None, Usage::default());
                    Account { id, wanted, used, reserved }
                }
            };
            books.accounts.push(account);
        }
        new
    }

    /// Whether there is this account.
    pub fn has(&self, account: AccountId) -> bool {
        self.books().find(account).is_some()
    }

    /// Notes what was counted at an account's places.
    pub fn counted(&self, account: AccountId, there: Usage) {
        if let Some(account) = self.books().find(account) {
            account.used = Some(there);
        }
    }

    /// The accounts for which something at or beneath a path counts.
    pub fn meter(self: &Arc<Ledger>, export: &str, at: Option<&RelPath>) -> Meter {
        let books = self.books();
        let concerned = books.accounts.iter().filter_map(|account| {
            let places = &account.wanted.places;
            let whole = places.iter().any(|place| place.covers(export, at));
            let part = places.iter().any(|place| place.way(export, at).is_some());
            (whole || part).then(|| Scope {
                account: account.id,
                export: export.to_owned(),
                at: at.cloned(),
                whole,
                places: places.clone(),
            })
        });
        Meter { scopes: concerned.collect(), ledger: Arc::clone(self) }
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
}

impl Account {
    /// Whether there is room for more.
    fn admits(&self, more: Usage) -> Result<(), Full> {
        let taken = self.used.ok_or(Full::Uncounted)?.plus(self.reserved);
        let Quota { bytes, files } = self.wanted.quota;
        let owner = &self.wanted.owner;
        let advice = "remove something there, or ask whoever runs the server for more";
        if let Some(most) = bytes.filter(|most| more.bytes > most.saturating_sub(taken.bytes)) {
            let [needs, left, most] =
                [more.bytes, most.saturating_sub(taken.bytes), most].map(size);
            let text = format!(
                "the quota is reached: this needs {needs} more, and {left} are left of the {most} \
                 that {owner} may have; {advice}"
            );
            return Err(Full::NoRoom(text));
        }
        if let Some(most) = files.filter(|most| more.files > most.saturating_sub(taken.files)) {
            let left = most.saturating_sub(taken.files);
            let text = format!(
                "the quota is reached: this needs {} more names, and {left} are left of the {most} \
                 that {owner} may have; {advice}",
                more.files
            );
            return Err(Full::NoRoom(text));
        }
        Ok(())
    }
}

fn size(bytes: u64) -> String {
    gtp_text::scaled(bytes as f64, gtp_text::Unit::Byte)
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

    /// Adds what is at a path beneath that of the meter (empty for the path itself) to the amounts
    /// of the accounts for which it counts.
    pub fn add(&self, amounts: &mut Amounts, path: &str, takes: Usage) {
        for (scope, amount) in self.scopes.iter().zip(amounts) {
            if scope.whole || scope.holds(path) {
                *amount = amount.plus(takes);
            }
        }
    }

    /// Reserves room for these amounts.
    ///
    /// # Errors
    /// [`Full`], of the first account that has none; then nothing is reserved.
    pub fn reserve(&self, needs: &[Usage]) -> Result<Reservation, Full> {
        let mut books = self.ledger.books();
        let needs = || self.scopes.iter().map(|scope| scope.account).zip(needs.iter().copied());
        for (id, need) in needs() {
            if let Some(account) = books.find(id) {
                account.admits(need)?;
            }
        }
        for (id, need) in needs() {
            if let Some(account) = books.find(id) {
                account.reserved = account.reserved.plus(need);
            }
        }
        Ok(Reservation { ledger: Arc::clone(&self.ledger), held: needs().collect() })
    }

    /// Claims the object at the meter's path, so that what is there before and after is this
    /// session's alone.
    ///
    /// # Errors
    /// [`Full::Claimed`].
    pub fn claim(&self) -> Result<Claimed, Full> {
        let object = |scope: &Scope| (scope.export.clone(), scope.at.clone());
        let objects: Vec<Object> = self.scopes.first().map(object).into_iter().collect();
        let mut books = self.ledger.books();
        if objects.iter().any(|object| books.claimed.contains(object)) {
            return Err(Full::Claimed);
        }
        books.claimed.extend(objects.iter().cloned());
        Ok(Claimed { ledger: Arc::clone(&self.ledger), objects })
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

impl Scope {
    fn holds(&self, path: &str) -> bool {
        let full = match (&self.at, path) {
            (None, path) => path.to_owned(),
            (Some(at), "") => at.as_str().to_owned(),
            (Some(at), path) => format!("{}/{path}", at.as_str()),
        };
        self.places.iter().any(|place| place.covers_text(&self.export, &full))
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

    fn bytes(bytes: u64) -> Usage {
        Usage { bytes, files: 1 }
    }

    fn ledger(wanted: Vec<Wanted>) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger::default());
        for (account, _) in ledger.replace(wanted) {
            ledger.counted(account, Usage { bytes: 40, files: 4 });
        }
        ledger
    }

    fn of_group(places: &[&str], most: u64) -> Wanted {
        let quota = Quota { bytes: Some(most), files: None };
        let places = places.iter().map(|text| place(text)).collect();
        Wanted { owner: Owner::Group("g".into()), quota, places }
    }

    #[test]
    fn sessions_together_never_reserve_beyond_a_limit_and_what_is_not_used_comes_back() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let meter = ledger.meter("home", None);
        let first = meter.reserve(&[bytes(50)]).ok().unwrap();
        let refused = meter.reserve(&[bytes(11)]).err().unwrap();
        let Full::NoRoom(text) = refused else { panic!("it was counted") };
        assert!(text.contains("11 B more") && text.contains("10 B are left"), "{text}");
        assert!(text.contains("100 B that the group g"), "{text}");
        drop(first);
        assert!(meter.reserve(&[bytes(60)]).is_ok() && meter.reserve(&[bytes(61)]).is_err());
    }

    #[test]
    fn what_was_written_stays_charged_and_what_was_removed_gives_room() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let meter = ledger.meter("home", None);
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
        let at = RelPath::new("a").unwrap();
        let meter = ledger.meter("home", Some(&at));
        let mut amounts = meter.nothing();
        for (path, takes) in [("", 1), ("x", 2), ("b", 4), ("b/y", 8), ("bb", 16)] {
            meter.add(&mut amounts, path, bytes(takes));
        }
        assert_eq!(amounts, [Usage { bytes: 12, files: 2 }, Usage { bytes: 31, files: 5 }]);
        assert!(ledger.meter("home", Some(&RelPath::new("c").unwrap())).is_idle());
        assert!(!ledger.meter("lab", None).is_idle() && ledger.meter("other", None).is_idle());
    }

    #[test]
    fn nothing_is_written_before_the_count_and_an_account_that_stays_is_not_counted_again() {
        let ledger = Arc::new(Ledger::default());
        let new = ledger.replace(vec![of_group(&["home"], 100)]);
        let meter = ledger.meter("home", None);
        assert_eq!(meter.reserve(&[bytes(1)]).err(), Some(Full::Uncounted));
        ledger.counted(new[0].0, bytes(100));
        assert!(matches!(meter.reserve(&[bytes(1)]), Err(Full::NoRoom(_))));
        assert!(ledger.replace(vec![of_group(&["home"], 200)]).is_empty());
        assert!(ledger.meter("home", None).reserve(&[bytes(100)]).is_ok());
        assert_eq!(ledger.replace(vec![of_group(&["home/x"], 200)]).len(), 1);
    }

    #[test]
    fn one_session_at_a_time_puts_an_object_whose_size_counts() {
        let ledger = ledger(vec![of_group(&["home"], 100)]);
        let at = |name| ledger.meter("home", Some(&RelPath::new(name).unwrap()));
        let first = at("a").claim().ok().unwrap();
        assert_eq!(at("a").claim().err(), Some(Full::Claimed));
        assert!(at("b").claim().is_ok());
        drop(first);
        assert!(at("a").claim().is_ok());
    }

    #[test]
    fn names_have_a_limit_of_their_own() {
        let quota = Quota { bytes: None, files: Some(5) };
        let owner = Owner::Export("home".into());
        let ledger = ledger(vec![Wanted { owner, quota, places: vec![place("home")] }]);
        let meter = ledger.meter("home", None);
        assert!(meter.reserve(&[bytes(1 << 40)]).is_ok());
        let two = Usage { bytes: 0, files: 2 };
        let Some(Full::NoRoom(text)) = meter.reserve(&[two]).err() else { panic!("no room") };
        assert!(text.contains("2 more names, and 1 are left of the 5"), "{text}");
    }
}
