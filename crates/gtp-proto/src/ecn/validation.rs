//! Whether a path lets ECN bits through, and whether a sink counts them: RFC 9000, section 13.4.2.
//!
//! The first data packets leave as ECT(0), and those after them without ECN until a receipt has
//! covered the first ones. What a sink counts from receipt to receipt must be at least what these
//! prove to have arrived of such packets, and at most that and those of receipts that are missing.
//! It is checked for as long as the session lives. Statuses carry the bits only while ECN is on and
//! receipts come, hellos never: they arrive where packets with the bits are dropped, and so show
//! it. This module must not know rates.

use core::ops::Range;

use gtp_alloc::{Span, Time};
use gtp_ranges::RangeSet;

use super::{Codepoint, EcnCounts, EcnFailure, EcnStanding, EcnState};
use crate::wire::Receipt;

/// Packets of a test: RFC 9000, appendix A.4.
const TESTED: u64 = 10;
/// So many packets that all arrived marked fail a test: of a few, a full queue marks all.
const TESTED_MARKED: u64 = TESTED / 2;
/// So many packets lost in a row, while others arrive, begin a test: the path may have changed.
const LOST_ROW: u64 = 32;
/// Without a receipt for so long, and for so many round trips, statuses leave without the bits.
const STALLED: Span = Span::from_millis(200);
const STALLED_ROUNDS: u64 = 4;
/// So many packets that all arrived marked, over [`MARKED_ROUNDS`] and [`MARKED_SPAN`], come from a
/// path that marks whatever it carries. A queue that is answered by less each round trip does not.
const MARKED_ROW: u64 = 128;
const MARKED_ROUNDS: u64 = 8;
const MARKED_SPAN: Span = Span::from_secs(1);

/// Where a session stands with ECN, and what is needed to judge counts.
#[derive(Debug)]
pub(crate) struct Validation {
    state: State,
    /// Numbers of rows of packets that left as ECT(0), or that did not as [`Validation::plain`]
    /// says, and that no receipt has covered; and where the present row began.
    rows: RangeSet,
    open: Option<u64>,
    plain: RangeSet,
    /// Packets below this left before the path changed: what became of their bits is no fault.
    trusted: u64,
    /// Where the newest receipt ended, when it came, and what its feedback counted.
    heard: u64,
    heard_at: Time,
    counts: EcnCounts,
    marks: u64,
}

/// What is known of the path.
#[derive(Clone, Copy, Debug)]
enum State {
    /// ECN is not used.
    Off,
    /// The first packets are under way.
    Testing(Trial),
    /// The path lets the bits through, and the sink counts them.
    On(Row),
    /// One of both does not.
    Failed(EcnFailure),
}

/// A test.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    /// Packets that have left.
    sent: u64,
    /// The number behind the last one, once all have left.
    end: Option<u64>,
    /// Packets lost, counted by the sink, and those among them that were marked.
    lost: u64,
    counted: u64,
    marked: u64,
    /// All packets of the test before it were lost, as can happen on a path that loses many.
    is_second: bool,
}

/// Packets in a row that all had the same fate.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Packets lost, and whether others arrived meanwhile.
    lost: u64,
    others: bool,
    /// Packets marked, and since when.
    marked: u64,
    since: Option<Time>,
}

/// The newest feedback, whose receipt is proven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    /// When it was read.
    pub now: Time,
    /// The smoothed round-trip time.
    pub rtt: Span,
    /// Its receipt.
    pub receipt: &'a Receipt,
    /// What the sink has counted in all receipts up to this one; absent if it counts nothing.
    pub counts: Option<EcnCounts>,
    /// The number that the next packet will carry.
    pub next_pn: u64,
}

/// What a receipt says of packets that left as ECT(0).
#[derive(Clone, Copy, Debug)]
struct Fates {
    /// Those that arrived.
    arrived: u64,
    /// Those among them that left since the path last changed, and such that were lost.
    trusted: u64,
    lost: u64,
    /// Those of receipts that are missing.
    unknown: u64,
    /// Whether all of them left since the path last changed.
    recent: bool,
    /// Whether other packets arrived.
    others: bool,
}

impl Validation {
    /// A session that may use ECN if `may`.
    pub fn new(may: bool) -> Validation {
        Validation {
            state: if may { State::Testing(Trial::default()) } else { State::Off },
            rows: RangeSet::new(),
            open: None,
            plain: RangeSet::new(),
            trusted: 0,
            heard: 0,
            heard_at: Time::ZERO,
            counts: EcnCounts::default(),
            marks: 0,
        }
    }

