//! What a hangup changes at a server that runs.
//!
//! Settings that can change do; others are named in the log, and count from the next start on. What
//! cannot be had (an address, a file) is told, and stays as it was.

use std::path::PathBuf;

use gtp::{Exports, Failure, Server, default_capacity};
use tracing::{error, info, warn};

use super::difference::difference;
use super::metrics::Metrics;
use super::{Service, groups_beside_directory, judge, names_of, warn_of_exposed, with_settings};
use crate::args::{self, ServeArgs, Verb};
use crate::log::SERVER;
use crate::log_settings;

impl Service {
    /// Reads again what can be read again while transfers go on.
    pub(super) fn reload(&mut self) {
        self.manager.reloading();
        match args::parse_again() {
            Ok((Verb::Serve(new), overridden)) => {
                for why in overridden {
                    warn!(target: SERVER, why, "reload: the environment comes before the file");
                }
                self.take(new);
            }
            Ok(_) => {}
            Err(why) => error!(target: SERVER, why, "reload: the configuration stays as it was"),
        }
        self.running.reload();
        if let (Some(audit), Some(path)) = (&self.audit, &self.args.audit) {
            audit.reopen(path);
        }
        self.manager.ready();
    }

    /// Takes new settings, as far as a server that runs can.
    fn take(&mut self, new: ServeArgs) {
        if let Err(why) = fits(&self.args, &new) {
            error!(target: SERVER, %why, "reload: the configuration stays as it was");
            return;
        }
        let both = fixed(&self.args).into_iter().zip(fixed(&new));
        let changed = both.filter(|((_, old), (_, new))| old != new);
        let later: Vec<&str> = changed.map(|((name, _), _)| name).collect();
        if !later.is_empty() {
            let settings = later.join(", ");
            warn!(target: SERVER, settings, "reload: these settings count from the next start on");
        }
        // Terms do not depend on what is exported.
        let described = Server::exports(Exports::default());
        self.running.change_terms(with_settings(described, &new));
        self.take_exports(&new);
        warn_of_exposed(&new);
        self.args.drain = new.drain;
        self.take_capacities(&new);
        self.take_metrics(&new);
        if self.audit.is_some() && new.audit.is_some() {
            self.args.audit.clone_from(&new.audit);
        }
        log_settings::change(new.log_format, new.log.as_deref());
        info!(target: SERVER, writable = new.writable, "reload: the configuration was read again");
    }

    /// Takes other groups, and other exports if the server was started with those of the file. If
    /// the file names none any more, nothing is exported.
    fn take_exports(&mut self, new: &ServeArgs) {
        let exports = new.exports.clone().unwrap_or_default();
        let is_directory = self.args.dir.is_some();
        if exports.exports.is_empty() && !is_directory {
            warn!(
                target: SERVER,
                "reload: the file names no exports: nothing is exported now, and a server would \
                 not start with it"
            );
        }
        match self.running.change_exports(exports.clone()) {
            Ok(()) => {
                self.warn_of_lost_hours(&exports);
                say_changes(&self.args.exports.take().unwrap_or_default(), &exports);
                self.args.exports = Some(exports);
            }
            Err(why) => error!(target: SERVER, %why, "reload: the exports stay as they were"),
        }
    }

    /// The hours of a group that is gone count no more.
    fn warn_of_lost_hours(&self, new: &gtp::Exports) {
        let before = self.args.exports.iter().flat_map(|exports| &exports.groups);
        let lost = before
            .filter(|(name, group)| !group.hours.is_always() && !new.groups.contains_key(*name));
        let groups = names_of(lost.map(|(name, _)| name));
        if !groups.is_empty() {
            warn!(
                target: SERVER, groups,
                "reload: these groups had hours and are not in the file any more: their members \
                 have the hours of their own lines and of their other groups"
            );
        }
    }

    /// If a daemon shares this machine's capacity, the daemon's figures still apply.
    fn take_capacities(&mut self, new: &ServeArgs) {
        let now = |new: Option<gtp::Rate>, old: Option<gtp::Rate>| {
            (new != old).then(|| new.unwrap_or_else(default_capacity))
        };
        let old = &mut self.args.host;
        let out = now(new.host.capacity_out, old.capacity_out);
        let in_ = now(new.host.capacity_in, old.capacity_in);
        if out.is_some() || in_.is_some() {
            self.host.set_capacity(out, in_);
        }
        (old.capacity_out, old.capacity_in) = (new.host.capacity_out, new.host.capacity_in);
    }

    fn take_metrics(&mut self, new: &ServeArgs) {
        let taken = match (&mut self.metrics, new.metrics) {
            (Some(metrics), Some(address)) => metrics.move_to(address),
            (metrics @ Some(_), None) => {
                *metrics = None;
                Ok(())
            }
            (metrics @ None, Some(address)) => {
                Metrics::serve(address, &self.running).map(|new| *metrics = Some(new))
            }
            (None, None) => Ok(()),
        };
        match taken {
            Ok(()) => self.args.metrics = new.metrics,
            Err(failure) => {
                let failure = judge::blamed(&new.origins, "metrics", failure);
                error!(target: SERVER, "reload: {failure}");
            }
        }
    }
}

/// Says which exports and groups are others now.
fn say_changes(old: &Exports, new: &Exports) {
    if let Some(exports) = difference(&old.exports, &new.exports) {
        info!(target: SERVER, exports, "reload: the exports were changed");
    }
    if let Some(groups) = difference(&old.groups, &new.groups) {
        info!(target: SERVER, groups, "reload: the groups were changed");
    }
}

/// Whether a server that was started with the `old` settings can have what is exported by the
/// `new`.
///
/// # Errors
/// As when it starts.
fn fits(old: &ServeArgs, new: &ServeArgs) -> Result<(), Failure> {
    if old.dir.is_some() {
        groups_beside_directory(new)?;
    }
    let is_other = |old: &Option<PathBuf>, new: &Option<PathBuf>| old != new;
    let audit = new.audit.as_deref().filter(|_| is_other(&old.audit, &new.audit));
    let lists = (&old.authorized_keys, &new.authorized_keys);
    let list = new.authorized_keys.as_deref().filter(|_| is_other(lists.0, lists.1));
    judge::of_files(audit, list)
        .map_err(|(setting, failure)| judge::blamed(&new.origins, setting, failure))
}

/// The settings that a server which runs cannot change, with their values.
fn fixed(args: &ServeArgs) -> [(&'static str, String); 9] {
    let said = |value: &dyn std::fmt::Debug| format!("{value:?}");
    [
        ("listen", args.listen.clone()),
        ("public", said(&args.public)),
        ("authorized-keys", said(&args.authorized_keys)),
        ("third-party", said(&args.third_party)),
        ("engines", said(&args.engines)),
        ("interval, daemon", said(&(args.host.interval, &args.host.daemon))),
        ("status", said(&args.status)),
        ("audit (whether there is one)", said(&args.audit.is_some())),
        ("json", said(&args.json)),
    ]
}
