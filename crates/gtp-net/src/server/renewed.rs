//! New tickets for a fetch that runs.
//!
//! Tickets last for minutes and a fetch may last for days, so its client sends new ones. They
//! replace the old ones for the same objects at the same servers and bring no others, and as each
//! costs the sink a signature to check, they may come only so often. Time is an argument.

use std::sync::Arc;

use gtp_alloc::{Span, Time};

use super::fetch::{Source, by_url};
use super::put::Trouble;
use crate::client::{Tickets, Url};
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::Reason;

/// How often new tickets may come in the long run; a client sends them each five minutes.
const EACH: Span = Span::from_secs(30);

/// How many times they may come at once, as those of a client that was suspended do.
const AT_ONCE: u64 = 2;

/// Why new tickets are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotRenewed {
    /// They came too soon after others.
    #[error("new tickets come too often")]
    TooOften,
    /// They are not for what is fetched.
    #[error("the new tickets are for other objects or servers than those of the fetch")]
    Others,
}

impl From<NotRenewed> for Trouble {
    fn from(why: NotRenewed) -> Trouble {
        let failure = Failure::new(FailureKind::Authentication, why.to_string());
        Trouble::told(Reason::NotAuthorised, failure)
    }
}

/// How often tickets have come from a client.
pub(super) struct Renewals {
    began: Time,
    /// Tickets, or lists of them, that are sent apart and each in its own time.
    apart: u64,
    times: u64,
}

impl Renewals {
    /// None so far.
    pub fn new(apart: u64, now: Time) -> Renewals {
        Renewals { began: now, apart, times: 0 }
    }

    /// Counts tickets that have come, before anything of them is checked.
    ///
    /// # Errors
    /// [`NotRenewed::TooOften`].
    pub fn count(&mut self, now: Time) -> Result<(), NotRenewed> {
        self.times += 1;
        let passed = now.since(self.began).as_nanos() / EACH.as_nanos();
        let most = self.apart.saturating_mul(AT_ONCE + passed);
        if self.times <= most { Ok(()) } else { Err(NotRenewed::TooOften) }
    }
}

/// The tickets of a fetch.
pub(super) struct Renewed {
    tickets: Arc<Tickets>,
    /// The objects and the keys of their servers, in order.
    of: Vec<(Url, Fingerprint)>,
    renewals: Renewals,
}

impl Renewed {
    /// The tickets of a fetch from these sources that begins now.
    pub fn new(sources: &[Source], now: Time) -> Renewed {
        let tickets = Arc::new(Tickets::new(by_url(sources)));
        Renewed { tickets, of: identities(sources), renewals: Renewals::new(1, now) }
    }

    /// What the fetch shows its sources.
    pub fn tickets(&self) -> Arc<Tickets> {
        Arc::clone(&self.tickets)
    }

    /// Counts new tickets that have come, before anything of them is checked.
    ///
    /// # Errors
    /// [`NotRenewed::TooOften`].
    pub fn count(&mut self, now: Time) -> Result<(), NotRenewed> {
        self.renewals.count(now)
    }

    /// Shows these tickets from now on.
    ///
    /// # Errors
    /// [`NotRenewed::Others`]; the old ones then stay.
    pub fn replace(&self, sources: &[Source]) -> Result<(), NotRenewed> {
        if identities(sources) != self.of {
            return Err(NotRenewed::Others);
        }
        self.tickets.replace(by_url(sources));
        Ok(())
    }
}

fn identities(sources: &[Source]) -> Vec<(Url, Fingerprint)> {
    let mut of: Vec<_> = sources.iter().map(|source| (source.url.clone(), source.key)).collect();
    of.sort_by_cached_key(|(url, _)| url.to_string());
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str, key: u8, ticket: u8) -> Source {
        let (url, key) = (url.parse().unwrap(), Fingerprint::of_public_key(&[key]));
        Source { url, key, ticket: vec![ticket] }
    }

    #[test]
    fn new_tickets_replace_those_of_the_same_objects_at_the_same_servers_only() {
        let (a, b) = ("gtp://h/a", "gtp://h/b");
        let renewed = Renewed::new(&[source(a, 1, 1), source(b, 2, 1)], Time::ZERO);
        let shown = |url: &str| renewed.tickets().get(&url.parse().unwrap());
        for others in [
            vec![source(a, 1, 2)],
            vec![source(a, 1, 2), source("gtp://h/c", 2, 2)],
            vec![source(a, 1, 2), source(b, 1, 2)],
            vec![source(a, 1, 2), source(b, 2, 2), source("gtp://h/c", 2, 2)],
        ] {
            assert_eq!(renewed.replace(&others), Err(NotRenewed::Others));
            assert_eq!(shown(a), Some(vec![1]));
        }
        assert_eq!(renewed.replace(&[source(b, 2, 3), source(a, 1, 2)]), Ok(()));
        assert_eq!((shown(a), shown(b)), (Some(vec![2]), Some(vec![3])));
    }

    #[test]
    fn new_tickets_come_twice_at_once_and_each_half_minute_in_the_long_run() {
        let mut renewed = Renewed::new(&[], Time::ZERO);
        let mut count = |seconds| renewed.count(Time::ZERO + Span::from_secs(seconds));
        assert_eq!((count(0), count(1)), (Ok(()), Ok(())));
        assert_eq!(count(29), Err(NotRenewed::TooOften));
        assert_eq!(count(59), Err(NotRenewed::TooOften), "the refused ones count");
        for k in 1..20 {
            assert_eq!(count(300 * k), Ok(()));
        }
    }
}
