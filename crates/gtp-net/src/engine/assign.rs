//! Who is asked for what: the transfer's regular look at its sessions.
//!
//! Each session gets as much new work as its rate will bring soon, the lowest units first, within
//! memory and the sink's window; where memory is short they take turns. Sessions that fall silent
//! or would end late give theirs back.

use gtp_alloc::{Span, Time};
use gtp_proto::group::Member;
use gtp_proto::{FlowId, Group};
use gtp_store::{Row, Window};

use super::api::TransferEvent;
use super::sink_side::{IDLE_MOST, PATIENCE, SILENCE_MOST, State};
use super::table::Table;
use super::transfer::{Phase, Transfer, live, only};

/// A session is given more work when it wants this part of what it has: small requests cost as
/// much as large ones.
const REFILL: u64 = 4;

/// How long a block that every source there is has spoilt is kept wanted: a lost source that comes
/// back within a few tries may have it.
const HOPE: Span = Span::from_secs(10);

impl Transfer {
    /// Gives work to the sessions that have too little.
    pub fn top_up(&mut self, now: Time, interval: Span, table: &mut Table) {
        self.dirty = false;
        if self.phase != Phase::Moving {
            return;
        }
        self.ask_suspects(now, table);
        let mut refused = None;
        for at in (self.turn..self.flows.len()).chain(0..self.turn) {
            let flow = self.flows[at].flow;
            let Some(plan) = &self.plan else { return };
            let Some(sink) = table.sink(flow) else { continue };
            if sink.state != State::Live {
                continue;
            }
            let member = sink.worker(interval);
            let packet = sink.packet(plan.row.unit_payload());
            let wanted = Group::appetite(&member, packet);
            let asks = wanted * REFILL >= member.outstanding && wanted > 0;
            if asks && !self.assign(now, flow, wanted, table) {
                refused = refused.or(Some(at));
            }
        }
        // Whoever comes first may take all memory that is free, and want as much again for what it
        // brings: so next comes first who got nothing.
        self.turn = refused.unwrap_or(self.turn);
    }

    /// Asks one session alone for each block that several had brought and that was bad.
    fn ask_suspects(&mut self, now: Time, table: &mut Table) {
        let Some(plan) = &mut self.plan else { return };
        for first in plan.suspects.unasked() {
            let able = live(&self.flows, table)
                .filter(|&flow| table.sink(flow).is_some_and(|sink| sink.state == State::Live))
                .filter(|&flow| !plan.group.is_barred(flow, first));
            let Some(flow) = plan.suspects.choose(able) else { continue };
            let Some(units) = plan.suspects.ask(now, first, flow) else { continue };
            plan.assembly.open(&plan.row, first);
            if let Some(sink) = table.sink_mut(now, flow) {
                sink.core.assign(units);
            }
        }
    }

    /// Gives one session work for so many units, or fewer. `false`: it got none for want of memory.
    fn assign(&mut self, now: Time, flow: FlowId, mut wanted: u64, table: &mut Table) -> bool {
        let asked = wanted;
        while wanted > 0 {
            let (writing, waiting) = (self.writing.len(), self.writing_bytes);
            let (most, window) = (self.most_blocks, self.window);
            let Some(plan) = &mut self.plan else { return true };
            let row = &plan.row;
            let limit = unit_limit(row, window);
            let block_end = |unit| row.block_of(unit).map_or(unit + 1, |units| units.end);
            let Some(range) = plan.group.take(flow, limit, block_end) else { return true };
            let held = plan.assembly.len() + writing;
            // Blocks behind the front were begun before, and waiting for them frees memory.
            let bytes = waiting + plan.assembly.bytes();
            let full = held >= most || self.backlog.is_full(now, waiting, bytes);
            if range.start >= plan.front && full {
                plan.group.give_back(&only(range));
                self.note_memory_limit(now, held);
                return wanted < asked;
            }
            plan.assembly.open(row, range.start);
            plan.front = plan.front.max(range.end);
            wanted = wanted.saturating_sub(range.end - range.start);
            if let Some(sink) = table.sink_mut(now, flow) {
                sink.core.assign(range);
            }
        }
        true
    }

    /// The regular look: silence, work given back, the tail.
    pub fn upkeep(&mut self, now: Time, interval: Span, table: &mut Table) {
        if self.phase == Phase::Moving {
            self.check_silence(now, table);
            self.check_idle(now, table);
            self.collect_dropped(now, table);
            self.check_tail(now, interval, table);
            self.check_stalled(table);
            self.check_lost(table);
            self.check_spoilt(now, table);
        }
        self.top_up(now, interval, table);
    }

