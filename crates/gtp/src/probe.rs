//! Probes: what a path does to datagrams at a constant rate.
//!
//! A probe is described first and started once, on the terms of a transfer from the same place. It
//! moves nothing that is kept.

use std::time::Duration;

use gtp_alloc::Rate;
use gtp_net::client::{Udp, Url};
use gtp_net::flows::{Failure, PathUse};
use gtp_net::identity::Fingerprint;
use gtp_net::probe::{FRAME, Outcome, Plan, call};

pub use gtp_net::probe::{FRAME as FRAME_BYTES, Measured, RATE_MOST, SPAN, Seen, Sent, Way};

use crate::get::Asked;
use crate::host::{AcceptNew, Host};

/// Describes a probe of the way to a server and back.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("gtp-doc-probe-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// use std::time::Duration;
///
/// use gtp::probe::Probe;
/// use gtp::{Host, Rate, Server};
///
/// let host = Host::builder().config_dir(&dir).start()?;
/// let server = Server::export(&dir).listen("127.0.0.1:0").public().start(&host).await?;
///
/// let url = format!("gtp://{}/", server.address()).parse()?;
/// let probe = Probe::new(url).fingerprint(server.fingerprint()).up(Rate::from_mbps(1));
/// let measured = probe.span(Duration::from_millis(200)).start(&host).await?;
/// let up = measured.up.expect("it was asked for");
/// assert_eq!(up.seen.loss_ratio(up.sent.frames), 0.0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `start`"]
pub struct Probe {
    url: Url,
    plan: Plan,
    asked: Asked,
}

impl Probe {
    /// Probes the way to the server of `gtp://host[:port]/path`. What this host may read there
    /// decides whether it may probe, and how fast.
    pub fn new(url: Url) -> Probe {
        let plan = Plan {
            up: Rate::ZERO,
            down: Rate::ZERO,
            frame: *FRAME.end(),
            span: Duration::from_secs(10),
        };
        Probe { url, plan, asked: Asked::default() }
    }

    /// This host sends at this rate, all headers included.
    pub fn up(mut self, rate: Rate) -> Probe {
        self.plan.up = rate;
        self
    }

    /// The server sends at this rate, all headers included.
    pub fn down(mut self, rate: Rate) -> Probe {
        self.plan.down = rate;
        self
    }

    /// Bytes that each datagram carries beside its headers, 32 to 1,175.
    pub fn frame(mut self, bytes: u16) -> Probe {
        self.plan.frame = bytes;
        self
    }

    /// How long datagrams count, from a tenth of a second to ten minutes; ten seconds if not said.
    pub fn span(mut self, span: Duration) -> Probe {
        self.plan.span = span;
        self
    }

    /// Believes a server with this key only; may be said several times.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Probe {
        self.asked.trust.pinned.push(fingerprint);
        self
    }

    /// Trusts and remembers a server that was never met.
    pub fn accept_new(mut self) -> Probe {
        self.asked.trust.accept_new = AcceptNew::Yes;
        self
    }

    /// How the sessions use the path, if the server allows it.
    pub fn path(mut self, path: PathUse) -> Probe {
        self.asked.path = path;
        self
    }

    /// Probes, on the current tokio runtime. Dropping the future gives it up.
    ///
    /// # Errors
    /// [`Failure`]; of kind `Usage` if a number is out of its range, or nothing is to be sent.
    pub async fn start(self, host: &Host) -> Result<Measured, Failure> {
        self.start_showing(host, &|_, _| {}).await
    }

    /// As [`Probe::start`]; `show` hears once a second what this host has sent and seen.
    ///
    /// # Errors
    /// As of [`Probe::start`].
    pub async fn start_showing(
        self,
        host: &Host,
        show: &(dyn Fn(Sent, Seen) + Sync),
    ) -> Result<Measured, Failure> {
        // Datagrams that the control connection carries show nothing of the path.
        let terms = Asked { udp: Udp::Only, ..self.asked }.terms(host)?;
        let show = |outcome: Outcome| show(outcome.sent, outcome.seen);
        call(&host.endpoint, &self.url, &terms, self.plan, &show).await
    }
}
