//! One object that is being received, from whichever sessions bring it.
//!
//! Units that arrive become blocks, blocks go to the writer, and what the writer says decides what
//! is asked for again and from whom: `outcomes` has that, and `plan` how the object is cut. Which
//! session is asked for what next is in `assign`.

mod outcomes;
mod plan;
mod relayed;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::{Event, FlowId, LimitedBy, RangeSet};
use gtp_store::{BLOCK, Have, Manifest, SinkError, TRAILER, Value, Window};
use tokio::sync::mpsc::UnboundedSender;

use super::api::{Blame, FlowProgress, RootPolicy, TransferEvent, TransferProgress};
use super::assembly::{Placed, Whole};
use super::backlog::Backlog;
use super::command::{NewTransfer, Notices};
use super::sink_side::State;
use super::table::Table;
use super::writer::{WriteJob, WriteJobs, Written};
pub(super) use outcomes::InWriting;
pub(super) use plan::Plan;
pub(super) use relayed::RelayNotice;
use relayed::Relayed;

/// One object on its way.
pub(super) struct Transfer {
    pub(super) manifest: Arc<Manifest>,
    roots: RootPolicy,
    pub(super) have: Vec<Have>,
    /// Decided when the first path is open.
    pub(super) plan: Option<Plan>,
    pub(super) flows: Vec<Flow>,
    /// Which of them is given work first.
    pub(super) turn: usize,
    /// Blocks that may be held in memory.
    pub(super) most_blocks: usize,
    /// Blocks at the writer, by their first unit.
    pub(super) writing: BTreeMap<u64, InWriting>,
    /// How long those are together, with their trailers.
    pub(super) writing_bytes: Bytes,
    pub(super) window: Window,
    /// How much may wait for the writer.
    pub(super) backlog: Backlog,
    writer: Option<WriteJobs>,
    pub(super) blocks_left: u64,
    files: Files,
    /// Files that will not come.
    pub(super) given_up: BTreeSet<u32>,
    /// Sources, by their labels, that have broken a rule. A session that one of them begins anew is
    /// doubted from the beginning.
    broke: BTreeSet<String>,
    /// Sessions that had brought something and gone when a file had the wrong hash last.
    pub(super) gone: BTreeMap<u32, usize>,
    /// Blocks that a source without others was asked for once more although they came damaged.
    second_chances: BTreeSet<u64>,
    pub(super) counted: TransferProgress,
    /// Memory was the limit until then.
    pub(super) disk_limited_until: Time,
    /// Something changed that may mean new work for the sessions.
    pub dirty: bool,
    pub(super) stalled: bool,
    /// At the last look a session had nothing to do because others hold what is missing.
    pub(super) starved: bool,
    /// Since when every source there is has spoilt some block that is wanted.
    pub(super) hopeless_since: Option<Time>,
    /// Where sessions have only parts of the object.
    pub(super) relayed: Option<Box<Relayed>>,
    pub phase: Phase,
    pub(super) outbox: Vec<TransferEvent>,
    events: UnboundedSender<TransferEvent>,
    progress: Arc<Mutex<TransferProgress>>,
}

/// Where a transfer is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Blocks are missing.
    Moving,
    /// All blocks are here; files are being finished.
    Finishing,
    /// The writer was told to stop; its answer is awaited.
    Stopping,
    /// It can be forgotten.
    Over,
}

/// One session of the transfer, also after its end.
pub(super) struct Flow {
    pub flow: FlowId,
    pub(super) bytes: u64,
    /// Its last progress, once it is gone.
    past: Option<FlowProgress>,
}

/// Which files still have to be finished.
struct Files {
    open: Vec<bool>,
    left: u64,
    /// The writer was told to finish the object.
    told: bool,
}

