//! How much of a router's table is taken, in all and by each source address.
//!
//! Names of hosts and of sessions are drawn by whoever has the key, and an address is not: a host
//! only counts at an address at which it has received a pass. So one host fills no more than its
//! part of the table. The one idea is a count; what is counted is not known here.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::limits::{
    ROUTER_HOSTS, ROUTER_HOSTS_OF_ADDRESS, ROUTER_SESSIONS, ROUTER_SESSIONS_OF_ADDRESS,
};

/// What is taken of the table.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    all: Taken,
    by: BTreeMap<IpAddr, Taken>,
}

/// Places that are taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    hosts: usize,
    sessions: usize,
}

impl Occupancy {
    /// Takes a place for a host at this address; `false` if there is none for it.
    pub fn add_host(&mut self, at: IpAddr) -> bool {
        let of_address = self.of(at).hosts;
        let has_room = self.all.hosts < ROUTER_HOSTS && of_address < ROUTER_HOSTS_OF_ADDRESS;
        if has_room {
            self.all.hosts += 1;
            self.by.entry(at).or_default().hosts += 1;
        }
        has_room
    }

    /// A host that has no session any more is gone.
    pub fn remove_host(&mut self, at: IpAddr) {
        self.all.hosts -= 1;
        self.take_from(at, Taken { hosts: 1, sessions: 0 });
    }

    /// A host with so many sessions has another address now; `false` if there is no room for it
    /// there, and all stays as it was.
    pub fn move_host(&mut self, from: IpAddr, to: IpAddr, sessions: usize) -> bool {
        if from == to {
            return true;
        }
        let there = self.of(to);
        let has_room = there.hosts < ROUTER_HOSTS_OF_ADDRESS
            && there.sessions + sessions <= ROUTER_SESSIONS_OF_ADDRESS;
        if has_room {
            self.take_from(from, Taken { hosts: 1, sessions });
            let there = self.by.entry(to).or_default();
            (there.hosts, there.sessions) = (there.hosts + 1, there.sessions + sessions);
        }
        has_room
    }

    /// Takes a place for a session of a host at this address; `false` if there is none for it.
    pub fn add_session(&mut self, at: IpAddr) -> bool {
        let of_address = self.of(at).sessions;
        let has_room =
            self.all.sessions < ROUTER_SESSIONS && of_address < ROUTER_SESSIONS_OF_ADDRESS;
        if has_room {
            self.all.sessions += 1;
            self.by.entry(at).or_default().sessions += 1;
        }
        has_room
    }

    /// A session of a host at this address is gone.
    pub fn remove_session(&mut self, at: IpAddr) {
        self.all.sessions -= 1;
        self.take_from(at, Taken { hosts: 0, sessions: 1 });
    }

    fn of(&self, at: IpAddr) -> Taken {
        self.by.get(&at).copied().unwrap_or_default()
    }

    fn take_from(&mut self, at: IpAddr, less: Taken) {
        if let Some(taken) = self.by.get_mut(&at) {
            (taken.hosts, taken.sessions) =
                (taken.hosts - less.hosts, taken.sessions - less.sessions);
            if taken.hosts == 0 {
                self.by.remove(&at);
            }
        }
    }
}
