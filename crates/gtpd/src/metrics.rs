//! Numbers for Prometheus, on a loopback address and only if asked for.
//!
//! A page of text for whoever asks, made at most ten times a second. It names users by number and
//! no session, so that it stays small however many there are. A reader that is slow, or says too
//! much, is dropped; nothing here can make the daemon wait.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use gtp_alloc::{Span, Time};
use gtp_share::SessionView;

use crate::hub::{Hub, Right};

/// The listening socket and those who have come.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: TcpListener,
    readers: Vec<Reader>,
    /// The last page, and when it was made.
    page: Option<(Time, String)>,
}

/// One who has come.
#[derive(Debug)]
struct Reader {
    stream: TcpStream,
    came: Time,
    asked: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// What the daemon has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Turns of its loop.
    pub turns: u64,
    /// Time spent in them, less waiting.
    pub spent: Span,
}

/// Readers at a time.
const READERS: usize = 8;
/// Bytes of a request.
const ASKED_MOST: usize = 4_096;
/// A reader is gone after this.
const PATIENCE: Span = Span::from_secs(5);
/// A page is as good as new for so long.
const FRESH: Span = Span::from_millis(100);

impl Metrics {
    /// Listens at a loopback address.
    ///
    /// # Errors
    /// When it is none, or not to be had.
    pub fn listen(address: SocketAddr) -> io::Result<Metrics> {
        if !address.ip().is_loopback() {
            let text = format!("{address} can be reached from outside: name a loopback address");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Metrics { listener, readers: Vec::new(), page: None })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What to wait for; readers are looked at at every turn.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let asking = self.readers.iter().filter(|reader| reader.answer.is_none());
        std::iter::once(self.listener.as_fd()).chain(asking.map(|reader| reader.stream.as_fd()))
    }

    /// Whether somebody waits for the rest of his answer.
    pub fn is_sending(&self) -> bool {
        self.readers.iter().any(|reader| reader.answer.is_some())
    }

    /// Takes in who has come, and answers who has asked.
    pub fn serve(&mut self, now: Time, hub: &Hub, work: Work) {
        while self.readers.len() < READERS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.readers.push(Reader { stream, came: now, asked: Vec::new(), answer: None });
            }
        }
        let Metrics { readers, page: kept, .. } = self;
        kept.take_if(|(made, _)| now.since(*made) >= FRESH);
        let mut text = || kept.get_or_insert_with(|| (now, page(hub, work))).1.clone();
        readers.retain_mut(|reader| {
            now.since(reader.came) < PATIENCE && reader.go_on(&mut text).unwrap_or(false)
        });
    }
}

impl Reader {
    /// As far as it goes without waiting; `false`: it is done.
    fn go_on(&mut self, page: impl FnOnce() -> String) -> io::Result<bool> {
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
            self.answer = Some(response(&self.asked, page));
        }
        let Some(rest) = &mut self.answer else { return Ok(true) };
        loop {
            match self.stream.write(rest) {
                Ok(0) => return Ok(false),
                Ok(n) => drop(rest.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            }
            if rest.is_empty() {
                return Ok(false);
            }
        }
    }
}

