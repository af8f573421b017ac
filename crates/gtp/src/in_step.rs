//! Frames in step: parts of one frame from several sources, or one frame at several sinks.
//!
//! A sink listens for frames and gathers ([`Listening::gather`](crate::Listening::gather)); a
//! source connects to it, or to several
//! ([`Connect::start_in_step`](crate::Connect::start_in_step)), and sends through a [`Sending`].
//! Which frame is released when is the sink's decision, and no source holds the others up.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("gtp-doc-step-{}", std::process::id()));
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use gtp::in_step::{After, Happened, Picture, SinkTerms, SourceTerms, sending};
//! use gtp::{Connect, Delivery, Host, Listen, Span};
//!
//! let host = Host::builder().config_dir(&dir).start()?;
//! let listening = Listen::new().at("127.0.0.1:0").anyone().frames().start(&host).await?;
//! let url = format!("gtp://{}/", listening.address()).parse()?;
//! let deadline = Span::from_millis(500);
//! let terms = SinkTerms { parts: 1, part_bytes: 1_000, every: None, deadline };
//! let mut gathering = listening.gather(&host, terms)?;
//!
//! let picture = Picture::new(0, 1, 1_000).expect("the first part of one");
//! let source = async {
//!     let connect = Connect::new(url).fingerprint(host.fingerprint());
//!     let sink = connect.start_in_step(&host, picture, Delivery::FramesOnce).await?;
//!     let terms = SourceTerms { picture, every: None, after: After::Whole };
//!     let mut sending = sending(&host, vec![sink], terms)?;
//!     sending.begun().await?;
//!     sending.send(b"a picture").map_err(Box::new)?;
//!     sending.finish().await;
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! };
//! let sink = async {
//!     let mut shown = Vec::new();
//!     while let Some(happened) = gathering.next().await? {
//!         if let Happened::Frame { frame, .. } = happened {
//!             shown.push(frame.parts[0].clone().expect("the one part"));
//!         }
//!     }
//!     gathering.close().await;
//!     Ok::<_, Box<dyn std::error::Error>>(shown)
//! };
//! let ((), shown) = tokio::try_join!(source, sink)?;
//! assert_eq!(shown, ["a picture"]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```

use gtp_net::flows::Failure;
use gtp_net::stream::FrameStream;

pub use gtp_net::in_step::{
    After, Gathering, Happened, Left, PART_HEAD, PARTS_MOST, Picture, Released, Seen, Sending,
    Sent, Settled, SinkEnd, SinkTerms, SourceTerms, Tally, Totals,
};

use crate::host::Host;

/// A source that sends to these sinks, at least one.
///
/// # Errors
/// Of kind `Usage`: several sinks, or a time, for frames of several sources, whose one sink keeps
/// the time.
pub fn sending(
    host: &Host,
    sinks: Vec<FrameStream>,
    terms: SourceTerms,
) -> Result<Sending, Failure> {
    Sending::new(sinks, host.endpoint.host().clock(), terms)
}
