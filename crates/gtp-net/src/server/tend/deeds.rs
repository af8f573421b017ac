//! Carries out the steps of a client that changes a tree.
//!
//! A page of steps is carried out by a thread that may block, in their order, and the operator is
//! told of it before the server ends. What a session may remove, and what a quota leaves room for,
//! is judged step by step. This module must not know how steps come or how they are answered.

use std::sync::Arc;

use gtp_store::RelPath;
use gtp_store::replica::{Deed, Replica};

use super::broken_off;
use crate::flows::tree::{BadTree, deed};
use crate::flows::{Failure, FailureKind};
use crate::messages::{DeedFault, Deeds, DeedsDone, Lack, Lacks, PeerText, TreeDeed, printable};
use crate::server::charge::PageCharge;
use crate::server::outlet::Outlet;
use crate::server::quota::Meter;
use crate::server::session::{Client, Deleting};
use crate::server::writers::Writer;
use crate::server::{Change, Changes, Shared};

/// Carries a page of steps out and tells the operator of them, before the server ends.
///
/// # Errors
/// [`FailureKind::Temporary`] if the server ends already.
pub(super) fn change_tree(
    shared: &Arc<Shared>,
    client: &Client,
    replica: &Arc<Replica>,
    deeds: Deeds,
) -> Result<impl Future<Output = Result<DeedsDone, Failure>> + use<>, Failure> {
    let begun = shared.steps.begin();
    let page = begun.ok_or_else(|| Failure::new(FailureKind::Temporary, STOPS))?;
    let (shared, told) = (Arc::clone(shared), Arc::clone(&client.told));
    let (replica, seat) = (Arc::clone(replica), Arc::clone(&client.seat));
    let deleting = client.deleting;
    let (outlet, tree) = (Arc::clone(&client.outlet), client.path.clone());
    let (writer, meter) = outlet.writing(tree.as_ref());
    let counted = Counted { meter, outlet, tree, _writer: writer };
    Ok(async move {
        // The last to go: the server's end waits for it, and the session's end is told before.
        let _page = page;
        let told = told;
        let (server, steps) = (Arc::clone(&shared), deeds.deeds.len());
        let working = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            let rules = Rules { told: server.config.changes, deleting };
            carry_out(&replica, deeds, (rules, &counted), || server.steps.must_stop())
        });
        let Carried { done, changes } = working.await.map_err(broken_off)?;
        told.count_changes(steps.saturating_sub(done.faults.len()) as u64);
        shared.tell_changes(told.visit(), changes).await;
        Ok(done)
    })
}

/// What holds for the steps of a session.
#[derive(Clone, Copy)]
struct Rules {
    told: Changes,
    deleting: Deleting,
}

/// The quotas for which the steps of a session count.
struct Counted {
    meter: Meter,
    outlet: Arc<Outlet>,
    tree: Option<RelPath>,
    _writer: Writer,
}

impl Counted {
    /// Looks at what the steps concern, if it counts.
    ///
    /// # Errors
    /// Why that is not possible, for the client.
    fn charge(
        &self,
        replica: &Replica,
        deeds: &[Result<Deed, BadTree>],
    ) -> Result<Option<PageCharge<'_>>, String> {
        if self.meter.is_idle() {
            return Ok(None);
        }
        let root = self.outlet.ground.dir().map_err(|nothing| nothing.text)?;
        if !replica.is_beneath(&root) {
            return Err(MOVED.to_owned());
        }
        let deeds = deeds.iter().filter_map(|deed| deed.as_ref().ok());
        Ok(PageCharge::of(&self.meter, (root, self.tree.clone()), deeds))
    }
}

/// Whether a step takes something away from where it is.
fn deletes(deed: &Deed) -> bool {
    match deed {
        Deed::Remove { .. } | Deed::Move { .. } => true,
        Deed::MakeDir { .. }
        | Deed::Link { .. }
        | Deed::HardLink { .. }
        | Deed::Dig { .. }
        | Deed::Dress(_)
        | Deed::Write { .. }
        | Deed::Patch { .. }
        | Deed::Keep { .. } => false,
    }
}

/// What came of a page of steps.
struct Carried {
    done: DeedsDone,
    /// The steps as the operator hears of them, if that is wanted.
    changes: Vec<Change>,
}

