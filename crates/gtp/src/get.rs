//! Fetching.
//!
//! A description is built first and started once; until then nothing is opened and nobody is asked.
//! One `Get` is one object, from however many servers.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::Rate;
use gtp_net::client::{Directories, GetRequest, MakeSink, Naming, Place, Terms, Udp, Url};
use gtp_net::flows::Law;
use gtp_net::flows::PathUse;
use gtp_net::flows::{Failure, FailureKind};
use gtp_net::identity::Fingerprint;
use gtp_net::messages::ALONE_RATE;
use gtp_store::{BlockSink, Existing, Manifest, RelPath, SinkError, SinkOptions, Value};

use crate::host::{AcceptNew, Host};
use crate::transfer::Transfer;
use crate::trust::Trust;

/// Describes what to fetch, from where, and to where.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use gtp::{Event, Get, Host, Rate};
///
/// let host = Host::builder().capacity_in(Rate::from_mbps(630)).start()?;
/// let mut transfer = Get::new("gtp://a.example/run42.h5".parse()?)
///     .mirror("gtp://b.example/run42.h5".parse()?)
///     .to("run42.h5")
///     .start(&host)?;
/// while let Some(event) = transfer.next_event().await {
///     if let Event::Retry { url, failure, .. } = event {
///         eprintln!("{url}: {failure}");
///     }
/// }
/// let outcome = transfer.wait().await?;
/// println!("{} bytes in {:.1} s", outcome.bytes, outcome.elapsed.as_secs_f64());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `start`"]
pub struct Get {
    sources: Vec<Url>,
    place: Option<Place>,
    options: SinkOptions,
    naming: Naming,
    expected: Option<Value>,
    pub(crate) asked: Asked,
}

/// What `Get` and `Put` have in common.
pub(crate) struct Asked {
    pub trust: Trust,
    pub law: Law,
    pub weight: f64,
    pub max_rate: Rate,
    pub path: PathUse,
    pub patience: Duration,
    pub udp: Udp,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            trust: Trust::default(),
            law: Law::Grant,
            weight: 1.0,
            max_rate: Rate::UNLIMITED,
            path: PathUse::default(),
            patience: gtp_net::client::PATIENCE,
            udp: Udp::Auto,
        }
    }
}

impl Asked {
    pub fn terms(&self, host: &Host) -> Result<Terms, Failure> {
        if !(self.weight.is_finite() && self.weight > 0.0) {
            return Err(Failure::new(FailureKind::Usage, "a weight is a positive number"));
        }
        check_law(self.law)?;
        let mut terms = Terms::new(self.trust.load(host.config_dir())?);
        terms.law = self.law;
        terms.weight = self.weight;
        terms.max_rate = self.max_rate;
        terms.path = self.path;
        terms.patience = self.patience;
        terms.udp = self.udp;
        Ok(terms)
    }
}

/// Whether a law can be asked for as it is.
fn check_law(law: Law) -> Result<(), Failure> {
    match law {
        Law::Grant | Law::EndNode { .. } | Law::Gtp2004 => Ok(()),
        Law::LambdaStream { link, first } => {
            check_law(Law::Rbudp(link))?;
            check_law(Law::Rbudp(first))
        }
        Law::Rbudp(rate) | Law::Sabul(rate) | Law::Tsunami(rate) => {
            let (least, most) = (*ALONE_RATE.start(), *ALONE_RATE.end());
            if ALONE_RATE.contains(&rate.as_bps()) {
                return Ok(());
            }
            let text = format!("a source decides by rates from {least} to {most} bit/s alone");
            Err(Failure::new(FailureKind::Usage, text))
        }
    }
}

impl Get {
    /// Fetches the object at this address.
    pub fn new(url: Url) -> Get {
        Get {
            sources: vec![url],
            place: None,
            options: SinkOptions::default(),
            naming: Naming::default(),
            expected: None,
            asked: Asked::default(),
        }
    }

    /// Names a further source of the same object. Blocks come from all, by their rates.
    pub fn mirror(mut self, url: Url) -> Get {
        self.sources.push(url);
        self
    }

    /// Puts the object at this path. With a slash at its end (or `.` or `..`) the path is a
    /// directory, made if need be, and takes the object under its own name; without one it is the
    /// object's new name, except that a file goes beneath a directory that is there. A directory
    /// whose address ends with a slash is its content alone, which goes into the path.
    pub fn to(mut self, path: impl Into<PathBuf>) -> Get {
        let naming = self.naming.clone();
        self.place = Some(Place::Path { path: path.into(), options: self.options, naming });
        self
    }

    /// A directory that is named without a slash goes beneath the destination under its own name,
    /// also where the destination has no slash at its end, as `cp` and rsync have it.
    pub fn directories_go_beneath(mut self) -> Get {
        self.naming.directories = Directories::GoBeneath;
        self.rename()
    }

