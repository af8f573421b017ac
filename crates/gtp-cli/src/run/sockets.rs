//! What the kernel's tables say of the TCP sockets in this process's network.
//!
//! The tables are as long as the network has sockets, and the kernel writes them anew for each
//! reader. So a thread of its own reads them, one reading at a time, and all who ask during a
//! reading share the next one, even if it fails. An answer is never older than its asker says: the
//! reading has begun after that time. The tables are read piece by piece and only as far as they
//! are needed. Between two pieces the kernel remembers its place by number, so it passes over a
//! socket if one before it is closed meanwhile. One reading therefore proves that a socket is
//! there, and never that it is not.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;

use gtp_alloc::Time;
use gtp_sys::Clock;
use tokio::sync::Mutex;

/// The kernel's tables of one kind.
#[derive(Debug)]
pub struct Readings<T> {
    clock: Clock,
    read: fn() -> io::Result<T>,
    last: Mutex<Option<Attempt<T>>>,
}

/// What they said.
#[derive(Debug)]
pub struct Reading<T> {
    /// When it was begun: it need not say what has happened since.
    pub begun: Time,
    /// What it says.
    pub said: Arc<T>,
}

/// A reading that succeeded or failed.
#[derive(Debug)]
struct Attempt<T> {
    begun: Time,
    said: Result<Arc<T>, Arc<io::Error>>,
}

impl<T> Attempt<T> {
    fn outcome(&self) -> io::Result<Reading<T>> {
        match &self.said {
            Ok(said) => Ok(Reading { begun: self.begun, said: Arc::clone(said) }),
            Err(error) => Err(io::Error::new(error.kind(), Arc::clone(error))),
        }
    }
}

impl<T: Send + Sync + 'static> Readings<T> {
    fn by(read: fn() -> io::Result<T>) -> Readings<T> {
        Readings { clock: Clock::start(), read, last: Mutex::default() }
    }

    /// A reading that is begun after this is called.
    ///
    /// # Errors
    /// When the kernel's tables cannot be read or understood now, for want of descriptors for
    /// example. Nothing is known then, and nobody may be forgotten for it.
    pub async fn anew(&self) -> io::Result<Reading<T>> {
        let asked = self.clock.now();
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.begun >= asked) {
            return last.outcome();
        }
        let (begun, read) = (self.clock.now(), self.read);
        let read = tokio::task::spawn_blocking(read).await.map_err(io::Error::other);
        let read = read.and_then(|read| read);
        last.insert(Attempt { begun, said: read.map(Arc::new).map_err(Arc::new) }).outcome()
    }
}

/// The sockets that listen, by the kernel's number. Those come first in the tables, and the rest is
/// not read.
pub type Listening = HashSet<u64>;

/// The sockets that are connected or about to be, by the kernel's number.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Connected {
    all: HashSet<u64>,
    asking: HashSet<u64>,
}

/// Readings after which a socket that none of them has named is not there. Where sockets that
/// share a port are opened and closed without end, one reading in eight passes over some other.
const READINGS_MOST: usize = 8;

impl Readings<Listening> {
    /// Readings of the sockets that listen.
    pub fn of_listening() -> Readings<Listening> {
        Readings::by(listening)
    }

    /// The time by which readings say when they were begun.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What listens, with all that listen of those that `known` returns. It is called after the
    /// time at which what is returned was begun, so that whoever becomes known later than that is
    /// not forgotten. What one reading does not name is looked for in others.
    ///
    /// # Errors
    /// As [`anew`](Self::anew).
    pub async fn naming(&self, known: impl FnOnce() -> Vec<u64>) -> io::Result<Reading<Listening>> {
        let begun = self.now();
        let mut missing = known();
        let mut said = Listening::new();
        for _ in 0..READINGS_MOST {
            let reading = self.anew().await?;
            said.extend(reading.said.iter());
            missing.retain(|socket| !reading.said.contains(socket));
            if missing.is_empty() {
                break;
            }
        }
        Ok(Reading { begun, said: Arc::new(said) })
    }
}

impl Readings<Connected> {
    /// Readings of the sockets that are connected.
    pub fn of_connected() -> Readings<Connected> {
        Readings::by(connected)
    }

