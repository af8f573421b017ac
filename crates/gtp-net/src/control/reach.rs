//! From a host's name to a TCP connection, and plain words for what stands in the way.
//!
//! Two steps: a name becomes addresses, and the first address that answers becomes a connection.
//! An address that stays silent does not hold up the others: attempts start a quarter of a second
//! apart and run side by side (RFC 8305). A name that does not exist is told apart from a resolver
//! that fails for the moment, because only the second is worth another try. This module knows
//! nothing of TLS or GTP.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use gtp_sys::address::{canonical, needs_scope};
use rustix::io::Errno;
use tokio::io;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ControlError;
use crate::trust::HostAddress;

/// Time for a host's name and the TCP connection to it, all its addresses together.
pub const CONNECT_SPAN: Duration = Duration::from_secs(10);

/// Addresses of a host that are tried.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// Time between the starts of two attempts ("Connection Attempt Delay" of RFC 8305, section 5).
pub(crate) const STAGGER_SPAN: Duration = Duration::from_millis(250);

/// What stands between this machine and a server. Its text is for people and names no error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The host answers that no program listens on the port.
    Refused,
    /// Nothing came back within this time.
    Silence(Duration),
    /// The resolver failed, and may succeed later.
    Resolver(String),
    /// Another error of the system, by its number.
    System(Errno),
    /// Something else.
    Other(String),
}

impl Obstacle {
    fn of_connect(error: &io::Error) -> Obstacle {
        match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED) => Obstacle::Refused,
            Some(errno) => Obstacle::System(errno),
            None => Obstacle::Other(error.to_string()),
        }
    }

    /// How much it tells: of several addresses' obstacles the most telling one is reported.
    fn rank(&self) -> u8 {
        match self {
            Obstacle::Refused => 4,
            Obstacle::System(Errno::ADDRNOTAVAIL | Errno::NETUNREACH | Errno::AFNOSUPPORT) => 0,
            Obstacle::System(_) => 3,
            Obstacle::Silence(_) => 2,
            Obstacle::Resolver(_) | Obstacle::Other(_) => 1,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Refused => f.write_str(REFUSED),
            Obstacle::Silence(span) => write!(
                f,
                "no answer within {:.0} s; is the host up, and does a firewall let TCP through?",
                span.as_secs_f64().max(1.0)
            ),
            Obstacle::Resolver(why) => write!(f, "its name cannot be looked up now: {why}"),
            Obstacle::System(errno) => f.write_str(&words_of(*errno)),
            Obstacle::Other(why) => f.write_str(why),
        }
    }
}

/// Nothing listens there, or nothing any more.
const REFUSED: &str = "the connection was refused; is `gtp serve` running there? A server that is \
                       being stopped or restarted answers so as well";

/// What an error number of `connect` says about reaching a host.
fn words_of(errno: Errno) -> String {
    let known = match errno {
        Errno::CONNREFUSED => REFUSED,
        Errno::TIMEDOUT => "no answer; is the host up, and does a firewall let TCP through?",
        Errno::HOSTUNREACH | Errno::HOSTDOWN => "no host answers at this address",
        Errno::NETUNREACH | Errno::NETDOWN => "this machine has no route to its network",
        Errno::ACCESS | Errno::PERM => "a firewall or route of this machine forbids it",
        Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE => {
            "the connection was broken off; something on the way may not let it through"
        }
        Errno::NETRESET => "the connection was lost",
        Errno::ADDRNOTAVAIL => "this machine has no address, or no free port, to reach it from",
        Errno::AFNOSUPPORT => "this machine does not speak that version of IP",
        Errno::INVAL => "the address cannot be connected to",
        Errno::MFILE | Errno::NFILE => "too many files are open on this machine",
        Errno::NOBUFS | Errno::NOMEM => "this machine has no memory for a connection",
        Errno::PROTO | Errno::PROTONOSUPPORT => "the network does not carry TCP",
        _ => "",
    };
    match known {
        "" => plain(&io::Error::from(errno)),
        known => known.to_owned(),
    }
}

