//! A host's capacity that follows what is measured while a scenario file runs.
//!
//! The thesis proposes two such capacities without a rule: one that comes down where all sessions
//! lose (X.3.D), and one that leaves the TCP traffic of a shared link its room (VIII.1.B). Both are
//! the daemon's, by the same code, at the same times. They see what a program at that host would:
//! counts of its own sessions, and what its interface counts in all. They know no entry.

use crate::scenario::model::{HostEntry, NodeKind, Scenario};
use crate::scenario::protocol::Protocol;
use gtp_alloc::room::Room;
use gtp_alloc::strain::{LOOK, LOSING, PACKETS_LEAST, Strain, Toll};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_sim::packet::{Action, NodeId, SessionId, World};
use serde::Deserialize;

/// Whose capacity to receive, and what it follows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// The host's name; what it states as `capacity_in` is the most that is shared out.
    pub host: String,
    /// What it follows.
    pub follows: Followed,
}

/// What a capacity follows.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Followed {
    /// What all its sessions lose; it comes back when they do not.
    Loss,
    /// The same, but it never comes back.
    LossDown,
    /// What else the interface carries, which is the TCP traffic: the daemon's room for others.
    Others,
}

/// The capacity of one run.
pub struct Warden {
    host: NodeId,
    followed: Followed,
    full: Rate,
    /// The host's sessions and whether they are the project's own.
    sessions: Vec<(SessionId, Kin)>,
    strain: Strain,
    room: Room,
    looked: Time,
    /// Of each session, packets and bytes that came and packets that were lost, at the last look.
    counted: Vec<(u64, Bytes, u64)>,
    /// What was shared out, as a part of the full capacity, from each moment on.
    pub shared: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kin {
    Own,
    Other,
}

/// What an interface counts of a packet beside its IP bytes: an Ethernet's header.
const FRAME: u64 = 14;

impl Warden {
    /// For a scenario.
    ///
    /// # Errors
    /// If it has no such host, or one without a capacity.
    pub fn new(follow: &Follow, scenario: &Scenario) -> Result<Warden, String> {
        let place = scenario.nodes.iter().position(|node| node.name == follow.host);
        let place = place.ok_or_else(|| format!("there is no host {:?}", follow.host))?;
        let NodeKind::Host(HostEntry { capacity_in: full, .. }) = scenario.nodes[place].kind else {
            return Err(format!("{:?} is no host", follow.host));
        };
        if full.is_unlimited() {
            return Err(format!("host {:?} states no capacity_in", follow.host));
        }
        let here = scenario.sessions.iter().enumerate().filter(|(_, s)| s.sink == place);
        let kin = |protocol| if protocol == Protocol::Gtp { Kin::Own } else { Kin::Other };
        let sessions: Vec<(SessionId, Kin)> =
            here.map(|(k, session)| (SessionId(k as u32), kin(session.protocol))).collect();
        Ok(Warden {
            host: NodeId(place as u32),
            followed: follow.follows,
            full,
            counted: vec![(0, Bytes::ZERO, 0); sessions.len()],
            sessions,
            strain: Strain::default(),
            room: Room::new(full, Rate::ZERO),
            looked: Time::ZERO,
            shared: vec![(0.0, 1.0)],
        })
    }

    /// Looks at the world, if it is time, and sets the capacity.
    ///
    /// # Errors
    /// What the world says if it does not take it.
    pub fn look(&mut self, world: &mut World) -> Result<(), String> {
        let span = world.now().since(self.looked);
        let capacity = match self.followed {
            Followed::Loss | Followed::LossDown | Followed::Others if span < LOOK => return Ok(()),
            Followed::Loss => self.by_loss(world, span),
            Followed::LossDown => self.by_loss(world, span).min(self.now()),
            Followed::Others => self.beside_others(world, span),
        };
        self.looked = world.now();
        self.shared.push((
            self.looked.since(Time::ZERO).as_secs_f64(),
            capacity.as_f64() / self.full.as_f64(),
        ));
        let action = Action::Capacity { host: self.host, out: None, in_: Some(capacity) };
        world.at(world.now(), action).map_err(|e| e.to_string())
    }

    /// What is shared out now.
    fn now(&self) -> Rate {
        self.shared.last().map_or(self.full, |(_, part)| self.full.scale(*part))
    }

