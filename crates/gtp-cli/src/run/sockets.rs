//! What the kernel's tables say of the TCP sockets in this process's network.
//!
//! The tables are as long as the network has sockets, and the kernel writes them anew for each
//! reader. So a thread of its own reads them, one reading at a time, and all who ask during a
//! reading share the next one. An answer is never older than its asker says: the reading has begun
//! after that time. The tables are read piece by piece and only as far as they are needed.

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
    last: Mutex<Option<Reading<T>>>,
}

/// What they said.
#[derive(Debug)]
pub struct Reading<T> {
    /// When it was begun: it need not say what has happened since.
    pub begun: Time,
    /// What it says.
    pub said: Arc<T>,
}

impl<T> Clone for Reading<T> {
    fn clone(&self) -> Reading<T> {
        Reading { begun: self.begun, said: Arc::clone(&self.said) }
    }
}

impl<T: Send + Sync + 'static> Readings<T> {
    fn by(read: fn() -> io::Result<T>) -> Readings<T> {
        Readings { clock: Clock::start(), read, last: Mutex::default() }
    }

    /// A reading that is begun after this is called.
    ///
    /// # Errors
    /// When the kernel's tables cannot be read now, for want of descriptors for example. Nothing is
    /// known then, and nobody may be forgotten for it.
    pub async fn anew(&self) -> io::Result<Reading<T>> {
        let asked = self.clock.now();
        let mut last = self.last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.begun >= asked) {
            return Ok(last.clone());
        }
        let (begun, read) = (self.clock.now(), self.read);
        let said = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        Ok(last.insert(Reading { begun, said: Arc::new(said) }).clone())
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

impl Readings<Listening> {
    /// Readings of the sockets that listen.
    pub fn of_listening() -> Readings<Listening> {
        Readings::by(listening)
    }
}

impl Readings<Connected> {
    /// Readings of the sockets that are connected.
    pub fn of_connected() -> Readings<Connected> {
        Readings::by(connected)
    }
}

impl Connected {
    /// Whether a socket is connected, or about to be.
    pub fn has(&self, socket: u64) -> bool {
        self.all.contains(&socket)
    }

    /// Whether a socket has asked for a connection that is not made yet.
    pub fn asks(&self, socket: u64) -> bool {
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
/// other (CLOSE_WAIT). What no program holds any more has no number.
const CONNECTED: [&str; 5] = ["01", "02", "04", "05", "08"];
/// A connection was asked for and not answered yet (SYN_SENT).
const ASKS: &str = "02";

fn add_listening(table: impl BufRead, all: &mut Listening) -> io::Result<()> {
    each_row(table, |state, socket| {
        let listens = state == LISTEN;
        if listens {
            all.insert(socket);
        }
        listens
    })
}

fn add_connected(table: impl BufRead, all: &mut Connected) -> io::Result<()> {
    each_row(table, |state, socket| {
        if CONNECTED.contains(&state) && socket != 0 {
            all.all.insert(socket);
        }
        if state == ASKS {
            all.asking.insert(socket);
        }
        true
    })
}

/// Hands on each row's state and socket, as long as `row` wants more and rows can be understood.
fn each_row(mut table: impl BufRead, mut row: impl FnMut(&str, u64) -> bool) -> io::Result<()> {
    let mut line = String::new();
    table.read_line(&mut line)?; // The heads of the columns.
    loop {
        line.clear();
        if table.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(state), Some(socket)) = (words.nth(3), words.nth(5)) else { return Ok(()) };
        if !row(state, socket.parse().unwrap_or(0)) {
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
        3: 0100007F:0050 0100007F:0053 06 0:0 0:0 0 0 0 0 1\n 4: nonsense\n";

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

    /// Counts readings, and waits until [`GO`] is true.
    fn slow() -> io::Result<usize> {
        drop(GATE.wait_while(GO.lock().unwrap(), |go| !*go).unwrap());
        Ok(READ.fetch_add(1, Ordering::SeqCst))
    }

    static GO: StdMutex<bool> = StdMutex::new(false);
    static GATE: Condvar = Condvar::new();
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static READ: AtomicUsize = AtomicUsize::new(0);

    /// On a runtime of one thread, where a reading of its own would stop everything.
    #[tokio::test]
    async fn while_a_table_is_read_all_else_goes_on_and_who_asks_meanwhile_shares_the_next() {
        let readings = Arc::new(Readings::by(slow));
        let ask = || {
            let readings = Arc::clone(&readings);
            tokio::spawn(async move {
                let asked = readings.clock.now();
                ASKED.fetch_add(1, Ordering::SeqCst);
                let reading = readings.anew().await.unwrap();
                assert!(reading.begun >= asked, "an answer is no older than its question");
                *reading.said
            })
        };
        let first = ask();
        while ASKED.load(Ordering::SeqCst) < 1 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (0..50).map(|_| ask()).collect();
        while ASKED.load(Ordering::SeqCst) < 51 {
            tokio::task::yield_now().await;
        }
        assert!(!first.is_finished(), "this test goes on while it is read");
        *GO.lock().unwrap() = true;
        GATE.notify_all();
        assert_eq!(first.await.unwrap(), 0);
        for other in others {
            assert_eq!(other.await.unwrap(), 1, "one reading serves all");
        }
    }
}
