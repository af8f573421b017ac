//! What is said of the work: each change, what is left out, and a last line that counts both.
//!
//! It goes to people on standard error and to programs on standard output. It knows the plan and
//! what has become of it, and changes neither.

use gtp::Failure;
use serde_json::json;

use super::{Surveyed, Work};
use crate::output;
use crate::sync::plan::{Item, Plan};
use crate::words::say_bytes;

impl Work<'_> {
    /// Says one change.
    pub(super) fn say_item(&self, item: &Item) -> Result<(), Failure> {
        if self.args.transfer.json {
            return output::json(json!({
                "event": "change",
                "change": item.change.trim_end(),
                "path": item.path,
                "to": item.to,
            }));
        }
        let (change, path) = (&item.change, gtp_text::of_text(&item.path));
        match &item.to {
            Some(to) if change.starts_with('h') => {
                output::line(format_args!("{change} {path} => {}", gtp_text::of_text(to)))
            }
            Some(to) => output::line(format_args!("{change} {path} -> {}", gtp_text::of_text(to))),
            None => output::line(format_args!("{change} {path}")),
        }
    }

    /// Something is not done, or not kept.
    pub(super) fn trouble(&mut self, text: &str) {
        self.skips.note(text);
        self.say_skipped(text);
    }

    /// Says that something is left out, which is counted elsewhere.
    pub(super) fn say_skipped(&self, text: &str) {
        if self.args.transfer.json {
            // If nobody reads, the command goes on, as `output` has it.
            output::line_beside(json!({ "event": "skipped", "kind": "partial", "message": text }));
        }
        output::aside(format_args!("gtp: {text}"));
    }

    /// The last line: what was done, and what was skipped.
    pub(super) fn sum_up(&self, plan: &Plan, source: &Surveyed) -> Result<(), Failure> {
        let (files, removed) = (plan.files.len() + self.written.0, plan.removals());
        let bytes = plan.bytes() + self.written.1;
        if self.args.transfer.json {
            let mut record = json!({
                "event": "synced",
                "dry_run": self.args.dry_run,
                "names": source.names,
                "changes": plan.items.len(),
                "files": files,
                "bytes": bytes,
                "moved_bytes": self.moved_bytes,
                "deleted": removed,
                "left_out": self.skips.total(),
            });
            self.skips.add_to(&mut record);
            return output::json(record);
        }
        let skipped = self.skips.words();
        if plan.is_empty() {
            let alike = "nothing to do: both are alike".to_owned();
            let words = skipped.map_or(alike, |words| format!("nothing to do but for {words}"));
            output::aside(format_args!("gtp: {words}"));
            return Ok(());
        }
        let skipped = skipped.map_or_else(String::new, |words| format!("; {words}"));
        let would = if self.args.dry_run { "would be " } else { "" };
        let changes = gtp_text::count(plan.items.len() as u64, "change");
        let files = gtp_text::count(files as u64, "file");
        let deleted = gtp_text::count(removed as u64, "name");
        let (bytes, moved) = (say_bytes(bytes), say_bytes(self.moved_bytes));
        output::aside(format_args!(
            "gtp: {changes}: {files} of {bytes} {would}moved ({moved} travelled), \
             {deleted} {would}deleted{skipped}"
        ));
        Ok(())
    }
}
