//! The names of hosts in the words of one command, and what follows from them.
//!
//! A name is replaced by its address where a server's address or a login is expected, and nowhere
//! else. What the file says of capacity and weight counts unless the command line or the
//! environment says otherwise; hosts of one command that differ in it are a usage error.

use std::collections::HashMap;
use std::ffi::OsString;

use clap::ArgMatches;
use clap::parser::ValueSource;
use gtp::{DEFAULT_PORT, Failure, FailureKind, Rate, Url};

use super::{Address, Hosts, Known};
use crate::args::{GetArgs, HostArgs, TransferArgs, Verb};
use crate::cp::operand::{Login, Operand, Remote};

/// For each address of a command, where other servers have the same.
pub type Mirrors = HashMap<Url, Vec<Url>>;

impl Hosts {
    /// Replaces names in a command by what the file says of them. `given` tells what the command
    /// line and the environment have said.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if two hosts of the command differ in a setting.
    pub fn resolve(&self, verb: &mut Verb, given: &ArgMatches) -> Result<(), Failure> {
        let mut names = Names { hosts: self, met: Vec::new(), mirrors: Mirrors::new() };
        let Some((host, weight)) = names.replace_all(verb) else { return Ok(()) };
        if let Some(weight) = weight
            && !is_said(given, "weight")
            && let Some(said) = names.one("weight", |known| known.weight)?
        {
            *weight = said;
        }
        names.set_routers(host, given)?;
        names.set_capacities(host, given)
    }
}

impl Hosts {
    /// The address that one with a name stands for; any other address is itself.
    pub fn url(&self, url: &Url) -> Url {
        let known = self.0.get(url.host().host());
        known.and_then(|known| at(&known.address, url)).unwrap_or_else(|| url.clone())
    }

    /// The login that a name stands for; any other login is itself.
    pub fn login(&self, login: &Login) -> Login {
        let known = self.0.get(login.host());
        known.and_then(|known| Login::of(&behind(&known.address, login))).unwrap_or(login.clone())
    }
}

/// What a command says of this machine's capacities, and its weight, if it has one.
type Settings<'v> = (&'v mut HostArgs, Option<&'v mut f64>);

fn of_transfer(args: &mut TransferArgs) -> Settings<'_> {
    (&mut args.host, Some(&mut args.weight))
}

