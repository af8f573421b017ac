//! Whether a source keeps to its grants, seen from the sink.
//!
//! Sealed packets that come faster than was granted are the peer's own doing, but a path that stood
//! still can bring late and at once what was sent in time: at most what a lease allowed, at
//! any pace. Twice the grant for two leases on end is more than that can be, so the session ends.

use gtp_alloc::{Rate, Span, Time};

use crate::meter::WindowedMax;

/// This many times the largest grant of late is too much...
const TIMES: f64 = 2.0;
/// ... and this beside it, so that sessions at rest are not judged by a few packets...
const BESIDE: Rate = Rate::from_mbps(2);
/// ... when it lasts this many leases.
const LEASES: u64 = 2;

/// Watches one source.
#[derive(Debug)]
pub(crate) struct Excess {
    granted: WindowedMax,
    since: Option<Time>,
}

impl Excess {
    pub fn new(now: Time) -> Excess {
        Excess { granted: WindowedMax::new(now, Span::from_secs(1)), since: None }
    }

    /// The source was measured at `rate` under the newest grant, `granted`; says whether it has
    /// been too fast for too long.
    pub fn measured(&mut self, now: Time, rate: Rate, granted: Rate, lease: Span) -> bool {
        self.granted.set_window(lease * LEASES);
        self.granted.add(now, granted);
        let most = self.granted.max(now).scale(TIMES).saturating_add(BESIDE);
        if rate <= most {
            self.since = None;
            return false;
        }
        now.since(*self.since.get_or_insert(now)) >= lease * LEASES
    }
}
