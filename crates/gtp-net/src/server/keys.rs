//! The list of keys as it stands now, and the sessions whose keys were removed from it.
//!
//! The server checks the file for every client and twice a second, and reads it when it has
//! changed. A key is revoked when two checks in a row miss it: an editor may empty the file for a
//! moment. When the operator says that the list has changed, one check is enough. While the list
//! cannot be used, the server admits no client and reports that once. Sessions go on for some
//! minutes and then end, because the server cannot know whether they are still allowed.

use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_sys::Clock;
use tokio::sync::{Notify, watch};

use super::admission::{Admission, Narrowed, holder};
use super::budget::Holder;
use super::clients::{Clients, Leave, Seat};
use super::key_file::{KeyFile, Looked, Watcher};
use super::occupancy::{Admitted, Right};
use super::session::{Refusal, no_list, no_room};
use super::stopping;
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::Reason;
use crate::trust::ClientTrust;

/// Time between two checks: a key that was removed from the list is revoked after two of them.
const LOOK_SPAN: Duration = Duration::from_millis(500);

/// How long sessions go on while the list cannot be used. It is enough to correct a typing error or
/// to wait for a file server that restarts.
const BLIND_SPAN: Span = Span::from_secs(5 * 60);

/// The list of keys, which is read again when its file changes.
pub(crate) struct Keys {
    clock: Clock,
    list: List,
}

/// Where the list comes from.
enum List {
    Fixed(Arc<ClientTrust>),
    /// A thread that reads the file.
    File(Watcher),
}

impl Keys {
    /// Takes the list that the operator named, and starts the thread that reads it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(admission: Admission, narrowed: Narrowed) -> Result<Keys, Failure> {
        let clock = Clock::start();
        let list = match admission {
            Admission::Fixed(trust) => List::Fixed(Arc::new(trust)),
            Admission::File { path, strangers } => {
                let mut file = KeyFile::new(path, (strangers, narrowed), clock);
                let watcher = Watcher::start(move || file.now());
                let failed = |e: std::io::Error| Failure::new(FailureKind::Other, e.to_string());
                List::File(watcher.map_err(failed)?)
            }
        };
        Ok(Keys { clock, list })
    }

    /// Takes the list as [`Keys::new`] does, and reads it for the first time. This takes two
    /// seconds at most, also where the file system does not answer.
    ///
    /// # Errors
    /// If the list cannot be used, or there is no thread.
    pub async fn read(admission: Admission, narrowed: Narrowed) -> Result<Keys, Failure> {
        let path = match &admission {
            Admission::File { path, .. } => path.display().to_string(),
            Admission::Fixed(_) => String::new(),
        };
        let keys = Keys::new(admission, narrowed)?;
        match keys.look().await {
            Ok(_) => Ok(keys),
            // It took too long; other failures name the file.
            Err(late) if late.kind == FailureKind::Temporary => Err(late.about(path)),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the list as it stands now. This takes two seconds at most.
    ///
    /// # Errors
    /// If the list cannot be used.
    pub async fn look(&self) -> Looked {
        match &self.list {
            List::Fixed(trust) => Ok(Arc::clone(trust)),
            List::File(watcher) => watcher.look().await,
        }
    }
}

/// Returns why a client must leave under this list, or `None` if it may stay.
fn judge(trust: &ClientTrust, client: &Admitted) -> Option<Leave> {
    let access = trust.access(&client.key);
    let may_stay = client.may_stay.as_ref().is_none_or(|may_stay| (may_stay.0)(trust));
    if !client.right.within(access) || !may_stay {
        return Some(Leave::Revoked);
    }
    // It may connect again, as the stranger that it is now.
    let listed = client.holder != Holder::Strangers;
    (listed && holder(trust, &client.key) == Holder::Strangers).then_some(Leave::MakeRoom)
}

/// Returns why a client must leave once the list has been unusable for too long. A client whose
/// right is everyone's may stay.
fn judge_blindly(client: &Admitted) -> Option<Leave> {
    match (client.holder, client.right) {
        (Holder::Strangers, _) | (Holder::Listed(_), Right::None) => None,
        (Holder::Listed(_), Right::Read | Right::Write | Right::Both) => Some(Leave::Blind),
    }
}

/// Admits a client with a proved key, if `judge` and the list allow it. The list may change between
/// the judgement and the client's entry, when [`oversee`] does not see that client yet, so the
/// client is judged again after it has entered.
///
/// # Errors
/// The refusal that the client is told.
pub(crate) async fn admit<T>(
    keys: &Arc<Keys>,
    seat: &Seat,
    key: Fingerprint,
    right: Right,
    judge: impl FnOnce(&ClientTrust) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let unusable = |failure: Failure| {
        // `oversee` reports it.
        tracing::debug!(%failure, "nobody is let in");
        no_list()
    };
    let trust = keys.look().await.map_err(unusable)?;
    let judged = judge(&trust)?;
    let holder = holder(&trust, &key);
    seat.enter((key, holder, right), keys.clock.now()).await.map_err(no_room)?;
    let trust = keys.look().await.map_err(unusable)?;
    if right.within(trust.access(&key)) && self::holder(&trust, &key) == holder {
        Ok(judged)
    } else {
        Err(Refusal::new(Reason::NotAuthorised, "the server's list of keys has just changed"))
    }
}

/// The list by which present clients are judged, and the one that the last check saw.
#[derive(Default)]
struct Revision {
    seen: Option<Arc<ClientTrust>>,
    applied: Option<Arc<ClientTrust>>,
    /// Whether the operator has asked for a check, and none has succeeded since.
    is_owed: bool,
}

/// How far a check of the list can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The check may have read a file that was being written.
    Passing,
    /// The operator says that the list is as it should be.
    Asked,
}

