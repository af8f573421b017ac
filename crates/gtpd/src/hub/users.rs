//! What users have, said anew while their sessions run.
//!
//! Weights, limits and guarantees of users are the operator's and come from the daemon's settings;
//! those of transfers and sessions came from `gtp set` and stay. Where the settings come from, and
//! when they are read again, is unknown here.

use gtp_alloc::Time;

use super::{Hub, HubConfig};

impl Hub {
    /// Users have these weights, limits and guarantees from now on. All sessions have their shares
    /// by them in the next tick; what `gtp set` gave transfers and sessions stays.
    pub fn set_users(&mut self, now: Time, config: &HubConfig) {
        let limits_changed = self.bounds.set_users(&config.least, &config.most);
        if self.users == config.users && !limits_changed {
            return;
        }
        self.users.clone_from(&config.users);
        self.unpromised = true;
        self.out.stale = true;
        self.in_.stale = true;
        self.wake(now);
    }
}
