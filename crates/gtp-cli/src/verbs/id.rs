//! `gtp id`: what others know this host by.
//!
//! The line can be put into another host's `authorized_keys` as it is. It is not a secret; the key
//! behind it never leaves its file.

use std::process::ExitCode;

use gtp::{Failure, Identity, config_dir};
use serde_json::json;

use crate::args::IdArgs;
use crate::output;

pub fn run(args: IdArgs) -> Result<ExitCode, Failure> {
    let identity = Identity::load_or_create(&config_dir().map_err(super::other)?)?;
    let fingerprint = identity.fingerprint().to_string();
    if args.json {
        output::json(json!({ "event": "id", "fingerprint": fingerprint }))?;
    } else {
        output::line(fingerprint)?;
    }
    Ok(ExitCode::SUCCESS)
}
