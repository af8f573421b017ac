//! What the engines of a host have together, besides the agents: memory, and sessions' numbers.
//!
//! Memory for blocks is shared out equally among all that is under way, whichever engine has it. A
//! session's number says which engine has it, so that the kernel can choose a socket by it; what
//! comes to another engine all the same is passed on, a few datagrams at a time. A host of one
//! engine has all of it to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gtp_alloc::{Bytes, Time};
use gtp_proto::Arrival;
use gtp_sys::udp::Origin;

use super::api::SocketId;
use super::command::{Notice, Notices};

/// An engine among those of its host.
pub(super) struct Place {
    number: usize,
    host: Arc<Mates>,
    /// Sources and transfers of this engine.
    held: [usize; 2],
    /// Those of all engines when memory was last shared out.
    seen: [usize; 2],
}

/// All engines of a host.
struct Mates {
    engines: Vec<Mate>,
    memory: Bytes,
    /// Sources and transfers.
    users: [AtomicUsize; 2],
}

struct Mate {
    notices: Notices,
    /// Datagrams that are on their way to it from others.
    strays: AtomicUsize,
}

/// A datagram of a session that another engine has.
pub(super) struct Stray {
    pub came: Arrival,
    pub socket: SocketId,
    pub origin: Origin,
    pub datagram: Vec<u8>,
}

/// What uses memory.
#[derive(Clone, Copy)]
pub(super) enum Users {
    Sources = 0,
    Transfers = 1,
}

/// Datagrams that may be on their way to an engine from others: more are lost, so that whoever
/// sends to wrong sockets fills no memory.
const STRAYS_MOST: usize = 256;
/// A datagram that is passed on is no longer than the longest that an end sends, and a little.
const STRAY_BYTES: usize = 9_216;

impl Place {
    /// The places of as many engines as there are letter boxes.
    pub fn all(boxes: impl IntoIterator<Item = Notices>, memory: Bytes) -> Vec<Place> {
        let mate = |notices| Mate { notices, strays: AtomicUsize::new(0) };
        let engines: Vec<Mate> = boxes.into_iter().map(mate).collect();
        let count = engines.len();
        let host = Arc::new(Mates { engines, memory, users: Default::default() });
        (0..count).map(|number| Place::of(number, host.clone())).collect()
    }

    /// The place of the only engine of its host.
    pub fn alone(notices: Notices, memory: Bytes) -> Place {
        let engines = vec![Mate { notices, strays: AtomicUsize::new(0) }];
        Place::of(0, Arc::new(Mates { engines, memory, users: Default::default() }))
    }

    fn of(number: usize, host: Arc<Mates>) -> Place {
        Place { number, host, held: [0; 2], seen: [0; 2] }
    }

    /// What each user of memory may have, if this engine has so many of them now.
    pub fn share(&mut self, users: Users, held: usize) -> Bytes {
        let kind = users as usize;
        let all = &self.host.users[kind];
        all.fetch_add(held, Ordering::Relaxed);
        let before = all.fetch_sub(self.held[kind], Ordering::Relaxed);
        self.seen[kind] = before - self.held[kind];
        self.held[kind] = held;
        Bytes(self.host.memory.0 / self.seen[kind].max(1) as u64)
    }

    /// Whether other engines have more or fewer users of memory than when it was shared out.
    pub fn is_stale(&self) -> bool {
        let all = self.host.users.iter().map(|all| all.load(Ordering::Relaxed));
        all.ne(self.seen)
    }

