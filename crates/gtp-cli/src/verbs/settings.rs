//! `gtp config`: every setting, its value, and where it came from.
//!
//! It asks the parser's own definition for the names and repeats its order: environment, file,
//! default. Flags belong to single commands and are not seen here.

use std::path::Path;
use std::process::ExitCode;

use gtp::{AUTHORIZED_KEYS_FILE, Failure, FailureKind, KNOWN_HOSTS_FILE};
use serde_json::json;

use crate::args::ConfigArgs;
use crate::config::{File, namesakes, options};
use crate::origins;
use crate::output::{self, aside};
use crate::toml_words::check;

/// One setting as it stands.
struct Setting {
    name: String,
    value: Option<String>,
    origin: String,
}

pub fn run(args: ConfigArgs) -> Result<ExitCode, Failure> {
    let file = File::load().map_err(super::other)?;
    let mut all = places(&file)?;
    for (name, option) in options() {
        all.push(setting(&file, name, &option));
    }
    let path = file.path.as_ref().map(|p| p.display().to_string()).unwrap_or_default();
    let of_host =
        |(name, value)| Setting { name, value: Some(value), origin: format!("file {path}") };
    all.extend(file.hosts.settings().into_iter().map(of_host));
    let of_exports = file.exports.iter().flat_map(crate::exports::settings);
    all.extend(of_exports.map(of_host));
    let width = all.iter().map(|s| s.name.len()).max().unwrap_or(0);
    for Setting { name, value, origin } in all {
        if args.json {
            let line =
                json!({ "event": "setting", "name": name, "value": value, "origin": origin });
            output::json(line)?;
        } else {
            let value = value.as_deref().unwrap_or("-");
            output::line(format_args!("{name:width$}  {value}  ({origin})"))?;
        }
    }
    judge(&file)?;
    Ok(ExitCode::SUCCESS)
}

/// Says what a service would refuse, or would use otherwise. What cannot be in the file was refused
/// before.
///
/// # Errors
/// As a start of the service.
fn judge(file: &File) -> Result<(), Failure> {
    let exposed = file.path.as_deref().and_then(origins::exposed);
    for why in file.of_some_verbs().into_iter().chain(exposed) {
        aside(why);
    }
    let known = options();
    let variable = |name: &str| {
        let variable = known.get(name)?.get_env()?.to_string_lossy().into_owned();
        Some((std::env::var(&variable).ok()?, variable))
    };
    for name in known.keys() {
        let Some((value, variable)) = variable(name) else { continue };
        let refusals = namesakes(name).into_iter().map(|option| match option.get_action() {
            clap::ArgAction::Set | clap::ArgAction::Append => check(&option, &value),
            // Variables have more words for a truth than the file.
            _ => Ok(()),
        });
        let refusals: Vec<_> = refusals.collect();
        if let (false, Some(Err(why))) = (refusals.iter().any(Result::is_ok), refusals.first()) {
            return Err(Failure::new(FailureKind::Usage, format!("{variable}: {why}")));
        }
    }
    let said =
        |name: &str| variable(name).map(|said| said.0).or(file.value(name).map(str::to_owned));
    let (audit, list) = (said("audit"), said("authorized-keys"));
    let judged =
        super::serve::judge_files(audit.as_deref().map(Path::new), list.as_deref().map(Path::new));
    judged.map_err(|(name, failure)| {
        let text = match variable(name) {
            Some((_, variable)) => format!("{variable}: {}", failure.text),
            None => file.blame(name, failure.text),
        };
        Failure::new(failure.kind, text)
    })
}

/// The directory and the files in it.
fn places(file: &File) -> Result<Vec<Setting>, Failure> {
    let dir = gtp::config_dir().map_err(super::other)?;
    let set = |name: &&str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let named = ["GTP_CONFIG_DIR", "XDG_CONFIG_HOME", "HOME"].into_iter().find(|n| set(n));
    let origin = named.map_or("the user's home".into(), |name| format!("environment {name}"));
    let place = |name: &str, path: std::path::PathBuf| {
        let there = if path.exists() { "there" } else { "not there" };
        Setting {
            name: name.into(),
            value: Some(path.display().to_string()),
            origin: format!("{origin}, {there}"),
        }
    };
    let mut found = vec![place("directory", dir.clone())];
    found.extend(file.path.clone().map(|path| place("file", path)));
    found.push(place("identity", dir.join("identity")));
    found.push(place("known_hosts", dir.join(KNOWN_HOSTS_FILE)));
    found.push(place("authorized_keys", dir.join(AUTHORIZED_KEYS_FILE)));
    Ok(found)
}

fn setting(file: &File, name: String, option: &clap::Arg) -> Setting {
    let variable = option.get_env().map(|v| v.to_string_lossy().into_owned());
    let from_env = variable.and_then(|variable| {
        let value = std::env::var(&variable).ok()?;
        Some((value, format!("environment {variable}")))
    });
    let from_file = || {
        let value = file.value(&name)?.to_owned();
        let path = file.path.as_ref().map(|p| p.display().to_string()).unwrap_or_default();
        Some((value, format!("file {path}")))
    };
    let default = || {
        let is_switch = matches!(option.get_action(), clap::ArgAction::SetTrue);
        let values = option.get_default_values().first();
        let value = values.map(|v| v.to_string_lossy().into_owned());
        value.or_else(|| is_switch.then(|| "false".into()))
    };
    match from_env.or_else(from_file) {
        Some((value, origin)) => Setting { name, value: Some(value), origin },
        None => Setting { value: default(), name, origin: "default".into() },
    }
}
