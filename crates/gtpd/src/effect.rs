//! The effect of a change by `gtp set`, in words for the user who made it.
//!
//! A change that can have no effect is not an error, but the user should learn the reason. This
//! module only words the effect; [`crate::hub`] makes the change.

use gtp_alloc::Rate;
use gtp_proto::{FlowId, LimitedBy};
use gtp_share::{Change, Of, Side};

use crate::hub::Hub;
use crate::seats::Seat;

/// What a session had before a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Had {
    /// Its share of the weights of its direction.
    part: f64,
}

impl Hub {
    /// What a session has, to be compared after a change.
    pub(crate) fn has(&mut self, session: FlowId) -> Had {
        self.weigh_all();
        let (part, _) = self.part(session).unwrap_or_default();
        Had { part }
    }

    /// The effect of a change of this session, in words.
    pub(crate) fn effect(&mut self, session: FlowId, change: Change, had: Had) -> Option<String> {
        self.weigh_all();
        let (part, others) = self.part(session)?;
        let seat = self.seat(session)?;
        let moves = match seat.posted.side {
            Side::Source => "sends",
            Side::Sink => "receives",
        };
        let mut said = Vec::new();
        if change.weight.is_some() && others == 0 {
            said.push(format!(
                "it is the only session that this host {moves}: its weight counts when there are \
                 others"
            ));
        } else if change.weight.is_some() && (part - had.part).abs() < 1e-9 {
            said.push(
                "its part stays: its weight counts among the transfers and clients of its user, \
                 and there is no other"
                    .to_owned(),
            );
        } else if change.weight.is_some() || change.policy.is_some() {
            said.push(format!(
                "its part of what this host {moves} is {:.1} %, and was {:.1} %",
                part * 100.0,
                had.part * 100.0
            ));
        }
        said.extend(limits(seat, change));
        Some(format!("session {session}: {}", said.join("; "))).filter(|_| !said.is_empty())
    }

    fn seat(&self, session: FlowId) -> Option<&Seat> {
        let seats = self.clients.values().flat_map(|client| client.seats.iter());
        seats.map(|(_, seat)| seat).find(|seat| seat.flow == session)
    }

    /// A session's share of the weights of its direction, and the number of other sessions there.
    fn part(&self, session: FlowId) -> Option<(f64, usize)> {
        let seat = self.seat(session)?;
        let seats = self.clients.values().flat_map(|client| client.seats.iter());
        let same = seats.filter(|(_, other)| other.posted.side == seat.posted.side);
        let (sum, count) =
            same.fold((0.0, 0), |(sum, count), (_, one)| (sum + one.flat, count + 1));
        Some((seat.flat / sum, count - 1))
    }
}

/// Why a change of this session has no effect now.
fn limits(seat: &Seat, change: Change) -> Option<String> {
    let moved = seat.posted.report.measured;
    if let (Of::Session, Some(most @ 1..)) = (change.of, change.max_rate)
        && moved < Rate::from_bps(most)
    {
        let mbps = moved.as_f64() / 1e6;
        return Some(format!("it moves {mbps:.1} Mbit/s, less than its new limit"));
    }
    change.weight?;
    let why = match seat.posted.limited_by {
        LimitedBy::Demand => "it has no more to send, or a limit of its own",
        LimitedBy::Path => "its path carries no more",
        LimitedBy::Disk if seat.posted.side == Side::Source => "the other end's disk takes no more",
        LimitedBy::Disk => "the disk of this host takes no more",
        LimitedBy::Router => "a router's link carries no more for it",
        LimitedBy::Source | LimitedBy::Sink => return None,
    };
    Some(format!("{why}, so that a greater weight brings it nothing now"))
}
