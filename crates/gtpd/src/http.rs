//! Pages for whoever asks on a loopback address: as much of HTTP as that needs.
//!
//! A page is made at most ten times a second for each user who sees more, however many ask.
//! Nothing can be changed here. A reader that is slow, or says too much, is dropped, and the oldest
//! makes room for the next: no reader can make the daemon or another reader wait. A browser that
//! was led here under another name is turned away, so that no page from elsewhere reads what is
//! here. Where a page says more to some users than to others, the kernel says whose the reader's
//! connection is.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use gtp_alloc::{Span, Time};
use gtp_sys::owner::owner;
use rustix::event::{PollFd, PollFlags};

use crate::hub::{Hub, Right};

/// A page and how it is made from what it tells of: the daemon's hub, or what else `S` is.
#[derive(Debug)]
pub struct Page<S = Hub> {
    /// Where it is to be had.
    pub path: &'static str,
    /// What it is.
    pub kind: &'static str,
    /// What it says now.
    pub text: Text<S>,
}

/// What a page says.
#[derive(Debug)]
pub enum Text<S = Hub> {
    /// The same to everybody.
    ToAll(fn(&S, Work) -> Vec<u8>),
    /// What a reader may see.
    ToEach(fn(&S, Right) -> Vec<u8>),
}

/// What the daemon has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Turns of its loop.
    pub turns: u64,
    /// Time spent in them, less waiting.
    pub spent: Span,
}

/// A listening socket, its pages, and those who have come.
#[derive(Debug)]
pub struct Pages<S: 'static = Hub> {
    listener: TcpListener,
    pages: &'static [Page<S>],
    readers: Vec<Reader>,
    /// Readers at a time.
    readers_most: usize,
    /// Until when nobody is accepted, because the last try failed.
    rests_until: Option<Time>,
    /// What was made lately, by path, and for whom.
    kept: BTreeMap<(&'static str, Right), Kept>,
}

/// A page as it was made at some time.
#[derive(Debug)]
struct Kept {
    made: Time,
    text: Arc<Vec<u8>>,
}

/// One who has come.
#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    came: Time,
    asked: Vec<u8>,
    answer: Option<Answer>,
}

/// What is being sent to one of them.
#[derive(Debug)]
struct Answer {
    head: Vec<u8>,
    body: Arc<Vec<u8>>,
    at: usize,
}

/// Readers at a time. A reader that asks at once, as programs do, is answered when it is accepted;
/// even beside 10,000 others a second, one that needs 20 ms is answered.
const READERS: usize = 256;
/// Connections taken in a turn, as many as wait at most.
const COMERS: usize = 1_024;
/// Bytes of a request: browsers send the cookies of all that was ever on this host.
const ASKED_MOST: usize = 16_384;
/// A reader that has not asked within this time is dropped.
const ASKING: Span = Span::from_secs(1);
/// A reader that has not read the answer within this time is dropped.
const PATIENCE: Span = Span::from_secs(5);
/// A listener whose last connection could not be accepted rests for so long.
const REST: Span = Span::from_millis(100);
/// A page is as good as new for so long.
const FRESH: Span = Span::from_millis(100);
/// Texts that are kept at a time. Where readers of more users come, the next is told what everybody
/// may know.
const KEPT_MOST: usize = 32;

impl<S> Pages<S> {
    /// Listens at a loopback address.
    ///
    /// # Errors
    /// When it is none, or not to be had.
    pub fn listen(address: SocketAddr, pages: &'static [Page<S>]) -> io::Result<Pages<S>> {
        if !address.ip().is_loopback() {
            let text = format!("{address} can be reached from outside: name a loopback address");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // More may wait than the library lets.
        rustix::net::listen(&listener, COMERS as i32)?;
        let listening = listener.local_addr()?;
        tracing::info!("http://{listening}{}", pages.first().map_or("", |page| page.path));
        let (readers, kept) = (Vec::new(), BTreeMap::new());
        let (readers_most, rests_until) = (READERS, None);
        Ok(Pages { listener, pages, readers, readers_most, rests_until, kept })
    }

    /// Keeps no more than so many readers at a time, where 256 would take too many descriptors.
    #[must_use]
    pub fn with_readers(self, most: usize) -> Pages<S> {
        Pages { readers_most: most, ..self }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What to wait for: readers, and others.
    pub fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let comers = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN);
        self.rests_until.is_none().then_some(comers).into_iter().chain(self.readers.iter().map(
            |reader| {
                let what = if reader.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
                PollFd::from_borrowed_fd(reader.stream.as_fd(), what)
            },
        ))
    }