/// The system's text without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The addresses of a host, the preferred one first, IPv4 and IPv6 by turns. Whoever looks up a
/// name holds `held` until that is over, even if nobody waits for it any more.
///
/// # Errors
/// [`ControlError::NoSuchHost`] if there is no such name, which another try does not change;
/// [`ControlError::Unreachable`] if it cannot be looked up within `limit`.
pub(crate) async fn resolve(
    host: &HostAddress,
    limit: Duration,
    held: impl Send + 'static,
) -> Result<Vec<SocketAddr>, ControlError> {
    let unreachable = |why| ControlError::Unreachable { host: host.clone(), why };
    if let Some(address) = numeric(host) {
        return Ok(vec![address]);
    }
    let asked = host.clone();
    let looking = move || {
        let _held = held;
        look_up(&asked)
    };
    let found = match timeout(limit, apart(looking)).await {
        Ok(Ok(found)) => found,
        Ok(Err(broken)) => return Err(unreachable(Obstacle::Other(broken.to_string()))),
        Err(_) => return Err(unreachable(Obstacle::Resolver("the resolver is silent".into()))),
    };
    let addresses = found.map_err(|error| of_lookup(host, error))?;
    if addresses.is_empty() {
        return Err(no_such_host(host));
    }
    if let Some(SocketAddr::V6(v6)) = addresses.first()
        && needs_scope(*v6.ip())
        && v6.scope_id() == 0
    {
        let why = format!("a link-local address needs its interface: [{}%eth0]", v6.ip());
        return Err(ControlError::NoSuchHost { host: host.clone(), why });
    }
    Ok(by_turns(addresses))
}

/// The address of a host that is named by its number, unless that needs an interface beside it.
fn numeric(host: &HostAddress) -> Option<SocketAddr> {
    let ip: IpAddr = host.host().parse().ok()?;
    let is_whole = match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !needs_scope(v6),
    };
    is_whole.then(|| canonical(SocketAddr::new(ip, host.port())))
}

fn look_up(host: &HostAddress) -> Result<Vec<SocketAddr>, LookupError> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let mut addresses = Vec::new();
    for found in getaddrinfo(Some(host.host()), None, Some(hints))?.flatten() {
        let mut address = canonical(found.sockaddr);
        address.set_port(host.port());
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn of_lookup(host: &HostAddress, error: LookupError) -> ControlError {
    let why = match error.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => return no_such_host(host),
        LookupErrorKind::Again => "no name server answers".to_owned(),
        _ => {
            let text = plain(&io::Error::from(error));
            text.rsplit(": ").next().unwrap_or_default().to_owned()
        }
    };
    ControlError::Unreachable { host: host.clone(), why: Obstacle::Resolver(why) }
}

/// Does work that blocks on a thread that nobody waits for: a resolver that is silent for minutes
/// would otherwise hold up the end of the runtime, and so of the process.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("gtp-resolver".into()).spawn(move || {
        // Whoever asked may have given up.
        let _ = tell.send(work());
    })?;
    told.await.map_err(|_| io::Error::other("the resolver broke off"))
}

fn no_such_host(host: &HostAddress) -> ControlError {
    let is_global = |address: &str| {
        address.parse::<Ipv6Addr>().is_ok_and(|address| !address.is_unicast_link_local())
    };
    let why = match host.host().split_once('%') {
        Some((address, link)) if is_global(address) => {
            format!("only link-local addresses (fe80::…) take an interface: leave out %{link}")
        }
        Some((_, link)) => format!("this machine has no network interface {link}"),
        None => "no host has this name; is it spelt right?".to_owned(),
    };
    ControlError::NoSuchHost { host: host.clone(), why }
}

/// The families by turns, each in its order, beginning with the first address's.
fn by_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut mixed = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            mixed.truncate(ADDRESSES_MAX);
            return mixed;
        }
        mixed.extend(pair.into_iter().flatten());
    }
}

