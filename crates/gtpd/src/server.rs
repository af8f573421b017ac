//! The daemon's loop: who comes, who goes, who rings, and when it is time to decide.
//!
//! One thread, and nothing that anybody can make it wait for: it takes a few messages of each
//! process a turn, drops answers that are not read, sends lists as they are read, and rests after
//! each turn for many times what the turn took, as far as that is not too long.

mod beside;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use gtp_alloc::{Rate, Span, Time};
use gtp_share::client::Past;
use gtp_share::{Answer, BELL, Connection, Incoming, MESSAGE_MOST, Request, VERSION, printable};
use gtp_sys::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::caller::{Caller, Sending, State};
use crate::claim::{Before, Claim};
use crate::comers::{Comers, Spare};
use crate::http::{Pages, Work};
use crate::hub::{ClientId, Hub, HubConfig, Right, SetError, Who};
use crate::metrics::NUMBERS;
use crate::orders::{Census, Order, Orders, Said};
use crate::refusal::Refusal;
use crate::view::Lists;
use crate::web::LIVE;
use beside::Beside;

/// What a daemon is told at its start.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// What its hub is told; its grace counts only where another daemon may have been before.
    pub hub: HubConfig,
    /// It ends when nobody has been there for so long; never if none.
    pub idle_end: Option<Span>,
    /// Where numbers are to be had; a loopback address.
    pub metrics: Option<SocketAddr>,
    /// Where a browser is shown the live rates; a loopback address.
    pub web: Option<SocketAddr>,
    /// The network interface on which traffic that is not GTP's keeps its place; none unless said.
    pub interface: Option<String>,
    /// What is always left to others, in each direction.
    pub reserve: Rate,
}

impl DaemonConfig {
    /// What is shared out of the capacities, out and in.
    fn shared(&self) -> [Rate; 2] {
        let full = [self.hub.capacity_out, self.hub.capacity_in];
        full.map(|rate| rate.saturating_sub(self.reserve))
    }

    /// What room for others is measured by.
    fn room(&self) -> ([Rate; 2], Rate, Option<&str>) {
        let full = [self.hub.capacity_out, self.hub.capacity_in];
        (full, self.reserve, self.interface.as_deref())
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    claim: Claim,
    clock: Clock,
    hub: Hub,
    lists: Lists,
    pages: Vec<Pages>,
    beside: Beside,
    work: Work,
    /// What it goes by.
    told: DaemonConfig,
    /// The last sign of life.
    beaten: Time,
    /// When the socket's name was looked for last, and whether it could not be made again.
    looked: Time,
    displaced: bool,
    callers: BTreeMap<ClientId, Caller>,
    comers: Comers,
    spare: Spare,
    /// More wait to be taken than a turn takes.
    crowded: bool,
    next: ClientId,
    /// Processes that a next daemon was told to expect.
    noted: Option<usize>,
    /// Whose list was sent on last.
    fed: ClientId,
    news: Vec<ClientId>,
    idle_since: Time,
    orders: Option<Orders>,
}

/// What comes of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    GoesOn,
    Ends,
}

/// Processes at most, of all and of one user: 1.3 MiB of pages each, if all of it is used.
const CALLERS_MOST: usize = 2_048;
const CALLERS_OF_ONE: usize = 256;
/// Messages taken of one connection a turn.
const MESSAGES: usize = 4;
/// Packets of lists sent in a turn, to all and to one.
const PACKETS: usize = 256;
const PACKETS_OF_ONE: usize = 64;
/// A connection that has not attached, or does not read its list, ends after this.
const ASKING_MOST: Span = Span::from_secs(10);
/// Turns come no closer than this.
const REST_LEAST: Span = Span::from_millis(1);
/// Turns come no closer than so many times what one takes: a seventeenth of a core at most.
const REST_TIMES: u64 = 16;
/// Nobody waits longer than this for the next turn, however long one takes: [`REST_TIMES`] holds
/// while a turn takes 6 ms at most.
const REST_MOST: Span = Span::from_millis(100);
/// The longest rest while processes come back from an earlier daemon, or very many come at once.
const REST_WAITING: Span = Span::from_millis(5);
/// How often it gives a sign of life, looks at connections that only ask, and whether it is alone.
const UPKEEP: Span = Span::from_millis(500);
/// How often it looks whether its socket still has its name.
const LOOK: Span = Span::from_secs(1);
/// After so long without one it has stood still; processes leave it after two seconds.
const STOOD_STILL: Span = Span::from_millis(1_500);
/// Connections accepted in one turn: as many as can wait, so that a peer that connects without end
/// cannot keep others from being accepted or heard.
const COMERS: usize = 4_096;

