//! What a session may claim of its host, before and after its peer proves anything.
//!
//! An agent believes every claim, and what one session may have, another may not. So a claim never
//! rests on a peer's words alone. A session claims nothing for a peer that has not been heard, nor
//! for one that fell silent; the exception is a sink that asks a source of its own choice at once.
//! A source claims little more than its sink grants. Once a source has left its grant unused for a
//! while, the sink claims little more than the source sends. Offers are not claims and do not
//! change, so both ends still find their shares. `docs/CLAIMS.md` has the arithmetic. Datagrams
//! and hosts are unknown here.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::handshake::Role;
use crate::limits::{DEMAND_ALPHA, DEMAND_FLOOR, SILENCE_STOP};
use crate::meter::WindowedMax;
use crate::report::Grant;

/// A source claims at most this many times what its sink grants. The factor is above one, so that
/// a rising grant finds the source's host ready.
pub const CLAIM_OVER_GRANT: f64 = 4.0;
/// A sink claims nothing for a source that has been silent for this long: five of the longest
/// control intervals. (A source's claim ends with the lease of its grant.)
pub const CLAIM_SILENCE: Span = Span::from_millis(500);
/// If its source leaves the grant unused, a sink claims this many times what arrives plus
/// [`DEMAND_FLOOR`]: never less than an honest source claims that is short of data.
pub const CLAIM_OVER_USE: f64 = 2.0;
/// How long the source must have left its grant unused, if four round trips are not longer.
pub const CLAIM_TERM: Span = Span::from_millis(600);
/// A bound grows by this factor each time that its source uses the grant throughout a term.
pub const CLAIM_GROWS: f64 = 2.0;
/// The length of such a term, if a round trip and two intervals are not longer.
pub const CLAIM_GROWTH_TERM: Span = Span::from_millis(100);
/// After a rest, or a silence, a sink claims this many times what arrived at most at once before
/// it, plus [`DEMAND_FLOOR`]: what arrived then would arrive in a quarter of that time. A bound
/// does not grow beyond as many times what is used.
pub const CLAIM_AHEAD: f64 = 4.0;
/// What arrives at once arrives within this time.
pub const CLAIM_PULSE: Span = Span::from_millis(200);
/// What either end claims for a session over which nothing moves: enough for the messages of its
/// ends ten times a second, and for the first packets after the rest.
pub const CLAIM_RESTING: Rate = Rate::from_bps(250_000);

/// The most that a source may claim whose sink grants this.
pub(crate) fn of_granted(granted: Rate) -> Rate {
    granted.scale(CLAIM_OVER_GRANT)
}

/// Whether a peer has been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// No authentic datagram has come from it.
    Unheard,
    /// At least one has.
    Heard,
}

impl Peer {
    /// Whether a sink may claim anything for a source that has been silent for this long (since the
    /// session's start if it was never heard).
    pub fn may_claim(self, role: &Role, silence: Span) -> bool {
        match (self, role) {
            (Peer::Heard, _) => silence <= CLAIM_SILENCE,
            // Its first grant travels with its first hello.
            (Peer::Unheard, Role::Eager { .. }) => silence <= SILENCE_STOP,
            (Peer::Unheard, Role::Initiator { .. } | Role::Responder) => false,
        }
    }
}

/// Whether a sink waits for what it has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Units,
    Nothing,
}

/// How long it takes until a grant shows in what comes: a round trip and two intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    /// By the smoothed round trip.
    pub usual: Span,
    /// By the shortest one that was seen: a source that answers late now and then cannot prolong
    /// the time in which it need not use what it is granted.
    pub least: Span,
}

/// What a sink claims for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    /// What the bound allows.
    Bound,
    /// Less, since the source is silent or others want its room. That it is granted less then is
    /// not its wish.
    LessThanBound,
    /// What a session at rest needs.
    Resting,
}