    /// Whether a socket has asked for a connection that is not made yet. Where one reading does not
    /// name it at all, others are asked.
    ///
    /// # Errors
    /// As [`anew`](Self::anew).
    pub async fn asks(&self, socket: u64) -> io::Result<bool> {
        for _ in 0..READINGS_MOST {
            let said = self.anew().await?.said;
            if said.has(socket) {
                return Ok(said.asks(socket));
            }
        }
        Ok(false)
    }

    /// What is connected, with all that are of those that `known` names.
    ///
    /// # Errors
    /// As [`anew`](Self::anew).
    pub async fn of(&self, mut known: Vec<u64>) -> io::Result<Connected> {
        let mut said = Connected::default();
        for _ in 0..READINGS_MOST {
            let reading = self.anew().await?.said;
            known.retain(|socket| !reading.has(*socket));
            said.all.extend(&reading.all);
            said.asking.extend(&reading.asking);
            if known.is_empty() {
                break;
            }
        }
        Ok(said)
    }
}

impl Connected {
    /// Whether a socket is connected, or about to be.
    pub fn has(&self, socket: u64) -> bool {
        self.all.contains(&socket)
    }

    fn asks(&self, socket: u64) -> bool {
        self.asking.contains(&socket)
    }

    #[cfg(test)]
    pub fn of(all: impl IntoIterator<Item = u64>) -> Connected {
        Connected { all: all.into_iter().collect(), asking: HashSet::new() }
    }
}

fn listening() -> io::Result<Listening> {
    let mut all = Listening::new();
    for table in tables()? {
        add_listening(table, &mut all)?;
    }
    Ok(all)
}

fn connected() -> io::Result<Connected> {
    let mut all = Connected::default();
    for table in tables()? {
        add_connected(table, &mut all)?;
    }
    Ok(all)
}

/// The kernel's tables. A family that it does not have has no sockets.
fn tables() -> io::Result<Vec<BufReader<File>>> {
    let open = |table: &str| match File::open(table) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        file => Some(file.map(|file| BufReader::with_capacity(PIECE, file))),
    };
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].into_iter().filter_map(open).collect()
}

/// Bytes that are read of a table at once; the kernel gives about a page.
const PIECE: usize = 16 << 10;
/// States of the kernel's, as it prints them.
const LISTEN: &str = "0A";
/// Established, asked for, and those of which one end has said all: ours (both FIN_WAIT) or the
/// other (CLOSE_WAIT).
const CONNECTED: [&str; 5] = ["01", "02", "04", "05", "08"];
/// A connection was asked for and not answered yet (SYN_SENT).
const ASKS: &str = "02";
/// The number of all sockets that no program holds any more.
const NOBODY_S: u64 = 0;

fn add_listening(table: impl BufRead, all: &mut Listening) -> io::Result<()> {
    each_row(table, |state, socket| {
        let listens = state == LISTEN;
        if listens && socket != NOBODY_S {
            all.insert(socket);
        }
        listens
    })
}

fn add_connected(table: impl BufRead, all: &mut Connected) -> io::Result<()> {
    each_row(table, |state, socket| {
        if CONNECTED.contains(&state) && socket != NOBODY_S {
            all.all.insert(socket);
            if state == ASKS {
                all.asking.insert(socket);
            }
        }
        true
    })
}

