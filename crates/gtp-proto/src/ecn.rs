//! Explicit congestion notification (RFC 3168): two bits of each IP header.
//!
//! A source sends its data as ECT(0), a queue that would drop a packet marks it CE instead, and the
//! sink counts what arrived. A mark tells of a queue without a loss. But networks clear or set the
//! bits, or drop packets that have them, and a sink may say anything, so a source uses them only
//! for as long as the counts fit what it sent (`validation`, after RFC 9000, section 13.4.2). What
//! a mark means for a rate is not known here.

mod validation;

pub(crate) use validation::{Heard, Validation};

/// The two ECN bits of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codepoint {
    /// The sender does not heed marks, so queues drop.
    #[default]
    NotEct,
    /// ECT(0): the sender heeds a mark as it heeds a drop.
    Ect0,
    /// ECT(1): the sender heeds each mark a little (RFC 9331). GTP never sends it.
    Ect1,
    /// CE: a queue has marked the packet.
    Ce,
}

/// How many packets arrived with which bits, those without any left out. Each number counts
/// modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Packets that arrived as ECT(0).
    pub ect0: u32,
    /// Packets that arrived as ECT(1).
    pub ect1: u32,
    /// Packets that arrived as CE.
    pub ce: u32,
}

impl EcnCounts {
    /// Counts a packet.
    #[inline]
    pub(crate) fn add(&mut self, codepoint: Codepoint) {
        match codepoint {
            Codepoint::NotEct => {}
            Codepoint::Ect0 => self.ect0 = self.ect0.wrapping_add(1),
            Codepoint::Ect1 => self.ect1 = self.ect1.wrapping_add(1),
            Codepoint::Ce => self.ce = self.ce.wrapping_add(1),
        }
    }

    /// These and the others.
    pub(crate) fn and(self, others: EcnCounts) -> EcnCounts {
        EcnCounts {
            ect0: self.ect0.wrapping_add(others.ect0),
            ect1: self.ect1.wrapping_add(others.ect1),
            ce: self.ce.wrapping_add(others.ce),
        }
    }

    /// What was counted since `before`. Counts that shrank seem to have grown by billions.
    pub(crate) fn since(self, before: EcnCounts) -> EcnCounts {
        EcnCounts {
            ect0: self.ect0.wrapping_sub(before.ect0),
            ect1: self.ect1.wrapping_sub(before.ect1),
            ce: self.ce.wrapping_sub(before.ce),
        }
    }
}

/// Why ECN cannot be used on a path or with a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnFailure {
    /// The sink counts no ECN bits.
    Uncounted,
    /// Packets that left as ECT(0) arrived without ECN bits.
    Bleached,
    /// All packets arrived marked, which no queue does for long.
    AllMarked,
    /// Packets that left as ECT(0) were lost, while others arrived.
    Dropped,
    /// The counts cannot be true: they shrank, were more than was sent, or told of ECT(1).
    Contradicted,
}

/// Whether a session uses ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnState {
    /// It does not: it does not send, its peer or the law of its rate does not know ECN, or TCP
    /// carries it.
    Off,
    /// Its first packets are tested.
    Testing,
    /// Its data leave as ECT(0), and marks are heeded.
    On,
    /// A test has failed. The next one comes when the path changes.
    Failed(EcnFailure),
}

/// How ECN stands in a session, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnStanding {
    /// Whether it is used.
    pub state: EcnState,
    /// Marks that were heeded since the session's start.
    pub marks: u64,
}

impl EcnStanding {
    /// A session that does not use ECN.
    pub const OFF: EcnStanding = EcnStanding { state: EcnState::Off, marks: 0 };
}

impl EcnFailure {
    /// All of them.
    pub const ALL: [EcnFailure; 5] = [
        EcnFailure::Uncounted,
        EcnFailure::Bleached,
        EcnFailure::AllMarked,
        EcnFailure::Dropped,
        EcnFailure::Contradicted,
    ];

    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            EcnFailure::Uncounted => "uncounted",
            EcnFailure::Bleached => "bleached",
            EcnFailure::AllMarked => "all marked",
            EcnFailure::Dropped => "dropped",
            EcnFailure::Contradicted => "contradicted",
        }
    }
}

impl EcnState {
    /// The word for it in machine output; why a test has failed is a word of its own.
    pub const fn as_str(self) -> &'static str {
        match self {
            EcnState::Off => "off",
            EcnState::Testing => "testing",
            EcnState::On => "on",
            EcnState::Failed(_) => "failed",
        }
    }

    /// Why a test has failed, if one has.
    pub const fn failure(self) -> Option<EcnFailure> {
        match self {
            EcnState::Failed(why) => Some(why),
            EcnState::Off | EcnState::Testing | EcnState::On => None,
        }
    }
}
