//! Streams: bytes between two programs, both ways.
//!
//! One end listens and is called; the other names the service that it wants. Both are described
//! first and started once, on the same terms as transfers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use gtp_alloc::{Bytes, Rate};
use gtp_net::client::{Udp, Url};
use gtp_net::flows::{Alone, Failure, Law};
use gtp_net::identity::Fingerprint;
use gtp_net::in_step::{Gathering, Picture, SinkTerms};
use gtp_net::messages::STREAMS_MEMORY;
use gtp_net::server::{Admission, Limits};
use gtp_net::stream::{
    Caller, Callers, Carries, Delivery, FrameStream, ListenConfig, Stream, StreamListener, WINDOW,
};
use gtp_net::trust::{AUTHORIZED_KEYS_FILE, Access, AuthorizedKeys, ClientTrust, Strangers};

use crate::get::Asked;
use crate::host::{AcceptNew, Host};

/// Describes a connection to a service of a host.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("gtp-doc-stream-{}", std::process::id()));
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// use gtp::{Connect, Host, Listen};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let host = Host::builder().config_dir(&dir).start()?;
/// let mut listening = Listen::new().at("127.0.0.1:0").anyone().start(&host).await?;
///
/// let url = format!("gtp://{}/echo", listening.address()).parse()?;
/// let connect = Connect::new(url).fingerprint(host.fingerprint());
/// let answer = async { listening.next().await.expect("somebody calls").accept() };
/// let (near, far) = tokio::join!(connect.start(&host), answer);
/// let (mut near, mut far) = (near?, far?);
///
/// near.write_all(b"hello").await?;
/// near.shutdown().await?;
/// let mut heard = String::new();
/// far.read_to_string(&mut heard).await?;
/// assert_eq!(heard, "hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `start`"]
pub struct Connect {
    url: Url,
    /// If nobody says otherwise, what is usual of what it carries.
    window: Option<u32>,
    asked: Asked,
}

impl Connect {
    /// Connects to `gtp://host[:port]/service`.
    pub fn new(url: Url) -> Connect {
        Connect { url, window: None, asked: Asked::default() }
    }

    /// Believes a host with this key only; may be said several times.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Connect {
        self.asked.trust.pinned.push(fingerprint);
        self
    }

    /// Trusts and remembers a host that was never met.
    pub fn accept_new(mut self) -> Connect {
        self.asked.trust.accept_new = AcceptNew::Yes;
        self
    }

    /// Runs this control law at both ends.
    pub fn control(mut self, law: Law) -> Connect {
        self.asked.law = law;
        self
    }

    /// Weight against other sessions of the hosts, in steps of a thousandth; 1 is ordinary.
    pub fn weight(mut self, weight: f64) -> Connect {
        self.asked.weight = weight;
        self
    }

    /// Limits each direction to this rate.
    pub fn max_rate(mut self, rate: Rate) -> Connect {
        self.asked.max_rate = rate;
        self
    }

    /// Waits this long for the host to answer.
    pub fn patience(mut self, patience: Duration) -> Connect {
        self.asked.patience = patience;
        self
    }

    /// Whether data go by UDP; [`Udp::Auto`] if not said.
    pub fn udp(mut self, udp: Udp) -> Connect {
        self.asked.udp = udp;
        self
    }

    /// Packets that may be under way or unread in each direction, 64 to 65,536: the most that a
    /// connection holds in memory. It is the rate times the round trip, three times over where
    /// packets are lost.
    pub fn window(mut self, packets: u32) -> Connect {
        self.window = Some(packets);
        self
    }

    /// Connects, on the current tokio runtime. Dropping the future gives it up.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn start(self, host: &Host) -> Result<Stream, Failure> {
        let terms = self.asked.terms(host)?;
        let window = self.window.unwrap_or(WINDOW);
        gtp_net::stream::connect(&host.endpoint, &self.url, &terms, window).await
    }

    /// Connects to a service of frames, which are delivered so: a frame of which something is lost
    /// for good is left out, and the reader is told. The host must listen for frames
    /// ([`Listen::frames`]).
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn start_frames(
        self,
        host: &Host,
        delivery: Delivery,
    ) -> Result<FrameStream, Failure> {
        let terms = self.asked.terms(host)?;
        let (endpoint, url) = (&host.endpoint, &self.url);
        let window = self.window.unwrap_or(WINDOW);
        gtp_net::stream::connect_frames(endpoint, url, &terms, window, delivery).await
    }

    /// Connects to a sink that gathers frames of this picture ([`Listening::gather`]); whatever the
    /// address names, the picture is the service. What is sent goes through a
    /// [`Sending`](crate::in_step::Sending).
    ///
    /// # Errors
    /// [`Failure`]; of kind `Missing` if the sink gathers other frames.
    pub async fn start_in_step(
        self,
        host: &Host,
        picture: Picture,
        delivery: Delivery,
    ) -> Result<FrameStream, Failure> {
        let terms = self.asked.terms(host)?;
        let (endpoint, url) = (&host.endpoint, &self.url);
        let what = (picture, delivery);
        let window = self.window.unwrap_or(gtp_net::in_step::WINDOW);
        gtp_net::in_step::connect(endpoint, url, &terms, window, what).await
    }
}

