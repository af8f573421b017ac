//! What is said over the socket: few words, at the start and when people ask.
//!
//! Messages are JSON objects, one to a packet; a packet of one `!` is the bell, by which each side
//! tells the other that its page has news. Rates and reports never travel here. Of every message
//! the version is read first, so that daemon and program of different ages part with clear words.

use std::collections::BTreeMap;

use gtp_proto::path::{Mode, Standing};
use serde::{Deserialize, Serialize};

use crate::layout::address_and_path;

/// Version of messages and pages. Daemon and programs must agree on it.
pub const VERSION: u32 = 10;
/// Bytes of a message at most.
pub const MESSAGE_MOST: usize = 4_096;
/// Bytes of a packet of a list at most.
pub const LIST_PACKET: usize = 16_384;
/// The bell.
pub const BELL: &[u8] = b"!";

/// What a process asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Pages for its sessions.
    Attach {
        /// [`VERSION`].
        version: u32,
        /// Sessions to have room for.
        slots: u32,
        /// What the process is, for people.
        program: String,
        /// Whether it was attached to a daemon before, which it has lost.
        #[serde(default)]
        again: bool,
    },
    /// All sessions of the host.
    Sessions {
        /// [`VERSION`].
        version: u32,
    },
    /// What users moved in the last hour. A daemon of this version may be too old to know it.
    History {
        /// [`VERSION`].
        version: u32,
    },
    /// What clients of servers moved in the last hour, by their keys. A daemon of this version may
    /// be too old to know it.
    Keys {
        /// [`VERSION`].
        version: u32,
    },
    /// To change a session: one's own, or any for root and for the daemon's own user.
    Set {
        /// [`VERSION`].
        version: u32,
        /// The session, as listed.
        session: u32,
        /// What changes.
        change: Change,
    },
}

/// A request of some version.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// In words for who asks, when it is of another version or none that there is.
    pub fn read(bytes: &[u8]) -> Result<Request, String> {
        let versions: Result<BTreeMap<String, Versioned>, _> = serde_json::from_slice(bytes);
        match versions.ok().and_then(|all| all.into_values().next()) {
            Some(Versioned { version }) if version != VERSION => {
                Err(versions_differ(VERSION, version))
            }
            _ => serde_json::from_slice(bytes)
                .map_err(|_| "not a request that this daemon knows".to_owned()),
        }
    }
}

/// What to say, and to do, where a daemon and a program are of different versions.
pub(crate) fn versions_differ(daemon: u32, program: u32) -> String {
    let older = if daemon < program { "the daemon" } else { "the program" };
    format!(
        "the daemon speaks version {daemon} and the program version {program}: start {older} anew, \
         which is the older one"
    )
}

/// What `gtp set` changes of a session, or of its transfer; what is none stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What changes.
    #[serde(default)]
    pub of: Of,
    /// What a transfer is served first, as far as it wants it, in bit/s; zero lifts it.
    pub guarantee: Option<u64>,
    /// Weight within its transfer.
    pub weight: Option<f64>,
    /// Limit in bit/s; zero lifts it.
    pub max_rate: Option<u64>,
    /// When it gets something.
    pub policy: Option<Policy>,
}

/// Whose a change is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// The session's.
    #[default]
    Session,
    /// All sessions' of its transfer together.
    Transfer,
}

/// When a session gets something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// With all others.
    Normal,
    /// Only what all normal sessions leave.
    Low,
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// With the descriptors of the pages for reports and for grants.
    Attached {
        /// [`VERSION`].
        version: u32,
        /// Sessions that the pages have room for.
        slots: u32,
    },
    /// Before packets of JSON lines: one [`HostView`], then all sessions; or, if that was asked, a
    /// [`HistoryView`] for each user and direction.
    Sessions {
        /// Bytes of all of them.
        bytes: u64,
    },
    /// It is done.
    Done {
        /// What should be known of it.
        note: Option<String>,
    },
    /// There is no room now; asking again later may help.
    Busy {
        /// What there is too much of.
        why: String,
    },
    /// It is not.
    Refused {
        /// Why, and what to do.
        why: String,
    },
}