impl Revision {
    /// Takes the result of a check. Returns the list by which present clients are to be judged now,
    /// if they are. What the operator asks for may concern the exports alone, so they are judged
    /// then although the list has not changed.
    fn judge_by(&mut self, looked: &Looked, look: Look) -> Option<Arc<ClientTrust>> {
        self.is_owed |= look == Look::Asked;
        let trust = looked.as_ref().ok()?;
        let is_owed = std::mem::take(&mut self.is_owed);
        let changed = self.take(trust, if is_owed { Look::Asked } else { look });
        (is_owed || changed.is_some()).then(|| Arc::clone(trust))
    }

    /// Takes a list that was just read. Returns the list that applies from now on, if it changed.
    fn take(&mut self, trust: &Arc<ClientTrust>, look: Look) -> Option<Arc<ClientTrust>> {
        let is = |of: &Option<Arc<ClientTrust>>| of.as_ref().is_some_and(|of| **of == **trust);
        let counts = look == Look::Asked || is(&self.seen);
        self.seen = Some(Arc::clone(trust));
        if !counts || is(&self.applied) {
            return None;
        }
        self.applied = Some(Arc::clone(trust));
        Some(Arc::clone(trust))
    }
}

/// What [`oversee`] reports to the server.
#[derive(Debug)]
pub(crate) enum Overseen {
    /// The operator asked for the list to be read again; it has this many keys.
    Read(usize),
    /// The list cannot be used, for this new reason: clients stay for now, and no new client is
    /// admitted.
    Unreadable(Failure),
    /// The list can be used again; it has this many keys.
    Back(usize),
    /// The list was looked at, and this is it, or the last one if it cannot be used.
    Looked(Arc<ClientTrust>),
    /// Half a second has passed.
    Tick,
}

/// Since when the list cannot be used, and what was reported of that.
#[derive(Default)]
struct Blindness {
    since: Option<Time>,
    why: String,
    is_told: bool,
}

impl Blindness {
    /// Takes the result of a check. Returns what is to be reported of it.
    fn take(&mut self, looked: &Looked, look: Look, now: Time) -> Option<Overseen> {
        match (looked, look) {
            (Ok(trust), _) => {
                let was_told = std::mem::take(self).is_told;
                let keys = trust.keys.len();
                match look {
                    Look::Asked => Some(Overseen::Read(keys)),
                    Look::Passing => was_told.then_some(Overseen::Back(keys)),
                }
            }
            (Err(failure), _) => {
                self.since.get_or_insert(now);
                let is_new = !self.is_told || self.why != failure.text;
                (self.is_told, self.why) = (true, failure.text.clone());
                (is_new || look == Look::Asked).then(|| Overseen::Unreadable(failure.clone()))
            }
        }
    }

    /// Whether the list has been unusable for so long that sessions must end.
    fn is_too_long(&self, now: Time) -> bool {
        self.since.is_some_and(|since| now.since(since) >= BLIND_SPAN)
    }
}