/// Describes a host that listens for streams.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `start`"]
pub struct Listen {
    at: String,
    callers: Callers,
    keys: Option<PathBuf>,
    only: Option<Fingerprint>,
    limits: Limits,
    max_rate: Rate,
    alone: Vec<Alone>,
    end_node: bool,
    carries: Carries,
    window: u32,
    memory: Bytes,
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::new()
    }
}

impl Listen {
    /// Listens at the port of `gtp://` on all addresses, for those on the list of authorized keys.
    pub fn new() -> Listen {
        Listen {
            at: DEFAULT_AT.into(),
            callers: Callers::Listed,
            keys: None,
            only: None,
            limits: Limits::default(),
            max_rate: Rate::UNLIMITED,
            alone: Vec::new(),
            end_node: false,
            carries: Carries::Bytes,
            window: WINDOW,
            memory: Bytes(STREAMS_MEMORY),
        }
    }

    /// Listens here, `ADDRESS:PORT`, TCP and UDP; port 0 takes one that is free.
    pub fn at(mut self, address: impl Into<String>) -> Listen {
        self.at = address.into();
        self
    }

    /// Lets anyone connect.
    pub fn anyone(mut self) -> Listen {
        self.callers = Callers::Anyone;
        self
    }

    /// The list of keys, in place of the one in the host's configuration directory. It is read
    /// anew for each caller. A word behind a key that narrows it to reading or writing shuts its
    /// holder out.
    pub fn authorized_keys(mut self, path: impl Into<PathBuf>) -> Listen {
        self.keys = Some(path.into());
        self
    }

    /// Lets this key in and no other. No list is read.
    pub fn only(mut self, key: Fingerprint) -> Listen {
        self.only = Some(key);
        self
    }

    /// How many may come.
    pub fn limits(mut self, limits: Limits) -> Listen {
        self.limits = limits;
        self
    }

    /// Limits each direction of each connection to this rate.
    pub fn max_rate(mut self, rate: Rate) -> Listen {
        self.max_rate = rate;
        self
    }

    /// Most packets that may be under way or unread in each direction; see [`Connect::window`].
    pub fn window(mut self, packets: u32) -> Listen {
        self.window = packets;
        self
    }

    /// Memory that may be promised to all connections together. Where it grows short, new ones
    /// get smaller windows.
    pub fn memory(mut self, memory: Bytes) -> Listen {
        self.memory = memory;
        self
    }

    /// Listens for streams of frames in place of streams of bytes; callers are accepted with
    /// [`Caller::accept_frames`].
    pub fn frames(mut self) -> Listen {
        self.carries = Carries::Frames;
        self
    }

    /// Listens for frames in step of so many sources, with windows for their ways and the memory to
    /// promise them; see [`Listening::gather`].
    pub fn frames_in_step(mut self, parts: u16) -> Listen {
        (self.window, self.memory) = gtp_net::in_step::room(parts);
        self.frames()
    }

    /// Takes part in this control law, by which one end decides alone, if a caller asks for it; of
    /// those streams know LambdaStream. Without this it is refused.
    pub fn allow(mut self, law: Alone) -> Listen {
        self.alone.push(law);
        self
    }

    /// Takes part in the thesis's end-node law if a caller asks for it. It shares the host's
    /// capacity by sessions, whosever they are: without this it is refused.
    pub fn allow_end_node(mut self) -> Listen {
        self.end_node = true;
        self
    }

    /// Listens, on the current tokio runtime.
    ///
    /// # Errors
    /// When the address, or the list of keys, is not to be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self, host: &Host) -> Result<Listening, Failure> {
        let listen = gtp_net::server::listen_address(&self.at)?;
        let list = || host.config_file(AUTHORIZED_KEYS_FILE);
        let strangers = Strangers::Refused;
        let admission = match self.only {
            Some(key) => {
                let keys = AuthorizedKeys::of_one(key, Access::ALL);
                Admission::Fixed(ClientTrust { keys, strangers })
            }
            None => Admission::File { path: self.keys.map_or_else(list, Ok)?, strangers },
        };
        let config = ListenConfig {
            listen,
            admission,
            callers: self.callers,
            limits: self.limits,
            max_rate: self.max_rate,
            alone: self.alone,
            end_node: self.end_node,
            interval: host.interval,
            carries: self.carries,
            window: self.window,
            memory: self.memory,
        };
        let (engine, identity) = (host.endpoint.host().clone(), host.endpoint.identity());
        Ok(Listening { listener: StreamListener::bind(engine, identity, config).await? })
    }
}

/// A host that listens for streams. Dropping it ends that; connections go on.
pub struct Listening {
    listener: StreamListener,
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The next caller; `None` when the listening has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<Caller> {
        self.listener.next().await
    }

    /// Takes callers in as sources of frames in step; it must listen for frames
    /// ([`Listen::frames`]).
    ///
    /// # Errors
    /// Of kind `Usage`: terms that are not sound, or need too much memory.
    pub fn gather(self, host: &Host, terms: SinkTerms) -> Result<Gathering, Failure> {
        Gathering::new(self.listener, host.endpoint.host().clock(), terms)
    }
}

/// All addresses, IPv6 and IPv4, and the port of `gtp://`.
const DEFAULT_AT: &str = "[::]:4810";
