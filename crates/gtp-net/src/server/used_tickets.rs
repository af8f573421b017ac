//! The tickets that clients of this server have shown, so that none counts for too much.
//!
//! A ticket opens a bounded number of sessions, because a connection may break and be made anew,
//! and none once its holder has said that it has the object. Nothing is known of tickets that were
//! shown before the server started, so those that are older than the server are refused. What is
//! remembered is forgotten when the ticket has ended anyway. Time is an argument.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::identity::Fingerprint;
use crate::ticket::{Ticket, TicketNumber};

/// Sessions that one ticket opens at most: a source that is lost is connected anew by its sink.
pub(super) const SESSIONS_OF_TICKET: u32 = 8;

/// Tickets of one signer that are remembered: 64 sessions at a time, each begun anew every ten
/// seconds for the ten minutes that a ticket holds.
const TICKETS_OF_SIGNER: usize = 4_096;

/// Tickets that are remembered in all, of some 100 bytes each.
const TICKETS: usize = 65_536;

/// Why a ticket does not count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Spent {
    /// Its holder has the object, or has asked too often.
    #[error("it has been used already")]
    Used,
    /// It was signed before the server started.
    #[error("it was issued before this server started; sign a new one")]
    Older,
    /// Too many are remembered.
    #[error("too many tickets are in use; try again later")]
    Full,
}

/// The tickets that were shown.
pub(super) struct UsedTickets {
    /// When the server started, in seconds since 1970; the least that its clock has shown.
    started_s: AtomicU64,
    books: Mutex<HashMap<Fingerprint, HashMap<TicketNumber, Use>>>,
}

struct Use {
    ends_s: u64,
    sessions: u32,
}

impl UsedTickets {
    /// None were shown to a server that starts now.
    pub fn since(started_s: u64) -> UsedTickets {
        UsedTickets { started_s: AtomicU64::new(started_s), books: Mutex::default() }
    }

    /// Counts a session that is opened by this ticket, which was judged before.
    ///
    /// # Errors
    /// [`Spent`].
    pub fn count(&self, ticket: &Ticket, now_s: u64) -> Result<(), Spent> {
        let allowed = &ticket.allowed;
        // A clock that was ahead and has been set back shows nothing of before by its new time.
        let started_s = self.started_s.fetch_min(now_s, Ordering::Relaxed).min(now_s);
        if allowed.begins_s < started_s {
            return Err(Spent::Older);
        }
        let mut books = self.books();
        if let Some(used) = books.get_mut(&ticket.signer).and_then(|of| of.get_mut(&ticket.number))
        {
            used.sessions += 1;
            return if used.sessions <= SESSIONS_OF_TICKET { Ok(()) } else { Err(Spent::Used) };
        }
        let is_full = |books: &HashMap<Fingerprint, HashMap<TicketNumber, Use>>| {
            let of_signer = books.get(&ticket.signer).map_or(0, HashMap::len);
            let all: usize = books.values().map(HashMap::len).sum();
            of_signer >= TICKETS_OF_SIGNER || all >= TICKETS
        };
        if is_full(&books) {
            for of_signer in books.values_mut() {
                of_signer.retain(|_, used| used.ends_s > now_s);
            }
            books.retain(|_, of_signer| !of_signer.is_empty());
            if is_full(&books) {
                return Err(Spent::Full);
            }
        }
        let used = Use { ends_s: allowed.ends_s, sessions: 1 };
        books.entry(ticket.signer).or_default().insert(ticket.number, used);
        Ok(())
    }

    /// Its holder has the object: it opens no further session.
    pub fn close(&self, ticket: &Ticket) {
        let mut books = self.books();
        let of_signer = books.get_mut(&ticket.signer);
        if let Some(used) = of_signer.and_then(|of| of.get_mut(&ticket.number)) {
            used.sessions = SESSIONS_OF_TICKET;
        }
    }

    fn books(&self) -> MutexGuard<'_, HashMap<Fingerprint, HashMap<TicketNumber, Use>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Allowed;

    const NOW_S: u64 = 1_000;

    fn ticket(signer: u8, number: u64, begins_s: u64) -> Ticket {
        let key = |n| Fingerprint::of_public_key(&[n]);
        let (server, holder, path) = (key(1), key(2), Vec::new());
        let allowed = Allowed { server, holder, path, begins_s, ends_s: begins_s + 60 };
        let number = u128::from(number).to_be_bytes();
        Ticket { signer: key(signer), allowed, number }
    }

    #[test]
    fn a_ticket_opens_some_sessions_and_none_once_its_holder_has_the_object() {
        let used = UsedTickets::since(NOW_S);
        let count = |number| used.count(&ticket(9, number, NOW_S), NOW_S);
        for _ in 0..SESSIONS_OF_TICKET {
            assert_eq!(count(1), Ok(()));
        }
        assert_eq!(count(1), Err(Spent::Used));
        assert_eq!(count(2), Ok(()));
        used.close(&ticket(9, 2, NOW_S));
        assert_eq!(count(2), Err(Spent::Used));
        assert_eq!(used.count(&ticket(8, 1, NOW_S), NOW_S), Ok(()), "another's of this number");
    }

    #[test]
    fn a_server_that_has_just_started_takes_no_ticket_that_it_may_have_seen_before() {
        let used = UsedTickets::since(NOW_S);
        assert_eq!(used.count(&ticket(9, 1, NOW_S - 1), NOW_S), Err(Spent::Older));
        assert_eq!(used.count(&ticket(9, 1, NOW_S), NOW_S), Ok(()));
    }

    #[test]
    fn a_server_whose_clock_is_set_back_takes_tickets_of_the_time_that_it_shows_now() {
        let used = UsedTickets::since(NOW_S);
        let earlier = NOW_S - 500;
        assert_eq!(used.count(&ticket(9, 1, earlier), earlier), Ok(()));
        assert_eq!(used.count(&ticket(9, 2, earlier - 1), earlier), Err(Spent::Older));
    }

    #[test]
    fn one_signer_cannot_fill_the_memory_and_what_has_ended_makes_room() {
        let used = UsedTickets::since(NOW_S);
        let most = TICKETS_OF_SIGNER as u64;
        assert!((0..most).all(|n| used.count(&ticket(9, n, NOW_S), NOW_S).is_ok()));
        assert_eq!(used.count(&ticket(9, most, NOW_S), NOW_S), Err(Spent::Full));
        assert_eq!(used.count(&ticket(8, most, NOW_S), NOW_S), Ok(()));
        let later = NOW_S + 60;
        assert_eq!(used.count(&ticket(9, most, later), later), Ok(()));
    }

    #[test]
    fn all_signers_together_cannot_fill_the_memory() {
        let used = UsedTickets::since(NOW_S);
        let signers = (TICKETS / TICKETS_OF_SIGNER) as u8;
        for signer in 0..signers {
            let of = |n| used.count(&ticket(signer, n, NOW_S), NOW_S);
            assert!((0..TICKETS_OF_SIGNER as u64).all(|n| of(n).is_ok()));
        }
        assert_eq!(used.count(&ticket(signers, 0, NOW_S), NOW_S), Err(Spent::Full));
    }
}