/// Whether the command line or the environment has said this.
fn is_said(given: &ArgMatches, id: &str) -> bool {
    matches!(given.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// Names as they are met in one command.
struct Names<'a> {
    hosts: &'a Hosts,
    met: Vec<(&'a str, &'a Known)>,
    mirrors: Mirrors,
}

impl<'a> Names<'a> {
    /// Replaces the names in a command; returns its settings that hosts may have.
    fn replace_all<'v>(&mut self, verb: &'v mut Verb) -> Option<Settings<'v>> {
        match verb {
            Verb::Get(args) => {
                self.replace_in_get(args);
                Some(of_transfer(&mut args.transfer))
            }
            Verb::Put(args) => {
                let words = args.paths_and_url.iter_mut().rev();
                let addresses = words.enumerate().take_while(|(at, word)| {
                    *at == 0 || word.as_os_str().as_encoded_bytes().starts_with(b"gtp://")
                });
                for (_, word) in addresses {
                    self.replace_operand(word.as_mut_os_string());
                }
                Some(of_transfer(&mut args.transfer))
            }
            Verb::Cp(args) => {
                let words = args.words.iter_mut().chain(&mut args.also);
                words.for_each(|word| self.replace_operand(word));
                args.mirrors_of = std::mem::take(&mut self.mirrors);
                Some(of_transfer(&mut args.transfer))
            }
            Verb::Sync(args) => {
                args.words.iter_mut().for_each(|word| self.replace_operand(word));
                Some(of_transfer(&mut args.transfer))
            }
            Verb::Stream(args) => {
                args.urls.iter_mut().for_each(|url| self.replace_url(url));
                Some((&mut args.host, Some(&mut args.weight)))
            }
            Verb::Doctor(args) => {
                args.url.iter_mut().for_each(|url| self.replace_url(url));
                Some((&mut args.host, None))
            }
            Verb::Probe(args) => {
                self.replace_url(&mut args.url);
                Some((&mut args.host, None))
            }
            Verb::Ls(args) => {
                self.replace_url(&mut args.url);
                None
            }
            // They name no host, or their words are others' to read.
            Verb::Serve(_)
            | Verb::Ssh(_)
            | Verb::FarEnd(_)
            | Verb::Id(_)
            | Verb::Keys(_)
            | Verb::Run(_)
            | Verb::Pump(_)
            | Verb::Emulate(_)
            | Verb::Router(_)
            | Verb::Demo(_)
            | Verb::Bench(_)
            | Verb::Sessions(_)
            | Verb::Top(_)
            | Verb::Set(_)
            | Verb::Config(_)
            | Verb::Candidates(_)
            | Verb::Completions { .. }
            | Verb::Plan(_)
            | Verb::Man { .. } => None,
        }
    }

    fn replace_in_get(&mut self, args: &mut GetArgs) {
        if let Some((_, urls)) = args.urls_and_dest.split_last_mut() {
            urls.iter_mut().for_each(|word| self.replace_address(word));
        }
        args.mirrors_of = std::mem::take(&mut self.mirrors);
        args.mirror.iter_mut().for_each(|url| self.replace_url(url));
    }

    fn meet(&mut self, name: &str) -> Option<&'a Known> {
        let (name, known) = self.hosts.0.get_key_value(name)?;
        self.met.push((name, known));
        Some(known)
    }

    /// Replaces the name in the text of an address. What is no address is left for its reader to
    /// refuse.
    fn replace_address(&mut self, word: &mut String) {
        let Ok(mut url) = word.parse::<Url>() else { return };
        let met = self.met.len();
        self.replace_url(&mut url);
        if self.met.len() > met {
            *word = url.encoded();
        }
    }

    fn replace_url(&mut self, url: &mut Url) {
        let Some(known) = self.meet(url.host().host()) else { return };
        let Some(found) = at(&known.address, url) else { return };
        let mirrors: Vec<Url> =
            known.mirrors.iter().filter_map(|base| beneath(base, url)).collect();
        *url = found;
        if !mirrors.is_empty() {
            self.mirrors.insert(url.clone(), mirrors);
        }
    }

    /// Replaces the name in a word that is a path, a path behind a login, or an address.
    fn replace_operand(&mut self, word: &mut OsString) {
        match Operand::of(word) {
            Ok(Operand::Address(mut text)) => {
                self.replace_address(&mut text);
                *word = text.into();
            }
            Ok(Operand::Remote(Remote { login, path })) => {
                if let Some(known) = self.meet(login.host()) {
                    let login = behind(&known.address, &login);
                    *word = format!("{login}:{path}").into();
                }
            }
            // What is none of them is left for its reader to refuse.
            Ok(Operand::Local(_)) | Err(_) => {}
        }
    }

    /// What the hosts that were met say of one setting.
    fn one<T: PartialEq>(
        &self,
        key: &str,
        setting: impl Fn(&Known) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let mut said: Option<(&str, T)> = None;
        for (name, known) in &self.met {
            match (setting(known), &said) {
                (Some(value), Some((first, other))) if value != *other => {
                    let text = format!(
                        "`{key}` differs between [host.{first}] and [host.{name}]: say it with \
                         the command"
                    );
                    return Err(Failure::new(FailureKind::Usage, text));
                }
                (Some(value), None) => said = Some((name, value)),
                (Some(_), Some(_)) | (None, _) => {}
            }
        }
        Ok(said.map(|(_, value)| value))
    }

    fn set_routers(&self, host: &mut HostArgs, given: &ArgMatches) -> Result<(), Failure> {
        let said = |known: &Known| (!known.routers.is_empty()).then(|| known.routers.clone());
        if !is_said(given, "router")
            && let Some(routers) = self.one("router", said)?
        {
            host.router = routers;
        }
        Ok(())
    }

    fn set_capacities(&self, host: &mut HostArgs, given: &ArgMatches) -> Result<(), Failure> {
        let sides =
            [("capacity_in", &mut host.capacity_in), ("capacity_out", &mut host.capacity_out)];
        for (id, side) in sides {
            if !is_said(given, id)
                && let Some(rate) = self.one("capacity", |known| known.capacity)?
            {
                *side = Some::<Rate>(rate);
            }
        }
        Ok(())
    }
}

/// The same object at an address; a port that the command names goes before the address's.
fn at(address: &Address, url: &Url) -> Option<Url> {
    let (_, path) = parts(url)?;
    let port = match url.names_port() {
        true => url.host().port(),
        false => address.port.unwrap_or(DEFAULT_PORT),
    };
    let server = Url::at(&address.host, port, "").ok()?;
    format!("{}{path}", server.encoded()).parse().ok()
}

/// The same object beneath another address.
fn beneath(base: &Url, url: &Url) -> Option<Url> {
    let (_, path) = parts(url)?;
    format!("{}/{path}", base.encoded().trim_end_matches('/')).parse().ok()
}

/// The server and the path of an address, as they are written.
fn parts(url: &Url) -> Option<(String, String)> {
    let text = url.encoded();
    let (server, path) = text.strip_prefix("gtp://")?.split_once('/')?;
    Some((server.to_owned(), path.to_owned()))
}

