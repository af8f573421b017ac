//! What lines of the list of keys give a key of a server's rates.
//!
//! `rate=` is a limit for all sessions of the key together, `weight=` its weight among clients, and
//! `guarantee=` what it is served first. Here texts become values and values texts; of several
//! lines the least rate, the greatest weight and the greatest guarantee count, as of several
//! groups. What groups give beside that, and whose sessions these are, is not known here.

use gtp_alloc::Rate;
use gtp_proto::limits::WEIGHT_LOW;
use gtp_text::quantity;

use super::LineError;

/// What a key has of a server's rates by its lines, in each direction; `None` is what they leave
/// open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeyShare {
    /// What it may send, and receive, with all its sessions together.
    pub rate: Option<Rate>,
    /// Its weight among all clients.
    pub weight: Option<f64>,
    /// What it is served first, as far as it wants it.
    pub guarantee: Option<Rate>,
}

/// What is to become of one of these options on a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Setting<T> {
    /// It stays as it is.
    #[default]
    Kept,
    /// It is taken off the line.
    Lifted,
    /// It is this from now on.
    Now(T),
}

/// What a key's line is to say of the server's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareChange {
    /// What the key may send, and receive.
    pub rate: Setting<Rate>,
    /// Its weight among all clients.
    pub weight: Setting<f64>,
    /// What it is served first.
    pub guarantee: Setting<Rate>,
}

/// Reads a weight among clients: a number from 0.001 to 1000, or `low`.
///
/// # Errors
/// Why it is none, in words.
pub fn read_weight(text: &str) -> Result<f64, &'static str> {
    if text == "low" {
        return Ok(WEIGHT_LOW);
    }
    let weight: f64 = text.parse().map_err(|_| "a weight is a number, or `low`")?;
    match (0.001..=1000.0).contains(&weight) {
        true => Ok(weight),
        false => Err("a weight is from 0.001 to 1000"),
    }
}

impl KeyShare {
    /// Whether all is left open.
    pub fn is_none(self) -> bool {
        self == KeyShare::default()
    }

    /// What two lines of one key give it together.
    pub(super) fn and(self, other: KeyShare) -> KeyShare {
        KeyShare {
            rate: least(self.rate, other.rate),
            weight: [self.weight, other.weight].into_iter().flatten().reduce(f64::max),
            guarantee: self.guarantee.max(other.guarantee),
        }
    }

    /// What the key is promised: no more than it may have.
    pub(super) fn promised(self) -> Rate {
        self.guarantee.map_or(Rate::ZERO, |least| least.min(self.rate.unwrap_or(Rate::UNLIMITED)))
    }

    /// Takes an option of a line. Returns `None` if it is none of these.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Option<Result<(), LineError>> {
        let taken = match name {
            "rate" => once(&mut self.rate, read_rate(value).ok_or(LineError::Rate)),
            "guarantee" => once(&mut self.guarantee, read_rate(value).ok_or(LineError::Rate)),
            "weight" => once(&mut self.weight, read_weight(value).map_err(|_| LineError::Weight)),
            _ => return None,
        };
        Some(taken)
    }

    /// Looks whether what one line says fits together.
    pub(super) fn check(self) -> Result<(), LineError> {
        match (self.rate, self.guarantee) {
            (Some(most), Some(least)) if least > most => Err(LineError::Guarantee),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }
}

impl ShareChange {
    /// Takes off the line whatever this says of it.
    pub(super) fn lifted(self) -> ShareChange {
        ShareChange {
            rate: self.rate.lifted(),
            weight: self.weight.lifted(),
            guarantee: self.guarantee.lifted(),
        }
    }

    /// The options' names, and what stands behind each from now on; empty if it is taken off, and
    /// `None` if it stays.
    pub(super) fn options(self) -> [(&'static str, Option<String>); 3] {
        let rate = |rate: Rate| quantity::write_rate(rate.as_bps());
        [
            ("rate", self.rate.text(rate)),
            ("weight", self.weight.text(|weight| weight.to_string())),
            ("guarantee", self.guarantee.text(rate)),
        ]
    }
}

impl<T> Setting<T> {
    fn lifted(self) -> Setting<T> {
        match self {
            Setting::Kept => Setting::Kept,
            Setting::Lifted | Setting::Now(_) => Setting::Lifted,
        }
    }

    fn text(self, say: impl Fn(T) -> String) -> Option<String> {
        match self {
            Setting::Kept => None,
            Setting::Lifted => Some(String::new()),
            Setting::Now(value) => Some(say(value)),
        }
    }
}

/// Of what several lines say behind one of these options, what counts, as its writer wrote it;
/// `None` if it is another option.
pub(super) fn that_counts<'v>(name: &str, values: &[&'v str]) -> Option<&'v str> {
    let rate = |value: &&str| read_rate(value).unwrap_or(Rate::UNLIMITED);
    let weight = |value: &&str| read_weight(value).unwrap_or_default();
    let values = values.iter().copied();
    match name {
        "rate" => values.min_by_key(rate),
        "guarantee" => values.max_by_key(rate),
        "weight" => values.max_by(|a, b| weight(a).total_cmp(&weight(b))),
        _ => None,
    }
}

fn read_rate(text: &str) -> Option<Rate> {
    quantity::read_rate(text).ok().map(Rate::from_bps)
}

fn once<T>(place: &mut Option<T>, value: Result<T, LineError>) -> Result<(), LineError> {
    match place {
        Some(_) => Err(LineError::Option),
        None => {
            *place = Some(value?);
            Ok(())
        }
    }
}

fn least(one: Option<Rate>, other: Option<Rate>) -> Option<Rate> {
    [one, other].into_iter().flatten().min()
}