    /// What the object is called beneath a directory, in place of the last part of its address.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if it is no name, or more than one.
    pub fn named(mut self, name: &str) -> Result<Get, Failure> {
        let usage = |why: String| {
            let shown = gtp_store::escaped(name);
            Failure::new(FailureKind::Usage, format!("{shown}: {why}"))
        };
        if name.contains('/') {
            return Err(usage("a name has no slash".into()));
        }
        self.naming.name = Some(RelPath::new(name).map_err(|why| usage(why.to_string()))?);
        Ok(self.rename())
    }

    /// Believes a directory's content only if nothing but these names is directly in it. Those that
    /// do not come are left out ([`gtp_net::client::Outcome::skipped`]).
    pub fn only(mut self, names: impl IntoIterator<Item = String>) -> Get {
        self.naming.only = Some(Arc::new(names.into_iter().collect()));
        self.rename()
    }

    fn rename(mut self) -> Get {
        if let Some(Place::Path { naming, .. }) = &mut self.place {
            *naming = self.naming.clone();
        }
        self
    }

    /// Writes the object, which must be one file, to a stream in order.
    pub fn to_writer(self, out: impl Write + Send + 'static) -> Get {
        self.to_writer_called("the output", out)
    }

    /// The same; errors call the stream by this name.
    pub fn to_writer_called(mut self, name: &str, out: impl Write + Send + 'static) -> Get {
        self.place = Some(Place::Stream { out: Box::new(out), name: name.to_owned() });
        self
    }

    /// Gives the object to a sink that is made when its listing is known. The sink is used on a
    /// thread that may block.
    pub fn into_sink<S: BlockSink + 'static>(
        mut self,
        make: impl FnOnce(&Arc<Manifest>) -> Result<S, SinkError> + Send + 'static,
    ) -> Get {
        let make: MakeSink = Box::new(move |manifest| Ok(Box::new(make(manifest)?)));
        self.place = Some(Place::Sink(make));
        self
    }

    /// Fetches files that are there with the same size and time all the same.
    pub fn replace_existing(mut self) -> Get {
        self.options.existing = Existing::Replace;
        if let Some(Place::Path { options, .. }) = &mut self.place {
            *options = self.options;
        }
        self
    }

    /// The BLAKE3 hash that the file must have. Without it all sources are asked and must agree.
    pub fn blake3(mut self, hash: Value) -> Get {
        self.expected = Some(hash);
        self
    }

    /// Believes servers with this key only; may be said for each server.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Get {
        self.asked.trust.pinned.push(fingerprint);
        self
    }

    /// Trusts and remembers servers that were never met.
    pub fn accept_new(mut self) -> Get {
        self.asked.trust.accept_new = AcceptNew::Yes;
        self
    }

    /// Runs this control law at both ends.
    pub fn control(mut self, law: Law) -> Get {
        self.asked.law = law;
        self
    }

    /// Weight against other sessions of the hosts, in steps of a thousandth; 1 is ordinary.
    pub fn weight(mut self, weight: f64) -> Get {
        self.asked.weight = weight;
        self
    }

    /// Limits each source's session to this rate.
    pub fn max_rate(mut self, rate: Rate) -> Get {
        self.asked.max_rate = rate;
        self
    }

    /// Goes on this long without progress before it fails.
    pub fn patience(mut self, patience: Duration) -> Get {
        self.asked.patience = patience;
        self
    }

    /// How sessions use their paths. If the server allows less, that applies, and
    /// [`Event::Warning`](crate::Event::Warning) says so.
    pub fn path(mut self, path: PathUse) -> Get {
        self.asked.path = path;
        self
    }

    /// Whether data go by UDP; [`Udp::Auto`] if not said.
    pub fn udp(mut self, udp: Udp) -> Get {
        self.asked.udp = udp;
        self
    }

    /// Starts the transfer on the current tokio runtime.
    ///
    /// # Errors
    /// When no destination was named, or the list of known hosts cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(self, host: &Host) -> Result<Transfer, Failure> {
        let terms = self.asked.terms(host)?;
        if self.asked.law == Law::Gtp2004 && host.endpoint.host().capacity_in().is_unlimited() {
            let text = "gtp2004 needs to know what this host can receive (--capacity-in)";
            return Err(Failure::new(FailureKind::Usage, text));
        }
        let Some(place) = self.place else {
            return Err(Failure::new(FailureKind::Usage, "no destination was named"));
        };
        let request = GetRequest { sources: self.sources, terms, place, expected: self.expected };
        let endpoint = Arc::clone(&host.endpoint);
        Ok(Transfer::spawn(move |monitor| gtp_net::client::get(endpoint, request, monitor)))
    }
}
