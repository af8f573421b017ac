//! Old versions that are kept outside the destination, before anything replaces them.
//!
//! Here they are kept by this process; behind a login the far end does it, step by step, in the
//! place that it was told of when it was started. What is not kept is not replaced.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use gtp::replica::{Deed, Fault, Keep};
use gtp::tree::Carried;
use gtp::{Failure, RelPath};

use super::super::plan::Plan;
use super::super::side::{Here, Side, There};
use super::Work;
use crate::output;
use crate::verbs::other;

/// What is to be kept, with the names for that, and of which of it copies are needed.
type ToKeep = (Vec<(RelPath, RelPath)>, HashSet<String>);

impl Work<'_> {
    /// Keeps what would be lost in a directory elsewhere on the destination's machine. What is not
    /// kept stays.
    pub(super) async fn keep_outside(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        let dir = self.args.backups_outside()?;
        let (Some(dir), false) = (dir, plan.kept.is_empty()) else { return Ok(()) };
        // Their times are set back before they are replaced.
        let aged: HashSet<String> = plan.aged.iter().map(|deed| deed.name().to_owned()).collect();
        let kept = std::mem::take(&mut plan.kept);
        let left = match self.destination {
            Side::Here(here) => self.keep_here(here, &dir, (kept, aged)).await?,
            Side::There(there) => self.keep_there(there, (kept, aged)).await?,
        };
        plan.leave_beneath(&left);
        Ok(())
    }

    /// The same at a login. Returns what is not kept.
    async fn keep_there(
        &mut self,
        there: &There,
        (kept, aged): ToKeep,
    ) -> Result<HashSet<String>, Failure> {
        let names: Vec<String> = kept.iter().map(|(path, _)| path.to_string()).collect();
        let deeds = kept.into_iter().map(|(path, to)| {
            let how = if aged.contains(path.as_str()) { Keep::Copy } else { Keep::Name };
            Deed::Keep { path, to, how }
        });
        let deeds: Vec<Deed> = deeds.collect();
        let Carried { faults, lacks } = there.carry_out(self.host, &deeds).await?;
        tell_lacks(lacks);
        let failed: HashSet<String> = self.tell_faults(faults).into_iter().collect();
        let is_left = |path: &String| failed.contains(&gtp_text::of_text(path));
        Ok(names.into_iter().filter(is_left).collect())
    }

    /// The same on this machine. Returns what is not kept.
    async fn keep_here(
        &mut self,
        here: &Here,
        dir: &Path,
        (kept, aged): ToKeep,
    ) -> Result<HashSet<String>, Failure> {
        let place = Here::place(&here.path.join(dir))?;
        let (tree, place) = (Arc::clone(&here.replica), Arc::clone(&place.replica));
        let keeping = tokio::task::spawn_blocking(move || {
            let (mut left, mut lacking) = (Vec::new(), BTreeMap::new());
            for (path, to) in &kept {
                let how = if aged.contains(path.as_str()) { Keep::Copy } else { Keep::Name };
                match tree.keep(path, &place, to, how) {
                    Ok(lacks) => {
                        lacks.into_iter().for_each(|what| *lacking.entry(what).or_insert(0) += 1);
                    }
                    Err(fault) => left.push((path.to_string(), fault)),
                }
            }
            (left, lacking)
        });
        let (left, lacking) = keeping.await.map_err(other)?;
        tell_lacks(lacking);
        let (left, faults): (HashSet<String>, Vec<Fault>) = left.into_iter().unzip();
        self.tell_faults(faults);
        Ok(left)
    }
}

/// Says what backups lack, and how many lack it.
fn tell_lacks(lacks: BTreeMap<impl Display, u64>) {
    for (what, number) in lacks {
        let files = gtp_text::count(number, "backup");
        output::aside(format_args!("gtp: --backup-dir: {what} of {files} cannot be kept there"));
    }
}
