//! A look at the way to a server, step by step.
//!
//! It is for programs that find out why transfers with a server fail or are slow. They decide what
//! an answer means for a user.

use std::net::SocketAddr;

use gtp_net::client::{Terms, Url, examine};
use gtp_net::flows::Failure;
use gtp_net::identity::Fingerprint;

pub use gtp_net::client::examine::{Datagrams, Length, Met, Revision};

use crate::host::{AcceptNew, Host};
use crate::trust::Trust;

/// Looks at the way to one server.
pub struct Examiner {
    host: Host,
    url: Url,
    terms: Terms,
}

impl Examiner {
    /// Looks at the way from this host to the server of `url`, which is believed by these keys; if
    /// there are none, by the host's list.
    ///
    /// # Errors
    /// When the list cannot be used.
    pub fn new(
        host: &Host,
        url: &Url,
        fingerprints: &[Fingerprint],
        accept_new: AcceptNew,
    ) -> Result<Examiner, Failure> {
        let trust = Trust { pinned: fingerprints.to_vec(), accept_new };
        let terms = Terms::new(trust.load(host.config_dir())?);
        Ok(Examiner { host: host.clone(), url: url.clone(), terms })
    }

    /// The server's addresses, the preferred one first.
    ///
    /// # Errors
    /// If there is no such host, or the resolver fails.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        examine::addresses(&self.url).await
    }

    /// Whether the server takes a TCP connection at one of its addresses, within four seconds.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn connect(&self, address: SocketAddr) -> Result<(), Failure> {
        examine::connect(&self.url, address).await
    }

    /// Meets the server at one of its addresses, opens a session for the object of the URL, and
    /// looks whether datagrams of this length get through. What the session brings is dropped.
    ///
    /// # Errors
    /// Those of a transfer.
    pub async fn meet(&self, address: SocketAddr, length: Length) -> Result<Met, Failure> {
        examine::meet(&self.host.endpoint, &self.url, &self.terms, (address, length)).await
    }
}
