//! `gtp candidates`: what the word at a shell's cursor may become, for the completion scripts.
//!
//! Hosts come from the configuration file and from ssh's, paths behind a login from the login
//! itself, those at a server from the server, within a few seconds and without a question to
//! anybody. Nothing fails aloud: without an answer there are no candidates. Quoting is the shells'
//! own business.

mod listing;
mod server;
mod ssh_config;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::Args;
use gtp::{Failure, Url};

use crate::config::File;
use crate::cp::operand::{Operand, Remote};
use crate::hosts::Hosts;
use crate::output;
use crate::verbs::runtime;

/// Options of `candidates`.
#[derive(Debug, Args)]
pub struct CandidatesArgs {
    /// The verb whose word it is
    verb: String,
    /// The word so far, as it is without the shell's quotes
    #[arg(allow_hyphen_values = true)]
    word: String,
    /// The program that logs in, as for `cp`
    #[arg(long, value_name = "PROGRAM", default_value = "ssh", env = "GTP_SSH")]
    ssh: String,
}

/// What the words of a verb name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Paths behind logins, and addresses.
    Logins,
    /// Addresses alone.
    Addresses,
    /// Hosts alone.
    Hosts,
}

/// Prints the candidates, one a line.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &CandidatesArgs) -> Result<ExitCode, Failure> {
    // A file that cannot be read is told by the command itself.
    let hosts = File::load().map(|file| file.hosts).unwrap_or_default();
    let takes = match args.verb.as_str() {
        "cp" | "sync" => Takes::Logins,
        "get" | "put" | "ls" | "stream" | "doctor" => Takes::Addresses,
        "ssh" => Takes::Hosts,
        _ => return Ok(ExitCode::SUCCESS),
    };
    let found = match (remote(takes, &args.word), address(takes, &args.word)) {
        (Some(remote), _) => beneath(args, &hosts, &remote)?,
        (None, Some((head, url))) => {
            let names = runtime()?.block_on(server::names(&hosts.url(&url)));
            names.into_iter().map(|name| format!("{head}{name}")).collect()
        }
        (None, None) => named(args, &hosts, takes),
    };
    for candidate in found.iter().filter(|text| text.chars().all(gtp_text::is_plain)) {
        output::text_as_it_is(format_args!("{candidate}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The path behind a login that the word begins, if it does.
fn remote(takes: Takes, word: &str) -> Option<Remote> {
    match Operand::of(OsStr::new(word)) {
        Ok(Operand::Remote(remote)) if takes == Takes::Logins => Some(remote),
        Ok(_) | Err(_) => None,
    }
}

/// The address of the directory that the word has reached at a server, as it is written and read.
fn address(takes: Takes, word: &str) -> Option<(&str, Url)> {
    let host = word.strip_prefix("gtp://").filter(|_| takes != Takes::Hosts)?;
    let dir = &word[..=word.len() - host.len() + host.rfind('/')?];
    Some((dir, dir.parse().ok()?))
}

/// What a login holds in the directory that the word has reached, each with the word before it.
fn beneath(args: &CandidatesArgs, hosts: &Hosts, remote: &Remote) -> Result<Vec<String>, Failure> {
    let dir = &remote.path[..remote.path.rfind('/').map_or(0, |at| at + 1)];
    let head = &args.word[..args.word.len() - remote.path.len() + dir.len()];
    let login = hosts.login(&remote.login);
    let names = runtime()?.block_on(listing::names(&args.ssh, &login, dir));
    Ok(names.into_iter().map(|name| format!("{head}{name}")).collect())
}

/// Hosts that the word may begin.
fn named(args: &CandidatesArgs, hosts: &Hosts, takes: Takes) -> Vec<String> {
    let word = &args.word;
    let mut found = Vec::new();
    if takes != Takes::Hosts {
        found.extend(hosts.names().map(|name| format!("gtp://{name}/")));
    }
    let (user, colon) = match (takes, word.rsplit_once('@')) {
        (Takes::Addresses, _) => return begun(word, found),
        (Takes::Hosts, user) => (user, ""),
        (Takes::Logins, user) => (user, ":"),
    };
    let user = user.map_or(String::new(), |(user, _)| format!("{user}@"));
    let own = hosts.names().map(str::to_owned).filter(|_| takes == Takes::Logins);
    let mut names: Vec<String> = own.chain(ssh_config::hosts(&args.ssh)).collect();
    names.sort();
    names.dedup();
    found.extend(names.iter().map(|name| format!("{user}{name}{colon}")));
    begun(word, found)
}

fn begun(word: &str, mut found: Vec<String>) -> Vec<String> {
    found.retain(|candidate| candidate.starts_with(word));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_in(verb: &str, word: &str) -> Vec<String> {
        let table: toml::Table = "[host.lab]\n[host.late]\n".parse().unwrap();
        let hosts = Hosts::of(&table["host"]).unwrap();
        let takes = if verb == "cp" { Takes::Logins } else { Takes::Addresses };
        // A program without a configuration file of its own.
        let ssh = "ssh -F /dev/null".to_owned();
        named(&CandidatesArgs { verb: verb.into(), word: word.into(), ssh }, &hosts, takes)
    }

    #[test]
    fn a_name_is_a_login_for_cp_and_an_address_for_all() {
        assert_eq!(named_in("cp", "la"), ["lab:", "late:"]);
        assert_eq!(named_in("cp", "me@lat"), ["me@late:"]);
        assert_eq!(named_in("cp", "gtp://la"), ["gtp://lab/", "gtp://late/"]);
        assert_eq!(named_in("get", "g"), ["gtp://lab/", "gtp://late/"]);
        assert!(named_in("get", "la").is_empty());
    }

    #[test]
    fn the_directory_at_a_server_is_what_comes_before_the_last_slash() {
        let dir = |word| address(Takes::Logins, word).map(|(dir, _)| dir.to_owned());
        for (word, head) in [
            ("gtp://h/", Some("gtp://h/")),
            ("gtp://h:7/a%20b/c", Some("gtp://h:7/a%20b/")),
            ("gtp://h", None),
            ("gtp://h:x/", None),
            ("gtp:///", None),
            ("h:/a", None),
        ] {
            assert_eq!(dir(word).as_deref(), head, "{word}");
        }
        assert!(address(Takes::Hosts, "gtp://h/").is_none());
        assert!(address(Takes::Addresses, "gtp://h/").is_some());
    }

    #[test]
    fn paths_behind_a_login_are_told_from_paths_here() {
        for word in ["lab:", "lab:da", "me@lab:~/x y", "lab:/a:b"] {
            assert!(remote(Takes::Logins, word).is_some(), "{word}");
            assert!(remote(Takes::Addresses, word).is_none(), "{word}");
        }
        for word in ["", "lab", "./lab:x", "/a:b", "-oProxyCommand=x:", "gtp://lab/x", "a::b"] {
            assert!(remote(Takes::Logins, word).is_none(), "{word}");
        }
    }
}
