//! TCP: one engine, and the laws of its window.
//!
//! The [`Sender`] and the [`Receiver`] keep the standard's mechanisms; a [`Law`] decides how large
//! the window is. A law is one file under `laws/` that reads beside its paper. A law that talks
//! with routers stamps a [`Note`](crate::Note) on what leaves and reads its echo.

mod bits;
mod board;
mod flavour;
mod flight;
mod law;
pub mod laws;
mod parallel;
mod proxy;
mod receiver;
mod segment;
mod sender;
mod supply;
mod timer;

pub use board::Repeats;
pub use flavour::Flavour;
pub use law::{AckView, Delivery, Fullness, Law, Leaving, LossView, LostView, Phase, Window};
pub use parallel::{CONNECTIONS_MAX, ParallelReceiver, ParallelSender};
pub use proxy::{Direction, Proxy, Side, direction};
pub use receiver::{AckDelay, Blocks, Receiver, ReceiverConfig};
pub use segment::{Ack, HEADER, Place, Segment, Tcp};
pub use sender::{Counting, Opening, Recovery, Sender, SenderConfig, Timing};
