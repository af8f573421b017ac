//! Places that clients hold, and the bell that tells a client to leave.
//!
//! A place is a value, and dropping it gives the place back. The bell carries the decisions of
//! [`Occupancy`] to the client's task. Which clients may come at all is decided elsewhere.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp_alloc::Time;
use tokio::sync::watch;
use tokio::time::timeout;

use super::SessionId;
use super::admission::Limits;
use super::budget::Holder;
use super::occupancy::{Admitted, ClientId, Full, MayStay, Neighbourhood, Occupancy, Right};
use super::turned_away::TurnedAway;
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::Reason;
use crate::trust::{Closed, LocalTime};

/// Why a client must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The server stops.
    Stopping,
    /// Its place goes to another client.
    MakeRoom,
    /// It is a stranger for whom nothing has moved for a minute.
    Dozing,
    /// Its key no longer has the right to do what it does.
    Revoked,
    /// The server has not been able to use its list of keys for too long.
    Blind,
    /// The hours of its key are over.
    Closed(Closed),
    /// The time of a session by ticket is over.
    TicketOver,
}

impl Leave {
    /// The reason that the client is told.
    pub fn reason(self) -> Reason {
        match self {
            Leave::Stopping => Reason::Stopping,
            Leave::MakeRoom => Reason::Busy,
            Leave::Dozing => Reason::TimedOut,
            Leave::Revoked => Reason::NotAuthorised,
            Leave::Blind => Reason::Busy,
            Leave::Closed(_) => Reason::NotAuthorised,
            Leave::TicketOver => Reason::TimedOut,
        }
    }

    /// The failure that the server reports, with the text that the client is told.
    pub fn failure(self) -> Failure {
        let (kind, text) = match self {
            Leave::Stopping => (FailureKind::Temporary, "the server stops"),
            Leave::MakeRoom => (FailureKind::Temporary, "the server is busy: try again later"),
            Leave::Dozing => (FailureKind::Temporary, "nothing moved for a minute"),
            Leave::Revoked => (
                FailureKind::Revoked,
                "the key may no longer do this: the server's list of keys or its exports changed",
            ),
            Leave::Blind => (FailureKind::Temporary, "the server cannot use its list of keys"),
            Leave::TicketOver => (
                FailureKind::TimeLimit,
                "the time of a session by ticket is over: come again with a ticket that holds",
            ),
            Leave::Closed(closed) => {
                let words = closed.words(&LocalTime::now());
                let text = format!("the hours of this key are over: {words}");
                return Failure::new(FailureKind::OutsideHours, text);
            }
        };
        Failure::new(kind, text)
    }
}

/// All clients that a server has at present, and those that it turned away.
pub(crate) struct Clients {
    present: Arc<Mutex<Present>>,
    sessions: AtomicU64,
    turned_away: Mutex<TurnedAway>,
}

struct Present {
    occupancy: Occupancy,
    bells: HashMap<ClientId, (watch::Sender<Option<Leave>>, SocketAddr)>,
    /// Its value changes whenever a client leaves.
    gone: watch::Sender<()>,
}

/// How long a client waits for the one whose place it gets. That one is told to leave within a
/// quarter of this time.
const GOING_SPAN: Duration = Duration::from_secs(1);

/// The server accepts no client while more clients than this are leaving.
const LEAVING_MOST: usize = 16;

/// A client's place, which it holds until this value is dropped.
pub(crate) struct Seat {
    id: ClientId,
    present: Arc<Mutex<Present>>,
    bell: watch::Receiver<Option<Leave>>,
}

impl Clients {
    pub fn new(limits: Limits) -> Clients {
        let (occupancy, gone) = (Occupancy::new(limits), watch::Sender::new(()));
        let present = Present { occupancy, bells: HashMap::new(), gone };
        let present = Arc::new(Mutex::new(present));
        Clients { present, sessions: AtomicU64::new(1), turned_away: Mutex::default() }
    }

    /// Takes a place in the pool; also returns the address of the client that had to leave, if any.
    pub fn arrive(&self, from: SocketAddr) -> (Seat, Option<SocketAddr>) {
        let mut present = lock(&self.present);
        let (id, evicted) = present.occupancy.arrive(Neighbourhood::of(from.ip()));
        let evicted = evicted.and_then(|id| present.ring(id, Leave::MakeRoom));
        let (ring, bell) = watch::channel(None);
        present.bells.insert(id, (ring, from));
        (Seat { id, present: Arc::clone(&self.present), bell }, evicted)
    }

