//! The host's capacities: what other traffic leaves of them, and what all sessions' losses do.
//!
//! The interface's counters say what is moved in all; the sessions' reports say how much of it is
//! theirs.
//! This module must not know connections or processes, only the hub's sums.

use std::path::PathBuf;

use gtp_alloc::room::Room;
use gtp_alloc::strain::{LOOK, Strain};
use gtp_alloc::{Bytes, Rate, Time};
use gtp_share::Side;

use super::DaemonConfig;
use crate::hub::Hub;

/// The capacities beside what else goes over an interface, and after what all sessions lose.
#[derive(Debug)]
pub(super) struct Beside {
    counters: Option<[PathBuf; 2]>,
    rooms: [Room; 2],
    strains: [Strain; 2],
    looked: Time,
}

impl Beside {
    pub(super) fn new(now: Time, config: &DaemonConfig) -> Beside {
        let counter = |interface: &String, name: &str| {
            PathBuf::from("/sys/class/net").join(interface).join("statistics").join(name)
        };
        let both = |i| [counter(i, "tx_bytes"), counter(i, "rx_bytes")];
        Beside {
            counters: config.interface.as_ref().map(both),
            rooms: [config.hub.capacity_out, config.hub.capacity_in]
                .map(|full| Room::new(full, config.reserve)),
            strains: [Strain::default(), Strain::default()],
            looked: now,
        }
    }

    pub(super) fn poll_timeout(&self, hub: &Hub) -> Time {
        let of_use = hub.poll_timeout() != Time::MAX;
        if of_use { self.looked + LOOK } else { Time::MAX }
    }

    pub(super) fn look(&mut self, now: Time, hub: &mut Hub) {
        if self.poll_timeout(hub) > now {
            return;
        }
        let span = now.since(self.looked);
        self.looked = now;
        let (out, in_) = hub.moved();
        let mut capacities = [Rate::ZERO; 2];
        let said = hub.said(span);
        let (own, sides) = ([out, in_], [Side::Source, Side::Sink]);
        for (i, room) in self.rooms.iter_mut().enumerate() {
            // Without a counter nothing is known of others.
            let counter = self.counters.as_ref().map(|counters| &counters[i]);
            let all = counter.and_then(|path| std::fs::read_to_string(path).ok());
            let capacity = match all.and_then(|text| text.trim().parse().ok()) {
                Some(all) => room.look(span, Bytes(all), own[i], said),
                None => room.capacity(),
            };
            capacities[i] = self.strains[i].look(capacity, span, hub.toll(sides[i], span));
        }
        hub.set_capacity(capacities[0], capacities[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{CAPACITY, attach, config, posted};
    use super::*;
    use crate::hub::HubConfig;
    use gtp_alloc::Span;

    #[test]
    fn a_process_that_says_to_have_moved_everything_takes_nothing_off_the_capacity() {
        let dir = tempfile::tempdir().unwrap();
        let counters = ["tx", "rx"].map(|name| dir.path().join(name));
        let mut now = Time::from_nanos(1_000_000_000);
        let config = DaemonConfig { interface: Some("given".into()), ..config() };
        let mut beside = Beside::new(now, &config);
        beside.counters = Some(counters.clone());
        let mut hub = Hub::new(now, &HubConfig { grace: Span::ZERO, ..config.hub });
        let (liar, _) = attach(&mut hub, now, 1);
        let (honest, _) = attach(&mut hub, now, 2);
        for look in 0..20_u64 {
            let moved = Rate::from_mbps(900).bytes_in(LOOK).0 * look;
            for counter in &counters {
                std::fs::write(counter, format!("{moved}\n")).unwrap();
            }
            honest.post(0, &posted(moved));
            liar.post(0, &posted(if look % 2 == 0 { 0 } else { u64::MAX }));
            hub.wake(now);
            hub.tick(now, &mut Vec::new());
            beside.look(now, &mut hub);
            assert_eq!(hub.capacity().1, CAPACITY, "look {look}");
            now += LOOK;
        }
    }
}