/// Hands on each row's state and socket, as long as `row` wants more.
///
/// # Errors
/// If the table cannot be read, or a row is none: who knows which sockets it hides.
fn each_row(mut table: impl BufRead, mut row: impl FnMut(&str, u64) -> bool) -> io::Result<()> {
    let mut line = String::new();
    table.read_line(&mut line)?; // The heads of the columns.
    loop {
        line.clear();
        if table.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace();
        let (state, socket) = (words.nth(3), words.nth(5).and_then(|socket| socket.parse().ok()));
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "a row of sockets is strange");
        let (state, socket) = state.zip(socket).ok_or_else(strange)?;
        if !row(state, socket) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex as StdMutex};

    use super::*;

    const TABLE: &str = "head\n 0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 77 1\n \
        1: 0100007F:0050 0100007F:0051 01 0:0 0:0 0 0 0 78 1\n \
        2: 0100007F:0050 0100007F:0052 02 0:0 0:0 0 0 0 79 1\n \
        3: 0100007F:0050 0100007F:0053 06 0:0 0:0 0 0 0 0 1\n";

    #[test]
    fn the_kernel_names_sockets_that_listen_and_no_others() {
        let mut open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = |socket: &std::net::TcpListener| rustix::fs::fstat(socket).unwrap().st_ino;
        let first = inode(&open);
        assert!(listening().unwrap().contains(&first));
        open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let live = listening().unwrap();
        assert!(!live.contains(&first) && live.contains(&inode(&open)));
    }

    #[test]
    fn rows_are_taken_by_their_state() {
        let (mut listening, mut connected) = (Listening::new(), Connected::default());
        add_listening(TABLE.as_bytes(), &mut listening).unwrap();
        add_connected(TABLE.as_bytes(), &mut connected).unwrap();
        assert_eq!(listening, HashSet::from([77]));
        assert_eq!(connected.all, HashSet::from([78, 79]));
        assert!(connected.asks(79) && !connected.asks(78) && !connected.has(77));
    }

    #[test]
    fn sockets_that_nobody_holds_match_none() {
        let table = "head\n 0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 0 1\n \
            1: 0100007F:0050 0100007F:0052 02 0:0 0:0 0 0 0 0 1\n";
        let (mut listening, mut connected) = (Listening::new(), Connected::default());
        add_listening(table.as_bytes(), &mut listening).unwrap();
        add_connected(table.as_bytes(), &mut connected).unwrap();
        assert_eq!((listening, connected), Default::default());
    }

    #[test]
    fn a_row_that_is_none_is_no_end_of_the_table() {
        for none in ["nonsense\n", "\n", " 4: 0100007F:0050 0:0 01 0:0 0:0 0 0 0 x 1\n", " 4: 01"] {
            let table = format!("{TABLE}{none}");
            let error = add_connected(table.as_bytes(), &mut Connected::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{none}");
        }
    }

    /// The rest of a table that must not be read.
    struct NoMore;

    impl io::Read for NoMore {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("it is read to its end"))
        }
    }

    #[test]
    fn a_table_is_read_no_further_than_its_last_socket_that_listens() {
        let table = BufReader::new(io::Read::chain(TABLE.as_bytes(), NoMore));
        let mut all = Listening::new();
        add_listening(table, &mut all).unwrap();
        assert_eq!(all, HashSet::from([77]));
    }

    #[test]
    fn sockets_that_are_connected_are_known_until_they_are_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inode = rustix::fs::fstat(&stream).unwrap().st_ino;
        assert!(connected().unwrap().has(inode));
        let (accepted, _) = listener.accept().unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let other = rustix::fs::fstat(&accepted).unwrap().st_ino;
        let both = connected().unwrap();
        assert!(both.has(inode) && both.has(other), "one way is open still");
        drop(stream);
        assert!(!connected().unwrap().has(inode));
    }

    #[tokio::test]
    async fn a_socket_that_some_reading_names_listens_and_one_that_none_names_does_not() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        let readings = Readings::by(|| {
            let nth = READ.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Listening::from_iter([1].into_iter().chain((nth == 3).then_some(7))))
        });
        let named = readings.naming(|| vec![1]).await.unwrap();
        assert_eq!((&*named.said, READ.load(Ordering::SeqCst)), (&HashSet::from([1]), 1));
        let named = readings.naming(|| vec![7, 1]).await.unwrap();
        assert_eq!((&*named.said, READ.load(Ordering::SeqCst)), (&HashSet::from([1, 7]), 3));
        let named = readings.naming(|| vec![7, 1]).await.unwrap();
        assert_eq!(*named.said, HashSet::from([1]));
        assert_eq!(READ.load(Ordering::SeqCst), 3 + READINGS_MOST);
    }

    #[tokio::test]
    async fn a_connection_that_one_reading_passes_over_is_looked_for_in_others() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        let readings = Readings::by(|| {
            let nth = READ.fetch_add(1, Ordering::SeqCst) + 1;
            let named = if nth.is_multiple_of(3) { vec![7] } else { Vec::new() };
            let asking = named.iter().copied().collect();
            Ok(Connected { asking, ..Connected::of(named.into_iter().chain([1])) })
        });
        assert!(readings.asks(7).await.unwrap());
        assert_eq!(READ.load(Ordering::SeqCst), 3);
        assert!(!readings.asks(1).await.unwrap(), "it is named, and does not ask");
        assert_eq!(READ.load(Ordering::SeqCst), 4);
        let all = readings.of(vec![7, 1]).await.unwrap();
        assert!(all.has(7) && all.has(1) && READ.load(Ordering::SeqCst) == 6);
        assert!(!readings.asks(9).await.unwrap());
        assert_eq!(READ.load(Ordering::SeqCst), 6 + READINGS_MOST);
    }

    /// One of several sockets that listen on a port.
    fn shares(port: u16) -> std::net::TcpListener {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
        let shares = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseport(&shares, true).unwrap();
        bind(&shares, &std::net::SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        listen(&shares, 1).unwrap();
        shares.into()
    }

    #[tokio::test]
    async fn of_many_that_share_a_port_none_is_missed_while_others_come_and_go() {
        use std::sync::atomic::AtomicBool;
        let first = shares(0);
        let port = first.local_addr().unwrap().port();
        let open: Vec<_> = (0..60).map(|_| shares(port)).chain([first]).collect();
        let inode = |socket: &std::net::TcpListener| rustix::fs::fstat(socket).unwrap().st_ino;
        let stay: Vec<u64> = open.iter().map(inode).collect();
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let churn = std::thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                drop(shares(port));
            }
        });
        let readings = Readings::of_listening();
        for _ in 0..100 {
            let live = readings.naming(|| stay.clone()).await.unwrap();
            assert!(stay.iter().all(|socket| live.said.contains(socket)));
        }
        over.store(true, Ordering::SeqCst);
        churn.join().unwrap();
    }

    /// What a test's readings do.
    struct Table {
        is_free: StdMutex<bool>,
        freed: Condvar,
        asked: AtomicUsize,
        read: AtomicUsize,
    }

    impl Table {
        const fn new() -> Table {
            let (asked, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
            Table { is_free: StdMutex::new(false), freed: Condvar::new(), asked, read }
        }

        /// Waits until the table is free, and returns how often it was read before.
        fn read(&self) -> usize {
            drop(self.freed.wait_while(self.is_free.lock().unwrap(), |free| !*free).unwrap());
            self.read.fetch_add(1, Ordering::SeqCst)
        }

        /// One asks, and fifty more while it is being read for that one; what each is told.
        async fn asked_by_many(
            &'static self,
            readings: Readings<usize>,
        ) -> Vec<Result<usize, String>> {
            let readings = Arc::new(readings);
            let ask = || {
                let readings = Arc::clone(&readings);
                tokio::spawn(async move {
                    let asked = readings.clock.now();
                    self.asked.fetch_add(1, Ordering::SeqCst);
                    let reading = readings.anew().await.map_err(|error| error.to_string())?;
                    assert!(reading.begun >= asked, "an answer is no older than its question");
                    Ok(*reading.said)
                })
            };
            let mut all = vec![ask()];
            while self.asked.load(Ordering::SeqCst) < 1 {
                tokio::task::yield_now().await;
            }
            all.extend((0..50).map(|_| ask()));
            while self.asked.load(Ordering::SeqCst) < 51 {
                tokio::task::yield_now().await;
            }
            assert!(!all[0].is_finished(), "all else goes on while it is read");
            *self.is_free.lock().unwrap() = true;
            self.freed.notify_all();
            let mut told = Vec::new();
            for one in all {
                told.push(one.await.unwrap());
            }
            told
        }
    }

    /// On a runtime of one thread, where a reading of its own would stop everything.
    #[tokio::test]
    async fn while_a_table_is_read_all_else_goes_on_and_who_asks_meanwhile_shares_the_next() {
        static TABLE: Table = Table::new();
        let told = TABLE.asked_by_many(Readings::by(|| Ok(TABLE.read()))).await;
        assert_eq!(told[0], Ok(0));
        assert!(told[1..].iter().all(|told| *told == Ok(1)), "one reading serves all");
    }

    #[tokio::test]
    async fn a_reading_that_fails_is_shared_as_well() {
        static TABLE: Table = Table::new();
        let fail = || Err(io::Error::other(TABLE.read().to_string()));
        let told = TABLE.asked_by_many(Readings::by(fail)).await;
        assert_eq!(told[0], Err("0".to_owned()));
        assert!(told[1..].iter().all(|told| *told == Err("1".to_owned())), "one serves all");
    }
}
