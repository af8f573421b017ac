//! `gtp completions`: a script that teaches a shell the command's words.
//!
//! It is made from the same definition that parses, so it cannot fall behind. A part that is
//! written by hand for each shell asks `gtp candidates` for hosts and for what is behind their
//! logins. The script goes to standard output; where it belongs differs from shell to shell.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use gtp::Failure;

use crate::args::Cli;
use crate::output;

pub fn run(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "gtp", &mut script);
    output::text_as_it_is(with_hosts(shell, &String::from_utf8_lossy(&script)))?;
    Ok(ExitCode::SUCCESS)
}

/// The script with the part that knows hosts, for shells that have one.
fn with_hosts(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{}", BASH.replace("VALUED", &valued().join(" | "))),
        Shell::Fish => format!("{script}{FISH}"),
        Shell::Zsh => {
            let script = script.replace(":_hosts'", ":_gtp_with_hosts'");
            let end = script.rfind(ZSH_END).unwrap_or(script.len());
            format!("{}{ZSH}\n{}", &script[..end], &script[end..])
        }
        _ => script.to_owned(),
    }
}

/// The options behind which comes a value.
fn valued() -> Vec<String> {
    let command = Cli::command();
    let all = command.get_subcommands().flat_map(|verb| verb.get_arguments());
    let valued = all.filter(|arg| !arg.is_positional() && arg.get_action().takes_values());
    let words = valued.flat_map(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
    });
    words.collect::<BTreeSet<_>>().into_iter().collect()
}

const BASH: &str = include_str!("../../shell/gtp.bash");
const FISH: &str = include_str!("../../shell/gtp.fish");
const ZSH: &str = include_str!("../../shell/gtp.zsh");

/// Where the script for zsh begins to do something.
const ZSH_END: &str = "if [ \"$funcstack[1]\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_have_the_places_where_hosts_are_put_in() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Zsh, &mut Cli::command(), "gtp", &mut script);
        let script = String::from_utf8(script).unwrap();
        assert_eq!(script.matches(ZSH_END).count(), 1);
        let whole = with_hosts(Shell::Zsh, &script);
        assert!(whole.find("_gtp_with_hosts() {") < whole.find(ZSH_END));
        // One for each verb that takes hosts, and one for `cp --also`.
        assert_eq!(whole.matches(":_gtp_with_hosts'").count(), 10);
        assert!(valued().iter().any(|word| word == "--ssh") && BASH.contains("VALUED)"));
        assert!(!valued().iter().any(|word| word == "--json"));
    }
}