/// Sends away clients whose keys are no longer on the list, until `stop` is set and all clients are
/// gone. A notification of `reload` makes it read the list at once.
pub(crate) async fn oversee(
    keys: Arc<Keys>,
    clients: Arc<Clients>,
    reload: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
    mut tell: impl FnMut(Overseen),
) {
    let (mut revision, mut blindness) = (Revision::default(), Blindness::default());
    let mut tick = tokio::time::interval(LOOK_SPAN);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stops = false;
    while !(stops && clients.are_gone()) {
        let look = tokio::select! {
            _ = tick.tick() => Look::Passing,
            () = reload.notified() => Look::Asked,
            () = stopping(&mut stop), if !stops => {
                stops = true;
                continue;
            }
        };
        let looked = keys.look().await;
        if let Some(trust) = revision.judge_by(&looked, look) {
            clients.send_away(|client| judge(&trust, client));
        }
        let now = keys.clock.now();
        if let Some(report) = blindness.take(&looked, look, now) {
            tell(report);
        }
        if blindness.is_too_long(now) {
            clients.send_away(judge_blindly);
        }
        // Hours pass by the last list that could be read.
        if let Some(trust) = looked.ok().or_else(|| revision.applied.clone()) {
            tell(Overseen::Looked(trust));
        }
        if look == Look::Passing {
            tell(Overseen::Tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::Limits;
    use super::super::occupancy::Neighbourhood;
    use super::*;
    use crate::identity::Identity;
    use crate::trust::Strangers;

    #[test]
    fn regular_checks_keep_no_thread_of_the_pool() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let started = Arc::new(AtomicUsize::new(0));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let counted = Arc::clone(&started);
        builder.on_thread_start(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let path = tempfile::tempdir().unwrap().path().join("keys");
        let admission = Admission::File { path, strangers: Strangers::Refused };
        let keys = Arc::new(Keys::new(admission, Narrowed::Void).unwrap());
        let (stop, stopped) = watch::channel(false);
        let mut ticks = 0;
        let tell = move |_| {
            ticks += 1;
            if ticks == 20 {
                let _ = stop.send(true);
            }
        };
        let clients = Arc::new(Clients::new(Default::default()));
        runtime.block_on(oversee(keys, clients, Arc::default(), stopped, tell));
        assert_eq!(started.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_emptied_list_counts_at_the_second_look_or_when_the_operator_asks() {
        let trust = |strangers| Arc::new(ClientTrust { keys: Default::default(), strangers });
        let (some, other) = (trust(Strangers::MayRead), trust(Strangers::Refused));
        let mut revision = Revision::default();
        let mut passing = |trust| revision.take(trust, Look::Passing).is_some();
        assert_eq!([&some, &some, &some].map(&mut passing), [false, true, false]);
        assert_eq!([&other, &some, &some].map(&mut passing), [false, false, false]);
        assert_eq!([&other, &other, &other].map(&mut passing), [false, true, false]);
        assert!(revision.take(&some, Look::Asked).is_some());
        assert!(revision.take(&some, Look::Asked).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_file_system_hangs_is_unusable_and_the_overseer_goes_on() {
        let (_hung, gate) = std::sync::mpsc::channel::<()>();
        let watcher = Watcher::start(move || {
            // Its other end is there as long as the test.
            let _ = gate.recv();
            Err(Failure::new(FailureKind::Other, "the test has ended"))
        });
        let list = List::File(watcher.unwrap());
        let keys = Arc::new(Keys { clock: Clock::start(), list });
        let clients = Arc::new(Clients::new(Limits::default()));
        let (stop, stopped) = watch::channel(false);
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let tell = move |overseen| drop(told.send(overseen));
        tokio::spawn(oversee(
            Arc::clone(&keys),
            Arc::clone(&clients),
            Arc::default(),
            stopped,
            tell,
        ));
        let start = tokio::time::Instant::now();
        let key = Identity::generate().fingerprint();
        let refused = let_in(&keys, &clients, key, Right::Read, || ()).await;
        assert_eq!(refused.err(), Some(Reason::Busy), "it comes again");
        assert!(matches!(heard.recv().await, Some(Overseen::Unreadable(_))));
        for _ in 0..10 {
            assert!(matches!(heard.recv().await, Some(Overseen::Tick)), "it is reported once");
        }
        assert!(start.elapsed() < Duration::from_secs(30));
        drop(stop);
    }

    /// Lets a client enter while `change` changes the list.
    async fn let_in(
        keys: &Arc<Keys>,
        clients: &Clients,
        key: Fingerprint,
        right: Right,
        change: impl FnOnce(),
    ) -> Result<Seat, Reason> {
        let (seat, _) = clients.arrive("127.0.0.1:1".parse().unwrap());
        let admitted = admit(keys, &seat, key, right, |_| {
            change();
            Ok(())
        });
        admitted.await.map(|()| seat).map_err(|refusal| refusal.reason)
    }

    #[tokio::test]
    async fn a_key_that_is_removed_while_its_client_enters_does_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let admission = Admission::File { path: path.clone(), strangers: Strangers::Refused };
        let keys = Arc::new(Keys::new(admission, Narrowed::Void).unwrap());
        let clients = Clients::new(Limits::default());
        let key = Identity::generate().fingerprint();
        let list = |text: String| std::fs::write(&path, text).unwrap();
        list(format!("{key}\n"));
        let stays = let_in(&keys, &clients, key, Right::Write, || ()).await;
        let removed = let_in(&keys, &clients, key, Right::Write, || list(String::new())).await;
        assert_eq!(removed.err(), Some(Reason::NotAuthorised));
        list(format!("{key}\n"));
        let less = || list(format!("{key} read\n"));
        let less = let_in(&keys, &clients, key, Right::Write, less).await;
        assert_eq!(less.err(), Some(Reason::NotAuthorised));
        let slip = let_in(&keys, &clients, key, Right::Write, || list("SHA256:zzz\n".to_owned()));
        assert_eq!(slip.await.err(), Some(Reason::Busy), "its operator is still writing");
        drop(stays.unwrap());
        assert!(clients.are_gone(), "whoever was refused gave its place back");
    }

    #[test]
    fn what_the_operator_asks_for_while_the_list_cannot_be_read_is_done_once_it_can_be() {
        let trust =
            Arc::new(ClientTrust { keys: Default::default(), strangers: Strangers::Refused });
        let read = || Ok(Arc::clone(&trust));
        let failed = || Err(Failure::new(FailureKind::Authentication, "it is exposed"));
        let (asked, passing) = (Look::Asked, Look::Passing);
        let looks = [
            (read(), passing, false),
            (read(), passing, true),
            (failed(), asked, false),
            (failed(), passing, false),
            (read(), passing, true),
            (read(), passing, false),
            (read(), asked, true),
            (read(), passing, false),
        ];
        let mut revision = Revision::default();
        for (step, (looked, look, judged)) in looks.into_iter().enumerate() {
            assert_eq!(revision.judge_by(&looked, look).is_some(), judged, "step {step}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_used_is_reported_once_and_its_sessions_end_after_some_minutes() {
        let trust =
            Arc::new(ClientTrust { keys: Default::default(), strangers: Strangers::Refused });
        let failed = |why: &str| Err(Failure::new(FailureKind::Authentication, why));
        let at = |seconds| Time::from_nanos(1) + Span::from_secs(seconds);
        let mut blindness = Blindness::default();
        let mut told = Vec::new();
        let looks = [Ok(trust.clone()), failed("a"), failed("a"), failed("b"), Ok(trust.clone())];
        for (second, looked) in (0..).zip(looks.iter().chain([&Ok(trust.clone())])) {
            let report = blindness.take(looked, Look::Passing, at(second));
            told.push(report.map(|report| format!("{report:?}")).unwrap_or_default());
        }
        let begins = ["", "Unreadable", "", "Unreadable", "Back(0)", ""];
        assert!(
            told.iter().zip(begins).all(|(t, b)| t.starts_with(b) && b.is_empty() == t.is_empty())
        );
        for second in 10..10 + 300 {
            blindness.take(&failed("c"), Look::Passing, at(second));
            assert!(!blindness.is_too_long(at(second)), "{second}");
        }
        assert!(blindness.is_too_long(at(310)));
        blindness.take(&Ok(trust), Look::Passing, at(311));
        assert!(!blindness.is_too_long(at(10_000)), "it can be used again");
        let key = Identity::generate().fingerprint();
        let client = |holder, right| {
            let from = Neighbourhood::Others;
            judge_blindly(&Admitted { from, key, holder, right, may_stay: None })
        };
        assert_eq!(client(Holder::Listed(key), Right::Read), Some(Leave::Blind));
        assert_eq!(client(Holder::Strangers, Right::Read), None, "it may read without the list");
    }
}
