//! Who is asked for what: the transfer's regular look at its sessions.
//!
//! Each session gets as much new work as its rate will bring soon, the lowest units first, within
//! memory and the sink's window; where memory is short they take turns. Sessions that fall silent
//! or would end late give theirs back.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::group::Member;
use gtp_proto::{FlowId, Group};
use gtp_store::{Row, Window};

use super::api::{Blame, TransferEvent};
use super::sink_side::{IDLE_MOST, PATIENCE, SILENCE_MOST, SinkSide, State};
use super::suspects::GRACE_MOST;
use super::table::Table;
use super::transfer::{Phase, Plan, Transfer, broke, live, only};

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
        self.starved = false;
        let mut refused = None;
        let order = (self.turn..self.flows.len()).chain(0..self.turn);
        // Who lost its work lately gets what the others leave.
        let first = order.clone().map(|at| (at, Record::Clean));
        for (at, record) in first.chain(order.map(|at| (at, Record::Struck))) {
            let flow = self.flows[at].flow;
            let ready = |sink: &SinkSide| {
                sink.state == State::Live && !sink.pauses(now) && Record::of(sink) == record
            };
            if table.sink(flow).is_some_and(ready)
                && (record == Record::Clean || self.may_try(now, flow, interval, table))
                && self.refill(now, flow, interval, table) == Got::NoMemory
            {
                refused = refused.or(Some(at));
            }
        }
        self.wake_one(now, interval, table);
        // Whoever comes first may take all memory that is free, and want as much again for what it
        // brings: so next comes first who got nothing.
        self.turn = refused.unwrap_or(self.turn);
    }

    /// Whether a session that lost its work lately may have some again: only while the others have
    /// more to do than it takes this one to bring what it would be asked for, or to have that taken
    /// back. Else all would wait for it in the end.
    fn may_try(&self, now: Time, flow: FlowId, interval: Span, table: &Table) -> bool {
        let (Some(plan), Some(struck)) = (&self.plan, table.sink(flow)) else { return false };
        let others = live(&self.flows, table).filter_map(|flow| table.sink(flow)).filter(|sink| {
            sink.state == State::Live && Record::of(sink) == Record::Clean && !sink.pauses(now)
        });
        let rate = others.fold(Rate::ZERO, |sum, sink| sum.saturating_add(sink.useful_rate()));
        let packet = struck.packet(plan.row.unit_payload());
        let bytes = |units: u64| Bytes(units.saturating_mul(packet.0));
        let left = bytes(plan.group.unassigned());
        let member = struck.worker(interval);
        let brings = bytes(Group::appetite(&member, packet)) / member.granted;
        rate == Rate::ZERO || left / rate > struck.patience() + brings
    }

    /// If no session works, one that pauses is better than none: the one with the fewest strikes.
    fn wake_one(&mut self, now: Time, interval: Span, table: &mut Table) {
        let sinks = live(&self.flows, table).filter_map(|flow| table.sink(flow));
        let mut pausing = Vec::new();
        for sink in sinks.filter(|sink| sink.state == State::Live) {
            if sink.core.outstanding() > 0 {
                return;
            }
            if sink.pauses(now) {
                pausing.push((sink.strikes(), sink.flow));
            }
        }
        pausing.sort_unstable();
        let mut gets_some =
            |&(_, flow): &(u32, FlowId)| self.refill(now, flow, interval, table) == Got::Work;
        // Who may not have what is left is passed over.
        let _ = pausing.iter().find(|&one| gets_some(one));
    }

    /// Gives one session as much work as it wants, if that is enough to ask for.
    fn refill(&mut self, now: Time, flow: FlowId, interval: Span, table: &mut Table) -> Got {
        let (Some(plan), Some(sink)) = (&self.plan, table.sink(flow)) else { return Got::Nothing };
        let member = sink.worker(interval);
        let wanted = Group::appetite(&member, sink.packet(plan.row.unit_payload()));
        if wanted == 0 || wanted * REFILL < member.outstanding {
            return Got::Enough;
        }
        if let Some(sink) = table.sink_mut(now, flow) {
            sink.note_done();
        }
        let got = self.assign(now, flow, wanted, table);
        let others_hold_all = match got {
            Got::Work | Got::Enough => false,
            Got::Nothing => true,
            Got::NoMemory => self.writing.is_empty(),
        };
        let at_hand = || table.sink(flow).is_some_and(|sink| sink.is_at_hand(now));
        let offers = || self.plan.as_ref().is_some_and(|plan| plan.group.is_offering(flow));
        self.starved |= others_hold_all && member.outstanding == 0 && at_hand() && offers();
        got
    }

    /// Asks one session alone for each block that several had brought and that was bad.
    fn ask_suspects(&mut self, now: Time, table: &mut Table) {
        let Some(plan) = &mut self.plan else { return };
        for first in plan.suspects.unasked() {
            let able = || {
                live(&self.flows, table)
                    .filter_map(|flow| table.sink(flow))
                    .filter(|sink| sink.state == State::Live)
                    .filter(|sink| plan.group.may_ask(sink.flow, first))
            };
            // Whoever brings nothing would keep the block for long, and so would one whose work
            // others had to take over.
            let brings = || able().filter(|sink| !sink.is_given_up());
            let keeps_up = brings().filter(|sink| Record::of(sink) == Record::Clean);
            let chosen = plan.suspects.choose(keeps_up.map(|sink| sink.flow));
            let slow = || plan.suspects.choose(brings().map(|sink| sink.flow));
            let anyone = || plan.suspects.choose(able().map(|sink| sink.flow));
            let Some(flow) = chosen.or_else(slow).or_else(anyone) else { continue };
            let Some(units) = plan.suspects.units(first) else { continue };
            let payload = plan.row.unit_payload();
            let grace = |sink: &SinkSide| sink.grace(units.end - units.start, payload);
            let grace = table.sink(flow).map_or(GRACE_MOST, grace);
            let Some(units) = plan.suspects.ask(now, first, (flow, grace)) else { continue };
            plan.assembly.open(&plan.row, first);
            if let Some(sink) = table.sink_mut(now, flow) {
                sink.assign(now, units);
            }
        }
    }

    /// Gives one session work for so many units, or fewer.
    fn assign(&mut self, now: Time, flow: FlowId, mut wanted: u64, table: &mut Table) -> Got {
        let mut got = Got::Nothing;
        while wanted > 0 {
            let (writing, waiting) = (self.writing.len(), self.writing_bytes);
            let (most, window) = (self.most_blocks, self.window);
            let Some(plan) = &mut self.plan else { return got };
            let row = &plan.row;
            let limit = unit_limit(row, window);
            let block_end = |unit| row.block_of(unit).map_or(unit + 1, |units| units.end);
            let Some(range) = plan.group.take(flow, limit, block_end) else { return got };
            let held = plan.assembly.len() + writing;
            // Blocks behind the front were begun before, and waiting for them frees memory; but
            // what sessions offer that have parts of the object may begin anywhere.
            let bytes = waiting + plan.assembly.bytes();
            let full = held >= most || self.backlog.is_full(now, waiting, bytes);
            let is_new = range.start >= plan.front
                || self.relayed.is_some() && !plan.assembly.is_open(range.start);
            if is_new && full {
                plan.group.give_back(&only(range));
                self.note_memory_limit(now, held);
                return if got == Got::Work { got } else { Got::NoMemory };
            }
            plan.assembly.open(row, range.start);
            plan.front = plan.front.max(range.end);
            wanted = wanted.saturating_sub(range.end - range.start);
            if let Some(sink) = table.sink_mut(now, flow) {
                sink.assign(now, range);
                got = Got::Work;
            }
        }
        got
    }

    /// The regular look: silence, work given back, the tail.
    pub fn upkeep(&mut self, now: Time, interval: Span, table: &mut Table) {
        if self.phase == Phase::Finishing {
            self.check_witnesses(now, table);
        }
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

    /// All blocks are here and sources are asked for hashes: one that is not heard while others are
    /// keeps nobody waiting. A source at rest speaks ten times a second.
    fn check_witnesses(&mut self, now: Time, table: &mut Table) {
        let silence = |flow| table.sink(flow).map(|sink| (flow, sink.core.silence(now)));
        let all: Vec<_> = live(&self.flows, table).filter_map(silence).collect();
        if all.iter().all(|&(_, silence)| silence >= PATIENCE) {
            return;
        }
        for (flow, _) in all.into_iter().filter(|&(_, silence)| silence >= PATIENCE) {
            if self.part(now, flow, table) {
                let (blame, why) = (Blame::Nobody, "nothing was heard for 2 s".to_owned());
                self.outbox.push(TransferEvent::Lost { flow, blame, why });
            }
        }
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
                self.lose(now, flow, (Blame::Nobody, "nothing was heard for 10 s"), table);
            } else if silence >= PATIENCE && anyone && heard(state) {
                self.pass_on_work(now, flow, table);
            }
        }
    }

    /// What this session owes is asked of others.
    fn pass_on_work(&mut self, now: Time, flow: FlowId, table: &mut Table) {
        let missing = table.sink_mut(now, flow).map(|sink| sink.fall_silent(now));
        self.take_back(flow, &missing.unwrap_or_default());
    }

    /// A source that talks and brings nothing must not hold up the others: what it owes is taken
    /// back while they have other work, and after ten seconds of it the session ends.
    fn check_idle(&mut self, now: Time, table: &mut Table) {
        let flows: Vec<FlowId> = live(&self.flows, table).collect();
        let (mut idle, mut stuck) = (Vec::new(), Vec::new());
        let mut anyone = false;
        for flow in flows {
            let Some(sink) = table.sink_mut(now, flow) else { continue };
            if sink.idle(now) >= IDLE_MOST {
                idle.push(flow);
            } else if sink.is_stuck(now) {
                stuck.push(flow);
            } else if sink.state == State::Live && sink.core.silence(now) < PATIENCE {
                anyone = true;
            }
        }
        for flow in stuck.into_iter().filter(|_| anyone) {
            let spared = |plan: &Plan| plan.suspects.is_spared(flow, now);
            if let (Some(sink), false) =
                (table.sink_mut(now, flow), self.plan.as_ref().is_some_and(spared))
            {
                sink.give_up(now);
            }
        }
        for flow in idle.into_iter().filter(|_| anyone) {
            let why = broke("it sends nothing that was asked for");
            self.lose(now, flow, (Blame::Source, &why), table);
        }
    }

    /// Sessions that have let go of their work can be given new work.
    fn collect_dropped(&mut self, now: Time, table: &mut Table) {
        let flows: Vec<FlowId> = live(&self.flows, table).collect();
        for flow in flows {
            let back = table.sink_mut(now, flow).and_then(|sink| sink.poll_dropped(now));
            if let Some(missing) = back {
                self.take_back(flow, &missing);
            }
        }
    }

    /// A block that every source there is has spoilt cannot be had, unless another comes soon.
    fn check_spoilt(&mut self, now: Time, table: &mut Table) {
        // Where sessions have parts of the object, another may come to have it at any time.
        let Some(plan) = self.plan.as_ref().filter(|_| self.relayed.is_none()) else { return };
        let left: Vec<FlowId> = live(&self.flows, table).collect();
        // Whoever brought what is at the writer may be gone.
        let refused = |first| {
            !self.writing.contains_key(&first)
                && left.iter().all(|&flow| !plan.group.may_ask(flow, first))
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

    /// While a session is idle because others hold all missing units: takes work back from one that
    /// would be busy for long, and at once from one that is silent or does not let go of it.
    fn check_tail(&mut self, now: Time, interval: Span, table: &mut Table) {
        let Some(payload) = self.plan.as_ref().map(|plan| plan.row.unit_payload()) else { return };
        for at in 0..self.flows.len() {
            if let Some(sink) = table.sink_to_look_at(self.flows[at].flow) {
                sink.look_at_pace(now, sink.packet(payload));
            }
        }
        if !self.starved {
            return;
        }
        let waiting = |&flow: &FlowId| table.sink(flow).is_some_and(|s| s.keeps_waiting(now));
        let waited_for: Vec<FlowId> = live(&self.flows, table).filter(waiting).collect();
        for flow in waited_for {
            self.pass_on_work(now, flow, table);
        }
        let Some(plan) = &self.plan else { return };
        let mut packet = None;
        // Not so one that is asked for a block alone, all of which would have to come anew, nor
        // one that has just begun: its rate is not known yet.
        let members: Vec<Member> = live(&self.flows, table)
            .filter_map(|flow| table.sink(flow))
            .filter(|sink| sink.state == State::Live)
            .filter(|sink| !plan.suspects.is_spared(sink.flow, now))
            .filter(|sink| sink.core.outstanding() == 0 || sink.has_had_time(now))
            .map(|sink| {
                packet = Some(sink.packet(plan.row.unit_payload()));
                sink.debtor(interval)
            })
            .collect();
        let Some(packet) = packet else { return };
        if let Some(late) = Group::overloaded(&members, packet)
            && let Some(sink) = table.sink_mut(now, late)
        {
            match sink.answers_soon() {
                true => sink.ask_drop(now),
                false => self.pass_on_work(now, late, table),
            }
        }
    }
}

/// Whether others had to take over the work of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Clean,
    Struck,
}

impl Record {
    fn of(sink: &SinkSide) -> Record {
        if sink.strikes() == 0 { Record::Clean } else { Record::Struck }
    }
}

/// What a session got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Work,
    /// Nothing, for it has enough.
    Enough,
    /// Nothing is left that it may be asked for now.
    Nothing,
    /// Nothing: there is no room for it until blocks that are under way are whole and written.
    NoMemory,
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
