//! The handle that others hold of a running emulator.
//!
//! The emulator's thread owns everything; a handle sends it commands and wakes it, and counters
//! come back as values. Nothing is shared, so nothing is locked.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use gtp_link::Change;

use crate::poller::Waker;
use crate::spec::Carriage;
use crate::stats::Snapshot;

/// The two protocols of a relay's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Datagrams.
    Udp,
    /// Connections.
    Tcp,
}

/// What a handle asks of the emulator's thread.
pub(crate) enum Command {
    Stats(mpsc::Sender<Snapshot>),
    Link(usize, Change),
    Carry(usize, Protocol, Carriage),
    Stop,
}

/// Why a handle's wish was not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The network has no such link or path.
    #[error("the network has no {kind} {name:?}")]
    Unknown {
        /// Link or path.
        kind: &'static str,
        /// The name asked for.
        name: String,
    },
    /// The emulator's thread has ended.
    #[error("the emulator has stopped")]
    Stopped,
}

/// A running emulator. Dropping it stops the emulator.
#[derive(Debug)]
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) waker: Waker,
    pub(crate) thread: Option<JoinHandle<io::Result<Snapshot>>>,
    pub(crate) links: Vec<String>,
    /// The relay's paths with the addresses that they listen on.
    pub(crate) paths: Vec<(String, SocketAddr)>,
}

impl Handle {
    /// The counters now.
    ///
    /// # Errors
    /// If the emulator has stopped.
    pub fn stats(&self) -> Result<Snapshot, ControlError> {
        let (answer, question) = mpsc::channel();
        self.send(Command::Stats(answer))?;
        question.recv().map_err(|_| ControlError::Stopped)
    }

    /// Changes a link from now on.
    ///
    /// # Errors
    /// If there is no such link, or the emulator has stopped.
    pub fn set_link(&self, name: &str, change: Change) -> Result<(), ControlError> {
        let place = place("link", name, self.links.iter().map(String::as_str))?;
        self.send(Command::Link(place, change))
    }

    /// Lets a relay's path carry a protocol or swallow it, from now on.
    ///
    /// # Errors
    /// If there is no such path, or the emulator has stopped.
    pub fn set_carriage(
        &self,
        path: &str,
        protocol: Protocol,
        carriage: Carriage,
    ) -> Result<(), ControlError> {
        let place = place("path", path, self.paths.iter().map(|(name, _)| name.as_str()))?;
        self.send(Command::Carry(place, protocol, carriage))
    }

    /// The address on which a relay's path listens.
    pub fn listen(&self, path: &str) -> Option<SocketAddr> {
        self.paths.iter().find(|(name, _)| name == path).map(|(_, address)| *address)
    }

    /// Stops the emulator and gives its last counters.
    ///
    /// # Errors
    /// If its thread had ended by an error.
    pub fn stop(mut self) -> io::Result<Snapshot> {
        self.halt().unwrap_or_else(|| Err(io::Error::other("the emulator has stopped already")))
    }

    /// Whether the emulator's thread still runs.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn send(&self, command: Command) -> Result<(), ControlError> {
        self.commands.send(command).map_err(|_| ControlError::Stopped)?;
        self.waker.wake();
        Ok(())
    }

    fn halt(&mut self) -> Option<io::Result<Snapshot>> {
        let thread = self.thread.take()?;
        // If it fails the thread has ended, which is what is wanted.
        let _ = self.send(Command::Stop);
        let ended = thread.join();
        Some(ended.unwrap_or_else(|_| Err(io::Error::other("the emulator's thread panicked"))))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.halt() {
            tracing::warn!(%error, "the emulator ended by an error");
        }
    }
}

fn place<'a>(
    kind: &'static str,
    name: &str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<usize, ControlError> {
    let unknown = || ControlError::Unknown { kind, name: name.to_owned() };
    names.position(|known| known == name).ok_or_else(unknown)
}
