//! TCP connections over ssh's own pipes, for far ends of which only ssh's port can be reached.
//!
//! The near end listens on its loopback, and each connection there becomes a link to the far end's
//! server: frames on standard input and output, once the hello is over. A link's window bounds what
//! is under way in each direction, so a connection that does not read holds up no other and fills
//! no memory. It grows with what the path carries in a round trip and a fifth of a second. What the
//! links carry is TLS between the two hosts' keys, so a connection of another program proves
//! nothing. One link of the near end's own carries messages without TLS: ssh protects them, and no
//! other program can begin it. An empty line is a sign of life between frames. What a far end that
//! knows no links prints is no frame, and ends them. docs/PROTOCOL.md, chapter 21, is the
//! definition.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp::{Span, Time};
use gtp_sys::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accepting;

/// Links at a time: a transfer has one, and a retry may begin before the last one has ended.
pub const LINKS_MOST: usize = 8;

/// Bytes of a link that may be under way in one direction at its beginning.
const WINDOW: usize = 256 << 10;

/// The same at most: 170 Mbit/s over a round trip of 200 ms.
const WINDOW_MOST: usize = 4 << 20;

/// A window that is taken in within the round trip and this time is doubled: the path carries more
/// than it, and what waits on the way stays below twice this time.
const GROW_SPAN: Span = Span::from_millis(200);

/// The longest round trip that counts. On a path so slow that room takes longer than this to come
/// back as bytes, it is the bytes before them that take the time.
const TRIP_MOST: Span = Span::from_millis(800);

/// The number of the link without TLS, of which there is one at most.
pub const BARE: u32 = 1 << 31;

/// Longest content of a frame.
pub const CONTENT_MOST: usize = 16 << 10;

/// Time for a connection within this machine.
const CONNECT_SPAN: Duration = Duration::from_secs(1);

/// Frames that wait for the pipe.
const WAITING: usize = 4;

/// The head of a frame: its kind, its link, and the length of its content.
const HEAD: usize = 7;

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A link begins; only the near end says so.
    Open(u32),
    /// Bytes of a link, one at least.
    Data(u32, Vec<u8>),
    /// So many bytes of a link have left the other end's window.
    Taken(u32, u32),
    /// No more bytes of a link come from this end.
    End(u32),
    /// One end says something to the other that is of no link: one byte at least.
    Message(Vec<u8>),
}

/// The bytes that name frames.
const OPEN: u8 = b'O';
const DATA: u8 = b'D';
const TAKEN: u8 = b'T';
const END: u8 = b'E';
const MESSAGE: u8 = b'M';
/// The sign of life.
const LIFE: u8 = b'\n';

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what comes over ssh is no frame of a link")]
pub struct NoFrame;