/// Whether a source uses what its sink grants it, and what the sink may claim for it.
///
/// What arrived in one term is compared with the mean grant of this term or of the one before,
/// whichever is less: a rising grant is not used yet, and a falling one was used before.
#[derive(Debug)]
pub(crate) struct Usage {
    /// When the present term began.
    since: Time,
    came: Bytes,
    /// What is known to be lost. It counts for no more than what came, so that a source cannot pass
    /// skipped packet numbers off as packets sent.
    lost: Bytes,
    /// What statuses took: a source may send data and statuses at the rate of its grant.
    said: Bytes,
    /// What the grants of this term allowed, up to when they were last looked at.
    allowed: Bytes,
    looked_at: Time,
    /// The grant in force since then, and whether the sink waited for something.
    granted: Rate,
    awaits: Awaits,
    /// What the session could have if nothing but the others limited it.
    offered: Rate,
    /// The mean grant of the term before.
    before: Rate,
    /// What was used in recent terms.
    of_late: WindowedMax,
    bound: Rate,
    /// What the source uses, with a tenth to grow; unlimited while it uses what it is granted.
    firm: Rate,
    /// What the source says beside what it sends.
    says: Rate,
    /// When the bound was last what limited the grant.
    limited_at: Time,
    /// Whether the sink claimed less than the bound at some time of this term, and of the one
    /// before.
    less: [bool; 2],
    /// How often a bound was lifted in vain since the source last used its grant.
    relapses: u32,
    pulse: Pulse,
    rest: Rest,
    /// Before this time what came says nothing of the grant.
    shows_at: Time,
}

/// Whether the session rests, and has rested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    NotYet,
    Now,
    Before,
}

/// The most that came at once since the session last rested, or its source was last silent.
#[derive(Debug)]
struct Pulse {
    since: Time,
    came: Bytes,
    peak: Rate,
}

impl Pulse {
    fn new(now: Time) -> Pulse {
        Pulse { since: now, came: Bytes::ZERO, peak: Rate::ZERO }
    }

    fn roll(&mut self, now: Time) {
        let elapsed = now.since(self.since);
        if elapsed >= CLAIM_PULSE {
            self.peak = self.peak.max(self.came.per(elapsed));
            (self.since, self.came) = (now, Bytes::ZERO);
        }
    }
}

impl Usage {
    pub fn new(now: Time) -> Usage {
        Usage {
            since: now,
            came: Bytes::ZERO,
            lost: Bytes::ZERO,
            said: Bytes::ZERO,
            allowed: Bytes::ZERO,
            looked_at: now,
            granted: Rate::ZERO,
            awaits: Awaits::Nothing,
            offered: Rate::UNLIMITED,
            before: Rate::ZERO,
            of_late: WindowedMax::new(now, CLAIM_TERM),
            bound: Rate::UNLIMITED,
            firm: Rate::UNLIMITED,
            says: Rate::ZERO,
            limited_at: now,
            less: [false; 2],
            relapses: 0,
            pulse: Pulse::new(now),
            rest: Rest::NotYet,
            shows_at: now,
        }
    }

    /// The source is heard again after a silence in which nothing was claimed for it. That it says
    /// it has more is no reason to keep from others what it did not use before: it begins with a
    /// few times that, or where that is long ago from the beginning, and gets more as it uses more.
    /// A source that has nothing to send is not silent. Where the path has become longer by as
    /// much as the `silence` lasted, what is granted now shows as much later, but not for longer
    /// than a second: a source could hold a share meanwhile that it does not use.
    pub fn returned(&mut self, now: Time, silence: Span) {
        if silence > SILENCE_STOP {
            self.pulse = Pulse::new(now);
        }
        self.begin_again(now);
        self.shows_at = now + silence.min(SILENCE_STOP);
        self.relapses = (self.relapses + 1).min(RELAPSES_MOST);
        self.begin_term(now, Rate::ZERO);
    }