/// Carries steps out in their order. One that fails does not keep the others from being tried, but
/// none is tried once they must stop.
fn carry_out(
    replica: &Replica,
    deeds: Deeds,
    (rules, counted): (Rules, &Counted),
    must_stop: impl Fn() -> bool,
) -> Carried {
    let (mut steps, mut refused) = (replica.steps(), Vec::new());
    let told = |wire| (rules.told == Changes::Told).then(|| change(wire));
    let changes: Vec<Change> = deeds.deeds.iter().filter_map(told).collect();
    let deeds: Vec<_> = deeds.deeds.into_iter().map(deed).collect();
    let mut charge = match counted.charge(replica, &deeds) {
        Ok(charge) => charge,
        Err(why) => return all_refused(deeds.len(), changes, &why),
    };
    for (index, deed) in deeds.into_iter().enumerate() {
        match deed {
            Ok(_) if must_stop() => refused.push((index, STOPS.to_owned())),
            Ok(deed) if deletes(&deed) && rules.deleting == Deleting::Refused => {
                refused.push((index, NO_DELETING.to_owned()));
            }
            Ok(deed) => match charge.as_mut().map_or(Ok(()), |charge| charge.admit(&deed)) {
                Ok(()) => steps.carry_out(index, &deed),
                Err(full) => refused.push((index, full.to_string())),
            },
            Err(bad) => refused.push((index, bad.to_string())),
        }
    }
    let kinds = steps.lacks().iter();
    let kinds = kinds.map(|(what, &number)| Lack { what: PeerText::new(*what), number });
    let kinds: Vec<Lack> = kinds.collect();
    let lacks = (!kinds.is_empty()).then_some(Lacks { kinds });
    refused.extend(steps.finish().into_iter().map(|(index, fault)| (index, fault.why)));
    charge.into_iter().for_each(PageCharge::settle);
    carried(refused, lacks, changes)
}

/// That no step is carried out.
fn all_refused(steps: usize, changes: Vec<Change>, why: &str) -> Carried {
    carried((0..steps).map(|index| (index, why.to_owned())).collect(), None, changes)
}

fn carried(
    mut refused: Vec<(usize, String)>,
    lacks: Option<Lacks>,
    mut changes: Vec<Change>,
) -> Carried {
    refused.sort_by_key(|(index, _)| *index);
    let faults = refused.into_iter().map(|(index, why)| {
        let why = cut(why);
        if let Some(change) = changes.get_mut(index) {
            change.failure = Some(why.clone());
        }
        DeedFault { index: index as u32, text: PeerText::new(why) }
    });
    Carried { done: DeedsDone { faults: faults.collect(), lacks }, changes }
}

/// As much of a reason as a message takes.
fn cut(mut why: String) -> String {
    let end = (0..=FAULT_MAX.min(why.len())).rev().find(|&at| why.is_char_boundary(at));
    why.truncate(end.unwrap_or(0));
    why
}

/// A step as the operator hears of it.
fn change(wire: &TreeDeed) -> Change {
    let (what, path, to) = match wire {
        TreeDeed::MakeDir { path } => ("make_directory", path, None),
        TreeDeed::Remove { path, .. } => ("remove", path, None),
        TreeDeed::Move { path, to, .. } => ("move", path, Some(to)),
        TreeDeed::Link { path, target } => ("link", path, Some(target)),
        TreeDeed::HardLink { path, to } => ("hard_link", path, Some(to)),
        TreeDeed::Keep { path, to, .. } => ("keep", path, Some(to)),
        TreeDeed::Dig { path } => ("punch_holes", path, None),
        TreeDeed::Dress { path, .. } => ("attributes", path, None),
        TreeDeed::Write { path, .. } | TreeDeed::Patch { path, .. } => ("write", path, None),
    };
    Change { what, path: printable(path), to: to.map(|to| printable(to)), failure: None }
}

/// Why nothing is removed or moved.
const NO_DELETING: &str = "this key may not remove or move anything here (delete)";

/// Why nothing is done in a directory in whose place another one is counted.
const MOVED: &str = "the export now leads to another directory; start again";

/// Why a step is not tried when the server ends.
const STOPS: &str = "the server stops";

