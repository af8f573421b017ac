//! What keeps a session from going faster, in words for people.
//!
//! The core says it by the ends of a session, source and sink; people think of this host and of the
//! one that it talks to. Programs read the core's words, in JSON, logs and numbers. This file must
//! not know how sessions are shown, on a terminal or on a page.

use gtp_proto::LimitedBy;

use crate::message::SessionView;

/// What people call the two hosts of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    source: &'static str,
    sink: &'static str,
}

impl Ends {
    /// This host receives from a server.
    pub const GET: Ends = Ends { source: "the server", sink: HERE };
    /// This host sends to a server.
    pub const PUT: Ends = Ends { source: HERE, sink: "the server" };
    /// Other hosts talk to each other.
    pub const ELSEWHERE: Ends = Ends { source: "the sender", sink: "the receiver" };

    /// The hosts of a session that the daemon lists.
    fn of_session(session: &SessionView) -> Ends {
        let far = if session.client.is_some() { "the client" } else { "the other host" };
        match session.direction.as_str() {
            "out" => Ends { source: HERE, sink: far },
            _ => Ends { source: far, sink: HERE },
        }
    }

    /// What limits a session between these hosts, in few words.
    pub fn limit(self, by: LimitedBy) -> String {
        match by {
            LimitedBy::Source => self.source.into(),
            LimitedBy::Sink => self.sink.into(),
            LimitedBy::Demand => "a limit or no data".into(),
            LimitedBy::Path => "the path".into(),
            LimitedBy::Disk => format!("{}'s disk", self.sink),
            LimitedBy::Router => "a router's link".into(),
        }
    }

    /// The same for who has room to read, and wants to know what to look at.
    pub fn limit_at_length(self, by: LimitedBy) -> String {
        let source = self.source;
        match by {
            LimitedBy::Source | LimitedBy::Sink => format!("{}'s capacity", self.limit(by)),
            LimitedBy::Demand => {
                format!("{source}'s disk, or a limit that it sets this key or each session")
            }
            LimitedBy::Path | LimitedBy::Disk | LimitedBy::Router => self.limit(by),
        }
    }
}

/// What limits a session that the daemon lists. A word that this release does not know stays.
pub fn of_session(session: &SessionView) -> String {
    let said = &session.limited_by;
    read(said).map_or_else(|| said.clone(), |by| Ends::of_session(session).limit(by))
}

/// What a word of the core means.
pub fn read(word: &str) -> Option<LimitedBy> {
    ALL.into_iter().find(|by| by.as_str() == word)
}

const HERE: &str = "this host";

const ALL: [LimitedBy; 6] = [
    LimitedBy::Source,
    LimitedBy::Sink,
    LimitedBy::Demand,
    LimitedBy::Path,
    LimitedBy::Disk,
    LimitedBy::Router,
];

#[cfg(test)]
mod tests;