    /// Data packet `pn` leaves: with these bits.
    #[inline]
    pub fn send(&mut self, pn: u64) -> Codepoint {
        match self.state {
            State::On(_) => Codepoint::Ect0,
            State::Off | State::Failed(_) => Codepoint::NotEct,
            State::Testing(trial) => self.send_in_test(trial, pn),
        }
    }

    #[cold]
    fn send_in_test(&mut self, mut trial: Trial, pn: u64) -> Codepoint {
        if trial.sent == TESTED {
            return Codepoint::NotEct;
        }
        self.open.get_or_insert(pn);
        trial.sent += 1;
        if trial.sent == TESTED {
            trial.end = Some(pn + 1);
            self.end_row(pn + 1);
        }
        self.state = State::Testing(trial);
        Codepoint::Ect0
    }

    /// A status leaves at `now` as packet `pn`, over a path of this round trip: with these bits.
    pub fn send_status(&mut self, now: Time, pn: u64, rtt: Span) -> Codepoint {
        let stalled = now.since(self.heard_at) > (rtt * STALLED_ROUNDS).max(STALLED);
        if let State::On(_) = self.state
            && !stalled
        {
            return Codepoint::Ect0;
        }
        self.send_plain(pn);
        Codepoint::NotEct
    }

    /// Packet `pn` leaves without the bits, whatever they are for data.
    pub fn send_plain(&mut self, pn: u64) {
        if self.open.is_some() {
            self.plain.insert(pn..pn + 1);
        }
    }

    /// The session may use ECN from packet `next_pn` on, or may not any longer.
    pub fn allow(&mut self, may: bool, next_pn: u64) {
        match (may, self.state) {
            (true, State::Off) => self.test(next_pn),
            (true, State::Testing(_) | State::On(_) | State::Failed(_)) | (false, State::Off) => {}
            (false, State::Testing(_) | State::On(_) | State::Failed(_)) => {
                self.end_row(next_pn);
                self.state = State::Off;
            }
        }
    }

    /// Packets from `next_pn` on go by another path.
    pub fn handle_new_path(&mut self, next_pn: u64) {
        match self.state {
            State::Off => {}
            State::Testing(_) | State::On(_) | State::Failed(_) => self.test(next_pn),
        }
    }

    fn test(&mut self, next_pn: u64) {
        self.begin(Trial::default(), next_pn);
    }

    fn begin(&mut self, trial: Trial, next_pn: u64) {
        self.end_row(next_pn);
        self.trusted = next_pn;
        self.state = State::Testing(trial);
    }

    fn fail(&mut self, why: EcnFailure, next_pn: u64) {
        self.end_row(next_pn);
        self.state = State::Failed(why);
    }

    fn end_row(&mut self, end: u64) {
        if let Some(begin) = self.open.take() {
            self.rows.insert(begin..end);
        }
    }

    /// Takes in the newest feedback. Returns how many packets were marked that were not known to be
    /// and are to be heeded; none where the counts are not believed.
    pub fn hear(&mut self, heard: &Heard<'_>) -> u64 {
        let span = heard.receipt.span.clone();
        if span.start < self.heard {
            return 0; // It is about what a newer one passed over.
        }
        let fates = self.fates(heard.receipt);
        self.forget(span.end);
        self.heard_at = heard.now;
        let Some(counts) = heard.counts else {
            if fates.trusted > 0 && self.is_in_use() {
                self.fail(EcnFailure::Uncounted, heard.next_pn);
            }
            return 0;
        };
        let more = counts.since(core::mem::replace(&mut self.counts, counts));
        if !self.is_in_use() {
            return 0;
        }
        if let Some(why) = fates.contradict(more) {
            self.fail(why, heard.next_pn);
            return 0;
        }
        let marked = match self.state {
            State::Testing(trial) => self.judge(trial, &fates, more, heard),
            State::On(row) => self.watch(row, &fates, more, heard),
            State::Off | State::Failed(_) => 0,
        };
        self.marks += marked;
        marked
    }

    fn is_in_use(&self) -> bool {
        match self.state {
            State::Testing(_) | State::On(_) => true,
            State::Off | State::Failed(_) => false,
        }
    }