/// Bytes of the text of a step that failed, so that all of a page fit into one message.
const FAULT_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gtp_alloc::Bytes;

    use super::*;
    use crate::messages::Verb;
    use crate::server::budget::Budget;
    use crate::server::outlet::Outlets;
    use crate::server::quota::Quota;
    use crate::server::rules::{ExportRule, Exports, Visibility, Who};

    /// Where no quota counts.
    fn uncounted(dir: &std::path::Path) -> Counted {
        found(Outlets::one(dir.to_owned(), "", None, Budget::new(Bytes(1))).unwrap(), "")
    }

    /// What a client with all rights finds at a path.
    fn found(outlets: Outlets, path: &str) -> Counted {
        let verb = Verb::Tree { path: path.into(), changes: true };
        let key = crate::identity::Identity::generate().fingerprint();
        let keys = crate::trust::AuthorizedKeys::of_one(key, crate::trust::Access::ALL);
        let strangers = crate::trust::Strangers::Refused;
        let trust = crate::trust::ClientTrust { keys, strangers };
        let outlet = outlets.find(&trust, &key, &verb).ok().unwrap().outlet;
        let (writer, meter) = outlet.writing(None);
        Counted { meter, outlet, tree: None, _writer: writer }
    }

    const TOLD: Rules = Rules { told: Changes::Told, deleting: Deleting::Allowed };

    #[test]
    fn without_the_right_to_delete_nothing_is_removed_or_moved_and_other_steps_are_done() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let replica = Replica::beneath(dir.path(), None).unwrap();
        let kind = crate::messages::NodeKind::Directory;
        let seen = crate::messages::TreeSeen { kind, size: 0, mtime: None };
        let path = || b"a".to_vec();
        let deeds = vec![
            TreeDeed::Move { path: path(), seen, to: b"c".to_vec() },
            TreeDeed::Remove { path: path(), seen },
            TreeDeed::MakeDir { path: b"b".to_vec() },
        ];
        let rules = Rules { deleting: Deleting::Refused, ..TOLD };
        let Carried { done, .. } =
            carry_out(&replica, Deeds { deeds }, (rules, &uncounted(dir.path())), || false);
        let failed: Vec<u32> = done.faults.iter().map(|fault| fault.index).collect();
        assert_eq!(failed, [0, 1]);
        assert!(dir.path().join("a").exists() && dir.path().join("b").exists());
    }

    #[test]
    fn nothing_is_done_in_a_directory_in_whose_place_another_one_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (link, old) = (dir.path().join("link"), dir.path().join("old"));
        std::fs::create_dir(&old).unwrap();
        std::os::unix::fs::symlink("old", &link).unwrap();
        let quota = Quota { bytes: Some(1_000), files: None };
        let [read, write, delete] = [(); 3].map(|()| Who::Everybody);
        let visibility = Visibility::Listed;
        let rule = ExportRule { path: link.clone(), read, write, delete, visibility, quota };
        let exports = [("home".to_owned(), rule)].into();
        let exports = Exports { exports, ..Exports::default() };
        let outlets = Outlets::several(exports, "", Budget::new(Bytes(1))).unwrap();
        let (counted, replica) = (found(outlets, "home"), Replica::beneath(&old, None).unwrap());
        std::fs::remove_file(&link).unwrap();
        std::fs::create_dir(dir.path().join("new")).unwrap();
        std::os::unix::fs::symlink("new", &link).unwrap();
        let deeds = Deeds { deeds: vec![TreeDeed::MakeDir { path: b"a".to_vec() }] };
        let Carried { done, .. } = carry_out(&replica, deeds, (TOLD, &counted), || false);
        assert_eq!(done.faults[0].text.to_string(), MOVED);
    }

    #[test]
    fn a_page_stops_between_its_steps_and_says_of_each_whether_it_was_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let replica = Replica::beneath(dir.path(), None).unwrap();
        let make = |name: &str| TreeDeed::MakeDir { path: name.into() };
        let deeds = Deeds { deeds: ["a", "b", "c"].map(make).into() };
        let looks = Cell::new(0);
        let must_stop = || looks.replace(looks.get() + 1) >= 1;
        let Carried { done, changes } =
            carry_out(&replica, deeds, (TOLD, &uncounted(dir.path())), must_stop);
        assert!(dir.path().join("a").is_dir());
        assert!(!dir.path().join("b").exists() && !dir.path().join("c").exists());
        let failed: Vec<u32> = done.faults.iter().map(|fault| fault.index).collect();
        assert_eq!(failed, [1, 2]);
        let told: Vec<_> = changes.iter().map(|change| change.failure.as_deref()).collect();
        assert_eq!(told, [None, Some(STOPS), Some(STOPS)]);
    }
}
