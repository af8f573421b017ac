//! The network file: links, the paths of the relay, the hosts and routes of the router.
//!
//! The file is TOML and is read strictly: an unknown key, an unknown link, a bare number or a zero
//! rate is refused with its line and with what was expected there. `docs/NETWORK.md` describes it.

mod quantity;
mod raw;

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use gtp_alloc::{Bytes, Span};
use gtp_link::{Change, LinkSpec, Trace};

use crate::run::Face;

/// A whole network file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetSpec {
    /// How the emulator works.
    pub emulator: EmulatorSpec,
    /// Links, in the order of the file; the other parts name them by their place here.
    pub links: Vec<NamedLink>,
    /// Paths of the relay.
    pub paths: Vec<PathSpec>,
    /// Hosts of the router.
    pub hosts: Vec<HostSpec>,
    /// Routes between them.
    pub routes: Vec<RouteSpec>,
}

/// How the emulator works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmulatorSpec {
    /// The shortest time between two rounds of work; what falls due within it leaves together.
    pub tick: Span,
    /// Seed of the links that have none of their own.
    pub seed: u64,
    /// Most bytes under way at a time; what comes on top is dropped and counted.
    pub memory: Bytes,
    /// A client's datagrams keep its upstream socket for this long after the last one.
    pub idle: Span,
}

impl Default for EmulatorSpec {
    fn default() -> EmulatorSpec {
        EmulatorSpec {
            tick: Span::from_micros(100),
            seed: 1,
            memory: Bytes(512 << 20),
            idle: Span::from_secs(60),
        }
    }
}

/// A link with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLink {
    /// Its name in the file.
    pub name: String,
    /// Its parameters at the start.
    pub spec: LinkSpec,
    /// Its seed.
    pub seed: u64,
    /// Changes, by the time from the start.
    pub changes: Vec<(Span, Change)>,
}

/// A path of the relay: what comes to `listen` goes on to `target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Its name in the file.
    pub name: String,
    /// Where clients come, UDP and TCP on the same port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where it leads.
    pub target: SocketAddr,
    /// Links from client to target.
    pub up: Vec<usize>,
    /// Links from target to client.
    pub down: Vec<usize>,
    /// Whether datagrams pass at the start.
    pub udp: Carriage,
    /// Whether connections pass at the start.
    pub tcp: Carriage,
}

/// Whether a path carries a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Carriage {
    /// It does.
    #[default]
    Carried,
    /// It swallows it without an answer, as a filter on the way would.
    Blocked,
}

/// A host of the router: a network namespace with a TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name in the file.
    pub name: String,
    /// Its network namespace; made, and removed at the end, if it does not exist.
    pub namespace: String,
    /// Its addresses with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Largest packet.
    pub mtu: u16,
}

/// A one-way route between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    /// The host where packets enter.
    pub from: usize,
    /// The host where they leave.
    pub to: usize,
    /// Links between.
    pub links: Vec<usize>,
}

/// Why a network file is refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a TOML file of the right form; the message shows the line.
    #[error("{0}")]
    Form(#[from] Box<toml::de::Error>),
    /// Its parts do not fit together.
    #[error("line {line}: {message}")]
    Sense {
        /// The line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
    /// It has nothing that the face which is asked for could carry; the message says what it takes.
    #[error("{0}")]
    Lacks(&'static str),
}

impl NetSpec {
    /// Reads a network file.
    ///
    /// # Errors
    /// If it cannot be read, or is refused.
    pub fn read(path: &Path) -> Result<NetSpec, SpecError> {
        let failed = |source| SpecError::Read { path: path.to_path_buf(), source };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        raw::parse(&text, &|name| trace(&path.with_file_name(name)))
    }

    /// Reads a network from its text, which can name no trace.
    ///
    /// # Errors
    /// If it is refused.
    pub fn parse(text: &str) -> Result<NetSpec, SpecError> {
        raw::parse(text, &|_| Err("only a network that is a file can name a trace".to_owned()))
    }

    /// Checks that the network has what this face carries packets over.
    ///
    /// # Errors
    /// If the relay has no path, or the router no route.
    pub fn serves(&self, face: Face) -> Result<(), SpecError> {
        let lacks = match face {
            Face::Relay if !self.paths.is_empty() => return Ok(()),
            Face::Tun if !self.routes.is_empty() => return Ok(()),
            Face::Relay if !self.routes.is_empty() => {
                "there is no [[path]] for the relay: add one, or use --tun for the [[route]]s"
            }
            Face::Relay => "there is no [[path]]: the relay needs one with `listen` and `target`",
            Face::Tun if !self.paths.is_empty() => {
                "there is no [[route]] for the router: add [[host]]s and [[route]]s, or leave \
                 out --tun to use the [[path]]s"
            }
            Face::Tun => "there is no [[route]]: the router needs [[host]]s and [[route]]s",
        };
        Err(SpecError::Lacks(lacks))
    }

    /// The place of the link of this name.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// The place of the path of this name.
    pub fn path(&self, name: &str) -> Option<usize> {
        self.paths.iter().position(|path| path.name == name)
    }
}

/// Reads the file of a trace, or says why not.
fn trace(path: &Path) -> Result<Trace, String> {
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    let mut text = String::new();
    let read = file.take(Trace::FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| format!("cannot read {name}: {e}"))?;
    if text.len() as u64 > Trace::FILE_MAX {
        return Err(format!("{name} is larger than {} MiB", Trace::FILE_MAX >> 20));
    }
    Trace::read(&text).map_err(|e| format!("{name}: {e}"))
}