    fn check_silence(&mut self, now: Time, table: &mut Table) {
        let silence =
            |flow| table.sink(flow).map(|sink| (flow, sink.core.silence(now), sink.state));
        let all: Vec<_> = live(&self.flows, table).filter_map(silence).collect();
        let heard = |state| state == State::Live || state == State::Dropping;
        let anyone = all.iter().any(|&(_, silence, state)| heard(state) && silence < PATIENCE);
        for (flow, silence, state) in all {
            if state == State::Opening {
                continue;
            }
            if silence >= SILENCE_MOST {
                self.lose(now, flow, "nothing was heard for 10 s", table);
            } else if silence >= PATIENCE && anyone && heard(state) {
                let missing = table.sink_mut(now, flow).map(|sink| sink.fall_silent());
                self.take_back(flow, &missing.unwrap_or_default());
            }
        }
    }

    /// A source that talks and brings nothing must not hold up the others.
    fn check_idle(&mut self, now: Time, table: &mut Table) {
        let flows: Vec<FlowId> = live(&self.flows, table).collect();
        let mut idle = Vec::new();
        let mut anyone = false;
        for flow in flows {
            let Some(sink) = table.sink_mut(now, flow) else { continue };
            if sink.idle(now) >= IDLE_MOST {
                idle.push(flow);
            } else if sink.state == State::Live && sink.core.silence(now) < PATIENCE {
                anyone = true;
            }
        }
        for flow in idle.into_iter().filter(|_| anyone) {
            self.lose(now, flow, "it sends nothing that was asked for", table);
        }
    }

    /// Sessions that have let go of their work can be given new work.
    fn collect_dropped(&mut self, now: Time, table: &mut Table) {
        let flows: Vec<FlowId> = live(&self.flows, table).collect();
        for flow in flows {
            let Some(sink) = table.sink_mut(now, flow) else { continue };
            let back = match sink.state {
                State::Dropping => sink.core.poll_dropped(),
                State::Silent if sink.core.silence(now) < PATIENCE => sink.core.poll_dropped(),
                State::Silent | State::Opening | State::Live | State::Parting => None,
            };
            if let Some(missing) = back {
                sink.state = State::Live;
                self.take_back(flow, &missing);
            }
        }
    }

    /// A block that every source there is has spoilt cannot be had, unless another comes soon.
    fn check_spoilt(&mut self, now: Time, table: &mut Table) {
        let Some(plan) = &self.plan else { return };
        let left: Vec<FlowId> = live(&self.flows, table).collect();
        // Whoever brought what is at the writer may be gone.
        let refused = |first| {
            !self.writing.contains_key(&first)
                && left.iter().all(|&flow| plan.group.is_barred(flow, first))
        };
        let lost = plan.suspects.spoilt().find(|&(first, _)| refused(first));
        let Some((first, flow)) = lost.filter(|_| !left.is_empty()) else {
            self.hopeless_since = None;
            return;
        };
        let since = *self.hopeless_since.get_or_insert(now);
        if now.since(since) < HOPE {
            return;
        }
        if let Some(place) = plan.row.locate(first) {
            let (file, block) = (place.file, place.block);
            self.outbox.push(TransferEvent::Unobtainable { flow, file, block });
            self.stop(now, table);
        }
    }

    /// At the end of an object: a session that would be busy long after the others lets go. Not
    /// so one that is asked for a block alone, all of which would have to come anew.
    fn check_tail(&mut self, now: Time, interval: Span, table: &mut Table) {
        let Some(plan) = &self.plan else { return };
        let mut packet = None;
        let members: Vec<Member> = live(&self.flows, table)
            .filter_map(|flow| table.sink(flow))
            .filter(|sink| sink.state == State::Live)
            .filter(|sink| !plan.suspects.is_spared(sink.flow, now))
            .map(|sink| {
                packet = Some(sink.packet(plan.row.unit_payload()));
                sink.member(interval)
            })
            .collect();
        let Some(packet) = packet else { return };
        if let Some(late) = plan.group.overloaded(&members, packet)
            && let Some(sink) = table.sink_mut(now, late)
        {
            sink.core.ask_drop();
            sink.state = State::Dropping;
        }
    }
}

/// The first unit that the sink does not take yet.
fn unit_limit(row: &Row, window: Window) -> u64 {
    match window {
        Window::Any => row.units(),
        Window::Blocks { end, .. } => {
            row.block_units(0, end).map_or(row.units(), |units| units.start)
        }
    }
}
