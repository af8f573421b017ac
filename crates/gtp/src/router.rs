//! The routers that a host asks, as its user describes them.
//!
//! A name is looked up once, when the host starts, and so is the key read. What a router may do is
//! the engine's to know.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use gtp_net::flows::{Failure, FailureKind};
use gtp_net::router::{KeyError, LinkSide, Prefix, RouterKey, RouterOpen};

/// The port of a router if none is named.
pub const ROUTER_PORT: u16 = 4811;
/// The name of the file with a router's key, in the configuration directory.
pub const ROUTER_KEY_FILE: &str = "router-key";

/// A router, and which sessions of this host cross which of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSpec {
    /// A name or an address, with a port or without.
    pub address: String,
    /// The link, from 0.
    pub link: u8,
    /// On which side of the link this host is.
    pub side: LinkSide,
    /// The file with the key that hosts share with it; [`ROUTER_KEY_FILE`] in the configuration
    /// directory if not said.
    pub key: Option<PathBuf>,
    /// Sessions with peers of these ranges cross the link; with all peers if there are none.
    pub peers: Vec<Prefix>,
}

impl RouterSpec {
    /// Looks its name up and reads the key.
    pub(crate) fn open(&self, config_dir: Option<&Path>) -> Result<RouterOpen, Failure> {
        let own = config_dir.map(|dir| dir.join(ROUTER_KEY_FILE));
        let key = self.key.clone().or(own).ok_or_else(|| {
            let text = "no directory for a router's key is known: name its file";
            Failure::new(FailureKind::Usage, text)
        })?;
        let key = RouterKey::load(&key).map_err(|error| {
            let missing = matches!(&error, KeyError::Io { error, .. }
                if error.kind() == std::io::ErrorKind::NotFound);
            let hint = if missing { "; copy the file that `gtp router` made" } else { "" };
            Failure::new(FailureKind::Usage, format!("{error}{hint}"))
        })?;
        let RouterSpec { link, side, peers, .. } = self.clone();
        Ok(RouterOpen { address: self.look_up()?, key, link, side, peers })
    }

    fn look_up(&self) -> Result<SocketAddr, Failure> {
        let bare = self.address.trim_matches(['[', ']']);
        if let Ok(ip) = bare.parse() {
            return Ok(SocketAddr::new(ip, ROUTER_PORT));
        }
        let found = match self.address.rsplit_once(':') {
            Some(_) => self.address.to_socket_addrs(),
            None => (self.address.as_str(), ROUTER_PORT).to_socket_addrs(),
        };
        let failed = |why: String| {
            let text = format!("cannot look up the router {}: {why}", self.address);
            Failure::new(FailureKind::Usage, text)
        };
        let mut found = found.map_err(|error| failed(error.to_string()))?;
        found.next().ok_or_else(|| failed("it has no address".into()))
    }
}
