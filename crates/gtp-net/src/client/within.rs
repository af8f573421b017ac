//! The bounds of an endpoint that connects on behalf of others, to hosts that they have named.
//!
//! It connects to certain ranges of addresses only. The lookups and the attempts to connect that
//! run at a time are bounded as well, because names whose resolver is silent and addresses that do
//! not answer would otherwise collect threads and descriptors for as long as somebody names more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::control::reach::{ADDRESSES_MAX, dial, resolve};
use crate::control::{ControlError, Obstacle};
use crate::flows::{Failure, FailureKind};
use crate::server::Reach;
use crate::trust::HostAddress;

/// Names that are looked up at a time; each has a thread, which may outlast its question.
const LOOKUPS: usize = 16;

/// Hosts that are connected to at a time, each at eight addresses at most.
const DIALS: usize = 8;

/// Sockets that are open at a time for attempts to connect.
pub(crate) const DIALLING: usize = DIALS * ADDRESSES_MAX;

/// Where, and how much at a time.
pub(super) struct Within {
    ranges: Vec<Reach>,
    lookups: Arc<Semaphore>,
    dials: Arc<Semaphore>,
}

impl Within {
    /// Addresses within these ranges only.
    pub fn ranges(ranges: Vec<Reach>) -> Within {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Within { ranges, lookups: semaphore(LOOKUPS), dials: semaphore(DIALS) }
    }

    /// The addresses of a host that it connects to.
    ///
    /// # Errors
    /// [`FailureKind::Destination`] if there are none, which does not tell a name that nobody has
    /// from one outside the ranges: nobody finds out names here. [`FailureKind::Unreachable`] if
    /// too many names are being looked up, and what [`resolve`] says.
    pub async fn resolve(
        &self,
        host: &HostAddress,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let held = permit(&self.lookups, host, limit).await?;
        let mut addresses = match resolve(host, limit, held).await {
            Ok(addresses) => addresses,
            Err(ControlError::NoSuchHost { .. }) => Vec::new(),
            Err(other) => return Err(other.into()),
        };
        addresses.retain(|&address| self.ranges.iter().any(|range| range.holds(address)));
        if !addresses.is_empty() {
            return Ok(addresses);
        }
        let text = format!("{host} has no address within the ranges of the server's --third-party");
        Err(Failure::new(FailureKind::Destination, text))
    }

    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    /// [`ControlError::Unreachable`].
    pub async fn dial(
        &self,
        host: &HostAddress,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> Result<TcpStream, ControlError> {
        let _held = permit(&self.dials, host, limit).await?;
        dial(host, addresses, limit).await
    }
}

async fn permit(
    of: &Arc<Semaphore>,
    host: &HostAddress,
    limit: Duration,
) -> Result<OwnedSemaphorePermit, ControlError> {
    let permit = timeout(limit, Arc::clone(of).acquire_owned()).await;
    permit.ok().and_then(Result::ok).ok_or_else(|| {
        let why = Obstacle::Other("this server connects to too many others".into());
        ControlError::Unreachable { host: host.clone(), why }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(ranges: &[&str]) -> Within {
        Within::ranges(ranges.iter().map(|range| range.parse().unwrap()).collect())
    }

    async fn refused(of: &Within, host: &str) -> Failure {
        let limit = Duration::from_millis(50);
        of.resolve(&host.parse().unwrap(), limit).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_name_that_nobody_has_is_refused_as_one_outside_the_ranges_is() {
        let of = within(&["192.0.2.0/24"]);
        let address = refused(&of, "127.0.0.1:4810").await;
        assert_eq!(address.kind, FailureKind::Destination, "{address}");
        let name = "no-such-host.invalid:4810";
        let limit = Duration::from_secs(10);
        let unknown = of.resolve(&name.parse().unwrap(), limit).await.unwrap_err();
        // A machine without a resolver cannot tell.
        if unknown.kind == FailureKind::Destination {
            assert_eq!(unknown.text.replace(name, "127.0.0.1:4810"), address.text);
        }
    }

    #[tokio::test]
    async fn no_more_names_are_looked_up_at_a_time_than_there_are_places() {
        let of = within(&["127.0.0.0/8"]);
        let all = Arc::clone(&of.lookups).acquire_many_owned(LOOKUPS as u32).await.unwrap();
        assert_eq!(refused(&of, "localhost:4810").await.kind, FailureKind::Unreachable);
        drop(all);
        let limit = Duration::from_secs(10);
        let found = of.resolve(&"127.0.0.1:4810".parse().unwrap(), limit).await.unwrap();
        assert_eq!(found, ["127.0.0.1:4810".parse().unwrap()]);
        assert_eq!(of.lookups.available_permits(), LOOKUPS);
    }
}