    /// When there is something to do that no descriptor tells of; [`Time::MAX`] if never.
    pub fn poll_timeout(&self) -> Time {
        let ends = self.readers.iter().map(Reader::ends);
        ends.chain(self.rests_until).min().unwrap_or(Time::MAX)
    }

    /// Takes in who has come, and answers who has asked.
    pub fn serve(&mut self, now: Time, of: &S, work: Work) {
        self.rests_until = self.rests_until.filter(|&until| now < until);
        let Pages { listener, readers, kept, pages, readers_most, rests_until } = self;
        kept.retain(|_, kept| now.since(kept.made) < FRESH);
        let mut text = |page: &'static Page<S>, stream: &TcpStream| {
            let right = match page.text {
                Text::ToAll(_) => Right::Nobodys,
                Text::ToEach(_) => right_of(stream),
            };
            let is_known = kept.len() < KEPT_MOST || kept.contains_key(&(page.path, right));
            let right = if is_known { right } else { Right::Nobodys };
            let make = || Kept { made: now, text: Arc::new(page.text(of, work, right)) };
            kept.entry((page.path, right)).or_insert_with(make).text.clone()
        };
        readers.retain_mut(|reader| {
            now < reader.ends() && reader.go_on(pages, &mut text).unwrap_or(false)
        });
        for _ in 0..COMERS {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without a free descriptor the listener is ready, and accepting fails at once.
                    let rests = error.kind() != ErrorKind::WouldBlock;
                    *rests_until = rests.then_some(now + REST);
                    break;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut reader = Reader { stream, came: now, asked: Vec::new(), answer: None };
            if !reader.go_on(pages, &mut text).unwrap_or(false) {
                continue;
            }
            if readers.len() >= *readers_most {
                readers.remove(0);
            }
            readers.push(reader);
        }
    }
}

impl<S> Page<S> {
    fn text(&self, of: &S, work: Work, right: Right) -> Vec<u8> {
        match self.text {
            Text::ToAll(text) => text(of, work),
            Text::ToEach(text) => text(of, right),
        }
    }
}

/// What the owner of the other end of a connection may see. Where the kernel does not say who that
/// is, what everybody may.
fn right_of(stream: &TcpStream) -> Right {
    let owner = || owner(stream.local_addr()?, stream.peer_addr()?);
    owner().ok().flatten().map_or(Right::Nobodys, Right::of)
}

impl Reader {
    /// When its time is over.
    fn ends(&self) -> Time {
        self.came + if self.answer.is_some() { PATIENCE } else { ASKING }
    }