    /// What came of each session of a kin since the last look, and what was lost.
    fn news(&mut self, world: &World, kin: Kin) -> Vec<(u64, Bytes, u64)> {
        let sessions = self.sessions.iter().zip(&mut self.counted);
        let news = sessions.filter(|((_, of), _)| *of == kin).filter_map(|((id, _), counted)| {
            let status = world.session(*id)?;
            let now = (status.received_packets, status.received_bytes, status.lost);
            let before = std::mem::replace(counted, now);
            Some((now.0 - before.0, now.1 - before.1, now.2.saturating_sub(before.2)))
        });
        news.collect()
    }

    /// X.3.D, as the daemon does it.
    fn by_loss(&mut self, world: &World, span: Span) -> Rate {
        let mut toll = Toll::default();
        for (packets, bytes, lost) in self.news(world, Kin::Own) {
            let all = packets + lost;
            toll.moving += usize::from(all >= PACKETS_LEAST);
            let losing = lost as f64 > LOSING * all as f64;
            toll.losing += usize::from(all >= PACKETS_LEAST && losing);
            toll.through += bytes;
        }
        self.strain.look(self.full, span, toll)
    }

    /// VIII.1.B, as the daemon does it. Sessions say little beside data that arrive in number.
    fn beside_others(&mut self, world: &World, span: Span) -> Rate {
        let (mut all, mut own) = (0, 0);
        for (id, kin) in &self.sessions {
            let Some(status) = world.session(*id) else { continue };
            all += status.received_bytes.0 + FRAME * status.received_packets;
            if *kin == Kin::Own {
                own += status.received_bytes.0;
            }
        }
        self.room.look(span, Bytes(all), Bytes(own), Bytes::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course;
    use crate::refusal::Refusal;
    use crate::scenario::{Document, Overrides};

    const FILE: &str = "duration = '4s'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n\
        capacity_in = '100Mbit'\n[[link]]\nname = 'l'\nfrom = 'a'\nto = 'b'\n\
        rate = '80Mbit'\nqueue = '1ms'\n[[link]]\nname = 'm'\nfrom = 'b'\nto = 'a'\n\
        [[session]]\nsource = 'a'\nsink = 'b'\ncount = 2\n";

    fn followed(file: &str, host: &str, follows: Followed) -> Result<Vec<f64>, String> {
        let document = Document::parse("x", file).expect("a file");
        let scenario = document.scenario(Overrides::default()).expect("a scenario");
        let mut warden = Warden::new(&Follow { host: host.to_owned(), follows }, &scenario)?;
        let mut look = |world: &mut World| warden.look(world).map_err(Refusal::Input);
        course::watched(&scenario, &mut look).expect("a run");
        Ok(warden.shared.iter().map(|(_, part)| *part).collect())
    }

    #[test]
    fn a_capacity_comes_down_to_what_comes_through_and_only_then_comes_back() {
        let down = followed(FILE, "b", Followed::LossDown).expect("a run");
        let end = down[down.len() - 1];
        assert!((0.7..0.81).contains(&end), "80 of 100 Mbit/s: {down:?}");
        assert!(down.windows(2).all(|two| two[1] <= two[0]), "{down:?}");
        let back = followed(FILE, "b", Followed::Loss).expect("a run");
        assert!(back.windows(2).any(|two| two[1] > two[0]), "{back:?}");
    }

    #[test]
    fn beside_tcp_room_is_left_for_it_and_half_is_kept_at_least() {
        let file = format!(
            "{FILE}demand = '20Mbit'\n[[session]]\nname = 't'\nsource = 'a'\nsink = 'b'\n\
                            protocol = 'sack'\nwindow = '64KB'\n"
        );
        let shared = followed(&file, "b", Followed::Others).expect("a run");
        assert!(shared.iter().any(|part| *part < 0.95), "{shared:?}");
        assert!(shared.iter().all(|part| *part >= 0.5), "{shared:?}");
        let alone = followed(FILE, "b", Followed::Others).expect("a run");
        assert!(alone.iter().all(|part| *part == 1.0), "nobody else is there: {alone:?}");
    }

    #[test]
    fn a_host_that_is_not_there_or_states_nothing_is_refused() {
        assert!(followed(FILE, "c", Followed::Loss).is_err());
        assert!(followed(FILE, "a", Followed::Loss).is_err());
    }
}
