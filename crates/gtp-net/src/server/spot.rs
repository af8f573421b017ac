//! The place beneath an export that a client writes to.
//!
//! It is walked to component by component without following a link, and is held by an open
//! directory from then on. This module must not know what is written there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gtp_store::{
    BlockSink, Destination, FileSink, MadeDir, Manifest, Recheck, RelPath, RootKind, SinkError,
    SinkOptions, UNFINISHED_DIR, Value,
};
use rustix::fs::{AtFlags, FileType, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use tokio::task::JoinError;

use super::session::Client;
use crate::flows::{Failure, FailureKind, wire_root};
use crate::messages::EntryKind;

/// Values of blocks, from the first on, of files that the client is about to send.
pub(super) type Known = BTreeMap<RelPath, Vec<Value>>;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// A place beneath the export, found without following a link.
pub(super) struct Spot {
    /// The directory that holds it.
    pub holder: OwnedFd,
    /// The holder's path as clients know it.
    shown: String,
    /// Its name in the holder; `None` if it is all that is exported.
    pub name: Option<RelPath>,
    pub there: Option<RootKind>,
}

/// Finds the place that a client wants to write.
pub(super) async fn find(client: &Client) -> Result<Spot, Failure> {
    let (outlet, path) = (Arc::clone(&client.outlet), client.path.clone());
    let finding = tokio::task::spawn_blocking(move || {
        let root = outlet.ground.dir().map_err(|nothing| nothing.failure)?;
        Spot::find((root, &outlet.called), path.as_ref())
    });
    let broken = |error: JoinError| Failure::new(FailureKind::Other, error.to_string());
    finding.await.unwrap_or_else(|error| Err(broken(error)))
}

impl Spot {
    /// Walks to a path beneath the directory that is exported, which clients know by the name that
    /// it is `called`. Blocks.
    fn find(
        (mut holder, called): (OwnedFd, &str),
        path: Option<&RelPath>,
    ) -> Result<Spot, Failure> {
        let shown = |path: &str| format!("{called}{}", gtp_store::escaped(path));
        let failed = |errno: Errno| {
            let path = path.map_or("", RelPath::as_str);
            Failure::new(FailureKind::Destination, format!("{}: {}", shown(path), words(errno)))
        };
        let Some(path) = path else {
            return Ok(Spot { holder, shown: shown(""), name: None, there: Some(RootKind::Dir) });
        };
        let parent = path.parent().unwrap_or_default();
        for component in parent.split('/').filter(|component| !component.is_empty()) {
            holder = down(&holder, component).map_err(failed)?;
        }
        let there = match statat(&holder, path.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => RootKind::Dir,
                _ => RootKind::File,
            }),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let own = RelPath::new(path.file_name()).map_err(|why| {
            Failure::new(FailureKind::Destination, format!("{}: {why}", shown(path.as_str())))
        })?;
        Ok(Spot { holder, shown: shown(parent), name: Some(own), there })
    }

    /// What is there, for the client.
    pub fn object(&self) -> Option<EntryKind> {
        self.there.map(wire_root)
    }

    /// Its path as clients know it.
    pub fn path(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.shown.trim_end_matches('/')),
            None => self.shown.clone(),
        }
    }

    /// Opens the sink. Blocks for as long as it takes to hash what is there, or until `recheck`
    /// stops it.
    pub fn open(
        self,
        manifest: Arc<Manifest>,
        options: SinkOptions,
        recheck: Arc<Recheck>,
        known: Known,
    ) -> Result<Box<dyn BlockSink>, SinkError> {
        let place = self.holder.try_clone().ok().zip(self.name.clone());
        let destination = self.destination(&manifest)?;
        let new = Some(()).filter(|()| destination.made() == MadeDir::New).and(place);
        let sink = FileSink::open_watched(destination, manifest, options, recheck);
        if let (Err(_), Some((holder, name))) = (&sink, new) {
            // Nothing says that this transfer made the directory, unless a journal is in it.
            if let Err(error) = unlinkat(&holder, name.as_str(), AtFlags::REMOVEDIR) {
                tracing::debug!(%name, %error, "a directory that was made stays");
            }
        }
        let mut sink = sink?;
        for (path, values) in known {
            sink.take_over(&path, &values)?;
        }
        Ok(Box::new(sink))
    }

    /// The place for an object: a file under this name, or the directory of this name, which is
    /// made if it is not there.
    fn destination(self, manifest: &Manifest) -> Result<Destination, SinkError> {
        let path = self.path();
        let unsuitable = |why: &str| SinkError::Unsuitable(format!("{path}: {why}"));
        let failed = |errno| unsuitable(&words(errno));
        match (manifest.root_kind, self.name, self.there) {
            (RootKind::File, Some(name), Some(RootKind::File) | None) => {
                Ok(Destination::beneath_open(self.holder, &self.shown, name, RootKind::File))
            }
            (RootKind::File, _, _) => Err(unsuitable("is a directory")),
            (RootKind::Dir, None, _) => {
                Ok(Destination::into_open(self.holder, &path, MadeDir::There))
            }
            (RootKind::Dir, Some(_), Some(RootKind::File)) => {
                Err(unsuitable("is not a directory, and a directory is sent"))
            }
            (RootKind::Dir, Some(name), Some(RootKind::Dir)) => {
                let dir = down(&self.holder, name.as_str()).map_err(failed)?;
                Ok(Destination::into_open(dir, &path, MadeDir::There))
            }
            (RootKind::Dir, Some(name), None) => {
                // A directory that is to get the client's mode is private until it has it.
                let mode = if manifest.own.is_some() { UNFINISHED_DIR } else { 0o777 };
                let mode = rustix::fs::Mode::from_raw_mode(mode);
                let made = match mkdirat(&self.holder, name.as_str(), mode) {
                    Ok(()) => MadeDir::New,
                    Err(Errno::EXIST) => MadeDir::There,
                    Err(errno) => return Err(failed(errno)),
                };
                let dir = down(&self.holder, name.as_str()).map_err(failed)?;
                Ok(Destination::into_open(dir, &path, made))
            }
        }
    }
}

fn words(errno: Errno) -> String {
    match errno {
        Errno::NOENT => "no such directory".into(),
        Errno::LOOP | Errno::NOTDIR => "not a directory".into(),
        other => std::io::Error::from(other).to_string(),
    }
}

fn down(from: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(from.as_fd(), name, DIRECTORY | OFlags::NOFOLLOW, rustix::fs::Mode::empty())
}