    /// A receipt during a test, which ends once all its packets are covered. Marks count then, if
    /// the path does not mark them all.
    fn judge(
        &mut self,
        mut trial: Trial,
        fates: &Fates,
        more: EcnCounts,
        heard: &Heard<'_>,
    ) -> u64 {
        let (told, marked) = (u64::from(more.ect0) + u64::from(more.ce), u64::from(more.ce));
        let counted = if fates.recent { told } else { fates.trusted };
        trial.lost += fates.lost;
        trial.counted += counted;
        trial.marked += marked.min(counted);
        self.state = State::Testing(trial);
        if trial.end.is_none_or(|end| heard.receipt.span.end < end) {
            return 0;
        }
        if trial.counted == 0 && trial.lost < TESTED {
            // Receipts are missing.
            self.begin(Trial { is_second: trial.is_second, ..Trial::default() }, heard.next_pn);
        } else if trial.counted == 0 && !trial.is_second {
            self.begin(Trial { is_second: true, ..Trial::default() }, heard.next_pn);
        } else if trial.counted == 0 {
            self.fail(EcnFailure::Dropped, heard.next_pn);
        } else if trial.marked == trial.counted && trial.counted >= TESTED_MARKED {
            self.fail(EcnFailure::AllMarked, heard.next_pn);
        } else {
            self.state = State::On(Row::default());
            self.open = Some(heard.next_pn);
            return trial.marked;
        }
        0
    }

    /// A receipt while ECN is on. Returns how many packets of it were marked.
    fn watch(&mut self, mut row: Row, fates: &Fates, more: EcnCounts, heard: &Heard<'_>) -> u64 {
        if more.ect0 > 0 || more.ce > 0 {
            (row.lost, row.others) = (0, false);
        } else {
            (row.lost, row.others) = (row.lost + fates.lost, row.others || fates.others);
        }
        if more.ect0 > 0 {
            (row.marked, row.since) = (0, None);
        } else if more.ce > 0 {
            row.marked += u64::from(more.ce);
            row.since.get_or_insert(heard.now);
        }
        self.state = State::On(row);
        if row.lost >= LOST_ROW && row.others {
            self.test(heard.next_pn);
        } else if row.is_all_marked(heard) {
            self.fail(EcnFailure::AllMarked, heard.next_pn);
            return 0;
        }
        more.ce.into()
    }

    /// What became of the packets that no receipt had covered.
    fn fates(&self, receipt: &Receipt) -> Fates {
        let span = receipt.span.clone();
        let trusted = self.trusted.clamp(span.start, span.end)..span.end;
        let arrived = |range: Range<u64>| {
            let gaps = receipt.gaps.iter();
            let inside = |gap: &Range<u64>| gap.start.max(range.start)..gap.end.min(range.end);
            let lost: u64 = gaps.map(|gap| self.carry(inside(gap))).sum();
            (self.carry(range) - lost, lost)
        };
        let ((arrived, _), (trusted, lost)) = (arrived(span.clone()), arrived(trusted));
        let missing: u64 = receipt.gaps.iter().map(|gap| gap.end - gap.start).sum();
        let others = span.end - span.start - missing > arrived;
        let unknown = self.carry(self.heard..span.start);
        Fates { arrived, trusted, lost, unknown, recent: self.heard >= self.trusted, others }
    }

    /// How many packets of a range left as ECT(0).
    fn carry(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let count = |ranges: &RangeSet, range: Range<u64>| -> u64 {
            ranges.within(range).map(|piece| piece.end - piece.start).sum()
        };
        let open = self.open.map_or(0, |begin| range.end.saturating_sub(begin.max(range.start)));
        let plain = if range.is_empty() { 0 } else { count(&self.plain, range.clone()) };
        count(&self.rows, range) + open - plain
    }

    /// Forgets all packets below `end`: a receipt has covered them, or a newer one has overtaken
    /// what does.
    fn forget(&mut self, end: u64) {
        self.heard = end;
        self.rows.remove(0..end);
        self.plain.remove(0..end);
        self.open = self.open.map(|begin| begin.max(end));
    }

    /// How ECN stands, for people.
    pub fn standing(&self) -> EcnStanding {
        let state = match self.state {
            State::Off => EcnState::Off,
            State::Testing(_) => EcnState::Testing,
            State::On(_) => EcnState::On,
            State::Failed(why) => EcnState::Failed(why),
        };
        EcnStanding { state, marks: self.marks }
    }
}

impl Fates {
    /// Why these fates and what the sink has counted more cannot both be true, if they cannot.
    fn contradict(&self, more: EcnCounts) -> Option<EcnFailure> {
        let told = u64::from(more.ect0) + u64::from(more.ce);
        if more.ect1 > 0 || told > self.arrived + self.unknown {
            return Some(EcnFailure::Contradicted);
        }
        (told < self.trusted).then_some(EcnFailure::Bleached)
    }
}

impl Row {
    /// Whether the path marks whatever it carries.
    fn is_all_marked(&self, heard: &Heard<'_>) -> bool {
        let long = (heard.rtt * MARKED_ROUNDS).max(MARKED_SPAN);
        let lasts = self.since.is_some_and(|since| heard.now.since(since) >= long);
        self.marked >= MARKED_ROW && lasts
    }
}

#[cfg(test)]
mod tests;
