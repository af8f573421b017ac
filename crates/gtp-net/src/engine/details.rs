//! What a session tells beside its report: for the host's daemon and for people.
//!
//! On whose behalf it runs decides with whom it shares: at a host that serves, that is the client,
//! known by its key if that is on the list, since anybody can make keys, else by the prefix of its
//! address. Names and counters are only shown.

use std::net::IpAddr;

use gtp_proto::path::Standing;
use gtp_proto::{LimitedBy, SinkSession, SourceSession};
use gtp_share::{KEYS, Label};

use super::api::Way;
use super::table::{Session, Side};

/// What goes on a page with a session's report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Details {
    pub principal: u64,
    pub transfer: u64,
    pub limited_by: LimitedBy,
    pub path: Option<Standing>,
    pub way: Way,
    pub packets: u64,
    pub lost: u64,
    pub wire_bytes: u64,
    pub label: Label,
}

impl Session {
    /// What its host's daemon should know beside its report.
    pub fn details(&self) -> Details {
        let principal = match self.envelope.principal() {
            0 => self.envelope.client().map_or(0, principal),
            key => key,
        };
        let own = u64::from(self.flow);
        let sends = |core: &SourceSession| {
            let counters = core.counters();
            let path = Some(core.path_standing());
            ((core.limited_by(), path), (counters.delivered, counters.lost), counters.bytes)
        };
        let receives = |core: &SinkSession| {
            let counters = core.counters();
            ((core.limited_by(), None), (counters.packets, counters.lost), counters.bytes)
        };
        let (transfer, said, label) = match &self.side {
            Side::Source(source) => (own, sends(&source.core), source.label()),
            Side::Sink(sink) => (u64::from(sink.transfer), receives(&sink.core), sink.label()),
            Side::StreamSource(source) => (own, sends(&source.core), source.label()),
            Side::StreamSink(sink) => (own, receives(&sink.core), sink.label()),
        };
        let label = Label::new(label);
        let ((limited_by, path), (packets, lost), wire_bytes) = said;
        let way = self.envelope.way();
        Details { principal, transfer, limited_by, path, way, packets, lost, wire_bytes, label }
    }
}

/// The number of a client: of its IPv4 address, or of the first half of its IPv6 address, of which
/// it can take the second half as it likes. Never zero, which is this host's own user, nor the
/// number of a key.
pub(super) fn principal(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => 1 << 32 | u64::from(v4.to_bits()),
        IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64 & !KEYS).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_one_whatever_the_second_half_of_its_address() {
        let of = |text: &str| principal(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("::"), 0);
    }
}