impl Daemon {
    /// A daemon at a place.
    ///
    /// # Errors
    /// When the address for numbers is not to be had.
    pub fn new(claim: Claim, config: &DaemonConfig) -> io::Result<Daemon> {
        let clock = Clock::start();
        let now = clock.now();
        let mut hub = config.hub.clone();
        if claim.before() == Before::Nobody {
            hub.grace = Span::ZERO;
        }
        let expected = match claim.before() {
            Before::Left(processes) => Some(processes),
            Before::Nobody | Before::Perhaps => None,
        };
        let asked = [(config.metrics, NUMBERS), (config.web, LIVE)];
        let asked = asked.into_iter().filter_map(|(address, pages)| Some((address?, pages)));
        let pages = asked.map(|(address, pages)| Pages::listen(address, pages));
        [hub.capacity_out, hub.capacity_in] = config.shared();
        let mut hub = Hub::new(now, &hub);
        expected.into_iter().for_each(|processes| hub.wait_for(processes));
        Ok(Daemon {
            claim,
            clock,
            hub,
            noted: None,
            lists: Lists::default(),
            pages: pages.collect::<io::Result<_>>()?,
            beside: Beside::new(now, config),
            work: Work::default(),
            told: config.clone(),
            beaten: now,
            looked: now,
            displaced: false,
            callers: BTreeMap::new(),
            comers: Comers::default(),
            spare: Spare::new(),
            crowded: false,
            next: 1,
            fed: 0,
            news: Vec::new(),
            idle_since: now,
            orders: None,
        })
    }

    /// The same daemon, which obeys these orders.
    #[must_use]
    pub fn obeying(self, orders: Orders) -> Daemon {
        Daemon { orders: Some(orders), ..self }
    }