    /// The source hears its sink again after it has heard nothing for longer than a lease, so it
    /// could not use what it was granted. The bound rises to what it would be after a silence. A
    /// source that only claims this gains no more, and nothing twice by what came before.
    pub fn hears_again(&mut self, now: Time) {
        if self.again() <= self.bound {
            return;
        }
        (self.bound, self.limited_at) = (self.again(), now);
        self.pulse = Pulse::new(now);
        self.begin_term(now, Rate::ZERO);
    }

    /// From now on a few times what came at once of late is claimed at most.
    fn begin_again(&mut self, now: Time) {
        (self.bound, self.limited_at) = (self.bound.min(self.again()), now);
        self.pulse = Pulse::new(now);
    }

    /// A few times what came at once of late.
    fn again(&self) -> Rate {
        self.pulse.peak.scale(CLAIM_AHEAD).saturating_add(DEMAND_FLOOR)
    }

    /// Data packets of `bytes` on the wire came.
    #[inline]
    pub fn came(&mut self, bytes: Bytes) {
        self.came += bytes;
        self.pulse.came += bytes;
    }

    /// Packets of `bytes` are missing.
    pub fn lost(&mut self, bytes: Bytes) {
        self.lost += bytes;
    }

    /// A status of `bytes` on the wire came.
    pub fn said(&mut self, bytes: Bytes) {
        self.said += bytes;
    }

    /// What the sink may claim at most; unlimited while the source uses what it is granted.
    pub fn bound(&self) -> Rate {
        self.bound
    }

    /// What of the claim is more than room to grow, for a source that offers this.
    pub fn firm(&self, offer: Rate) -> Rate {
        let more = self.firm.scale(WANTS_MORE).saturating_add(DEMAND_FLOOR.scale(WANTS_MORE));
        if offer.min(self.bound) > more { Rate::UNLIMITED } else { self.firm }
    }

    /// Whether a source that offers this is granted less than both that and the bound, since others
    /// want what would be its room to grow.
    pub fn is_granted_less(&self, offer: Rate) -> bool {
        !self.firm.is_unlimited() && self.granted.scale(TOUCHES) < offer.min(self.bound)
    }

    /// Looks at what came and, if a term is over, judges it; from now on `grant` is in force, and
    /// the sink `awaits` what it asked for. A grant shows in what comes after a `trip`. A
    /// source that is asked for nothing cannot use its grant, so that time does not count.
    pub fn roll(&mut self, now: Time, grant: &Grant, awaits: Awaits, claims: Claims, trip: Trip) {
        let granted = grant.rate;
        self.offered = grant.offer;
        match self.awaits {
            Awaits::Units => self.allowed += self.granted.bytes_in(now.since(self.looked_at)),
            Awaits::Nothing if self.allowed == Bytes::ZERO => self.since = now,
            Awaits::Nothing => {}
        }
        (self.looked_at, self.granted, self.awaits) = (now, granted, awaits);
        self.pulse.roll(now);
        if claims == Claims::Resting {
            self.rest(now, awaits);
            return;
        }
        if self.rest == Rest::Now {
            self.rest = Rest::Before;
        }
        if granted.scale(TOUCHES) >= self.bound || claims == Claims::LessThanBound {
            self.limited_at = now;
        }
        self.less[0] |= claims == Claims::LessThanBound;
        let whole = CLAIM_TERM.max(trip.least * 4);
        let term =
            if self.bound.is_unlimited() { whole } else { CLAIM_GROWTH_TERM.max(trip.usual) };
        let elapsed = now.since(self.since);
        if elapsed < term {
            return;
        }
        let used = (self.came + self.lost.min(self.came)).per(elapsed);
        self.of_late.set_window(whole);
        self.of_late.add(now, used);
        let mean = self.allowed.per(elapsed);
        let allowed = mean.min(self.before);
        let said = self.said.min(self.came).per(elapsed);
        self.judge(now, used, said, allowed);
        self.judge_all(now, used, said, allowed);
        self.begin_term(now, mean);
    }

    fn begin_term(&mut self, now: Time, before: Rate) {
        (self.since, self.looked_at, self.before) = (now, now, before);
        (self.came, self.lost) = (Bytes::ZERO, Bytes::ZERO);
        (self.said, self.allowed) = (Bytes::ZERO, Bytes::ZERO);
        self.less = [false, self.less[0]];
    }

