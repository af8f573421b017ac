//! The round of one direction: its sessions report, its agent decides, and they hear what.
//!
//! Whoever else has a say comes in between: path groups before the reports, and the routers that a
//! session crosses before and after its agent.

use gtp_alloc::Time;
use gtp_proto::Direction;
use gtp_proto::agent::Side as AgentSide;
use gtp_proto::direction::Round;

use super::routing::Routing;
use crate::engine::allotter::Allotter;
use crate::engine::table::Table;

/// Has the agent of one direction decide, if it is time, and its sessions hear what.
pub(super) fn tick(
    direction: &mut Direction<Allotter>,
    now: Time,
    table: &mut Table,
    mut routing: Option<&mut Routing>,
) {
    let side = direction.side();
    let Some(mut round) = direction.poll_round(now) else { return };
    if side == AgentSide::Source {
        share_paths(&mut round, now, table);
    }
    for (index, session) in table.iter_mut().filter(|(_, session)| session.direction() == side) {
        let flow = session.flow;
        if let Some((name, source)) = session.over_path() {
            round.paths().tell(now, flow, name, source);
        }
        let report = session.report(now);
        let report = match &mut routing {
            Some(routing) => routing.bound(session, report),
            None => report,
        };
        round.add(index, session.flow, report, session.activity(now));
        if let Some(details) = round.agent().wants_details() {
            details.push(session.details());
        }
    }
    for (index, grant) in round.decide() {
        if let Some(session) = table.get_mut(index) {
            let settled = routing.as_mut().map(|routing| routing.settle(session, grant));
            if let Some((_, offer)) = settled {
                session.handle_routers(offer);
            }
            session.handle_grant(now, settled.map_or(grant, |(grant, _)| grant));
        }
        table.touch(now, index);
    }
    direction.rest_if_quiet(now);
}

/// Has the sessions of each path group share what their path carries.
fn share_paths(round: &mut Round<'_, Allotter>, now: Time, table: &mut Table) {
    for (_, session) in table.iter_mut() {
        let flow = session.flow;
        if let Some((name, source)) = session.over_path() {
            round.paths().visit(now, flow, name, source);
        }
    }
    round.paths().share_out(now);
}
