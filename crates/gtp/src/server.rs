//! Serving.
//!
//! A description is built first and started once. Exports and groups can be changed while it
//! runs, its directory cannot; who may come is looked up for each client.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use gtp_alloc::Rate;
use gtp_net::flows::PathUse;
use gtp_net::flows::{Alone, Failure, FailureKind};
use gtp_net::identity::Fingerprint;
use gtp_net::server::Server as Listening;
use gtp_net::server::{
    Admission, BadExports, Changes, Confines, EVENTS, Exports, GroupRule, Limits, Offer, Offers,
    Pulse, Quotas, Reach, ServeConfig, ServerEvent, Sessions, Sockets, Terms, Voucher, Writing,
};
use gtp_net::trust::{AUTHORIZED_KEYS_FILE, Access, AuthorizedKeys, ClientTrust, Strangers};
use gtp_store::replica::Replica;
use gtp_store::{Chosen, SinkOptions};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::host::Host;

/// Describes a server that exports one directory or file, or several under their names.
///
/// Sessions hold blocks of 256 KiB. glibc's `malloc` may keep much of what they free, so a program
/// that serves for long should have it give large pieces back: `MALLOC_MMAP_THRESHOLD_=131072` in
/// its environment, or the same by `mallopt`. The command `gtp` does that.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `start`"]
pub struct Server {
    offer: Offer,
    called: String,
    listen: String,
    strangers: Strangers,
    writing: Writing,
    keys: Option<PathBuf>,
    only: Option<(Fingerprint, Access)>,
    limits: Limits,
    max_rate: Rate,
    path: PathUse,
    alone: Vec<Alone>,
    end_node: bool,
    changes: Changes,
    confines: Option<Confines>,
    chosen: Option<Arc<Chosen>>,
    old_versions: Option<Arc<Replica>>,
    data_from: Option<IpAddr>,
    third_party: Vec<Reach>,
}

impl Server {
    /// Exports this directory or file, to those on the list of authorized keys.
    pub fn export(root: impl Into<PathBuf>) -> Server {
        Server::of(Offer::One(root.into(), BTreeMap::new()))
    }

    /// Exports several directories or files. Paths begin with the name of one; what a client may do
    /// there is at most what the list of authorized keys lets its key do at all.
    pub fn exports(exports: Exports) -> Server {
        Server::of(Offer::Several(exports))
    }

    /// Puts these groups of keys in place of those that the server has. Their rates, weights,
    /// guarantees and hours hold; places and quotas are for a server of [`Server::exports`], and
    /// one directory with groups that have some does not start.
    pub fn groups(mut self, of_keys: BTreeMap<String, GroupRule>) -> Server {
        match &mut self.offer {
            Offer::One(_, groups) => *groups = of_keys,
            Offer::Several(exports) => exports.groups = of_keys,
        }
        self
    }

    fn of(offer: Offer) -> Server {
        Server {
            offer,
            called: ServeConfig::CALLED.to_owned(),
            listen: DEFAULT_LISTEN.into(),
            strangers: Strangers::Refused,
            writing: Writing::Refused,
            keys: None,
            only: None,
            limits: Limits::default(),
            max_rate: Rate::UNLIMITED,
            path: PathUse::default(),
            alone: Vec::new(),
            end_node: false,
            changes: Changes::Untold,
            confines: None,
            chosen: None,
            old_versions: None,
            data_from: None,
            third_party: Vec::new(),
        }
    }

    /// Listens here, `ADDRESS:PORT`, TCP and UDP; port 0 takes one that is free.
    pub fn listen(mut self, address: impl Into<String>) -> Server {
        self.listen = address.into();
        self
    }

    /// Lets anyone read.
    pub fn public(mut self) -> Server {
        self.strangers = Strangers::MayRead;
        self
    }

    /// Lets those write who are on the list for it.
    pub fn writable(mut self) -> Server {
        self.writing = Writing::Allowed;
        self
    }

    /// The list of keys, in place of the one in the host's configuration directory. It is looked
    /// at for each client. Sessions of a key that is taken off it end within two seconds.
    pub fn authorized_keys(mut self, path: impl Into<PathBuf>) -> Server {
        self.keys = Some(path.into());
        self
    }

    /// Lets this key in and no other, and lets it read. No list is read.
    pub fn only_reader(mut self, key: Fingerprint) -> Server {
        (self.only, self.writing) = (Some((key, Access::READ)), Writing::Refused);
        self
    }

    /// Lets this key in and no other, and lets it write, but not read. No list is read.
    pub fn only_writer(mut self, key: Fingerprint) -> Server {
        (self.only, self.writing) = (Some((key, Access::WRITE)), Writing::Allowed);
        self
    }

