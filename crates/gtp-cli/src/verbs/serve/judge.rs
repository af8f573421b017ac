//! What a start would refuse, judged without one; and which setting is to blame for a refusal.
//!
//! Values that cannot be are refused where they are read. Here is what only the machine can say.
//! Whether an address is free shows at a start alone.

use std::path::Path;

use gtp::{AuthorizedKeys, Failure, FailureKind};

use super::audit::Audit;
use crate::origins::Origins;

/// Looks at the audit and at the list of keys that settings name.
///
/// # Errors
/// As a start with them; and the setting.
pub fn of_files(audit: Option<&Path>, list: Option<&Path>) -> Result<(), (&'static str, Failure)> {
    if let Some(path) = audit {
        Audit::judge(path).map_err(|failure| ("audit", failure))?;
    }
    if let Some(path) = list {
        let refused = |why: gtp::TrustError| {
            ("authorized-keys", Failure::new(FailureKind::Authentication, why.to_string()))
        };
        AuthorizedKeys::load(path).map_err(refused)?;
    }
    Ok(())
}

/// A failure behind the setting that it is about, and that setting's place.
pub(super) fn blamed(origins: &Origins, setting: &str, failure: Failure) -> Failure {
    Failure::new(failure.kind, origins.blame(setting, failure.text))
}

/// What a start failed by, behind the setting if it is about an address or about the list of keys.
pub(super) fn of_start(origins: &Origins, failure: Failure) -> Failure {
    match failure.text.starts_with(CANNOT_LISTEN) {
        true => blamed(origins, "listen", failure),
        false => failure,
    }
}

/// What the words for an address that cannot be had begin with.
const CANNOT_LISTEN: &str = "cannot listen on ";
