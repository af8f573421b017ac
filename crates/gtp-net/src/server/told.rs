//! Sessions as the operator hears of them: which run, what each has moved, and how it ended.
//!
//! The table has every session from its beginning to its end. The end is told when the last one
//! that works for the session lets go of it: steps of `tree` outlive a connection that breaks, and
//! what they changed is told before. What is done for a client is unknown here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::path::Standing;
use gtp_share::Side;
use gtp_store::Manifest;

use super::objects::Objects;
use super::session::Ending;
use super::{Moved, ServerEvent, SessionId, Shared, Visit};
use crate::engine::{FlowProgress, SourceProgress, Way};
use crate::flows::{Failure, FailureKind, LimitedBy};

/// The sessions that a server has at present. Clones are the same table.
#[derive(Clone, Default)]
pub struct Sessions {
    rows: Arc<Mutex<BTreeMap<SessionId, Row>>>,
}

#[derive(Clone)]
struct Row {
    visit: Arc<Visit>,
    gauge: Gauge,
    pace: Option<PaceGauge>,
}

/// Says what a session has moved so far.
type Gauge = Arc<dyn Fn() -> Moved + Send + Sync>;

/// Says how fast a session goes, if it does.
type PaceGauge = Arc<dyn Fn() -> Option<Pace> + Send + Sync>;

/// How fast a session goes, and why no faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// IP bytes of data per time over the last interval.
    pub rate: Rate,
    /// What it is granted.
    pub granted: Rate,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// Which end of it this server is.
    pub side: Side,
    /// Smoothed round-trip time, where one session is known that has one.
    pub rtt: Span,
    /// How its path stands, if the server sends and has begun to.
    pub path: Option<Standing>,
    /// By which way its datagrams go.
    pub way: Way,
}

impl From<&SourceProgress> for Pace {
    fn from(sent: &SourceProgress) -> Pace {
        let &SourceProgress { rate, granted, limited_by, rtt, path, way, .. } = sent;
        Pace { rate, granted, limited_by, side: Side::Source, rtt, path, way }
    }
}

impl From<&FlowProgress> for Pace {
    fn from(came: &FlowProgress) -> Pace {
        let &FlowProgress { rate, granted, limited_by, rtt, way, .. } = came;
        Pace { rate, granted, limited_by, side: Side::Sink, rtt, path: None, way }
    }
}

/// A session that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The session.
    pub visit: Arc<Visit>,
    /// What it has moved so far, at most 50 ms old. Files, and the steps of a page that is being
    /// carried out, count when they are done; of a `get` files count at its end. The time is zero.
    pub moved: Moved,
    /// How fast it goes; `None` while nothing can move, such as before its listing is known.
    pub pace: Option<Pace>,
}

impl Sessions {
    /// All sessions whose end has not been told, the oldest first.
    pub fn running(&self) -> Vec<Running> {
        let rows = self.rows();
        let copies: Vec<Row> = rows.values().cloned().collect();
        drop(rows);
        let running = |Row { visit, gauge, pace }| Running {
            visit,
            moved: gauge(),
            pace: pace.and_then(|pace| pace()),
        };
        copies.into_iter().map(running).collect()
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<SessionId, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("running", &self.rows().len()).finish()
    }
}

/// A session that the operator was told of. Whoever works for it holds this; when the last of them
/// lets go, the session's end is told.
pub(super) struct Told {
    shared: Arc<Shared>,
    visit: Arc<Visit>,
    begun: Time,
    /// Steps that were carried out.
    changes: Arc<AtomicU64>,
    objects: OnceLock<Objects>,
    ending: OnceLock<Ending>,
}

impl Told {
    /// Tells that a session begins.
    pub fn begin(shared: &Arc<Shared>, visit: Visit) -> Arc<Told> {
        let (visit, changes) = (Arc::new(visit), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&changes);
        let gauge = move || Moved { changes: counted.load(Ordering::Relaxed), ..Moved::default() };
        let row = Row { visit: Arc::clone(&visit), gauge: Arc::new(gauge), pace: None };
        shared.sessions.rows().insert(visit.id, row);
        shared.tell(ServerEvent::Started { visit: Arc::clone(&visit) });
        let (shared, begun) = (Arc::clone(shared), shared.host.clock().now());
        let (objects, ending) = (OnceLock::new(), OnceLock::new());
        Arc::new(Told { shared, visit, begun, changes, objects, ending })
    }

    /// The session.
    pub fn visit(&self) -> &Arc<Visit> {
        &self.visit
    }

    /// From now on this says what the session has moved.
    pub fn measure(&self, gauge: impl Fn() -> Moved + Send + Sync + 'static) {
        if let Some(row) = self.shared.sessions.rows().get_mut(&self.visit.id) {
            row.gauge = Arc::new(gauge);
        }
    }

    /// From now on this says how fast the session goes.
    pub fn pace(&self, pace: impl Fn() -> Option<Pace> + Send + Sync + 'static) {
        if let Some(row) = self.shared.sessions.rows().get_mut(&self.visit.id) {
            row.pace = Some(Arc::new(pace));
        }
    }

