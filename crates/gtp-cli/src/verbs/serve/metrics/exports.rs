//! Numbers by export: what was moved there, how sessions ended, and how quotas stand.
//!
//! Exports and groups are those that the configuration has or had, so that no client can make the
//! page grow. This file must not know who asks for the page, nor keep anything of a client.

use gtp::{QuotaOf, QuotaStands, Visit};
use prometheus_client::registry::Registry;

use super::{Counters, Gauges, Labels, of_verb};

/// What is counted by export, and how quotas stand.
#[derive(Default)]
pub(super) struct ByExport {
    content: Counters,
    ended: Counters,
    /// What is there, and what may be there.
    bytes: [Gauges; 2],
    files: [Gauges; 2],
}

/// What the directory of a server that has one export alone is called, and the list of several.
const TOP: &str = "/";

impl ByExport {
    /// Adds the numbers to a page.
    pub fn register(&self, all: &mut Registry) {
        let help = "Content that was moved, by the exports that it was in";
        all.register("export_content_bytes", help, self.content.clone());
        let help = "Sessions that ended, by the exports that they used";
        all.register("export_sessions", help, self.ended.clone());
        let [used, limit] = self.bytes.clone();
        all.register("quota_used_bytes", "Content that counts for a quota", used);
        all.register("quota_limit_bytes", "The most content that a quota allows", limit);
        let [used, limit] = self.files.clone();
        all.register("quota_used_files", "Names that count for a quota", used);
        all.register("quota_limit_files", "The most names that a quota allows", limit);
    }

    /// Counts content of a session.
    pub fn add(&self, visit: &Visit, content: u64) {
        self.content.get_or_create(&of_export(visit)).inc_by(content);
    }

    /// Counts a session that ended.
    pub fn end(&self, visit: &Visit, outcome: &str) {
        let mut labels = of_export(visit);
        labels.push(("outcome", outcome.to_owned()));
        self.ended.get_or_create(&labels).inc();
    }

    /// Shows how quotas stand. Those that are no more are shown no more, and what is there only
    /// once it was counted.
    pub fn show(&self, quotas: &[QuotaStands]) {
        self.bytes.iter().chain(&self.files).for_each(Gauges::clear);
        for QuotaStands { owner, quota, used } in quotas {
            let labels = of_owner(owner);
            let [bytes, files] = [used.map(|used| used.0), used.map(|used| used.1)];
            let rows = [(&self.bytes, bytes, quota.bytes), (&self.files, files, quota.files)];
            for ([of_used, of_limit], used, limit) in rows {
                let Some(limit) = limit else { continue };
                of_limit.get_or_create(&labels).set(limit as f64);
                if let Some(used) = used {
                    of_used.get_or_create(&labels).set(used as f64);
                }
            }
        }
    }
}

fn of_export(visit: &Visit) -> Labels {
    let export = visit.export.as_deref().unwrap_or(TOP);
    let mut labels = vec![("export", export.to_owned())];
    labels.extend(of_verb(visit));
    labels
}

fn of_owner(owner: &QuotaOf) -> Labels {
    let (kind, name) = match owner {
        QuotaOf::Export(name) => ("export", name),
        QuotaOf::Group(name) => ("group", name),
    };
    vec![("kind", kind.to_owned()), ("owner", name.clone())]
}