    /// Lets this key in and no other, and lets it read and write. No list is read.
    pub fn only_owner(mut self, key: Fingerprint) -> Server {
        (self.only, self.writing) = (Some((key, Access::ALL)), Writing::Allowed);
        self
    }

    /// Lets clients write at one place only, and there only under some names: for a client that is
    /// not to be trusted with all that is exported.
    pub fn confined(mut self, to: Confines) -> Server {
        self.confines = Some(to);
        self
    }

    /// Lists, of all that is exported, only what has these names directly beneath it. All of it is
    /// one object then: a bundle of what has these names.
    pub fn choosing(mut self, names: impl IntoIterator<Item = String>) -> Server {
        self.chosen = Some(Arc::new(names.into_iter().collect()));
        self
    }

    /// Lets clients that may write have old versions of files kept in this directory, which may be
    /// outside the export and is made if need be. All sessions use this one handle of it.
    pub fn old_versions(mut self, dir: Replica) -> Server {
        self.old_versions = Some(Arc::new(dir));
        self
    }

    /// Believes that the datagrams of a client whose connection comes from this machine's loopback
    /// come from this address: something here, such as ssh, passes the connection on.
    pub fn data_from(mut self, address: IpAddr) -> Server {
        self.data_from = Some(address);
        self
    }

    /// Fetches for clients that may write, if they ask for it ([`crate::Order`]), from servers at
    /// addresses within this range; may be called several times. Without it nothing is fetched.
    pub fn third_party(mut self, range: Reach) -> Server {
        self.third_party.push(range);
        self
    }

    /// What clients are told that the exported directory is called, with a slash at its end, as in
    /// `the host's /srv/data/`. If it is not said, they are told `the server's /`.
    pub fn called(mut self, name: impl Into<String>) -> Server {
        self.called = name.into();
        self
    }

    /// How many clients may come.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Limits each session to this rate.
    pub fn max_rate(mut self, rate: Rate) -> Server {
        self.max_rate = rate;
        self
    }

    /// Lets sessions use their paths in this way, if their clients ask for it.
    pub fn path(mut self, path: PathUse) -> Server {
        self.path = path;
        self
    }

    /// Takes part in this control law, by which one end decides alone over a session's rate, if a
    /// client asks for it. Such sessions are less kind to others on the same path: without this
    /// they are refused.
    pub fn allow(mut self, law: Alone) -> Server {
        self.alone.push(law);
        self
    }

    /// Takes part in the thesis's end-node law if a client asks for it. It shares the host's
    /// capacity by sessions, whosever they are, and knows no weights, guarantees or rates of keys
    /// and groups: without this it is refused.
    pub fn allow_end_node(mut self) -> Server {
        self.end_node = true;
        self
    }

    /// Tells of each change that clients make to the exported tree ([`ServerEvent::Changed`]). A
    /// client waits with its next changes, up to 5 s, until these events are taken.
    pub fn tell_changes(mut self) -> Server {
        self.changes = Changes::Told;
        self
    }

    /// Listens, and serves on the current tokio runtime.
    ///
    /// # Errors
    /// When the export or the address is not to be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self, host: &Host) -> Result<RunningServer, Failure> {
        let listen = gtp_net::server::listen_address(&self.listen)?;
        self.start_at(host, listen, None).await
    }

    /// The same on sockets that another process has opened, such as the system's manager. One
    /// engine of the host has all sessions then.
    ///
    /// # Errors
    /// As [`Server::start`], and when the sockets do not fit together.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start_on(self, host: &Host, sockets: Sockets) -> Result<RunningServer, Failure> {
        let failed = |e: std::io::Error| Failure::new(FailureKind::Other, e.to_string());
        let address = sockets.tcp.local_addr().map_err(failed)?;
        self.start_at(host, address, Some(sockets)).await
    }

    async fn start_at(
        self,
        host: &Host,
        listen: SocketAddr,
        sockets: Option<Sockets>,
    ) -> Result<RunningServer, Failure> {
        let list = || host.config_file(AUTHORIZED_KEYS_FILE);
        let admission = match self.only {
            Some((key, access)) => Admission::Fixed(ClientTrust {
                keys: AuthorizedKeys::of_one(key, access),
                strangers: Strangers::Refused,
            }),
            None => Admission::File {
                path: self.keys.map_or_else(list, Ok)?,
                strangers: self.strangers,
            },
        };
        let config = ServeConfig {
            offer: self.offer,
            called: self.called,
            listen,
            admission,
            writing: self.writing,
            limits: self.limits,
            max_rate: self.max_rate,
            path: self.path,
            alone: self.alone,
            end_node: self.end_node,
            interval: host.interval,
            sink_options: SinkOptions::default(),
            changes: self.changes,
            confines: self.confines,
            chosen: self.chosen,
            old_versions: self.old_versions,
            data_from: self.data_from,
            third_party: self.third_party,
        };
        let (events_in, events) = mpsc::channel(EVENTS);
        let (engine, identity) = (host.endpoint.host().clone(), host.endpoint.identity());
        let server = match sockets {
            None => Listening::bind(engine, identity, config, events_in).await?,
            Some(sockets) => {
                Listening::take_over(engine, identity, config, events_in, sockets).await?
            }
        };
        Ok(RunningServer::run(server, events))
    }

    /// What may change while it runs.
    fn terms(self) -> Terms {
        let Server { writing, max_rate, path, alone, end_node, .. } = self;
        Terms { writing, max_rate, path, alone, end_node }
    }
}