    /// The session is to write what this listing has.
    pub fn writes(&self, manifest: &Manifest) {
        // Its client lists it once.
        let _ = self.objects.set(Objects::of(&self.visit.request.path, manifest));
    }

    /// Counts steps of `tree` that were carried out.
    pub fn count_changes(&self, steps: u64) {
        self.changes.fetch_add(steps, Ordering::Relaxed);
    }

    /// Notes how the session ended, which is told when nobody works for it any more.
    pub fn end(&self, ending: Ending) {
        let span = self.shared.host.clock().now().since(self.begun);
        let moved = Moved { span, ..ending.moved };
        // It ends once.
        let _ = self.ending.set(Ending { moved, ..ending });
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let row = self.shared.sessions.rows().remove(&self.visit.id);
        let Ending { moved, failure, .. } = self.ending.take().unwrap_or_else(|| {
            let moved = row.map_or_else(Moved::default, |row| (row.gauge)());
            let span = self.shared.host.clock().now().since(self.begun);
            let text = "the session was broken off";
            let failure = Some(Failure::new(FailureKind::Temporary, text));
            Ending { moved: Moved { span, ..moved }, failure, is_done: false }
        });
        let changes = self.changes.load(Ordering::Relaxed);
        let moved = Moved { changes, ..moved };
        let (visit, objects) = (Arc::clone(&self.visit), self.objects.take().unwrap_or_default());
        self.shared.tell(ServerEvent::Ended { visit, moved, objects, failure });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use gtp_alloc::{Bytes, Rate};

    use tokio::sync::mpsc;

    use super::super::{Admission, Change, Changes, Request, ServeConfig, Server, Whose, Writing};
    use super::*;
    use crate::engine::{Host, HostConfig};
    use crate::identity::Identity;
    use crate::trust::{AuthorizedKeys, ClientTrust, Strangers};

    async fn server(events: mpsc::Sender<ServerEvent>, root: &std::path::Path) -> Server {
        let (capacity_out, capacity_in) = (Rate::UNLIMITED, Rate::UNLIMITED);
        let memory = Bytes(1 << 20);
        let host = HostConfig { capacity_out, capacity_in, interval: None, memory, engines: 1 };
        let trust = ClientTrust { keys: AuthorizedKeys::default(), strangers: Strangers::MayRead };
        let (root, listen) = (root.to_owned(), SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = ServeConfig::new(root, listen, Admission::Fixed(trust));
        let config = ServeConfig { writing: Writing::Allowed, changes: Changes::Told, ..config };
        let (host, identity) = (Host::start(host).unwrap(), Identity::generate());
        Server::bind(host, &identity, config, events).await.unwrap()
    }

    fn visit() -> Visit {
        let key = Identity::generate().fingerprint();
        let request = Request { key, name: None, verb: "tree", path: "x".into() };
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        let groups = Vec::new();
        Visit { id: 1, client, whose: Whose::Listed, request, export: None, groups }
    }

    #[tokio::test]
    async fn the_end_of_a_session_that_broke_off_is_told_after_the_changes_that_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let (events_in, mut events) = mpsc::channel(8);
        let server = server(events_in, dir.path()).await;
        let sessions = server.sessions();
        let told = Told::begin(&server.shared, visit());
        let page = Arc::clone(&told);
        told.measure(|| Moved { content_bytes: 5, ..Moved::default() });
        // Its connection breaks while a page of steps is carried out.
        told.end(Ending::failed(Failure::new(FailureKind::Temporary, "lost")));
        drop(told);
        assert!(matches!(events.try_recv(), Ok(ServerEvent::Started { .. })));
        assert!(events.try_recv().is_err(), "its end is told before its changes");
        assert_eq!(sessions.running()[0].moved.content_bytes, 5);
        page.count_changes(3);
        let step = Change { what: "remove", path: "a".into(), to: None, failure: None };
        server.shared.tell_changes(page.visit(), vec![step]).await;
        drop(page);
        assert!(matches!(events.try_recv(), Ok(ServerEvent::Changed { .. })));
        let Ok(ServerEvent::Ended { moved, failure, .. }) = events.try_recv() else { panic!() };
        assert_eq!((moved.changes, failure.unwrap().text.as_str()), (3, "lost"));
        assert!(sessions.running().is_empty());
    }

    #[tokio::test]
    async fn a_session_whose_task_is_dropped_is_told_to_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (events_in, mut events) = mpsc::channel(8);
        let server = server(events_in, dir.path()).await;
        let told = Told::begin(&server.shared, visit());
        told.measure(|| Moved { content_bytes: 5, ..Moved::default() });
        drop(told);
        assert!(matches!(events.try_recv(), Ok(ServerEvent::Started { .. })));
        let Ok(ServerEvent::Ended { moved, failure, .. }) = events.try_recv() else { panic!() };
        assert_eq!(moved.content_bytes, 5);
        assert!(failure.is_some());
    }
}