    /// Runs until it is ordered to end, or has had no process for its idle time. Either way it
    /// tells all processes that it shuts down cleanly.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        self.warn_of_promises();
        let mut rest = REST_LEAST;
        loop {
            let began = self.clock.now();
            self.wait(began, rest)?;
            let now = self.clock.now();
            if self.obey(now) == Course::Ends || self.is_alone_too_long(now) {
                self.hub.end();
                return Ok(());
            }
            self.beat(now);
            self.keep_place(now);
            // Who asks for a list in this turn hears nothing of those who have ended before it.
            self.listen(now);
            self.accept(now);
            self.note(now);
            self.beside.look(now, &mut self.hub);
            let mut news = std::mem::take(&mut self.news);
            self.hub.tick(now, &mut news);
            for id in &news {
                if let Some(caller) = self.callers.get(id) {
                    // If its bell is full it has been rung; if it is gone, the next look says so.
                    let _ = caller.connection.send(BELL, &[]);
                }
            }
            self.news = news;
            for pages in &mut self.pages {
                pages.serve(now, &self.hub, self.work);
            }
            let cost = self.clock.now().since(now);
            self.work.turns += 1;
            self.work.spent += cost;
            let soon = self.hub.is_waiting(now) || self.crowded;
            let most = if soon { REST_WAITING } else { REST_MOST };
            rest = (cost * REST_TIMES).clamp(REST_LEAST, most);
        }
    }

    /// Does what it was ordered, and answers what it was asked.
    fn obey(&mut self, now: Time) -> Course {
        while let Some(said) = self.orders.as_mut().and_then(Orders::next) {
            match said {
                Said::Question(answer) => {
                    let host = self.hub.host();
                    answer(Census { processes: host.processes, sessions: host.sessions });
                }
                Said::Order(Order::End) => return Course::Ends,
                Said::Order(Order::Settings(new)) => self.go_by(now, *new),
            }
        }
        Course::GoesOn
    }

    /// Goes by other settings, as far as it can while it runs. What others leave of the capacities,
    /// and what losses have shown of them, is forgotten only if one of these has changed.
    fn go_by(&mut self, now: Time, new: DaemonConfig) {
        if new.room() != self.told.room() {
            self.hub.set_full(new.shared());
            self.beside = Beside::new(now, &new);
        }
        self.hub.set_users(now, &new.hub);
        self.told = new;
        self.warn_of_promises();
    }

    /// Says so where more is guaranteed than there is.
    fn warn_of_promises(&self) {
        if let Some(note) = self.over_promised() {
            tracing::warn!("{note}");
        }
    }

    /// Leaves word for a next daemon of how many processes are here.
    fn note(&mut self, now: Time) {
        let roster = self.hub.roster(now);
        if self.noted != Some(roster) {
            self.noted = Some(roster);
            self.claim.note(roster);
        }
    }

    /// Gives a sign of life; after a time without any it begins again, for others have noticed.
    fn beat(&mut self, now: Time) {
        let silent = now.since(self.beaten);
        if silent < UPKEEP {
            return;
        }
        self.beaten = now;
        if silent >= STOOD_STILL && !self.callers.is_empty() {
            tracing::warn!("stood still for {:.1} s", silent.as_secs_f64());
            self.hub.begin_again(now, self.told.hub.grace);
        }
        self.hub.beat();
    }

    /// Makes the socket again if somebody has removed its name: without one nobody new would come,
    /// and no other daemon could begin.
    fn keep_place(&mut self, now: Time) {
        if !self.claim.is_named() || now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        let restored = self.claim.restore();
        match &restored {
            Ok(true) => tracing::warn!("the socket was removed, and is made again"),
            Ok(false) => {}
            Err(error) if !self.displaced => {
                tracing::warn!("the socket was removed, and cannot be made again: {error}");
            }
            Err(_) => {}
        }
        self.displaced = restored.is_err();
    }

    /// Rests, then waits for the next tick or for anybody.
    fn wait(&mut self, began: Time, rest: Span) -> io::Result<()> {
        sleep(rest)?;
        let until = self.hub.poll_timeout();
        let needs_upkeep = !self.callers.is_empty() || self.told.idle_end.is_some();
        let upkeep =
            if needs_upkeep { (self.beaten + UPKEEP).max(began + rest) } else { Time::MAX };
        let upkeep = upkeep.min(self.beside.poll_timeout(&self.hub));
        let pages = self.pages.iter().map(Pages::poll_timeout).min().unwrap_or(Time::MAX);
        let place = if self.claim.is_named() { self.looked + LOOK } else { Time::MAX };
        let until = until.min(upkeep).min(pages).min(place);
        let mut fds = vec![PollFd::from_borrowed_fd(self.claim.listener().as_fd(), PollFlags::IN)];
        fds.extend(self.callers.values().map(|caller| {
            let what = if caller.list.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(caller.connection.as_fd(), what)
        }));
        let callers = fds.len() - 1;
        let orders = self.orders.iter();
        fds.extend(orders.map(|o| PollFd::from_borrowed_fd(o.as_fd(), PollFlags::IN)));
        fds.extend(self.pages.iter().flat_map(Pages::fds));
        let span = until.since(self.clock.now());
        let timeout = (until != Time::MAX).then(|| timespec(span));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found: Vec<PollFlags> = fds[1..=callers].iter().map(|fd| fd.revents()).collect();
        for (caller, found) in self.callers.values_mut().zip(found) {
            caller.ready = !found.is_empty();
            caller.ended = found.contains(PollFlags::HUP);
        }
        Ok(())
    }

    /// Accepts all waiting connections and reads each at once, so that one that has said what it
    /// wants is not closed as a silent one.
    fn accept(&mut self, now: Time) {
        for _ in 0..COMERS {
            match self.claim.listener().accept() {
                Ok(Some(connection)) => self.admit(now, connection),
                Ok(None) => {
                    self.crowded = false;
                    return;
                }
                Err(error) => {
                    self.crowded = true;
                    let turned_away = self.spare.turn_away(self.claim.listener(), &error);
                    self.hub.ledger.refuse(Refusal::Descriptors, turned_away);
                    return;
                }
            }
        }
        self.crowded = true;
    }

    fn admit(&mut self, now: Time, connection: Connection) {
        let (id, uid) = (self.next, connection.peer().uid);
        self.next += 1;
        self.callers.insert(id, Caller::new(now, connection));
        let oldest = self.comers.came(uid, id);
        for _ in 0..MESSAGES {
            if !self.hear(now, id) {
                break;
            }
        }
        if let Some(oldest) = oldest.filter(|oldest| self.comers.is_asking(uid, *oldest)) {
            self.refuse(oldest, Refusal::Silent);
            self.let_go(now, oldest);
        }
        if self.callers.get(&id).is_some_and(|caller| caller.state == State::Over) {
            self.let_go(now, id);
        }
    }

    fn let_go(&mut self, now: Time, id: ClientId) {
        if let Some(caller) = self.callers.remove(&id) {
            self.comers.left(caller.connection.peer().uid, id);
            self.hub.detach(now, id);
        }
    }

    /// Why a process of this user cannot be accepted now.
    fn is_full(&mut self, now: Time, uid: u32) -> Option<Refusal> {
        let attached = || self.callers.values().filter(|caller| caller.state == State::Attached);
        if attached().count() >= CALLERS_MOST {
            return Some(Refusal::Processes);
        }
        if attached().filter(|caller| caller.connection.peer().uid == uid).count() >= CALLERS_OF_ONE
        {
            return Some(Refusal::ProcessesOfUser);
        }
        let often = !self.comers.may_attach(now, uid);
        often.then_some(Refusal::TooOften)
    }

    /// Hears those who have said something, and lets go of those who have ended.
    fn listen(&mut self, now: Time) {
        let ready: Vec<ClientId> =
            self.callers.iter().filter(|(_, caller)| caller.ready).map(|(id, _)| *id).collect();
        for id in ready {
            if self.callers.get(&id).is_some_and(Caller::is_over) {
                continue;
            }
            for _ in 0..MESSAGES {
                if !self.hear(now, id) {
                    break;
                }
            }
        }
        self.feed();
        let over = |caller: &Caller| {
            let late = |since: Time| now.since(since) > ASKING_MOST;
            let slow = caller.state == State::Asking && late(caller.came)
                || caller.list.as_ref().is_some_and(|list| late(list.began));
            caller.is_over() || slow
        };
        let gone: Vec<ClientId> =
            self.callers.iter().filter(|(_, caller)| over(caller)).map(|(id, _)| *id).collect();
        for id in gone {
            self.let_go(now, id);
        }
    }

    /// Sends lists on to those who read them, the one first that comes after the last.
    fn feed(&mut self) {
        let from = self.fed;
        let (before, after): (Vec<ClientId>, Vec<ClientId>) = self
            .callers
            .iter()
            .filter(|(_, caller)| caller.ready && caller.list.is_some())
            .map(|(id, _)| *id)
            .partition(|id| *id <= from);
        let mut left = PACKETS;
        for id in after.into_iter().chain(before) {
            if left == 0 {
                return;
            }
            let Some(caller) = self.callers.get_mut(&id) else { continue };
            left -= caller.feed(left.min(PACKETS_OF_ONE));
            self.fed = id;
        }
    }

    /// Takes one message; `false`: there is none.
    fn hear(&mut self, now: Time, id: ClientId) -> bool {
        let Some(caller) = self.callers.get_mut(&id) else { return false };
        if caller.list.is_some() {
            return false;
        }
        let mut buffer = [0; MESSAGE_MOST];
        let length = match caller.connection.receive(&mut buffer) {
            Ok(Incoming::Message(length, _)) => length,
            Ok(Incoming::Nothing) => return false,
            Ok(Incoming::End) | Err(_) => {
                caller.state = State::Over;
                return false;
            }
        };
        if &buffer[..length] == BELL {
            if caller.state == State::Attached {
                self.hub.wake(now);
            }
            return true;
        }
        let asked = Request::read(&buffer[..length]);
        let answered = asked.and_then(|request| self.answer(now, id, request));
        if let Err(why) = answered {
            let is_set = why == Refusal::Changes.words();
            let reason = if is_set { Refusal::Changes } else { Refusal::Request };
            self.hub.ledger.refuse(reason, 1);
            self.say(id, &Answer::Refused { why });
        }
        true
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// Why not, in words.
    fn answer(&mut self, now: Time, id: ClientId, request: Request) -> Result<(), String> {
        let Some(caller) = self.callers.get_mut(&id) else { return Ok(()) };
        let peer = caller.connection.peer();
        match request {
            Request::Attach { slots, program, again, .. } => {
                if caller.state == State::Attached {
                    return Err("attached already".to_owned());
                }
                let program = printable(&program).chars().take(64).collect();
                let who = Who { uid: peer.uid, pid: peer.pid, program };
                let past = if again { Past::Orphaned } else { Past::None };
                self.attach(now, id, (who, slots), past);
            }
            Request::Sessions { .. } => {
                let right = Right::of(peer.uid);
                let text = self.lists.list(now, &self.hub, right).map_err(|e| e.to_string())?;
                let bytes = text.len() as u64;
                caller.list = Some(Sending { text, at: 0, began: now });
                self.say(id, &Answer::Sessions { bytes });
            }
            Request::History { .. } => {
                let text = self.lists.hour(now, &self.hub).map_err(|e| e.to_string())?;
                let bytes = text.len() as u64;
                caller.list = (bytes > 0).then_some(Sending { text, at: 0, began: now });
                self.say(id, &Answer::Sessions { bytes });
            }
            Request::Keys { .. } => {
                let text = self.lists.keys(now, &self.hub, Right::of(peer.uid));
                let text = text.map_err(|e| e.to_string())?;
                let bytes = text.len() as u64;
                caller.list = (bytes > 0).then_some(Sending { text, at: 0, began: now });
                self.say(id, &Answer::Sessions { bytes });
            }
            Request::Set { session, change, .. } => {
                let right = Right::of(peer.uid);
                if !self.comers.may_set(now, peer.uid) {
                    return Err(Refusal::Changes.words().to_owned());
                }
                let promises = change.guarantee.is_some();
                let said = |error| words(error, session);
                self.hub.may_set(right, session, change).map_err(said)?;
                let had = self.hub.has(session);
                self.hub.set(now, right, session, change).map_err(said)?;
                let promised = if promises { self.over_promised() } else { None };
                let note = promised.or_else(|| self.hub.effect(session, change, had));
                self.say(id, &Answer::Done { note });
            }
        }
        Ok(())
    }

    /// Accepts a process, or tells it that there is no room.
    fn attach(&mut self, now: Time, id: ClientId, (who, slots): (Who, u32), past: Past) {
        let uid = who.uid;
        if let Some(why) = self.is_full(now, uid) {
            return self.refuse(id, why);
        }
        let (fds, slots) = match self.hub.attach(now, id, who, slots) {
            Ok(pages) => pages,
            Err(error) => {
                self.hub.ledger.refuse(Refusal::Memory, 1);
                let why = format!("{}: {error}", Refusal::Memory.words());
                return self.say(id, &Answer::Busy { why });
            }
        };
        self.comers.left(uid, id);
        if past == Past::Orphaned {
            self.hub.came_back(now, id);
        }
        let Some(caller) = self.callers.get_mut(&id) else { return };
        let answer = encode(&Answer::Attached { version: VERSION, slots });
        let sent = caller.connection.send(&answer, &[fds[0].as_fd(), fds[1].as_fd()]);
        caller.state = if sent.is_ok() { State::Attached } else { State::Over };
    }

    /// What is to be said where more is guaranteed than there is.
    fn over_promised(&self) -> Option<String> {
        let guaranteed = self.hub.guaranteed();
        let (out, in_) = self.hub.capacity();
        let least = out.min(in_);
        (guaranteed > least).then(|| {
            format!(
                "guarantees of {} Mbit/s together are more than the {} Mbit/s that there are: they \
                 are cut in one proportion",
                guaranteed.as_bps() / 1_000_000,
                least.as_bps() / 1_000_000
            )
        })
    }

    /// Tells somebody to come again later.
    fn refuse(&mut self, id: ClientId, why: Refusal) {
        self.hub.ledger.refuse(why, 1);
        self.say(id, &Answer::Busy { why: why.words().to_owned() });
    }

    fn say(&mut self, id: ClientId, answer: &Answer) {
        if let Some(caller) = self.callers.get_mut(&id)
            && caller.connection.send(&encode(answer), &[]).is_err()
        {
            caller.state = State::Over;
        }
    }

    fn is_alone_too_long(&mut self, now: Time) -> bool {
        if !self.callers.is_empty() {
            self.idle_since = now;
        }
        self.told.idle_end.is_some_and(|span| now.since(self.idle_since) > span)
    }
}

fn words(error: SetError, session: u32) -> String {
    match error {
        SetError::NoSuchSession => format!("there is no session {session}: see `gtp sessions`"),
        SetError::NotYours => format!("session {session} is another user's: only root may"),
        SetError::NotOfThese => {
            "a transfer has a rate and a guarantee, a session a rate, a weight \
                                 and a policy"
                .to_owned()
        }
        SetError::NotForUsers => "what is guaranteed to one is taken from others: only root, and \
                                  the user that the daemon runs as, may do that"
            .to_owned(),
        SetError::BadWeight => "a weight lies between 0.001 and 1000".to_owned(),
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    // Strings and numbers: there is nothing that could fail.
    serde_json::to_vec(answer).unwrap_or_default()
}

fn sleep(span: Span) -> io::Result<()> {
    match poll(&mut [], Some(&timespec(span))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(span: Span) -> Timespec {
    Timespec {
        tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
    }
}

#[cfg(test)]
pub(crate) mod tests;
