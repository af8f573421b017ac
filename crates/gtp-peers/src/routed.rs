//! Window laws that routers steer, by name, with what belongs to them beside the law.
//!
//! Whoever builds a network of rivals needs the same three things of each: the law, how its ends
//! repair losses, and routers, which stand at links and are made there. This is the first two.

use alloc::boxed::Box;

use gtp_alloc::Bytes;

use crate::tcp::{Law, ReceiverConfig, Recovery, SenderConfig};
use crate::{aecp, vcp, xcp};

/// A law whose window routers decide; which routers, is for the network to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// XCP's, and so endpointXCP's.
    Xcp,
    /// VCP's.
    Vcp,
    /// AECP's, with the paper's gains.
    Aecp,
}

impl Routed {
    /// Its law.
    #[must_use]
    pub fn law(self) -> Box<dyn Law> {
        match self {
            Routed::Xcp => Box::new(xcp::Law::new()),
            Routed::Vcp => Box::new(vcp::Law::new()),
            Routed::Aecp => Box::new(aecp::Law::new(aecp::Gains::PAPER)),
        }
    }

    /// Bytes of its own header, between the network's and the transport's.
    fn header(self) -> Bytes {
        match self {
            // XCP's header and VCP's two bits: ns-2, by which papers have their results, sends
            // them beside a packet's bytes.
            Routed::Xcp | Routed::Vcp => Bytes::ZERO,
            // AECP, 5.1.
            Routed::Aecp => Bytes(aecp::HEADER_LEN as u64),
        }
    }

    /// `config` with the recovery and the header that belong to the law.
    #[must_use]
    pub fn adapt(self, config: SenderConfig) -> SenderConfig {
        let recovery = match self {
            // XCP of ns-2, by which papers have their results, is a Reno.
            Routed::Xcp => Recovery::Reno,
            Routed::Vcp | Routed::Aecp => Recovery::Sack,
        };
        SenderConfig { recovery, header: config.header + self.header(), ..config }
    }

    /// `config` with the header that belongs to the law: acknowledgments bring it back.
    #[must_use]
    pub fn adapt_receiver(self, config: ReceiverConfig) -> ReceiverConfig {
        ReceiverConfig { header: config.header + self.header(), ..config }
    }
}