/// How long a moment in which memory was the limit is remembered.
const LIMIT_SHOWN: Span = Span::from_millis(200);
impl Transfer {
    /// A transfer and its writer. Should the system give no thread, its handle hears of a fault.
    pub fn start(now: Time, new: NewTransfer, notices: Notices) -> Transfer {
        let NewTransfer { transfer, open, writer, events, progress } = new;
        let (manifest, roots) = (open.manifest, open.roots);
        let have = open.sink.have().to_vec();
        let kept = have.iter().map(|have| have.file).filter(|&file| open.sink.is_kept(file));
        let kept: Vec<_> = kept.map(|file| (file, None)).collect();
        let window = open.sink.window();
        let resumed = have.iter().map(|h| have_bytes(&manifest, h)).sum();
        let here: u64 = have.iter().map(|h| h.blocks.end - h.blocks.start).sum();
        let all: u64 = manifest.entries.iter().map(|e| e.size.div_ceil(BLOCK)).sum();
        let total = manifest.content_bytes();
        let mut begun = Transfer {
            files: Files::of(&manifest),
            given_up: BTreeSet::new(),
            broke: BTreeSet::new(),
            gone: BTreeMap::new(),
            second_chances: BTreeSet::new(),
            manifest,
            roots,
            have,
            plan: None,
            flows: Vec::new(),
            turn: 0,
            most_blocks: 0,
            writing: BTreeMap::new(),
            writing_bytes: Bytes::ZERO,
            window,
            backlog: Backlog::new(now),
            writer: None,
            blocks_left: all.saturating_sub(here),
            counted: TransferProgress {
                bytes: resumed,
                resumed_bytes: resumed,
                total,
                flows: Vec::new(),
            },
            disk_limited_until: Time::ZERO,
            dirty: false,
            stalled: false,
            starved: false,
            hopeless_since: None,
            relayed: None,
            phase: Phase::Moving,
            outbox: Vec::new(),
            events,
            progress,
        };
        begun.start_writer(writer(transfer, open.sink, notices));
        if !kept.is_empty() {
            begun.tell_writer(WriteJob::Files(kept));
        }
        begun.check_all_blocks();
        begun
    }

    fn start_writer(&mut self, started: io::Result<WriteJobs>) {
        match started {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => {
                let why = gtp_store::SinkError::Unsuitable(format!("no thread to write: {error}"));
                self.outbox.push(TransferEvent::Fault(why));
                self.phase = Phase::Over;
            }
        }
    }

