//! Names for hosts: `[host.NAME]` in the configuration file.
//!
//! A name stands for an address wherever a command takes a server's address or a login. Names are
//! resolved once, right after the command line was read ([`named`]), so nothing behind that knows
//! of them. Here is what the file says of a host.

mod named;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use gtp::{Rate, RouterSpec, Url};

use crate::cp::operand::{Operand, Remote};
use crate::{routers, words};

pub use named::Mirrors;

/// All hosts that the configuration file names.
#[derive(Clone, Debug, Default)]
pub struct Hosts(BTreeMap<String, Known>);

/// What the file says of one host.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    address: Address,
    /// Where other servers have what this one has.
    mirrors: Vec<Url>,
    /// This machine's capacities for transfers with the host.
    capacity: Option<Rate>,
    weight: Option<f64>,
    /// Routers that transfers with the host cross.
    routers: Vec<RouterSpec>,
}

/// Where a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    /// Who logs in; the far end's business if not said.
    user: Option<String>,
    /// A name or an address, IPv6 without brackets.
    host: String,
    /// Where a server of gtp listens there.
    port: Option<u16>,
}

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The table's name; empty if there is more wrong than one table.
    pub name: String,
    /// The key; empty if it is the table itself.
    pub key: String,
    /// Why, in words that follow the key.
    pub why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bad { name, key, why } = self;
        match (name.is_empty(), key.is_empty()) {
            (true, _) => write!(f, "`host`: {why}"),
            (false, true) => write!(f, "[host.{name}]: {why}"),
            (false, false) => write!(f, "[host.{name}] `{key}`: {why}"),
        }
    }
}

impl Hosts {
    /// Reads the table `host` of the configuration file.
    ///
    /// # Errors
    /// [`Bad`], with the first key that cannot be used.
    pub fn of(table: &toml::Value) -> Result<Hosts, Bad> {
        let bad =
            |name: &str, why: &str| Bad { name: name.into(), key: String::new(), why: why.into() };
        let all = table.as_table().ok_or_else(|| bad("", "write hosts as [host.NAME]"))?;
        let mut hosts = BTreeMap::new();
        for (name, says) in all {
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
            if !name.bytes().all(fits) || name.starts_with('-') || name.is_empty() {
                return Err(bad(name, "a name has small letters, digits, dots, - and _"));
            }
            let says = says.as_table().ok_or_else(|| bad(name, "write hosts as [host.NAME]"))?;
            hosts.insert(name.clone(), Known::of(name, says)?);
        }
        Ok(Hosts(hosts))
    }

    /// The names, in the alphabet's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What the file says, key by key, for people.
    pub fn settings(&self) -> Vec<(String, String)> {
        let of_host = |(name, known): (&String, &Known)| {
            let mirrors: Vec<String> = known.mirrors.iter().map(Url::encoded).collect();
            let routers: Vec<String> = known.routers.iter().map(routers::say).collect();
            let all = [
                ("address", Some(known.address.to_string())),
                ("mirrors", (!mirrors.is_empty()).then(|| mirrors.join(","))),
                ("capacity", known.capacity.map(words::say_rate)),
                ("weight", known.weight.map(|weight| weight.to_string())),
                ("router", (!routers.is_empty()).then(|| routers.join(";"))),
            ];
            let said = all.into_iter().filter_map(|(key, value)| Some((key, value?)));
            said.map(|(key, value)| (format!("host.{name}.{key}"), value)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_host).collect()
    }
}

impl Known {
    fn of(name: &str, says: &toml::Table) -> Result<Known, Bad> {
        let mut known = Known {
            address: Address { user: None, host: name.to_owned(), port: None },
            mirrors: Vec::new(),
            capacity: None,
            weight: None,
            routers: Vec::new(),
        };
        for (key, value) in says {
            known.take(key, value).map_err(|why| Bad {
                name: name.into(),
                key: key.clone(),
                why,
            })?;
        }
        Ok(known)
    }

    fn take(&mut self, key: &str, value: &toml::Value) -> Result<(), String> {
        match key {
            "address" => self.address = Address::of(text(value)?)?,
            "mirrors" => self.mirrors = mirrors(value)?,
            "capacity" => self.capacity = Some(words::rate(text(value)?)?),
            "weight" => {
                let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.weight = Some(words::weight(&word)?);
            }
            "router" => self.routers = routers_of(value)?,
            _ => {
                return Err("no setting of a host; there are address, mirrors, capacity, weight \
                            and router"
                    .into());
            }
        }
        Ok(())
    }
}

fn text(value: &toml::Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "needs a text between quotes".into())
}

