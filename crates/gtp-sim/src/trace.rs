//! What a run leaves behind: series of rates and queues, and what happened to each packet.
//!
//! Both are off until asked for, because a long run needs neither its memory nor its time. The
//! series are read off counters at the end of each bin, so that packets cost nothing more; the
//! records name every packet's every step, for the verifier and for curious people.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{LinkSpec, Reason};

/// One step of one packet, or what became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: Time,
    /// What happened.
    pub what: What,
    /// Where: a link's number; for [`What::Sent`], [`What::Delivered`] and [`What::Refused`] the
    /// end that the packet is for.
    pub place: u32,
    /// The packet's name: packets and copies are counted from 1 as they appear.
    pub packet: u64,
    /// Its bytes on links.
    pub size: Bytes,
}

/// What can happen to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A host sent it.
    Sent,
    /// A link took it into its queue.
    Accepted {
        /// When its last bit will leave the queue.
        leave: Time,
        /// Whether the wire behind the queue carries it.
        fate: Fate,
    },
    /// A change of its link moved its leaving.
    Moved {
        /// When its last bit will leave now.
        leave: Time,
    },
    /// The wire made it, as a copy of the packet named.
    Copied {
        /// The packet that it is a copy of.
        of: u64,
    },
    /// It came to its link's far end.
    Arrived,
    /// It is not carried further.
    Dropped(Reason),
    /// The controller at a link turned it away before the link saw it.
    TurnedAway,
    /// Its host took it.
    Delivered,
    /// Its host had no room for it.
    Refused,
}

/// What the wire behind a queue does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Carried,
    /// It is lost, after it used queue and rate like any other.
    Lost,
}

/// Parameters of a link from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// From when.
    pub at: Time,
    /// Which link.
    pub link: u32,
    /// All its parameters.
    pub spec: LinkSpec,
    /// The record before which it happened.
    pub record: usize,
}

/// The steps of all packets, in the order in which they happened, and the links' changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketTrace {
    /// Steps.
    pub records: Vec<Record>,
    /// How the links began and changed.
    pub links: Vec<LinkChange>,
    /// Whether there were more steps than there was room for.
    pub cut: bool,
}

/// Writes a [`PacketTrace`] if asked to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    trace: PacketTrace,
    room: usize,
}

impl Recorder {
    pub fn start(&mut self, room: usize) {
        self.room = room;
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.room > 0
    }

    pub fn push(&mut self, record: Record) {
        if self.trace.records.len() < self.room {
            self.trace.records.push(record);
        } else {
            self.trace.cut |= self.room > 0;
        }
    }

    pub fn changed(&mut self, at: Time, link: u32, spec: &LinkSpec) {
        if self.is_on() {
            let record = self.trace.records.len();
            self.trace.links.push(LinkChange { at, link, spec: spec.clone(), record });
        }
    }

    pub fn trace(&self) -> &PacketTrace {
        &self.trace
    }
}

/// Series over time, all with one value per bin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Length of a bin; zero if nothing is traced.
    pub bin: Span,
    /// When the first bin began.
    pub start: Time,
    /// Bins that are complete.
    pub bins: usize,
    /// By session, in the order in which they were added.
    pub sessions: Vec<SessionTrace>,
    /// By background flow.
    pub backgrounds: Vec<Vec<Bytes>>,
    /// By link.
    pub links: Vec<LinkTrace>,
}

/// One session's series. A session that was added late begins with zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionTrace {
    /// IP bytes of data packets that arrived in each bin, unwanted copies included.
    pub received: Vec<Bytes>,
    /// The sink's grant at the end of each bin.
    pub granted: Vec<Rate>,
    /// The rate at which the source might send at the end of each bin.
    pub sending: Vec<Rate>,
    /// Smoothed round-trip time at the source at the end of each bin.
    pub rtt: Vec<Span>,
}

/// One link's series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTrace {
    /// Bytes that wait at the end of each bin.
    pub queue: Vec<Bytes>,
    /// The least that waited within each bin.
    pub queue_least: Vec<Bytes>,
    /// Packets dropped in each bin, whatever the reason.
    pub drops: Vec<u64>,
    /// Bytes accepted and carried in each bin.
    pub carried: Vec<Bytes>,
}

impl Trace {
    /// The rate of `bytes` in one bin.
    pub fn rate(&self, bytes: Bytes) -> Rate {
        bytes.per(self.bin)
    }

    /// Mean rate at which a session's data arrived from bin `from` to before bin `to`.
    pub fn mean_rate(&self, session: usize, from: usize, to: usize) -> Rate {
        let bins = self.sessions.get(session).and_then(|s| s.received.get(from..to));
        let sum = bins.unwrap_or_default().iter().fold(Bytes::ZERO, |sum, &b| sum + b);
        sum.per(self.bin * to.saturating_sub(from) as u64)
    }
}

/// Bins that a trace holds at most: a day of 100 ms bins.
pub(crate) const BINS_MOST: usize = 1 << 20;
/// Steps that a packet trace may be given room for: 64 bytes each, so 8 GiB.
pub(crate) const RECORDS_MOST: usize = 1 << 27;