    /// Limits what this transfer may hold in memory.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.most_blocks = (memory.0 / (BLOCK + TRAILER as u64)).max(2) as usize;
        let most = self.buffers_most();
        if let Some(plan) = &mut self.plan {
            plan.assembly.give_back_memory(most);
        }
    }

    /// Buffers that there may be beside those at the writer.
    fn buffers_most(&self) -> usize {
        self.most_blocks.saturating_sub(self.writing.len())
    }

    /// A session joins.
    pub fn add(&mut self, flow: FlowId) {
        self.flows.push(Flow { flow, bytes: 0, past: None });
        self.stalled = false;
    }

    /// A session could not even begin.
    pub fn refuse(&mut self, flow: FlowId, why: &str) {
        let blame = Blame::Nobody;
        self.outbox.push(TransferEvent::Lost { flow, blame, why: why.to_owned() });
    }

    /// Something happened to a session.
    pub fn handle_event(&mut self, now: Time, flow: FlowId, event: Event, table: &mut Table) {
        let mut lose = |transfer: &mut Transfer, why: (Blame, &str)| {
            transfer.lose(now, flow, why, table);
        };
        match event {
            Event::PathPresumed { unit_payload } => {
                self.unmake_plan(unit_payload, table);
                self.begin(now, flow, unit_payload, table);
            }
            Event::PathOpen { unit_payload } => {
                self.unmake_plan(unit_payload, table);
                if self.begin(now, flow, unit_payload, table) {
                    self.outbox.push(TransferEvent::PathOpen { flow });
                }
            }
            Event::NoPath => {
                if self.part(now, flow, table) {
                    self.outbox.push(TransferEvent::NoPath { flow });
                }
            }
            Event::PeerClosed => lose(self, (Blame::Parted, "the source closed the session")),
            Event::TimedOut => lose(self, (Blame::Nobody, "nothing was heard for 30 s")),
            Event::Spent => lose(self, (Blame::Nobody, "its request numbers are used up")),
            Event::Violated(why) => lose(self, (Blame::Source, &broke(why))),
            Event::UnitPayload(_) => {} // Sources hear that, sinks say it.
        }
    }

    /// A plan for units longer than these was presumed to do, if nothing has come by it and nobody
    /// else follows it.
    fn unmake_plan(&mut self, payload: u16, table: &Table) {
        let longer = self.plan.as_ref().is_some_and(|plan| plan.row.unit_payload() > payload);
        let alone = live(&self.flows, table).count() == 1;
        let bare = self.writing.is_empty() && self.counted.bytes == self.counted.resumed_bytes;
        if longer && alone && bare {
            self.plan = None;
        }
    }

    /// A session may be asked for units of this length. Says whether it can serve.
    fn begin(&mut self, now: Time, flow: FlowId, payload: u16, table: &mut Table) -> bool {
        if self.plan.is_none() {
            match Plan::new(&self.manifest, payload, &self.have) {
                Ok(mut plan) => {
                    for &file in &self.given_up {
                        plan.drop_file(&self.manifest, file);
                    }
                    self.relayed.iter().for_each(|relayed| relayed.instruct(&mut plan));
                    self.plan = Some(plan);
                }
                Err(error) => {
                    self.lose(now, flow, (Blame::Nobody, &error.to_string()), table);
                    return false;
                }
            }
        }
        let Some(chosen) = self.plan.as_ref().map(|plan| plan.row.unit_payload()) else {
            return false;
        };
        if payload < chosen {
            let why = format!("its path carries units of {payload} bytes, not of {chosen}");
            self.lose(now, flow, (Blame::Nobody, &why), table);
            return false;
        }
        let Some(sink) = table.sink_mut(now, flow) else { return false };
        let longer = sink.core.unit_payload() > chosen;
        match sink.state {
            State::Parting => return false,
            State::Opening => {}
            State::Live if longer => {}
            State::Live | State::Dropping | State::Silent => return true,
        }
        sink.core.begin(chosen);
        sink.state = State::Live;
        if let Some(plan) = &mut self.plan
            && self.broke.contains(sink.label())
        {
            plan.suspects.doubt(flow);
        }
        self.dirty = true;
        true
    }

    /// A unit arrived that the session wanted.
    ///
    /// # Errors
    /// When it is not as long as that unit is: the source breaks a rule.
    #[inline]
    pub fn handle_unit(
        &mut self,
        flow: FlowId,
        unit: u64,
        payload: &[u8],
    ) -> Result<(), &'static str> {
        let Some(plan) = &mut self.plan else { return Ok(()) };
        self.dirty = true;
        match plan.assembly.place(&plan.row, flow, unit, payload) {
            Placed::Kept => Ok(()),
            Placed::NotOpen => {
                // Its block had lost all its room when another session gave its part of it back.
                plan.assembly.open(&plan.row, unit);
                let placed = plan.assembly.place(&plan.row, flow, unit, payload);
                self.handle_placed(flow, unit, placed)
            }
            placed @ (Placed::Twice | Placed::WrongLength | Placed::Completed(_)) => {
                self.handle_placed(flow, unit, placed)
            }
        }
    }

    fn handle_placed(
        &mut self,
        flow: FlowId,
        unit: u64,
        placed: Placed,
    ) -> Result<(), &'static str> {
        match placed {
            Placed::Kept | Placed::Twice | Placed::NotOpen => Ok(()),
            Placed::WrongLength => {
                // The core counts it as received; it is still wanted.
                self.take_back(flow, &only(unit..unit + 1));
                Err("a unit of another length than it must have")
            }
            Placed::Completed(whole) => {
                self.write(whole);
                Ok(())
            }
        }
    }

    fn write(&mut self, whole: Whole) {
        let Whole { units, file, block, mut bytes, brought } = whole;
        if let Some(relayed) = &self.relayed {
            relayed.vouch((file, block), &brought, &mut bytes);
        }
        let first_unit = units.start;
        let length = Bytes(bytes.len() as u64);
        self.writing.insert(first_unit, InWriting { units, file, block, length, brought });
        self.writing_bytes += length;
        self.tell_writer(WriteJob::Block { file, block, first_unit, bytes });
    }

    /// The writer answered.
    pub fn handle_written(&mut self, now: Time, written: Written, table: &mut Table) {
        self.dirty = true;
        match written {
            Written::Block { first_unit, len, spare, outcome, window } => {
                self.window = window;
                self.backlog.written(now, Bytes(len as u64));
                let block = self.writing.remove(&first_unit);
                let most = self.buffers_most();
                if let Some(plan) = &mut self.plan {
                    plan.assembly.recycle(spare, most);
                }
                if let Some(block) = block {
                    self.writing_bytes -= block.length;
                    self.handle_outcome(now, block, outcome, table);
                }
            }
            Written::File { file, root } => {
                if self.files.finished(file) {
                    self.outbox.push(TransferEvent::FileDone { file, root });
                }
                self.check_all_files();
            }
            Written::Named { file, root } => {
                self.outbox.push(TransferEvent::FileNamed { file, root });
            }
            Written::GivenUp { file, missing, why } => self.handle_given_up(file, missing, why),
            Written::Warning(text) => self.outbox.push(TransferEvent::Warning(text)),
            Written::WrongRoot { file, error } => self.wrong_root(file, error, table),
            Written::Finished(finished) => {
                self.over(now, table, TransferEvent::Complete(finished));
            }
            Written::Suspended if self.phase == Phase::Stopping => {
                self.over(now, table, TransferEvent::Suspended);
            }
            Written::Suspended => {}
            Written::Failed(error) => self.over(now, table, TransferEvent::Fault(error)),
        }
    }

    /// The writer does without an entry: what is missing of it need not come.
    fn handle_given_up(&mut self, file: u32, missing: u64, why: Option<SinkError>) {
        self.given_up.insert(file);
        if let Some(plan) = &mut self.plan {
            plan.drop_file(&self.manifest, file);
        }
        self.blocks_left = self.blocks_left.saturating_sub(missing);
        self.files.finished(file);
        self.outbox.push(TransferEvent::GivenUp { file, why });
        self.check_all_blocks();
        self.check_all_files();
    }

    /// Ends a session because of the peer or the network.
    pub fn lose(
        &mut self,
        now: Time,
        flow: FlowId,
        (blame, why): (Blame, &str),
        table: &mut Table,
    ) {
        let moving = self.phase == Phase::Moving;
        if blame == Blame::Source
            && let Some(sink) = table.sink(flow)
        {
            self.broke.insert(sink.label().to_owned());
        }
        if self.part(now, flow, table) && moving {
            self.outbox.push(TransferEvent::Lost { flow, blame, why: why.to_owned() });
        }
    }

    /// Ends a session; the others get what it has not brought. `false`: it had ended before.
    pub fn part(&mut self, now: Time, flow: FlowId, table: &mut Table) -> bool {
        let Some(sink) = table.sink_mut(now, flow) else { return false };
        if sink.state == State::Parting {
            return false;
        }
        let missing = sink.part(now);
        self.take_back(flow, &missing);
        true
    }

    /// Units that will not come from `by`, which was asked for them.
    pub(super) fn take_back(&mut self, by: FlowId, missing: &RangeSet) {
        let Some(plan) = &mut self.plan else { return };
        let mut missing = missing.clone();
        plan.remove_dropped(&mut missing);
        for first in plan.suspects.keep_back(&mut missing, by) {
            plan.assembly.forget(first);
        }
        if plan.suspects.is_doubted(by) {
            for units in plan.assembly.left_unfinished(&missing, &plan.group) {
                missing.remove(units.clone());
                plan.group.have(units.clone());
                plan.assembly.forget(units.start);
                plan.suspects.put_aside(units, by);
            }
        }
        plan.group.give_back(&missing);
        for range in missing.iter() {
            plan.assembly.give_back(range);
        }
        self.dirty = true;
    }

    /// A session is gone for good.
    pub fn forget(&mut self, flow: FlowId, mut last: FlowProgress) {
        last.alive = false;
        self.withdraw(flow);
        if let Some(record) = self.flows.iter_mut().find(|record| record.flow == flow) {
            record.past = Some(last);
        }
    }

    /// The handle wants these files finished.
    pub fn finish_files(&mut self, expected: Vec<(u32, Option<Value>)>) {
        self.tell_writer(WriteJob::Files(expected));
    }

    /// Ends the transfer before the object is whole.
    pub fn stop(&mut self, now: Time, table: &mut Table) {
        match self.phase {
            Phase::Moving | Phase::Finishing => {
                self.part_all(now, table);
                self.phase = Phase::Stopping;
                self.tell_writer(WriteJob::Suspend);
            }
            Phase::Stopping | Phase::Over => {}
        }
    }

    fn over(&mut self, now: Time, table: &mut Table, event: TransferEvent) {
        self.part_all(now, table);
        self.phase = Phase::Over;
        self.outbox.push(event);
    }

    fn part_all(&mut self, now: Time, table: &mut Table) {
        let flows: Vec<FlowId> = self.flows.iter().map(|record| record.flow).collect();
        for flow in flows {
            self.part(now, flow, table);
        }
    }

    /// Says once when nobody is left to bring what is missing.
    pub(super) fn check_stalled(&mut self, table: &Table) {
        let any = self
            .flows
            .iter()
            .any(|record| table.sink(record.flow).is_some_and(|sink| sink.state != State::Parting));
        if !any && !self.flows.is_empty() && !self.stalled && self.phase == Phase::Moving {
            self.stalled = true;
            self.outbox.push(TransferEvent::Stalled);
        }
    }

    fn check_all_blocks(&mut self) {
        if self.blocks_left == 0 && self.phase == Phase::Moving {
            self.phase = Phase::Finishing;
            self.outbox.push(TransferEvent::AllBlocks);
            self.check_all_files();
        }
    }

    fn check_all_files(&mut self) {
        if self.phase == Phase::Finishing && self.files.left == 0 && !self.files.told {
            self.files.told = true;
            self.tell_writer(WriteJob::Finish);
        }
    }

    /// Whether a file's only block says what its root is.
    fn is_trusted(&self, file: u32) -> bool {
        let size = self.manifest.entries.get(file as usize).map_or(0, |entry| entry.size);
        self.roots == RootPolicy::TrustTrailers && size > 0 && size <= BLOCK
    }

    fn tell_writer(&self, job: WriteJob) {
        if let Some(writer) = &self.writer {
            writer.send(job);
        }
    }

    /// Memory is the limit at `now`: the disk's fault when most of it waits for the writer.
    pub(super) fn note_memory_limit(&mut self, now: Time, held: usize) {
        if self.writing.len() * 2 > held {
            self.disk_limited_until = now + LIMIT_SHOWN;
        }
    }

    /// Shows how the transfer is doing.
    pub fn publish(&mut self, now: Time, table: &Table) {
        let disk = (now < self.disk_limited_until).then_some(LimitedBy::Disk);
        let shown = |record: &Flow| match (table.sink(record.flow), &record.past) {
            (Some(sink), _) => Some(sink.progress(record.bytes, disk)),
            (None, past) => past.clone().map(|past| FlowProgress { bytes: record.bytes, ..past }),
        };
        self.counted.flows = self.flows.iter().filter_map(shown).collect();
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = self.counted.clone();
    }

    /// Whether there is something to tell the handle.
    pub fn has_news(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Tells the handle what happened.
    pub fn flush(&mut self) {
        for event in self.outbox.drain(..) {
            // A handle that is gone does not listen.
            let _ = self.events.send(event);
        }
    }
}

