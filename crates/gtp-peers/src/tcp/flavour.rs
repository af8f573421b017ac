//! TCP by name: which law, which recovery, which receiver.
//!
//! What scenario files, figures and comparisons call one "TCP" is a law and the machinery around
//! it; this is where the names are bound.

use alloc::boxed::Box;

use gtp_alloc::Time;

use super::board::Repeats;
use super::law::Law;
use super::laws::{
    Bbr, Bbr3, Bic, Copa, Cubic, Fast, HTcp, HighSpeed, Ledbat, Reno, Scalable, Vegas,
};
use super::receiver::{Blocks, Receiver, ReceiverConfig};
use super::sender::{Recovery, Sender, SenderConfig};

/// A law with the machinery that it is known with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flavour {
    /// The standard law, recovery ends at the first new acknowledgment.
    Reno,
    /// The standard law with partial acknowledgments.
    NewReno,
    /// The standard law with blocks.
    Sack,
    /// RFC 3649.
    HighSpeed,
    /// Kelly's.
    Scalable,
    /// Binary increase.
    Bic,
    /// H-TCP.
    HTcp,
    /// Vegas.
    Vegas,
    /// FAST.
    Fast,
    /// RFC 9438.
    Cubic,
    /// RFC 9438 with the slow start of RFC 9406.
    CubicHyStart,
    /// BBR, version 1.
    Bbr,
    /// BBR, version 3.
    Bbr3,
    /// LEDBAT++.
    Ledbat,
    /// Copa.
    Copa,
}

impl Flavour {
    /// All of them, in the order of the tables.
    pub const ALL: [Flavour; 15] = [
        Flavour::Reno,
        Flavour::NewReno,
        Flavour::Sack,
        Flavour::HighSpeed,
        Flavour::Scalable,
        Flavour::Bic,
        Flavour::HTcp,
        Flavour::Vegas,
        Flavour::Fast,
        Flavour::Cubic,
        Flavour::CubicHyStart,
        Flavour::Bbr,
        Flavour::Bbr3,
        Flavour::Ledbat,
        Flavour::Copa,
    ];

    /// The name in scenario files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Reno => "reno",
            Flavour::NewReno => "newreno",
            Flavour::Sack => "sack",
            Flavour::HighSpeed => "highspeed",
            Flavour::Scalable => "scalable",
            Flavour::Bic => "bic",
            Flavour::HTcp => "htcp",
            Flavour::Vegas => "vegas",
            Flavour::Fast => "fast",
            Flavour::Cubic => "cubic",
            Flavour::CubicHyStart => "cubic-hystart",
            Flavour::Bbr => "bbr",
            Flavour::Bbr3 => "bbr3",
            Flavour::Ledbat => "ledbat++",
            Flavour::Copa => "copa",
        }
    }

    /// The flavour of this name.
    pub fn from_name(name: &str) -> Option<Flavour> {
        Flavour::ALL.into_iter().find(|flavour| flavour.name() == name)
    }

    /// Its law; `seed` is for laws that draw.
    pub fn law(self, seed: u64) -> Box<dyn Law> {
        match self {
            Flavour::Reno | Flavour::NewReno | Flavour::Sack => Box::new(Reno),
            Flavour::HighSpeed => Box::new(HighSpeed::default()),
            Flavour::Scalable => Box::new(Scalable),
            Flavour::Bic => Box::<Bic>::default(),
            Flavour::HTcp => Box::<HTcp>::default(),
            Flavour::Vegas => Box::<Vegas>::default(),
            Flavour::Fast => Box::<Fast>::default(),
            Flavour::Cubic => Box::<Cubic>::default(),
            Flavour::CubicHyStart => Box::new(Cubic::default().with_hystart()),
            Flavour::Bbr => Box::new(Bbr::new(seed)),
            Flavour::Bbr3 => Box::new(Bbr3::new(seed)),
            Flavour::Ledbat => Box::<Ledbat>::default(),
            Flavour::Copa => Box::<Copa>::default(),
        }
    }

    /// `config` with the recovery that belongs to the flavour. Laws of today also find the loss of
    /// a repeated segment, as their hosts do.
    pub fn adapt(self, config: SenderConfig) -> SenderConfig {
        let (recovery, repeats) = match self {
            Flavour::Reno => (Recovery::Reno, Repeats::Unwatched),
            Flavour::NewReno => (Recovery::NewReno, Repeats::Unwatched),
            Flavour::Sack | Flavour::HighSpeed => (Recovery::Sack, Repeats::Unwatched),
            Flavour::Scalable
            | Flavour::Bic
            | Flavour::HTcp
            | Flavour::Vegas
            | Flavour::Fast
            | Flavour::Cubic
            | Flavour::CubicHyStart
            | Flavour::Bbr
            | Flavour::Bbr3
            | Flavour::Ledbat
            | Flavour::Copa => (Recovery::Sack, Repeats::Watched),
        };
        SenderConfig { recovery, repeats, ..config }
    }

    /// A sender that starts at `now`.
    pub fn sender(self, now: Time, config: SenderConfig, seed: u64) -> Sender {
        Sender::new(now, self.adapt(config), self.law(seed))
    }

    /// The receiver that goes with it.
    pub fn receiver(self, config: ReceiverConfig) -> Receiver {
        Receiver::new(self.adapt_receiver(config))
    }

    /// `config` with the acknowledgments that belong to the flavour.
    pub fn adapt_receiver(self, config: ReceiverConfig) -> ReceiverConfig {
        let blocks = match self.adapt(SenderConfig::default()).recovery {
            Recovery::Reno | Recovery::NewReno => Blocks::Unnamed,
            Recovery::Sack => Blocks::Named,
        };
        ReceiverConfig { blocks, ..config }
    }
}
