//! Hosts whose addresses somebody trustworthy has told, so that no name is looked up.
//!
//! Some of the addresses may be other machines' here: every private network has a 10.0.0.1. So an
//! address counts as answering only once the host's key has been proved there; the attempts start a
//! quarter of a second apart and run side by side. A host that answers nowhere at first has a
//! firewall before its port, and another try does not help; one that has answered may be back soon.
//! One that takes the connection and is late with its key is slow, or something else has taken the
//! connection: it is tried again, and by its detour beside.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::silence::slow;
use super::{Endpoint, Terms, Udp, no_path_words};
use crate::control::reach::{STAGGER_SPAN, dial};
use crate::control::{ControlChannel, ControlError, Obstacle};
use crate::flows::{Failure, FailureKind};
use crate::trust::HostAddress;

/// The hosts that were introduced.
#[derive(Debug, Default)]
pub(super) struct Introduced {
    hosts: HashMap<HostAddress, Host>,
}

/// A way to a host that is taken when none of its own addresses answers: a TCP port of this
/// machine behind which something else carries what comes.
#[derive(Clone, Debug)]
pub struct Detour {
    /// The port.
    pub address: SocketAddr,
    /// What carries it, in a sentence for people.
    pub words: String,
    /// Where datagrams are tried meanwhile; at the host's first address if not said.
    pub datagrams: Option<SocketAddr>,
}

#[derive(Debug)]
struct Host {
    addresses: Vec<SocketAddr>,
    detour: Option<Detour>,
    /// Whether the host has answered there, and nowhere else.
    takes_detour: bool,
    /// Whether the host has answered at one of its addresses before.
    has_answered: bool,
}

impl Introduced {
    /// Takes a host in; the first addresses count.
    pub fn add(&mut self, host: HostAddress, mut addresses: Vec<SocketAddr>) {
        addresses.truncate(ADDRESSES_MAX);
        let none = Host { addresses, detour: None, takes_detour: false, has_answered: false };
        self.hosts.insert(host, none);
    }

    /// The addresses of a host that was introduced.
    pub fn addresses(&self, host: &HostAddress) -> Option<Vec<SocketAddr>> {
        self.hosts.get(host).map(|host| host.addresses.clone())
    }

    /// Gives a host that was introduced another way.
    pub fn add_detour(&mut self, host: &HostAddress, detour: Detour) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.detour = Some(detour);
        }
    }

    /// A host's detour, if the host is reached by the detour alone.
    pub fn detour_taken(&self, host: &HostAddress) -> Option<Detour> {
        self.hosts.get(host).filter(|host| host.takes_detour)?.detour.clone()
    }

    fn detour(&self, host: &HostAddress) -> Option<Detour> {
        self.hosts.get(host)?.detour.clone()
    }

    fn take_detour(&mut self, host: &HostAddress) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.takes_detour = true;
        }
    }

    fn has_answered(&self, host: &HostAddress) -> bool {
        self.hosts.get(host).is_some_and(|host| host.has_answered)
    }

    fn note_answer(&mut self, host: &HostAddress) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.has_answered = true;
        }
    }
}

/// Connects to a host at one of its addresses, or by its detour if it has never proved its key at
/// any: nothing may answer there, or something else. Both ends have proved their keys then.
///
/// # Errors
/// As [`reach_directly`]; a failure of the detour's that is not temporary.
pub(super) async fn reach(
    endpoint: &Endpoint,
    host: &HostAddress,
    addresses: Vec<SocketAddr>,
    terms: &Terms,
) -> Result<ControlChannel, Failure> {
    let taken = endpoint.introduced().detour_taken(host);
    if let Some(detour) = taken {
        return reach_by(endpoint, host, &detour, terms).await;
    }
    let failure = match reach_directly(endpoint, host, addresses.clone(), terms).await {
        Err(failure) if terms.udp != Udp::Only => failure,
        reached => return reached,
    };
    let detour = endpoint.introduced().detour(host);
    let Some(detour) = detour.filter(|_| !endpoint.introduced().has_answered(host)) else {
        return Err(failure);
    };
    let by_detour = tried_twice(terms.patience / 2, || reach_by(endpoint, host, &detour, terms));
    let reached = match failure.is_temporary() {
        // The host may have been slow.
        true => match first_of_both(endpoint, host, (addresses, terms), by_detour).await {
            Either::Directly(channel) => return Ok(channel),
            Either::ByDetour(reached) => reached,
        },
        false => by_detour.await,
    };
    match reached {
        Ok(channel) => {
            endpoint.introduced().take_detour(host);
            Ok(channel)
        }
        // What is in the way is told, not what could have led around it.
        Err(of_detour) if of_detour.is_temporary() => Err(failure),
        Err(of_detour) => Err(of_detour),
    }
}

/// By which way a host was reached that has taken a connection and was late with its key.
enum Either {
    Directly(ControlChannel),
    ByDetour(Result<ControlChannel, Failure>),
}