/// One router, or a list of them.
fn routers_of(value: &toml::Value) -> Result<Vec<RouterSpec>, String> {
    match value.as_array() {
        Some(all) => all.iter().map(|value| routers::router(text(value)?)).collect(),
        None => text(value)?.split(';').map(routers::router).collect(),
    }
}

fn mirrors(value: &toml::Value) -> Result<Vec<Url>, String> {
    let all = value.as_array().ok_or("needs a list, as in [\"gtp://other/copies\"]")?;
    let url = |value| text(value)?.parse::<Url>().map_err(|bad| bad.to_string());
    all.iter().map(url).collect()
}

impl Address {
    /// Reads `[user@]host[:port]`, IPv6 in brackets.
    fn of(text: &str) -> Result<Address, String> {
        let expected = || format!("{text:?} is no address; expected [user@]host[:port]");
        let (head, port) = match text.rsplit_once(':') {
            // A colon within brackets is part of the host.
            Some((_, port)) if port.ends_with(']') => (text, None),
            Some((head, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (head, Some(port.ok_or_else(expected)?))
            }
            None => (text, None),
        };
        // Both kinds of reader must take it.
        let word = format!("{head}:x");
        let Ok(Operand::Remote(Remote { login, .. })) = Operand::of(OsStr::new(&word)) else {
            return Err(expected());
        };
        let host = login.host().to_owned();
        if login.to_string() != head || Url::at(&host, gtp::DEFAULT_PORT, "").is_err() {
            return Err(expected());
        }
        let user = head.rsplit_once('@').map(|(user, _)| user.to_owned());
        Ok(Address { user, host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<Hosts, Bad> {
        let table: toml::Table = text.parse().unwrap();
        Hosts::of(&table["host"])
    }

    #[test]
    fn a_host_has_an_address_mirrors_a_capacity_and_a_weight_or_stands_for_itself() {
        let all = hosts(
            "[host.lab]\naddress = \"me@login.example:4900\"\nmirrors = [\"gtp://c/copies\"]\n\
             capacity = \"600Mbit\"\nweight = 2\n[host.v6]\naddress = \"[2001:db8::1]\"\n\
             [host.far]\nweight = \"low\"\n",
        )
        .unwrap();
        let says = all.settings();
        let value = |key: &str| says.iter().find(|(name, _)| name == key).map(|(_, v)| &**v);
        assert_eq!(value("host.lab.address"), Some("me@login.example:4900"));
        assert_eq!(value("host.lab.mirrors"), Some("gtp://c:4810/copies"));
        assert_eq!(value("host.lab.capacity"), Some("600 Mbit/s"));
        assert_eq!(value("host.lab.weight"), Some("2"));
        assert_eq!(value("host.v6.address"), Some("[2001:db8::1]"));
        assert_eq!((value("host.far.address"), value("host.far.capacity")), (Some("far"), None));
        assert_eq!(all.names().collect::<Vec<_>>(), ["far", "lab", "v6"]);
    }

    #[test]
    fn what_no_host_has_is_refused_by_table_and_key() {
        for (text, name, key) in [
            ("address = 1", "lab", "address"),
            ("address = \"a b\"", "lab", "address"),
            ("address = \"-oProxyCommand=x\"", "lab", "address"),
            ("address = \"h:0\"", "lab", "address"),
            ("address = \"2001:db8::1\"", "lab", "address"),
            ("mirrors = \"gtp://c/\"", "lab", "mirrors"),
            ("mirrors = [\"c\"]", "lab", "mirrors"),
            ("capacity = 600", "lab", "capacity"),
            ("capacity = \"600\"", "lab", "capacity"),
            ("weight = 0", "lab", "weight"),
            ("adress = \"h\"", "lab", "adress"),
        ] {
            let bad = hosts(&format!("[host.lab]\n{text}\n")).unwrap_err();
            assert_eq!((&*bad.name, &*bad.key), (name, key), "{text}: {}", bad.why);
        }
        for table in ["host.Lab", "host.\"a b\"", "host.\"-x\""] {
            let bad = hosts(&format!("[{table}]\nweight = 1\n")).unwrap_err();
            assert!(bad.key.is_empty() && bad.why.contains("small letters"), "{table}");
        }
        assert!(hosts("host = 1\n").unwrap_err().why.contains("[host.NAME]"));
        assert!(hosts("host.lab = 1\n").unwrap_err().why.contains("[host.NAME]"));
    }
}
