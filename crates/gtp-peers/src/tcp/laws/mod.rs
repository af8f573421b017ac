//! The laws of the window, one file each.
//!
//! Each reads beside its paper and is a function from acknowledgments and losses to a window; which
//! recovery goes with which law is bound in `flavour.rs`.

mod bbr;
mod bbr3;
mod bic;
mod copa;
mod cubic;
mod extreme;
mod fast;
pub mod highspeed;
mod htcp;
mod hystart;
pub mod ledbat;
mod prior;
mod reno;
mod scalable;
mod vegas;
mod whole;

pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use bic::Bic;
pub use copa::Copa;
pub use cubic::Cubic;
pub use fast::Fast;
pub use highspeed::HighSpeed;
pub use htcp::HTcp;
pub use ledbat::Ledbat;
pub use reno::Reno;
pub use scalable::Scalable;
pub use vegas::Vegas;
pub use whole::Leftover;