    /// Waits until few clients are leaving, so that a flood of arrivals waits in the kernel for the
    /// clients that it displaces. Safe to cancel.
    pub async fn settled(&self) {
        wait_until(&self.present, |occupancy| occupancy.leaving() <= LEAVING_MOST).await;
    }

    /// Notes that a client was turned away. Returns `None` if that is not to be reported now, else
    /// how many clients of its neighbourhood and of forgotten ones have gone unreported.
    pub fn turned_away(&self, from: SocketAddr, now: Time) -> Option<u64> {
        self.turned_away.lock().unwrap_or_else(PoisonError::into_inner).note(from.ip(), now)
    }

    /// Returns a session id that no other session of this server has.
    pub fn number(&self) -> SessionId {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends idle strangers away.
    pub fn wake_dozing(&self, now: Time) {
        let mut present = lock(&self.present);
        for id in present.occupancy.dozing(now) {
            present.ring(id, Leave::Dozing);
        }
    }

    /// Sends away each client for which `why` gives a reason.
    pub fn send_away(&self, why: impl Fn(&Admitted) -> Option<Leave>) {
        let mut present = lock(&self.present);
        for (id, why) in present.occupancy.ask(why) {
            present.ring(id, why);
        }
    }

    /// The listed keys of those who have a place.
    pub fn listed(&self) -> BTreeSet<Fingerprint> {
        let listed = |client: &Admitted| match client.holder {
            Holder::Listed(key) => Some(key),
            Holder::Strangers => None,
        };
        lock(&self.present).occupancy.ask(listed).into_iter().map(|(_, key)| key).collect()
    }

    /// Whether all clients are gone.
    pub fn are_gone(&self) -> bool {
        lock(&self.present).occupancy.is_empty()
    }
}

impl Present {
    /// Tells a client to leave; returns the address it came from.
    fn ring(&mut self, id: ClientId, why: Leave) -> Option<SocketAddr> {
        let (bell, from) = self.bells.get(&id)?;
        // A client that is told twice leaves for the first reason, and at once if its place is
        // needed.
        bell.send_if_modified(|told| {
            let counts = told.is_none() || (why == Leave::MakeRoom && *told != Some(why));
            if counts {
                *told = Some(why);
            }
            counts
        });
        Some(*from)
    }
}

impl Seat {
    /// Admits the client, which has proved this key. If another client must leave for it,
    /// waits until that client is gone.
    ///
    /// # Errors
    /// If there is no room.
    pub async fn enter(&self, who: (Fingerprint, Holder, Right), now: Time) -> Result<(), Full> {
        let evicted = {
            let mut present = lock(&self.present);
            let evicted = present.occupancy.admit(self.id, who, now)?;
            if let Some(id) = evicted {
                present.ring(id, Leave::MakeRoom);
            }
            evicted
        };
        let Some(id) = evicted else { return Ok(()) };
        let gone = wait_until(&self.present, |occupancy| !occupancy.is_leaving(id));
        timeout(GOING_SPAN, gone).await.map_err(|_| Full::Server)
    }

    /// Says what the client must be allowed beside its right, as long as it is here.
    pub fn set_may_stay(&self, may_stay: MayStay) {
        lock(&self.present).occupancy.set_may_stay(self.id, may_stay);
    }

    /// Notes that the client's connection is gone, though work for it may go on.
    pub fn is_gone(&self) {
        let mut present = lock(&self.present);
        present.occupancy.is_gone(self.id);
        present.gone.send_replace(());
    }

    /// Records how much the client has received so far; a client whose number never grows is idle.
    pub fn note(&self, had: u64, now: Time) {
        lock(&self.present).occupancy.note(self.id, had, now);
    }

    /// Waits until the client must leave. Safe to cancel.
    pub async fn told(&self) -> Leave {
        let mut bell = self.bell.clone();
        let told = bell.wait_for(Option::is_some).await.ok().and_then(|told| *told);
        match told {
            Some(why) => why,
            // The sender of the bell lives as long as the place is held.
            None => std::future::pending().await,
        }
    }