/// The login that a name stands for. A user that the command names goes before the address's.
fn behind(address: &Address, login: &Login) -> String {
    let text = login.to_string();
    let user = text.rsplit_once('@').map(|(user, _)| user).or(address.user.as_deref());
    let whole = Address { user: user.map(str::to_owned), host: address.host.clone(), port: None };
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::args::Cli;

    const FILE: &str = "[host.lab]\naddress = \"me@login.example:4900\"\n\
        mirrors = [\"gtp://c/copies\", \"gtp://d:5000\"]\ncapacity = \"600Mbit\"\nweight = 2\n\
        [host.v6]\naddress = \"[2001:db8::1]\"\nweight = 3\n[host.same]\nweight = 2\n";

    fn resolved(words: &[&str]) -> Result<Verb, Failure> {
        let table: toml::Table = FILE.parse().unwrap();
        let hosts = Hosts::of(&table["host"]).unwrap();
        let words = [&["gtp"], words].concat();
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        let mut verb = Cli::from_arg_matches(&matches).unwrap().verb;
        let (_, given) = matches.subcommand().unwrap();
        hosts.resolve(&mut verb, given)?;
        Ok(verb)
    }

    fn words_of(verb: &Verb) -> Vec<String> {
        let of_os = |words: &[OsString]| {
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
        };
        match verb {
            Verb::Get(args) => args.urls_and_dest.clone(),
            Verb::Cp(args) => of_os(&args.words),
            Verb::Sync(args) => of_os(&args.words),
            Verb::Put(args) => {
                args.paths_and_url.iter().map(|path| path.display().to_string()).collect()
            }
            _ => panic!("{verb:?}"),
        }
    }

    #[test]
    fn a_name_stands_for_its_address_in_addresses_and_logins_and_nowhere_else() {
        for (words, are) in [
            (
                &["cp", "lab:a b", "lab:~/x", "."][..],
                &["me@login.example:a b", "me@login.example:~/x", "."][..],
            ),
            (&["cp", "you@lab:a", "./lab:b"], &["you@login.example:a", "./lab:b"]),
            (&["cp", "v6:a", "lab"], &["[2001:db8::1]:a", "lab"]),
            (&["cp", "gtp://lab/a%20b/", "."], &["gtp://login.example:4900/a%20b/", "."]),
            (&["cp", "gtp://lab:4810/a", "."], &["gtp://login.example:4810/a", "."]),
            (&["cp", "labs:a", "."], &["labs:a", "."]),
            (
                &["get", "gtp://LAB/a", "gtp://v6:99/", "gtp://lab"],
                &["gtp://login.example:4900/a", "gtp://[2001:db8::1]:99/", "gtp://lab"],
            ),
            (&["put", "lab:x", "gtp://lab/in/"], &["lab:x", "gtp://login.example:4900/in/"]),
            (
                &["put", "x", "gtp://lab/in/", "gtp://v6/"],
                &["x", "gtp://login.example:4900/in/", "gtp://[2001:db8::1]:4810/"],
            ),
            (&["sync", "d/", "v6:d"], &["d/", "[2001:db8::1]:d"]),
        ] {
            let verb = match resolved(words) {
                Ok(verb) => verb,
                // Weights of two hosts.
                Err(_) => resolved(&[words, &["--weight", "1"]].concat()).unwrap(),
            };
            assert_eq!(words_of(&verb), are, "{words:?}");
        }
        let Ok(Verb::Ls(args)) = resolved(&["ls", "gtp://lab/x/"]) else { panic!() };
        assert_eq!(args.url.encoded(), "gtp://login.example:4900/x/");
    }

    #[test]
    fn mirrors_have_the_object_at_the_same_path_beneath_theirs() {
        let Ok(Verb::Get(args)) = resolved(&["get", "gtp://lab/a/b%25/", "gtp://same/x", "o/"])
        else {
            panic!()
        };
        let url: Url = args.urls_and_dest[0].parse().unwrap();
        let mirrors: Vec<_> = args.mirrors_of[&url].iter().map(Url::encoded).collect();
        assert_eq!(mirrors, ["gtp://c:4810/copies/a/b%25/", "gtp://d:5000/a/b%25/"]);
        assert_eq!(args.mirrors_of.len(), 1);
    }

    #[test]
    fn capacity_and_weight_count_unless_the_command_says_otherwise_or_hosts_differ() {
        let Ok(Verb::Cp(args)) = resolved(&["cp", "lab:a", "same:b", "."]) else { panic!() };
        let both = (args.transfer.host.capacity_in, args.transfer.host.capacity_out);
        assert_eq!(both, (Some(Rate::from_mbps(600)), Some(Rate::from_mbps(600))));
        assert_eq!(args.transfer.weight, 2.0);
        let words = ["cp", "lab:a", ".", "--weight", "5", "--capacity-in", "1Gbit"];
        let Ok(Verb::Cp(args)) = resolved(&words) else { panic!() };
        assert_eq!(args.transfer.weight, 5.0);
        assert_eq!(args.transfer.host.capacity_in, Some(Rate::from_mbps(1_000)));
        assert_eq!(args.transfer.host.capacity_out, Some(Rate::from_mbps(600)));
        let refused = resolved(&["cp", "lab:a", "v6:b", "."]).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Usage);
        assert!(refused.text.contains("[host.lab] and [host.v6]"), "{refused}");
        assert!(resolved(&["cp", "lab:a", "v6:b", ".", "--weight", "1"]).is_ok());
    }

    #[test]
    fn words_of_other_programs_are_theirs() {
        let Ok(Verb::Ssh(args)) = resolved(&["ssh", "lab", "get", "gtp://lab/x"]) else { panic!() };
        assert_eq!(args.words, [OsStr::new("lab"), OsStr::new("get"), OsStr::new("gtp://lab/x")]);
    }
}