/// Tries both ways at once. One that leads to the host directly comes first, and has a little more
/// time: a host that was held up answers on both at the same moment.
async fn first_of_both(
    endpoint: &Endpoint,
    host: &HostAddress,
    (addresses, terms): (Vec<SocketAddr>, &Terms),
    by_detour: impl Future<Output = Result<ControlChannel, Failure>>,
) -> Either {
    let mut directly = std::pin::pin!(reach_directly(endpoint, host, addresses, terms));
    let mut by_detour = std::pin::pin!(by_detour);
    let reached = tokio::select! {
        biased;
        reached = &mut directly => match reached {
            Ok(channel) => return Either::Directly(channel),
            Err(_) => return Either::ByDetour(by_detour.await),
        },
        reached = &mut by_detour => reached,
    };
    let more = if reached.is_ok() { STAGGER_SPAN } else { FIRST_SPAN };
    match timeout(more, directly).await {
        Ok(Ok(channel)) => Either::Directly(channel),
        Ok(Err(_)) | Err(_) => Either::ByDetour(reached),
    }
}

/// Tries something, and once more if that fails for the time being, all within this time. The
/// failure of the direct way may be final, and then nothing else tries the detour again.
async fn tried_twice<T, F>(span: Duration, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let both = async {
        match attempt().await {
            Err(failure) if failure.is_temporary() => attempt().await,
            ended => ended,
        }
    };
    let silent =
        |_| Err(Failure::new(FailureKind::Temporary, "the detour does not answer in time"));
    timeout(span, both).await.unwrap_or_else(silent)
}

async fn reach_by(
    endpoint: &Endpoint,
    host: &HostAddress,
    detour: &Detour,
    terms: &Terms,
) -> Result<ControlChannel, Failure> {
    // Patience must not end before it is said what else is in the way.
    let limit = FIRST_SPAN.min(terms.patience / 2);
    let reaching = async {
        let stream = dial(host, &[detour.address], limit).await?;
        ControlChannel::client_over(stream, host, endpoint.identity(), &terms.trust).await
    };
    let why = Obstacle::Silence(limit);
    let silent = |_| ControlError::Unreachable { host: host.clone(), why };
    Ok(timeout(limit, reaching).await.map_err(silent)??)
}

/// Connects to a host at one of its addresses; both ends have proved their keys then. An IP version
/// on which no datagram got through before is avoided.
///
/// # Errors
/// [`FailureKind::NoUdpPath`] if it has never answered, and nothing takes a connection;
/// [`FailureKind::Temporary`] if something does and is late with its key; else why the first
/// address does not serve.
async fn reach_directly(
    endpoint: &Endpoint,
    host: &HostAddress,
    addresses: Vec<SocketAddr>,
    terms: &Terms,
) -> Result<ControlChannel, Failure> {
    let addresses = endpoint.families().admit(host, addresses, endpoint.host().clock().now());
    let avoiding = endpoint.families().is_avoiding(host);
    let limit = FIRST_SPAN.min(terms.patience);
    let taken = Arc::new(AtomicBool::new(false));
    let connect = |address: SocketAddr| {
        let (host, identity) = (host.clone(), endpoint.identity().clone());
        let (trust, taken) = (Arc::clone(&terms.trust), Arc::clone(&taken));
        async move {
            let stream = dial(&host, &[address], limit).await?;
            taken.store(true, Ordering::Relaxed);
            ControlChannel::client_over(stream, &host, &identity, &trust).await
        }
    };
    match first_that_serves(&addresses, limit, connect).await {
        Ok(channel) => {
            endpoint.introduced().note_answer(host);
            Ok(channel)
        }
        Err(None | Some(ControlError::TimedOut(_))) if taken.load(Ordering::Relaxed) => {
            let why = format!("it has not proved its key within {:.0} s", limit.as_secs_f64());
            Err(slow(host, &why))
        }
        // The other version answers over TCP, and carries no datagrams.
        Err(None | Some(ControlError::Unreachable { .. })) if avoiding => {
            endpoint.families().clear(host);
            Err(Failure::new(FailureKind::NoUdpPath, no_path_words(host)))
        }
        Err(None | Some(ControlError::Unreachable { .. }))
            if !endpoint.introduced().has_answered(host) =>
        {
            Err(Failure::new(FailureKind::NoUdpPath, no_way_words(host, &addresses)))
        }
        Err(Some(error)) => Err(error.into()),
        Err(None) => {
            let why = Obstacle::Silence(limit);
            Err(ControlError::Unreachable { host: host.clone(), why }.into())
        }
    }
}

/// Why no address serves: what the first one failed by, `None` if it was silent.
type NoneServes = Option<ControlError>;

async fn first_that_serves<T: Send + 'static, F>(
    addresses: &[SocketAddr],
    limit: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, NoneServes>
