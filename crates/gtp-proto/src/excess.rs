//! Whether a source keeps to its grants, seen from the sink.
//!
//! Sealed packets that come faster than was granted are the peer's own doing, but a path that stood
//! still can bring late and at once what was sent in time: at most what one lease allowed. So
//! the amount that comes in two leases is judged, not its pace: twice what was granted is more
//! than half a lease's worth above anything an honest source on such a path can bring.

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::meter::{Meter, WindowedMax};

/// This many times the largest grant of late is too much.
const TIMES: f64 = 2.0;
/// So much beside it is allowed, so that sessions at rest are not judged by a few packets.
const BESIDE: Rate = Rate::from_mbps(2);
/// Rates are judged on average over this many leases.
const LEASES: u64 = 2;

/// Watches one source.
#[derive(Debug)]
pub(crate) struct Excess {
    granted: WindowedMax,
    received: Meter,
}

impl Excess {
    pub fn new(now: Time) -> Excess {
        let granted = WindowedMax::new(now, Span::from_secs(1));
        Excess { granted, received: Meter::new(now) }
    }

    /// Packets of `bytes` on the wire arrived.
    pub fn received(&mut self, bytes: Bytes) {
        self.received.add(bytes);
    }

    /// Ends an interval under the newest grant; says whether far more came than was granted.
    pub fn check(&mut self, now: Time, granted: Rate, lease: Span) -> bool {
        // What came in a window may have been granted in the one before it.
        self.granted.set_window(lease * (2 * LEASES));
        self.granted.add(now, granted);
        let most = self.granted.max(now).scale(TIMES).saturating_add(BESIDE);
        self.received.roll(now, lease * LEASES) && self.received.rate() > most
    }
}
