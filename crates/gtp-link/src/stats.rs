//! What a link has done so far.
//!
//! Everything is counted when a packet is accepted or refused, because its fate is known then; a
//! change of the link corrects what it undoes.

use gtp_alloc::{Bytes, Span};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: Bytes,
}

impl Count {
    /// One more packet of this size.
    pub fn add(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size;
    }

    /// One packet of this size less.
    pub fn remove(&mut self, size: Bytes) {
        self.packets = self.packets.saturating_sub(1);
        self.bytes -= size;
    }
}

/// Packets dropped, by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Drops {
    /// The queue was full.
    pub queue: Count,
    /// Lost on the wire, at random or in a burst.
    pub loss: Count,
    /// The link was down, or went down while they waited.
    pub down: Count,
    /// Larger than the link carries.
    pub mtu: Count,
    /// The policer had too few tokens.
    pub policer: Count,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> Count {
        let all = [self.queue, self.loss, self.down, self.mtu, self.policer];
        all.iter().fold(Count::default(), |sum, d| Count {
            packets: sum.packets + d.packets,
            bytes: sum.bytes + d.bytes,
        })
    }
}

/// A link's counters since it was made. Always: `offered = carried + drops`; `duplicated` comes
/// on top of `carried`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets that came to the link.
    pub offered: Count,
    /// Packets that the link brings to its far end, each counted once.
    pub carried: Count,
    /// Second copies that it brings too.
    pub duplicated: Count,
    /// Packets that it does not bring.
    pub drops: Drops,
    /// Most bytes that waited at once, without the packet in service.
    pub queue_max: Bytes,
    /// The longest wait before service.
    pub wait_max: Span,
    /// Sum over packets of size times wait, in byte nanoseconds: the integral of the bytes that
    /// wait. Counted when a packet is accepted.
    pub byte_nanos: u128,
    /// Time spent sending; counted when a packet is accepted.
    pub busy: Span,
}

impl LinkStats {
    /// The mean number of bytes that waited over `elapsed`.
    pub fn queue_mean(&self, elapsed: Span) -> Bytes {
        let nanos = u128::from(elapsed.as_nanos().max(1));
        Bytes(u64::try_from(self.byte_nanos / nanos).unwrap_or(u64::MAX))
    }
}
