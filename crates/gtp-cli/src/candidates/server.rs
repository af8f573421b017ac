//! The names in a directory at a server.
//!
//! The user waits at a prompt: a server that was never met is not asked, and all of it has a time
//! limit. Names are as an address has them.

use std::time::Duration;

use gtp::{AcceptNew, Entry, Host, Kind, Listed, Url};
use tokio::time::timeout;

/// The names, those of directories with a slash at the end. What has come in time counts.
pub async fn names(url: &Url) -> Vec<String> {
    let Ok(host) = Host::builder().or_in_memory().start() else { return Vec::new() };
    let mut names = Vec::new();
    let each = |part| {
        if let Listed::Entries(entries) = part
            && names.len() < NAMES_MAX
        {
            names.extend(entries.iter().filter_map(name));
        }
    };
    // What hinders it, the command itself says.
    let _ = timeout(LIMIT, host.list_each(url, &[], AcceptNew::No, each)).await;
    names
}

/// A name as an address has it.
fn name(entry: &Entry) -> Option<String> {
    let slash = match entry.kind {
        Kind::File => "",
        Kind::Dir => "/",
    };
    let url = Url::at(ANY_HOST, 1, entry.path.as_str()).ok()?.encoded();
    let name = url.strip_prefix("gtp://")?.split_once('/')?.1;
    Some(format!("{name}{slash}"))
}

/// A host in an address of which only the path is read.
const ANY_HOST: &str = "host";

/// Time for all of it.
const LIMIT: Duration = Duration::from_secs(3);

/// Names after which no more are taken in; they would have no use at a prompt.
const NAMES_MAX: usize = 10_000;
