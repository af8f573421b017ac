//! The state of a process towards its daemon, and the bound on its rates that follows.
//!
//! The one idea: a process never stalls because an optional service has gone, and never ignores a
//! daemon that was named. While a daemon lives, it decides. A process that has lost its daemon
//! keeps to the part that the daemon promised it; if the daemon was only found, the process has its
//! own capacity again after [`ORPHAN_WAIT`]. A daemon without room is not absent: the process keeps
//! to an allowance and asks again. Time is an argument; sockets, pages and sessions are unknown
//! here. docs/DAEMON.md lists the same states.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gtp_alloc::{Rate, Span, Time};

/// How a process came to its daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bond {
    /// It looked where daemons usually are. Without one it has its own capacity.
    #[default]
    Found,
    /// It was told which one to use. It never runs without a limit from it.
    Named,
}

/// What a process is to the machine's daemon, in a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stands {
    /// Its own capacity counts.
    #[default]
    Alone,
    /// A daemon is there and has not accepted it.
    Waiting,
    /// The daemon decides.
    Joined,
    /// The daemon has gone.
    Orphaned,
}

impl Stands {
    /// All of them.
    pub const ALL: [Stands; 4] = [Stands::Alone, Stands::Waiting, Stands::Joined, Stands::Orphaned];

    /// The word of docs/DAEMON.md.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stands::Alone => "alone",
            Stands::Waiting => "waiting",
            Stands::Joined => "joined",
            Stands::Orphaned => "orphaned",
        }
    }
}

/// Where other threads read what an engine stands as.
#[derive(Debug, Default)]
pub(super) struct Shown {
    stands: AtomicUsize,
    counts_groups: AtomicBool,
}

impl Shown {
    /// Shows this, and whether whoever decides knows the groups of clients.
    pub fn set(&self, stands: Stands, counts_groups: bool) {
        // Who sees the one sees the other.
        self.counts_groups.store(counts_groups, Ordering::Relaxed);
        self.stands.store(stands as usize, Ordering::Release);
    }

    /// What it stands as.
    pub fn stands(&self) -> Stands {
        Stands::ALL.get(self.stands.load(Ordering::Acquire)).copied().unwrap_or_default()
    }

    /// Whether whoever decides knows the groups of clients: not a daemon of an earlier release.
    pub fn counts_groups(&self) -> bool {
        self.counts_groups.load(Ordering::Relaxed)
    }
}

/// One direction of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    /// Its own capacity counts.
    Alone {
        /// A daemon listened and did not answer for [`ORPHAN_WAIT`], which was already reported.
        unanswered: bool,
    },
    /// A daemon is there and has not accepted this process: all rates together stay within `most`.
    Waiting {
        most: Rate,
        /// When silence counts as absence; `None` while the daemon says that it is full.
        until: Option<Time>,
    },
    /// The daemon decides.
    Joined {
        /// What an earlier daemon promised.
        before: Option<Rate>,
    },
    /// The daemon has gone.
    Orphaned {
        /// The daemon's promise.
        part: Rate,
        /// What was granted when it went. Until `settled` this is the limit too, since other
        /// processes may not have come down yet.
        granted: Rate,
        settled: Time,
        /// When its own capacity counts again; never if the daemon was named.
        until: Option<Time>,
    },
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    /// A daemon has accepted it.
    Joined,
    /// The daemon has gone; it had promised and granted this.
    Lost { promised: Option<Rate>, granted: Rate },
    /// Other engines of this process have joined a daemon; this one had been granted this much.
    Elsewhere { granted: Rate },
    /// A daemon is there and says that it is full.
    Full,
    /// A daemon listens and does not answer.
    Silent,
    /// The daemon there is of another version, and perhaps has processes of its own.
    OtherVersion,
    /// There is no daemon that this process could use.
    Absent,
}

/// How long a process keeps to the promise of a found daemon that has gone. A daemon that hangs
/// counts as gone after two seconds, so a process is alone at the latest five seconds after the
/// last sign of life.
pub(super) const ORPHAN_WAIT: Span = Span::from_secs(3);
/// How long an orphan waits before it uses more of its promise than it was granted. By then all
/// other processes have come down to their promises: a source obeys what it is told, or stops
/// after a second of silence (`gtp_proto::limits::SILENCE_STOP`).
pub(super) const SETTLE: Span = Span::from_secs(1);
/// What a process may use in each direction while a daemon has not accepted it: enough to keep
/// every session alive, and little beside what a daemon shares out.
pub(super) const ALLOWANCE: Rate = Rate::from_mbps(1);

impl Standing {
    /// A process that has not looked for a daemon yet.
    pub const NEW: Standing = Standing::Alone { unanswered: false };

    /// It in a word.
    pub fn stands(&self) -> Stands {
        match self {
            Standing::Alone { .. } => Stands::Alone,
            Standing::Waiting { .. } => Stands::Waiting,
            Standing::Joined { .. } => Stands::Joined,
            Standing::Orphaned { .. } => Stands::Orphaned,
        }
    }

