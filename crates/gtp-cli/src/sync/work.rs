//! The work of one `gtp sync`, from both surveys to the last step, and what is said of it.
//!
//! Nothing is removed unless the source was read completely. Whatever cannot be done or kept is
//! named, and the command then ends with code 12.

mod kept;
mod told;

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use gtp::replica::{Deed, Fault, Node, Seen};
use gtp::tree::{BlocksAsked, Chosen, SmallAsked, When, copy_here};
use gtp::{Failure, FailureKind, Get, Host, Outcome, Put, RelPath, Survey, TimeStep, Transfer};

use super::backup::{Backup, keep_elsewhere, keep_old};
use super::filter::{Filter, Parted};
use super::ignored::{self, Ignored};
use super::plan::{Plan, ancestors, plan};
use super::side::{Here, Side, There, refuse_backups};
use super::small::{Small, Written, all_small, carried, patched, take_out, worth_a_question};
use super::timeline::Timeline;
use super::times;
use super::{Ends, Names, Single, SyncArgs, is_a_file};
use crate::cp::last_words;
use crate::cp::near::FarEnd;
use crate::show::{Shower, Skips};
use crate::verbs::transfer::{Options, watch};
use crate::verbs::{done, other};

/// One command under way.
pub struct Work<'a> {
    args: &'a SyncArgs,
    filter: Filter,
    host: &'a Host,
    source: &'a Side,
    destination: &'a Side,
    stop: &'a Arc<AtomicBool>,
    /// The far end that ssh has started.
    far: Option<&'a FarEnd>,
    single: &'a Single,
    /// What the file or link that alone is followed is called at both ends.
    only: Option<&'a Names>,
    timeline: Timeline,
    /// What could not be done or kept.
    skips: Skips,
    /// Bytes of packets that carried data; of a copy between directories here, of content.
    moved_bytes: u64,
    /// A put that has begun and waits for what is to be sent.
    early: Option<EarlyPut>,
    /// The longest file, in bytes, that a step can write at the server.
    small_max: Option<u64>,
    /// Whether a step can make a new version of a small file of the one at the server.
    patches: bool,
    /// Files that travelled in steps, and their bytes.
    written: (usize, u64),
}

/// A put whose session is opened while the trees are surveyed.
struct EarlyPut {
    transfer: Transfer,
    choose: mpsc::Sender<Arc<Chosen>>,
}

