//! The same for programs without async code: each call brings a runtime of its own.
//!
//! Nothing here does what the async calls do not; a runtime with one thread runs beside the
//! caller's and ends with what it was made for.

use std::net::SocketAddr;

use gtp_net::client::{Event, Listing, Outcome, Progress, Url};
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Fingerprint;
use tokio::runtime::{Builder, Runtime};

use crate::host::AcceptNew;
use crate::{Get, Host, Put, RunningServer, Server, Stopper, Transfer};

/// Fetches and waits for the end.
///
/// # Errors
/// [`Failure`].
pub fn get(host: &Host, get: Get) -> Result<Outcome, Failure> {
    start_get(host, get)?.wait()
}

/// Sends and waits for the end.
///
/// # Errors
/// [`Failure`].
pub fn put(host: &Host, put: Put) -> Result<Outcome, Failure> {
    start_put(host, put)?.wait()
}

/// Lists; see [`Host::list`].
///
/// # Errors
/// [`Failure`].
pub fn list(
    host: &Host,
    url: &Url,
    fingerprints: &[Fingerprint],
    accept_new: AcceptNew,
) -> Result<Listing, Failure> {
    runtime()?.block_on(host.list(url, fingerprints, accept_new))
}

/// Starts to fetch, in the background.
///
/// # Errors
/// As [`Get::start`].
pub fn start_get(host: &Host, get: Get) -> Result<RunningTransfer, Failure> {
    start(|| get.start(host))
}

/// Starts to send, in the background.
///
/// # Errors
/// As [`Put::start`].
pub fn start_put(host: &Host, put: Put) -> Result<RunningTransfer, Failure> {
    start(|| put.start(host))
}

fn start(start: impl FnOnce() -> Result<Transfer, Failure>) -> Result<RunningTransfer, Failure> {
    let runtime = runtime()?;
    let transfer = {
        let _inside = runtime.enter();
        start()?
    };
    Ok(RunningTransfer { transfer, runtime })
}

/// Starts a server, in the background.
///
/// # Errors
/// As [`Server::start`].
pub fn serve(host: &Host, server: Server) -> Result<BackgroundServer, Failure> {
    let runtime = runtime()?;
    let server = runtime.block_on(server.start(host))?;
    Ok(BackgroundServer { server: Some(server), runtime })
}

/// A transfer in the background. Dropping it stops it.
#[derive(Debug)]
pub struct RunningTransfer {
    // Dropped first: it tells the task to end.
    transfer: Transfer,
    runtime: Runtime,
}

impl RunningTransfer {
    /// Waits for the next event; `None` when the transfer is over.
    pub fn next_event(&mut self) -> Option<Event> {
        self.runtime.block_on(self.transfer.next_event())
    }

    /// How it is doing.
    pub fn progress(&self) -> Progress {
        self.transfer.progress()
    }

    /// A way to stop it from another thread.
    pub fn stopper(&self) -> Stopper {
        self.transfer.stopper()
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn wait(mut self) -> Result<Outcome, Failure> {
        self.runtime.block_on(self.transfer.wait())
    }
}

/// A server in the background. Dropping it stops it.
#[derive(Debug)]
pub struct BackgroundServer {
    server: Option<RunningServer>,
    runtime: Runtime,
}

impl BackgroundServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("it is there until it is dropped").address()
    }

    /// The key that clients see.
    pub fn fingerprint(&self) -> Fingerprint {
        self.server.as_ref().expect("it is there until it is dropped").fingerprint()
    }
}

impl Drop for BackgroundServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("gtp-control")
        .enable_all()
        .build()
        .map_err(|e| Failure::new(FailureKind::Other, format!("no runtime: {e}")))
}

/// The control channels of one transfer are light work.
const WORKERS: usize = 1;