/// The host as the daemon sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Capacity for what it sends, bit/s; none if unlimited.
    pub capacity_out: Option<u64>,
    /// Capacity for what it receives, bit/s; none if unlimited.
    pub capacity_in: Option<u64>,
    /// Sum of the measured rates of what it sends, bit/s.
    pub used_out: u64,
    /// Sum of the measured rates of what it receives, bit/s.
    pub used_in: u64,
    /// What is guaranteed in each direction to users and transfers together, bit/s.
    pub guaranteed: u64,
    /// Processes attached.
    pub processes: u32,
    /// Sessions.
    pub sessions: u32,
}

/// What a user moved in one direction in the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    /// The user's number; none for all users together who are not told apart.
    pub uid: Option<u32>,
    /// `out` or `in`.
    pub direction: String,
    /// Mean rates of each minute in bit/s, the oldest first, [`HISTORY_COLUMNS`] at most.
    pub rates: Vec<u64>,
}

/// What a client of a user's servers moved in one direction in the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// The number of the servers' user.
    pub uid: u32,
    /// The first eight bytes of the key's fingerprint, in hexadecimal digits; none for all clients
    /// together that are not told apart.
    pub key: Option<String>,
    /// What the server calls the client; empty for who may not see it.
    pub name: String,
    /// The groups that the client is in, with commas between them; empty for who may not see them.
    pub groups: String,
    /// `out` or `in`.
    pub direction: String,
    /// As in a [`HistoryView`].
    pub rates: Vec<u64>,
}

/// Minutes of a [`HistoryView`] at most.
pub const HISTORY_COLUMNS: usize = 60;

/// One session as the daemon sees it. Rates in bit/s, none where unlimited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    /// Its name for `gtp set`.
    pub session: u32,
    /// Whose process.
    pub uid: u32,
    /// Which process.
    pub pid: i32,
    /// What the process says it is.
    pub program: String,
    /// What the process calls the session.
    pub label: String,
    /// `out` or `in`.
    pub direction: String,
    /// Weight within its transfer.
    pub weight: f64,
    /// Weight among all sessions of this direction.
    pub flat_weight: f64,
    /// The other end's factor of its weight.
    pub peer_weight: f64,
    /// Limit by `gtp set`.
    pub max_rate: Option<u64>,
    /// Limit of its transfer by `gtp set`.
    pub transfer_max_rate: Option<u64>,
    /// Guarantee of its transfer by `gtp set`.
    pub transfer_guarantee: u64,
    /// When it gets something.
    pub policy: Policy,
    /// What it says it can use.
    pub demand: Option<u64>,
    /// What the other end offers.
    pub peer_offer: Option<u64>,
    /// What it is granted here.
    pub granted: Option<u64>,
    /// Its measured rate: the mean of half a second.
    pub measured: u64,
    /// What keeps it from going faster: `source`, `sink`, `demand`, `path` or `disk`, the
    /// destination's, which for a session that goes out is another host's.
    pub limited_by: String,
    /// How its path stands, if it sends.
    pub path: Option<PathView>,
    /// What carries its datagrams: `udp`, or `tcp` where its control connection does.
    pub carrier: String,
    /// Data packets lost of those sent.
    pub loss_ratio: f64,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
    /// IP bytes moved.
    pub wire_bytes: u64,
    /// The client that it serves, and what that one has by its server's groups; nothing for a
    /// session that serves none, or whose program is of an earlier release.
    #[serde(default)]
    pub client: Option<ClientView>,
}

/// The client of a session that is served, and what its server gives it. Rates in bit/s, none where
/// unlimited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientView {
    /// What the server calls it; empty for a stranger.
    pub name: String,
    /// The groups that it is in, with commas between them.
    pub groups: String,
    /// What multiplies its weight among the clients of its server's user.
    pub weight: f64,
    /// The most that all its sessions may have together in this direction.
    pub max_rate: Option<u64>,
    /// The most that all members of its group may have together.
    pub group_max_rate: Option<u64>,
    /// What they are served first, of what their server has.
    pub group_guarantee: u64,
}