/// Connects to the first of a host's addresses that answers.
///
/// # Errors
/// [`ControlError::Unreachable`].
pub(crate) async fn dial(
    host: &HostAddress,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<TcpStream, ControlError> {
    let unreachable = |why| ControlError::Unreachable { host: host.clone(), why };
    let stream =
        first_to_answer(addresses, limit, TcpStream::connect).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(|e| unreachable(Obstacle::of_connect(&e)))?;
    Ok(stream)
}

async fn first_to_answer<T: Send + 'static, F>(
    addresses: &[SocketAddr],
    limit: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, Obstacle>
where
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.iter().copied();
    let mut worst: Option<Obstacle> = None;
    let racing = async {
        loop {
            if let Some(address) = waiting.next() {
                attempts.spawn(connect(address));
            } else if attempts.is_empty() {
                return None;
            }
            // A failure starts the next attempt at once, silence after a while.
            let pause = if waiting.len() > 0 { STAGGER_SPAN } else { limit };
            match timeout(pause, attempts.join_next()).await {
                Ok(Some(Ok(Ok(stream)))) => return Some(stream),
                Ok(Some(Ok(Err(error)))) => {
                    let obstacle = Obstacle::of_connect(&error);
                    if worst.as_ref().is_none_or(|known| known.rank() < obstacle.rank()) {
                        worst = Some(obstacle);
                    }
                }
                Ok(Some(Err(_)) | None) | Err(_) => {}
            }
        }
    };
    let answered = timeout(limit, racing).await;
    match answered {
        Ok(Some(stream)) => Ok(stream),
        Ok(None) => Err(worst.unwrap_or(Obstacle::Other("the name has no address".into()))),
        Err(_) => {
            let silence = Obstacle::Silence(limit);
            Err(worst.filter(|known| known.rank() > silence.rank()).unwrap_or(silence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn host(name: &str) -> HostAddress {
        HostAddress::new(name, 4810).unwrap()
    }

    #[test]
    fn no_obstacle_is_told_by_its_number() {
        for code in 1..134 {
            let error = io::Error::from_raw_os_error(code);
            let text = Obstacle::of_connect(&error).to_string();
            assert!(!text.is_empty() && !text.contains("os error"), "{code}: {text}");
        }
        let refused = Obstacle::of_connect(&io::Error::from(Errno::CONNREFUSED)).to_string();
        assert!(refused.contains("is `gtp serve` running there?"), "{refused}");
    }

    #[test]
    fn a_silent_resolver_does_not_hold_up_the_end_of_whoever_asked() {
        let (end, silence) = std::sync::mpsc::channel::<()>();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let asking =
            async { timeout(Duration::from_millis(1), apart(move || silence.recv())).await };
        assert!(runtime.block_on(asking).is_err(), "it is given up");
        // This waits for all that runs on the runtime's own threads.
        drop(runtime);
        assert!(end.send(()).is_ok(), "the resolver was still silent");
    }

    #[test]
    fn a_name_that_does_not_exist_is_permanent_and_a_silent_resolver_is_not() {
        let told = |code| of_lookup(&host("h.example"), LookupError::new(code));
        for permanent in [libc::EAI_NONAME, libc::EAI_NODATA] {
            let error = told(permanent);
            assert!(matches!(error, ControlError::NoSuchHost { .. }) && !error.is_temporary());
        }
        for passing in [libc::EAI_AGAIN, libc::EAI_FAIL, libc::EAI_SYSTEM, libc::EAI_MEMORY] {
            let error = told(passing);
            assert!(error.is_temporary() && !error.to_string().contains("os error"), "{error}");
        }
    }

    #[test]
    fn both_families_are_tried_by_turns() {
        let mixed = by_turns(addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]));
        assert_eq!(mixed, addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_holds_up_the_next_for_a_quarter_of_a_second_only() {
        let began = Instant::now();
        let both = addresses(&["[::1]:1", "1.1.1.1:1"]);
        let connect = |to: SocketAddr| async move {
            match to.is_ipv6() {
                true => std::future::pending().await,
                false => Ok(to),
            }
        };
        let answered = first_to_answer(&both, CONNECT_SPAN, connect).await;
        assert_eq!((answered, began.elapsed()), (Ok(both[1]), STAGGER_SPAN));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_with_the_limit_and_a_refusal_at_once() {
        let began = Instant::now();
        let one = addresses(&["1.1.1.1:1"]);
        let limit = Duration::from_secs(3);
        let silent = |_| std::future::pending::<io::Result<()>>();
        let ended = first_to_answer(&one, limit, silent).await;
        assert_eq!((ended, began.elapsed()), (Err(Obstacle::Silence(limit)), limit));
        let refusing = |_| std::future::ready(Err::<(), _>(Errno::CONNREFUSED.into()));
        let ended = first_to_answer(&one, limit, refusing).await;
        assert_eq!((ended, began.elapsed()), (Err(Obstacle::Refused), limit));
    }

    #[tokio::test]
    async fn a_link_local_address_without_its_interface_says_what_is_missing() {
        let refused = resolve(&host("fe80::1"), CONNECT_SPAN, ()).await.unwrap_err();
        assert!(!refused.is_temporary() && refused.to_string().contains("needs its interface"));
        let refused = resolve(&host("fe80::1%no-such-link"), CONNECT_SPAN, ()).await.unwrap_err();
        assert!(refused.to_string().contains("no network interface no-such-link"), "{refused}");
    }

    #[tokio::test]
    async fn the_scope_of_an_address_reaches_the_socket() {
        let found = resolve(&host("fe80::1%lo"), CONNECT_SPAN, ()).await.unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(v6)] if v6.scope_id() != 0), "{found:?}");
    }
}