impl Frame {
    /// The frame as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let taken;
        let (kind, link, content) = match self {
            Frame::Open(link) => (OPEN, link, &[][..]),
            Frame::Data(link, content) => (DATA, link, &content[..]),
            Frame::Taken(link, bytes) => {
                taken = bytes.to_be_bytes();
                (TAKEN, link, &taken[..])
            }
            Frame::End(link) => (END, link, &[][..]),
            Frame::Message(content) => (MESSAGE, &0, &content[..]),
        };
        let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(HEAD + content.len());
        bytes.push(kind);
        bytes.extend_from_slice(&link.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    /// Takes the first frame off what has come; `None` if there is no whole one.
    ///
    /// # Errors
    /// [`NoFrame`].
    pub fn take(come: &mut Vec<u8>) -> Result<Option<Frame>, NoFrame> {
        let signs = come.iter().take_while(|&&byte| byte == LIFE).count();
        come.drain(..signs);
        let Some(&kind) = come.first() else { return Ok(None) };
        if ![OPEN, DATA, TAKEN, END, MESSAGE].contains(&kind) {
            return Err(NoFrame);
        }
        let Some((&[_, a, b, c, d, high, low], content)) = come.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let link = u32::from_be_bytes([a, b, c, d]);
        let length = usize::from(u16::from_be_bytes([high, low]));
        let fits = match kind {
            DATA => (1..=CONTENT_MOST).contains(&length),
            MESSAGE => (1..=CONTENT_MOST).contains(&length) && link == 0,
            TAKEN => length == 4,
            _ => length == 0,
        };
        if !fits {
            return Err(NoFrame);
        }
        let Some(content) = content.get(..length) else { return Ok(None) };
        let frame = match kind {
            OPEN => Frame::Open(link),
            DATA => Frame::Data(link, content.to_vec()),
            MESSAGE => Frame::Message(content.to_vec()),
            TAKEN => {
                let bytes = content.try_into().map_err(|_| NoFrame)?;
                Frame::Taken(link, u32::from_be_bytes(bytes))
            }
            _ => Frame::End(link),
        };
        come.drain(..HEAD + length);
        Ok(Some(frame))
    }
}

/// What a link's bytes come from and go to.
pub trait Stream: AsyncRead + AsyncWrite + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Stream for S {}

/// All links over one pair of pipes. Clones are the same.
#[derive(Clone)]
pub struct Links {
    to_pipe: mpsc::Sender<Vec<u8>>,
    state: Arc<Mutex<State>>,
}

/// The links there are.
#[derive(Default)]
struct State {
    links: HashMap<u32, Link>,
    /// Whether all have been ended, so that no other may begin.
    is_closed: bool,
}

/// One link, as the pipe's reader sees it.
struct Link {
    /// Where its bytes go; gone once the other end has ended them.
    bytes: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Of its window, what the other end may still send.
    may_come: usize,
    /// What this end may still send.
    may_leave: Arc<Semaphore>,
    /// Whether this end has said its last byte.
    has_ended: bool,
}

/// What moves the bytes of a link that has been added.
struct Entered {
    /// What the other end sends.
    inbox: mpsc::UnboundedReceiver<Vec<u8>>,
    /// What this end may send.
    may_leave: Arc<Semaphore>,
}

impl Links {
    /// No link yet, and the work that writes what they say to this pipe. The pipe is closed when
    /// that work is dropped.
    pub fn over<W: AsyncWrite + Unpin>(to: W) -> (Links, impl Future<Output = ()>) {
        let (to_pipe, waiting) = mpsc::channel(WAITING);
        (Links { to_pipe, state: Arc::default() }, write(to, waiting))
    }

    /// Says something that is no frame, before the first frame.
    pub async fn say_first(&self, bytes: &[u8]) {
        for piece in bytes.chunks(CONTENT_MOST) {
            // An end that no longer listens has ended.
            let _ = self.to_pipe.send(piece.to_vec()).await;
        }
    }

    /// Ends a link from here: its connection is closed.
    pub fn end(&self, number: u32) {
        if let Some(link) = self.lock().links.remove(&number) {
            link.may_leave.close();
        }
    }

    /// Shows that this end lives.
    pub async fn beat(&self) {
        // An end that no longer listens has ended.
        let _ = self.to_pipe.send(vec![LIFE]).await;
    }

    /// Makes a link of a connection of the near end's. Beyond [`LINKS_MOST`] it is closed.
    pub async fn begin<S: Stream>(&self, number: u32, stream: S) {
        let Some(entered) = self.enter(number) else { return };
        // No byte of the link may leave before.
        self.say(&Frame::Open(number)).await;
        self.spawn(number, stream, entered);
    }

    /// Takes in what a frame says of links that exist.
    ///
    /// # Errors
    /// [`NoFrame`] if it breaks a rule.
    pub fn handle(&self, frame: Frame) -> Result<(), NoFrame> {
        let links = &mut self.lock().links;
        match frame {
            Frame::Open(_) | Frame::Message(_) => return Err(NoFrame),
            Frame::Data(number, bytes) => {
                let Some(link) = links.get_mut(&number) else { return Ok(()) };
                link.may_come = link.may_come.checked_sub(bytes.len()).ok_or(NoFrame)?;
                if let Some(to) = &link.bytes {
                    // The connection may be gone; then its end is on its way.
                    let _ = to.send(bytes);
                }
            }
            Frame::Taken(number, bytes) => {
                let Some(link) = links.get_mut(&number) else { return Ok(()) };
                let most = WINDOW_MOST - link.may_leave.available_permits().min(WINDOW_MOST);
                link.may_leave.add_permits((bytes as usize).min(most));
            }
            Frame::End(number) => {
                let Some(link) = links.get_mut(&number) else { return Ok(()) };
                link.bytes = None;
                if link.has_ended {
                    links.remove(&number);
                }
            }
        }
        Ok(())
    }