#[cfg(test)]
impl Transfer {
    /// Whether each unit is in exactly one place: asked of a session that lives, free, or here.
    ///
    /// # Errors
    /// The first that is not, in words.
    pub fn account(&self, table: &Table) -> Result<(), String> {
        let Some(plan) = &self.plan else { return Ok(()) };
        if self.phase != Phase::Moving {
            return Ok(());
        }
        let sinks: Vec<_> = live(&self.flows, table).filter_map(|flow| table.sink(flow)).collect();
        let (mut unit, mut missing) = (0, 0);
        while let Some(units) = plan.row.block_of(unit) {
            unit = units.end;
            let mut accounted = 0;
            for unit in units.clone() {
                let owed = sinks.iter().filter(|sink| sink.core.owes(unit)).count();
                let free = [plan.group.is_free(unit), plan.suspects.is_free(unit)];
                let here = [plan.assembly.holds(unit), self.is_written(unit)];
                let places = owed + free.into_iter().chain(here).filter(|&is| is).count();
                if places > 1 {
                    return Err(format!("unit {unit}: asked {owed}, free {free:?}, here {here:?}"));
                }
                accounted += places as u64;
            }
            // A block that is done is nowhere.
            if accounted > 0 {
                missing += 1;
                if accounted < units.end - units.start {
                    return Err(format!("only {accounted} units of {units:?} are anywhere"));
                }
            }
        }
        if missing == self.blocks_left {
            Ok(())
        } else {
            Err(format!("{} blocks are wanted, {missing} are anywhere", self.blocks_left))
        }
    }