    /// Does what follows once a session has ended, such as waiting until the client has read the
    /// last message. Breaks it off when another client needs the place.
    pub async fn linger(&self, parting: impl Future<Output = ()>) {
        let mut bell = self.bell.clone();
        tokio::select! {
            biased;
            // First, so that what the socket takes at once is said in any case.
            () = parting => {}
            // An error means that nobody can need the place any more.
            Ok(_) = bell.wait_for(|told| *told == Some(Leave::MakeRoom)) => {}
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut present = lock(&self.present);
        present.occupancy.leave(self.id);
        present.bells.remove(&self.id);
        present.gone.send_replace(());
    }
}

/// Waits until the occupancy, which changes when clients leave, is so. Safe to cancel.
async fn wait_until(present: &Mutex<Present>, is_so: impl Fn(&Occupancy) -> bool) {
    let mut gone = lock(present).gone.subscribe();
    while !is_so(&lock(present).occupancy) {
        // This cannot fail: the sender lives as long as the clients.
        let _ = gone.changed().await;
    }
}

fn lock(present: &Mutex<Present>) -> MutexGuard<'_, Present> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    #[tokio::test]
    async fn a_client_that_must_leave_is_told_why_and_a_dropped_place_is_free_again() {
        let limits = Limits { unproved: 1, connections: 2, ..Limits::default() };
        let clients = Clients::new(limits);
        let from = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (first, evicted) = clients.arrive(from(1));
        assert!(evicted.is_none());
        let (second, evicted) = clients.arrive(from(2));
        assert_eq!((evicted, first.told().await), (Some(from(1)), Leave::MakeRoom));
        let key = Identity::generate().fingerprint();
        let stranger = (key, Holder::Strangers, Right::Read);
        assert_eq!(first.enter(stranger, Time::ZERO).await, Err(Full::Gone));
        second.enter(stranger, Time::ZERO).await.unwrap();
        clients.send_away(|client| (client.key == key).then_some(Leave::Revoked));
        assert_eq!(second.told().await, Leave::Revoked);
        let (third, _) = clients.arrive(from(3));
        assert_eq!(third.enter(stranger, Time::ZERO).await, Err(Full::Server));
        drop(second);
        third.enter(stranger, Time::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn a_place_that_was_given_away_is_used_when_its_client_is_gone_and_not_before() {
        let limits = Limits { unproved: 4, connections: 1, ..Limits::default() };
        let clients = Clients::new(limits);
        let arrive = || clients.arrive(SocketAddr::from(([127, 0, 0, 1], 1))).0;
        let (idle, friend) = (arrive(), arrive());
        let key = Identity::generate().fingerprint();
        idle.enter((key, Holder::Strangers, Right::Read), Time::ZERO).await.unwrap();
        let later = Time::ZERO + gtp_alloc::Span::from_secs(9);
        let listed = (key, Holder::Listed(key), Right::Read);
        let mut entering = Box::pin(friend.enter(listed, later));
        let is_in = std::future::poll_fn(|context| {
            std::task::Poll::Ready(entering.as_mut().poll(context).is_ready())
        });
        assert!(!is_in.await, "both would hold the only place");
        assert_eq!(idle.told().await, Leave::MakeRoom);
        // A walk for it may still hold the place that it had.
        idle.is_gone();
        assert_eq!(entering.await, Ok(()));
        drop((idle, friend));
        assert!(clients.are_gone());
    }

    #[tokio::test]
    async fn a_client_that_leaves_for_any_reason_stops_lingering_when_its_place_is_needed() {
        let clients = Clients::new(Limits { connections: 1, ..Limits::default() });
        let arrive = || clients.arrive(SocketAddr::from(([127, 0, 0, 1], 1))).0;
        let (dozing, friend) = (arrive(), arrive());
        let key = Identity::generate().fingerprint();
        dozing.enter((key, Holder::Strangers, Right::Read), Time::ZERO).await.unwrap();
        let later = Time::ZERO + gtp_alloc::Span::from_secs(61);
        clients.wake_dozing(later);
        assert_eq!(dozing.told().await, Leave::Dozing);
        let lingering = async {
            dozing.linger(std::future::pending()).await;
            dozing.is_gone();
        };
        let listed = (key, Holder::Listed(key), Right::Read);
        let ((), entered) = tokio::join!(lingering, friend.enter(listed, later));
        assert_eq!(entered, Ok(()));
    }

    #[tokio::test]
    async fn a_flood_of_arrivals_waits_for_the_clients_that_it_displaces() {
        let clients = Clients::new(Limits { unproved: 1, ..Limits::default() });
        let from = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut seats = Vec::new();
        for port in 0..2 + LEAVING_MOST as u16 {
            clients.settled().await;
            seats.push(clients.arrive(from(port)).0);
        }
        let mut settled = Box::pin(clients.settled());
        let is_settled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(settled.as_mut().poll(context).is_ready())
        });
        assert!(!is_settled.await);
        drop(seats.remove(0));
        settled.await;
    }
}