    /// Ends all links; no other begins.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for (_, link) in state.links.drain() {
            link.may_leave.close();
        }
    }

    /// Adds a link and has its bytes moved. Returns the task that moves its bytes into the pipe;
    /// `None` if there are too many links, its number is taken, or all have been ended.
    pub fn add<S: Stream>(&self, number: u32, stream: S) -> Option<JoinHandle<()>> {
        let entered = self.enter(number)?;
        Some(self.spawn(number, stream, entered))
    }

    /// Adds a link whose bytes are not moved yet.
    fn enter(&self, number: u32) -> Option<Entered> {
        let (bytes, inbox) = mpsc::unbounded_channel();
        let may_leave = Arc::new(Semaphore::new(WINDOW));
        let mut state = self.lock();
        let links = &state.links;
        if state.is_closed || links.len() >= LINKS_MOST || links.contains_key(&number) {
            return None;
        }
        let link = Link {
            bytes: Some(bytes),
            may_come: WINDOW,
            may_leave: Arc::clone(&may_leave),
            has_ended: false,
        };
        state.links.insert(number, link);
        Some(Entered { inbox, may_leave })
    }

    /// Has the bytes of a link moved. Returns the task that moves them into the pipe.
    fn spawn<S: Stream>(&self, number: u32, stream: S, entered: Entered) -> JoinHandle<()> {
        let (from, to) = split(stream);
        tokio::spawn(self.clone().receive(number, to, entered.inbox));
        tokio::spawn(self.clone().send(number, from, entered.may_leave))
    }

    /// Makes a link that the other end has begun of a connection to this address, or says that it
    /// does not come about. The other links wait meanwhile.
    pub async fn connect(&self, number: u32, to: Option<SocketAddr>) {
        let stream = match to {
            Some(to) => timeout(CONNECT_SPAN, TcpStream::connect(to)).await.ok(),
            None => None,
        };
        let stream = stream.and_then(Result::ok);
        if stream.and_then(|stream| self.add(number, stream)).is_none() {
            self.say(&Frame::End(number)).await;
        }
    }

    /// Says a frame.
    pub async fn say(&self, frame: &Frame) {
        // An end that no longer listens has ended.
        let _ = self.to_pipe.send(frame.encode()).await;
    }

    /// Moves a connection's bytes into the pipe.
    async fn send<S: Stream>(self, number: u32, mut from: ReadHalf<S>, may_leave: Arc<Semaphore>) {
        let mut chunk = vec![0; CONTENT_MOST];
        while let Ok(first) = may_leave.acquire().await {
            let room = 1 + may_leave.available_permits().min(CONTENT_MOST - 1);
            let Ok(count @ 1..) = from.read(&mut chunk[..room]).await else { break };
            first.forget();
            // Only this task takes of it, so the rest is there.
            let rest = u32::try_from(count - 1).unwrap_or(u32::MAX);
            let Ok(rest) = may_leave.acquire_many(rest).await else { break };
            rest.forget();
            self.say(&Frame::Data(number, chunk[..count].to_vec())).await;
        }
        self.say(&Frame::End(number)).await;
        let links = &mut self.lock().links;
        if let Some(link) = links.get_mut(&number) {
            link.has_ended = true;
            if link.bytes.is_none() {
                links.remove(&number);
            }
        }
    }

    /// Moves what has come over the pipe into a connection.
    async fn receive<S: Stream>(
        self,
        number: u32,
        mut to: WriteHalf<S>,
        mut inbox: mpsc::UnboundedReceiver<Vec<u8>>,
    ) {
        let clock = Clock::start();
        let mut window = Window::new(clock.now());
        while let Some(bytes) = inbox.recv().await {
            if to.write_all(&bytes).await.is_err() {
                // Its other half sees the same, and says that it has ended.
                break;
            }
            let room = bytes.len() + window.take(clock.now(), bytes.len());
            if let Some(link) = self.lock().links.get_mut(&number) {
                link.may_come += room;
            }
            let room = u32::try_from(room).unwrap_or(u32::MAX);
            self.say(&Frame::Taken(number, room)).await;
        }
        // The connection may be gone already, which is an end too.
        let _ = to.shutdown().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of a link the other end may have under way.
struct Window {
    bytes: usize,
    /// Bytes taken in, and since when.
    taken: usize,
    since: Time,
    /// Bytes taken in and allowed since the link began.
    taken_all: u64,
    allowed_all: u64,
    /// The last byte that was allowed at some time: the next one has made the round trip since.
    probe: Option<(u64, Time)>,
    /// The shortest round trip seen.
    trip: Option<Span>,
}

impl Window {
    fn new(now: Time) -> Window {
        let (taken, taken_all, allowed_all) = (0, 0, WINDOW as u64);
        let (since, probe, trip) = (now, None, None);
        Window { bytes: WINDOW, taken, since, taken_all, allowed_all, probe, trip }
    }

    /// So many bytes have been taken in. Returns by how much the window grows.
    fn take(&mut self, now: Time, bytes: usize) -> usize {
        self.measure(now, bytes);
        self.taken += bytes;
        let more = match self.taken < self.bytes {
            true => 0,
            false => self.grow(now),
        };
        self.allowed_all += (bytes + more) as u64;
        more
    }

    /// A window has been taken in.
    fn grow(&mut self, now: Time) -> usize {
        let trip = self.trip.unwrap_or(Span::ZERO).min(TRIP_MOST);
        let is_quick = now.since(self.since) < trip + GROW_SPAN;
        (self.taken, self.since) = (0, now);
        let more = if is_quick { self.bytes.min(WINDOW_MOST - self.bytes) } else { 0 };
        self.bytes += more;
        more
    }

    /// Sees how long it takes from allowing bytes until they are here.
    fn measure(&mut self, now: Time, bytes: usize) {
        self.taken_all += bytes as u64;
        match self.probe {
            Some((last, since)) if self.taken_all > last => {
                let trip = now.since(since);
                self.trip = Some(self.trip.map_or(trip, |shortest| shortest.min(trip)));
                self.probe = None;
            }
            Some(_) => {}
            // What is taken in now gives room behind what has been allowed so far.
            None => self.probe = Some((self.allowed_all, now)),
        }
    }
}

async fn write(mut to: impl AsyncWrite + Unpin, mut waiting: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = waiting.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

/// Makes links of all connections to a listener; of none without one. Never ends.
pub async fn accept_links(listener: Option<TcpListener>, links: &Links) {
    let mut number = 0;
    while let Some(listener) = &listener {
        match listener.accept().await {
            Ok((stream, _)) => {
                links.begin(number, stream).await;
                number += 1;
            }
            // There may be no descriptor left at the moment.
            Err(_) => accepting::rest().await,
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Hands over what comes, until the end.
    async fn read(mut from: impl tokio::io::AsyncRead + Unpin, links: Links) {
        let mut come = Vec::new();
        while let Ok(1..) = from.read_buf(&mut come).await {
            while let Some(frame) = Frame::take(&mut come).unwrap() {
                links.handle(frame).unwrap();
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were_however_they_are_cut_and_signs_of_life_are_skipped() {
        let all = [
            Frame::Open(7),
            Frame::Data(7, vec![b'\n'; 300]),
            Frame::Taken(7, 300),
            Frame::End(7),
            Frame::Message(b"m".to_vec()),
        ];
        let mut stream = vec![LIFE, LIFE];
        for frame in &all {
            stream.extend(frame.encode());
            stream.push(LIFE);
        }
        let (mut come, mut taken) = (Vec::new(), Vec::new());
        for byte in stream {
            come.push(byte);
            taken.extend(Frame::take(&mut come).unwrap());
        }
        assert_eq!(taken, all);
        assert_eq!(Frame::take(&mut come), Ok(None));
    }

    #[test]
    fn what_is_no_frame_is_told_at_once() {
        for bytes in [
            &b"x"[..],
            b"M\0\0\0\x01\0\x01m",
            b"M\0\0\0\0\0\0",
            b"O\0\0\0\x01\0\x01",
            b"D\0\0\0\x01\0\0",
            b"D\0\0\0\x01\xff\xff",
        ] {
            assert_eq!(Frame::take(&mut bytes.to_vec()), Err(NoFrame), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn links_carry_bytes_both_ways_and_one_that_is_not_read_holds_up_no_other() {
        let (near_pipe, far_pipe) = tokio::io::duplex(4_096);
        let (near_from, near_to) = tokio::io::split(near_pipe);
        let (far_from, far_to) = tokio::io::split(far_pipe);
        let ((near, near_writing), (far, far_writing)) =
            (Links::over(near_to), Links::over(far_to));
        tokio::spawn(near_writing);
        tokio::spawn(far_writing);
        tokio::spawn(read(near_from, near.clone()));
        let (mut users, mut servers, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..2 {
            let ((user, near_end), (far_end, server)) = (pair().await, pair().await);
            assert!(far.add(number, far_end).is_some());
            users.push(user);
            servers.push(server);
            waiting.push((number, near_end));
        }
        tokio::spawn(read(far_from, far.clone()));
        for (number, near_end) in waiting {
            assert!(near.add(number, near_end).is_some());
        }
        // Nobody reads at the other end of the first.
        let (mut unread, mut user) = (users.remove(0), users.remove(0));
        tokio::spawn(async move { while unread.write_all(&[0; 9_000]).await.is_ok() {} });
        let mut server = servers.remove(1);
        let sent = vec![7; 3 * WINDOW];
        let all = sent.clone();
        let sending = tokio::spawn(async move {
            user.write_all(&all).await.unwrap();
            user.shutdown().await.unwrap();
            let mut answer = Vec::new();
            user.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut came = Vec::new();
        server.read_to_end(&mut came).await.unwrap();
        assert!(came == sent);
        server.write_all(b"heard").await.unwrap();
        drop(server);
        assert_eq!(sending.await.unwrap(), b"heard");
    }

    #[test]
    fn a_window_grows_while_it_is_taken_in_quickly_and_no_further_than_the_most() {
        let ms = |millis| Time::ZERO + Span::from_millis(millis);
        let mut window = Window::new(ms(0));
        assert_eq!(window.take(ms(10), WINDOW - 1), 0);
        assert_eq!(window.take(ms(199), 1), WINDOW);
        assert_eq!(window.take(ms(210), 1), 0, "the round trip is 200 ms");
        assert_eq!(window.take(ms(599), 2 * WINDOW - 1), 0, "the path carries no more");
        let grown: usize = (600..).map(|now| window.take(ms(now), CONTENT_MOST)).take(9_000).sum();
        assert_eq!((window.bytes, grown), (WINDOW_MOST, WINDOW_MOST - 2 * WINDOW));
    }

    /// Takes in what a sender says that fills each window over a path of this rate and round trip.
    /// Returns the window after 20 s.
    fn window_over(bytes_per_ms: u64, trip_ms: u64) -> usize {
        let ms = |millis| Time::ZERO + Span::from_millis(millis);
        let mut window = Window::new(ms(0));
        let mut allowed: std::collections::VecDeque<_> = [(0, WINDOW as u64)].into();
        let (mut may_leave, mut credit) = (0, 0);
        for now in 0..20_000 {
            while allowed.front().is_some_and(|(at, _)| *at <= now) {
                may_leave += allowed.pop_front().unwrap().1;
            }
            credit = (credit + bytes_per_ms).min(CONTENT_MOST as u64 * 4);
            while credit.min(may_leave) >= CONTENT_MOST as u64 {
                credit -= CONTENT_MOST as u64;
                may_leave -= CONTENT_MOST as u64;
                let more = window.take(ms(now), CONTENT_MOST);
                allowed.push_back((now + trip_ms, (CONTENT_MOST + more) as u64));
            }
        }
        window.bytes
    }

    #[test]
    fn a_window_grows_over_a_long_round_trip_as_well_and_stays_short_on_a_slow_path() {
        for trip_ms in [1, 100, 300, 600] {
            assert_eq!(window_over(50_000, trip_ms), WINDOW_MOST, "{trip_ms} ms");
            // Half a megabyte would wait for four seconds.
            assert_eq!(window_over(125, trip_ms), WINDOW, "{trip_ms} ms");
        }
    }

    #[tokio::test]
    async fn a_peer_that_sends_beyond_its_window_breaks_a_rule() {
        let (links, _writing) = Links::over(tokio::io::sink());
        let (_user, stream) = pair().await;
        assert!(links.add(1, stream).is_some());
        let much = || Frame::Data(1, vec![0; CONTENT_MOST]);
        let kept = (0..).take_while(|_| links.handle(much()).is_ok()).count();
        // What has gone to the connection meanwhile has made room, or made the window grow.
        assert!(kept >= WINDOW / CONTENT_MOST, "{kept}");
        assert_eq!(links.handle(Frame::Open(2)), Err(NoFrame));
    }

    #[tokio::test]
    async fn no_link_begins_once_all_have_been_ended() {
        let (links, _writing) = Links::over(tokio::io::sink());
        let (mut user, stream) = pair().await;
        assert!(links.add(1, stream).is_some());
        links.close();
        assert_eq!(user.read(&mut [0]).await.unwrap(), 0, "its connection is closed");
        let (mut user, stream) = pair().await;
        assert!(links.add(2, stream).is_none());
        assert_eq!(user.read(&mut [0]).await.unwrap(), 0);
    }
}