/// How the path of a session stands, as this host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathView {
    /// Sessions of one process, or of one engine of a server, with the same number share the path,
    /// and what it carries. Nothing for a session that shares it with none.
    pub group: Option<u16>,
    /// How many sessions share it.
    pub sessions: u32,
    /// What is done about it: `start`, `cruise`, `ask`, `compete`, `probe`, `guard`, `yield`, or
    /// `unbounded` if nothing is.
    pub state: String,
    /// What it is believed to carry for all of them, bit/s; nothing while no bottleneck was seen.
    pub carries: Option<u64>,
    /// Whose queue it has: `none`, `own` or `another's`.
    pub queue: String,
    /// The TCP flows that the session counts as where it competes.
    pub flows: u8,
    /// Whether the session uses ECN: `off`, `testing`, `on` or `failed`.
    pub ecn: String,
    /// Why it does not any more: `uncounted`, `bleached`, `all marked`, `dropped` or
    /// `contradicted`.
    pub ecn_failure: Option<String>,
    /// Marks that were heeded since the session's start.
    pub marks: u64,
}

impl SessionView {
    /// Whom it serves, in few words: the client's name and groups, the address of one that has no
    /// name; empty where it serves none, or that is not for who asks.
    pub fn serves(&self) -> String {
        match &self.client {
            Some(client) if client.name.is_empty() => {
                address_and_path(&self.label).map_or_else(String::new, |(at, _)| at.to_owned())
            }
            Some(client) => client.called(),
            None => String::new(),
        }
    }

    /// What it moves: a served session's path, the export first, or the address of the other host.
    pub fn moves(&self) -> &str {
        let of_stranger = self.client.as_ref().filter(|client| client.name.is_empty());
        let parts = of_stranger.and_then(|_| address_and_path(&self.label));
        parts.map_or(&self.label, |(_, path)| path)
    }
}

impl ClientView {
    /// Its name, and its groups where it is in any.
    pub fn called(&self) -> String {
        called(&self.name, &self.groups)
    }
}

impl KeyView {
    /// The client's name and groups, the beginning of its key where the name is not to be seen, or
    /// that these are all others.
    pub fn called(&self) -> String {
        match &self.key {
            None => "other clients".to_owned(),
            Some(digits) if self.name.is_empty() => format!("key {digits:.8}"),
            Some(_) => called(&self.name, &self.groups),
        }
    }
}

fn called(name: &str, groups: &str) -> String {
    if groups.is_empty() { name.to_owned() } else { format!("{name} [{groups}]") }
}

impl PathView {
    /// Whether the path does not bound the session.
    pub fn is_unbounded(&self) -> bool {
        self.state == Mode::Unbounded.as_str()
    }
}

impl From<Standing> for PathView {
    fn from(path: Standing) -> PathView {
        PathView {
            group: (path.group > 0).then_some(path.group),
            sessions: path.sessions,
            state: path.mode.as_str().to_owned(),
            carries: (!path.carries.is_unlimited()).then(|| path.carries.as_bps()),
            queue: path.queue.as_str().to_owned(),
            flows: path.flows.get(),
            ecn: path.ecn.state.as_str().to_owned(),
            ecn_failure: path.ecn.state.failure().map(|why| why.as_str().to_owned()),
            marks: path.ecn.marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_version_is_told_so_whatever_else_its_request_says() {
        let older = br#"{"attach":{"version":3,"slots":4096,"program":"gtp get"}}"#;
        let said = Request::read(older).unwrap_err();
        let own = format!("version {VERSION}");
        assert!(said.contains(&own) && said.contains("version 3"), "{said}");
        assert!(said.contains("start the program anew"), "{said}");
        let newer = VERSION + 1;
        let newer = format!(r#"{{"attach":{{"version":{newer},"colour":"red"}}}}"#);
        assert!(Request::read(newer.as_bytes()).unwrap_err().contains("start the daemon anew"));
        let unknown = format!(r#"{{"dance":{{"version":{VERSION}}}}}"#);
        assert!(Request::read(unknown.as_bytes()).unwrap_err().starts_with("not a request"));
        assert!(Request::read(b"!").unwrap_err().starts_with("not a request"));
        let own = Request::Sessions { version: VERSION };
        assert_eq!(Request::read(&serde_json::to_vec(&own).unwrap()), Ok(own));
    }
}