    fn is_written(&self, unit: u64) -> bool {
        self.writing.values().any(|block| block.units.contains(&unit))
    }
}

/// Sessions that can be asked for something.
pub(super) fn live<'a>(flows: &'a [Flow], table: &'a Table) -> impl Iterator<Item = FlowId> + 'a {
    flows.iter().map(|record| record.flow).filter(|&flow| {
        table.sink(flow).is_some_and(|sink| match sink.state {
            State::Opening | State::Live | State::Dropping | State::Silent => true,
            State::Parting => false,
        })
    })
}

impl Files {
    fn of(manifest: &Manifest) -> Files {
        let open: Vec<bool> = manifest.entries.iter().map(|entry| entry.size > 0).collect();
        let left = open.iter().filter(|&&open| open).count() as u64;
        Files { open, left, told: false }
    }

    /// A file is finished; says whether that is news.
    fn finished(&mut self, file: u32) -> bool {
        match self.open.get_mut(file as usize) {
            Some(open) if *open => {
                *open = false;
                self.left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }
}

/// That a source broke this rule, for people.
pub(super) fn broke(rule: &str) -> String {
    format!("the source broke a rule: {rule}")
}

/// The set of one range.
pub(super) fn only(range: Range<u64>) -> RangeSet {
    let mut set = RangeSet::new();
    set.insert(range);
    set
}

pub(super) fn have_bytes(manifest: &Manifest, have: &Have) -> u64 {
    let size = manifest.entries.get(have.file as usize).map_or(0, |entry| entry.size);
    let end = have.blocks.end.saturating_mul(BLOCK).min(size);
    end.saturating_sub(have.blocks.start.saturating_mul(BLOCK))
}