    /// Passes on a datagram for a session of another engine. `false`: it is for this one, or no
    /// end's, or that one has enough to do.
    pub fn pass_on(
        &self,
        session: u32,
        (came, socket, origin): (Arrival, SocketId, Origin),
        datagram: &[u8],
    ) -> bool {
        let number = engine_of(session, self.host.engines.len());
        let Some(mate) = self.host.engines.get(number).filter(|_| number != self.number) else {
            return false;
        };
        if datagram.len() > STRAY_BYTES {
            return false;
        }
        if mate.strays.fetch_add(1, Ordering::Relaxed) >= STRAYS_MOST {
            mate.strays.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let datagram = datagram.to_vec();
        mate.notices.send(Notice::Stray(Box::new(Stray { came, socket, origin, datagram })));
        true
    }

    /// A datagram that was passed on to this engine is here: it is read at `now`.
    pub fn handle_stray(&self, now: Time, stray: &Stray) -> Arrival {
        self.host.engines[self.number].strays.fetch_sub(1, Ordering::Relaxed);
        Arrival { at: stray.came.at.min(now), read: now, ecn: stray.came.ecn }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for (all, held) in self.host.users.iter().zip(self.held) {
            all.fetch_sub(held, Ordering::Relaxed);
        }
    }
}

/// The number nearest to `drawn` that a session of this engine may have.
pub(super) fn session_of(drawn: u32, engine: usize, engines: usize) -> u32 {
    let (own, engines) = (engine as u32, engines.max(1) as u32);
    // The last few numbers are no full round.
    let round = (drawn / engines).min((u32::MAX - own) / engines);
    round * engines + own
}

/// Which of so many engines has the session of this number: as the kernel chooses
/// ([`gtp_sys::steer`]).
pub(super) fn engine_of(session: u32, engines: usize) -> usize {
    session as usize % engines.max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use gtp_sys::wake::Poller;

    use super::*;

    fn places(count: usize) -> (Vec<Place>, Vec<Receiver<Notice>>) {
        let post = |_| {
            let (queue, inbox) = channel();
            (Notices::new(queue, Poller::new().unwrap().waker()), inbox)
        };
        let (boxes, inboxes): (Vec<_>, Vec<_>) = (0..count).map(post).unzip();
        (Place::all(boxes, Bytes(1_200)), inboxes)
    }

    #[test]
    fn memory_is_shared_equally_by_all_engines_users_and_those_of_one_that_ended_count_no_more() {
        let (mut places, _inboxes) = places(3);
        assert_eq!(places[0].share(Users::Sources, 2), Bytes(600));
        assert!(places[1].is_stale());
        assert_eq!(places[1].share(Users::Sources, 1), Bytes(400));
        assert_eq!(places[1].share(Users::Transfers, 1), Bytes(1_200), "the other direction");
        assert!(places[0].is_stale() && !places[1].is_stale());
        assert_eq!(places[0].share(Users::Sources, 1), Bytes(600));
        drop(places.remove(1));
        assert_eq!(places[0].share(Users::Sources, 1), Bytes(1_200));
        assert_eq!(places[0].share(Users::Sources, 0), Bytes(1_200), "nobody");
    }

    #[test]
    fn every_number_that_an_engine_gives_names_that_engine() {
        for (engines, drawn) in [(1, 0), (1, u32::MAX), (3, 17), (7, u32::MAX), (64, u32::MAX - 1)]
        {
            for engine in 0..engines {
                let session = session_of(drawn, engine, engines);
                assert_eq!(engine_of(session, engines), engine, "{drawn} of {engines}");
            }
        }
        assert_eq!(session_of(u32::MAX, 0, 1), u32::MAX, "one engine gives what is drawn");
    }

    #[test]
    fn a_datagram_goes_to_the_engine_that_its_session_names_and_a_flood_of_them_is_cut() {
        let (places, inboxes) = places(2);
        let origin = Origin { from: "192.0.2.1:1".parse().unwrap(), to: None };
        let now = Time::from_nanos(5);
        let stray = (Arrival::from(now), SocketId(7), origin);
        assert!(!places[0].pass_on(4, stray, b"own"), "it is nobody's");
        assert!(!places[0].pass_on(5, stray, &[0; 60_000]), "no end sends the like");
        assert!(places[0].pass_on(5, stray, b"other"));
        let Ok(Notice::Stray(came)) = inboxes[1].try_recv() else { panic!("a stray") };
        assert_eq!((came.socket, &came.datagram[..]), (SocketId(7), &b"other"[..]));
        let later = Time::from_nanos(9);
        assert_eq!(places[1].handle_stray(later, &came), Arrival { at: now, ..later.into() });
        let passed = (0..5_000).filter(|_| places[0].pass_on(5, stray, b"flood")).count();
        assert_eq!(passed, STRAYS_MOST);
        assert_eq!(inboxes[1].try_iter().count(), STRAYS_MOST);
    }
}
