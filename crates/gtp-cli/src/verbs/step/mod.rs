//! `gtp stream --group`: frames in step, of several sources at one receiver, or at several.
//!
//! Options become terms here, and what happens becomes words and a report. Which frame is released
//! when is the library's.

mod receive;
mod report;
mod send;

use gtp::{Failure, FailureKind};

pub use receive::receive;
pub use send::send;

use crate::args::{StreamArgs, Way};

/// Refuses options that do not go together, before anything is opened.
///
/// # Errors
/// Of kind `Usage`.
pub fn check(args: &StreamArgs) -> Result<(), Failure> {
    let group = &args.group;
    let (is_led, to_several) = (group.parts.is_some_and(|parts| parts > 1), args.urls.len() > 1);
    let faults = match args.way {
        Way::Receive => [
            (to_several, "gtp stream receive takes one address"),
            (
                group.parts.is_some() && !args.urls.is_empty(),
                "the receiver of a group listens: it takes no address",
            ),
            (group.part.is_some(), "--part is for gtp stream send"),
            (group.release_after.is_some(), "--release-after is for gtp stream send"),
            (
                is_led && args.frame_every.is_none(),
                "the receiver of several sources keeps their time: --frame-every TIME is needed",
            ),
            (
                group.parts == Some(1) && args.frame_every.is_some(),
                "with --group 1 the sender keeps the time: --frame-every is for it",
            ),
        ],
        Way::Send => [
            (group.parts.is_some() && args.urls.is_empty(), "the sender of a group needs a URL"),
            (is_led && to_several, "a part of a frame goes to one receiver, which keeps the time"),
            (is_led && group.part.is_none(), "which part this is must be said: --part K"),
            (group.part > group.parts, "--part is beyond the number of parts that --group says"),
            (
                is_led && (args.frame_every.is_some() || group.release_after.is_some()),
                "the receiver of several sources keeps the time: no --frame-every or \
                 --release-after here",
            ),
            (
                group.deadline.is_some() || group.whole,
                "--deadline and --whole are for gtp stream receive",
            ),
        ],
    };
    match faults.into_iter().find(|(is_so, _)| *is_so) {
        Some((_, text)) => Err(Failure::new(FailureKind::Usage, text)),
        None => Ok(()),
    }
}