    /// The session rests. A source that could have brought more than it did before that begins with
    /// a few times as much, for what wakes it may be one packet, or nothing but another offer. Only
    /// the first rest of one that has brought nothing yet says nothing.
    fn rest(&mut self, now: Time, awaits: Awaits) {
        let says = self.rest == Rest::Before || self.pulse.peak > Rate::ZERO;
        if self.rest != Rest::Now && awaits == Awaits::Units && says {
            self.begin_again(now);
        }
        (self.rest, self.limited_at) = (Rest::Now, now);
        self.pulse = Pulse::new(now);
        self.begin_term(now, Rate::ZERO);
    }

    /// What a source that leaves its grant unused may have.
    fn most(&mut self, now: Time) -> Rate {
        self.of_late.max(now).scale(CLAIM_OVER_USE).saturating_add(DEMAND_FLOOR)
    }

    /// `used` of `allowed` were used in a term, and so much was said.
    fn judge(&mut self, now: Time, used: Rate, said: Rate, allowed: Rate) {
        if allowed == Rate::ZERO {
            return; // What was granted could not show yet.
        }
        let most = self.most(now);
        let ahead = self.of_late.max(now).scale(CLAIM_AHEAD).saturating_add(DEMAND_FLOOR);
        // Of a grant that others have narrowed to little more than what is used, that says nothing.
        let uses = match self.less {
            [false, false] => used.scale(USES) >= allowed,
            _ => used.saturating_add(said).scale(USES_ALL) >= allowed,
        };
        if self.bound.is_unlimited() {
            if most < allowed && !self.granted.is_unlimited() {
                (self.bound, self.limited_at) = (most, now);
            }
        } else if uses && self.bound >= self.offered {
            (self.bound, self.relapses) = (Rate::UNLIMITED, 0);
        } else if uses && self.bound < ahead {
            self.bound = self.bound.scale(CLAIM_GROWS).min(ahead);
        } else if now.since(self.limited_at) >= CLAIM_TERM * (1 << self.relapses) {
            // The source asks for no more by itself, as one does that is short of data.
            self.bound = Rate::UNLIMITED;
            self.relapses = (self.relapses + 1).min(RELAPSES_MOST);
        } else if !uses && now >= self.shows_at {
            self.bound = most;
        } // Else it uses all of the little that it asks for, which says nothing of more.
    }

    /// Whether the source could send more than it does: then what it sends of late, with what it
    /// says and a tenth to grow, is what the sink claims for sure.
    fn judge_all(&mut self, now: Time, used: Rate, said: Rate, allowed: Rate) {
        // A source says more while its grants and its offers change.
        self.says = said.max(self.says.scale(SAYS_STILL));
        let sends = self.of_late.max(now).saturating_add(self.says);
        if used.saturating_add(said).scale(USES_ALL) >= allowed {
            self.firm = Rate::UNLIMITED;
        } else if used.scale(USES) < allowed || !self.firm.is_unlimited() {
            self.firm = sends.scale(1.0 + DEMAND_ALPHA);
        }
    }
}

/// A source uses its grant if this many times what it sends reaches the grant.
const USES: f64 = 1.5;
/// A source uses all of its grant if this many times what it sends reaches the grant: more than one
/// that is short of data, which is granted a tenth more than it sends.
const USES_ALL: f64 = 1.01;
/// What a source says is remembered by this part from term to term.
const SAYS_STILL: f64 = 0.95;
/// A source that offers more than this many times what it sends of late, and than what is claimed
/// after two doublings where an application is short of data, wants more.
const WANTS_MORE: f64 = 4.4;
/// A bound limits the grant if this many times the grant reaches it.
const TOUCHES: f64 = 1.01;
/// Each time that a bound is lifted in vain, the next one holds twice as long, up to 38 s.
const RELAPSES_MOST: u32 = 6;