/// A server that listens. Dropping it ends its sessions.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    fingerprint: Fingerprint,
    events: mpsc::Receiver<ServerEvent>,
    reload: Arc<Notify>,
    drain: Arc<Notify>,
    terms: Arc<watch::Sender<Terms>>,
    offers: Offers,
    pulse: Pulse,
    sessions: Sessions,
    voucher: Voucher,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl RunningServer {
    fn run(server: Listening, events: mpsc::Receiver<ServerEvent>) -> RunningServer {
        let (address, fingerprint) = (server.address(), server.fingerprint());
        let (reload, drain, terms) = (server.reload(), server.drain(), server.terms());
        let (pulse, sessions, offers) = (server.pulse(), server.sessions(), server.offers());
        let voucher = server.voucher();
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let task = tokio::spawn(async move {
            server.run(stopped).await;
            end.send_replace(true);
        });
        RunningServer {
            address,
            fingerprint,
            events,
            reload,
            drain,
            terms,
            offers,
            pulse,
            sessions,
            voucher,
            stop,
            ended,
            task,
        }
    }

    /// Gives sessions that begin from now on the terms of this description: whether clients may
    /// write, the limit of a session's rate, and the control laws that they may ask for.
    pub fn change_terms(&self, to: Server) {
        self.terms.send_replace(to.terms());
    }

    /// Puts other exports and groups in place of those of a server that has several. Sessions that
    /// use an export which stays go on, and the others end with the next [`RunningServer::reload`].
    /// A server with one directory keeps that, and takes the groups; it takes no exports.
    ///
    /// # Errors
    /// [`BadExports`]; the exports and groups then stay as they were.
    pub fn change_exports(&self, exports: Exports) -> Result<(), BadExports> {
        self.offers.change(exports)
    }

    /// Takes no more clients. The server ends when the last one is gone.
    pub fn drain(&self) {
        self.drain.notify_one();
    }

    /// Returns a sign of whether the server still serves clients, for a supervisor that restarts a
    /// server that hangs.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// The sessions that it has, also those whose beginning was not told for want of room.
    pub fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// What lies there of what its quotas allow, also when its exports are changed.
    pub fn quotas(&self) -> Quotas {
        self.offers.quotas()
    }

    /// Gives the server clients that come over a pipe which somebody else protects, such as ssh.
    pub fn voucher(&self) -> Voucher {
        self.voucher.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The key that clients see.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The next event; `None` when the server has ended. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<ServerEvent> {
        tokio::select! {
            biased;
            event = self.events.recv() => event,
            // An error means that its task is gone, which is as good.
            _ = self.ended.wait_for(|ended| *ended) => self.events.try_recv().ok(),
        }
    }

    /// Has the list of keys read now. Sessions of keys that are not on it any more end, and all
    /// others go on; [`ServerEvent::KeysRead`] or [`ServerEvent::KeysUnreadable`] says how it went.
    /// The server looks at the list for each client and twice a second anyway. What is at the
    /// exports' paths now is taken for what is meant, unless a file system was mounted there and is
    /// not now.
    pub fn reload(&self) {
        self.reload.notify_one();
        let offers = self.offers.clone();
        std::thread::spawn(move || offers.look_anew());
    }

    /// Tells clients that it stops, keeps what they sent, and waits for that, 5 s at most.
    pub async fn stop(self) {
        self.stop_and_hear(|_| {}).await;
    }

    /// As [`RunningServer::stop`]; `hear` gets the events until the end.
    pub async fn stop_and_hear(mut self, mut hear: impl FnMut(ServerEvent)) {
        self.stop.send_replace(true);
        loop {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => hear(event),
                // Its end is all that matters, however it came.
                _ = &mut self.task => break,
            }
        }
        while let Ok(event) = self.events.try_recv() {
            hear(event);
        }
    }
}

/// All addresses, IPv6 and IPv4, and the port of `gtp://`.
const DEFAULT_LISTEN: &str = "[::]:4810";