fn response(asked: &[u8], page: impl FnOnce() -> String) -> Vec<u8> {
    let (status, body) = if asked.starts_with(b"GET /metrics ") {
        ("200 OK", page())
    } else {
        ("404 Not Found", "the numbers are at /metrics\n".to_owned())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

/// The numbers in Prometheus's text format.
fn page(hub: &Hub, work: Work) -> String {
    let host = hub.host();
    let sessions = hub.sessions_for(Right::Anybodys);
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, lines: Vec<(String, f64)>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in lines {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let both = |out: f64, in_: f64| {
        vec![("{direction=\"out\"}".to_owned(), out), ("{direction=\"in\"}".to_owned(), in_)]
    };
    let limit = |rate: Option<u64>| rate.map_or(f64::INFINITY, |bps| bps as f64);
    let capacity = both(limit(host.capacity_out), limit(host.capacity_in));
    family("gtp_capacity_bits_per_second", "gauge", "What is shared out.", capacity);
    let used = both(host.used_out as f64, host.used_in as f64);
    family("gtp_used_bits_per_second", "gauge", "Sum of measured rates.", used);
    let processes = vec![(String::new(), f64::from(host.processes))];
    family("gtp_processes", "gauge", "Processes attached.", processes);
    let of = |value: fn(&SessionView) -> f64| {
        let mut sums: BTreeMap<(u32, &str), f64> = BTreeMap::new();
        for session in &sessions {
            *sums.entry((session.uid, &session.direction)).or_default() += value(session);
        }
        let line = |((uid, way), sum)| (format!("{{uid=\"{uid}\",direction=\"{way}\"}}"), sum);
        sums.into_iter().map(line).collect::<Vec<_>>()
    };
    family("gtp_sessions", "gauge", "Sessions of a user.", of(|_| 1.0));
    let rates = of(|session| session.measured as f64);
    family("gtp_user_bits_per_second", "gauge", "Measured rates of a user's sessions.", rates);
    let granted = of(|session| session.granted.map_or(f64::INFINITY, |bps| bps as f64));
    family("gtp_user_granted_bits_per_second", "gauge", "What they are granted.", granted);
    let turns = vec![(String::new(), work.turns as f64)];
    family("gtpd_turns_total", "counter", "Turns of the daemon's loop.", turns);
    let spent = vec![(String::new(), work.spent.as_secs_f64())];
    family("gtpd_busy_seconds_total", "counter", "Time spent in them.", spent);
    text.replace(" inf\n", " +Inf\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::HubConfig;
    use gtp_alloc::Rate;

    fn hub() -> Hub {
        let config = HubConfig {
            capacity_out: Rate::UNLIMITED,
            capacity_in: Rate::from_mbps(100),
            interval: None,
            grace: Span::ZERO,
            users: BTreeMap::new(),
            most: BTreeMap::new(),
        };
        Hub::new(Time::ZERO, &config)
    }

    fn asked(metrics: &mut Metrics, request: &[u8]) -> String {
        asked_at(metrics, request, Time::ZERO, 3)
    }

    /// Asks at a time at which there were so many turns.
    fn asked_at(metrics: &mut Metrics, request: &[u8], now: Time, turns: u64) -> String {
        let mut stream = TcpStream::connect(metrics.address().unwrap()).unwrap();
        stream.write_all(request).unwrap();
        let mut text = String::new();
        let reading = std::thread::spawn(move || {
            // A reset says as much as an end.
            let _ = stream.read_to_string(&mut text);
            text
        });
        while !reading.is_finished() {
            metrics.serve(now, &hub(), Work { turns, spent: Span::from_millis(5) });
            std::thread::yield_now();
        }
        reading.join().unwrap()
    }

    #[test]
    fn numbers_are_served_at_their_place_and_nothing_elsewhere() {
        let mut metrics = Metrics::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let page = asked(&mut metrics, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"out\"} +Inf\n"));
        assert!(page.contains("gtp_capacity_bits_per_second{direction=\"in\"} 100000000\n"));
        assert!(page.contains("gtpd_busy_seconds_total 0.005\n"));
        assert!(asked(&mut metrics, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert_eq!(asked(&mut metrics, &[b'x'; 2 * ASKED_MOST]), "");
    }

    #[test]
    fn a_page_is_made_once_for_all_who_ask_within_a_tenth_of_a_second() {
        let mut metrics = Metrics::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut turns_at = |millis, turns| {
            let now = Time::ZERO + Span::from_millis(millis);
            let page = asked_at(&mut metrics, b"GET /metrics HTTP/1.1\r\n\r\n", now, turns);
            let line = page.lines().find(|line| line.starts_with("gtpd_turns_total ")).unwrap();
            line.split(' ').nth(1).unwrap().to_owned()
        };
        assert_eq!([turns_at(0, 3), turns_at(99, 4), turns_at(100, 5)], ["3", "3", "5"]);
    }

    #[test]
    fn an_address_that_others_could_reach_is_refused() {
        assert!(Metrics::listen("0.0.0.0:0".parse().unwrap()).is_err());
    }
}
