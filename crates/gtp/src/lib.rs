//! Moves files and other objects between hosts at explicit, max-min fair rates.
//!
//! A [`Host`] is one machine's share in it: a key, a capacity in each direction and the engine
//! that moves data. Everything on one host shares its capacity fairly: a [`Server`] that lets
//! others fetch, any number of [`Get`]s from one or several servers each, [`Put`]s. A [`Transfer`]
//! under way tells what happens and how fast, and can be stopped and resumed.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("gtp-doc-{}", std::process::id()));
//! # let (export, target) = (dir.join("export"), dir.join("target"));
//! # std::fs::create_dir_all(&export)?;
//! # std::fs::write(export.join("greeting.txt"), "hello")?;
//! use gtp::{Get, Host, Server, blocking};
//!
//! let host = Host::builder().config_dir(&dir).start()?;
//! let server = blocking::serve(&host, Server::export(&export).listen("127.0.0.1:0").public())?;
//!
//! let url = format!("gtp://{}/greeting.txt", server.address());
//! let get = Get::new(url.parse()?).to(&target).fingerprint(server.fingerprint());
//! let outcome = blocking::get(&host, get)?;
//! assert_eq!(outcome.bytes, 5);
//! assert_eq!(std::fs::read(&target)?, b"hello");
//! # drop(server);
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! The same in async code needs a tokio runtime: [`Get::start`] gives a [`Transfer`], whose
//! [`Transfer::next_event`] and [`Transfer::wait`] are futures.
//!
//! Two programs that have something to say to each other use a [`Stream`]: [`Connect`] and
//! [`Listen`].
//!
//! Sources and sinks need not be files: [`Get::into_sink`] and [`Put::from_source`] take anything
//! that is a [`BlockSink`] or a [`BlockSource`].
#![forbid(unsafe_code)]

pub mod blocking;
pub mod carry;
pub mod copy;
pub mod examine;
mod get;
mod host;
pub mod in_step;
mod order;
pub mod probe;
mod put;
mod router;
mod server;
mod stream;
mod transfer;
pub mod tree;
mod trust;

pub use get::Get;
pub use host::{AcceptNew, Host, HostBuilder};
pub use order::Order;
pub use put::Put;
pub use router::{ROUTER_KEY_FILE, ROUTER_PORT, RouterSpec};
pub use server::{RunningServer, Server};
pub use stream::{Connect, Listen, Listening};
pub use transfer::{Stopper, Transfer};

pub use gtp_alloc::{Bucket, Bytes, Rate, Span, Time};
pub use gtp_laws::frames;
pub use gtp_net::client::{
    BadUrl, DEFAULT_PORT, Detour, Event, Listed, Listing, Outcome, PATIENCE, Progress, Relay,
    RelayReport, Relaying, SINKS_MOST, SharedPaths, SourceShare, Survey, Udp, Url, Weight,
    wire_bytes,
};
pub use gtp_net::engine::{Bond, Sharing, Stands, Way, default_capacity, default_engines};
pub use gtp_net::flows::{Alone, Failure, FailureKind, Law, LimitedBy, PathUse, WEIGHT_LOW};
pub use gtp_net::identity::{BadFingerprint, Fingerprint, Identity, IdentityError, config_dir};
pub use gtp_net::messages::{FETCH_SOURCES_MAX, Reason};
pub use gtp_net::router::{
    BadPrefix, KeyError, LinkShown, LinkSide, Prefix, RouterKey, RouterServer, Shown,
};
pub use gtp_net::server::{
    Asked, Asker, BadExports, BadReach, Change, Confines, EXPORTS_MOST, ExportRule, Exports,
    GROUPS_MOST, GroupRule, GroupShare, KEYS_OF_GROUP_MOST, KeyPart, KeyTerms, Limits, Moved,
    Objects, Pace, Pulse, Quota, QuotaOf, QuotaStands, Quotas, Reach, Request, Rights, Room,
    Running, ServerEvent, SessionId, Sessions, ShareAt, Sockets, Visibility, Visit, Voucher, Who,
    Whose, WhyRefused, listen_address, questions,
};
pub use gtp_net::stream::{
    Caller, Delivery, Frame, FrameReader, FrameStream, FrameWriter, Line, Standing, Stream,
    StreamReader, StreamWriter, WINDOW as STREAM_WINDOW, frame_most,
};
pub use gtp_net::trust::{
    AUTHORIZED_KEYS_FILE, Access, AuthorizedKeys, BadHours, BadPlace, Below, Closed, Edit,
    EditError, GROUPS_OF_KEY_MOST, Grants, Hours, KNOWN_HOSTS_FILE, KeyLine, KeyListFile, KeyShare,
    LineChange, LocalTime, PLACES_MOST, PlacesChange, Setting, ShareChange, TrustError, is_name,
    read_weight, unknown_zone,
};
pub use gtp_store::replica;
pub use gtp_store::{
    BLOCK, BlockSink, BlockSource, DiscardSink, Entry, FilesInOrder, Finished, Have, Kind,
    Manifest, Mode, Mtime, NameError, OrderedWriterSink, Pattern, ReadBytes, RelPath, RootKind,
    SinkError, SourceError, SyntheticSource, TRAILER, TimeStep, Value, Window, Written,
};