    /// As far as it goes without waiting; `false`: it is done.
    fn go_on<S>(
        &mut self,
        pages: &'static [Page<S>],
        text: impl FnOnce(&'static Page<S>, &TcpStream) -> Arc<Vec<u8>>,
    ) -> io::Result<bool> {
        if self.answer.is_none() {
            let mut buffer = [0; 1_024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(n) => self.asked.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
            if !self.asked.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(self.asked.len() < ASKED_MOST);
            }
            let text = |page| text(page, &self.stream);
            self.answer = Some(Answer::to(&self.asked, pages, text));
        }
        let Some(answer) = &mut self.answer else { return Ok(true) };
        loop {
            let rest = answer.rest();
            if rest.is_empty() {
                return Ok(false);
            }
            match self.stream.write(rest) {
                Ok(0) => return Ok(false),
                Ok(n) => answer.at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Answer {
    fn to<S>(
        asked: &[u8],
        pages: &'static [Page<S>],
        text: impl FnOnce(&'static Page<S>) -> Arc<Vec<u8>>,
    ) -> Answer {
        let wanted = path(asked).and_then(|path| pages.iter().find(|page| page.path == path));
        let (status, kind, body) = match wanted {
            Some(_) if !is_of_here(asked) => {
                let why = "ask for localhost, or by its address\n";
                ("403 Forbidden", "text/plain", Arc::new(why.into()))
            }
            Some(page) => ("200 OK", page.kind, text(page)),
            None => {
                let there: Vec<&str> = pages.iter().map(|page| page.path).collect();
                let text = format!("there is {}\n", there.join(" and "));
                ("404 Not Found", "text/plain", Arc::new(text.into_bytes()))
            }
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\
             Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; \
             style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n\r\n",
            body.len()
        );
        Answer { head: head.into_bytes(), body, at: 0 }
    }

    /// What is not sent yet, as far as it lies together.
    fn rest(&self) -> &[u8] {
        match self.at.checked_sub(self.head.len()) {
            None => &self.head[self.at..],
            Some(at) => &self.body[at..],
        }
    }
}

/// The path of a GET.
fn path(asked: &[u8]) -> Option<&str> {
    let line = asked.split(|&b| b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("GET ")?.split(' ').next()
}

/// Whether it was this host that was asked for: a name that somebody else made lead here is not.
fn is_of_here(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked);
    let mut hosts = text.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    hosts.all(|host| {
        let name = match host.parse::<SocketAddr>() {
            Ok(address) => return address.ip().is_loopback(),
            Err(_) if host.ends_with(']') => host,
            Err(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hub::HubConfig;
    use gtp_alloc::Rate;

    const PAGES: &[Page] = &[
        Page { path: "/turns", kind: "text/plain", text: Text::ToAll(|_, work| turns(work.turns)) },
        Page { path: "/long", kind: "text/plain", text: Text::ToAll(|_, _| vec![b'x'; 4_000_000]) },
        Page {
            path: "/right",
            kind: "text/plain",
            text: Text::ToEach(|_, right| format!("{right:?}").into_bytes()),
        },
    ];

    fn turns(turns: u64) -> Vec<u8> {
        turns.to_string().into_bytes()
    }

    /// A hub that nobody has come to.
    pub(crate) fn hub() -> Hub {
        let config = HubConfig {
            capacity_out: Rate::UNLIMITED,
            capacity_in: Rate::from_mbps(100),
            interval: None,
            grace: Span::ZERO,
            users: BTreeMap::new(),
            most: BTreeMap::new(),
            least: BTreeMap::new(),
            end_node: crate::EndNodeSessions::default(),
        };
        Hub::new(Time::ZERO, &config)
    }

    fn pages() -> Pages {
        Pages::listen("127.0.0.1:0".parse().unwrap(), PAGES).unwrap()
    }

    fn asked(pages: &mut Pages, request: &[u8]) -> String {
        asked_at(pages, request, Time::ZERO, 3)
    }

    /// Asks at a time at which there were so many turns.
    fn asked_at(pages: &mut Pages, request: &[u8], now: Time, turns: u64) -> String {
        let mut stream = TcpStream::connect(pages.address().unwrap()).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        let reading = std::thread::spawn(move || {
            // A reset says as much as an end.
            let _ = stream.read_to_string(&mut text);
            text
        });
        while !reading.is_finished() {
            pages.serve(now, &hub(), Work { turns, spent: Span::from_millis(5) });
            std::thread::yield_now();
        }
        reading.join().unwrap()
    }

    #[test]
    fn pages_are_served_at_their_places_and_nothing_elsewhere() {
        let mut pages = pages();
        let page = asked(&mut pages, b"GET /turns HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\n3"), "{page}");
        let long = asked(&mut pages, b"GET /long HTTP/1.1\r\n\r\n");
        assert!(long.ends_with(&"x".repeat(4_000_000)));
        let other = asked(&mut pages, b"GET / HTTP/1.1\r\n\r\n");
        assert!(
            other.starts_with("HTTP/1.1 404") && other.ends_with("/turns and /long and /right\n")
        );
        let post = asked(&mut pages, b"POST /turns HTTP/1.1\r\n\r\n");
        assert!(post.starts_with("HTTP/1.1 404"));
        assert_eq!(asked(&mut pages, &[b'x'; 2 * ASKED_MOST]), "");
    }

    #[test]
    fn a_listener_that_cannot_accept_is_not_waited_for_until_it_has_rested() {
        let mut pages = pages();
        pages.rests_until = Some(Time::ZERO + REST);
        assert_eq!((pages.fds().count(), pages.poll_timeout()), (0, Time::ZERO + REST));
        pages.serve(Time::ZERO + REST, &hub(), Work::default());
        assert_eq!((pages.fds().count(), pages.poll_timeout()), (1, Time::MAX));
    }

    #[test]
    fn of_too_many_readers_the_oldest_goes() {
        let mut pages = pages().with_readers(2);
        let address = pages.address().unwrap();
        let comers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        while pages.readers.last().and_then(|last| last.stream.peer_addr().ok())
            != comers[2].local_addr().ok()
        {
            pages.serve(Time::ZERO, &hub(), Work::default());
        }
        assert_eq!(pages.readers.len(), 2);
    }

    #[test]
    fn a_page_is_made_once_for_all_who_ask_within_a_tenth_of_a_second() {
        let mut pages = pages();
        let mut turns_at = |millis, turns| {
            let now = Time::ZERO + Span::from_millis(millis);
            let page = asked_at(&mut pages, b"GET /turns HTTP/1.1\r\n\r\n", now, turns);
            page.rsplit("\r\n").next().unwrap().to_owned()
        };
        assert_eq!([turns_at(0, 3), turns_at(99, 4), turns_at(100, 5)], ["3", "3", "5"]);
    }

    #[test]
    fn a_reader_is_told_what_its_user_may_see_and_others_what_everybody_may() {
        let mut pages = pages();
        let page = asked(&mut pages, b"GET /right HTTP/1.1\r\n\r\n");
        assert!(page.ends_with("\r\n\r\nAnybodys"), "this user's own daemon: {page}");
        pages.kept.clear();
        for uid in 1..=KEPT_MOST as u32 {
            let (made, text) = (Time::ZERO, Arc::new(Vec::new()));
            pages.kept.insert(("/right", Right::Of(uid)), Kept { made, text });
        }
        let page = asked(&mut pages, b"GET /right HTTP/1.1\r\n\r\n");
        assert!(page.ends_with("\r\n\r\nNobodys"), "too many users at a time: {page}");
    }

    #[test]
    fn a_browser_that_was_led_here_by_another_name_is_turned_away() {
        for (host, comes_in) in [
            ("localhost:80", true),
            ("localhost", true),
            ("127.0.0.1", true),
            ("[::1]:9", true),
            ("[::1]", true),
            ("evil.example", false),
            ("localhost.evil.example:80", false),
            ("192.0.2.1:80", false),
            ("", false),
        ] {
            let asked = format!("GET /turns HTTP/1.1\r\nhost: {host}\r\n\r\n");
            assert_eq!(is_of_here(asked.as_bytes()), comes_in, "{host}");
        }
        assert!(
            asked(&mut pages(), b"GET /turns HTTP/1.1\r\nHost: a.example\r\n\r\n")
                .starts_with("HTTP/1.1 403")
        );
    }

    #[test]
    fn readers_that_say_nothing_keep_nobody_from_the_page() {
        let mut pages = pages();
        let address = pages.address().unwrap();
        let mut slow = Vec::new();
        for round in 0..4 {
            for _ in 0..READERS / 2 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /turns HT").unwrap();
                slow.push(stream);
            }
            let page = asked(&mut pages, b"GET /turns HTTP/1.1\r\n\r\n");
            assert!(page.starts_with("HTTP/1.1 200 OK"), "round {round}: {page}");
            assert!(pages.readers.len() <= READERS);
        }
        let hub = hub();
        pages.serve(Time::ZERO + ASKING, &hub, Work::default());
        assert!(pages.readers.is_empty(), "who has not asked within a second is gone");
    }

    #[test]
    fn an_address_that_others_could_reach_is_refused() {
        assert!(Pages::listen("0.0.0.0:0".parse().unwrap(), PAGES).is_err());
    }
}