    /// The most that all sessions of this direction may have together; `None` where its own
    /// capacity counts, or the daemon's word.
    pub fn bound(&self, now: Time) -> Option<Rate> {
        match *self {
            Standing::Alone { .. } | Standing::Joined { .. } => None,
            Standing::Waiting { most, .. } => Some(most),
            Standing::Orphaned { part, granted, settled, .. } if now < settled => {
                Some(part.min(granted))
            }
            Standing::Orphaned { part, .. } => Some(part),
        }
    }

    /// When time alone changes the bound next.
    pub fn poll_timeout(&self, now: Time) -> Time {
        match *self {
            Standing::Alone { .. } | Standing::Joined { .. } => Time::MAX,
            Standing::Waiting { until, .. } => until.unwrap_or(Time::MAX),
            Standing::Orphaned { settled, .. } if now < settled => settled,
            Standing::Orphaned { until, .. } => until.unwrap_or(Time::MAX),
        }
    }

    /// The state at `now`, if nothing has happened.
    #[must_use]
    pub fn at(self, now: Time) -> Standing {
        match self {
            Standing::Waiting { until: Some(until), .. } if until <= now => {
                Standing::Alone { unanswered: true }
            }
            Standing::Orphaned { until: Some(until), .. } if until <= now => Standing::NEW,
            Standing::Alone { .. }
            | Standing::Joined { .. }
            | Standing::Waiting { .. }
            | Standing::Orphaned { .. } => self,
        }
    }

    /// The state after this event.
    #[must_use]
    pub fn handle(self, now: Time, bond: Bond, event: Event) -> Standing {
        let before = self.at(now);
        let until = match bond {
            Bond::Found => Some(now + ORPHAN_WAIT),
            Bond::Named => None,
        };
        match event {
            Event::Joined => Standing::Joined { before: before.promise() },
            Event::Lost { promised, granted } => match before {
                Standing::Joined { before } => {
                    let part = promised.or(before).unwrap_or(ALLOWANCE);
                    Standing::Orphaned { part, granted, settled: now + SETTLE, until }
                }
                Standing::Alone { .. } | Standing::Waiting { .. } | Standing::Orphaned { .. } => {
                    before
                }
            },
            Event::Elsewhere { granted } => match before {
                Standing::Alone { .. } => {
                    let part = granted.max(ALLOWANCE);
                    Standing::Orphaned { part, granted, settled: now, until: None }
                }
                Standing::Waiting { .. } | Standing::Joined { .. } | Standing::Orphaned { .. } => {
                    before
                }
            },
            Event::Full => before.beside_a_full_one(),
            Event::Silent => before.unanswered(until),
            Event::OtherVersion => before.beside_another_version(until, bond),
            Event::Absent => before.without_any(now, until),
        }
    }

    /// What a daemon has promised that has gone since.
    fn promise(self) -> Option<Rate> {
        match self {
            Standing::Orphaned { part, .. } => Some(part),
            Standing::Joined { before } => before,
            Standing::Alone { .. } | Standing::Waiting { .. } => None,
        }
    }

    /// The daemon shares the capacity out among others.
    fn beside_a_full_one(self) -> Standing {
        match self {
            Standing::Alone { .. } => Standing::Waiting { most: ALLOWANCE, until: None },
            Standing::Waiting { most, .. } => Standing::Waiting { most, until: None },
            Standing::Orphaned { part, .. } => {
                Standing::Waiting { most: part.min(ALLOWANCE), until: None }
            }
            Standing::Joined { .. } => self,
        }
    }

    fn unanswered(self, until: Option<Time>) -> Standing {
        match self {
            Standing::Alone { unanswered: false } => Standing::Waiting { most: ALLOWANCE, until },
            Standing::Waiting { most, until: before } => {
                Standing::Waiting { most, until: before.or(until) }
            }
            Standing::Orphaned { part, granted, settled, until: before } => {
                Standing::Orphaned { part, granted, settled, until: before.or(until) }
            }
            Standing::Alone { unanswered: true } | Standing::Joined { .. } => self,
        }
    }

    /// A daemon of another version may share out what the last one promised.
    fn beside_another_version(self, until: Option<Time>, bond: Bond) -> Standing {
        match (self, bond) {
            (Standing::Orphaned { part, until: before, .. }, _) => {
                Standing::Waiting { most: part.min(ALLOWANCE), until: before.or(until) }
            }
            (Standing::Waiting { until: Some(_), .. } | Standing::Joined { .. }, _) => self,
            (Standing::Waiting { until: None, .. }, Bond::Named) => self,
            (Standing::Waiting { until: None, .. }, Bond::Found) | (Standing::Alone { .. }, _) => {
                Standing::NEW
            }
        }
    }

    /// Others may still use what a daemon promised them, so no process is alone at once.
    fn without_any(self, now: Time, until: Option<Time>) -> Standing {
        match self {
            Standing::Alone { .. } => Standing::NEW,
            Standing::Waiting { most, .. } => {
                Standing::Orphaned { part: most, granted: most, settled: now, until }
            }
            Standing::Orphaned { part, granted, settled, until: before } => {
                Standing::Orphaned { part, granted, settled, until: before.or(until) }
            }
            Standing::Joined { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests;
