//! Sending.
//!
//! For when only the other side can listen. The same terms as for fetching, the other way round;
//! the server decides what it still needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::Rate;
use gtp_net::client::{MakeContent, Objects, PutRequest, Udp, Url};
use gtp_net::flows::Failure;
use gtp_net::flows::Law;
use gtp_net::identity::Fingerprint;
use gtp_store::{BlockSource, RelPath};

use crate::get::Asked;
use crate::host::{AcceptNew, Host};
use crate::transfer::Transfer;

/// Describes what to send to a server that lets this host write.
#[must_use = "nothing happens before `start`"]
pub struct Put {
    objects: Objects,
    url: Url,
    asked: Asked,
}

impl Put {
    /// Sends files and directories. An address with a slash at its end is a directory, made if need
    /// be, and takes them under their names; without one it is what a single one will be called,
    /// except that a file goes beneath a directory that is there. A directory whose path ends with
    /// a slash is its content alone.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>, url: Url) -> Put {
        let paths = paths.into_iter().map(Into::into).collect();
        Put { objects: Objects::Paths(paths), url, asked: Asked::default() }
    }

    /// Sends an object under a name; `make` is called for each attempt, on a thread that may
    /// block, and must give the same object each time.
    pub fn from_source<S: BlockSource + 'static>(
        name: RelPath,
        mut make: impl FnMut() -> Result<S, Failure> + Send + 'static,
        url: Url,
    ) -> Put {
        let make = Box::new(move || {
            let source: Box<dyn BlockSource> = Box::new(make()?);
            Ok(source)
        });
        Put { objects: Objects::Made(name, make), url, asked: Asked::default() }
    }

    /// Sends a directory's content, as [`Objects::Content`] has it.
    pub(crate) fn content(make: MakeContent, url: Url) -> Put {
        Put { objects: Objects::Content(make), url, asked: Asked::default() }
    }

    /// Believes a server with this key only.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Put {
        self.asked.trust.pinned.push(fingerprint);
        self
    }

    /// Trusts and remembers a server that was never met.
    pub fn accept_new(mut self) -> Put {
        self.asked.trust.accept_new = AcceptNew::Yes;
        self
    }

    /// Runs this control law at both ends.
    pub fn control(mut self, law: Law) -> Put {
        self.asked.law = law;
        self
    }

    /// Weight against other sessions of the hosts, in steps of a thousandth; 1 is ordinary.
    pub fn weight(mut self, weight: f64) -> Put {
        self.asked.weight = weight;
        self
    }

    /// Limits the session to this rate.
    pub fn max_rate(mut self, rate: Rate) -> Put {
        self.asked.max_rate = rate;
        self
    }

    /// Goes on this long without progress before it fails.
    pub fn patience(mut self, patience: Duration) -> Put {
        self.asked.patience = patience;
        self
    }

    /// Whether data go by UDP; [`Udp::Auto`] if not said.
    pub fn udp(mut self, udp: Udp) -> Put {
        self.asked.udp = udp;
        self
    }

    /// Starts the transfer on the current tokio runtime.
    ///
    /// # Errors
    /// When the list of known hosts cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self, host: &Host) -> Result<Transfer, Failure> {
        let terms = self.asked.terms(host)?;
        let request = PutRequest { objects: self.objects, url: self.url, terms };
        let endpoint = Arc::clone(&host.endpoint);
        Ok(Transfer::spawn(move |monitor| gtp_net::client::put(endpoint, request, monitor)))
    }
}