impl<'a> Work<'a> {
    /// Prepares the work; nothing is done yet.
    pub fn new(args: &'a SyncArgs, filter: Filter, ends: &'a Ends, timeline: Timeline) -> Work<'a> {
        let Ends { source, destination, host, stop, far, single } = ends;
        Work {
            args,
            filter,
            host,
            source,
            destination,
            stop,
            far: far.as_ref(),
            single,
            only: None,
            timeline,
            skips: Skips::default(),
            moved_bytes: 0,
            early: None,
            small_max: None,
            patches: false,
            written: (0, 0),
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// A [`Failure`] if a tree cannot be read, or the transfer fails as a whole.
    pub async fn run(mut self) -> Result<ExitCode, Failure> {
        let (mut plan, source) = self.decide().await?;
        self.guard_removals(&mut plan, &source);
        self.timeline.done("it is decided what to do");
        for (path, why) in std::mem::take(&mut plan.unkept) {
            self.trouble(&format!("{}: {why}", gtp_text::of_text(&path)));
        }
        if self.args.dry_run || self.args.itemize_changes || self.args.transfer.json {
            plan.items.iter().try_for_each(|item| self.say_item(item))?;
        }
        if !self.args.dry_run {
            self.carry_out(&mut plan).await?;
        }
        self.sum_up(&plan, &source)?;
        Ok(match self.skips.is_empty() {
            true => done(),
            false => ExitCode::from(FailureKind::Partial.exit_code()),
        })
    }

    /// Surveys both trees: what the source and the destination hold.
    async fn survey(&mut self) -> Result<(Survey, Survey), Failure> {
        let asked = self.args.asked();
        let (only, there) = match self.single {
            Single::Named(names) => (Some(names), Some(names)),
            Single::Over(names) => (None, Some(names)),
            Single::No | Single::Into(..) => (None, None),
        };
        self.only = only;
        let early = self.begin_put()?;
        let (from, to) = tokio::join!(
            self.source.survey(self.host, asked, only.map(|names| &names.source)),
            self.destination.survey(self.host, asked, there.map(|names| &names.destination))
        );
        let from = from?;
        let to = match (from.alone.clone(), self.single) {
            (Some(name), _) => self.survey_aside(&name, to).await?,
            (None, Single::Over(_)) => {
                let text = "SRC is a directory, and DST is not";
                return Err(Failure::new(FailureKind::Destination, text));
            }
            (None, Single::No | Single::Named(_) | Single::Into(..)) => to?,
        };
        self.timeline.done("both trees are surveyed");
        // A put cannot be opened before its directory exists.
        self.early = early.filter(|_| to.is_there);
        match from.is_there {
            true => Ok((from, to)),
            false => Err(Failure::new(FailureKind::Missing, "the source is not there")),
        }
    }

    /// A file of this name is at the source's path: surveys the directory into which it goes, in
    /// place of the destination that a directory would have, whose survey is `there`.
    async fn survey_aside(
        &mut self,
        name: &RelPath,
        there: Result<Survey, Failure>,
    ) -> Result<Survey, Failure> {
        let (names, place) = match self.single {
            Single::Into(names, place) => (names, Some(&**place)),
            Single::Over(names) => (names, None),
            Single::No | Single::Named(_) => return Err(is_a_file()),
        };
        if *name != names.source {
            let text = "the source is a link to a file; name the file itself";
            return Err(Failure::new(FailureKind::Usage, text));
        }
        self.only = Some(names);
        let Some(place) = place else { return there };
        self.destination = place;
        // What was checked before is the directory that a tree would have become.
        if let Some(dir) = self.args.backups_outside()? {
            refuse_backups((self.source, true), place, &dir)?;
        }
        place.survey(self.host, self.args.asked(), Some(&names.destination)).await
    }

    /// Surveys both trees and decides.
    async fn decide(&mut self) -> Result<(Plan, Surveyed), Failure> {
        let args = self.args;
        let (from, to) = self.survey().await?;
        let owner = to.may_own;
        self.small_max = from.small_max.or(to.small_max);
        self.patches = to.patches;
        let names = from.nodes.len() + to.nodes.len();
        let mut is_known = !args.ignore_files || self.read_ignored(&from, names).await?;
        if let Some(Names { source, destination }) = self.only {
            self.filter.only([source, destination].map(RelPath::to_string));
        }
        let is_whole = self.tell_left_out(&from, Whose::Source);
        is_known &= self.tell_left_out(&to, Whose::Destination);
        let Parted { mut nodes, .. } = self.filter.part(from.nodes);
        let mut there = self.part_there(to.nodes, &nodes);
        self.rename(&mut nodes);
        self.filter.check()?;
        let backup = args.backups()?;
        if let Some(backup) = &backup {
            self.set_aside(backup, &mut nodes, &mut there);
        }
        let Parted { nodes: there, protected } = there;
        let step = self.time_step(&nodes, &there).await?;
        let mut plan = plan(&nodes, &there, &protected, args.rules(owner, step));
        if self.only.is_some() {
            plan.spare_root();
        }
        match &backup {
            Some(backup) if backup.outside().is_some() => {
                keep_elsewhere(&mut plan, &there, backup);
            }
            Some(backup) => keep_old(&mut plan, &nodes, &there, backup),
            None => {}
        }
        let surveyed = Surveyed {
            is_whole: is_whole && is_known,
            is_empty: nodes.len() <= 1,
            names: nodes.len().saturating_sub(1),
        };
        Ok((plan, surveyed))
    }

    /// The destination's names that take part. `nodes` are the source's. Patterns judge a single
    /// file by its name at the source.
    fn part_there(&self, there: Vec<Node>, nodes: &[Node]) -> Parted {
        let listed = |nodes| Parted { nodes: self.filter.listed(nodes), ..Parted::default() };
        match self.only {
            _ if self.args.delete_excluded => listed(there),
            Some(names) if names.source != names.destination => {
                match nodes.iter().any(|node| node.path.as_ref() == Some(&names.source)) {
                    true => listed(there),
                    false => listed(there.into_iter().filter(|node| node.path.is_none()).collect()),
                }
            }
            Some(_) | None => self.filter.part(there),
        }
    }

    /// Gives a single file the name that it gets at the destination.
    fn rename(&self, nodes: &mut [Node]) {
        let Some(Names { source, destination }) = self.only else { return };
        for node in nodes.iter_mut().filter(|node| node.path.as_ref() == Some(source)) {
            node.path = Some(destination.clone());
        }
    }

    /// What a file is called at the source.
    fn at_source(&self, path: RelPath) -> RelPath {
        match self.only {
            Some(names) if path == names.destination => names.source.clone(),
            Some(_) | None => path,
        }
    }

    /// The steps in which the destination keeps times. A dry run writes nothing to find that out.
    async fn time_step(&self, nodes: &[Node], there: &[Node]) -> Result<TimeStep, Failure> {
        if !times::may_be_cut(nodes, there) {
            return Ok(TimeStep::EXACT);
        }
        match self.args.dry_run {
            true => Ok(times::guessed(nodes, there)),
            false => times::probed(self.destination, self.host, there).await,
        }
    }

    /// Reads the source's ignore files. `names` is how many names of both trees they will judge.
    /// Reports lines that cannot be used, and keeps the others. Returns whether all could be used:
    /// if not, a name that should be left out may look like one that the source lacks.
    async fn read_ignored(&mut self, source: &Survey, names: usize) -> Result<bool, Failure> {
        let mut found = ignored::found(&source.nodes);
        let is_known = self.cut_ignored(&mut found);
        let (mut ignored, bad) = match self.source {
            Side::Here(here) => {
                Ignored::read(found, |file| ignored::text(&here.path.join(file.name())))
            }
            Side::There(_) if source.small_max.is_none() && !found.is_empty() => {
                return Err(other("--ignore-files: gtp there is too old to read them"));
            }
            Side::There(_) => {
                let asked = found.iter().filter_map(|node| {
                    Some(SmallAsked { path: node.path.clone()?, seen: Seen::of(node)?, old: None })
                });
                let contents = self.source.contents(self.host, asked.collect(), When::Now).await?;
                let mut contents = contents.files.into_iter();
                Ignored::read(found, |_| ignored::told(contents.next().flatten()))
            }
        };
        ignored.allow(names);
        self.filter.ignore(ignored);
        bad.iter().for_each(|mistake| self.trouble(mistake));
        Ok(is_known && bad.is_empty())
    }

    /// Cuts files of a source elsewhere to those that are read; whether that is all of them.
    fn cut_ignored(&mut self, found: &mut Vec<&Node>) -> bool {
        let readable = match self.source {
            Side::Here(_) => found.len(),
            Side::There(_) => ignored::readable(found),
        };
        let Some(node) = found.get(readable) else { return true };
        let (first, more) = (gtp_text::of_text(node.name()), found.len() - readable);
        self.trouble(&format!("--ignore-files: {more} files from {first} on could not be read"));
        found.truncate(readable);
        false
    }

    /// Takes backups out of both trees. A name of the source that only looks like a backup is no
    /// backup, but where a directory is set aside for them, nothing else goes there.
    fn set_aside(&mut self, backup: &Backup, nodes: &mut Vec<Node>, there: &mut Parted) {
        if backup.has_dir() {
            let before = nodes.len();
            nodes.retain(|node| !backup.has(node.name()));
            if nodes.len() < before {
                self.trouble("what SRC has in the directory of --backup-dir is left out");
            }
        }
        let wanted: HashSet<&str> = nodes.iter().map(Node::name).collect();
        let (aside, kept): (Vec<Node>, Vec<Node>) = std::mem::take(&mut there.nodes)
            .into_iter()
            .partition(|node| backup.has(node.name()) && !wanted.contains(node.name()));
        let above = aside.iter().flat_map(|node| ancestors(node.name()).skip(1));
        there.protected.extend(above.map(str::to_owned));
        there.nodes = kept;
    }

    /// Names what a survey left out, but for what patterns leave out anyway; whether nothing more
    /// can be hidden.
    fn tell_left_out(&mut self, survey: &Survey, whose: Whose) -> bool {
        let mut is_whole = true;
        for left_out in &survey.left_out {
            is_whole &= !left_out.hides;
            let path = str::from_utf8(&left_out.path);
            if !left_out.hides && path.is_ok_and(|path| !self.filter.takes_part(path)) {
                continue;
            }
            let text = format!("{}: {}", left_out.shown(), left_out.why);
            match whose {
                Whose::Source => self.trouble(&text),
                // What cannot be carried does no harm there, unless it hides something.
                Whose::Destination if left_out.hides => self.trouble(&text),
                Whose::Destination => {}
            }
        }
        is_whole
    }

    /// Decides whether what is to be removed may be.
    fn guard_removals(&mut self, plan: &mut Plan, source: &Surveyed) {
        if plan.removals() == 0 {
            return;
        }
        if !source.is_whole {
            self.trouble("a part of a tree could not be read, so nothing is deleted");
            plan.remove_nothing();
            plan.spare_obstacles();
        }
        if source.is_empty && !self.args.force && !plan.removed.is_empty() {
            self.trouble("the source is empty, so nothing is deleted without --force");
            plan.remove_nothing();
        }
        let count = plan.removals();
        if self.args.max_delete.is_some_and(|most| count > most) {
            self.trouble(&format!("{count} names would be deleted, so none is (--max-delete)"));
            plan.remove_nothing();
            plan.spare_obstacles();
        }
    }

    async fn carry_out(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        self.clear_ways(plan).await?;
        let mut first = Vec::new();
        if self.args.delete_before {
            first.extend(plan.removed.iter().cloned());
        }
        first.extend(plan.dirs.iter().chain(&plan.aged).cloned());
        first.extend(self.write_small(plan).await?);
        if plan.files.is_empty() {
            first.extend(self.steps_behind(plan, &HashSet::new()));
            self.last_steps(first).await?;
            self.timeline.done("all steps are done");
            return Ok(());
        }
        self.steps(first).await?;
        self.timeline.done("the steps before the transfer are done");
        let failed = self.move_files(plan).await;
        self.timeline.done("the files are moved");
        // Files that have arrived get their attributes, even if others have not arrived.
        self.last_steps(self.steps_behind(plan, &failed?)).await?;
        self.timeline.done("the steps after it are done");
        Ok(())
    }

    /// The steps behind the transfer, but for files that have not arrived.
    fn steps_behind(&self, plan: &Plan, failed: &HashSet<String>) -> Vec<Deed> {
        let of_files = plan.links.iter().chain(&plan.names).chain(&plan.dug).chain(&plan.dressed);
        let mut last: Vec<Deed> =
            of_files.filter(|deed| !failed.contains(deed.name())).cloned().collect();
        if !self.args.delete_before {
            last.extend(plan.removed.iter().cloned());
        }
        last.extend(plan.dressed_dirs.iter().cloned());
        last
    }

    /// Makes steps of small files, if there are no others and nothing limits the rate: what travels
    /// in steps keeps to none.
    async fn write_small(&mut self, plan: &mut Plan) -> Result<Vec<Deed>, Failure> {
        let args = self.args;
        let is_free = !args.has_terms();
        let Some(longest) = self.small_max.filter(|_| is_free) else { return Ok(Vec::new()) };
        let small = all_small(plan, longest);
        let mut asked: Vec<SmallAsked> = small.iter().map(Small::asked).collect();
        for asked in &mut asked {
            asked.path = self.at_source(asked.path.clone());
        }
        let pulls = (self.source, self.destination);
        if let (false, (Side::There(_), Side::Here(here))) = (args.whole_file, pulls) {
            let older = small.iter().map(Small::older_worth_reading).collect();
            let older = here.contents(older, When::Now).await?;
            asked.iter_mut().zip(older).for_each(|(asked, older)| asked.old = older);
        }
        let contents = self.source.contents(self.host, asked, When::Settled).await?;
        self.moved_bytes += contents.travelled;
        let older = small.iter().filter_map(Small::older).collect();
        let Written { mut deeds, bytes } = take_out(plan, small, contents.files);
        self.written = (deeds.len(), bytes);
        if let (Side::Here(_), Side::There(_)) = (self.source, self.destination) {
            self.patch(&mut deeds, &older).await?;
            self.moved_bytes += carried(&deeds);
        }
        Ok(deeds)
    }

    /// Makes of steps that write files in place of an older version there ones that carry only what
    /// is not in that.
    async fn patch(
        &self,
        deeds: &mut [Deed],
        older: &HashMap<RelPath, Seen>,
    ) -> Result<(), Failure> {
        if !self.patches || self.args.whole_file {
            return Ok(());
        }
        let (places, files): (Vec<usize>, Vec<_>) =
            worth_a_question(deeds, older).into_iter().unzip();
        let patches = self.destination.patches(self.host, &files).await?;
        let seen: Vec<Seen> = files.into_iter().map(|(_, seen, _)| seen).collect();
        for ((place, seen), patch) in places.into_iter().zip(seen).zip(patches) {
            if let Some(patched) = patch.and_then(|patch| patched(&deeds[place], seen, patch)) {
                deeds[place] = patched;
            }
        }
        self.timeline.done("it is known which parts of small files differ");
        Ok(())
    }

    /// Moves or removes what is in the way, and makes backups. Where that fails, nothing changes.
    async fn clear_ways(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        self.keep_outside(plan).await?;
        let blocked: HashSet<String> =
            self.steps(plan.obstacles.clone()).await?.into_iter().collect();
        let names = plan.obstacles.iter().map(|deed| deed.name().to_owned());
        let mut left: HashSet<String> =
            names.filter(|path| blocked.contains(&gtp_text::of_text(path))).collect();
        plan.leave_beneath(&left);
        let failed = self.steps(plan.backed.clone()).await?;
        left = failed.iter().filter_map(|path| plan.backed_as.get(path).cloned()).collect();
        plan.leave_beneath(&left);
        Ok(())
    }

    /// Carries steps out. Returns the names of those that failed, escaped for display.
    async fn steps(&mut self, deeds: Vec<Deed>) -> Result<Vec<String>, Failure> {
        let faults = self.destination.carry_out(self.host, deeds).await?;
        Ok(self.tell_faults(faults))
    }

    /// The same for the last steps of the work.
    async fn last_steps(&mut self, deeds: Vec<Deed>) -> Result<(), Failure> {
        let faults = match self.args.watch {
            true => self.destination.carry_out(self.host, deeds).await?,
            false => self.destination.carry_out_last(self.host, deeds).await?,
        };
        self.tell_faults(faults);
        Ok(())
    }

    /// Names steps that failed; returns their names, escaped for display.
    fn tell_faults(&mut self, faults: Vec<Fault>) -> Vec<String> {
        let failed = faults.iter().map(|fault| fault.path.clone()).collect();
        for Fault { path, why } in faults {
            let path = if path.is_empty() { ".".to_owned() } else { path };
            self.trouble(&format!("{path}: {why}"));
        }
        failed
    }

    /// Opens the session of a put to a far end, which will be asked for nothing if nothing is to be
    /// sent. Other servers would take note of that.
    fn begin_put(&self) -> Result<Option<EarlyPut>, Failure> {
        match (self.source, self.destination) {
            (Side::Here(from), Side::There(to)) if to.key.is_some() && !self.args.dry_run => {
                self.put(from, to).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A put that waits for what is to be sent.
    fn put(&self, from: &Here, to: &There) -> Result<EarlyPut, Failure> {
        let (choose, chosen) = mpsc::channel();
        let mut known = None;
        let choose_once = move || {
            if known.is_none() {
                known = chosen.recv().ok();
            }
            known.clone().ok_or_else(|| other("nothing is to be sent"))
        };
        let put = Put::chosen(from.path.clone(), choose_once, to.url.clone());
        let put = match to.key {
            Some(key) => put.fingerprint(key),
            None => put.with_trust(&to.transfer),
        };
        let transfer = put.with_options(&to.transfer)?.start(self.host)?;
        Ok(EarlyPut { transfer, choose })
    }

    /// Moves the files of the plan. Returns those that did not arrive.
    async fn move_files(&mut self, plan: &Plan) -> Result<HashSet<String>, Failure> {
        if plan.files.is_empty() {
            return Ok(HashSet::new());
        }
        let values = self.known_blocks(plan).await?;
        let chosen = Chosen::new(plan.files.keys().cloned().collect(), values);
        let chosen = Arc::new(match self.only {
            Some(names) => chosen.called(names.source.to_string()),
            None => chosen,
        });
        let left_out = match (self.source, self.destination) {
            (Side::Here(from), Side::Here(to)) => self.copy(from, to, &chosen).await?,
            (Side::Here(from), Side::There(to)) => self.send(from, to, &chosen).await?,
            (Side::There(from), Side::Here(to)) => self.fetch(from, to, &chosen).await?,
            (Side::There(_), Side::There(_)) => {
                return Err(other("one of both places must be on this machine"));
            }
        };
        Ok(self.not_arrived(plan, &chosen, &left_out))
    }

    /// Sends the chosen files. Returns what was left out.
    async fn send(
        &mut self,
        from: &Here,
        to: &There,
        chosen: &Arc<Chosen>,
    ) -> Result<Vec<Failure>, Failure> {
        let mut early = match self.early.take() {
            Some(early) => early,
            None => self.put(from, to)?,
        };
        if early.choose.send(Arc::clone(chosen)).is_err() {
            // The put has failed already. Its own failure says what to do.
            let ended = early.transfer.wait().await.err();
            let silent = || other("the transfer has ended before it began");
            return Err(ended.unwrap_or_else(silent));
        }
        self.watch(early.transfer, chosen).await
    }

    /// Fetches the chosen files. Returns what was left out.
    async fn fetch(
        &mut self,
        from: &There,
        to: &Here,
        chosen: &Arc<Chosen>,
    ) -> Result<Vec<Failure>, Failure> {
        let url = match self.only {
            Some(_) => from.url_of_file()?,
            None => from.url.clone(),
        };
        let get = Get::new(url).into_tree(Arc::clone(&to.replica), Arc::clone(chosen));
        let get = match from.key {
            Some(key) => get.fingerprint(key),
            None => get.with_trust(&from.transfer),
        };
        let transfer = get.with_options(&from.transfer)?.start(self.host)?;
        self.watch(transfer, chosen).await
    }

    /// Names the chosen files that were not there any more; returns all that did not arrive.
    fn not_arrived(
        &mut self,
        plan: &Plan,
        chosen: &Chosen,
        left_out: &[Failure],
    ) -> HashSet<String> {
        let mut failed: HashSet<String> = HashSet::new();
        for path in chosen.missing() {
            self.trouble(&format!("{path}: vanished, or became unreadable, before it was moved"));
            failed.insert(path);
        }
        self.skips.add(&Skips::of(left_out));
        let is_of = |path: &str| {
            let shown = format!("{}: ", gtp_text::of_text(path));
            left_out.iter().any(|failure| failure.text.starts_with(&shown))
        };
        // A far end names a single file as the file is called there.
        let at_source = self.only.map(|names| names.source.as_str());
        let of = |path: &&String| is_of(path) || at_source.is_some_and(is_of);
        // A file that grew meanwhile has arrived nevertheless. Its time is set like the others'.
        failed.extend(plan.files.keys().filter(of).cloned());
        failed
    }

    /// Values of the blocks of new versions of large files, so that equal blocks stay where they
    /// are. Worth a question only where an older version is there.
    async fn known_blocks(&self, plan: &Plan) -> Result<Vec<(RelPath, Vec<gtp::Value>)>, Failure> {
        let is_local = matches!((self.source, self.destination), (Side::Here(_), Side::Here(_)));
        if self.args.whole_file || is_local {
            return Ok(Vec::new());
        }
        let large = plan.files.iter().filter(|(_, size)| **size > gtp::BLOCK);
        let files = large.filter_map(|(path, size)| {
            // Values beyond the end of the older version are of no use.
            let most = plan.replaced.get(path)?.size.div_ceil(gtp::BLOCK);
            let path = self.at_source(RelPath::new(path).ok()?);
            Some(BlocksAsked { path, size: *size, most })
        });
        let mut values = self.source.block_values(self.host, files.collect()).await?;
        if let Some(names) = self.only {
            values.iter_mut().for_each(|(path, _)| *path = names.destination.clone());
        }
        Ok(values)
    }

    async fn copy(
        &mut self,
        from: &Here,
        to: &Here,
        chosen: &Arc<Chosen>,
    ) -> Result<Vec<Failure>, Failure> {
        let (root, replica) = (from.path.clone(), Arc::clone(&to.replica));
        let (chosen, stop) = (Arc::clone(chosen), Arc::clone(self.stop));
        let copy = move || copy_here(&root, &replica, &chosen, &stop);
        let copying = tokio::task::spawn_blocking(copy);
        let (left_out, bytes) = copying.await.map_err(other)??;
        self.moved_bytes += bytes;
        for failure in &left_out {
            self.say_skipped(&failure.to_string());
        }
        Ok(left_out)
    }

    /// Shows a transfer to its end. Returns what was left out of it.
    async fn watch(
        &mut self,
        transfer: Transfer,
        chosen: &Arc<Chosen>,
    ) -> Result<Vec<Failure>, Failure> {
        let mut shower = Shower::new(&self.args.transfer, false)?;
        let heed = concern(chosen);
        shower.tell_only(Box::new(concern(chosen)));
        let stopper = transfer.stopper();
        let watching = watch(self.host, transfer, &self.args.transfer, &mut shower);
        let mut watching = std::pin::pin!(watching);
        let ended = tokio::select! {
            ended = &mut watching => ended,
            () = self.far_is_gone() => {
                last_words(watching, &stopper).await.map_err(without_far_end)
            }
        };
        let outcome: Outcome = ended?;
        let wire: u64 = outcome.progress.sources.iter().map(|source| source.wire_bytes).sum();
        self.moved_bytes += wire;
        Ok(outcome.skipped.into_iter().filter(|failure| heed(failure)).collect())
    }

    /// Waits until the far end, if there is one, is gone.
    async fn far_is_gone(&self) {
        match self.far {
            Some(far) => far.ended().await,
            None => std::future::pending().await,
        }
    }
}

/// That ssh and the far end ended in the midst of a transfer.
fn without_far_end(failure: Failure) -> Failure {
    if !failure.is_temporary() {
        return failure;
    }
    let text = "ssh has ended, and the far end is gone; what is complete is kept, repeat the \
                command to go on";
    Failure::new(FailureKind::Temporary, text)
}

/// Whose survey it is.
#[derive(Clone, Copy)]
enum Whose {
    Source,
    Destination,
}

/// What is known of the trees once the plan is made.
struct Surveyed {
    /// Whether all of both was seen.
    is_whole: bool,
    is_empty: bool,
    names: usize,
}

/// Whether something that a transfer left out is one of the chosen files. What the source has
/// beside them is no concern of this transfer.
fn concern(chosen: &Arc<Chosen>) -> impl Fn(&Failure) -> bool + Send + 'static {
    let chosen = Arc::clone(chosen);
    move |failure| {
        let mut ends = failure.text.match_indices(": ").map(|(at, _)| &failure.text[..at]);
        ends.any(|path| chosen.has(path))
    }
}
