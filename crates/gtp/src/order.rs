//! Having a server fetch from other servers.
//!
//! A description is built first and started once. The bytes go from server to server; the host that
//! orders moves none, and needs the right to read at each source and to write at the sink.

use std::time::Duration;

use gtp_net::client::{OrderRequest, Url};
use gtp_net::flows::Failure;
use gtp_net::identity::Fingerprint;

use crate::get::Asked;
use crate::host::Host;
use crate::transfer::Transfer;

/// Describes what a server is to fetch, and from which servers.
///
/// The sink must run with [`Server::third_party`](crate::Server::third_party), and the key of the
/// host that orders must be on the lists of all of them.
#[must_use = "nothing happens before `start`"]
pub struct Order {
    sink: Url,
    sources: Vec<(Url, Fingerprint)>,
    asked: Asked,
}

impl Order {
    /// Has the object put at this address, which names the object itself: a file, or a directory
    /// that takes the content of one. The server there must have this key.
    pub fn new(sink: Url, key: Fingerprint) -> Order {
        let mut asked = Asked::default();
        asked.trust.pinned.push(key);
        Order { sink, sources: Vec::new(), asked }
    }

    /// Names a server that has the object, with its key; 1 to 8 of them. Blocks come from all, by
    /// their rates.
    pub fn source(mut self, url: Url, key: Fingerprint) -> Order {
        self.sources.push((url, key));
        self
    }

    /// The weight against other sessions, at the sink and at the sources; 1 is ordinary.
    pub fn weight(mut self, weight: f64) -> Order {
        self.asked.weight = weight;
        self
    }

    /// How long to go on without progress.
    pub fn patience(mut self, patience: Duration) -> Order {
        self.asked.patience = patience;
        self
    }

    /// Starts on the current tokio runtime.
    ///
    /// # Errors
    /// When the description makes no sense.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self, host: &Host) -> Result<Transfer, Failure> {
        let terms = self.asked.terms(host)?;
        let request = OrderRequest { sink: self.sink, sources: self.sources, terms };
        let endpoint = host.endpoint.clone();
        Ok(Transfer::spawn(move |monitor| gtp_net::client::order(endpoint, request, monitor)))
    }
}