where
    F: Future<Output = Result<T, ControlError>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.iter().copied().enumerate();
    let mut first = None;
    let racing = async {
        loop {
            if let Some((number, address)) = waiting.next() {
                let attempt = connect(address);
                attempts.spawn(async move { (number, attempt.await) });
            } else if attempts.is_empty() {
                return None;
            }
            // A failure starts the next attempt at once, silence after a while.
            let pause = if waiting.len() > 0 { STAGGER_SPAN } else { limit };
            match timeout(pause, attempts.join_next()).await {
                Ok(Some(Ok((_, Ok(served))))) => return Some(served),
                Ok(Some(Ok((0, Err(error))))) => first = Some(error),
                Ok(Some(Ok((_, Err(_))) | Err(_)) | None) | Err(_) => {}
            }
        }
    };
    match timeout(limit, racing).await {
        Ok(Some(served)) => Ok(served),
        Ok(None) | Err(_) => Err(first),
    }
}

/// That a host's port cannot be reached, in words that name what to open.
fn no_way_words(host: &HostAddress, addresses: &[SocketAddr]) -> String {
    let port = host.port();
    let tried: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let tried = tried.join(", ");
    format!(
        "no way to {host} for the data: port {port} does not answer (tried {tried}). A firewall \
         between may block it; TCP and UDP must be open towards that host"
    )
}

/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Time for all addresses together; a firewall that drops packets is told of by then.
const FIRST_SPAN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn stranger() -> ControlError {
        ControlError::NotGtp("a stranger".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_at_one_address_does_not_keep_the_host_from_being_found_at_another() {
        let both = addresses(&["10.0.0.1:1", "10.0.0.2:1"]);
        let connect = |to: SocketAddr| async move {
            if to.ip().to_string() == "10.0.0.1" { Err(stranger()) } else { Ok(to) }
        };
        assert_eq!(first_that_serves(&both, FIRST_SPAN, connect).await.ok(), Some(both[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_holds_up_the_next_for_a_quarter_of_a_second_only() {
        let began = Instant::now();
        let both = addresses(&["10.0.0.1:1", "10.0.0.2:1"]);
        let connect = |to: SocketAddr| async move {
            if to.ip().to_string() == "10.0.0.1" {
                return std::future::pending().await;
            }
            Ok(to)
        };
        assert_eq!(first_that_serves(&both, FIRST_SPAN, connect).await.ok(), Some(both[1]));
        assert_eq!(began.elapsed(), STAGGER_SPAN);
    }

    #[tokio::test(start_paused = true)]
    async fn if_none_serves_the_first_address_says_why_and_silence_ends_with_the_limit() {
        let both = addresses(&["10.0.0.1:1", "10.0.0.2:1"]);
        let connect = |to: SocketAddr| async move {
            match to.ip().to_string() == "10.0.0.1" {
                true => Err::<(), _>(stranger()),
                false => Err(ControlError::Closed),
            }
        };
        let why = first_that_serves(&both, FIRST_SPAN, connect).await.unwrap_err();
        assert!(matches!(why, Some(ControlError::NotGtp(_))), "{why:?}");
        let began = Instant::now();
        let silent = |_| std::future::pending::<Result<(), ControlError>>();
        assert!(first_that_serves(&both, FIRST_SPAN, silent).await.unwrap_err().is_none());
        assert_eq!(began.elapsed(), FIRST_SPAN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_detour_that_misses_once_is_tried_again_within_its_time_and_no_further() {
        let failed = |kind| Failure::new(kind, "no");
        let ends = async |kind, served_at| {
            let tries = Cell::new(0);
            let attempt = || {
                tries.set(tries.get() + 1);
                let number = tries.get();
                async move { if number == served_at { Ok(()) } else { Err(failed(kind)) } }
            };
            let ended = tried_twice(FIRST_SPAN, attempt).await;
            (ended.map_err(|failure| failure.kind), tries.get())
        };
        let (temporary, final_one) = (FailureKind::Temporary, FailureKind::Authentication);
        assert_eq!(ends(temporary, 2).await, (Ok(()), 2));
        assert_eq!(ends(temporary, 3).await, (Err(temporary), 2));
        assert_eq!(ends(final_one, 2).await, (Err(final_one), 1));
        let began = Instant::now();
        let silent = tried_twice(FIRST_SPAN, std::future::pending::<Result<(), Failure>>).await;
        assert!(silent.unwrap_err().is_temporary());
        assert_eq!(began.elapsed(), FIRST_SPAN);
    }

    #[test]
    fn a_host_is_tried_at_eight_addresses_at_most() {
        let host = HostAddress::new("h", 1).unwrap();
        let mut introduced = Introduced::default();
        assert!(introduced.addresses(&host).is_none());
        introduced.add(host.clone(), addresses(&["10.0.0.1:1"]).repeat(20));
        assert_eq!(introduced.addresses(&host).unwrap().len(), ADDRESSES_MAX);
        assert!(!introduced.has_answered(&host));
        introduced.note_answer(&host);
        assert!(introduced.has_answered(&host));
    }
}
