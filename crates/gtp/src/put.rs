//! Sending.
//!
//! For when only the other side can listen. The same terms as for fetching, the other way round;
//! the server decides what it still needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::Rate;
use gtp_net::client::{
    Input, MakeContent, Objects, PourRequest, PutRequest, Relaying, SharedPaths, Udp, Url,
};
use gtp_net::flows::Failure;
use gtp_net::flows::Law;
use gtp_net::flows::PathUse;
use gtp_net::identity::Fingerprint;
use gtp_store::{BlockSource, RelPath};
use tokio::io::AsyncRead;

use crate::get::Asked;
use crate::host::{AcceptNew, Host};
use crate::transfer::Transfer;

/// Describes what to send to a server that lets this host write.
#[must_use = "nothing happens before `start`"]
pub struct Put {
    what: What,
    url: Url,
    asked: Asked,
}

/// What is sent.
enum What {
    Objects(Objects),
    /// A stream that becomes a file.
    Stream(Input),
}

impl Put {
    /// Sends files and directories. An address with a slash at its end is a directory, made if need
    /// be, and takes them under their names; without one it is what a single one will be called,
    /// except that a file goes beneath a directory that is there. A directory whose path ends with
    /// a slash is its content alone.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>, url: Url) -> Put {
        let paths = paths.into_iter().map(Into::into).collect();
        Put::of(What::Objects(Objects::Paths(paths)), url)
    }

    /// Sends the same files and directories to several servers, as [`Put::new`] sends them to one:
    /// a put for each address, in the same order. All are to be started on one host. The files are
    /// listed once, and read once as far as the servers keep pace; a slow one delays no other. What
    /// was read is told by what comes beside them. With [`Relaying::On`] servers that can give what
    /// they get on to each other, so that each block leaves this host about once.
    ///
    /// # Errors
    /// With more than [`SINKS_MOST`](crate::SINKS_MOST) addresses.
    pub fn to_each(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        urls: impl IntoIterator<Item = Url>,
        relaying: Relaying,
    ) -> Result<(Vec<Put>, Arc<SharedPaths>), Failure> {
        let urls: Vec<Url> = urls.into_iter().collect();
        let paths = paths.into_iter().map(Into::into).collect();
        let (shared, shares) = SharedPaths::new(paths, urls.len(), relaying)?;
        let objects = shares.into_iter().map(Objects::Shared);
        let puts = objects.zip(urls).map(|(objects, url)| Put::of(What::Objects(objects), url));
        Ok((puts.collect(), shared))
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
        Put::of(What::Objects(Objects::Made(name, make)), url)
    }

    /// Sends what is read, to its end, as a file whose path the address is. The file has its name
    /// once all of it is there, and the permissions of a file that it replaces. If the input fails,
    /// or the transfer is stopped or the connection breaks before the end has been sent, nothing is
    /// kept: a stream cannot be resumed.
    pub fn from_reader(input: impl AsyncRead + Send + Unpin + 'static, url: Url) -> Put {
        Put::of(What::Stream(Box::new(input)), url)
    }

    fn of(what: What, url: Url) -> Put {
        Put { what, url, asked: Asked::default() }
    }

    /// Sends a directory's content, as [`Objects::Content`] has it.
    pub(crate) fn content(make: MakeContent, url: Url) -> Put {
        Put::of(What::Objects(Objects::Content(make)), url)
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

    /// How sessions use their paths. If the server allows less, that applies, and
    /// [`Event::Warning`](crate::Event::Warning) says so.
    pub fn path(mut self, path: PathUse) -> Put {
        self.asked.path = path;
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
        let (endpoint, url) = (Arc::clone(&host.endpoint), self.url);
        Ok(match self.what {
            What::Objects(objects) => {
                let request = PutRequest { objects, url, terms };
                Transfer::spawn(move |monitor| gtp_net::client::put(endpoint, request, monitor))
            }
            What::Stream(input) => {
                let request = PourRequest { input, url, terms };
                Transfer::spawn(move |monitor| gtp_net::client::pour(endpoint, request, monitor))
            }
        })
    }
}
